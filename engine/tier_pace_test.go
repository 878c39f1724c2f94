package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// A snapshot that can't be put keeps others from the store for no longer than it takes to
// see that they can, and is itself tried less and less often.
func TestAnObjectThatCannotBePut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var poisoned atomic.Value
		var tries atomic.Int64
		store := tiertest.NewMemory()
		store.Before = func(op, key string) error {
			if op != "put" || !strings.HasPrefix(key, "blobs/") {
				return nil
			}
			poisoned.CompareAndSwap(nil, key)
			if poisoned.Load() != key {
				return nil
			}
			tries.Add(1)
			return errors.New("500 InternalError")
		}
		r := newRig(t, tiered(1, store))
		r.create("bad")
		r.publish("bad", 0, "poison")
		later(10 * time.Minute)
		if n := tries.Load(); n < 20 || n > 120 {
			t.Errorf("it was tried %d times in 10 minutes", n)
		}
		worst := time.Duration(0)
		for i := range 100 {
			name := fmt.Sprint("s", i)
			r.create(name)
			r.publish(name, 0, name)
			begin := time.Now()
			for len(keys(t, store, "blobs/")) <= i && time.Since(begin) < time.Minute {
				<-time.After(100 * time.Millisecond)
			}
			worst = max(worst, time.Since(begin))
		}
		t.Logf("others waited for %v at most", worst)
		if worst > 2*time.Second {
			t.Errorf("another snapshot waited for %v", worst)
		}
		r.close()
	})
}

// A store that denies deletes gets what is new as ever, is not asked without end, and
// when it does them again nothing is left.
func TestDeletesThatAreDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denies atomic.Bool
		var deletes atomic.Int64
		store := tiertest.NewMemory()
		store.Before = func(op, key string) error {
			if op == "delete" && denies.Load() {
				deletes.Add(1)
				return fmt.Errorf("%w: 403", tiering.ErrDenied)
			}
			return nil
		}
		denies.Store(true)
		o := tiered(1, store)
		o.GCGrace = time.Second
		r := newRig(t, o)
		worst := 0.0
		for i := range 600 {
			name := fmt.Sprint("s", i)
			r.create(name)
			r.append(name, strings.Repeat("x", 500))
			r.publish(name, 0, name)
			if i >= 5 {
				r.remove(fmt.Sprint("s", i-5))
			}
			later(time.Second)
			s, _ := r.TierStatus()
			worst = max(worst, s.ExposedSeconds)
		}
		t.Logf("%d deletes; exposed for %.1f s", deletes.Load(), worst)
		if n := deletes.Load(); n < 20 || n > 120 {
			t.Errorf("deletes were tried %d times in 10 minutes", n)
		}
		if worst > 5 {
			t.Errorf("data was exposed for %v seconds", worst)
		}
		denies.Store(false)
		later(10 * time.Minute)
		if s, _ := r.TierStatus(); s.DeadObjects > 20 {
			t.Errorf("%d objects are still dead", s.DeadObjects)
		}
		r.close()
	})
}
