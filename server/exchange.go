package server

import (
	"context"
	"errors"
	"sync"

	"github.com/cloudwego/netpoll"

	"github.com/snakream/snakream/server/http1"
)

// Handler is what the transport calls with requests. Its methods are called
// concurrently for different connections, and one at a time for each of them.
type Handler interface {
	// Head is called when the head of a request is complete but its body is not
	// wholly here, or is larger than InlineBody, before any 100 Continue. It returns
	// the largest body in bytes that it wants (the transport refuses a larger one
	// with 413) and true, and Serve follows; or it answers by x.Reply or x.ReplyHead
	// and returns false, and the transport disposes of the body. It must not block.
	// A handler that wants the body in pieces calls x.StreamBody before it returns.
	Head(x *Exchange) (limit int64, ok bool)

	// Serve handles a request. If x.Inline, it runs on a poller: it must not block.
	// x.Request and x.Body are valid only until it returns. It ends in exactly one of
	// Reply, ReplyHead, Go, Defer, Park or Stream, or, when not inline, in StartBody to
	// EndBody or Abort. Whatever answers is its last use of x: the next request may
	// have begun.
	Serve(x *Exchange)

	// Malformed renders the answer to a request that the transport refuses: field
	// lines without framing, and a body. The transport reads both before it returns
	// to its caller, and does not modify them.
	Malformed(status int, code, detail string) (fields, body []byte)
}

// InlineBody is the largest body, in bytes, that is collected and served on a
// poller. A larger one is read by a goroutine of its own.
const InlineBody = 64 << 10

// Codes of the transport's own refusals, beside those of http1.
const (
	codeRequestTimeout = "request_timeout" // 408: the head or the body took too long
	codeOverloaded     = "overloaded"      // 503: too many bytes of bodies are being received
	codeInternal       = "internal"        // 500: the handler panicked or did not answer
)

// ErrGone is returned to whoever reads or writes on an Exchange whose connection
// has been closed or cut, or has made no progress in time.
var ErrGone = errors.New("server: the connection is gone")

// state is where a connection stands in its current request.
type state uint8

const (
	stIdle      state = iota // between requests, or in a head
	stBody                   // the poller collects a body
	stReading                // a goroutine reads a body; the poller is paused
	stHandling               // the handler has the request
	stParked                 // a long poll waits for ReplyTicket
	stStreaming              // a stream waits for frames
	stWriting                // a goroutine is between StartBody and EndBody
	stFinishing              // the answer is complete, its rest waits for the socket
	stLinger                 // the last answer is sent; input is dropped until the peer closes
	stClosed                 // fd is no longer ours
)

// Exchange is one client connection together with the request that is being
// answered on it: HTTP/1.1 answers in order, so there is at most one. Its size
// counts, as there is one for each parked reader; what only an active request
// needs is in active, from a pool.
type Exchange struct {
	User any // storage of the handler, kept from request to request

	t  *Transport
	np netpoll.Connection

	// reader is held by whoever uses np's Reader: the poller in OnRequest, or reclaim. It comes before mu.
	reader sync.Mutex

	// mu guards all that follows, and fd against being closed under a system call. Nothing blocks under it.
	mu sync.Mutex
	connState
	requestState
	outState
}

// connState is the connection as such, and its input.
type connState struct {
	fd   int32
	st   state
	loop bool // a goroutine is in advance: whoever answers leaves the next request to it

	dead   bool // cut: nothing is written or handled any more, netpoll will call onClose
	orphan bool // the peer ended its side, netpoll has let go, and fd is a duplicate of our own
	paused bool // the poller does not read
	raw    bool // paused, and a goroutine reads from fd
	held   bool // netpoll may hold a buffer for it
	queued bool // waits for reclaim

	pend   []byte // input that waits: part of a head, or requests behind the current one
	parsed int    // how much of pend is known to be an incomplete head
	skip   int64  // bytes of an unwanted body that are still to come

	timer    Timer
	due      int64 // the tick timer is armed for, 0 if it is not
	deadline int64 // the tick when the current state has lasted too long, 0 if it may last
	lastRead int64 // the tick of the last input
}

