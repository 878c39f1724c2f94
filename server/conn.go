package server

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	"github.com/snakream/snakream/server/http1"
)

// maxRound is how many pipelined requests are handled on the poller before the
// rest goes to a goroutine, so that one connection can't keep the others waiting.
const maxRound = 32

// again handles the requests that waited for an answer. x.loop is set.
func (x *Exchange) again() {
	defer x.guard()
	x.mu.Lock()
	in := x.pend
	x.pend = nil
	x.mu.Unlock()
	x.advance(in, false)
}

// advance handles requests from in until octets are missing or one waits for its
// answer from elsewhere. x.loop is set, so that it is the only one for x, and it
// clears x.loop in the end. Off the poller, in is not used by anyone else.
func (x *Exchange) advance(in []byte, inline bool) {
	a := actives.Get().(*active)
	served := 0
	for more := true; more; {
		if len(in) == 0 {
			in, more = x.settle(nil, served)
			continue
		}
		if inline && served == maxRound {
			x.yield(in)
			break
		}
		n, err := a.req.Parse(in, x.t.limits)
		switch {
		case err == http1.ErrIncomplete:
			in, more = x.settle(in, served)
			continue
		case err != nil:
			more = x.reject(err)
			continue
		}
		served++
		a.head, a.inline = in[:n:n], inline
		in = in[n:]
		n, whole, err := a.present(in)
		switch {
		case err != nil:
			more = x.reject(err)
		case whole:
			var taken bool
			in = in[n:]
			if more, taken = x.serve(a, in); taken {
				a = actives.Get().(*active)
			}
		default:
			in, more = x.await(a, in)
			a = actives.Get().(*active)
		}
	}
	a.release(x.t)
}

// serve gives the request with its whole body to the handler. It returns whether it has been answered; if
// not, it has put rest, the input behind it, by and cleared x.loop, which is set. taken says that a is not the
// caller's any more.
func (x *Exchange) serve(a *active, rest []byte) (more, taken bool) {
	x.begin(a)
	x.t.requests.Add(1)
	x.t.handler.Serve(x)
	return x.served(a, rest)
}

// served does what follows a call of the handler.
func (x *Exchange) served(a *active, rest []byte) (more, taken bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.taken {
		x.act = nil
	}
	if x.st == stHandling && !x.promised && !x.dead {
		x.t.cfg.Logger.Error("a request was not answered", "path", string(a.req.Path)) // a query may hold a secret
		x.refuse(http.StatusInternalServerError, codeInternal, "The request was not answered.")
	}
	if x.st == stIdle && !x.dead {
		return true, x.taken
	}
	x.putBy(rest)
	x.loop = false
	return false, x.taken
}

// begin makes the parsed head in a the current request.
func (x *Exchange) begin(a *active) {
	x.mu.Lock()
	x.act = a
	x.enter(stHandling)
	x.ticket++
	x.ctx, x.cancel = nil, nil
	x.parsed = 0
	x.deadline = 0
	x.promised, x.taken, x.timedOut = false, false, false
	x.head = string(a.req.Method) == "HEAD"
	x.old = a.req.Minor == 0
	x.last = a.req.Close
	x.mu.Unlock()
}

// putBy keeps rest in front of what has arrived since. x.mu is held.
func (x *Exchange) putBy(rest []byte) {
	if len(rest) > 0 && !x.dead && x.st != stLinger {
		x.pend = slices.Concat(rest, x.pend)
	}
}

// yield leaves the rest of many pipelined requests to a goroutine. x.loop stays set.
func (x *Exchange) yield(rest []byte) {
	x.mu.Lock()
	x.putBy(rest)
	x.mu.Unlock()
	go x.again()
}

// settle ends advance, whose input is used up but for rest, part of a head; unless more has arrived, which it returns with true.
func (x *Exchange) settle(rest []byte, served int) (in []byte, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pend) > 0 && x.st == stIdle && !x.dead {
		in = slices.Concat(rest, x.pend)
		x.pend = nil
		return in, true
	}
	x.loop = false
	if x.dead || x.st != stIdle {
		return nil, false
	}
	x.unpause()
	switch {
	case len(rest) == 0:
		x.becomeIdle()
	case x.orphan:
		x.cut() // the rest will never come
	default:
		if x.parsed == 0 {
			x.expire(x.t.cfg.HeadTimeout)
		}
		x.pend = slices.Clone(rest)
		x.parsed = len(rest)
	}
	return nil, false
}

// becomeIdle is called when nothing is under way any more. x.mu is held.
func (x *Exchange) becomeIdle() {
	switch {
	case x.orphan:
		x.cut()
	case x.t.draining.Load() && x.skip == 0:
		x.linger()
	default:
		x.expire(x.t.cfg.IdleTimeout)
	}
}

// await deals with a request whose body is not wholly in in, and disposes of a. It returns as collect does.
func (x *Exchange) await(a *active, in []byte) (rest []byte, more bool) {
	a.own()
	x.begin(a)
	limit, ok := x.t.handler.Head(x)
	if !ok {
		return x.unwanted(a, in)
	}
	var err error
	switch {
	case a.left > limit:
		err = &http1.Error{
			Status: http.StatusRequestEntityTooLarge, Code: http1.CodeBodyTooLarge,
			Detail: fmt.Sprintf("The body is larger than the %d bytes that are accepted.", limit),
		}
	case !a.prepare(x.t, limit):
		err = errOverloaded
	}
	if err != nil {
		x.abandon(a, err)
		return nil, false
	}
	x.mu.Lock()
	if !x.dead {
		x.enter(stBody)
		x.expire(x.t.cfg.BodyTimeout)
		if a.req.Expect && len(in) == 0 {
			x.write([]byte(http1.Continue), nil)
		}
	}
	x.mu.Unlock()
	return x.collect(in, a.inline)
}

// unwanted goes on after the handler has answered in Head: what belongs to the body is dropped.
func (x *Exchange) unwanted(a *active, in []byte) (rest []byte, more bool) {
	x.mu.Lock()
	if !x.last { // else the connection ends anyway
		n := min(a.left, int64(len(in)))
		x.skip = a.left - n
		in = in[n:]
		n = min(x.skip, int64(len(x.pend))) // came meanwhile, if this is not the poller
		x.skip -= n
		x.pend = x.pend[n:]
	}
	x.mu.Unlock()
	more, _ = x.served(a, in)
	a.release(x.t)
	return in, more
}

// abandon gives up the request that is being received. An *http1.Error is answered;
// any other error cuts the connection. x.loop is set, and cleared.
func (x *Exchange) abandon(a *active, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.act = nil
	a.release(x.t)
	x.refuseError(err)
}

// reject refuses a request that can't be parsed. It returns false, for advance.
func (x *Exchange) reject(err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuseError(err)
	return false
}

// refuseError ends advance, which met an error. x.mu is held.
func (x *Exchange) refuseError(err error) {
	x.loop = false
	if e, ok := errors.AsType[*http1.Error](err); ok {
		x.refuse(e.Status, e.Code, e.Detail)
	} else {
		x.cut()
	}
}

// guard keeps a panic of the handler from reaching the poller, which it would kill.
func (x *Exchange) guard() {
	if p := recover(); p != nil {
		x.panicked(p)
	}
}

// panicked logs a panic, answers with 500 unless an answer has begun, and ends the connection.
func (x *Exchange) panicked(p any) {
	x.t.cfg.Logger.Error("panic while handling a request", "panic", p, "stack", string(debug.Stack()))
	x.mu.Lock()
	defer x.mu.Unlock()
	switch x.st {
	case stBody, stReading, stHandling:
		x.refuse(http.StatusInternalServerError, codeInternal, "The request could not be handled.")
	case stFinishing:
		x.last = true
	case stLinger, stClosed:
	default:
		x.cut()
	}
}
