package server

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// wpoll waits for sockets that are blocked in mid-answer to become writable, and
// for those whose body a goroutine reads to become readable. It is an epoll
// instance of its own, beside netpoll's, which watches the same sockets for input.
type wpoll struct {
	fd   int
	wake int           // eventfd that makes run return
	done chan struct{} // closed when run has returned

	mu    sync.Mutex
	conns map[uint64]*Exchange // by the id that the kernel hands back; fds are used again, ids never
	next  uint64
}

// newWpoll returns a wpoll whose goroutine runs until stop.
func newWpoll() (*wpoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &wpoll{fd: fd, wake: wake, done: make(chan struct{}), conns: make(map[uint64]*Exchange)}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, event(unix.EPOLLIN, 0)); err != nil {
		_ = unix.Close(wake)
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	go w.run()
	return w, nil
}

// event packs data as the kernel's epoll_data, a little-endian uint64 in two fields.
func event(events uint32, data uint64) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(data)), Pad: int32(uint32(data >> 32))}
}

// arm asks for one call of x.ready when events occur. x.mu is held and x.fd is open.
func (w *wpoll) arm(x *Exchange, events uint32) error {
	op := unix.EPOLL_CTL_MOD
	if x.wid == 0 {
		op = unix.EPOLL_CTL_ADD
		w.mu.Lock()
		w.next++
		x.wid = w.next
		w.conns[x.wid] = x
		w.mu.Unlock()
	}
	if err := unix.EpollCtl(w.fd, op, int(x.fd), event(events|unix.EPOLLONESHOT, x.wid)); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// drop forgets x, before its fd is closed or replaced. x.mu is held.
func (w *wpoll) drop(x *Exchange) {
	if x.wid == 0 {
		return
	}
	_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, int(x.fd), nil) // it is there: wid says so
	w.mu.Lock()
	delete(w.conns, x.wid)
	w.mu.Unlock()
	x.wid = 0
}

func (w *wpoll) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(w.fd, events, -1)
		if err != nil && err != unix.EINTR {
			panic(fmt.Sprintf("epoll_wait: %v", err)) // our own descriptor: only a bug can break it
		}
		for i := range max(n, 0) {
			id := uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32
			if id == 0 {
				return
			}
			w.mu.Lock()
			x := w.conns[id]
			w.mu.Unlock()
			if x != nil {
				x.ready(id)
			}
		}
	}
}

// stop ends the goroutine, when no connection is left, and waits for it.
func (w *wpoll) stop() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	_ = unix.Close(w.wake)
	_ = unix.Close(w.fd)
}
