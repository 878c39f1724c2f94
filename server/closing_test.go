package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func heap() int64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func running() int { return runtime.NumGoroutine() }

// A client that ends its side right behind the request gets its answer, whoever gives it, and others don't notice.
func TestHalfClose(t *testing.T) {
	f := startFront(t, TransportConfig{})
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	stop := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() {
		p := f.dial()
		for {
			select {
			case <-stop:
				return
			default:
			}
			p.send(get("/ping"))
			p.want(200, digest("GET", "/ping", nil))
		}
	})
	large := strings.Repeat("l", 100_000)
	for i := range rounds {
		p := f.dial()
		var want []string
		switch i % 5 {
		case 0:
			p.send(post("/append", "abc"))
			want = []string{"204 No Content"}
		case 1:
			p.send(post("/defer", "abc"))
			want = []string{digest("POST", "/defer", []byte("abc"))}
		case 2:
			p.send(post("/go", "abc") + get("/defer") + get("/echo"))
			want = []string{digest("POST", "/go", []byte("abc")), digest("GET", "/defer", nil), digest("GET", "/echo", nil)}
		case 3:
			p.send(post("/large", large))
			want = []string{digest("POST", "/large", []byte(large))}
		case 4: // the answer comes long after the end
			p.send(post("/hold", "abc"))
			want = []string{"held"}
		}
		if err := p.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if i%5 == 4 {
			x := <-f.app.held
			if i%2 == 0 {
				until(t, "the end of the peer's side to be noticed", func() bool {
					x.mu.Lock()
					defer x.mu.Unlock()
					return x.orphan
				})
			}
			x.Reply(200, nil, []byte("held"))
		}
		b, err := io.ReadAll(p.in)
		if err != nil {
			t.Fatalf("round %d: %v after %q", i, err, b)
		}
		for _, w := range want {
			if !strings.Contains(string(b), w) {
				t.Fatalf("round %d: %q is not in %q", i, w, b)
			}
		}
		p.Close()
	}
	close(stop)
	pings.Wait()
	p := f.dial() // a large answer after the end
	p.send(get("/big?10000000"))
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, body := p.read(); len(body) != 10000000 {
		t.Errorf("%d bytes", len(body))
	}
	p.wantEnd()
	until(t, "all connections to end", func() bool { return f.Stats().Connections <= 1 })
}

// A client that has ended its side can't wait: its connection ends instead.
func TestHalfClosedClientsDoNotPark(t *testing.T) {
	f := startFront(t, TransportConfig{})
	for _, path := range []string{"/poll", "/sse"} {
		p := f.dial()
		p.send(get("/hold") + get(path))
		x := <-f.app.held
		if err := p.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of the peer's side to be noticed", func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.orphan
		})
		x.Reply(200, nil, []byte("held"))
		p.want(200, "held")
		p.wantEnd()
	}
	until(t, "all connections to end", func() bool { return f.Stats().Connections == 0 })
	if n := f.app.ended.Load(); n != 0 {
		t.Errorf("onEnd was called %d times", n)
	}
}

func TestField80Shutdown(t *testing.T) {
	f := startFront(t, TransportConfig{})
	var parked, streaming, idle []*peer
	for range 10 {
		p := f.dial()
		p.send(get("/poll") + get("/never"))
		parked = append(parked, p)
		p = f.dial()
		p.send(get("/sse"))
		streaming = append(streaming, p)
		p = f.dial()
		p.send(get("/"))
		p.want(200, digest("GET", "/", nil))
		idle = append(idle, p)
	}
	busy := f.dial()
	busy.send(get("/block"))
	<-f.app.entered
	half := f.dial()
	half.send("GET /half HTTP/1.1\r\n")
	until(t, "all to wait", func() bool { s := f.Stats(); return s.Parked == 10 && s.Streams == 10 && s.Connections == 32 })
	until(t, "half a head to arrive", func() bool {
		return slices.ContainsFunc(f.snapshot(), func(x *Exchange) bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.st == stIdle && len(x.pend) > 0
		})
	})
	drained := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	defer cancel()
	go func() { drained <- f.Drain(ctx) }()
	for _, p := range idle {
		p.wantEnd()
	}
	if err := <-f.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", f.addr); err == nil {
		c.Close()
		t.Error("a connection was accepted")
	}
	half.send("Host: a\r\n\r\n")
	if r := half.want(200, digest("GET", "/half", nil)); !r.Close {
		t.Error("no Connection: close")
	}
	half.wantEnd()
	if n := f.app.answerParked("done"); n != 10 {
		t.Errorf("%d were parked", n)
	}
	for _, x := range f.app.live() {
		x.EndStream([]byte("bye"))
	}
	for i := range parked {
		if r := parked[i].want(200, "done"); !r.Close {
			t.Error("no Connection: close")
		}
		parked[i].wantEnd()
		streaming[i].want(200, "bye")
		streaming[i].wantEnd()
	}
	close(f.app.release)
	busy.want(200, "unblocked")
	if err := <-drained; err != nil {
		t.Errorf("Drain: %v", err)
	}
	if n := f.Stats(); n.Connections != 0 || f.app.ended.Load() != 0 {
		t.Errorf("%+v, %d ended", n, f.app.ended.Load())
	}
}

// What doesn't end by itself is cut at the end of the time.
func TestShutdownDeadline(t *testing.T) {
	f := startFront(t, TransportConfig{})
	held := f.dial()
	held.send(get("/hold"))
	x := <-f.app.held
	parked := f.dial()
	parked.send(get("/poll"))
	upload := f.dial()
	upload.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc")
	stalled := f.dial()
	_ = stalled.SetReadBuffer(4 << 10)
	stalled.send(get("/big?50000000"))
	until(t, "all to be under way", func() bool { s := f.Stats(); return s.Parked == 1 && s.Connections == 4 && s.InflightBody > 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := f.Drain(ctx); err != context.DeadlineExceeded {
		t.Errorf("Drain: %v", err)
	}
	<-f.done
	x.Reply(200, nil, nil) // too late, and harmless
	for _, p := range []*peer{held, parked, upload} {
		p.wantEnd()
	}
	if n := f.Stats(); n.Connections != 0 || f.app.ended.Load() != 1 {
		t.Errorf("%+v, %d ended", n, f.app.ended.Load())
	}
}

func TestRinger(t *testing.T) {
	f := startFront(t, TransportConfig{})
	turns := make(chan int)
	n := 0
	ring, err := f.NewRinger(func() {
		n++ // never concurrently
		select {
		case turns <- n:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				ring()
			}
		})
	}
	wg.Wait()
	got := make(chan int)
	go func() { got <- <-turns }()
	until(t, "a turn", func() bool {
		ring()
		select {
		case k := <-got:
			return k > 0
		default:
			return false
		}
	})
}

// When there is no descriptor for a connection, it is closed, and later ones are served (field reports, 131).
func TestField131NoDescriptorLeft(t *testing.T) {
	f := startFront(t, TransportConfig{})
	first := f.dial() // all is set up once it is served
	first.send(get("/"))
	first.want(200, digest("GET", "/", nil))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	defer restore()
	until(t, "a connection to be refused", func() bool {
		lowest, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(lowest); err != nil {
			t.Fatal(err)
		}
		// One is left, for the client.
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest) + 1, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", f.addr)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(testLimit))
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			_, err = io.ReadAll(c) // an answer, if a descriptor has come free meanwhile
			c.Close()
			if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
				t.Fatal("a connection was left waiting")
			}
		}
		restore()
		return f.Stats().Refused > 0
	})
	p := f.dial()
	p.send(get("/"))
	p.want(200, digest("GET", "/", nil))
}
