package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/vfs/vfstest"
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
				r.slowFlushes(100 * time.Millisecond)
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
