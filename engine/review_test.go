package engine

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/engine/core"
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
		if all, err = st.Append(all); err != nil {
			t.Fatal(err)
		}
	}
	return all
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

// eventually waits until no file holds the marker, on an engine that nobody uses.
func eventuallyErased(t testing.TB, fs *vfstest.MemFS, marker []byte) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
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
	marker := bytes.Repeat([]byte("MARKER-OF-WHAT-IS-DELETED"), 10)
	keep := bytes.Repeat([]byte("kept "), 100)
	for _, where := range []string{"log", "segment", "both", "restart", "restart, flushed", "expired"} {
		t.Run(where, func(t *testing.T) {
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
			if where != "log" && where != "expired" {
				flushAll(t, e)
			}
			if where == "both" {
				appendTo(t, e, "dead", marker)
			}
			if len(holders(t, fs, "data", marker)) == 0 {
				t.Fatal("the test finds nothing to erase")
			}
			if where != "expired" {
				removeStream(t, e, "dead")
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
					time.Sleep(time.Millisecond)
				}
			}
			clock.ms.Add(500)
			e.shards[0].ring()
			eventuallyErased(t, fs, marker)
			if got := contents(t, e, "alive"); !bytes.Equal(got, keep) {
				t.Errorf("the other stream has %d bytes instead of %d", len(got), len(keep))
			}
			quiet(t, fs, clock, e)
			if age := e.shards[0].deadAge(); age != 0 {
				t.Errorf("something has been dead for %d ms", age)
			}
		})
	}
}

// quiet checks that a shard with nothing to do does nothing.
func quiet(t *testing.T, fs *vfstest.MemFS, clock *handClock, e *Engine) {
	t.Helper()
	time.Sleep(300 * time.Millisecond)
	fs.StartTrace()
	for range 4 {
		clock.ms.Add(10_000)
		e.shards[0].ring()
		time.Sleep(150 * time.Millisecond)
	}
	if trace := fs.Trace(); len(trace) > 0 {
		t.Errorf("an idle shard does %d things: %v", len(trace), trace)
	}
}

var _ = fmt.Sprint
var _ sync.Mutex
