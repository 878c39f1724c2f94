// Package enginetest drives an engine with random operations beside a naive twin, a
// map of byte slices, and checks that the two agree: in every answer and every read,
// after restarts, and after crashes at any operation of the file system.
package enginetest

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering/tiertest"
)

// Dir is where a World keeps its engine.
const Dir = "data"

// Config says what a World is like.
type Config struct {
	Options engine.Options // FS, Now, Logger and Fatal are the World's
	Streams int            // names that the operations are about
	MaxBody int            // bytes of the largest message
	Forks   bool           // make forks
	// Snapshots has snapshots published, streams trimmed and attributes set; Buckets is
	// how many buckets are made and deleted, each with two names besides Streams.
	Snapshots bool
	Buckets   int
	// Tier has an object store that fails at random, and now and then a restore from it
	// alone into another directory.
	Tier bool
	// Crash is called, on goroutines of the engine, with what a power cut would
	// leave, at about every CrashEvery-th operation of the file system. It may keep
	// the moment.
	Crash      func(*Moment)
	CrashEvery int
}

// stream is one name and what its operations have made of it.
type stream struct {
	bucket, name string
	states       []*state // after each operation that changed something
	older        []*state // of Worlds before: what the object store may still show
	durable      int      // the newest that an answer has rested on
}

func (st *stream) last() *state { return st.states[len(st.states)-1] }

// World is an engine on a file system in memory, and its twin. One goroutine drives
// it.
type World struct {
	cfg Config
	fs  *vfstest.MemFS
	up  *tiertest.Memory // the object store; nil without one

	restored bool // from the object store alone
	faulty   bool // the object store fails now and then; guarded by mu
	e        *engine.Engine
	rng      *rand.Rand // the driver's
	n        int        // messages made so far
	era      uint16     // the history that the directory is at

	blobs *sync.Map // the contents of snapshots by their digest, of all Worlds with this past

	mu      sync.Mutex
	idle    *sync.Cond // pending has become 0
	dice    *rand.Rand // the hook's
	now     base.Millis
	streams []*stream
	buckets []*stream // the names of buckets, as streams without a name
	pending int
	err     error // the first that was found
}

// start is when every World begins.
const start = base.Millis(1_700_000_000_000)

// New makes a directory on fs and an engine in it.
func New(cfg Config, fs *vfstest.MemFS, rng *rand.Rand) (*World, error) {
	w := newWorld(cfg, fs, rng)
	for i := range cfg.Streams {
		w.streams = append(w.streams, &stream{bucket: "b", name: fmt.Sprint("s", i), states: w.nothing()})
	}
	w.addBuckets()
	if cfg.Tier {
		w.up = tiertest.NewMemory()
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	w.watch(cfg.Crash)
	return w, nil
}

// nothing is what a name holds at first.
func (w *World) nothing() []*state { return []*state{{past: past{era: w.era}}} }

// watch lets crashes happen from now on.
func (w *World) watch(crash func(*Moment)) {
	if w.cfg.Crash = crash; crash != nil {
		w.fs.SetHook(w.hook)
	}
}

func newWorld(cfg Config, fs *vfstest.MemFS, rng *rand.Rand) *World {
	w := &World{cfg: cfg, fs: fs, rng: rng, dice: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())), now: start, era: 1, blobs: new(sync.Map)}
	w.idle = sync.NewCond(&w.mu)
	return w
}

// open opens the engine.
func (w *World) open() error {
	o := w.cfg.Options
	o.FS = w.fs
	o.SnapshotGrace = 1000 * time.Hour // the World drops them itself
	o.Now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.UnixMilli(int64(w.now))
	}
	w.tier(&o)
	o.Logger = slog.New(slog.NewTextHandler(complaints{w}, &slog.HandlerOptions{Level: slog.LevelError}))
	o.Fatal = func(err error) { w.fail(fmt.Errorf("the engine failed: %w", err)) }
	e, err := engine.Open(Dir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	w.e = e
	w.mu.Lock()
	w.faulty = true // from now on: a first start needs the store
	w.mu.Unlock()
	// With its bucket there, a create is decided in the order of submission, which the
	// twin relies on.
	op := &engine.Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", TTL: -1}}
	if err := e.Do(op); err != nil || !op.Answer.Code.OK() {
		return fmt.Errorf("bucket b: %+v, %w", op.Answer, err)
	}
	return nil
}

// complaints takes what the engine logs as errors: nothing here gives it a reason to.
type complaints struct{ w *World }

func (c complaints) Write(p []byte) (int, error) {
	c.w.fail(fmt.Errorf("the engine complains: %s", p))
	return len(p), nil
}

