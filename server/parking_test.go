package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/invariants"
)

func TestParkedRequests(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	p.send(get("/poll"))
	until(t, "the request to park", func() bool { return f.Stats().Parked == 1 })
	var x *Exchange
	var ticket uint32
	f.app.mu.Lock()
	for x, ticket = range f.app.parked {
	}
	f.app.mu.Unlock()
	if x.ReplyTicket(ticket+1, 200, nil, nil) {
		t.Error("a wrong ticket was taken")
	}
	var wins sync.WaitGroup
	results := make(chan bool, 8)
	for i := range cap(results) {
		wins.Go(func() { results <- x.ReplyTicket(ticket, 200, nil, fmt.Appendf(nil, "from %d", i)) })
	}
	wins.Wait()
	close(results)
	n := 0
	for won := range results {
		if won {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of %d answers won", n, cap(results))
	}
	if _, body := p.read(); !strings.HasPrefix(body, "from ") {
		t.Errorf("got %q", body)
	}
	p.send(get("/next"))
	p.want(200, digest("GET", "/next", nil))
	if f.app.ended.Load() != 0 || f.Stats().Parked != 0 {
		t.Errorf("ended %d, %+v", f.app.ended.Load(), f.Stats())
	}
	f.app.forget(x)
}

func TestField65ParkedClientsThatLeave(t *testing.T) {
	f := startFront(t, TransportConfig{})
	const n = 300
	var peers []*peer
	for i := range n {
		p := f.dial()
		p.send(get([]string{"/poll", "/sse"}[i%2]))
		peers = append(peers, p)
	}
	until(t, "all to wait", func() bool { s := f.Stats(); return s.Parked == n/2 && s.Streams == n/2 })
	for i, p := range peers {
		if i%3 == 0 {
			_ = p.SetLinger(0)
		}
		p.Close()
	}
	until(t, "all to be forgotten", func() bool { return f.Stats().Connections == 0 && f.app.ended.Load() == n })
	if got := f.app.answerParked("x"); got != 0 || len(f.app.live()) != 0 {
		t.Errorf("%d parked clients that have gone were answered, %d streams are open", got, len(f.app.live()))
	}
}

func TestStreams(t *testing.T) {
	f := startFront(t, TransportConfig{})
	for _, old := range []bool{false, true} {
		p := f.dial()
		if old {
			p.send("GET /sse HTTP/1.0\r\n\r\n")
		} else {
			p.send(get("/sse") + get("/next"))
		}
		r, err := http.ReadResponse(p.in, nil)
		if err != nil || r.Header.Get("Content-Type") != "text/event-stream" || len(r.TransferEncoding) == 1 == old {
			t.Fatal(r, err)
		}
		x := f.app.live()[0]
		want := ""
		for i := range 100 {
			frame := fmt.Sprintf("data: %s\n\n", strings.Repeat("f", i*400))
			want += frame
			if got := x.Send([]byte(frame)); got == Gone {
				t.Fatal("gone")
			}
			b := make([]byte, len(frame))
			if _, err := io.ReadFull(r.Body, b); err != nil || string(b) != frame {
				t.Fatalf("frame %d: %.100q, %v", i, b, err)
			}
		}
		if !x.EndStream([]byte("last")) || x.EndStream(nil) || x.Send([]byte("x")) != Gone {
			t.Error("the stream did not end once")
		}
		f.app.forget(x)
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "last" {
			t.Fatalf("%q, %v", b, err)
		}
		if old {
			p.wantEnd()
		} else {
			p.want(200, digest("GET", "/next", nil))
		}
	}
	if f.app.ended.Load() != 0 {
		t.Error("onEnd was called for streams that ended")
	}
}

// Readers that don't read hold up nobody, are told apart from those that do, and are cut off in time.
func TestField79SlowReaders(t *testing.T) {
	stall := time.Second
	if invariants.Enabled { // under the race detector even the fast ones are slow
		stall = 5 * time.Second
	}
	f := startFront(t, TransportConfig{StallTimeout: stall})
	const slow, fast, frames = 5, 20, 400
	frame := append(bytes.Repeat([]byte("d"), 16<<10-2), "\n\n"...)
	for range slow {
		p := f.dial()
		_ = p.SetReadBuffer(4 << 10)
		p.send(get("/sse"))
	}
	until(t, "the slow streams to open", func() bool { return f.Stats().Streams == slow })
	slowStreams := f.app.live()
	var readers sync.WaitGroup
	for range fast {
		p := f.dial()
		p.send(get("/sse"))
		readers.Go(func() {
			r, err := http.ReadResponse(p.in, nil)
			if err != nil {
				t.Error(err)
				return
			}
			br := bufio.NewReaderSize(r.Body, len(frame))
			for range frames {
				b := make([]byte, len(frame))
				if _, err := io.ReadFull(br, b); err != nil || !bytes.Equal(b, frame) {
					t.Errorf("a fast reader: %v", err)
					return
				}
			}
		})
	}
	until(t, "all streams to open", func() bool { return f.Stats().Streams == slow+fast })

	// Each stream is a chain: the next frame is sent when the one before has left.
	var wg sync.WaitGroup
	for _, x := range f.app.live() {
		wg.Add(1)
		left := frames
		var mu sync.Mutex
		next := func() {
			mu.Lock()
			defer mu.Unlock()
			for left > 0 {
				left--
				switch x.Send(frame) {
				case Pending:
					return
				case Gone:
					left = 0
				}
			}
			if left == 0 {
				left = -1
				wg.Done()
			}
		}
		x.OnWritable(next)
		go next()
	}
	readers.Wait()
	until(t, "the slow readers to be cut off", func() bool { return f.Stats().SlowConsumer == slow && f.app.ended.Load() >= slow })
	for _, x := range slowStreams {
		if x.Send(frame) != Gone {
			t.Error("a slow reader is still there")
		}
	}
}

func TestStalledLargeAnswer(t *testing.T) {
	f := startFront(t, TransportConfig{StallTimeout: 300 * time.Millisecond})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	f.app.file.Store(file)
	for i, path := range []string{"/big?67108864", "/chunked?67108864", "/file?67108864", "/answer?67108864"} {
		p := f.dial()
		_ = p.SetReadBuffer(4 << 10)
		p.send(get(path))
		until(t, path+" to be cut off", func() bool { return f.Stats().SlowConsumer == uint64(i+1) })
		until(t, path+" to end", func() bool { return f.Stats().Connections == 0 })
	}
}

// A client that goes in the middle of a file is no fault of the file.
func TestFileForAClientThatGoes(t *testing.T) {
	f := startFront(t, TransportConfig{})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	f.app.file.Store(file)
	for range 50 {
		p := f.dial()
		p.send(get("/file?67108864"))
		if _, err := io.ReadFull(p.in, make([]byte, 1<<20)); err != nil { // it is under way
			t.Fatal(err)
		}
		_ = p.SetLinger(0)
		_ = p.Close()
		if err := <-f.app.sent; err != ErrGone {
			t.Fatalf("SendFile: %v", err)
		}
	}
}

// A parked connection holds no buffer and no goroutine: what it costs is a few structs, most of them netpoll's.
func TestParkedConnectionsAreSmall(t *testing.T) {
	f := startFront(t, TransportConfig{})
	const n = 2000
	head := "GET /poll HTTP/1.1\r\nHost: a\r\nUser-Agent: " + strings.Repeat("u", 200) + "\r\n\r\n"
	open := func() {
		for range n {
			f.dial().send(head)
		}
	}
	open() // the first ones pay for pools and the client's side
	until(t, "the first to park", func() bool { return f.Stats().Parked == n })
	before, goroutines := heap(), running()
	open()
	until(t, "all to park", func() bool { return f.Stats().Parked == 2*n })
	until(t, "buffers to be given back", func() bool {
		f.reclaimMu.Lock()
		defer f.reclaimMu.Unlock()
		return len(f.reclaimList) == 0
	})
	each := (heap() - before) / n
	t.Logf("%d bytes of heap for each connection and its client", each)
	// The client takes a bufio.Reader of 4 KiB, a net.Conn, and a clean-up.
	if each > 10<<10 {
		t.Errorf("%d bytes for each connection", each)
	}
	if got := running(); got > goroutines+10 {
		t.Errorf("%d goroutines more", got-goroutines)
	}
}
