package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// tier completes the options of a World with an object store: everything goes there at
// once, hardly anything may stay, and a call in so many fails, before or after it is
// carried out.
func (w *World) tier(o *engine.Options) {
	if w.up == nil {
		return
	}
	fail := func(what string) func(string, string) error {
		return func(op, key string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.faulty && w.dice.IntN(60) == 0 && op != "get" {
				return fmt.Errorf("%s %s %s: a fault of the test", what, op, key)
			}
			return nil
		}
	}
	lost, dead := fail("no answer:"), map[string]bool{}
	w.up.Before = fail("not done:")
	w.up.After = func(op, key string) error {
		if op == "swap" {
			if err := audit(w.up, dead); err != nil {
				w.fail(err)
			}
		}
		return lost(op, key)
	}
	o.Tier = w.up
	o.TierFlushInterval = 10 * time.Millisecond
	o.TierMinBytes = 4 << 10
	o.LocalDiskBudget = 1 << 30
	o.ColdCacheBytes = 1 << 20
	o.GCGrace = time.Second // of the World's time
}

// audit checks that all that the mirror names is there, and that nothing of it has been
// called dead before: whatever has been may be deleted at any time.
func audit(up *tiertest.Memory, dead map[string]bool) error {
	state, err := mirror.Decode("the mirror", up.Bytes(tiering.MirrorKey))
	if err != nil {
		return err
	}
	keys := up.Keys()
	for i := range state.Shard {
		for _, m := range state.Shard[i].Segments {
			key := tiering.SegmentKey(i, m.ID, m.Object)
			if _, there := slices.BinarySearch(keys, key); !there || dead[key] {
				return fmt.Errorf("epoch %d, change %d of the mirror names %s, which is there: %t, was dead: %t", state.Epoch, state.Sequence, key, there, dead[key])
			}
		}
	}
	for _, d := range state.Dead {
		dead[d.Key] = true
	}
	return nil
}

// take takes files and objects at one moment. It is false when something was changed in
// the store meanwhile: then the two are not of one moment.
func (m *Moment) take(files func() *vfstest.MemFS) bool {
	if m.from == nil {
		m.FS = files()
		return true
	}
	m.up = m.from.Clone()
	m.FS = files()
	return slices.Equal(m.up.Keys(), m.from.Keys()) && bytes.Equal(m.up.Bytes(tiering.MirrorKey), m.from.Bytes(tiering.MirrorKey))
}

// CheckRestore restores the moment's object store alone, as if the machine had been
// lost, and checks that every name is in a state that it was in once, with all that
// belongs to it.
func (m *Moment) CheckRestore(rng *rand.Rand) error {
	if m.up == nil {
		return nil
	}
	w := newWorld(m.w.cfg, vfstest.New(), rng)
	w.now, w.blobs, w.up, w.restored = m.now, m.w.blobs, m.up.Clone(), true
	o := w.cfg.Options
	o.FS, o.Shards = w.fs, 0
	w.tier(&o)
	o.Now = func() time.Time { return time.UnixMilli(int64(m.now)) }
	o.Logger = slog.New(slog.DiscardHandler)
	report, err := engine.Restore(context.Background(), Dir, o, engine.RestoreOptions{})
	if errors.Is(err, tiering.ErrNotFound) {
		return nil // it was never used
	}
	if err != nil {
		return fmt.Errorf("restore: %w (%q)", err, report.Missing)
	}
	w.era = report.History
	w.cfg.Options.Shards = 0
	if err := w.open(); err != nil {
		return fmt.Errorf("after a restore: %w", err)
	}
	for i := range m.bounds {
		b := &m.bounds[i]
		if err := m.inThePast(w, b); err != nil {
			return errors.Join(fmt.Errorf("restored %s: %w", b.st.name, err), w.Close())
		}
	}
	return w.Close()
}

// inThePast checks that a name shows one of its former states. Nothing is one of them.
func (m *Moment) inThePast(w *World, b *bound) error {
	place := w.e.Lookup([]byte(b.st.bucket), []byte(b.st.name))
	if place == nil {
		return nil
	}
	v := place.View()
	if v == nil || v.Deleted || !place.Alive(v) {
		return nil
	}
	candidates, err := m.candidates(w, b, v)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		diff := w.compare(v, c.data, c.ends, true)
		if diff == nil {
			return nil
		}
		err = errors.Join(err, diff)
	}
	return err
}

// content is what a stream held in one state.
type content struct {
	data []byte
	ends []int
}

// candidates returns what the name held in each of the states that v may show: Worlds
// that went apart after a crash may have written as many bytes, and not the same ones.
func (m *Moment) candidates(w *World, b *bound, v *engine.View) (all []content, err error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for states := b.all; ; {
		s, err := w.match(states, v)
		if err != nil && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, content{s.inc.data[:s.next], s.inc.ends[:s.records]})
		states = states[slices.Index(states, s)+1:]
	}
}
