package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// tiered are options with everything small and an object store.
func tiered(shards int, store tiering.Store) engine.Options {
	o := tiny(shards)
	o.Tier = store
	o.TierFlushInterval = 500 * time.Millisecond
	o.TierMinBytes = 16 << 10
	o.ColdCacheBytes = 2 << 20
	o.GCGrace = time.Minute
	return o
}

// distantStore returns a store, and what says that it can't be reached now.
func distantStore() (*tiertest.Memory, *atomic.Bool) {
	store, away := tiertest.NewMemory(), new(atomic.Bool)
	store.Before = func(string, string) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	}
	return store, away
}

// names returns n names of streams.
func streamNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("s", i)
	}
	return all
}

// keys returns the keys of a store below a prefix.
func keys(t testing.TB, store tiering.Store, prefix string) (all []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return all
}

// restored makes a new directory from a store and opens it.
func (r *rig) restored(store tiering.Store) (*rig, engine.RestoreReport) {
	r.Helper()
	o := &rig{TB: r.TB, fs: vfstest.New(), opts: r.opts}
	o.opts.Tier = store
	opts := o.options()
	opts.Shards = 0
	report, err := engine.Restore(r.Context(), "data", opts, engine.RestoreOptions{})
	if err != nil {
		r.Fatal(err)
	}
	o.opts.Shards = 0
	o.open()
	return o, report
}

// Everything that is older than the flush interval is in the store, what is over the
// budget is only there, and a restore finds it all.
func TestTierMovesWhatIsOldAndBringsItBack(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := tiertest.NewMemory()
				o := tiered(shards, store)
				o.LocalDiskBudget = 1 << 20
				o.EvictAbove(32 << 10)
				r := newRig(t, o)
				names := streamNames(9)
				for _, n := range names {
					r.create(n)
				}
				all := r.fill(names, 12)
				later(10 * time.Second)
				if n := r.metric("snakream_tier_evictions_total"); n == 0 {
					t.Error("nothing was evicted")
				}
				if n := r.metric("snakream_tier_local_bytes"); n > 64<<10 {
					t.Errorf("%d bytes are local", n)
				}
				if n := r.metric("snakream_tier_exposed_bytes"); n != 0 {
					t.Errorf("%d bytes are exposed", n)
				}
				for n, want := range all {
					r.expect(n, want)
				}
				if r.metric("snakream_cold_gets_total") == 0 {
					t.Error("nothing was read from the store")
				}
				r.reopen()
				for n, want := range all {
					r.expect(n, want)
				}
				r.close()
				back, report := r.restored(store.Clone())
				for n, want := range all {
					back.expect(n, want)
				}
				if report.Streams < int64(len(names)) || report.LostBytes != 0 {
					t.Errorf("%+v", report)
				}
				if back.History() != 2 {
					t.Errorf("history %d", back.History())
				}
				all = back.fill(names, 4)
				later(10 * time.Second)
				back.reopen()
				for n, want := range all {
					back.expect(n, want)
				}
				back.close()
			})
		})
	}
}

func TestEvictedDataNeedsItsTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(1, store)
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(16 << 10)
		r := newRig(t, o)
		r.create("s")
		r.fill([]string{"s"}, 6)
		later(5 * time.Second)
		if r.metric("snakream_tier_evictions_total") == 0 {
			t.Fatal("nothing was evicted")
		}
		r.close()
		r.opts.Tier = nil
		if _, err := engine.Open("data", r.options()); !errors.Is(err, engine.ErrNeedsTier) {
			t.Errorf("without a tier: %v", err)
		}
		r.opts.Tier = tiertest.NewMemory()
		if _, err := engine.Open("data", r.options()); !errors.Is(err, engine.ErrTier) || !errors.Is(err, tiering.ErrConfig) {
			t.Errorf("with another one: %v", err)
		}
	})
}

// A store that is away for a long time costs nothing but space; at the budget writes
// are refused, and all goes on by itself when it is back.
func TestTierOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := distantStore()
		o := tiered(1, store)
		o.LocalDiskBudget = 200 << 10
		r := newRig(t, o)
		r.create("old")
		all := r.fill([]string{"old"}, 2)
		later(10 * time.Second)
		away.Store(true)
		r.create("new")
		body, stored := strings.Repeat("x", 2000), ""
		full := false
		for i := 0; !full; i++ {
			if i == 10_000 {
				t.Fatal("never full")
			}
			switch a := r.try("new", appendEvent(body)); a.Code {
			case core.Appended:
				stored += body
			case core.DiskFull:
				full = true
			default:
				t.Fatalf("%+v", a)
			}
			if i%20 == 0 {
				later(time.Second)
			}
		}
		later(time.Hour)
		r.expect("new", stored)
		if n := store.Counts()["put"]; n > 1000 {
			t.Errorf("%d puts while the store was away", n)
		}
		away.Store(false)
		later(2 * time.Minute)
		r.append("new", body)
		r.expect("new", stored+body)
		r.expect("old", all["old"])
		r.close()
	})
}

