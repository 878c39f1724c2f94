package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/server/http1"
)

// TransportConfig sets the limits of a Transport. It does not change after
// NewTransport. A field that is zero has its default.
type TransportConfig struct {
	MaxConnections  int           // open at once; a further one is closed when accepted. Default: the limit of descriptors less 500
	HeadBytes       int           // largest head of a request. Default 32 KiB
	TargetBytes     int           // longest request target. Default 8 KiB
	IdleTimeout     time.Duration // between requests. Default 2 min
	HeadTimeout     time.Duration // for a whole head, and for the first request's first byte. Default 10 s
	BodyTimeout     time.Duration // without a byte of a body. Default 10 s
	StallTimeout    time.Duration // without the peer taking a byte of what waits for it. Default 15 s
	MaxInflightBody int64         // bytes of bodies being received, unless wholly here or streamed; beyond, 503. Default 256 MiB
	NoRing          bool          // answers are not sent together by io_uring, even where the kernel has it
	Pollers         int           // event loops of this process; the first transport decides. Default 1
	Logger          *slog.Logger  // default slog.Default()
}

const (
	spareDescriptors = 500 // for files and listeners; half of them when there are few

	// netpollBuffer is the size of netpoll's read buffers, in bytes. One of 8 KiB or
	// less it would never give back, even of an idle connection.
	netpollBuffer = 16 << 10
)

// withDefaults fills in what is zero.
func (c TransportConfig) withDefaults() (TransportConfig, error) {
	if c.MaxConnections == 0 {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return c, fmt.Errorf("getrlimit: %w", err)
		}
		files := int64(min(l.Cur, 1<<20))
		c.MaxConnections = int(max(files-spareDescriptors, files/2, 1))
	}
	c.HeadBytes = orDefault(c.HeadBytes, 32<<10)
	c.TargetBytes = orDefault(c.TargetBytes, 8<<10)
	c.IdleTimeout = orDefault(c.IdleTimeout, 2*time.Minute)
	c.HeadTimeout = orDefault(c.HeadTimeout, 10*time.Second)
	c.BodyTimeout = orDefault(c.BodyTimeout, 10*time.Second)
	c.StallTimeout = orDefault(c.StallTimeout, 15*time.Second)
	c.MaxInflightBody = orDefault(c.MaxInflightBody, 256<<20)
	c.Pollers = orDefault(c.Pollers, 1)
	c.Logger = orDefault(c.Logger, slog.Default())
	return c, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// TransportStats are counts of a Transport. The first four go up and down.
type TransportStats struct {
	Connections  int64 // open
	Parked       int64 // in Park
	Streams      int64 // in Stream
	InflightBody int64 // bytes of bodies being received

	Accepted     uint64 // connections
	Refused      uint64 // connections that were closed when accepted
	Requests     uint64 // that reached Serve
	Malformed    uint64 // requests that the transport refused itself
	SlowConsumer uint64 // connections cut because they took nothing for StallTimeout
	BytesIn      uint64
	BytesOut     uint64
}

// Transport accepts connections, reads requests from them, gives them to its Handler
// and writes the answers. All methods may be called concurrently.
type Transport struct {
	cfg     TransportConfig
	limits  http1.Limits
	handler Handler
	loop    netpoll.EventLoop
	wheel   *wheel
	wpoll   *wpoll

	date      atomic.Pointer[string] // the Date field of all answers of this second
	dateTimer Timer
	draining  atomic.Bool
	inflight  atomic.Int64
	live      atomic.Int64

	accepted, refused, requests, malformed, slow, bytesIn, bytesOut atomic.Uint64
	parked, streams                                                 atomic.Int64

	reclaimMu   sync.Mutex
	reclaimList []*Exchange
	ringReclaim func()

	mu        sync.Mutex // also for setting draining
	conns     map[*Exchange]struct{}
	acceptors map[*acceptor]struct{}
	empty     chan struct{} // closed when draining and no connection is left; nil before
}

// configureNetpoll sets what netpoll has one of for the whole process.
var configureNetpoll = sync.OnceValue(func() func(int, *slog.Logger) error {
	var once sync.Once
	var err error
	return func(pollers int, log *slog.Logger) error {
		once.Do(func() {
			err = netpoll.Configure(netpoll.Config{
				BufferSize:   netpollBuffer,
				PollerNum:    pollers,
				LoadBalance:  netpoll.RoundRobin,
				Runner:       func(_ context.Context, f func()) { f() }, // on the poller itself
				LoggerOutput: netpollLog{log},
			})
		})
		return err
	}
})