// Check waits for all answers and compares everything.
func (w *World) Check() error {
	w.settle()
	for _, st := range w.streams {
		w.expire(st)
	}
	w.settle()
	for _, st := range w.streams {
		v, s := w.view(st), st.last()
		if _, err := w.match([]*state{s}, v); err != nil && !(v != nil && v.Deleted) {
			return errors.Join(w.Err(), fmt.Errorf("%s: %w", st.name, err))
		}
		if v == nil || v.Deleted {
			continue
		}
		if err := w.compare(v, s.inc.data[:s.next], s.inc.ends[:s.records], true); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return errors.Join(w.Err(), w.checkStores())
}

// Close ends the engine, after all answers.
func (w *World) Close() error {
	w.wait()
	err := w.e.Close()
	w.fs.SetHook(nil)
	return errors.Join(w.Err(), err)
}

// Restart closes the engine and opens it again, and checks that nothing has changed.
func (w *World) Restart() (*World, error) {
	w.wait()
	var m *Moment
	for m == nil {
		m = w.moment(func() *vfstest.MemFS { return w.fs })
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	m.up = w.up // as the end has left it
	return m.Recover(w.rng, w.cfg.Crash)
}

// Crash cuts the power, with operations under way, or only kills the process, and
// goes on with what is left.
func (w *World) Crash() (*World, error) {
	kill := w.rng.IntN(4) == 0
	var m *Moment
	for m == nil { // until nothing happens in the object store meanwhile
		m = w.moment(func() *vfstest.MemFS {
			if kill {
				return w.fs.Clone()
			}
			return w.fs.CrashClone(w.rng)
		})
	}
	if err := w.Close(); err != nil { // the old one ends in peace
		return nil, err
	}
	return m.Recover(w.rng, w.cfg.Crash)
}

func (w *World) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed(err)
}

// failed is fail under the lock.
func (w *World) failed(err error) {
	if w.err == nil {
		w.err = err
	}
	w.idle.Broadcast()
}

// Err returns the first disagreement.
func (w *World) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// wait waits for all answers.
func (w *World) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.pending > 0 && w.err == nil {
		w.idle.Wait()
	}
}

// submit hands in an operation about st whose answer must be want, and after which
// the name holds next.
func (w *World) submit(st *stream, op *engine.Op, expect func(s *state, now base.Millis) (core.Answer, *state)) {
	w.submitThen(st, op, expect, func() {})
}

// submitThen also calls done with the answer, under the lock.
func (w *World) submitThen(st *stream, op *engine.Op, expect func(s *state, now base.Millis) (core.Answer, *state), done func()) {
	op.Stream = w.e.Lookup([]byte(st.bucket), []byte(st.name))
	w.mu.Lock()
	last := st.last()
	now := w.now
	want, next := expect(last, now)
	if next != last {
		st.states = append(st.states, next)
	}
	at := len(st.states) - 1
	slack := last.slack
	last.maybe(now)
	w.pending++
	w.mu.Unlock()
	op.Done = func(op *engine.Op) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if next.inc != nil && next.inc.id == 0 {
			next.inc.id = op.Answer.Stream
		}
		if got := op.Answer.Stream; want.Stream == 0 && next.inc != nil && next.inc.id == got {
			want.Stream = got // it was not known yet
		}
		if diff := differ(&want, &op.Answer); diff != "" {
			w.failed(fmt.Errorf("%s/%s: %s: %s", st.bucket, st.name, describe(&op.Event), diff))
		}
		st.durable = max(st.durable, at)
		if last.slack = slack; next == last && op.Answer.Code.OK() {
			last.used(now)
		}
		done()
		if w.pending--; w.pending == 0 {
			w.idle.Broadcast()
		}
	}
	if err := w.e.Submit(op); err != nil {
		w.fail(fmt.Errorf("submit: %w", err))
	}
}

// do waits for an operation of which no answer is expected.
func (w *World) do(op *engine.Op) {
	if err := w.e.Do(op); err != nil {
		w.fail(fmt.Errorf("do: %w", err))
	}
}

// barrier returns when everything that has been asked of the name's shard before is
// done.
func (w *World) barrier(st *stream) {
	w.do(&engine.Op{Event: core.Event{Op: core.OpCreate, Bucket: st.bucket, Name: st.name, HeaderFault: true, TTL: -1}})
}

// held reports whether a fork needs the bytes of an incarnation, by the newest
// states. Under the lock.
func (w *World) held(c *incarnation) bool {
	for _, st := range w.streams {
		if s := st.last(); c != nil && s.inc != nil && s.inc.parent == c && (!s.ended || w.held(s.inc)) {
			return true
		}
	}
	return false
}

// related reports whether forks connect an incarnation with others. Under the lock.
func (w *World) related(c *incarnation) bool { return c != nil && (c.parent != nil || w.held(c)) }

// settle waits until sources that no fork needs any more have gone.
func (w *World) settle() {
	w.wait()
	for _, st := range w.streams {
		for range maxPolls {
			w.mu.Lock()
			s := st.last()
			over := s.inc == nil || !s.ended || w.held(s.inc) || w.err != nil
			w.mu.Unlock()
			if over || w.view(st) == nil {
				break
			}
			runtime.Gosched()
			w.barrier(st)
		}
	}
}

// maxPolls bounds how long a chain across shards may take, in turns of the last one.
const maxPolls = 10_000

func (w *World) view(st *stream) *engine.View {
	place := w.e.Lookup([]byte(st.bucket), []byte(st.name))
	if place == nil {
		return nil
	}
	return place.View()
}

// differ says how two answers differ, in what their code gives a meaning to.
func differ(want, got *core.Answer) string {
	w, g := *want, *got
	w.Fixed, g.Fixed = nil, nil
	if sameSnapshot(w.Snapshot, g.Snapshot) {
		w.Snapshot, g.Snapshot = nil, nil
	}
	switch {
	case w.Code != g.Code:
	case w.Code == core.NotFound, w.Code >= core.ForkSourceNotFound && w.Code <= core.ForkTypeMismatch:
		return ""
	case w == g:
		return ""
	}
	return fmt.Sprintf("answered %+v instead of %+v", g, w)
}

func describe(ev *core.Event) string {
	s := fmt.Sprintf("op %d, %d bytes in %d messages, close %t, type %s, ttl %d", ev.Op, len(ev.Body), len(ev.Ends), ev.Close, ev.MediaType, ev.TTL)
	if t := ev.Producer; t.Set {
		s += fmt.Sprintf(", producer %s/%d/%d", t.ID, t.Epoch, t.Seq)
	}
	if f := ev.Fork; f != nil {
		s += fmt.Sprintf(", fork %+v", *f)
	}
	return s
}
