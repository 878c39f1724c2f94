package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// acceptor is the listener that netpoll accepts from. netpoll's own closes one
// descriptor twice, and comes to grief when there are no descriptors left.
type acceptor struct {
	t    *Transport
	ln   net.Listener
	file *os.File // a duplicate of ln's descriptor
	fd   int

	mu    sync.Mutex
	spare int // a descriptor to give up when there is no other, or -1
}

var errNoFile = errors.New("server: the listener has no file descriptor")

func newAcceptor(t *Transport, ln net.Listener) (*acceptor, error) {
	filer, ok := ln.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errNoFile
	}
	file, err := filer.File()
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	l := &acceptor{t: t, ln: ln, file: file, fd: int(file.Fd()), spare: -1}
	if err := unix.SetNonblock(l.fd, true); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("listener: %w", err)
	}
	l.reserve()
	return l, nil
}

func (l *acceptor) reserve() {
	if fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		l.spare = fd
	}
}

// Accept is called by netpoll when a connection waits. Both results are nil when there
// is none to be had: netpoll would stop accepting on an error.
func (l *acceptor) Accept() (net.Conn, error) {
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == unix.EMFILE || err == unix.ENFILE {
		l.refuseOne()
		return nil, nil
	}
	if err != nil {
		return nil, nil
	}
	if l.t.live.Add(1) > int64(l.t.cfg.MaxConnections) || l.t.draining.Load() {
		l.t.live.Add(-1)
		l.t.refused.Add(1)
		_ = unix.Close(fd)
		return nil, nil
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // not on a Unix socket
	return accepted{fd: fd, addr: l.ln.Addr()}, nil
}

// refuseOne takes a connection from the queue although there is no descriptor for it,
// so that the queue doesn't keep the poller busy.
func (l *acceptor) refuseOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare >= 0 {
		_ = unix.Close(l.spare)
		l.spare = -1
	}
	if fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
		l.t.refused.Add(1)
		_ = unix.Close(fd)
	}
	l.reserve()
}

// stop makes netpoll drop the listener, and its Serve return.
func (l *acceptor) stop() { _ = unix.Shutdown(l.fd, unix.SHUT_RDWR) }

// Close closes the listener. netpoll must have dropped it.
func (l *acceptor) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare >= 0 {
		_ = unix.Close(l.spare)
		l.spare = -1
	}
	return errors.Join(l.file.Close(), l.ln.Close())
}

func (l *acceptor) Addr() net.Addr { return l.ln.Addr() }

// Fd returns the descriptor that netpoll watches.
func (l *acceptor) Fd() int { return l.fd }

// accepted is an accepted socket on its way to netpoll, which uses these methods only.
type accepted struct {
	net.Conn
	fd   int
	addr net.Addr
}

func (c accepted) Fd() int              { return c.fd }
func (c accepted) LocalAddr() net.Addr  { return c.addr }
func (c accepted) RemoteAddr() net.Addr { return c.addr }

// onPrepare makes the Exchange of an accepted connection, before netpoll watches it.
func (s *Transport) onPrepare(np netpoll.Connection) context.Context {
	x := &Exchange{t: s, np: np}
	x.fd = int32(np.(netpoll.Conn).Fd())
	x.timer.f = x.onTimer
	// netpoll calls the last one added first: ours before the one that closes the descriptor.
	if err := np.AddCloseCallback(x.onClose); err != nil {
		s.cfg.Logger.Error("register with netpoll", "error", err)
	}
	s.accepted.Add(1)
	x.mu.Lock()
	x.expire(s.cfg.HeadTimeout)
	x.reclaimSoon()
	x.mu.Unlock()
	if !s.register(x) { // Drain has begun since it was accepted
		x.mu.Lock()
		x.cut()
		x.mu.Unlock()
	}
	return exchangeContext{context.Background(), x}
}
