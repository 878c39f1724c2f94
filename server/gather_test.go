package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/internal/uring"
)

// ways runs a test with answers that go out together, and with ones that go out one by one.
func ways(t *testing.T, test func(t *testing.T, f *front, g *Gather)) {
	for name, one := range map[string]bool{"together": false, "one by one": true} {
		t.Run(name, func(t *testing.T) {
			f := startFront(t, TransportConfig{NoRing: one})
			g := f.NewGather()
			if r, err := uring.New(1); errors.Is(err, uring.ErrUnsupported) {
				t.Logf("this kernel sends one by one: %v", err)
			} else if err != nil {
				t.Fatal(err)
			} else if _ = r.Close(); (g.ring == nil) != one {
				t.Errorf("there is a ring: %t", g.ring != nil)
			}
			test(t, f, g)
		})
	}
}

// hold sends a request on each connection and returns them as they wait for their answers.
func (f *front) hold(peers ...*peer) []*Exchange {
	f.t.Helper()
	var all []*Exchange
	for _, p := range peers {
		p.send(get("/hold"))
		all = append(all, <-f.app.held)
	}
	return all
}

// Every client gets its own answer, whole, and can go on.
func TestGatheredAnswers(t *testing.T) {
	ways(t, func(t *testing.T, f *front, g *Gather) {
		var peers []*peer
		for range maxGathered + 6 {
			peers = append(peers, f.dial())
		}
		for _, n := range []int{1, 2, 3, maxGathered, maxGathered + 1, len(peers)} {
			for i, x := range f.hold(peers[:n]...) {
				x.ReplyIn(g, 200, []byte(fmt.Sprintf("X-Number: %d\r\n", i)), bytes.Repeat([]byte{'a' + byte(i%26)}, i*37))
			}
			g.Flush()
			for i, p := range peers[:n] {
				if resp := p.want(200, strings.Repeat(string(rune('a'+i%26)), i*37)); resp.Header.Get("X-Number") != fmt.Sprint(i) {
					t.Errorf("connection %d got the answer of %s", i, resp.Header.Get("X-Number"))
				}
			}
		}
		if g.Flush(); len(g.list) != 0 {
			t.Errorf("%d answers are left", len(g.list))
		}
	})
}

// An answer that is larger than what is copied goes out by itself.
func TestGatheredLargeAnswer(t *testing.T) {
	ways(t, func(t *testing.T, f *front, g *Gather) {
		p := f.dial()
		large := strings.Repeat("large", 1<<20)
		f.hold(p)[0].ReplyIn(g, 200, nil, []byte(large))
		p.want(200, large)
	})
}

// What a full socket does not take follows when it can, and no answer is mixed with another.
func TestGatheredAnswersOfSlowClients(t *testing.T) {
	ways(t, func(t *testing.T, f *front, g *Gather) {
		const requests = 1000
		body := func(i int) string { return strings.Repeat(fmt.Sprintf("%07d.", i), 1<<10) }
		var peers []*peer
		count := map[*Exchange]int{}
		for range 3 {
			p := f.dial()
			_ = p.SetReadBuffer(64 << 10)
			peers = append(peers, p)
			go func() { _, _ = p.Write([]byte(strings.Repeat(get("/hold"), requests))) }()
		}
		full := make(chan struct{})
		over := make(chan struct{})
		var once sync.Once
		go func() {
			defer close(over)
			for left, blocked := len(peers)*requests, 0; left > 0; {
				list := []*Exchange{<-f.app.held}
				for more := true; more; {
					select {
					case x := <-f.app.held:
						list = append(list, x)
					default:
						more = false
					}
				}
				for _, x := range list {
					x.ReplyIn(g, 200, nil, []byte(body(count[x])))
					count[x]++
				}
				g.Flush()
				left -= len(list)
				for _, x := range list {
					x.mu.Lock()
					if len(x.rest) > 0 {
						blocked++
					}
					x.mu.Unlock()
				}
				if blocked >= len(peers) {
					once.Do(func() { close(full) })
				}
			}
		}()
		<-full
		for i := range requests {
			for _, p := range peers {
				p.want(200, body(i))
			}
		}
		<-over
	})
}

// A connection that ends between its answer and the sending gets what it can still get,
// and nobody else gets it.
func TestGatheredAnswersOfClientsThatGo(t *testing.T) {
	ways(t, func(t *testing.T, f *front, g *Gather) {
		peers := []*peer{f.dial(), f.dial(), f.dial(), f.dial(), f.dial()}
		held := f.hold(peers...)
		for i, x := range held {
			x.ReplyIn(g, 200, nil, fmt.Append(nil, i))
		}
		_ = peers[1].SetLinger(0)
		_ = peers[1].Close() // a reset
		_ = peers[3].CloseWrite()
		until(t, "both to be noticed", func() bool {
			for _, x := range []*Exchange{held[1], held[3]} {
				x.mu.Lock()
				noticed := x.orphan || x.st == stClosed
				x.mu.Unlock()
				if !noticed {
					return false
				}
			}
			return true
		})
		late := f.dial() // may get the descriptor of one that has gone
		g.Flush()
		for _, i := range []int{0, 2, 3, 4} {
			peers[i].want(200, fmt.Sprint(i))
		}
		peers[3].wantEnd()
		late.send(get("/"))
		late.want(200, digest("GET", "/", nil))
		until(t, "the connections to be closed", func() bool { return f.Stats().Connections == 4 })
	})
}

// An answer that waits behind what the socket has not taken yet, as a 100 Continue may be,
// comes after that, and once.
func TestGatheredAnswersBehindTheRest(t *testing.T) {
	ways(t, func(t *testing.T, f *front, g *Gather) {
		var peers []*peer
		for range 3 {
			peers = append(peers, f.dial())
		}
		held := f.hold(peers...)
		filled := make([]int, len(peers))
		for i, x := range held {
			x.mu.Lock()
			for len(x.rest) == 0 { // until the socket is full
				b := make([]byte, 64<<10)
				x.write(b, nil)
				filled[i] += len(b)
			}
			x.mu.Unlock()
			x.ReplyIn(g, 200, nil, fmt.Append(nil, "first ", i))
		}
		for i, p := range peers {
			p.send(get("/hold")) // the next request
			if _, err := io.CopyN(io.Discard, p.in, int64(filled[i])); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range held {
			until(t, "the rest to be sent", func() bool {
				x.mu.Lock()
				defer x.mu.Unlock()
				return len(x.rest) == 0
			})
		}
		g.Flush()
		for i, p := range peers {
			p.want(200, fmt.Sprint("first ", i))
		}
		for range peers {
			x := <-f.app.held
			x.ReplyIn(g, 200, nil, []byte("second"))
		}
		g.Flush()
		for _, p := range peers {
			p.want(200, "second")
		}
	})
}
