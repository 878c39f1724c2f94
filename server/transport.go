package server

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// TransportConfig sets the limits of a Transport. It does not change after NewTransport. A zero field means its default.
type TransportConfig struct {
	MaxConnections  int           // open at once; beyond, a connection is closed when accepted. Default: the descriptor limit − 500
	HeadBytes       int           // largest head of a request. Default 32 KiB
	TargetBytes     int           // longest request target. Default 8 KiB
	IdleTimeout     time.Duration // between requests. Default 2 min
	HeadTimeout     time.Duration // from the first byte of a head to its end. Default 10 s
	BodyTimeout     time.Duration // without a byte of a body. Default 10 s
	StallTimeout    time.Duration // without the peer taking a byte that waits. Default 15 s
	MaxInflightBody int64         // bytes of bodies over InlineBody held at once; beyond, 503. Default 256 MiB
	Pollers         int           // event loops of the process; the first transport decides. Default 1
	Logger          *slog.Logger  // default slog.Default()
}

// TransportStats are counts of a Transport. All but the first three only grow.
type TransportStats struct {
	Connections  int64 // open
	Parked       int64 // waiting in Park
	Streams      int64 // in Stream
	Accepted     uint64
	Refused      uint64 // closed when accepted, for the cap
	Requests     uint64
	Malformed    uint64 // refused by the parser or a limit of the transport
	SlowConsumer uint64 // cut because they took nothing for StallTimeout
	BytesIn      uint64
	BytesOut     uint64
}

// Transport accepts connections, reads requests from them and writes answers.
type Transport struct{}

// Timer is an entry of the transport's timer wheel. Its zero value, with f set, is ready for After. f runs on the wheel's goroutine and must not block.
type Timer struct {
	f func()
}

// NewTransport returns a transport for h. It starts its goroutines; Drain ends them.
func NewTransport(cfg TransportConfig, h Handler) (*Transport, error) { panic("") }

// Serve accepts connections on ln until Drain, which makes it return nil. It owns ln.
func (s *Transport) Serve(ln net.Listener) error { panic("") }

// Drain stops accepting, lets requests that are under way finish (with Connection: close), closes idle
// connections, and at ctx's end cuts the rest. Parked requests and streams are for the caller to end meanwhile.
func (s *Transport) Drain(ctx context.Context) error { panic("") }

// Draining reports whether Drain has begun.
func (s *Transport) Draining() bool { panic("") }

// NewRinger registers a function to be run on a poller at the end of its round whenever ring is called; calls of ring
// before it runs are one. ring is cheap and may be called by any goroutine; turn is never run concurrently with itself.
func (s *Transport) NewRinger(turn func()) (ring func(), err error) { panic("") }

// After arms t to run its f once d (rounded up to 100 ms) has passed, instead of when it was armed for before.
func (s *Transport) After(d time.Duration, t *Timer) { panic("") }

// Stop disarms t and reports whether it was armed. f may still be running.
func (s *Transport) Stop(t *Timer) bool { panic("") }

// Stats returns the counts.
func (s *Transport) Stats() TransportStats { panic("") }
