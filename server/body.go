package server

import (
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

// active is what a request needs while it is read and handled. It comes from a
// pool: a connection that is idle or parked has none.
type active struct {
	req    http1.Request
	head   []byte // the bytes that req aliases
	cloned []byte // backing of head once it is our own copy

	inline   bool // Serve or Head runs on a poller
	streamed bool // the handler takes the body by ReadBody

	body      []byte // what Body returns
	owned     bool   // body is an allocation of its own
	collected []byte // backing of body when it came in pieces
	spare     []byte // backing of small collected bodies, kept in the pool

	left     int64         // bytes of a body of known length that are still to come
	chunks   http1.Chunked // decoder, if req.Chunked
	reserved int64         // of the transport's MaxInflightBody
	input    []byte        // a goroutine's input that is not decoded yet
	data     []byte        // a decoded run that ReadBody has not handed out yet
	scratch  *buffer       // backing of input

	wake   chan struct{} // wpoll wakes the goroutine that waits; one token
	start  []byte        // head of a large response, until its first piece leaves
	length int64         // bytes of it that are still to be written, -1 if chunked
	dup    int           // descriptor for sendfile, or -1
}

var actives = sync.Pool{New: func() any { return &active{wake: make(chan struct{}, 1), dup: -1} }}

// release gives a back to its pool.
func (a *active) release(t *Transport) {
	if a.reserved != 0 {
		t.inflight.Add(-a.reserved)
	}
	if a.scratch != nil {
		putBuffer(a.scratch)
	}
	if a.collected != nil && !a.owned && cap(a.collected) <= InlineBody {
		a.spare = a.collected[:0]
	}
	if a.dup >= 0 {
		_ = unix.Close(a.dup)
		a.dup = -1
	}
	if cap(a.cloned) > maxPooled {
		a.cloned = nil
	}
	select {
	case <-a.wake:
	default:
	}
	a.req.Reset()
	a.head, a.body, a.collected, a.input, a.data, a.scratch = nil, nil, nil, nil, nil, nil
	a.inline, a.streamed, a.owned = false, false, false
	a.left, a.reserved, a.start, a.chunks = 0, 0, a.start[:0], http1.Chunked{}
	actives.Put(a)
}

// own makes the head, and the body if it still aliases the input, a's own.
func (a *active) own() {
	if len(a.cloned) > 0 && len(a.head) > 0 && &a.cloned[0] == &a.head[0] {
		return
	}
	n := len(a.head)
	a.cloned = append(append(a.cloned[:0], a.head...), a.body...)
	a.head = a.cloned[:n]
	if len(a.body) > 0 && a.collected == nil {
		a.body = a.cloned[n:]
	}
	// The same bytes parse the same way.
	_, _ = a.req.Parse(a.head, http1.Limits{Head: n, Target: n, Fields: http1.MaxFields})
}

// present looks for the whole body at the beginning of in. It returns how much of in it
// takes, and false if it isn't wholly there or is too large to be served on a poller.
func (a *active) present(in []byte) (used int, ok bool, err error) {
	if a.collected != nil {
		a.spare = a.collected[:0]
	}
	a.body, a.collected, a.left, a.chunks = nil, nil, 0, http1.Chunked{Max: InlineBody}
	switch {
	case a.req.Chunked:
		a.collected = a.spare[:0]
		if used, err = a.decode(in); err != nil || !a.chunks.Done() {
			a.spare, a.collected, a.chunks = a.collected[:0], nil, http1.Chunked{}
			var large *http1.Error
			if errors.As(err, &large) && large.Code == http1.CodeBodyTooLarge {
				err = nil // for a poller; the handler will say
			}
			return 0, false, err
		}
		a.body = a.collected
		return used, true, nil
	case a.req.ContentLength <= 0:
		return 0, true, nil
	case a.req.ContentLength > InlineBody || a.req.ContentLength > int64(len(in)):
		a.left = a.req.ContentLength
		return 0, false, nil
	}
	n := int(a.req.ContentLength)
	a.body = in[:n:n]
	return n, true, nil
}

// prepare makes a ready for a body of at most limit bytes that is not wholly there. False: too many bytes are in flight.
func (a *active) prepare(t *Transport, limit int64) bool {
	size := a.left
	if a.req.Chunked {
		a.chunks.Max = limit
		size = InlineBody
	}
	if a.streamed {
		return true
	}
	if !a.reserve(t, size) {
		return false
	}
	if size > InlineBody {
		a.collected, a.owned = make([]byte, 0, size), true
	} else {
		a.collected = a.spare[:0]
	}
	return true
}

func (a *active) reserve(t *Transport, n int64) bool {
	if t.inflight.Add(n) > t.cfg.MaxInflightBody {
		t.inflight.Add(-n)
		return false
	}
	a.reserved += n
	return true
}

// complete reports whether the whole body has been received.
func (a *active) complete() bool {
	if a.req.Chunked {
		return a.chunks.Done()
	}
	return a.left == 0
}

// large reports whether the body is for a goroutine.
func (a *active) large() bool {
	return a.streamed || a.owned || len(a.collected) > InlineBody
}

// collect appends in, as far as it belongs to the body, to what has been collected.
func (a *active) collect(in []byte) (used int, err error) {
	if a.req.Chunked {
		return a.decode(in)
	}
	n := int(min(a.left, int64(len(in))))
	a.collected = append(a.collected, in[:n]...)
	a.left -= int64(n)
	return n, nil
}

func (a *active) decode(in []byte) (used int, err error) {
	for used < len(in) && !a.chunks.Done() {
		data, n, err := a.chunks.Next(in[used:])
		if err != nil {
			return used, err
		}
		a.collected = append(a.collected, data...)
		used += n
	}
	return used, nil
}

// take returns as much of the received body as fits p, or needs more input: then n is 0 and err nil.
func (a *active) take(p []byte) (n int, err error) {
	for {
		switch {
		case len(a.data) > 0:
			n = copy(p, a.data)
			a.data = a.data[n:]
			return n, nil
		case a.complete():
			return 0, io.EOF
		case len(a.input) == 0:
			return 0, nil
		case a.req.Chunked:
			a.data, n, err = a.chunks.Next(a.input)
			if err != nil {
				return 0, err
			}
		default:
			n = int(min(a.left, int64(len(a.input))))
			a.data = a.input[:n]
			a.left -= int64(n)
		}
		a.input = a.input[n:]
	}
}

// buffer is pooled memory; the pointer to it is what makes the pool free of allocations.
type buffer struct{ b []byte }

// maxPooled is the largest buffer, in bytes, that goes back to the pool.
const maxPooled = 64 << 10

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 1<<10)} }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if cap(b.b) <= maxPooled {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}
