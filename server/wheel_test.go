package server

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Timers fire in their tick, however far away, and not when they were disarmed.
func TestWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		w := newWheel()
		defer w.stop()
		begin := time.Now()
		type entry struct {
			t     Timer
			after time.Duration
			fired int
			late  time.Duration
		}
		entries := make([]*entry, 1000)
		arm := func(e *entry) {
			e.after = time.Since(begin) + time.Duration(rnd.Int64N(int64(5*time.Minute)))
			w.after(w.now.Load()+ticks(e.after-time.Since(begin)), &e.t)
		}
		for i := range entries {
			e := &entry{}
			e.t.f = func() {
				e.fired++
				e.late = time.Since(begin) - e.after
			}
			entries[i] = e
			arm(e)
		}
		time.Sleep(10 * time.Second) // of the bubble's clock
		disarmed := 0
		for i, e := range entries {
			switch {
			case i%3 == 0 && w.disarm(&e.t):
				disarmed++
				e.fired++ // as it should have been
			case i%3 == 1 && e.fired == 0:
				arm(e)
			}
		}
		time.Sleep(6 * time.Minute)
		for i, e := range entries {
			if e.fired != 1 || e.late < 0 || e.late > 3*wheelTick {
				t.Errorf("seed %d, timer %d: fired %d times, %v late", seed, i, e.fired, e.late)
			}
			if w.disarm(&e.t) {
				t.Errorf("seed %d, timer %d is still armed", seed, i)
			}
		}
		if disarmed == 0 {
			t.Error("none was disarmed")
		}
	})
}

// A timer that arms itself again fires once a period.
func TestWheelPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWheel()
		n := 0
		var tick Timer
		tick.f = func() {
			n++
			w.after(w.now.Load()+10, &tick)
		}
		w.after(w.now.Load()+10, &tick)
		time.Sleep(time.Minute + wheelTick/2)
		w.stop()
		if n != 60 {
			t.Errorf("%d times", n)
		}
	})
}

func BenchmarkWheel(b *testing.B) {
	w := newWheel()
	defer w.stop()
	t := Timer{f: func() {}}
	b.ReportAllocs()
	for b.Loop() {
		w.after(w.now.Load()+100, &t)
		w.disarm(&t)
	}
}
