package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// maxPend is how many bytes of requests may wait behind one that is not answered yet before the poller is paused.
const maxPend = 64 << 10

// exchangeContext carries the connection through netpoll's callbacks.
type exchangeContext struct {
	context.Context
	x *Exchange
}

// onRequest takes everything that the poller has read, on the poller: netpoll calls
// it again at once as long as anything is left.
func onRequest(ctx context.Context, np netpoll.Connection) error {
	x := ctx.(exchangeContext).x
	x.reader.Lock()
	defer x.reader.Unlock()
	r := np.Reader()
	n := r.Len()
	in, err := r.Peek(n)
	if err != nil {
		return err
	}
	x.receive(in)
	if n > netpollBuffer {
		x.clamp()
	}
	if err := r.Skip(n); err != nil {
		return err
	}
	return r.Release()
}

// receive does with in what the connection's state asks for. On the poller; in is valid until it returns.
func (x *Exchange) receive(in []byte) {
	defer x.guard()
	x.t.bytesIn.Add(uint64(len(in)))
	x.mu.Lock()
	x.touch()
	if x.skip > 0 {
		n := min(x.skip, int64(len(in)))
		x.skip -= n
		in = in[n:]
	}
	switch {
	case x.dead || x.st == stLinger || x.st == stClosed || len(in) == 0:
	case x.raw: // the poller is paused, and yet it reads: octets would be out of order
		x.t.cfg.Logger.Error("a paused connection was read")
		x.cut()
	case x.st == stBody && !x.loop:
		x.loop = true
		x.mu.Unlock()
		if rest, ok := x.collect(in, true); ok {
			x.advance(rest, true)
		}
		return
	case x.st == stIdle && !x.loop:
		if len(x.pend) > 0 {
			x.pend = append(x.pend, in...)
			if !x.worthParsing(in) {
				break
			}
			in, x.pend = x.pend, nil
		}
		x.loop = true
		x.mu.Unlock()
		x.advance(in, true)
		return
	default:
		x.pend = append(x.pend, in...)
		if len(x.pend) > maxPend && !x.paused {
			x.pause()
		}
	}
	x.mu.Unlock()
}

// worthParsing reports whether pend, to which in was added, may have become a whole head. So
// that a head in single bytes is not parsed for each of them: when a line ends, or pend has doubled.
func (x *Exchange) worthParsing(in []byte) bool {
	return slices.Contains(in, '\n') || len(x.pend) >= 2*x.parsed || len(x.pend) > x.t.limits.Head
}

// touch notes that input has come, so that reclaim and the timer know. x.mu is held.
func (x *Exchange) touch() {
	now := x.t.wheel.now.Load()
	x.lastRead, x.held = now, true
	if x.st == stBody {
		x.deadline = now + ticks(x.t.cfg.BodyTimeout)
	}
	if x.due == 0 || x.due > now+reclaimTicks {
		x.due = now + reclaimTicks
		x.t.wheel.after(x.due, &x.timer)
	}
}

// expire sets how long the current state may last. x.mu is held.
func (x *Exchange) expire(d time.Duration) {
	x.deadline = x.t.wheel.now.Load() + ticks(d)
	if x.due == 0 || x.due > x.deadline {
		x.due = x.deadline
		x.t.wheel.after(x.due, &x.timer)
	}
}

// pause makes the poller read no more. On the poller; x.mu is held.
func (x *Exchange) pause() {
	a, err := newArmer(x.np)
	if err == nil {
		err = errors.Join(a.pause(), a.clamp())
	}
	if err != nil {
		x.t.cfg.Logger.Error("pause reading", "error", err)
		x.cut()
		return
	}
	x.paused = true
}

// unpause makes the poller read again if it was paused. x.mu is held.
func (x *Exchange) unpause() {
	if !x.paused {
		return
	}
	x.paused, x.raw = false, false
	if x.orphan || x.dead {
		return
	}
	a, err := newArmer(x.np)
	if err == nil {
		err = a.resume()
	}
	if err != nil {
		if !errors.Is(err, unix.ENOENT) { // that is netpoll's having let go of it: the peer has gone
			x.t.cfg.Logger.Error("resume reading", "error", err)
		}
		x.cut()
	}
}

// clamp takes back netpoll's large buffers after a large read. On the poller.
func (x *Exchange) clamp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.st == stClosed {
		return
	}
	if a, err := newArmer(x.np); err == nil {
		err = a.clamp()
		if err != nil {
			x.t.cfg.Logger.Error("clamp netpoll's buffers", "error", err)
		}
	}
}

// polled reports whether one of events has occurred on fd: POLLIN when there is input,
// POLLRDHUP when the peer has ended its side, so that everything that it sent is here.
func polled(fd int32, events int16) bool {
	p := []unix.PollFd{{Fd: fd, Events: events}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&events != 0
}
