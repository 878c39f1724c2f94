package server

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

// maxSendFile is how much one sendfile may send.
const maxSendFile = 256 << 10

// StartBody begins a response that the calling goroutine then writes piece by piece,
// ended by EndBody or Abort. length is that of the body in bytes; negative if it is not
// known: it is chunked then, or for HTTP/1.0 ended by closing. It is called by a Serve
// that is not inline, or by the function given to Go. The head leaves with the first piece.
func (x *Exchange) StartBody(status int, fields []byte, length int64) error {
	a := x.act
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.st != stHandling {
		return ErrGone
	}
	if length < 0 {
		length = endLength
	}
	a.start, a.length = x.appendHead(a.start[:0], status, fields, length), length
	x.enter(stWriting)
	if length < 0 || length > nearBuffer {
		nearPeer(int(x.fd))
	}
	return nil
}

const (
	nearRTT    = 500       // microseconds
	nearBuffer = 256 << 10 // bytes; the kernel takes twice as much
)

// nearPeer keeps the send buffer of a connection over a short way small. There, a
// buffer that has grown to megabytes costs twice the CPU: it no longer fits a cache,
// and sender and receiver wait for each other in turn instead of running side by side. With
// a quarter of this one they wait for each other as often.
// Over a long way the buffer has to grow, and the kernel sees to that.
func nearPeer(fd int) {
	if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.Rtt < nearRTT {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, nearBuffer) // an optimization
	}
}

// Write writes a piece of the body that StartBody has begun. It blocks while the
// peer takes nothing, up to StallTimeout, then ErrGone is returned. p is not kept.
func (x *Exchange) Write(p []byte) error {
	a := x.act
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fits(a, int64(len(p))); err != nil || len(p) == 0 || x.head {
		return err
	}
	var tail []byte
	if a.length < 0 && !x.old {
		a.start = http1.AppendChunkSize(a.start, len(p))
		tail = crlf
	}
	err := x.pushAll(a.start, p, tail)
	a.start = a.start[:0]
	return err
}

var crlf = []byte(http1.CRLF)

// fits checks that a body under way can take n bytes more, and counts them. x.mu is held.
func (x *Exchange) fits(a *active, n int64) error {
	switch {
	case x.dead || x.st != stWriting:
		return ErrGone
	case a.length < 0:
	case n > a.length:
		x.cut()
		return fmt.Errorf("server: %d bytes more than the announced length", n-a.length)
	default:
		a.length -= n
	}
	return nil
}

// pushAll writes the slices and blocks until the socket has taken all. x.mu is held, but not all the time.
func (x *Exchange) pushAll(a, b, c []byte) error {
	for {
		part, last := b, c
		if len(b) > maxRead {
			part, last = b[:maxRead], nil
		}
		n, err := x.push(a, part, last)
		if err != nil {
			x.cut()
			return ErrGone
		}
		full := n == len(a)+len(part)+len(last)
		a, n = advanced(a, n)
		b, n = advanced(b, n)
		c, _ = advanced(c, n)
		if len(a)+len(b)+len(c) == 0 {
			return nil
		}
		if full { // the poller may want the mutex
			x.mu.Unlock()
			x.mu.Lock()
		} else if err := x.waitWritable(); err != nil {
			return err
		}
		if x.dead {
			return ErrGone
		}
	}
}

// advanced returns b without its first n bytes, and by how much n exceeds it.
func advanced(b []byte, n int) ([]byte, int) {
	k := min(n, len(b))
	return b[k:], n - k
}

// SendFile writes the n bytes from pos on of the file that fd refers to, without
// copying them through memory; in a chunked body they are one chunk. It blocks as Write
// does, and while the file is read.
func (x *Exchange) SendFile(fd uintptr, pos, n int64) error {
	a := x.act
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fits(a, n); err != nil || n == 0 || x.head {
		return err
	}
	chunked := a.length < 0 && !x.old
	if chunked {
		a.start = http1.AppendChunkSize(a.start, int(n))
	}
	if len(a.start) > 0 {
		if err := x.pushAll(a.start, nil, nil); err != nil {
			return err
		}
		a.start = a.start[:0]
	}
	if a.dup < 0 { // sendfile may wait for the disk, so it can't run under x.mu, and x.fd may be closed without
		dup, err := unix.FcntlInt(uintptr(x.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			x.cut()
			return fmt.Errorf("dup: %w", err)
		}
		a.dup = dup
	}
	for n > 0 {
		x.mu.Unlock()
		sent, err := unix.Sendfile(a.dup, int(fd), &pos, int(min(n, maxSendFile)))
		x.mu.Lock()
		switch {
		case x.dead:
			return ErrGone
		case err == unix.EAGAIN:
			if err := x.waitWritable(); err != nil {
				return err
			}
		case err == unix.EINTR:
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.ETIMEDOUT):
			x.cut()
			return ErrGone // that is about the socket; what is about the file follows
		case err != nil:
			x.cut()
			return fmt.Errorf("sendfile: %w", err)
		case sent == 0:
			x.cut()
			return errors.New("sendfile: the file is shorter than it was said to be")
		default:
			n -= int64(sent)
			x.t.bytesOut.Add(uint64(sent))
		}
	}
	if chunked {
		a.start = append(a.start, http1.CRLF...) // leaves with what comes next, at the latest the last chunk
	}
	return nil
}

// EndBody ends the response. If less than the announced length was written, the connection is cut instead.
func (x *Exchange) EndBody() {
	a := x.act
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.st != stWriting {
		return
	}
	if a.length > 0 && !x.head {
		x.cut()
		return
	}
	if a.length < 0 && !x.old && !x.head {
		a.start = append(a.start, http1.LastChunk...)
	}
	if len(a.start) > 0 {
		x.write(a.start, nil)
	}
	x.conclude()
}

// Abort cuts the connection in mid-response, so that the client sees that it is truncated.
func (x *Exchange) Abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.st == stWriting && x.old && x.act.length < 0 && !x.dead {
		x.reset() // here an ordered end would look like the end of the body
	}
	x.cut()
}

// reset resets the connection: connecting it to nowhere does that at once. x.mu is held.
func (x *Exchange) reset() {
	nowhere := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = syscall.Syscall(syscall.SYS_CONNECT, uintptr(x.fd), uintptr(unsafe.Pointer(&nowhere)), unsafe.Sizeof(nowhere))
}

func (x *Exchange) waitWritable() error {
	err := x.wait(unix.EPOLLOUT, x.t.cfg.StallTimeout)
	if err != nil && x.timedOut && !x.dead {
		x.t.slow.Add(1)
		x.cut()
	}
	return err
}

// wait blocks until the socket is ready for events, or gives up with ErrGone. x.mu is held, but not while it waits.
func (x *Exchange) wait(events uint32, limit time.Duration) error {
	if err := x.t.wpoll.arm(x, events); err != nil {
		x.t.cfg.Logger.Error("wait for a socket", "error", err)
		x.cut()
		return ErrGone
	}
	wake := x.act.wake
	x.waiting, x.timedOut = true, false
	x.expire(limit)
	x.mu.Unlock()
	<-wake
	x.mu.Lock()
	x.waiting = false
	x.deadline = 0
	if x.dead || x.timedOut {
		return ErrGone
	}
	return nil
}

// wakeUp ends wait. x.mu is held.
func (x *Exchange) wakeUp() {
	if x.waiting {
		select {
		case x.act.wake <- struct{}{}:
		default:
		}
	}
}
