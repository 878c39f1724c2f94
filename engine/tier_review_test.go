package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// comeAndGo makes, fills and deletes streams until its end is called: each lives for a short
// while, so that at every flush some have gone since what is flushed was written.
func (r *rig) comeAndGo(every time.Duration, alive int) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-time.After(every):
			case <-stop:
				return
			}
			name := fmt.Sprint("churn", i)
			r.create(name)
			r.append(name, strings.Repeat("x", 100))
			if i >= alive {
				r.remove(fmt.Sprint("churn", i-alive))
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// slowFlushes has the file system take its time for the segments that are made.
func (r *rig) slowFlushes(d time.Duration) {
	r.fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Create && strings.Contains(op.Path, "/tmp/") {
			<-time.After(d)
		}
		return nil
	})
}

// Streams that come and go all the time don't keep the mirror from getting on.
func TestTierUnderChurn(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tiered(shards, tiertest.NewMemory()))
				r.slowFlushes(20 * time.Millisecond)
				end := r.comeAndGo(10*time.Millisecond, 20)
				worst := 0.0
				for range 60 {
					later(time.Second)
					s, _ := r.TierStatus()
					worst = max(worst, s.ExposedSeconds)
				}
				end()
				t.Logf("exposed for %.1f s at most", worst)
				if worst > 5 {
					t.Errorf("data was exposed for %v seconds", worst)
				}
				r.fs.SetHook(nil)
				r.close()
			})
		})
	}
}

// An engine that has failed can be closed, whatever the tier was doing.
func TestCloseAfterAFailureWithATier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		gate := make(chan struct{})
		store.Before = func(op, key string) error {
			if op == "put" && strings.HasPrefix(key, "segments/") {
				<-gate
			}
			return nil
		}
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.fill([]string{"s"}, 1)
		later(time.Second)
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.SyncDir && strings.HasSuffix(op.Path, "/seg") {
				return fmt.Errorf("a fault of the test")
			}
			return nil
		})
		for r.failures() == 0 {
			op := &engine.Op{Event: appendEvent("more"), Stream: r.stream("s")}
			_ = r.Do(op)
			later(100 * time.Millisecond)
		}
		close(gate)
		later(time.Second)
		r.fs.SetHook(nil)
		if err := r.Close(); err != nil {
			t.Log(err)
		}
	})
}

// A snapshot that is lost before it was in the store is missing in a restore, and nothing
// else is: neither what was written later nor what a directory writes after that.
func TestTierGoesOnWithoutALostSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := tiertest.NewMemory()
		store.Before = func(op, _ string) error {
			if op == "put" && away.Load() {
				return errors.New("503 SlowDown")
			}
			return nil
		}
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.append("s", "one ")
		later(5 * time.Second)
		away.Store(true)
		r.publish("s", 4, "a snapshot")
		for _, path := range r.blobPaths() {
			if err := r.fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		away.Store(false)
		r.append("s", "two ")
		later(time.Minute)
		for _, body := range []string{"three ", "four "} {
			want, err := r.content("s")
			if err != nil {
				t.Fatal(err)
			}
			back := &rig{TB: t, fs: vfstest.New(), opts: r.opts}
			back.opts.Tier, back.opts.Shards = store.Clone(), 0
			report, err := engine.Restore(t.Context(), "data", back.options(), engine.RestoreOptions{AllowMissing: true})
			if err != nil || len(report.Missing) != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			r.close()
			store = back.opts.Tier.(*tiertest.Memory)
			back.open()
			back.expect("s", want)
			back.append("s", body)
			later(time.Minute)
			r = back
		}
		r.close()
	})
}