// netpollLog takes netpoll's lines, which are about single connections, to the debug level.
type netpollLog struct{ log *slog.Logger }

func (l netpollLog) Write(p []byte) (int, error) {
	l.log.Debug("netpoll", "line", string(p))
	return len(p), nil
}

// NewTransport returns a transport for h. Its goroutines run until Drain has returned.
// The error says that this system or this netpoll can't do what is needed.
func NewTransport(cfg TransportConfig, h Handler) (*Transport, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := configureNetpoll()(cfg.Pollers, cfg.Logger); err != nil {
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	if err := testArmer(); err != nil {
		return nil, err
	}
	s := &Transport{
		cfg: cfg, handler: h,
		limits:    http1.Limits{Head: cfg.HeadBytes, Target: cfg.TargetBytes, Fields: http1.MaxFields},
		conns:     make(map[*Exchange]struct{}),
		acceptors: make(map[*acceptor]struct{}),
	}
	if s.loop, err = netpoll.NewEventLoop(onRequest, netpoll.WithOnPrepare(s.onPrepare)); err != nil {
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	if s.ringReclaim, err = s.NewRinger(s.reclaim); err != nil {
		return nil, err
	}
	if s.wpoll, err = newWpoll(); err != nil {
		return nil, err
	}
	s.wheel = newWheel()
	s.dateTimer.f = s.tellDate
	s.tellDate()
	return s, nil
}

// tellDate renders the Date field, once a second.
func (s *Transport) tellDate() {
	line := "Date: " + time.Now().UTC().Format(http.TimeFormat) + http1.CRLF
	s.date.Store(&line)
	s.After(time.Second-2*wheelTick, &s.dateTimer)
}

// Serve accepts connections on ln, which it owns and which is a TCP or Unix listener,
// until Drain makes it return nil.
func (s *Transport) Serve(ln net.Listener) error {
	l, err := newAcceptor(s, ln)
	if err != nil {
		_ = ln.Close()
		return err
	}
	s.mu.Lock()
	draining := s.draining.Load()
	if !draining {
		s.acceptors[l] = struct{}{}
	}
	s.mu.Unlock()
	if draining {
		return l.Close()
	}
	err = s.loop.Serve(l)
	s.mu.Lock()
	delete(s.acceptors, l)
	s.mu.Unlock()
	if cerr := l.Close(); cerr != nil || s.draining.Load() {
		return cerr
	}
	return err
}

// Stats returns the counts.
func (s *Transport) Stats() TransportStats {
	return TransportStats{
		Connections: s.live.Load(), Parked: s.parked.Load(), Streams: s.streams.Load(), InflightBody: s.inflight.Load(),
		Accepted: s.accepted.Load(), Refused: s.refused.Load(), Requests: s.requests.Load(), Malformed: s.malformed.Load(),
		SlowConsumer: s.slow.Load(), BytesIn: s.bytesIn.Load(), BytesOut: s.bytesOut.Load(),
	}
}

// enter changes the state, and counts. x.mu is held.
func (x *Exchange) enter(st state) {
	switch x.st {
	case stParked:
		x.t.parked.Add(-1)
	case stStreaming:
		x.t.streams.Add(-1)
	}
	switch x.st = st; st {
	case stParked:
		x.t.parked.Add(1)
	case stStreaming:
		x.t.streams.Add(1)
	}
}

// register adds an accepted connection. False: Drain has begun.
func (s *Transport) register(x *Exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[x] = struct{}{}
	return !s.draining.Load()
}

// unregister takes a connection out that has ended.
func (s *Transport) unregister(x *Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, x)
	s.live.Add(-1)
	s.tellEmpty()
}

// tellEmpty closes empty if no connection is left. s.mu is held.
func (s *Transport) tellEmpty() {
	if s.empty != nil && len(s.conns) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// reclaimLater has x.reclaim called at the end of the poller's round.
func (s *Transport) reclaimLater(x *Exchange) {
	s.reclaimMu.Lock()
	s.reclaimList = append(s.reclaimList, x)
	ring := len(s.reclaimList) == 1
	s.reclaimMu.Unlock()
	if ring {
		s.ringReclaim()
	}
}

// reclaim is the turn of ringReclaim.
func (s *Transport) reclaim() {
	s.reclaimMu.Lock()
	list := s.reclaimList
	s.reclaimList = nil
	s.reclaimMu.Unlock()
	for _, x := range list {
		x.reclaim()
	}
}
