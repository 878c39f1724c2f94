package server

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

const (
	// maxJoin is up to how many bytes a body is copied behind its head, since one buffer is cheaper to write than two.
	maxJoin = 16 << 10

	// maxDrain is how many bytes of an unwanted body are received and dropped so that the connection can be kept.
	maxDrain = 256 << 10
)

// Reply answers the request with status, fields ("Name: value\r\n" and so on) and
// body, to which it adds status line, Date, Content-Length and Connection. It answers a
// HEAD request as if it were a GET, without the body. Any goroutine may call it, once a
// request; it never blocks, and both slices may be used again when it returns.
func (x *Exchange) Reply(status int, fields, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answerable() {
		x.answer(status, fields, body, int64(len(body)))
	}
}

// ReplyHead answers a HEAD request: no body, and contentLength as the length of the
// one that a GET would get, or negative to leave it out. Otherwise it is as Reply.
func (x *Exchange) ReplyHead(status int, fields []byte, contentLength int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answerable() {
		x.answer(status, fields, nil, max(contentLength, noLength))
	}
}

// answerable reports whether an answer is due. x.mu is held.
func (x *Exchange) answerable() bool {
	switch x.st {
	case stHandling, stParked:
		return !x.dead
	case stLinger, stClosed:
		return false // it was cut or refused meanwhile
	}
	if !x.dead {
		x.t.cfg.Logger.Error("a request was answered twice", "state", int(x.st))
	}
	return false
}

// Values of length beside a number of bytes.
const (
	noLength  = -1 // nothing is said
	endLength = -2 // chunked, or for HTTP/1.0 up to the end of the connection
)

// answer sends a whole response. x.mu is held.
func (x *Exchange) answer(status int, fields, body []byte, length int64) {
	var behind []byte
	if len(body) > maxJoin && !x.withoutBody(status) {
		behind, body = body, nil
	}
	b := x.join(status, fields, body, length)
	x.write(b.b, behind)
	putBuffer(b)
	x.conclude()
}

// join renders a response into one buffer. x.mu is held.
func (x *Exchange) join(status int, fields, body []byte, length int64) *buffer {
	b := getBuffer()
	b.b = x.appendHead(b.b, status, fields, length)
	if !x.withoutBody(status) {
		b.b = append(b.b, body...)
	}
	return b
}

// withoutBody reports whether an answer of that status has no body. x.mu is held.
func (x *Exchange) withoutBody(status int) bool { return x.head || bodyless(status) }

// appendHead appends the head of a response, and decides whether the connection closes after it. x.mu is held.
func (x *Exchange) appendHead(b []byte, status int, fields []byte, length int64) []byte {
	if a := x.act; a != nil && !a.complete() && (a.req.Expect || a.req.Chunked || a.streamed || a.left > maxDrain) {
		x.last = true // the body would be in the way of the next request
	}
	if length == endLength && x.old || x.t.draining.Load() {
		x.last = true
	}
	minor := uint8(1)
	if x.old {
		minor = 0
	}
	b = http1.AppendStatus(b, status, minor)
	b = append(b, *x.t.date.Load()...)
	b = append(b, fields...)
	switch {
	case bodyless(status) || length == noLength:
	case length >= 0:
		b = http1.AppendInt(b, "Content-Length", length)
	case !x.old:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if x.last {
		b = append(b, "Connection: close\r\n"...)
	} else if x.old {
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, http1.CRLF...)
}

// bodyless reports whether responses of that status never have a body, nor a Content-Length here.
func bodyless(status int) bool { return status < 200 || status == 204 || status == 304 }

// conclude goes on when the whole answer has been handed to write. x.mu is held.
func (x *Exchange) conclude() {
	x.onEnd, x.onWritable = nil, nil
	if x.keep != nil {
		if x.keep.b = x.keep.b[:0]; cap(x.keep.b) > maxPooled {
			x.keep = nil
		}
	}
	switch {
	case x.dead || len(x.rest) > 0:
		x.enter(stFinishing)
	case x.last:
		x.linger()
	default:
		x.enter(stIdle)
		switch {
		case x.loop:
		case len(x.pend) > 0:
			x.loop = true
			go x.again()
		default:
			x.unpause()
			x.becomeIdle()
		}
	}
}

// refuse answers in the handler's stead and ends the connection. x.mu is held.
func (x *Exchange) refuse(status int, code, detail string) {
	if x.dead || x.st == stLinger || x.st == stClosed {
		return
	}
	x.t.malformed.Add(1)
	if x.st == stIdle {
		x.head, x.old = false, false // they are the last request's
	}
	x.last = true
	fields, body := x.t.handler.Malformed(status, code, detail)
	x.answer(status, fields, body, int64(len(body)))
}

// write sends head and body by one system call and keeps a copy of what the socket doesn't take. x.mu is held.
func (x *Exchange) write(head, body []byte) {
	if x.dead {
		return
	}
	n := 0
	if len(x.rest) == 0 {
		var err error
		if n, err = x.push(head, body, nil); err != nil {
			x.cut()
			return
		}
		if n == len(head)+len(body) {
			return
		}
		x.block(unix.EPOLLOUT)
	}
	k := min(n, len(head))
	x.rest = append(x.rest, head[k:]...)
	x.rest = append(x.rest, body[n-k:]...)
}

// push writes the slices, one after the other, by one system call. It returns how much
// the socket has taken, which may be nothing. x.mu is held.
func (x *Exchange) push(a, b, c []byte) (int, error) {
	for {
		var n int
		var err error
		if len(b)+len(c) == 0 {
			n, err = syscall.Write(int(x.fd), a)
		} else {
			n, err = writev(int(x.fd), a, b, c)
		}
		switch err {
		case nil:
			x.t.bytesOut.Add(uint64(n))
			return n, nil
		case syscall.EAGAIN:
			return 0, nil
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}

// writev is the system call. Its wrapper in x/sys allocates.
func writev(fd int, slices ...[]byte) (int, error) {
	var v [3]unix.Iovec
	k := 0
	for _, s := range slices {
		if len(s) > 0 {
			v[k].Base = &s[0]
			v[k].SetLen(len(s))
			k++
		}
	}
	n, _, e := syscall.Syscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v)), uintptr(k))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// block asks wpoll for a call of ready, and gives the peer StallTimeout for it. x.mu is held.
func (x *Exchange) block(events uint32) {
	if err := x.t.wpoll.arm(x, events); err != nil {
		x.t.cfg.Logger.Error("wait for a socket", "error", err)
		x.cut()
		return
	}
	x.expire(x.t.cfg.StallTimeout)
}

// ready is called by wpoll when the socket can go on. id tells late calls from current ones.
func (x *Exchange) ready(id uint64) {
	var call func()
	x.mu.Lock()
	switch {
	case x.wid != id || x.dead:
	case x.waiting:
		x.wakeUp()
	case len(x.rest) > 0:
		call = x.flush()
	}
	x.mu.Unlock()
	if call != nil {
		call()
	}
}

// flush sends more of rest. It returns what is to be called without x.mu, which is held.
func (x *Exchange) flush() (call func()) {
	n, err := x.push(x.rest, nil, nil)
	if err != nil {
		x.cut()
		return nil
	}
	if x.rest = x.rest[n:]; len(x.rest) > 0 {
		x.block(unix.EPOLLOUT)
		return nil
	}
	x.rest = nil
	switch x.st {
	case stFinishing:
		x.conclude()
	case stBody:
		x.expire(x.t.cfg.BodyTimeout)
	default:
		x.deadline = 0
		call = x.onWritable
	}
	return call
}
