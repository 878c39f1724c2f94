package enginetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering/tiertest"
	"github.com/snakream/snakream/wal/record"
)

// Moment is a World at one point of its life: what is left of its files, and what
// the twin knows of them. Anything from what had been answered by then up to what
// had been asked for may be there.
type Moment struct {
	FS     *vfstest.MemFS
	up     *tiertest.Memory
	w      *World
	now    base.Millis
	bounds []bound
	Depth  int              // crashes during recovery that led here
	from   *tiertest.Memory // the store that is in use
}

// bound is what may have become of a name: states[i], i at least 0.
type bound struct {
	st     *stream
	states []*state
	all    []*state    // those before too, of all Worlds
	last   *state      // the newest before the files were taken, …
	before base.Millis // … its deadline then …
	after  base.Millis // … and after, at most
}

// hook takes a Moment at random.
func (w *World) hook(vfstest.Op) error {
	w.mu.Lock()
	hit := w.dice.IntN(w.cfg.CrashEvery) == 0
	rng := rand.New(rand.NewPCG(w.dice.Uint64(), w.dice.Uint64()))
	w.mu.Unlock()
	if !hit {
		return nil
	}
	if m := w.moment(func() *vfstest.MemFS { return w.fs.CrashClone(rng) }); m != nil {
		w.cfg.Crash(m)
	}
	return nil
}

// moment notes what is known before and after the files are taken.
func (w *World) moment(files func() *vfstest.MemFS) *Moment {
	m := &Moment{w: w, from: w.up}
	w.mu.Lock()
	places := w.places()
	for _, st := range places {
		m.bounds = append(m.bounds, bound{st: st, last: st.last(), before: st.last().deadline})
	}
	lo := make([]int, len(places))
	for i, st := range places {
		lo[i] = st.durable
	}
	w.mu.Unlock()
	if !m.take(files) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.now = w.now
	for i := range m.bounds {
		b := &m.bounds[i]
		b.states = b.st.states[lo[i]:len(b.st.states):len(b.st.states)]
		if w.up != nil {
			b.all = slices.Concat(b.st.older, b.st.states)
		}
		b.after = b.last.deadline + b.last.slack
	}
	return m
}

// match returns which of the states v shows, the first one if there are several.
func (w *World) match(states []*state, v *engine.View) (*state, error) {
	for _, s := range states {
		same := v != nil && s.inc != nil && int(v.Next) == s.next && int(v.NextRecord) == s.records &&
			(s.inc.id == 0 || s.inc.id == v.ID) && v.Closed == s.closed && v.MediaType == s.inc.media &&
			v.TTL == s.inc.ttl && v.ExpiresAt == s.inc.expiresAt && v.Deleted == s.ended && s.past.shown(v) && s.extra.shown(v)
		if same || v == nil && !s.usable() {
			return s, nil
		}
	}
	var all string
	for _, s := range states {
		all += "\n  " + s.String()
	}
	if v == nil {
		return nil, fmt.Errorf("there is nothing at %d instead of one of%.2000s", w.now, all)
	}
	var x string
	v.Extra.EachSnapshot(func(n *record.Snapshot) { x += fmt.Sprintf(", snapshot at %d, replaced %d", n.Offset, n.Replaced) })
	if v.Extra != nil {
		x += fmt.Sprintf(", attributes %q", v.Extra.Attrs)
	}
	return nil, fmt.Errorf("%+v of %+v%s at %d instead of one of%.2000s", v.View, v.Fixed, x, w.now, all)
}

