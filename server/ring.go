package server

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// ringer is an eventfd that netpoll watches. Its OnRequest is the turn: it comes at
// the end of the poller's round, when all requests that had arrived are handled, and
// netpoll runs one at a time. A ringer is never closed, since that can't be done
// safely beside a running OnRequest.
type ringer struct {
	fd   int
	turn func()
}

var ringOne = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// NewRinger registers a function to be run on a poller at the end of its round when
// ring is called. Calls of ring before turn has begun may become one. ring is cheap and
// may be called by any goroutine; turn is never run concurrently with itself. It must
// not block. A panic in it ends the process.
func (s *Transport) NewRinger(turn func()) (ring func(), err error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	r := &ringer{fd: fd, turn: turn}
	np, err := netpoll.NewFDConnection(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := np.SetOnRequest(r.onRequest); err != nil {
		return nil, err
	}
	return r.ring, nil
}

func (r *ringer) ring() {
	for {
		_, err := unix.Write(r.fd, ringOne)
		if err == nil || err == unix.EAGAIN { // EAGAIN: it has been rung 2^64 times
			return
		}
		if err != unix.EINTR {
			panic(fmt.Sprintf("eventfd: %v", err)) // our own descriptor: only a bug can break it
		}
	}
}

func (r *ringer) onRequest(_ context.Context, np netpoll.Connection) error {
	in := np.Reader()
	if err := in.Skip(in.Len()); err != nil {
		return err
	}
	if err := in.Release(); err != nil {
		return err
	}
	// netpoll would go on without its poller after a panic. Nothing may go on after this one.
	defer func() {
		if p := recover(); p != nil {
			go panic(fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	r.turn()
	return nil
}
