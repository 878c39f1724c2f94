package server

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/invariants"
)

// churner is a client that does everything that clients do, and leaves in all ways.
type churner struct {
	f       *front
	rnd     *rand.Rand
	answers *atomic.Int64
	broken  *atomic.Int64
}

// TestChurn has many clients come, ask, wait, stream and vanish, while a hub answers
// and streams to whoever is there. Each answer that arrives is the right one, and
// nothing is left over.
//
// Under the race detector netpoll finds connections by descriptor, and a late event
// of a closed one may end a new one that has its number; so resets are tolerated there.
func TestChurn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := startFront(t, TransportConfig{})
	length := 3 * time.Second
	if testing.Short() {
		length = time.Second
	}
	end := time.Now().Add(length)
	var answers, broken atomic.Int64
	var clients sync.WaitGroup
	for i := range 40 {
		c := churner{f: f, rnd: rand.New(rand.NewPCG(seed, uint64(i))), answers: &answers, broken: &broken}
		clients.Go(func() {
			for time.Now().Before(end) {
				c.visit()
			}
		})
	}
	stop := make(chan struct{})
	hub := make(chan struct{})
	go func() {
		defer close(hub)
		clock := time.NewTicker(700 * time.Microsecond)
		defer clock.Stop()
		for {
			select {
			case <-stop:
				return
			case <-clock.C:
			}
			f.app.answerParked("ok")
			for _, x := range f.app.live() {
				x.Send([]byte("0123456789abcdef"))
			}
		}
	}()
	clients.Wait()
	until(t, "all connections to end", func() bool { return f.Stats().Connections == 0 })
	close(stop)
	<-hub
	t.Logf("%d answers, %d connections broke", answers.Load(), broken.Load())
	if broken.Load() > 0 && !invariants.Enabled {
		t.Errorf("%d connections broke", broken.Load())
	}
	f.app.mu.Lock()
	defer f.app.mu.Unlock()
	if len(f.app.parked)+len(f.app.streams) > 0 {
		t.Errorf("%d parked requests and %d streams were not ended", len(f.app.parked), len(f.app.streams))
	}
}

// visit is one connection's life.
func (c *churner) visit() {
	p := c.f.dial()
	defer p.Close()
	if c.rnd.IntN(3) == 0 {
		_ = p.SetLinger(0)
	}
	for range 1 + c.rnd.IntN(20) {
		var more bool
		switch c.rnd.IntN(5) {
		case 0:
			more = c.poll(p)
		case 1:
			c.stream(p)
		default:
			more = c.post(p)
		}
		if !more {
			return
		}
	}
}

// expect reads one answer, which is want if the connection lasts.
func (c *churner) expect(p *peer, want string) bool {
	r, err := http.ReadResponse(p.in, nil)
	if err != nil {
		c.broken.Add(1)
		return false
	}
	got, err := io.ReadAll(r.Body)
	if err != nil {
		c.broken.Add(1)
		return false
	}
	if string(got) != want {
		c.f.t.Errorf("got %.100q, want %.100q", got, want)
		return false
	}
	c.answers.Add(1)
	return true
}

func (c *churner) write(p *peer, b []byte) bool {
	if _, err := p.Write(b); err != nil {
		c.broken.Add(1)
		return false
	}
	return true
}

func (c *churner) poll(p *peer) bool {
	if !c.write(p, []byte(get("/poll")+get("/q"))) || c.rnd.IntN(8) == 0 {
		return false // vanishes while it waits
	}
	return c.expect(p, "ok") && c.expect(p, digest("GET", "/q", nil))
}

func (c *churner) stream(p *peer) {
	if !c.write(p, []byte(get("/sse"))) {
		return
	}
	r, err := http.ReadResponse(p.in, nil)
	if err != nil {
		c.broken.Add(1)
		return
	}
	if _, err := io.ReadFull(r.Body, make([]byte, 16*(1+c.rnd.IntN(5)))); err != nil {
		c.broken.Add(1)
		return
	}
	c.answers.Add(1)
}

func (c *churner) post(p *peer) bool {
	body := bytes.Repeat([]byte{byte(c.rnd.Uint32())}, c.rnd.IntN(100_000))
	target := []string{"/e", "/defer", "/go"}[c.rnd.IntN(3)]
	in := append(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", target, len(body)), body...)
	if c.rnd.IntN(20) == 0 { // vanishes in mid-body
		c.write(p, in[:len(in)-len(body)/2-1])
		return false
	}
	return c.write(p, in) && c.expect(p, digest("POST", target, body))
}
