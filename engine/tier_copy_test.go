package engine_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// refusedCopy opens the directory, which is a copy of another that has the prefix, and
// expects that it is told so, before anything is written here or there.
func (r *rig) refusedCopy(store *tiertest.Memory) {
	r.Helper()
	tier, was := files(r, r.fs, "data")["data/TIER"], writerOf(r, store)
	_, err := engine.Open("data", r.options())
	if !errors.Is(err, engine.ErrTier) || !errors.Is(err, mirror.ErrTaken) || !errors.Is(err, mirror.ErrCopy) || !strings.Contains(err.Error(), "copy of") {
		r.Errorf("a copy was not refused as one: %v", err)
	}
	if was != writerOf(r, store) {
		r.Error("the refused copy has taken the mirror")
	}
	if !bytes.Equal(tier, files(r, r.fs, "data")["data/TIER"]) {
		r.Error("the refused copy has changed its file TIER")
	}
}

// fenced waits until the node has noticed that it is, and closes it.
func (r *rig) fenced() {
	r.Helper()
	r.append("s", "lost")
	later(2 * time.Minute)
	if r.failures() != 1 || !errors.Is(r.Err(), engine.ErrFenced) {
		r.Errorf("%d failures, %v", r.failures(), r.Err())
	}
	if err := r.Close(); err != nil {
		r.Log(err)
	}
}

// Of copies of a stopped data directory the one that is started first has the prefix, for
// good: no other one is started, and none loses anything.
func TestCopiesOfAStoppedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(1, store)
		o.GCGrace = 10 * time.Second
		r := newRig(t, o)
		r.create("s")
		r.append("s", "before ")
		later(5 * time.Second)
		r.close()
		copied := &rig{TB: t, fs: r.fs.Clone(), opts: r.opts}
		r.open()
		copied.refusedCopy(store)
		r.append("s", "after ")
		later(30 * time.Second)
		copied.refusedCopy(store)
		r.close()
		copied.refusedCopy(store) // the first one has stopped, and what it has is newer
		r.open()
		r.expect("s", "before after ")
		later(time.Minute)
		r.close()
		back, _ := r.restored(store.Clone())
		back.expect("s", "before after ")
		back.close()
	})
}

// watched is a store that counts what one node changes in it.
type watched struct {
	*tiertest.Memory
	changes atomic.Int64
}

func (w *watched) Put(ctx context.Context, key string, b tiering.Body) error {
	w.changes.Add(1)
	return w.Memory.Put(ctx, key, b)
}

func (w *watched) Delete(ctx context.Context, key string) error {
	w.changes.Add(1)
	return w.Memory.Delete(ctx, key)
}

func (w *watched) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
	w.changes.Add(1)
	return w.Memory.Swap(ctx, key, data, old)
}

// A copy that is made of a directory as it runs takes the prefix over, once. The first
// one is fenced, deletes nothing more, and is refused when it is started again.
func TestCopyOfARunningDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		first := &watched{Memory: store}
		o := tiered(1, first)
		o.GCGrace = 10 * time.Second
		r := newRig(t, o)
		r.create("s")
		r.append("s", "before ")
		later(5 * time.Second)
		copied := &rig{TB: t, fs: r.fs.Clone(), opts: r.opts}
		copied.opts.Tier = store
		copied.open()
		copied.expect("s", "before ")
		r.fenced()
		was := first.changes.Load()
		for range 2 {
			r.refusedCopy(store)
			copied.append("s", "after ")
			later(30 * time.Second)
		}
		copied.expect("s", "before after after ")
		copied.reopen()
		later(time.Minute)
		copied.close()
		r.refusedCopy(store)
		if n := first.changes.Load() - was; n > 0 {
			t.Errorf("the first one has tried %d changes after it was fenced", n)
		}
		back, _ := r.restored(store.Clone())
		back.expect("s", "before after after ")
		back.close()
	})
}

// A copy of a running directory that is older than what the first one has done since is
// refused, though it knows the first one, and though nothing was written since: merges
// alone have made segments dead that it needs.
func TestOlderCopyOfARunningDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		all := r.fill([]string{"s"}, 1)
		later(10 * time.Second)
		r.close()
		good := store.Bytes(tiering.MirrorKey)
		state, v, err := mirror.Load(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		had := state.Shard[0].Segments
		state.Dead = append(state.Dead, mirror.Dead{Key: tiering.SegmentKey(0, had[0].ID, had[0].Object), Since: state.Written})
		state.Shard[0].Segments = had[1:]
		if v, err = store.Swap(t.Context(), tiering.MirrorKey, mirror.Encode(&state), v); err != nil {
			t.Fatal(err)
		}
		r.refusedCopy(store)
		if _, err := store.Swap(t.Context(), tiering.MirrorKey, good, v); err != nil {
			t.Fatal(err)
		}
		r.open()
		r.expect("s", all["s"])
		r.close()
	})
}