// Recover opens the files, checks that they hold what they must and nothing else,
// and returns the World that goes on from there, with crash as its Config.Crash.
func (m *Moment) Recover(rng *rand.Rand, crash func(*Moment)) (*World, error) {
	w := newWorld(m.w.cfg, m.FS, rng)
	w.now, w.n = m.now, rng.IntN(1<<40) // other messages than before
	w.blobs, w.up = m.w.blobs, m.up
	if w.era = m.w.era; w.era < record.MaxHistory && w.up == nil && rng.IntN(8) == 0 {
		w.era++
		if err := NextHistory(m.FS, Dir); err != nil {
			return nil, err
		}
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	if err := m.check(w); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	w.watch(crash)
	return w, nil
}

// Recrash opens the files and cuts the power once more on the way, at the n-th
// operation, if there are so many.
func (m *Moment) Recrash(rng *rand.Rand, n int) (*Moment, error) {
	again := *m
	again.FS, again.Depth, again.from = nil, m.Depth+1, m.up
	m.FS.SetHook(func(vfstest.Op) error {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		if n--; n == 0 && !again.take(func() *vfstest.MemFS { return m.FS.CrashClone(rng) }) {
			again.FS = nil
		}
		return nil
	})
	w := newWorld(m.w.cfg, m.FS, rng)
	w.up = m.up
	w.now = m.now
	if err := w.open(); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if again.FS == nil {
		return nil, nil
	}
	return &again, nil
}

// check compares the engine of w with the bounds, and gives w what it found.
func (m *Moment) check(w *World) error {
	copies := map[*incarnation]*incarnation{}
	for i := range m.bounds {
		b := &m.bounds[i]
		s, err := m.look(w, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.st.name, err)
		}
		if s.era = w.era; s.inc != nil {
			s.inc = m.copyOf(copies, s.inc)
			s.inc.data, s.inc.ends = s.inc.data[:s.next:s.next], s.inc.ends[:s.records:s.records]
		}
		w.add(&stream{bucket: b.st.bucket, name: b.st.name, states: []*state{s}, older: b.all})
	}
	if err := m.checkAll(w); err != nil {
		return err
	}
	return w.checkStores()
}

// copyOf returns the one copy of an incarnation, so that the two worlds go apart.
func (m *Moment) copyOf(copies map[*incarnation]*incarnation, c *incarnation) *incarnation {
	if c == nil || copies[c] != nil {
		return copies[c]
	}
	m.w.mu.Lock()
	n := *c
	m.w.mu.Unlock()
	copies[c] = &n
	n.parent = m.copyOf(copies, c.parent)
	return &n
}

// look finds the state that a name was recovered in.
func (m *Moment) look(w *World, b *bound) (*state, error) {
	place := w.e.Lookup([]byte(b.st.bucket), []byte(b.st.name))
	var v *engine.View
	if place != nil {
		v = place.View()
		if v != nil && !v.Deleted && !place.Alive(v) {
			w.do(&engine.Op{Stream: place, Event: core.Event{Op: core.OpExpire, Stream: v.ID}})
			v = place.View()
		}
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	found, err := w.match(b.states, v)
	if over := v == nil || v.Deleted; err != nil && over {
		if n := b.states[len(b.states)-1]; n.usable() && n.inc.expires() && n.deadline <= m.now {
			return n.end(), nil
		}
		// Nobody may have told it yet that its last fork has gone, or was never made.
		found, err = w.match(b.states, nil)
	}
	if err != nil {
		return nil, err
	}
	s := *found
	if v == nil || v.Deleted || !v.Expires() {
		return &s, nil
	}
	from, to := s.born, s.deadline+s.slack
	if found == b.last {
		from, to = b.before, b.after
	}
	s.deadline, s.slack = from, to-from+s.inc.granule()
	if m.now >= s.deadline+s.slack {
		return nil, fmt.Errorf("alive at %d, its deadline was %d at most", m.now, s.deadline+s.slack)
	}
	return &s, nil
}

// checkAll compares contents, waits for what start-up has to finish, and looks for
// what nothing explains.
func (m *Moment) checkAll(w *World) error {
	ids := map[base.StreamID]string{}
	for _, st := range w.streams {
		v, s := w.view(st), st.last()
		switch {
		case v == nil && s.usable():
			return fmt.Errorf("%s is gone", st.name)
		case v == nil && s.inc != nil && w.held(s.inc):
			return fmt.Errorf("%s is gone though a fork needs it", st.name)
		case v == nil:
			continue
		case v.Deleted && !w.held(s.inc):
			if !w.goes(st) {
				return fmt.Errorf("%s stays though no fork needs it", st.name)
			}
			continue
		}
		if other := ids[v.ID]; other != "" {
			return fmt.Errorf("%s and %s have one id, %d", st.name, other, v.ID)
		}
		ids[v.ID] = st.name
		s.inc.id = v.ID
		if !v.Deleted {
			if err := w.compare(v, s.inc.data, s.inc.ends, true); err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
		}
	}
	return w.Err()
}

// goes waits until a name is free.
func (w *World) goes(st *stream) bool {
	for range maxPolls {
		if w.view(st) == nil {
			return true
		}
		runtime.Gosched()
		w.barrier(st)
	}
	return false
}
