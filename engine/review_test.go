package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// A clock that stands still until it is moved.
type handClock struct{ ms atomic.Int64 }

func (c *handClock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

func smallOptions(fs *vfstest.MemFS) Options {
	return Options{
		FS: fs, Shards: 1, WALFileBytes: 256 << 10, WALMaxBytes: 1 << 20, MemtableBytes: 64 << 10, SegmentMaxBytes: 64 << 10,
		MinFreeDisk: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func mustOpen(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open("data", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func mustDo(t testing.TB, e *Engine, o *Op) core.Answer {
	t.Helper()
	if err := e.Do(o); err != nil {
		t.Fatal(err)
	}
	return o.Answer
}

func makeStream(t testing.TB, e *Engine, name string, ttl int64) {
	t.Helper()
	a := mustDo(t, e, &Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: ttl}})
	if a.Code != core.Created {
		t.Fatalf("create %s: %d", name, a.Code)
	}
}

func appendTo(t testing.TB, e *Engine, name string, body []byte) {
	t.Helper()
	if a := mustDo(t, e, appendOp(e, name, body)); a.Code != core.Appended {
		t.Fatalf("append to %s: %d", name, a.Code)
	}
}

func appendOp(e *Engine, name string, body []byte) *Op {
	return &Op{Stream: e.Lookup([]byte("b"), []byte(name)), Event: core.Event{
		Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: body, Ends: []uint32{uint32(len(body))},
	}}
}

func removeStream(t testing.TB, e *Engine, name string) {
	t.Helper()
	a := mustDo(t, e, &Op{Stream: e.Lookup([]byte("b"), []byte(name)), Event: core.Event{Op: core.OpDelete}})
	if a.Code != core.Deleted {
		t.Fatalf("delete %s: %d", name, a.Code)
	}
}

func contents(t testing.TB, e *Engine, name string) []byte {
	t.Helper()
	v := e.Lookup([]byte("b"), []byte(name)).View()
	var all []byte
	var st Step
	defer st.Release()
	for off := v.First; off < v.Next; off = st.End() {
		if err := e.Read(v, off, v.Next, 1<<20, &st); err != nil {
			t.Fatal(err)
		}
		var err error
		if all, err = st.Append(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func fork(t testing.TB, e *Engine, source, name string) {
	t.Helper()
	a := mustDo(t, e, &Op{Event: core.Event{
		Op: core.OpCreate, Bucket: "b", Name: name, TTL: -1, Fork: &core.ForkSpec{Bucket: "b", Name: source, InheritType: true, InheritLife: true},
	}})
	if a.Code != core.Created {
		t.Fatalf("fork: %d", a.Code)
	}
}

// trimTo publishes a snapshot and trims what lies below.
func trimTo(t testing.TB, e *Engine, name string, at int, record uint64) {
	t.Helper()
	w, err := e.Blobs().Create(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("snapshot")); err != nil {
		t.Fatal(err)
	}
	d, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	a := mustDo(t, e, &Op{Stream: e.Lookup([]byte("b"), []byte(name)), Event: core.Event{
		Op: core.OpSnapshot, Snapshot: &core.Snapshot{Offset: base.Offset(at), Record: record, Digest: d, Size: 8},
	}})
	if a.Code != core.Created {
		t.Fatalf("snapshot: %d", a.Code)
	}
	if err := e.Blobs().Unpin(d, e.now()); err != nil {
		t.Fatal(err)
	}
}

// holders returns the files that contain the marker.
func holders(t testing.TB, fs *vfstest.MemFS, dir string, marker []byte) (found []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil { // a file
		f, err := fs.Open(dir)
		if err != nil {
			return nil // it has just gone
		}
		defer f.Close()
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if bytes.Contains(b, marker) {
			found = append(found, dir)
		}
		return found
	}
	for _, n := range names {
		found = append(found, holders(t, fs, filepath.Join(dir, n), marker)...)
	}
	return found
}

// eventuallyErased waits until no file holds the marker, on an engine that nobody uses.
func eventuallyErased(t testing.TB, fs *vfstest.MemFS, marker []byte) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; later(20 * time.Millisecond) {
		found := holders(t, fs, "data", marker)
		if len(found) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still in %v", found)
		}
	}
}

// flushAll has everything written to segments.
func flushAll(t testing.TB, e *Engine) {
	t.Helper()
	makeStream(t, e, "filler", -1)
	defer removeStream(t, e, "filler")
	before := e.shards[0].stats.flushes.Load()
	for e.shards[0].stats.flushes.Load() == before {
		appendTo(t, e, "filler", bytes.Repeat([]byte("x"), 8<<10))
	}
}

// Deleted bytes leave memtable, log and segments though nothing else happens, and
// then the shard is quiet.
func TestReviewEraseOnIdleShard(t *testing.T) {
	for _, where := range []string{"log", "segment", "both", "restart", "restart, flushed", "expired", "trimmed", "trimmed in a segment", "trimmed, forked"} {
		t.Run(where, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { eraseOnIdleShard(t, where) }) })
	}
}

func eraseOnIdleShard(t *testing.T, where string) {
	marker := bytes.Repeat([]byte("MARKER-OF-WHAT-IS-DELETED"), 10)
	keep := bytes.Repeat([]byte("kept "), 100)
	fs := vfstest.New()
	clock := &handClock{}
	clock.ms.Store(1_700_000_000_000)
	o := smallOptions(fs)
	o.EraseWithin, o.Now = time.Second, clock.now
	e := mustOpen(t, o)
	ttl := int64(-1)
	if where == "expired" {
		ttl = 1
	}
	makeStream(t, e, "dead", ttl)
	makeStream(t, e, "alive", -1)
	appendTo(t, e, "dead", marker)
	appendTo(t, e, "alive", keep)
	if where != "log" && where != "expired" && where != "trimmed" {
		flushAll(t, e)
	}
	if where == "trimmed, forked" {
		fork(t, e, "dead", "fork")
	}
	if where == "both" {
		appendTo(t, e, "dead", marker)
	}
	if len(holders(t, fs, "data", marker)) == 0 {
		t.Fatal("the test finds nothing to erase")
	}
	switch {
	case strings.HasPrefix(where, "trimmed"):
		appendTo(t, e, "dead", keep)
		trimTo(t, e, "dead", len(marker), 1)
	case where != "expired":
		removeStream(t, e, "dead")
	}
	if where == "trimmed, forked" { // the fork keeps the bytes until it goes
		clock.ms.Add(2000)
		e.shards[0].ring()
		later(500 * time.Millisecond)
		if got := contents(t, e, "fork"); !bytes.Equal(got, marker) {
			t.Fatalf("the fork has %d bytes instead of %d", len(got), len(marker))
		}
		removeStream(t, e, "fork")
		for id := e.Lookup([]byte("b"), []byte("dead")).View().ID; e.shards[0].keep.floor(id) == 0; {
			later(time.Millisecond) // until the source has heard of it
		}
	}
	if where == "restart, flushed" {
		flushAll(t, e)
	}
	if strings.HasPrefix(where, "restart") {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = mustOpen(t, o)
	}
	if where == "expired" {
		clock.ms.Add(1001)
		e.shards[0].ring() // the clock is by hand, the timer is not
		for e.Lookup([]byte("b"), []byte("dead")) != nil {
			later(time.Millisecond)
		}
	}
	clock.ms.Add(500)
	e.shards[0].ring()
	eventuallyErased(t, fs, marker)
	if got := contents(t, e, "alive"); !bytes.Equal(got, keep) {
		t.Errorf("the other stream has %d bytes instead of %d", len(got), len(keep))
	}
	if strings.HasPrefix(where, "trimmed") {
		if got := contents(t, e, "dead"); !bytes.Equal(got, keep) {
			t.Errorf("what was not trimmed has %d bytes instead of %d", len(got), len(keep))
		}
	}
	quiet(t, fs, clock, e)
	if age := e.shards[0].deadAge(); age != 0 {
		t.Errorf("something has been dead for %d ms", age)
	}
}

// quiet checks that a shard with nothing to do does nothing.
func quiet(t *testing.T, fs *vfstest.MemFS, clock *handClock, e *Engine) {
	t.Helper()
	later(300 * time.Millisecond)
	fs.StartTrace()
	for range 4 {
		clock.ms.Add(10_000)
		e.shards[0].ring()
		later(150 * time.Millisecond)
	}
	if trace := fs.Trace(); len(trace) > 0 {
		t.Errorf("an idle shard does %d things: %v", len(trace), trace)
	}
}

// refuse makes the file system run out of space for new files.
func refuse(fs *vfstest.MemFS, on *atomic.Bool) {
	fs.SetHook(func(op vfstest.Op) error {
		if on.Load() && (op.Kind == vfstest.Allocate || op.Kind == vfstest.Create) {
			return vfs.ErrNoSpace
		}
		return nil
	})
}

// fillLog writes until the log has no file for more, not even for what adds no data.
func fillLog(t testing.TB, e *Engine, name string) {
	t.Helper()
	body := bytes.Repeat([]byte("x"), 16<<10)
	for mustDo(t, e, appendOp(e, name, body)).Code == core.Appended {
	}
	st := e.Lookup([]byte("b"), []byte(name))
	touch := core.Event{Op: core.OpTouch, Stream: st.View().ID}
	for mustDo(t, e, &Op{Stream: st, Event: touch}).Code == core.Deleted {
	}
	if !e.shards[0].log.NoSpace() {
		t.Fatal("the log has space")
	}
}

// within fails the test if f takes long.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func TestReviewTimersOfDeletedStreams(t *testing.T) {
	e := mustOpen(t, smallOptions(vfstest.New()))
	for range 300 {
		makeStream(t, e, "s", 1<<20)
		removeStream(t, e, "s")
	}
	makeStream(t, e, "s", 1<<20)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(e.shards[0].timers); n > 1 {
		t.Errorf("%d timers for one stream", n)
	}
}

func TestReviewCloseUnderLoad(t *testing.T) {
	e := mustOpen(t, smallOptions(vfstest.New()))
	var wg sync.WaitGroup
	var done atomic.Int64
	busy := make(chan struct{})
	for i := range 8 {
		name := fmt.Sprint("s", i)
		makeStream(t, e, name, -1)
		wg.Go(func() {
			for {
				err := e.Do(appendOp(e, name, []byte("x")))
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if done.Add(1) == 4000 {
					close(busy)
				}
			}
		})
	}
	<-busy
	within(t, "Close", func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	within(t, "a writer", wg.Wait)
}

// A flush that can't succeed must not keep Close from ending.
func TestReviewCloseWithStuckFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		e := mustOpen(t, smallOptions(fs))
		makeStream(t, e, "s", -1)
		fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Create && strings.Contains(op.Path, "/tmp/") {
				return errors.New("broken")
			}
			return nil
		})
		body := bytes.Repeat([]byte("x"), 16<<10)
		var answered atomic.Int64
		for range 40 {
			o := appendOp(e, "s", body)
			o.Done = func(*Op) { answered.Add(1) }
			if err := e.Submit(o); err != nil {
				t.Fatal(err)
			}
		}
		later(50 * time.Millisecond)
		within(t, "Close", func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		if n := answered.Load(); n != 40 {
			t.Errorf("%d operations of 40 were answered", n)
		}
	})
}

func TestReviewForkOfExpiredSourceWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		clock := &handClock{}
		clock.ms.Store(1_700_000_000_000)
		o := smallOptions(fs)
		o.Now = clock.now
		e := mustOpen(t, o)
		makeStream(t, e, "first", 5)
		makeStream(t, e, "source", 10)
		makeStream(t, e, "s", -1)
		var on atomic.Bool
		refuse(fs, &on)
		on.Store(true)
		fillLog(t, e, "s")
		clock.ms.Add(6_000) // a batch of nothing but deadlines has still had room
		e.shards[0].ring()
		for e.Lookup([]byte("b"), []byte("first")) != nil {
			later(time.Millisecond)
		}
		clock.ms.Add(20_000)
		within(t, "a fork", func() {
			a := mustDo(t, e, &Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: "f", TTL: -1, Fork: &core.ForkSpec{Bucket: "b", Name: "source", InheritType: true}}})
			if a.Code.OK() {
				t.Errorf("answered %d", a.Code)
			}
		})
		on.Store(false)
	})
}

func TestReviewUnpinWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		e := mustOpen(t, smallOptions(fs))
		makeStream(t, e, "source", -1)
		makeStream(t, e, "s", -1)
		id := e.Lookup([]byte("b"), []byte("source")).View().ID
		mustDo(t, e, &Op{Stream: e.Lookup([]byte("b"), []byte("source")), Event: core.Event{Op: core.OpPin, Stream: id, ForkID: 999}})
		var on atomic.Bool
		refuse(fs, &on)
		on.Store(true)
		fillLog(t, e, "s")
		e.shards[0].ask(core.Event{Op: core.OpUnpin, Stream: id, ForkID: 999}) // as the shard of the fork does
		mustDo(t, e, appendOp(e, "s", []byte("x")))
		on.Store(false)
		for end := time.Now().Add(20 * time.Second); ; later(10 * time.Millisecond) {
			if a := mustDo(t, e, appendOp(e, "s", []byte("x"))); a.Code == core.Appended {
				break
			} else if time.Now().After(end) {
				t.Fatal("space never comes back: ", a.Code)
			}
		}
		mustDo(t, e, appendOp(e, "s", []byte("x")))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n := e.shards[0].byID[id].head.Pins(); n != 0 {
			t.Error("the pin was never dropped")
		}
	})
}