// A segment whose local file can't be read does not keep others from being evicted.
func TestEvictionPastADamagedSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiered(1, tiertest.NewMemory())
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(48 << 10)
		r := newRig(t, o)
		r.create("s")
		r.fill([]string{"s"}, 2)
		later(5 * time.Second)
		oldest := find(t, r.fs, "data/shard-00/seg/*.seg")[0]
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Read && op.Path == oldest {
				return syscall.EIO
			}
			return nil
		})
		r.create("s2")
		for range 400 {
			r.append("s2", strings.Repeat("x", 500))
		}
		later(10 * time.Second)
		if n := r.metric("snakream_tier_local_bytes"); n > 64<<10 {
			t.Errorf("%d bytes are local", n)
		}
		r.fs.SetHook(nil)
		r.close()
	})
}

// Without a tier a budget of the local disk means nothing.
func TestBudgetWithoutATier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.LocalDiskBudget = 64 << 10
		r := newRig(t, o)
		r.create("s")
		r.fill([]string{"s"}, 20)
		later(5 * time.Second)
		r.append("s", "more")
		r.close()
	})
}

// An older copy of a data directory does not take the prefix: it would delete what is
// newer. Nor does a directory go on with an older copy of its store.
func TestOlderCopiesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		r := newRig(t, tiered(1, store))
		r.create("s")
		r.append("s", "old ")
		later(5 * time.Second)
		r.close()
		copied, earlier := r.fs.Clone(), store.Clone()
		r.open()
		all := r.fill([]string{"s"}, 3)
		later(5 * time.Second)
		r.close()
		before := store.Bytes(tiering.MirrorKey)
		older := &rig{TB: t, fs: copied, opts: r.opts}
		if _, err := engine.Open("data", older.options()); !errors.Is(err, mirror.ErrTaken) {
			t.Errorf("an older directory: %v", err)
		}
		if !bytes.Equal(before, store.Bytes(tiering.MirrorKey)) {
			t.Error("the mirror has changed")
		}
		o := r.options()
		o.Tier = earlier
		if _, err := engine.Open("data", o); !errors.Is(err, tiering.ErrConfig) {
			t.Errorf("an older store: %v", err)
		}
		r.open()
		r.expect("s", all["s"])
		r.close()
	})
}

// What a flush is writing is in the log alone until it is done, however long that takes.
func TestExposureDuringAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := distantStore()
		r := newRig(t, tiered(2, store))
		r.create("s")
		later(time.Minute)
		slow := make(chan struct{})
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Datasync && strings.HasSuffix(op.Path, ".seg") {
				<-slow
			}
			return nil
		})
		r.append("s", "exposed")
		for range 20 {
			later(time.Second)
			if s, _ := r.TierStatus(); s.ExposedBytes < int64(len("exposed")) || s.ExposedSeconds == 0 {
				t.Errorf("%+v", s)
				break
			}
		}
		close(slow)
		later(time.Minute)
		if s, _ := r.TierStatus(); s.ExposedBytes != 0 || s.ExposedSeconds != 0 || s.PendingSegments != 0 {
			t.Errorf("%+v", s)
		}
		r.close()
	})
}

// What is exposed is known while the store is away, from the start on.
func TestExposureWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := distantStore()
		r := newRig(t, tiered(1, store))
		r.create("s")
		later(5 * time.Second)
		away.Store(true)
		r.reopen()
		r.append("s", "exposed")
		later(time.Hour)
		if s, _ := r.TierStatus(); s.Connected || s.ExposedBytes == 0 || s.ExposedSeconds < 3590 {
			t.Errorf("%+v", s)
		}
		away.Store(false)
		later(time.Minute)
		if s, _ := r.TierStatus(); !s.Connected || s.ExposedBytes != 0 || s.ExposedSeconds != 0 {
			t.Errorf("%+v", s)
		}
		r.close()
	})
}

// More snapshots than can be put don't keep segments from the store.
func TestSegmentsDoNotWaitForSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		store.Before = func(op, _ string) error {
			if op == "put" {
				<-time.After(2 * time.Second)
			}
			return nil
		}
		r := newRig(t, tiered(1, store))
		for i := range 1500 {
			name := fmt.Sprint("s", i)
			r.create(name)
			r.publish(name, 0, name)
			<-time.After(200 * time.Millisecond)
		}
		if n := len(keys(t, store, "segments/")); n < 100 {
			t.Errorf("%d segments in the store", n)
		}
		r.close()
		later(10 * time.Second)
	})
}

// Forks between shards all the time don't keep the mirror from getting on, though each
// flush has some whose source's shard has yet to flush what says so.
func TestTierUnderForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiered(3, tiertest.NewMemory()))
		names := streamNames(12)
		for _, n := range names {
			r.create(n)
			r.append(n, "some bytes")
		}
		worst := 0.0
		for i := range 3000 {
			r.fork(fmt.Sprint("f", i), names[i%len(names)], 10)
			<-time.After(10 * time.Millisecond)
			s, _ := r.TierStatus()
			worst = max(worst, s.ExposedSeconds)
		}
		t.Logf("exposed for %.1f s at most", worst)
		if worst > 10 {
			t.Errorf("data was exposed for %v seconds", worst)
		}
		r.close()
	})
}

// Whatever finds no space for a while, nothing is lost, and all goes on when there is some.
func TestTierWithoutSpace(t *testing.T) {
	seed := seedOf(t)
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			store := tiertest.NewMemory()
			o := tiered(2, store)
			o.LocalDiskBudget = 64 << 10
			r := newRig(t, o)
			var full atomic.Bool
			dice := make(chan bool, 1)
			dice <- true
			r.fs.SetHook(func(op vfstest.Op) error {
				if !full.Load() || strings.Contains(op.Path, "/wal/") {
					return nil
				}
				<-dice
				no := rng.IntN(2) == 0
				dice <- true
				if no && (op.Kind == vfstest.Create || op.Kind == vfstest.Allocate) {
					return fmt.Errorf("%w (%w)", vfs.ErrNoSpace, syscall.ENOSPC)
				}
				return nil
			})
			names, body := streamNames(5), strings.Repeat("x", 200)
			for _, n := range names {
				r.create(n)
			}
			all := r.fill(names, 3)
			later(3 * time.Second)
			for j := range 6 {
				full.Store(j%2 == 0)
				for range 60 {
					a := r.try(names[j%5], appendEvent(body))
					if a.Code == core.Appended {
						all[names[j%5]] += body
					}
				}
				later(20 * time.Second)
			}
			full.Store(false)
			later(2 * time.Minute)
			if r.failures() > 0 {
				t.Fatal(r.Err())
			}
			for n, want := range all {
				r.expect(n, want)
			}
			if s, _ := r.TierStatus(); s.ExposedBytes != 0 {
				t.Errorf("%+v", s)
			}
			r.close()
			back, _ := r.restored(store.Clone())
			for n, want := range all {
				back.expect(n, want)
			}
			back.close()
		})
	}
}

// An object that is missing does not keep what is deleted elsewhere from being erased.
func TestErasurePastAMissingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tiertest.NewMemory()
		o := tiered(1, store)
		o.LocalDiskBudget, o.EraseWithin = 1<<20, time.Minute
		o.EvictAbove(1)
		r := newRig(t, o)
		for _, n := range []string{"a", "kept", "b", "kept2"} {
			r.create(n)
		}
		r.append("a", "a marker in a")
		r.append("kept", "a little")
		later(10 * time.Second)
		r.append("b", "a marker in b")
		r.append("kept2", "a little")
		later(10 * time.Second)
		for _, key := range keys(t, store, "segments/") {
			if bytes.Contains(store.Bytes(key), []byte("a marker in a")) {
				store.Remove(key)
			}
		}
		r.reopen()
		r.remove("a")
		later(2 * time.Second)
		r.remove("b")
		later(30 * time.Minute)
		if holds(t, store, "a marker in b") {
			t.Error("the marker is still in the store")
		}
		r.close()
	})
}
