package server

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// cutTimeout is how long Drain waits for netpoll to let go of connections that it has cut.
const cutTimeout = 5 * time.Second

// Draining reports whether Drain has begun.
func (s *Transport) Draining() bool { return s.draining.Load() }

// Drain ends the transport: it stops accepting, closes idle connections, lets requests
// that are under way finish, with Connection: close, and cuts what is left when ctx is
// done; then the error is ctx's. Parked requests and streams are under way, and for the
// caller to end meanwhile. No function given to After is called any more when
// it has returned; those given to NewRinger still are, since what rings them may have
// something to finish. It is called once.
func (s *Transport) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	s.empty = make(chan struct{})
	for l := range s.acceptors {
		l.stop()
	}
	s.tellEmpty()
	s.mu.Unlock()
	for _, x := range s.snapshot() {
		x.mu.Lock()
		if x.st == stIdle && !x.loop && len(x.pend) == 0 && x.skip == 0 && !polled(x.fd, unix.POLLIN) {
			x.linger()
		}
		x.mu.Unlock()
	}
	var err error
	select {
	case <-s.empty:
	case <-ctx.Done():
		err = ctx.Err()
		for _, x := range s.snapshot() {
			x.mu.Lock()
			x.cut()
			x.mu.Unlock()
		}
		limit := time.NewTimer(cutTimeout)
		defer limit.Stop()
		select {
		case <-s.empty:
		case <-limit.C:
		}
	}
	s.wheel.stop()
	s.wpoll.stop()
	return err
}

// snapshot returns the open connections.
func (s *Transport) snapshot() []*Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Exchange, 0, len(s.conns))
	for x := range s.conns {
		list = append(list, x)
	}
	return list
}
