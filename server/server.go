// Package server is the HTTP front of Snakream: connections on an event loop, the
// routing of requests to the engine, live readers that hold no goroutine, the admin
// listener, and a stop that loses nothing.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/protocol"
)

// Server serves one engine. Its methods may be called concurrently.
type Server struct {
	cfg       Config
	transport *Transport
	render    *protocol.Renderer
	hub       *hub
	metrics   *metrics
	calls     callPool
	uploads   atomic.Int64 // snapshots that are being received

	engine atomic.Pointer[engine.Engine] // nil until Start
	rings  atomic.Pointer[[]func()]      // by shard; nil until Start
	gather []*Gather                     // by shard; of its turn alone
	phase  atomic.Int32
	failed atomic.Pointer[error]
}

// The phases of a Server's life, in order.
const (
	phaseRecovering int32 = iota
	phaseServing
	phaseDraining
)

// New returns a Server that has no engine yet: Host prepares the engine's options,
// Start begins to serve what was opened with them.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg.withDefaults()}
	s.render = protocol.NewRenderer(protocol.Settings{
		CORSOrigin: s.cfg.CORSOrigin, CacheVisibility: s.cfg.CacheVisibility, PublicURL: s.cfg.PublicURL,
	})
	s.hub = newHub(s)
	var err error
	s.transport, err = NewTransport(TransportConfig{
		MaxConnections:  s.cfg.MaxConnections,
		HeadBytes:       int(s.cfg.MaxHeaderBytes),
		IdleTimeout:     s.cfg.IdleTimeout,
		MaxInflightBody: s.cfg.MaxInflightBodyBytes,
		Pollers:         s.cfg.Pollers,
		NoRing:          s.cfg.NoRing,
		Logger:          s.cfg.Logger,
	}, handler{s})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.metrics = newMetrics(s)
	return s, nil
}

// Host makes s the host of an engine that is going to be opened with o: its turns
// run on the event loop, and its changes wake the live readers.
func (s *Server) Host(o *engine.Options) {
	o.Ring = s.ring
	o.Wake = s.hub.wake
}

func (s *Server) ring(shard int) {
	if rings := s.rings.Load(); rings != nil {
		(*rings)[shard]()
	}
}

// Start begins to run the turns of e, which was opened with the options that Host
// prepared. It must be called once, before Serve.
func (s *Server) Start(e *engine.Engine) error {
	rings := make([]func(), e.Shards())
	for i := range rings {
		g := s.transport.NewGather()
		s.gather = append(s.gather, g)
		ring, err := s.transport.NewRinger(func() {
			e.Turn(i)
			g.Flush()
		})
		if err != nil {
			return fmt.Errorf("server: event descriptor of shard %d: %w", i, err)
		}
		rings[i] = ring
	}
	s.engine.Store(e)
	s.rings.Store(&rings)
	for _, ring := range rings {
		ring() // what was rung before there was somebody to hear it
	}
	s.hub.start()
	s.phase.CompareAndSwap(phaseRecovering, phaseServing)
	return nil
}

// Serve accepts connections on ln, which it owns, until Drain; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	if s.engine.Load() == nil {
		return errors.New("server: Serve before Start")
	}
	return s.transport.Serve(ln)
}

// Drain stops the server: no more connections, live readers get their last event
// or answer, spread over a part of the time that is left, requests in flight
// finish. What is still open at ctx's end is cut. The engine can be closed
// afterwards. It is called once.
func (s *Server) Drain(ctx context.Context) error {
	s.phase.Store(phaseDraining)
	s.hub.drain(ctx)
	err := s.transport.Drain(ctx)
	s.hub.stop()
	return err
}

func (s *Server) draining() bool { return s.phase.Load() == phaseDraining }

// Fail marks the server as not ready, for the reason err, which must not be nil.
func (s *Server) Fail(err error) { s.failed.CompareAndSwap(nil, &err) }

// Ready returns nil when the server recovered, has not failed and is not draining,
// else the reason in words.
func (s *Server) Ready() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	switch s.phase.Load() {
	case phaseRecovering:
		return errors.New("recovering")
	case phaseDraining:
		return errors.New("draining")
	}
	e := s.engine.Load()
	if t, ok := e.TierStatus(); ok && t.Fenced {
		return engine.ErrFenced
	}
	return e.Err()
}

// defaultPollers is one event loop for each two cores: fewer than shards and disk
// need, as measured on two.
func defaultPollers() int { return max(1, runtime.NumCPU()/2) }