// requestState is the current request.
type requestState struct {
	act      *active         // while a goroutine or the poller works on it
	ctx      context.Context // see Context; nil until somebody asks
	cancel   context.CancelFunc
	keep     *buffer
	onEnd    func()
	ticket   uint32
	head     bool // the method is HEAD
	old      bool // HTTP/1.0
	gathered bool // the whole answer waits in a Gather
	last     bool // the connection closes after the answer
	promised bool // Go or Defer: an answer will come
	taken    bool // Go: act stays with its function when Serve has returned
	waiting  bool // a goroutine waits for wpoll in wait
	timedOut bool // that goroutine is to give up
}

// outState is output that the socket has not taken.
type outState struct {
	rest       []byte
	onWritable func()
	wid        uint64 // id in wpoll, 0 if not there
}

// Context returns a context that ends when the client has gone, or has ended its side
// while the request was being handled. It is for what takes long, on a goroutine.
func (x *Exchange) Context() context.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ctx == nil {
		x.ctx, x.cancel = context.WithCancel(context.Background())
		if x.st == stClosed || x.orphan || x.dead {
			x.cancel()
		}
	}
	return x.ctx
}

// endContext ends the context of the request. x.mu is held.
func (x *Exchange) endContext() {
	if x.cancel != nil {
		x.cancel()
	}
}

// Request returns the request being handled.
func (x *Exchange) Request() *http1.Request { return &x.act.req }

// Body returns the whole body of the request, nil if there is none or it is streamed.
func (x *Exchange) Body() []byte { return x.act.body }

// BodyOwned reports whether Body is an allocation of its own, which the handler may keep and hand on.
func (x *Exchange) BodyOwned() bool { return x.act.owned }

// Inline reports whether the caller, Serve or Head, runs on a poller and so must not block.
func (x *Exchange) Inline() bool { return x.act.inline }

// StreamBody, called in Handler.Head, asks for the body in pieces: Serve is then
// called at once, not inline, and takes them by ReadBody. What it leaves is disposed of.
func (x *Exchange) StreamBody() { x.act.streamed = true }

// Streamed reports whether StreamBody was called for the request being handled.
func (x *Exchange) Streamed() bool { return x.act.streamed }

// Keep copies b into memory that is valid until the request is answered, parked or
// streamed. It is called by Serve, or by the function given to Go.
func (x *Exchange) Keep(b []byte) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keep == nil {
		x.keep = getBuffer()
	}
	n := len(x.keep.b)
	x.keep.b = append(x.keep.b, b...)
	return x.keep.b[n:len(x.keep.b):len(x.keep.b)]
}

// Go runs f on a goroutine of its own, off the poller. Request and Body stay valid
// until f returns or has answered. f ends as a Serve that is not inline does.
func (x *Exchange) Go(f func()) {
	a := x.act
	a.own()
	a.inline = false
	x.mu.Lock()
	x.promised, x.taken = true, true
	x.mu.Unlock()
	go func() {
		defer x.leave(a)
		f()
	}()
}

// leave ends what Go has begun.
func (x *Exchange) leave(a *active) {
	if p := recover(); p != nil {
		x.panicked(p)
	}
	x.mu.Lock()
	if x.act == a {
		x.act = nil
	}
	x.mu.Unlock()
	a.release(x.t)
}

// Defer says that an answer will come from elsewhere after Serve has returned. It
// is called before the request is handed on.
func (x *Exchange) Defer() {
	x.mu.Lock()
	x.promised = true
	x.mu.Unlock()
}

// Ticket identifies the request being handled, for ReplyTicket. It is called by Serve or by the function given to Go.
func (x *Exchange) Ticket() uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ticket
}