// A start does not need the store, once it has been there.
func TestStartWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := distantStore()
		away.Store(true)
		o := tiered(1, store)
		first := &rig{TB: t, fs: vfstest.New(), opts: o}
		if _, err := engine.Open("data", first.options()); !errors.Is(err, engine.ErrTier) {
			t.Fatalf("first start without the store: %v", err)
		}
		away.Store(false)
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(16 << 10)
		r := newRig(t, o)
		r.create("s")
		all := r.fill([]string{"s"}, 6)
		later(10 * time.Second)
		away.Store(true)
		r.reopen()
		if _, err := r.content("s"); !errors.Is(err, engine.ErrColdUnavailable) {
			t.Errorf("cold read: %v", err)
		}
		r.append("s", "and more")
		away.Store(false)
		later(time.Minute)
		r.expect("s", all["s"]+"and more")
		if r.metric("snakream_tier_connected") != 1 {
			t.Error("not connected")
		}
		r.close()
	})
}

// What nothing refers to leaves the store after the grace, and nothing else does.
func TestTierCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(1, store)
		o.EraseWithin = time.Minute
		r := newRig(t, o)
		names := streamNames(6)
		for _, n := range names {
			r.create(n)
		}
		r.append("s0", "a marker that has to go")
		all := r.fill(names[1:], 6)
		later(10 * time.Second)
		if !holds(t, store, "a marker that has to go") {
			t.Fatal("the marker is not in the store")
		}
		r.remove("s0")
		later(30 * time.Minute)
		if holds(t, store, "a marker that has to go") {
			t.Error("the marker is still in the store")
		}
		for path, b := range files(t, r.fs, "data") {
			if bytes.Contains(b, []byte("a marker that has to go")) {
				t.Errorf("the marker is still in %s", path)
			}
		}
		for n, want := range all {
			r.expect(n, want)
		}
		state, _, err := mirror.Load(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i, s := range state.Shard {
			for _, m := range s.Segments {
				want = append(want, tiering.SegmentKey(i, m.ID, m.Object))
			}
		}
		slices.Sort(want)
		if got := keys(t, store, "segments/"); !slices.Equal(got, want) {
			t.Errorf("the store has %q, the mirror names %q", got, want)
		}
		r.close()
	})
}

func holds(t testing.TB, store *tiertest.Memory, marker string) bool {
	t.Helper()
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, info.Size)
		if err := store.Get(t.Context(), info.Key, p, 0); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(p, []byte(marker)) {
			return true
		}
	}
	return false
}

// Objects of runs that were cut off are collected; what is not ours stays.
func TestTierSweepsStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.fill([]string{"s"}, 2)
		later(5 * time.Second)
		r.close()
		state, _, err := mirror.Load(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		stray := tiering.SegmentKey(0, 1<<20, state.Objects-1)
		foreign := []string{"segments/notes.txt", "segments/00/x\ny", tiering.SegmentKey(0, 5, 1<<40), "other"}
		for _, key := range append(foreign, stray) {
			text := []byte("junk")
			if err := store.Put(t.Context(), key, tiering.Body{R: bytes.NewReader(text), Size: 4, CRC32C: crcOf(text)}); err != nil {
				t.Fatal(err)
			}
		}
		r.open()
		later(10 * time.Minute)
		left := keys(t, store, "")
		if slices.Contains(left, stray) {
			t.Errorf("%s is still there", stray)
		}
		for _, key := range foreign {
			if !slices.Contains(left, key) {
				t.Errorf("%q is gone", key)
			}
		}
		r.close()
	})
}

// A missing, short or damaged object is an error of the range and nothing else; one that
// is put back heals it.
func TestDamagedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(1, store)
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(16 << 10)
		o.ColdCacheBytes = 1 << 20
		r := newRig(t, o)
		r.create("s")
		all := r.fill([]string{"s"}, 14)
		later(10 * time.Second)
		if r.metric("snakream_tier_evictions_total") == 0 {
			t.Fatal("nothing was evicted")
		}
		r.close()
		good := store.Clone()
		for name, damage := range map[string]func(key string){
			"missing": store.Remove,
			"short":   func(key string) { store.Truncate(key, 100) },
			"flipped": func(key string) { store.Corrupt(key, 4096+10) },
		} {
			for _, key := range keys(t, store, "segments/") {
				damage(key)
			}
			r.open()
			_, err := r.content("s")
			switch {
			case err == nil:
				t.Errorf("%s: no error", name)
			case name == "missing" && !errors.Is(err, tiering.ErrNotFound), name == "short" && !errors.Is(err, tiering.ErrShort),
				name == "flipped" && corruption(err) == nil:
				t.Errorf("%s: %v", name, err)
			}
			heal(t, store, good)
			r.expect("s", all["s"])
			r.close()
		}
	})
}

