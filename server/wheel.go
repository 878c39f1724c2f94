package server

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	wheelTick  = 100 * time.Millisecond
	wheelSlots = 1024 // a turn of the wheel takes 102.4 s; longer timers are passed over until their turn
)

// Timer is an entry of the transport's timer wheel. Its zero value, with f set, is ready for Transport.After.
// f runs on the wheel's goroutine and must not block. A Timer must not be copied while it is armed.
type Timer struct {
	f func()

	// under the wheel's mutex
	prev, next *Timer // nil unless armed
	due        int64  // tick
}

// wheel is a timing wheel: timers sit in a ring of lists by the tick when they are
// due, so that arming and disarming cost a few pointer moves however many there are.
type wheel struct {
	now   atomic.Int64 // the current tick
	start time.Time
	quit  chan struct{} // closed by stop
	done  chan struct{} // closed when run has returned

	mu    sync.Mutex
	slots [wheelSlots]Timer // heads of the lists
}

// newWheel returns a wheel whose goroutine runs until stop.
func newWheel() *wheel {
	w := &wheel{start: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	for i := range w.slots {
		w.slots[i].prev, w.slots[i].next = &w.slots[i], &w.slots[i]
	}
	go w.run()
	return w
}

// ticks returns d in ticks, rounded up and one more, since the current tick has begun already.
func ticks(d time.Duration) int64 { return int64((d+wheelTick-1)/wheelTick) + 1 }

// after arms t to fire in tick due, which must be in the future, wherever it was armed for before.
func (w *wheel) after(due int64, t *Timer) {
	w.mu.Lock()
	w.unlink(t)
	t.due = due
	head := &w.slots[uint64(due)%wheelSlots]
	t.prev, t.next = head.prev, head
	t.prev.next, head.prev = t, t
	w.mu.Unlock()
}

// disarm takes t off the wheel and reports whether it was there.
func (w *wheel) disarm(t *Timer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unlink(t)
}

func (w *wheel) unlink(t *Timer) bool {
	if t.next == nil {
		return false
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
	return true
}

func (w *wheel) run() {
	defer close(w.done)
	clock := time.NewTicker(wheelTick)
	defer clock.Stop()
	var due []*Timer
	for {
		select {
		case <-w.quit:
			return
		case <-clock.C:
		}
		for target := int64(time.Since(w.start) / wheelTick); w.now.Load() < target; {
			due = w.collect(due[:0], w.now.Add(1))
			for i, t := range due {
				due[i] = nil
				t.f()
			}
		}
	}
}

// collect takes the timers that are due in tick now off the wheel.
func (w *wheel) collect(due []*Timer, now int64) []*Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	head := &w.slots[uint64(now)%wheelSlots]
	for t := head.next; t != head; {
		next := t.next
		if t.due <= now {
			w.unlink(t)
			due = append(due, t)
		}
		t = next
	}
	return due
}

// stop ends the wheel's goroutine and waits for it. Armed timers don't fire any more. It must not be called from a timer.
func (w *wheel) stop() {
	close(w.quit)
	<-w.done
}

// After arms t to run its f once d has passed, rounded up to the next tick of
// 100 ms, instead of when it was armed for before. Any goroutine may call it.
func (s *Transport) After(d time.Duration, t *Timer) {
	s.wheel.after(s.wheel.now.Load()+ticks(d), t)
}

// Stop disarms t and reports whether it was armed. If it was not, f may be running.
func (s *Transport) Stop(t *Timer) bool { return s.wheel.disarm(t) }