// Copies that are made before there was a tier are told apart like any other.
func TestCopiesFromBeforeTheTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(2, store)
		o.Tier = nil
		r := newRig(t, o)
		r.create("s")
		r.close()
		r.opts.Tier = store
		copied := &rig{TB: t, fs: r.fs.Clone(), opts: r.opts}
		r.open()
		copied.refusedCopy(store)
		r.close()
		copied.refusedCopy(store)
	})
}

// Wherever a start is cut off, and whether or not the store has heard of it, the same
// directory starts again, and a copy of before does not once another has the mirror.
func TestStartsThatAreCutOff(t *testing.T) {
	seed := seedOf(t)
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			store := tiertest.NewMemory()
			r := newRig(t, tiered(1, nil))
			r.create("s")
			r.append("s", "text")
			if !first {
				r.close()
				r.opts.Tier = store
				r.open()
				later(5 * time.Second)
			}
			r.close()
			before := r.fs.Clone()
			type moment struct {
				fs    *vfstest.MemFS
				store *tiertest.Memory
			}
			var moments []moment
			var mu sync.Mutex
			over := false
			hook := func() {
				mu.Lock()
				defer mu.Unlock()
				if !over {
					moments = append(moments, moment{r.fs.CrashClone(rng), store.Clone()})
				}
			}
			r.fs.SetHook(func(op vfstest.Op) error {
				if strings.Contains(op.Path, "TIER") && op.Kind != vfstest.Read || op.Kind == vfstest.SyncDir && op.Path == "data" {
					hook()
				}
				return nil
			})
			store = store.Clone() // nobody uses it yet
			store.After = func(op, _ string) error {
				if op == "swap" {
					hook()
				}
				return nil
			}
			r.opts.Tier = store
			r.open()
			mu.Lock()
			over = true
			mu.Unlock()
			r.fs.SetHook(nil)
			r.close()
			claims := 0
			for _, m := range moments {
				if m.store.Bytes(tiering.MirrorKey) != nil && writerOf(t, m.store) == writerOf(t, store) {
					claims++
					copied := &rig{TB: t, fs: before.Clone(), opts: r.opts}
					copied.opts.Tier = m.store
					copied.refusedCopy(m.store)
				}
				again := &rig{TB: t, fs: m.fs, opts: r.opts}
				again.opts.Tier = m.store
				again.open()
				again.expect("s", "text")
				later(5 * time.Second)
				again.reopen()
				again.close()
			}
			if claims < 2 || claims > len(moments)-3 {
				t.Errorf("%d moments, %d of them after the claim", len(moments), claims)
			}
		})
	}
}

// cutOffAfterClaim starts and has the directory note nothing once the mirror is claimed.
func (r *rig) cutOffAfterClaim(store *tiertest.Memory) {
	r.Helper()
	var claimed atomic.Bool
	store.After = func(op, _ string) error {
		claimed.Store(claimed.Load() || op == "swap")
		return nil
	}
	r.fs.SetHook(func(op vfstest.Op) error {
		if claimed.Load() && strings.Contains(op.Path, "TIER") && op.Kind != vfstest.Read {
			return errors.New("power cut")
		}
		return nil
	})
	if _, err := engine.Open("data", r.options()); err == nil {
		r.Fatal("the start was not cut off")
	}
	r.fs.SetHook(nil)
	store.After = nil
}

// A claim whose end the directory has not noted is not forgotten, however many starts after
// it can read the store and not write it.
func TestStartsThatCannotClaim(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := tiertest.NewMemory()
			var refuses atomic.Bool
			store.Before = func(op, _ string) error {
				if op == "swap" && refuses.Load() {
					return errors.New("503 SlowDown")
				}
				return nil
			}
			r := newRig(t, tiered(1, nil))
			r.create("s")
			if !first {
				r.close()
				r.opts.Tier = store
				r.open()
			}
			r.append("s", "text")
			r.close()
			r.opts.Tier = store
			r.cutOffAfterClaim(store)
			refuses.Store(true)
			for range 20 {
				if e, err := engine.Open("data", r.options()); err == nil {
					_ = e.Close()
				}
			}
			refuses.Store(false)
			r.open()
			r.expect("s", "text")
			later(5 * time.Second)
			if s, _ := r.TierStatus(); !s.Connected || s.ExposedBytes != 0 {
				t.Errorf("%+v", s)
			}
			r.close()
		})
	}
}

