package server

import (
	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

// notSentLowat bounds what the kernel queues for a reader that doesn't keep up, in bytes. Its default is some MiB.
const notSentLowat = 64 << 10

// maxBacklog is how many bytes may be pending when Send is called, against the rule.
const maxBacklog = 1 << 20

// SendResult says what became of a frame that was given to Exchange.Send.
type SendResult uint8

const (
	Sent    SendResult = iota // the socket has taken the whole frame
	Pending                   // the transport keeps a copy of the rest; OnWritable's function will be called, do not Send before
	Gone                      // not taken: the stream has ended, and onEnd has been or will be called
)

// Park makes the request wait for an answer by Reply or ReplyTicket from another
// goroutine, holding nothing meanwhile. onEnd is called once, by some goroutine, if the
// client goes away first; it must not block. False: the client has gone already, and
// onEnd will not be called. Whoever is to answer is told of the ticket after Park: a
// ReplyTicket before it is lost.
func (x *Exchange) Park(onEnd func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.waitable() {
		return false
	}
	x.enter(stParked)
	x.onEnd = onEnd
	x.deadline = 0
	x.dropKeep()
	x.reclaimSoon()
	return true
}

// waitable reports whether the request can be parked or streamed. A client that has
// ended its side is gone: nothing would tell when it closes the other. x.mu is held.
func (x *Exchange) waitable() bool {
	if x.st == stHandling && x.orphan {
		x.cut()
	}
	return x.st == stHandling && !x.dead
}

// ReplyTicket is Reply to a parked request if ticket is still its own. It returns
// false, and does nothing, if the request has been answered or the client has gone.
func (x *Exchange) ReplyTicket(ticket uint32, status int, fields, body []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.st != stParked || x.ticket != ticket || x.dead {
		return false
	}
	x.answer(status, fields, body, int64(len(body)))
	return true
}

// Stream answers 200 with a body that has no end yet: fields are sent at once, frames
// follow by Send, and EndStream ends it. onEnd is called once, by some goroutine, if the
// client goes away or is cut off first; it must not block. False: the client has gone
// already, and onEnd will not be called.
func (x *Exchange) Stream(fields []byte, onEnd func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.waitable() {
		return false
	}
	// Only TCP has it, and nothing depends on it but the memory of a slow reader.
	_ = unix.SetsockoptInt(int(x.fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLowat)
	x.enter(stStreaming)
	x.deadline = 0
	b := getBuffer()
	b.b = x.appendHead(b.b, 200, fields, endLength)
	x.write(b.b, nil)
	putBuffer(b)
	if x.dead {
		x.enter(stFinishing)
		return false
	}
	x.onEnd = onEnd
	x.dropKeep()
	x.reclaimSoon()
	return true
}

// Send sends one frame of a stream, which is not empty. It does not block, and frame
// may be shared with other streams or used again when it returns. A stream to which
// frames are sent although maxBacklog bytes are pending is cut.
func (x *Exchange) Send(frame []byte) SendResult {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.st != stStreaming {
		return Gone
	}
	behind := len(x.rest) > 0 // as a rule, the head
	if len(x.rest) > maxBacklog {
		x.t.slow.Add(1)
		x.cut()
		return Gone
	}
	if err := x.sendFrame(frame); err != nil {
		x.cut()
		return Gone
	}
	switch {
	case len(x.rest) == 0:
		return Sent
	case !behind:
		x.block(unix.EPOLLOUT)
	}
	return Pending
}

// sendFrame writes a frame in its chunk, and leaves in rest what the socket doesn't take. x.mu is held.
func (x *Exchange) sendFrame(frame []byte) error {
	b := getBuffer()
	defer putBuffer(b)
	var tail []byte
	if !x.old {
		b.b = http1.AppendChunkSize(b.b, len(frame))
		tail = crlf
	}
	if len(frame) <= maxJoin {
		b.b = append(append(b.b, frame...), tail...)
		frame, tail = nil, nil
	}
	var n int
	if len(x.rest) == 0 {
		var err error
		if n, err = x.push(b.b, frame, tail); err != nil {
			return err
		}
	}
	for _, s := range [...][]byte{b.b, frame, tail} {
		s, n = advanced(s, n)
		x.rest = append(x.rest, s...)
	}
	return nil
}

// OnWritable sets what is called when the rest of a pending frame has been sent. It is
// called before Stream, or while the stream goes on, and holds until that ends. f is
// called on the flush loop, which is not a poller; it may Send and must not block.
func (x *Exchange) OnWritable(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dead && (x.st == stHandling || x.st == stStreaming) {
		x.onWritable = f
	}
}

// EndStream sends last, if it isn't empty, and the end of the body; the connection goes
// on to the next request. onEnd is not called any more. False: the stream has ended
// already, and onEnd has been or will be called.
func (x *Exchange) EndStream(last []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.st != stStreaming {
		return false
	}
	b := getBuffer()
	if x.old {
		b.b = append(b.b, last...)
	} else {
		b.b = append(http1.AppendChunk(b.b, last), http1.LastChunk...)
		x.last = x.last || x.t.draining.Load()
	}
	if len(b.b) > 0 {
		x.write(b.b, nil)
	}
	putBuffer(b)
	x.conclude()
	return true
}
