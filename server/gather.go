package server

import (
	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/internal/uring"
)

// maxGathered is how many answers go out by one system call.
const maxGathered = 64

// Gather collects the answers that one turn makes, and sends them together: half of what
// an append costs is the system call of its answer. It belongs to the turn. Where the kernel
// does not allow that, answers go out one by one.
type Gather struct {
	t    *Transport
	ring *uring.Ring // nil: one by one
	list []gathered
}

// gathered is a whole answer that waits in a Gather. Until it is sent the connection is in
// stFinishing with gathered set, so that nothing else is written to it.
type gathered struct {
	x   *Exchange
	out *buffer
}

// NewGather returns an empty one.
func (s *Transport) NewGather() *Gather {
	g := &Gather{t: s}
	if s.cfg.NoRing {
		return g
	}
	ring, err := uring.New(maxGathered)
	if err != nil {
		s.cfg.Logger.Info("answers are sent one by one", "reason", err)
		return g
	}
	g.ring = ring
	return g
}

// ReplyIn is Reply, except that the answer may wait in g until g.Flush.
func (x *Exchange) ReplyIn(g *Gather, status int, fields, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case !x.answerable():
	case g.ring == nil || len(body) > maxJoin || len(x.rest) > 0: // what comes first may be a 100 Continue
		x.answer(status, fields, body, int64(len(body)))
	default:
		g.list = append(g.list, gathered{x, x.join(status, fields, body, int64(len(body)))})
		x.gathered = true
		x.enter(stFinishing)
	}
}

// Flush sends what has been gathered.
func (g *Gather) Flush() {
	for list := g.list; len(list) > 0; {
		n := min(len(list), maxGathered)
		if n < 3 || g.ring == nil {
			g.sendEach(list[:n])
		} else {
			g.send(list[:n])
		}
		list = list[n:]
	}
	clear(g.list)
	g.list = g.list[:0]
}

// sendEach sends answers by a system call each.
func (g *Gather) sendEach(list []gathered) {
	for _, a := range list {
		a.x.mu.Lock()
		if a.x.gathered {
			n, err := a.x.push(a.out.b, nil, nil)
			a.x.sent(a.out.b, n, err)
		}
		a.x.mu.Unlock()
		putBuffer(a.out)
	}
}

// send sends answers by one system call. Meanwhile it holds the mutex of each connection,
// so that none of the descriptors is closed: nobody else holds two of them.
func (g *Gather) send(list []gathered) {
	for _, a := range list {
		a.x.mu.Lock()
		if a.x.gathered {
			g.ring.Add(int(a.x.fd), a.out.b)
		}
	}
	results, err := g.ring.Send()
	if err != nil {
		g.t.cfg.Logger.Warn("answers are sent one by one from now on", "reason", err)
	}
	for _, a := range list {
		if a.x.gathered {
			n := results[0]
			results = results[1:]
			a.x.settled(a.out.b, n)
		}
		a.x.mu.Unlock()
		putBuffer(a.out)
	}
	if err != nil {
		g.ring = nil // its memory is not given back: the kernel may still hold it
	}
}

// settled is sent for a result of the ring. x.mu is held.
func (x *Exchange) settled(b []byte, n int) {
	switch e := unix.Errno(-n); {
	case n >= 0:
		x.t.bytesOut.Add(uint64(n))
		x.sent(b, n, nil)
	case e == unix.EAGAIN || e == unix.EINTR:
		x.sent(b, 0, nil)
	default:
		x.sent(b, 0, e)
	}
}

// sent goes on with an answer of which the socket has taken n bytes. x.mu is held.
func (x *Exchange) sent(b []byte, n int, err error) {
	x.gathered = false
	switch {
	case err != nil:
		x.cut()
	case n < len(b):
		x.rest = append(x.rest, b[n:]...)
		x.block(unix.EPOLLOUT)
	default:
		x.conclude()
	}
}
