package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// fault is an error injected into the n-th operation of a kind on paths that hold a
// word, and into the k-1 that follow.
type fault struct {
	kind vfstest.Kind
	path string
	n, k int64
	err  error

	seen atomic.Int64
}

func (f *fault) hook(op vfstest.Op) error {
	if op.Kind != f.kind || !strings.Contains(op.Path, f.path) {
		return nil
	}
	if i := f.seen.Add(1); i >= f.n && i < f.n+f.k {
		return f.err
	}
	return nil
}

// hit reports whether the error has come.
func (f *fault) hit() bool { return f.seen.Load() >= f.n }

// ledger keeps what has been asked and what was answered, a message a stream at a time.
type ledger struct {
	mu    sync.Mutex
	asked map[string][]string
	acked map[string]int
}

// flood submits appends, up to eight at a time, until stop or the engine refuses,
// and returns the ledger once all that will be answered is.
func (r *rig) flood(names []string, limit int, stop func() bool) *ledger {
	l := &ledger{asked: map[string][]string{}, acked: map[string]int{}}
	slots := make(chan struct{}, 8)
	for i := 0; i < limit && !stop(); i++ {
		name := names[i%len(names)]
		body := fmt.Sprintf("<%s %d %s>", name, i, strings.Repeat("x", i*37%700))
		op := &engine.Op{Event: appendEvent(body), Stream: r.stream(name)}
		l.mu.Lock()
		l.asked[name] = append(l.asked[name], body)
		n := len(l.asked[name])
		l.mu.Unlock()
		op.Done = func(op *engine.Op) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if op.Answer.Code == core.Appended {
				l.acked[name] = max(l.acked[name], n)
			}
			<-slots
		}
		select {
		case slots <- struct{}{}:
		case <-time.After(time.Minute): // nothing is answered any more
			return l
		}
		if err := r.Submit(op); err != nil {
			break
		}
	}
	synctest.Wait()
	return l
}

// check compares an engine with the ledger: all that was answered is there, in order
// and once, and nothing that was not asked.
func (l *ledger) check(r *rig) {
	r.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, asked := range l.asked {
		got, err := r.content(name)
		if err != nil {
			r.Errorf("%s: %v", name, err)
			continue
		}
		for i, body := range asked {
			var ok bool
			if got, ok = strings.CutPrefix(got, body); ok {
				continue
			}
			if got != "" || i < l.acked[name] {
				r.Errorf("%s: message %d of %d that were answered is not there but %.60q", name, i, l.acked[name], got)
			}
			break
		}
	}
}

// Design rule 4: the first error of the log, the manifest or a directory ends it.
func TestFirstErrorIsFinal(t *testing.T) {
	for _, f := range []struct {
		kind vfstest.Kind
		path string
	}{
		{vfstest.Write, "/wal/"},
		{vfstest.Datasync, "/wal/"},
		{vfstest.Rename, "/wal/"},
		{vfstest.SyncDir, "/wal"},
		{vfstest.Write, ".spare"},
		{vfstest.Datasync, ".spare"},
		{vfstest.Write, "MANIFEST-"},
		{vfstest.Datasync, "MANIFEST-"},
		{vfstest.SyncDir, "/seg"},
		{vfstest.SyncDir, "/tmp"},
	} {
		t.Run(fmt.Sprint(f.kind, " ", strings.Trim(f.path, "/.-")), func(t *testing.T) {
			for _, n := range []int64{1, 2, 3, 7} {
				synctest.Test(t, func(t *testing.T) {
					finalError(t, &fault{kind: f.kind, path: f.path, n: n, k: 1, err: syscall.EIO})
				})
			}
		})
	}
}

