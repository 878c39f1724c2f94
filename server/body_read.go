package server

import (
	"errors"
	"io"
	"net/http"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

// maxRead is how much one system call reads or writes while the connection's mutex is held.
const maxRead = 256 << 10

var (
	errOverloaded = &http1.Error{
		Status: http.StatusServiceUnavailable, Code: codeOverloaded,
		Detail: "Too many bytes of request bodies are being received. Try again later.",
	}
	errBodyTimeout = &http1.Error{
		Status: http.StatusRequestTimeout, Code: codeRequestTimeout,
		Detail: "The body of the request did not arrive in time.",
	}
	errHeadTimeout = &http1.Error{
		Status: http.StatusRequestTimeout, Code: codeRequestTimeout,
		Detail: "The head of the request did not arrive in time.",
	}
)

// collect adds in to the body being received, and has the request served when it is
// whole. x.loop is set. It returns the input that is left and true if the request has
// been answered; else it clears x.loop, or has passed it on to a goroutine.
func (x *Exchange) collect(in []byte, inline bool) (rest []byte, more bool) {
	a := x.act
	a.inline = inline
	for {
		used, err := a.collect(in)
		in = in[used:]
		switch {
		case err != nil:
			x.abandon(a, err)
			return nil, false
		case !a.account(x.t):
			x.abandon(a, errOverloaded)
			return nil, false
		case a.complete() && inline && a.large():
			x.mu.Lock()
			x.putBy(in)
			x.mu.Unlock()
			go x.finishBody(a)
			return nil, false
		case a.complete():
			return in, x.serveCollected(a, in)
		}
		x.mu.Lock()
		if x.dead || x.st != stBody || x.orphan && len(x.pend) == 0 {
			x.mu.Unlock()
			x.abandon(a, ErrGone)
			return nil, false
		}
		// Once the peer has ended its side, all that it sent is here and will be read in
		// any case; else a large body is left in the socket until a goroutine takes it.
		if inline && a.large() && !polled(x.fd, unix.POLLRDHUP) {
			x.enter(stReading)
			if x.pause(); x.paused {
				x.raw = true
			}
			x.mu.Unlock()
			go x.finishBody(a)
			return nil, false
		}
		if len(x.pend) == 0 {
			x.loop = false
			x.unpause()
			x.mu.Unlock()
			return nil, false
		}
		in, x.pend = x.pend, nil // it came while this goroutine was not the poller
		x.mu.Unlock()
	}
}

// account takes the growth of a collected body into the sum of bytes in flight.
func (a *active) account(t *Transport) bool {
	more := int64(cap(a.collected)) - max(a.reserved, InlineBody)
	return more <= 0 || a.reserve(t, more)
}

func (x *Exchange) serveCollected(a *active, rest []byte) bool {
	if a.streamed {
		a.data = a.collected
	} else {
		a.body = a.collected
	}
	more, taken := x.serve(a, rest)
	if !taken {
		a.release(x.t)
	}
	return more
}

// dropBody gives up a body that waits for the poller. x.mu is held.
func (x *Exchange) dropBody() {
	if x.st == stBody && !x.loop && x.act != nil {
		x.act.release(x.t)
		x.act = nil
	}
}

// finishBody receives the rest of the body and has the request served, on a
// goroutine of its own. x.loop is set and stays with this goroutine.
func (x *Exchange) finishBody(a *active) {
	defer x.guard()
	a.inline = false
	if !a.streamed {
		if err := x.readWhole(a); err != nil {
			x.abandon(a, err)
			return
		}
	}
	if x.serveCollected(a, nil) {
		x.advance(nil, false)
	}
}

func (x *Exchange) readWhole(a *active) error {
	for !a.complete() {
		if len(a.collected) == cap(a.collected) {
			a.collected = slices.Grow(a.collected, cap(a.collected))
			a.owned = true
			if !a.account(x.t) {
				return errOverloaded
			}
		}
		n, err := x.readBody(a, a.collected[len(a.collected):cap(a.collected)])
		a.collected = a.collected[:len(a.collected)+n]
		if err != nil && err != io.EOF {
			return err
		}
	}
	x.bodyDone(a)
	return nil
}

// ReadBody reads the next piece of the body into p, which is not empty, also if it is here as
// Body already. It returns io.EOF when there is no more, and ErrGone when the body was cut short
// or came too slowly; then the request needs no answer. It may block only if StreamBody was
// called and Serve is not inline. It is called by Serve or the function given to Go.
func (x *Exchange) ReadBody(p []byte) (int, error) {
	a := x.act
	if !a.streamed {
		a.streamed, a.data = true, a.body
	}
	n, err := x.readBody(a, p)
	switch {
	case err == io.EOF:
		x.bodyDone(a)
	case err != nil:
		x.mu.Lock()
		if e, ok := errors.AsType[*http1.Error](err); ok {
			x.refuse(e.Status, e.Code, e.Detail)
		} else {
			x.cut()
		}
		x.mu.Unlock()
		return n, ErrGone
	}
	return n, err
}

// readBody blocks until it has read at least one byte of the body into p, which is not
// empty. Its errors are io.EOF, ErrGone and *http1.Error.
func (x *Exchange) readBody(a *active, p []byte) (int, error) {
	for {
		n, err := a.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		if !a.req.Chunked {
			n, err = x.readSocket(p[:min(int64(len(p)), a.left)])
			a.left -= int64(n)
			return n, err
		}
		if a.scratch == nil {
			a.scratch = getBuffer()
			a.scratch.b = slices.Grow(a.scratch.b, maxPooled/2)
		}
		b := a.scratch.b[:cap(a.scratch.b)]
		if n, err = x.readSocket(b); err != nil {
			return 0, err
		}
		a.input = b[:n]
	}
}

// readSocket blocks until it has read something. Only while x.raw, when the poller leaves the socket alone.
func (x *Exchange) readSocket(p []byte) (int, error) {
	p = p[:min(len(p), maxRead)]
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.dead || !x.raw {
			return 0, ErrGone
		}
		n, err := unix.Read(int(x.fd), p)
		switch {
		case n > 0:
			x.t.bytesIn.Add(uint64(n))
			return n, nil
		case err == unix.EAGAIN:
			if err := x.wait(unix.EPOLLIN|unix.EPOLLRDHUP, x.t.cfg.BodyTimeout); err != nil {
				if x.timedOut && !x.dead {
					return 0, errBodyTimeout
				}
				return 0, err
			}
		case err != unix.EINTR: // or the end: the body is cut short
			return 0, ErrGone
		}
	}
}

// bodyDone lets the poller read again. What was read behind the body comes before all that it will read.
func (x *Exchange) bodyDone(a *active) {
	if a.collected != nil && !a.streamed && len(a.collected) > InlineBody {
		a.owned = true
	}
	x.mu.Lock()
	x.putBy(a.input)
	a.input = nil
	x.unpause()
	x.mu.Unlock()
}