// Lone appends fill the log with padding, which counts too.
func TestReviewLogBytesCountPadding(t *testing.T) {
	o := smallOptions(vfstest.New())
	o.MemtableBytes, o.WALMaxBytes = 1<<30, 1<<30
	e := mustOpen(t, o)
	makeStream(t, e, "s", -1)
	for range 100 {
		appendTo(t, e, "s", []byte("x"))
	}
	s := e.shards[0]
	pinned := s.log.Stats().PinnedBytes
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if s.walBytes < pinned*9/10 {
		t.Errorf("the turn counts %d bytes of log, there are %d", s.walBytes, pinned)
	}
}

// A full disk is no reason not to start: reads and deletes go on.
func TestReviewOpenWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		o := smallOptions(fs)
		e := mustOpen(t, o)
		makeStream(t, e, "s", -1)
		appendTo(t, e, "s", []byte("hello"))
		for range 40 { // uses up what the manifest has allocated
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			fs.SetFree(16 << 10)
			e = mustOpen(t, o)
			if got := contents(t, e, "s"); string(got) != "hello" {
				t.Fatalf("read %q", got)
			}
		}
		fs.SetFree(-1)
		for end := time.Now().Add(20 * time.Second); ; later(10 * time.Millisecond) {
			a := mustDo(t, e, &Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: "new", ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}})
			if a.Code == core.Created {
				break
			}
			if time.Now().After(end) {
				t.Fatal("creates never work again: ", a.Code)
			}
		}
	})
}