func finalError(t *testing.T, f *fault) {
	r := newRig(t, tiny(2))
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		r.create(name)
	}
	synctest.Wait() // the next files of the log are ready
	r.fs.SetHook(f.hook)
	l := r.flood(names, 5000, func() bool { return r.failures() > 0 })
	if !f.hit() {
		t.Fatal("the error never came")
	}
	later(time.Minute)
	if n := r.failures(); n != 1 || !errors.Is(r.Err(), syscall.EIO) {
		t.Fatalf("%d errors were reported, the last is %v", n, r.Err())
	}
	if err := r.Submit(&engine.Op{Event: appendEvent("late"), Stream: r.stream("a")}); !errors.Is(err, engine.ErrFailed) {
		t.Fatalf("after the failure an operation is answered %v", err)
	}
	r.fs.SetHook(nil)
	for _, fs := range []*vfstest.MemFS{r.fs.CrashClone(nil), r.fs.Clone()} {
		again := r.on(fs)
		l.check(again)
		again.append("a", "on it goes")
		again.close()
	}
	if err := r.Close(); err != nil && !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}

// An error in the background is reported though nobody asks for anything.
func TestFailureOfAnIdleLog(t *testing.T) {
	for _, kind := range []vfstest.Kind{vfstest.Rename, vfstest.SyncDir} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, tiny(1))
			r.create("a")
			synctest.Wait()
			f := &fault{kind: kind, path: "/wal", n: 2, k: 1, err: syscall.EIO}
			r.fs.SetHook(f.hook)
			r.flood([]string{"a"}, 5000, f.hit)
			later(2 * time.Second)
			if !f.hit() || r.failures() != 1 {
				t.Errorf("%s: %d errors were reported", kind, r.failures())
			}
			if err := r.Close(); err != nil && !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
		})
	}
}

// An operation whose answer would rest on a batch that failed is never answered, be
// it a refusal or a repeat.
func TestNothingOfAFailedBatchIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("a")
		gate := make(chan struct{})
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind != vfstest.Datasync || !strings.Contains(op.Path, "/wal/") {
				return nil
			}
			<-gate
			return syscall.EIO
		})
		var answered atomic.Int64
		submit := func(ev core.Event) {
			if err := r.Submit(&engine.Op{Event: ev, Stream: r.stream("a"), Done: func(*engine.Op) { answered.Add(1) }}); err != nil {
				t.Fatal(err)
			}
		}
		write := appendEvent("x")
		write.Producer.ID, write.Producer.Set = []byte("p"), true
		submit(write)
		synctest.Wait() // it is with the disk
		submit(write)   // its repeat
		other := appendEvent("y")
		other.MediaType = []byte("text/html")
		submit(other) // refused
		submit(core.Event{Op: core.OpDelete})
		submit(core.Event{Op: core.OpAppend, Close: true})
		synctest.Wait()
		if v := r.view("a"); v.Next != 0 {
			t.Errorf("readers see %d bytes that are not durable", v.Next)
		}
		close(gate)
		later(time.Minute)
		if n := answered.Load(); n != 0 {
			t.Errorf("%d operations were answered", n)
		}
		if v := r.view("a"); v.Next != 0 || v.Closed {
			t.Errorf("readers see %+v", v.View)
		}
		if r.failures() != 1 {
			t.Error("the failure was not reported")
		}
		if err := r.Close(); err != nil && !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	})
}

// A new segment that fails is written anew; the log keeps what it would have held.
func TestSegmentErrorsAreRetried(t *testing.T) {
	for _, kind := range []vfstest.Kind{
		vfstest.Create, vfstest.Allocate, vfstest.Write, vfstest.Truncate, vfstest.Datasync, vfstest.Rename, vfstest.Open, vfstest.Read,
	} {
		for _, err := range []error{syscall.EIO, vfs.ErrNoSpace, syscall.EMFILE} {
			for _, n := range []int64{1, 2, 5} {
				t.Run(fmt.Sprint(kind, "=", n, " ", err), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { segmentError(t, &fault{kind: kind, path: ".seg", n: n, k: 3, err: err}) })
				})
			}
		}
	}
}

