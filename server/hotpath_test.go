package server

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/internal/invariants"
)

// appendRequest is what a client of the hot path sends.
var appendRequest = "POST /append HTTP/1.1\r\nHost: 127.0.0.1:4437\r\nUser-Agent: durable-client/1.4.2\r\nAccept: */*\r\n" +
	"Content-Type: application/octet-stream\r\nProducer-Id: p1\r\nContent-Length: 256\r\n\r\n" + strings.Repeat("x", 256)

// localExchange is an exchange without netpoll's part, on a socket whose other end is returned.
func localExchange(t testing.TB, f *front) (x *Exchange, peer int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	x = &Exchange{t: f.Transport}
	x.fd = int32(pair[0])
	x.orphan = true // nobody closes its descriptor but itself
	x.timer.f = x.onTimer
	f.live.Add(1)
	f.register(x)
	t.Cleanup(func() {
		x.mu.Lock()
		x.cut()
		x.mu.Unlock()
		_ = unix.Close(pair[1])
	})
	return x, pair[1]
}

// From the bytes of an append to the bytes of its answer nothing is allocated, and the answer is one write.
func TestHotPathAllocatesNothing(t *testing.T) {
	f := startFront(t, TransportConfig{})
	x, peer := localExchange(t, f)
	in, out := []byte(appendRequest), make([]byte, 4096)
	x.orphan = false
	defer func() { x.orphan = true }()
	n := 0
	allocs := testing.AllocsPerRun(1000, func() {
		x.receive(in)
		var err error
		if n, err = unix.Read(peer, out); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 && !invariants.Enabled { // the race detector has pools forget at random
		t.Errorf("%v allocations", allocs)
	}
	got := string(out[:n])
	if !strings.HasPrefix(got, "HTTP/1.1 204 No Content\r\n") || !strings.HasSuffix(got, "\r\n\r\n") || strings.Count(got, "HTTP/1.1") != 1 {
		t.Errorf("answer %q", got)
	}
}

func BenchmarkReceive(b *testing.B) {
	f := startFront(b, TransportConfig{})
	x, peer := localExchange(b, f)
	in, out := []byte(appendRequest), make([]byte, 4096)
	x.orphan = false
	defer func() { x.orphan = true }()
	b.ReportAllocs()
	for b.Loop() {
		x.receive(in)
		if _, err := unix.Read(peer, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRoundTrip includes the client, loopback and netpoll.
func BenchmarkRoundTrip(b *testing.B) {
	for _, path := range []string{"/append", "/defer"} {
		b.Run(path[1:], func(b *testing.B) {
			f := startFront(b, TransportConfig{})
			p := f.dial()
			if err := p.SetDeadline(time.Time{}); err != nil {
				b.Fatal(err)
			}
			in := []byte(strings.Replace(appendRequest, "/append", path, 1))
			out := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Write(in); err != nil {
					b.Fatal(err)
				}
				if _, err := p.Read(out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPipelined has 32 appends in each write, so that the cost of the server shows.
func BenchmarkPipelined(b *testing.B) {
	f := startFront(b, TransportConfig{})
	p := f.dial()
	if err := p.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	in := []byte(strings.Repeat(appendRequest, maxRound))
	if _, err := p.Write([]byte(appendRequest)); err != nil {
		b.Fatal(err)
	}
	out := make([]byte, 64<<10)
	size, err := p.Read(out)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Write(in); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(p, out[:maxRound*size]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxRound), "ns/request")
}

// The check at start-up passes with the netpoll that we build with.
func TestArmer(t *testing.T) {
	startFront(t, TransportConfig{}) // configures netpoll
	for range 3 {
		if err := tryArmer(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newArmer(struct{ netpoll.Connection }{}); err == nil {
		t.Error("a foreign connection has an armer")
	}
}
