package engine_test

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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// rig is an engine on a file system in memory, and what was told about it.
type rig struct {
	testing.TB
	fs      *vfstest.MemFS
	opts    engine.Options
	metrics *prometheus.Registry
	*engine.Engine

	mu     sync.Mutex
	fatals []error
}

// newRig opens a new directory with the options; FS, Logger and Fatal are the rig's.
func newRig(t testing.TB, o engine.Options) *rig {
	t.Helper()
	r := &rig{TB: t, fs: vfstest.New(), opts: o}
	r.open()
	return r
}

// options are the rig's for one more opening.
func (r *rig) options() engine.Options {
	o := r.opts
	r.metrics = prometheus.NewRegistry()
	o.FS, o.Registerer = r.fs, r.metrics
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	o.Fatal = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fatals = append(r.fatals, err)
	}
	return o
}

func (r *rig) open() {
	r.Helper()
	e, err := engine.Open("data", r.options())
	if err != nil {
		r.Fatal(err)
	}
	r.Engine = e
	r.Cleanup(func() { _ = e.Close() }) // the tests that look at its error close it themselves
}

func (r *rig) close() {
	r.Helper()
	if err := r.Engine.Close(); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) reopen() {
	r.Helper()
	r.close()
	r.open()
}

// on opens another file system, as the rig's from then on.
func (r *rig) on(fs *vfstest.MemFS) *rig {
	r.Helper()
	o := &rig{TB: r.TB, fs: fs, opts: r.opts}
	o.open()
	return o
}

func (r *rig) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.fatals)
}

// stream returns the place of a name.
func (r *rig) stream(name string) *engine.Stream { return r.Lookup([]byte("b"), []byte(name)) }

// view returns what is visible of a name, nil for nothing.
func (r *rig) view(name string) *engine.View {
	if st := r.stream(name); st != nil {
		return st.View()
	}
	return nil
}

func createEvent(name string) core.Event {
	return core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}
}

func appendEvent(body string) core.Event {
	return core.Event{Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte(body), Ends: []uint32{uint32(len(body))}}
}

// try does an operation about a name and returns its answer.
func (r *rig) try(name string, ev core.Event) core.Answer {
	r.Helper()
	op := &engine.Op{Event: ev, Stream: r.stream(name)}
	if err := r.Do(op); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	return op.Answer
}

// must does an operation whose answer has to have the given code.
func (r *rig) must(name string, ev core.Event, want core.Code) core.Answer {
	r.Helper()
	a := r.try(name, ev)
	if a.Code != want {
		r.Fatalf("%s: op %d answered %d instead of %d", name, ev.Op, a.Code, want)
	}
	return a
}

func (r *rig) create(name string)       { r.Helper(); r.must(name, createEvent(name), core.Created) }
func (r *rig) append(name, body string) { r.Helper(); r.must(name, appendEvent(body), core.Appended) }
func (r *rig) remove(name string) {
	r.Helper()
	r.must(name, core.Event{Op: core.OpDelete}, core.Deleted)
}

// content reads all of a stream.
func (r *rig) content(name string) (string, error) {
	v := r.view(name)
	if v == nil {
		return "", fs.ErrNotExist
	}
	var all []byte
	var st engine.Step
	defer st.Release()
	for off := v.First; off < v.Next; off = st.End() {
		err := r.Read(v, off, v.Next, 1<<20, &st)
		if err == nil {
			all, err = st.Append(context.Background(), all)
		}
		if err != nil {
			return string(all), err
		}
	}
	return string(all), nil
}

// expect compares a stream with what it should hold.
func (r *rig) expect(name, want string) {
	r.Helper()
	got, err := r.content(name)
	if err != nil || got != want {
		r.Fatalf("%s: %d bytes %.100q instead of %d, %.100q: %v", name, len(got), got, len(want), want, err)
	}
}

// fill appends to streams until n more memtables have been flushed, and returns what
// each stream holds.
func (r *rig) fill(names []string, n int64) map[string]string {
	r.Helper()
	all := map[string]string{}
	for _, name := range names {
		all[name], _ = r.content(name)
	}
	before := r.flushed()
	for i := 0; r.flushed() < before+n; i++ {
		if i == 20_000 {
			r.Fatal("nothing is flushed")
		}
		name := names[i%len(names)]
		body := fmt.Sprintf("<%d %s>", i, strings.Repeat(string(rune('a'+i%26)), i%400))
		r.append(name, body)
		all[name] += body
	}
	return all
}

// flushed returns how many memtables have been flushed.
func (r *rig) flushed() int64 { return r.metric("snakream_flushes_total") }

// metric returns the value of a counter or a gauge.
func (r *rig) metric(name string) int64 {
	r.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return int64(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	r.Fatalf("there is no metric %s", name)
	return 0
}

// files returns the contents of all files below a directory.
func files(t testing.TB, fsys *vfstest.MemFS, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, n)
		if _, err := fsys.List(path); err == nil {
			all[path+"/"] = nil
			maps.Copy(all, files(t, fsys, path))
			continue
		}
		f, err := fsys.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just got another name
		}
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
func unchanged(t testing.TB, was, is map[string][]byte) {
	t.Helper()
	for path, b := range was {
		if got, ok := is[path]; !ok {
			t.Errorf("%s is gone", path)
		} else if !bytes.Equal(got, b) {
			t.Errorf("%s has changed", path)
		}
	}
	for path := range is {
		if _, ok := was[path]; !ok {
			t.Errorf("%s is new", path)
		}
	}
}

// find returns the paths that match a pattern of package path/filepath, sorted.
func find(t testing.TB, fs *vfstest.MemFS, pattern string) []string {
	t.Helper()
	var found []string
	for path := range files(t, fs, "data") {
		if ok, err := filepath.Match(pattern, strings.TrimSuffix(path, "/")); err != nil {
			t.Fatal(err)
		} else if ok {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

// corruption returns the corruption that an error is about, or nil.
func corruption(err error) *base.CorruptionError {
	c, _ := errors.AsType[*base.CorruptionError](err)
	return c
}

// later lets time pass in a bubble of package synctest, and everything settle.
func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