func segmentError(t *testing.T, f *fault) {
	r := newRig(t, tiny(1))
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		r.create(name)
	}
	r.fs.SetHook(f.hook)
	l := r.flood(names, 3000, func() bool { return f.seen.Load() > f.n+20 && r.flushed() > 3 })
	later(time.Minute)
	if !f.hit() {
		t.Fatal("the error never came")
	}
	if r.failures() > 0 {
		t.Fatalf("the engine failed: %v", r.Err())
	}
	l.check(r)
	for _, path := range find(t, r.fs, "data/shard-00/tmp/*") {
		t.Errorf("%s is left", path)
	}
	if n, live := len(find(t, r.fs, "data/shard-00/seg/*")), r.Stats().Segments; int64(n) != live {
		t.Errorf("%d segment files for %d segments", n, live)
	}
	crashed := r.on(r.fs.CrashClone(nil))
	l.check(crashed)
	crashed.close()
	r.fs.SetHook(nil)
	r.reopen()
	l.check(r)
	r.close()
}

// With the disk full, whatever adds data is refused with DiskFull. Reads and deletes
// go on, and writes do as soon as there is space again.
func TestDiskFull(t *testing.T) {
	for free := int64(0); free < 512<<10; free += 20 << 10 {
		synctest.Test(t, func(t *testing.T) { fillDisk(t, tiny(1), free) })
		synctest.Test(t, func(t *testing.T) { fillDisk(t, tiny(3), free) })
	}
}

func fillDisk(t *testing.T, o engine.Options, free int64) {
	r := newRig(t, o)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		r.create(name)
		r.append(name, "first of "+name)
	}
	synctest.Wait()
	r.fs.SetFree(free)
	want := map[string]string{}
	full := 0
	for i := 0; full < 50; i++ {
		name := names[i%len(names)]
		body := fmt.Sprintf("<%d %s>", i, strings.Repeat("x", i*31%900))
		switch a := r.try(name, appendEvent(body)); a.Code {
		case core.Appended:
			want[name] += body
		case core.DiskFull:
			full++
		default:
			t.Fatalf("free %d: append %d was answered %d", free, i, a.Code)
		}
	}
	for _, name := range names {
		r.expect(name, "first of "+name+want[name])
	}
	r.fs.SetFree(-1)
	later(time.Minute)
	for _, name := range names {
		r.append(name, "last")
		want[name] += "last"
	}
	if r.DiskFull() || r.failures() > 0 {
		t.Errorf("free %d: full %t, failed %v", free, r.DiskFull(), r.Err())
	}
	r.remove("a")
	for range 2 {
		for _, name := range names[1:] {
			r.expect(name, "first of "+name+want[name])
		}
		r.reopen()
	}
	r.close()
}

// The floor of free space is kept for deletes, flushes and merges.
func TestFloorOfFreeSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.MinFreeDisk = 0 // the default: what flush and merge need
		r := newRig(t, o)
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprint("s", i))
			r.create(names[i])
		}
		want := r.fill(names, 3)
		later(time.Minute) // merges are done, nothing frees space any more
		for range 2 {      // the first time, a flush may give files of the log back
			r.fs.SetFree(2*o.SegmentMaxBytes + o.MemtableBytes + 2*o.WALFileBytes - 40<<10)
			later(2 * time.Second)
		}
		r.must("s0", appendEvent("x"), core.DiskFull)
		r.must("new", createEvent("new"), core.DiskFull)
		if !r.DiskFull() {
			t.Error("DiskFull does not say so")
		}
		for i, name := range names {
			if i%2 == 0 {
				r.remove(name)
			}
		}
		later(time.Minute)
		for i, name := range names {
			if i%2 == 1 {
				r.expect(name, want[name])
			} else if r.view(name) != nil {
				t.Errorf("%s is there", name)
			}
		}
		r.must("s1", core.Event{Op: core.OpAppend, Close: true}, core.DiskFull)
		r.fs.SetFree(-1)
		later(2 * time.Second)
		r.append("s1", "x")
		r.close()
	})
}
