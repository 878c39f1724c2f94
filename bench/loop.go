package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// epoch is the zero of now.
var epoch = time.Now()

// now is the monotonic clock in nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }

// maxWait bounds one epoll wait. The wait holds its P (see loop), so it also
// bounds for how long a garbage collection can be kept waiting.
const maxWait = 50 * time.Millisecond

// user is what owns a connection: it is told what arrives and how it ends.
type user interface {
	// received gets bytes that are valid only during the call. An error ends
	// the connection and comes back through lost.
	received(b []byte) error
	// lost is called once, after the descriptor has been closed. io.EOF means
	// that the peer ended the connection.
	lost(err error)
}

// conn is one non-blocking connection on a loop.
type conn struct {
	loop   *loop
	fd     int
	user   user
	unsent []byte // what the socket has not taken yet, a copy
}

// loop is one epoll instance with its connections. It belongs to one goroutine,
// which calls poll; nothing in it is safe for concurrent use.
//
// System calls are raw: they never block (the descriptors are non-blocking, and
// the wait is bounded), and telling the Go scheduler about each would cost as much
// as the call, on cores that are shared with the server under test.
type loop struct {
	ep     int
	byFD   []*conn
	live   int
	buf    []byte
	events [512]syscall.EpollEvent
}

// readBytes is the size of a loop's read buffer.
const readBytes = 256 << 10

func newLoop() (*loop, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &loop{ep: ep, buf: make([]byte, readBytes)}, nil
}

// close ends all connections without telling their users.
func (l *loop) close() {
	for _, c := range l.byFD {
		if c != nil {
			syscall.Close(c.fd)
		}
	}
	l.byFD, l.live = nil, 0
	syscall.Close(l.ep)
}

// dial connects to an address and adds the connection. It blocks while connecting.
func (l *loop) dial(addr string, u user) (*conn, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	sa := &syscall.SockaddrInet4{Port: tcp.Port}
	copy(sa.Addr[:], tcp.IP.To4())
	if err := syscall.Connect(fd, sa); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &conn{loop: l, fd: fd, user: u}
	err = errors.Join(
		syscall.SetNonblock(fd, true),
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
		l.control(syscall.EPOLL_CTL_ADD, c, syscall.EPOLLIN),
	)
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	for fd >= len(l.byFD) {
		l.byFD = append(l.byFD, nil)
	}
	l.byFD[fd] = c
	l.live++
	return c, nil
}

func (l *loop) control(op int, c *conn, events uint32) error {
	return syscall.EpollCtl(l.ep, op, c.fd, &syscall.EpollEvent{Events: events, Fd: int32(c.fd)})
}

// poll waits until something arrives, at most for d, and handles all of it.
func (l *loop) poll(d time.Duration) error {
	ms := min(max(d, 0), maxWait).Milliseconds()
	if d > 0 && ms == 0 {
		ms = 1
	}
	n, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_WAIT, uintptr(l.ep),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), uintptr(ms), 0, 0)
	return l.handle(n, e)
}

// sysEpollPwait2 has one number on all architectures.
const sysEpollPwait2 = 441

// pollExactly is poll with a wait that ends on time to some microseconds, for loads
// whose requests are due at given times.
func (l *loop) pollExactly(d time.Duration) error {
	wait := syscall.NsecToTimespec(int64(min(max(d, 0), maxWait)))
	n, _, e := syscall.RawSyscall6(sysEpollPwait2, uintptr(l.ep),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), uintptr(unsafe.Pointer(&wait)), 0, 0)
	return l.handle(n, e)
}

// handle handles the first n events, which a wait has returned.
func (l *loop) handle(n uintptr, e syscall.Errno) error {
	if e == syscall.EINTR { // the Go scheduler pokes whoever runs for long
		return nil
	}
	if e != 0 {
		return fmt.Errorf("waiting for events: %w", e)
	}
	for _, ev := range l.events[:n] {
		c := l.byFD[ev.Fd]
		if c == nil { // ended by an earlier event of this round
			continue
		}
		if ev.Events&syscall.EPOLLOUT != 0 {
			if err := c.flush(); err != nil {
				c.end(err)
				continue
			}
		}
		if ev.Events&^syscall.EPOLLOUT != 0 {
			c.read()
		}
	}
	return nil
}

func (c *conn) read() {
	b := c.loop.buf
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	switch {
	case e == syscall.EAGAIN || e == syscall.EINTR:
	case e != 0:
		c.end(fmt.Errorf("read: %w", e))
	case n == 0:
		c.end(io.EOF)
	default:
		if err := c.user.received(b[:n]); err != nil {
			c.end(err)
		}
	}
}

// send writes b, or keeps a copy of what the socket does not take.
func (c *conn) send(b []byte) error {
	if len(c.unsent) > 0 {
		c.unsent = append(c.unsent, b...)
		return nil
	}
	n, err := c.write(b)
	if err != nil || n == len(b) {
		return err
	}
	c.unsent = append(c.unsent, b[n:]...)
	return c.loop.control(syscall.EPOLL_CTL_MOD, c, syscall.EPOLLIN|syscall.EPOLLOUT)
}

// flush writes what is unsent.
func (c *conn) flush() error {
	n, err := c.write(c.unsent)
	if err != nil {
		return err
	}
	c.unsent = append(c.unsent[:0], c.unsent[n:]...)
	if len(c.unsent) > 0 {
		return nil
	}
	return c.loop.control(syscall.EPOLL_CTL_MOD, c, syscall.EPOLLIN)
}

func (c *conn) write(b []byte) (int, error) {
	for len(b) > 0 {
		n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch e {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, fmt.Errorf("write: %w", e)
		}
	}
	return 0, nil
}

// end closes the connection and tells its user.
func (c *conn) end(err error) {
	c.close()
	c.user.lost(err)
}

// close closes the connection without telling its user. Closing twice is allowed.
func (c *conn) close() {
	if c.fd < 0 {
		return
	}
	c.loop.byFD[c.fd] = nil
	c.loop.live--
	syscall.Close(c.fd)
	c.fd = -1
}
