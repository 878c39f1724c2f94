package server

import (
	"net/http"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

const (
	lingerTimeout = 2 * time.Second // how long input is dropped after the last answer
	reclaimTicks  = 20              // ticks without input after which an idle connection gives its buffers back
)

// cut ends the connection at once. netpoll notices the shutdown and calls onClose. (Its Close would do the
// same, but when it meets an OnRequest that is running on the poller, the poller waits for itself for ever.)
// x.mu is held.
func (x *Exchange) cut() {
	if x.dead || x.st == stClosed {
		return
	}
	x.dead = true
	x.wakeUp()
	if x.orphan {
		x.close()
		return
	}
	_ = unix.Shutdown(int(x.fd), unix.SHUT_RDWR) // ENOTCONN: the peer has reset it, and netpoll knows
}

// linger ends the connection after the last answer: our side of it now, the rest when the peer has closed
// its own or after lingerTimeout. If input were left unread in a closed socket, the peer would get a
// reset, which may overtake the answer. x.mu is held.
func (x *Exchange) linger() {
	if x.dead || x.st == stClosed {
		return
	}
	x.dropBody()
	x.enter(stLinger)
	x.pend, x.rest = nil, nil
	if x.orphan {
		x.cut()
		return
	}
	_ = unix.Shutdown(int(x.fd), unix.SHUT_WR)
	x.expire(lingerTimeout)
	x.unpause()
}

// onClose is called by netpoll, on a goroutine of its own, before it closes the
// descriptor. A peer that has only ended its side may wait for an answer that is under
// way: then a duplicate of the descriptor is kept for it.
func (x *Exchange) onClose(netpoll.Connection) error {
	x.mu.Lock()
	answering := x.loop && !x.raw
	switch x.st {
	case stHandling, stFinishing, stWriting:
		answering = true
	case stParked, stStreaming, stLinger:
		answering = false
	}
	blocked := x.wid != 0
	x.t.wpoll.drop(x)
	if answering && !x.dead {
		if fd, err := unix.FcntlInt(uintptr(x.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			x.fd, x.orphan, x.np = int32(fd), true, nil
			x.endContext()
			if blocked && (len(x.rest) > 0 || x.waiting) {
				x.block(unix.EPOLLOUT)
			}
			x.mu.Unlock()
			return nil
		}
	}
	end := x.closed()
	x.mu.Unlock()
	if end != nil {
		end()
	}
	return nil
}

// close closes the descriptor of an orphan. x.mu is held.
func (x *Exchange) close() {
	x.t.wpoll.drop(x)
	fd := int(x.fd)
	x.closed() // an orphan is neither parked nor streaming: there is nobody to tell
	_ = unix.Close(fd)
}

// closed ends the exchange, whose descriptor is closed next. It returns what is to be
// called without x.mu, which is held.
func (x *Exchange) closed() (end func()) {
	if x.st == stParked || x.st == stStreaming {
		end = x.onEnd
	}
	x.dead, x.raw = true, false
	x.endContext()
	x.dropBody()
	x.enter(stClosed)
	x.fd = -1
	x.wakeUp()
	x.keep = nil // not for the pool: whoever has the request may still read it
	x.pend, x.rest, x.onEnd, x.onWritable = nil, nil, nil, nil
	x.t.wheel.disarm(&x.timer)
	x.t.unregister(x)
	return end
}

// onTimer is called on the wheel when the time that x asked for has come.
func (x *Exchange) onTimer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.st == stClosed {
		return
	}
	now := x.t.wheel.now.Load()
	x.due = 0
	if x.held && x.lastRead+reclaimTicks <= now {
		x.reclaimSoon()
		if x.st == stIdle && !x.loop {
			x.dropKeep()
		}
	}
	if x.deadline != 0 && x.deadline <= now && !x.dead {
		x.deadline = 0
		x.overdue()
	}
	next := x.deadline
	if x.held && (next == 0 || next > x.lastRead+reclaimTicks) {
		next = x.lastRead + reclaimTicks
	}
	if x.st != stClosed && next != 0 && x.due == 0 {
		x.due = max(next, now+1)
		x.t.wheel.after(x.due, &x.timer)
	}
}

// overdue ends a state that has lasted too long. x.mu is held.
func (x *Exchange) overdue() {
	switch {
	case x.st == stLinger:
		x.cut()
	case x.waiting:
		x.timedOut = true
		x.wakeUp()
	case x.loop:
		x.deadline = x.t.wheel.now.Load() + 1 // look again when that goroutine is done
	case x.st == stIdle && len(x.pend) > 0:
		x.refuse(http.StatusRequestTimeout, codeRequestTimeout, errHeadTimeout.Detail)
	case x.st == stBody:
		x.refuse(http.StatusRequestTimeout, codeRequestTimeout, errBodyTimeout.Detail)
	case x.st == stFinishing || x.st == stStreaming:
		x.t.slow.Add(1)
		x.cut()
	default:
		x.cut()
	}
}

// reclaimSoon has netpoll's buffer, if it holds one, given back at the end of the
// poller's round: inside OnRequest netpoll keeps it. x.mu is held.
func (x *Exchange) reclaimSoon() {
	x.held = false
	if !x.queued && !x.orphan && !x.dead {
		x.queued = true
		x.t.reclaimLater(x)
	}
}

// reclaim gives netpoll's buffer back.
func (x *Exchange) reclaim() {
	if !x.reader.TryLock() {
		x.mu.Lock()
		x.queued = false // it is being used, and will be held again
		x.mu.Unlock()
		return
	}
	defer x.reader.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queued = false
	// While x.mu is held, and x isn't closed, netpoll can't take the connection apart.
	if x.st == stClosed || x.orphan || x.np.Reader().Len() > 0 {
		return
	}
	if err := x.np.Reader().Release(); err != nil {
		x.t.cfg.Logger.Error("release netpoll's buffer", "error", err)
	}
}

func (x *Exchange) dropKeep() {
	if x.keep != nil {
		putBuffer(x.keep)
		x.keep = nil
	}
}
