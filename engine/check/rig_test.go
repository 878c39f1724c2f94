package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
)

const dataDir = "data"

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// tiny makes small files, so that a small test has many of them.
func tiny(fsys *vfstest.MemFS, shards int) engine.Options {
	return engine.Options{
		FS: fsys, Shards: shards, WALFileBytes: 64 << 10, WALMaxBytes: 256 << 10, MemtableBytes: 24 << 10, SegmentMaxBytes: 1 << 20,
		MaxBodyBytes: 4 << 10, MinFreeDisk: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// site is a data directory, made through the engine and then closed, and what was
// acknowledged about it.
type site struct {
	testing.TB
	fs     *vfstest.MemFS
	shards int
	want   map[string]string // contents of the streams
	late   []late            // what was appended last, and is in the log only
	tier   tiering.Store     // nil: none
	budget int64             // of local disk; 0: no limit
	digest blob.Digest       // of the snapshot of stream s0, at offset 0
}

// late is an append of which the log has a block of its own.
type late struct{ stream, body string }

// newSite makes a directory with segments and a log that holds n appends.
func newSite(t testing.TB, shards, n int) *site {
	t.Helper()
	s := &site{TB: t, fs: vfstest.New(), shards: shards, want: map[string]string{}}
	e := s.open(0)
	var names []string
	for i := range 12 {
		name := fmt.Sprint("s", i)
		names = append(names, name)
		s.do(e, "", create(name), core.Created)
	}
	for i := range 60 * shards {
		body := fmt.Sprintf("<%d %s>", i, strings.Repeat(string(rune('a'+i%26)), 1500))
		s.append(e, names[i%len(names)], body)
	}
	s.snapshot(e)
	s.close(e)
	e = s.open(8 << 20) // from here on nothing is flushed
	for i := range n {
		l := late{stream: names[i%len(names)], body: fmt.Sprintf("<late %d %s>", i, strings.Repeat("z", 1000))}
		s.append(e, l.stream, l.body)
		s.late = append(s.late, l)
	}
	s.close(e)
	return s
}

// open opens the directory; with a size, memtables are not flushed before.
func (s *site) open(memtable int64) *engine.Engine {
	s.Helper()
	e, err := engine.Open(dataDir, s.options(memtable))
	if err != nil {
		s.Fatal(err)
	}
	return e
}

func (s *site) options(memtable int64) engine.Options {
	o := tiny(s.fs, s.shards)
	if memtable > 0 {
		o.MemtableBytes, o.WALMaxBytes = memtable, 2*memtable
	}
	if s.tier != nil {
		o.Tier, o.TierFlushInterval, o.TierMinBytes, o.LocalDiskBudget = s.tier, 500*time.Millisecond, 16<<10, s.budget
	}
	return o
}

func (s *site) close(e *engine.Engine) {
	s.Helper()
	if err := e.Close(); err != nil {
		s.Fatal(err)
	}
}

func (s *site) do(e *engine.Engine, name string, ev core.Event, want core.Code) core.Answer {
	s.Helper()
	o := &engine.Op{Event: ev, Stream: e.Lookup([]byte("b"), []byte(name))}
	if err := e.Do(o); err != nil || o.Answer.Code != want {
		s.Fatalf("%s: answered %d instead of %d: %v", name, o.Answer.Code, want, err)
	}
	return o.Answer
}

func create(name string) core.Event {
	return core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}
}

func (s *site) append(e *engine.Engine, name, body string) {
	s.Helper()
	s.do(e, name, core.Event{Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte(body), Ends: []uint32{uint32(len(body))}}, core.Appended)
	s.want[name] += body
}

func (s *site) snapshot(e *engine.Engine) {
	s.Helper()
	w, err := e.Blobs().Create(100_000)
	if err == nil {
		_, err = w.Write(bytes.Repeat([]byte("state "), 20_000))
	}
	if err == nil {
		s.digest, err = w.Commit()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.do(e, "s0", core.Event{Op: core.OpSnapshot, Retain: true, Snapshot: &core.Snapshot{Digest: s.digest, Size: 120_000}}, core.Created)
}

// twin is the same on a copy of the files.
func (s *site) twin() *site {
	c := *s
	c.fs, c.want = s.fs.Clone(), maps.Clone(s.want)
	return &c
}

// content reads what can be read of a stream, which must be what the model says at the
// same place; err is the first error, and next where the stream ends.
func (s *site) content(e *engine.Engine, name string) (good int, next int, err error) {
	s.Helper()
	st := e.Lookup([]byte("b"), []byte(name))
	if st == nil || st.View() == nil {
		return 0, 0, fs.ErrNotExist
	}
	v := st.View()
	var step engine.Step
	defer step.Release()
	for off := v.First; off < v.Next; {
		var b []byte
		readErr := e.Read(v, off, min(off+500, v.Next), 500, &step)
		if readErr == nil {
			b, readErr = step.Append(context.Background(), nil)
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			off += 500
			continue
		}
		end := int(step.End())
		if want := s.want[name]; end > len(want) || want[off:end] != string(b) {
			s.Fatalf("%s: [%d, %d) is %.60q", name, off, end, b)
		}
		good += len(b)
		off = step.End()
	}
	return good, int(v.Next), err
}

// holds opens the directory, in which every stream must hold what is given.
func (s *site) holds(want map[string]string) {
	s.Helper()
	e := s.open(8 << 20)
	for name, w := range want {
		if good, next, err := s.content(e, name); err != nil || good != len(w) || next != len(w) {
			s.Errorf("%s: %d good bytes up to %d instead of %d: %v", name, good, next, len(w), err)
		}
	}
	s.close(e)
}

// without returns what the streams hold without the late appends from n on.
func (s *site) without(n int) map[string]string {
	want := maps.Clone(s.want)
	for _, l := range slices.Backward(s.late[n:]) {
		want[l.stream] = strings.TrimSuffix(want[l.stream], l.body)
	}
	return want
}

// find returns the file that holds a text, and where.
func (s *site) find(pattern, text string) (path string, at int64) {
	s.Helper()
	for p, b := range s.files() {
		if ok, _ := filepath.Match(pattern, p); ok {
			if i := bytes.Index(b, []byte(text)); i >= 0 {
				return p, int64(i)
			}
		}
	}
	s.Fatalf("no file %s holds %q", pattern, text)
	return "", 0
}

// match returns the files of a pattern, sorted.
func (s *site) match(pattern string) (all []string) {
	s.Helper()
	for p := range s.files() {
		if ok, _ := filepath.Match(pattern, p); ok {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		s.Fatalf("no file %s", pattern)
	}
	slices.Sort(all)
	return all
}

func (s *site) flip(path string, at int64) {
	s.Helper()
	if err := s.fs.Corrupt(path, at, func(b []byte) { b[0] ^= 0x10 }); err != nil {
		s.Fatal(err)
	}
}

func (s *site) remove(path string) {
	s.Helper()
	if err := s.fs.Remove(path); err != nil {
		s.Fatal(err)
	}
}

// files returns the contents of all files.
func (s *site) files() map[string][]byte { return below(s.TB, s.fs, dataDir) }

func below(t testing.TB, fsys *vfstest.MemFS, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, n)
		if _, err := fsys.List(path); err == nil {
			maps.Copy(all, below(t, fsys, path))
			continue
		}
		f, err := fsys.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		b := make([]byte, size)
		if err == nil {
			_, err = f.ReadAt(b, 0)
		}
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		all[path] = b
	}
	return all
}

// unchanged compares the files with what they were.
func (s *site) unchanged(was map[string][]byte) {
	s.Helper()
	is := s.files()
	for path, b := range was {
		if !bytes.Equal(is[path], b) {
			s.Errorf("%s has changed, or is gone", path)
		}
	}
	for path := range is {
		if _, ok := was[path]; !ok {
			s.Errorf("%s is new", path)
		}
	}
}

// refused opens the directory, which has to fail, and returns why.
func (s *site) refused() error {
	s.Helper()
	e, err := engine.Open(dataDir, s.options(0))
	if err == nil {
		s.close(e)
		s.Error("the damaged directory opens")
	}
	return err
}

func (s *site) history() uint16 {
	s.Helper()
	id, err := engine.ReadIdentity(s.fs, dataDir)
	if err != nil {
		s.Fatal(err)
	}
	return id.History
}

// verify runs Verify, which must change nothing.
func (s *site) verify() (*Summary, []Finding) {
	s.Helper()
	var all []Finding
	s.fs.StartTrace()
	sum, err := Verify(dataDir, s.options(0), func(f Finding) { all = append(all, f) })
	if err != nil {
		s.Fatal(err)
	}
	trace := slices.DeleteFunc(s.fs.Trace(), func(op string) bool { return op == "lock data/LOCK" })
	if len(trace) > 0 {
		s.Errorf("Verify changed something: %q", trace)
	}
	return sum, all
}

func damaged(all []Finding) (bad []Finding) {
	for _, f := range all {
		if f.Severity != Note {
			bad = append(bad, f)
		}
	}
	return bad
}

// corrupt is the error of damage, or nil.
func corrupt(err error) *base.CorruptionError { return corruption(err) }