// While a flush is stuck an idle shard doesn't spin.
func TestReviewStuckFlushDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		o := smallOptions(fs)
		o.EraseWithin = time.Second
		o.MemtableBytes = 4 << 10
		rings, turns := make(chan struct{}, 1), atomic.Int64{}
		var e *Engine
		o.Ring = func(int) {
			select {
			case rings <- struct{}{}:
			default:
			}
		}
		e = mustOpen(t, o)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-rings:
					if turns.Add(1) > 10_000 {
						<-time.After(time.Millisecond) // a shard that spins would stop the bubble's clock
					}
					e.Turn(0)
				case <-stop:
					return
				}
			}
		})
		defer wg.Wait()
		defer close(stop)
		var broken atomic.Bool
		fs.SetHook(func(op vfstest.Op) error {
			if broken.Load() && op.Kind == vfstest.Create && strings.Contains(op.Path, "/tmp/") {
				return errors.New("broken")
			}
			return nil
		})
		makeStream(t, e, "s", -1)
		makeStream(t, e, "d", -1)
		broken.Store(true)
		removeStream(t, e, "d")
		for range 2 {
			appendTo(t, e, "s", bytes.Repeat([]byte("x"), 5<<10))
		}
		removeStream(t, e, "s")
		later(700 * time.Millisecond) // what is dead is due
		before := turns.Load()
		later(500 * time.Millisecond)
		if n := turns.Load() - before; n > 100 {
			t.Errorf("%d turns in half a second with nothing to do", n)
		}
		broken.Store(false)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Ids are reserved while a flush is tried again and again.
func TestReviewIDsDuringStuckFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfstest.New()
		e := mustOpen(t, smallOptions(fs))
		var broken atomic.Bool
		fs.SetHook(func(op vfstest.Op) error {
			if broken.Load() && op.Kind == vfstest.Create && strings.Contains(op.Path, "/tmp/") {
				return errors.New("broken")
			}
			return nil
		})
		broken.Store(true)
		makeStream(t, e, "s", -1)
		for range 6 {
			appendTo(t, e, "s", bytes.Repeat([]byte("x"), 16<<10))
		}
		s := e.shards[0]
		s.ids.Store(s.nextID.Load() + 3) // as if that many were left
		for i := range 5 {
			for end := time.Now().Add(5 * time.Second); ; later(10 * time.Millisecond) {
				a := mustDo(t, e, &Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: fmt.Sprint(i), ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}})
				if a.Code == core.Created {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("create %d: %d", i, a.Code)
				}
			}
		}
		broken.Store(false)
	})
}

// pattern is the byte at an offset of a stream.
func pattern(id base.StreamID, off base.Offset) byte {
	x := uint64(id)*0x9e3779b97f4a7c15 ^ uint64(off)*0xbf58476d1ce4e5b9
	return byte(x >> 40)
}

// later lets time pass in a bubble of package synctest, and everything settle.
func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