// The history that a repair begins is told to a mirror that the directory does not know to
// be its own yet, too; and when there is none, or another's, that is for the next start.
func TestNewHistoryAfterACutOffClaim(t *testing.T) {
	for _, there := range []string{"claimed", "none", "another's"} {
		synctest.Test(t, func(t *testing.T) {
			store := tiertest.NewMemory()
			r := newRig(t, tiered(1, nil))
			r.create("s")
			r.append("s", "text")
			r.close()
			r.opts.Tier = store
			r.cutOffAfterClaim(store)
			switch there {
			case "none":
				store.Remove(tiering.MirrorKey)
			case "another's":
				store = tiertest.NewMemory()
				newRig(t, tiered(1, store)).close()
				r.opts.Tier = store
			}
			for _, tier := range []tiering.Store{nil, store} {
				o := r.options()
				o.Tier = tier
				err := engine.BeginRepair(r.fs, "data", true)
				if err = errors.Join(err, engine.TellMirror(t.Context(), r.fs, "data", o)); err != nil {
					t.Fatalf("%s: %v", there, err)
				}
			}
			if err := engine.EndRepair(r.fs, "data"); err != nil {
				t.Fatal(err)
			}
			if there == "another's" {
				if _, err := engine.Open("data", r.options()); !errors.Is(err, mirror.ErrTaken) {
					t.Errorf("%v", err)
				}
				return
			}
			r.open()
			r.expect("s", "text")
			later(5 * time.Second)
			r.reopen()
			r.close()
		})
	}
}

func writerOf(t testing.TB, store *tiertest.Memory) string {
	t.Helper()
	state, _, err := mirror.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return state.Writer.String()
}

// A directory of before there were writers takes the mirror of then, once.
func TestFileTierOfVersion1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.append("s", "old ")
		later(5 * time.Second)
		r.close()
		if err := r.fs.Remove("data/TIER"); err != nil {
			t.Fatal(err)
		}
		write(t, r.fs, "data/TIER", []byte("snakream-tier 1\nmemory\n"))
		if where, err := engine.UsesTier(r.fs, "data"); where != "memory" || err != nil {
			t.Errorf("%q, %v", where, err)
		}
		copied := &rig{TB: t, fs: r.fs.Clone(), opts: r.opts}
		r.open()
		copied.open()
		copied.expect("s", "old ")
		r.fenced()
		r.refusedCopy(store)
		copied.append("s", "new")
		copied.reopen()
		copied.expect("s", "old new")
		copied.close()
	})
}

// A store that was away at the start, and has been emptied meanwhile, is not begun anew.
func TestLateClaimOfAnEmptyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := distantStore()
		r := newRig(t, tiered(1, store))
		r.create("s")
		later(5 * time.Second)
		away.Store(true)
		r.reopen()
		good := store.Bytes(tiering.MirrorKey)
		store.Remove(tiering.MirrorKey)
		away.Store(false)
		r.append("s", "text")
		later(5 * time.Minute)
		if s, _ := r.TierStatus(); s.Connected || store.Bytes(tiering.MirrorKey) != nil {
			t.Errorf("the mirror was made anew: %+v", s)
		}
		if _, err := store.Swap(t.Context(), tiering.MirrorKey, good, ""); err != nil {
			t.Fatal(err)
		}
		later(time.Minute)
		if s, _ := r.TierStatus(); !s.Connected || s.ExposedBytes != 0 {
			t.Errorf("%+v", s)
		}
		if tier := string(files(t, r.fs, "data")["data/TIER"]); strings.Contains(tier, "intent") {
			t.Errorf("after the late claim: %s", tier)
		}
		r.close()
	})
}

// What a node puts that does not know yet that another has its place is deleted by that
// one, in time, without a start.
func TestObjectsOfAFencedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.append("s", "text")
		later(5 * time.Second)
		r.close()
		state, _, err := mirror.Load(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		r.open()
		later(10 * time.Second) // it has looked for strays
		for i, wait := range []time.Duration{5 * time.Minute, 25 * time.Hour} {
			stray := tiering.SegmentKey(0, 1<<20, state.Objects-1-uint64(i))
			text := []byte("late")
			if err := store.Put(t.Context(), stray, tiering.Body{R: bytes.NewReader(text), Size: 4, CRC32C: crcOf(text)}); err != nil {
				t.Fatal(err)
			}
			later(wait)
			if store.Bytes(stray) != nil {
				t.Errorf("%s is still there after %v", stray, wait)
			}
		}
		if n := store.Counts()["list"]; n > 8 {
			t.Errorf("%d listings in a day", n)
		}
		r.expect("s", "text")
		r.close()
	})
}
