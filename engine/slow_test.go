package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// stall holds up operations of the file system until it is let go.
type stall struct {
	match func(vfstest.Op) bool
	gate  chan struct{}
}

func newStall(fs *vfstest.MemFS, match func(vfstest.Op) bool) *stall {
	s := &stall{match: match, gate: make(chan struct{})}
	fs.SetHook(func(op vfstest.Op) error {
		if s.match(op) {
			<-s.gate
		}
		return nil
	})
	return s
}

func (s *stall) letGo() { close(s.gate) }

// start submits an operation and returns whether it has been answered.
func (r *rig) start(name string, ev core.Event) func() bool {
	r.Helper()
	var mu sync.Mutex
	done := false
	err := r.Submit(&engine.Op{Event: ev, Stream: r.stream(name), Done: func(*engine.Op) {
		mu.Lock()
		defer mu.Unlock()
		done = true
	}})
	if err != nil {
		r.Fatal(err)
	}
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
}

// apart returns two of the names, in different shards, and that of the first one.
func (r *rig) apart(names []string) (a, b string, shard int) {
	r.Helper()
	of := func(name string) int { return r.view(name).ID.Shard(r.Shards()) }
	for _, b := range names[1:] {
		if of(b) != of(names[0]) {
			return names[0], b, of(names[0])
		}
	}
	r.Fatal("all in one shard")
	return "", "", 0
}

// A sync that takes its time holds up what waits for it, and nothing else: not reads
// of the same stream, not its neighbours' reads, not other shards.
func TestSlowSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprint("s", i))
			r.create(names[i])
			r.append(names[i], "old ")
		}
		a, b, shard := r.apart(names)
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Datasync && strings.Contains(op.Path, fmt.Sprintf("shard-%02d/wal/", shard))
		})
		var asked []func() bool
		ask := func(name string, ev core.Event) { asked = append(asked, r.start(name, ev)) }
		write := appendEvent("new ")
		write.Producer.ID, write.Producer.Set = []byte("p"), true
		ask(a, write)
		synctest.Wait()
		ask(a, write) // a repeat: its answer rests on the first one
		wrong := appendEvent("x")
		wrong.MediaType = []byte("text/html")
		ask(a, wrong)
		ask(a, core.Event{Op: core.OpAppend, Close: true})
		ask("", createEvent(a))
		later(time.Hour)
		for i, done := range asked {
			if done() {
				t.Errorf("operation %d was answered before its sync", i)
			}
		}
		for _, name := range names {
			r.expect(name, "old ")
		}
		if v := r.view(a); v.Closed || v.Next != 4 {
			t.Errorf("readers see %+v", v.View)
		}
		r.append(b, "meanwhile ")
		r.expect(b, "old meanwhile ")
		slow.letGo()
		synctest.Wait()
		for i, done := range asked {
			if !done() {
				t.Errorf("operation %d was never answered", i)
			}
		}
		r.expect(a, "old new ")
		if !r.view(a).Closed {
			t.Error("the close is not visible")
		}
		r.close()
	})
}

// A flush or a merge that takes its time holds up nothing until memory is full, and
// then only writes.
func TestSlowFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		want := ""
		r.create("a")
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Write && strings.HasSuffix(op.Path, ".seg")
		})
		var waits func() bool
		for i := 0; waits == nil; i++ {
			body := fmt.Sprintf("<%d %s>", i, strings.Repeat("x", 500))
			done := r.start("a", appendEvent(body))
			later(time.Second)
			want += body
			if !done() {
				waits = done
				continue
			}
			r.expect("a", want)
		}
		if len(want) < 20_000 {
			t.Errorf("writes wait after %d bytes", len(want))
		}
		slow.letGo()
		later(time.Minute)
		if !waits() {
			t.Error("the write is never answered")
		}
		r.expect("a", want)
		r.close()
	})
}

// What a 2xx says is durable before it is said: written, synced, and with a name that
// a crash leaves.
func TestOrderOfSystemCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("a")
		synctest.Wait()
		r.fs.StartTrace()
		op := &engine.Op{Event: appendEvent("x"), Stream: r.stream("a")}
		var before []string
		op.Done = func(*engine.Op) { before = r.fs.Trace() }
		if err := r.Submit(op); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		const log = "data/shard-00/wal/0000000001.wal"
		if len(before) != 2 || !strings.HasPrefix(before[0], "write "+log) || before[1] != "datasync "+log {
			t.Errorf("an append is answered after\n%s", strings.Join(before, "\n"))
		}
		r.close()
	})
}