// heal puts back what a store held.
func heal(t testing.TB, store, good *tiertest.Memory) {
	t.Helper()
	for info, err := range good.List(t.Context(), "segments/") {
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, info.Size)
		if err := good.Get(t.Context(), info.Key, p, 0); err != nil {
			t.Fatal(err)
		}
		store.Remove(info.Key)
		if err := store.Put(t.Context(), info.Key, tiering.Body{R: bytes.NewReader(p), Size: info.Size, CRC32C: crcOf(p)}); err != nil {
			t.Fatal(err)
		}
	}
}

// The second node on a prefix is refused; after a restore the first one is fenced.
func TestFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.append("s", "one")
		later(5 * time.Second)
		second := &rig{TB: t, fs: vfstest.New(), opts: tiered(1, store)}
		if _, err := engine.Open("data", second.options()); !errors.Is(err, mirror.ErrTaken) {
			t.Fatalf("a second node: %v", err)
		}
		back, _ := r.restored(store)
		back.expect("s", "one")
		back.append("s", "two")
		before := store.Counts()["put"]
		r.append("s", "lost")
		later(2 * time.Second)
		if err := r.Do(&engine.Op{Event: appendEvent("more"), Stream: r.stream("s")}); !errors.Is(err, engine.ErrFenced) && !errors.Is(err, engine.ErrFailed) {
			t.Errorf("a write to the fenced node: %v", err)
		}
		later(5 * time.Second)
		if r.failures() != 1 || !errors.Is(r.Err(), engine.ErrFenced) {
			t.Errorf("%d failures, %v", r.failures(), r.Err())
		}
		if err := r.Close(); err != nil {
			t.Log(err)
		}
		later(5 * time.Second)
		back.expect("s", "onetwo")
		back.close()
		t.Logf("%d puts before, %d after", before, store.Counts()["put"])
	})
}

// What was not uploaded is reported, and what was is all there.
func TestRestoreOfALostMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(2, store))
		r.create("s")
		r.append("s", "saved")
		later(5 * time.Second)
		lost := store.Clone()
		r.append("s", "lost")
		if _, err := engine.Restore(t.Context(), "data", r.options(), engine.RestoreOptions{}); !errors.Is(err, engine.ErrForeign) {
			t.Errorf("into a directory that is not empty: %v", err)
		}
		r.close()
		back, _ := r.restored(lost)
		back.expect("s", "saved")
		back.close()
		for _, key := range keys(t, lost, "segments/")[:1] {
			lost.Remove(key)
		}
		o := &rig{TB: t, fs: vfstest.New(), opts: tiered(0, lost)}
		report, err := engine.Restore(t.Context(), "data", o.options(), engine.RestoreOptions{})
		if !errors.Is(err, engine.ErrMissing) || len(report.Missing) == 0 {
			t.Errorf("with an object missing: %+v, %v", report, err)
		}
		if _, err := o.fs.List("data"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something was made: %v", err)
		}
		if _, err := engine.Restore(t.Context(), "data", (&rig{TB: t, fs: vfstest.New(), opts: tiered(0, tiertest.NewMemory())}).options(), engine.RestoreOptions{}); !errors.Is(err, tiering.ErrNotFound) {
			t.Errorf("of an empty store: %v", err)
		}
	})
}

// A reader that leaves lets go of what it waits for.
func TestColdReadEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		gate := make(chan struct{})
		store := tiertest.NewMemory()
		store.Before = func(op, _ string) error {
			if op == "get" && away.Load() {
				<-gate
			}
			return nil
		}
		o := tiered(1, store)
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(16 << 10)
		r := newRig(t, o)
		r.create("s")
		all := r.fill([]string{"s"}, 14)
		later(10 * time.Second)
		r.reopen()
		away.Store(true)
		v := r.view("s")
		var st engine.Step
		if err := r.Read(v, v.First, v.Next, 1000, &st); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Append(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		st.Release()
		away.Store(false)
		close(gate)
		r.expect("s", all["s"])
		r.close()
	})
}

func crcOf(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }
