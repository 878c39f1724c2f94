package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/enginetest"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// seedOf returns the seed of a random test: of the environment, or a new one.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SNAKREAM_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SNAKREAM_SEED=%d", seed)
	return seed
}

// tiny makes everything happen all the time: rotations, flushes, merges.
func tiny(shards int) engine.Options {
	return engine.Options{
		Shards: shards, WALFileBytes: 64 << 10, WALMaxBytes: 128 << 10, MemtableBytes: 12 << 10, SegmentMaxBytes: 64 << 10,
		MaxBodyBytes: 4 << 10, MinFreeDisk: 1,
	}
}

// crashes says how many crashes a test goes through, given how many of them are
// meant for a run without the race detector.
func crashes(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("SNAKREAM_CRASHES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if invariants.Enabled || testing.Short() {
		return n / 40
	}
	return n
}

// Random operations beside a map of byte slices; the power is cut at random moments
// of the file system's life, and whatever was acknowledged has to be there, once.
func TestCrashes(t *testing.T) {
	large := tiny(1)
	large.WALFileBytes, large.WALMaxBytes, large.MemtableBytes, large.MaxBodyBytes = 512<<10, 1<<20, 256<<10, 200<<10
	hasty := tiny(2)
	hasty.EraseWithin = 10 * time.Second // of the World's time: what is deleted has to go at once
	hasty.MemtableBytes = 100 << 10
	tiered1, tiered3 := tiny(1), tiny(3)
	tiered1.EvictAbove(16 << 10)
	tiered3.EvictAbove(1)
	for _, c := range []struct {
		name    string
		cfg     enginetest.Config
		crashes int
	}{
		{"shards=1", enginetest.Config{Options: tiny(1), Streams: 10, MaxBody: 1500, Forks: true, Snapshots: true, Buckets: 2, CrashEvery: 3}, 5000},
		{"shards=3", enginetest.Config{Options: tiny(3), Streams: 14, MaxBody: 1500, Forks: true, Snapshots: true, Buckets: 2, CrashEvery: 3}, 4500},
		{"erase=soon", enginetest.Config{Options: hasty, Streams: 10, MaxBody: 1500, Forks: true, Snapshots: true, CrashEvery: 3}, 1500},
		{"tier", enginetest.Config{Options: tiered1, Streams: 10, MaxBody: 1500, Forks: true, Snapshots: true, Buckets: 2, Tier: true, CrashEvery: 30}, 600},
		{"tier,shards=3", enginetest.Config{Options: tiered3, Streams: 14, MaxBody: 1500, Forks: true, Snapshots: true, Buckets: 2, Tier: true, CrashEvery: 30}, 600},
		{"bodies=large", enginetest.Config{Options: large, Streams: 6, MaxBody: 150 << 10, Forks: true, Snapshots: true, CrashEvery: 3}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) { crash(t, c.cfg, crashes(t, c.crashes)) })
	}
}

// crash runs a world until it has been cut off n times.
func crash(t *testing.T, cfg enginetest.Config, n int) {
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &checker{t: t, moments: make(chan *enginetest.Moment), done: make(chan struct{})}
	for i := range 2 {
		c.wg.Go(func() { c.run(rand.New(rand.NewPCG(seed, uint64(i)+2))) })
	}
	cfg.Crash = c.take
	w, err := enginetest.New(cfg, vfstest.New(), rng)
	for steps := 0; err == nil && !t.Failed() && int(c.count.Load()) < n; steps++ {
		if err = w.Step(); err != nil {
			break
		}
		switch rng.IntN(300) {
		case 0:
			w, err = w.Restart()
		case 1, 2:
			w, err = w.Crash()
			c.count.Add(1)
		case 3, 4, 5:
			err = w.Check()
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Error(err)
	}
	close(c.done)
	c.wg.Wait()
	t.Logf("%d crashes, %d of them in a recovery", c.count.Load(), c.again.Load())
}

// checker recovers moments.
type checker struct {
	t            *testing.T
	moments      chan *enginetest.Moment
	done         chan struct{}
	wg           sync.WaitGroup
	count, again atomic.Int64
}

// take gives a moment to whoever has time, and holds up the engine until then.
func (c *checker) take(m *enginetest.Moment) {
	select {
	case c.moments <- m:
	case <-c.done:
	}
}

func (c *checker) run(rng *rand.Rand) {
	for {
		select {
		case m := <-c.moments:
			if c.t.Failed() {
				continue // only let the engine go on
			}
			if err := c.check(m, rng); err != nil {
				c.t.Errorf("crash %d: %v", c.count.Load(), err)
			}
		case <-c.done:
			return
		}
	}
}

// check recovers a moment, sometimes with a crash on the way, and lets the engine
// do some more, sometimes until another crash.
func (c *checker) check(m *enginetest.Moment, rng *rand.Rand) error {
	c.count.Add(1)
	if rng.IntN(3) == 0 {
		if err := m.CheckRestore(rng); err != nil {
			return err
		}
	}
	for m.Depth < 3 && rng.IntN(4) == 0 {
		next, err := m.Recrash(rng, 1+rng.IntN(60))
		if err != nil {
			return fmt.Errorf("recovery that is to be cut off: %w", err)
		}
		if next == nil {
			break
		}
		m = next
		c.count.Add(1)
		c.again.Add(1)
	}
	var later *enginetest.Moment
	var mu sync.Mutex
	w, err := m.Recover(rng, func(m *enginetest.Moment) {
		mu.Lock()
		defer mu.Unlock()
		later = m
	})
	if err != nil {
		return err
	}
	for range 2 + rng.IntN(6) {
		if err := w.Step(); err != nil {
			break
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if later == nil || rng.IntN(4) > 0 {
		return nil
	}
	c.count.Add(1)
	if w, err = later.Recover(rng, nil); err != nil {
		return fmt.Errorf("second crash: %w", err)
	}
	return w.Close()
}