// Over a long run: no batch is answered before the last write to the log was synced,
// no log file is written to before its name is durable, no segment is named by the
// manifest before it is durable itself, and no log file is given up before that.
func TestOrderOverRotationsAndFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("a")
		r.create("b")
		r.fs.StartTrace()
		answered := 0
		for i := range 400 {
			op := &engine.Op{Event: appendEvent(strings.Repeat("x", 50+i)), Stream: r.stream([]string{"a", "b"}[i%2])}
			op.Done = func(*engine.Op) {
				answered++
				o := order{TB: t}
				o.read(r.fs.Trace())
				for path := range o.unsynced {
					if strings.HasSuffix(path, ".wal") {
						t.Errorf("append %d is answered while %s is not synced", i, path)
					}
				}
			}
			if i%20 > 0 { // most say nothing, or this would take for ever
				op.Done = func(*engine.Op) { answered++ }
			}
			if err := r.Submit(op); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		o := order{TB: t}
		o.read(r.fs.Trace())
		if answered != 400 || o.rotations < 3 || o.flushes < 5 || o.recycled < 2 {
			t.Errorf("%d answers, %d rotations, %d flushes, %d files recycled", answered, o.rotations, o.flushes, o.recycled)
		}
		r.close()
	})
}

// order follows a trace and complains.
type order struct {
	testing.TB
	names     map[string]string // what a file that was opened by a name is called now
	unsynced  map[string]bool   // files written to since their sync
	unnamed   map[string]bool   // files renamed or created since a sync of their directory
	written   map[string]int    // the line of the last write to a file
	edited    int               // the line of the last sync of a manifest
	rotations int
	flushes   int
	recycled  int
}

func (o *order) read(trace []string) {
	o.Helper()
	o.names, o.unsynced, o.unnamed, o.written = map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]int{}
	for i, line := range trace {
		f := strings.Fields(line)
		kind, path := f[0], f[1]
		if now := o.names[path]; now != "" && (kind == "write" || kind == "datasync") {
			path = now
		}
		switch kind {
		case "create":
			o.unnamed[path] = true
			o.names[path] = path
		case "write":
			o.unsynced[path] = true
			o.written[path] = i
			if strings.HasSuffix(path, ".wal") && o.unnamed[path] {
				o.Errorf("%s is written to before its name is durable", path)
			}
			if strings.Contains(path, "MANIFEST") {
				o.manifest()
			}
		case "datasync":
			if delete(o.unsynced, path); strings.Contains(path, "MANIFEST") {
				o.edited = i
			}
		case "rename":
			o.rename(path, f[2])
		case "syncdir":
			for p := range o.unnamed {
				if strings.HasPrefix(p, path+"/") {
					delete(o.unnamed, p)
				}
			}
		}
	}
}

// manifest is a write to it: every segment that it may name is durable by then.
func (o *order) manifest() {
	for path := range o.unsynced {
		if strings.Contains(path, "/seg/") {
			o.Errorf("the manifest is written while %s is not synced", path)
		}
	}
	for path := range o.unnamed {
		if strings.Contains(path, "/seg/") {
			o.Errorf("the manifest is written while the name of %s is not durable", path)
		}
	}
}

func (o *order) rename(from, to string) {
	if o.unsynced[from] {
		o.Errorf("%s gets the name %s before it is synced", from, to)
	}
	for opened, now := range o.names {
		if now == from {
			o.names[opened] = to
		}
	}
	o.names[from] = to
	delete(o.unnamed, from)
	o.unnamed[to] = true
	switch {
	case strings.HasSuffix(to, ".wal"):
		o.rotations++
	case strings.Contains(to, "/seg/"):
		o.flushes++
	case strings.HasSuffix(from, ".wal"):
		if o.recycled++; o.edited < o.written[from] {
			o.Errorf("%s is given up before the manifest says that segments hold it", from)
		}
	}
}
