package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testLimit bounds all waiting of the transport's tests.
const testLimit = 30 * time.Second

// app is a Handler that does by path what a test wants to see.
type app struct {
	t    testing.TB
	file atomic.Pointer[os.File] // for /file

	mu      sync.Mutex
	parked  map[*Exchange]uint32
	streams map[*Exchange]struct{}

	held    chan *Exchange // /hold: the test answers
	entered chan string    // /block: Serve has begun, off the poller
	release chan struct{}  // /block: it may answer
	sent    chan error     // /file: what SendFile returned
	ended   atomic.Int64   // calls of onEnd
	heads   atomic.Int64   // calls of Head
	inline  atomic.Int64   // requests served inline
	owned   atomic.Int64   // bodies that were owned
}

var appendFields = []byte("Stream-Next-Offset: 00000000000000000256\r\n")

// digest is what most paths answer.
func digest(method, target string, body []byte) string {
	return fmt.Sprintf("%s %s %d %x", method, target, len(body), sha256.Sum256(body))
}

func (a *app) Head(x *Exchange) (int64, bool) {
	a.heads.Add(1)
	switch string(x.Request().Path) {
	case "/refuse":
		x.Reply(404, []byte("X-Why: refused\r\n"), []byte("no such thing"))
		return 0, false
	case "/small":
		return 1000, true
	case "/pieces", "/pieces-unread":
		x.StreamBody()
	}
	return 256 << 20, true
}

func (a *app) Serve(x *Exchange) {
	q := x.Request()
	if x.Inline() {
		a.inline.Add(1)
	}
	if x.BodyOwned() {
		a.owned.Add(1)
	}
	if string(q.Path) == "/append" {
		x.Reply(204, appendFields, nil)
		return
	}
	n, _ := strconv.Atoi(string(q.Query))
	switch string(q.Path) {
	case "/go":
		x.Go(func() { a.digest(x) })
	case "/defer":
		x.Defer()
		text := digest(string(q.Method), string(q.Target), x.Body())
		go x.Reply(200, nil, []byte(text))
	case "/hold":
		x.Defer()
		a.held <- x
	case "/block":
		target := string(q.Target)
		x.Go(func() {
			a.entered <- target
			<-a.release
			x.Reply(200, nil, []byte("unblocked"))
		})
	case "/poll":
		a.park(x)
	case "/sse":
		a.stream(x)
	case "/big", "/chunked", "/file", "/short", "/abort":
		path := string(q.Path)
		x.Go(func() { a.large(x, path, int64(n)) })
	case "/pieces":
		a.pieces(x)
	case "/pieces-unread":
		x.Reply(409, nil, []byte("enough"))
	case "/panic":
		panic("as the test wants it")
	case "/panic-late":
		x.Reply(200, nil, []byte("late"))
		panic("as the test wants it")
	case "/silent":
	case "/head":
		x.ReplyHead(200, []byte("X-A: b\r\n"), int64(n))
	case "/answer":
		x.Reply(200, nil, bytes.Repeat([]byte("y"), n))
	case "/keep":
		k := [2][]byte{x.Keep([]byte("abc")), x.Keep(bytes.Repeat([]byte("d"), 5000))}
		x.Defer()
		go func() { x.Reply(200, nil, bytes.Join(k[:], nil)) }()
	default:
		a.digest(x)
	}
}

func (a *app) digest(x *Exchange) {
	q := x.Request()
	x.Reply(200, nil, []byte(digest(string(q.Method), string(q.Target), x.Body())))
}

func (a *app) park(x *Exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ticket := x.Ticket()
	if x.Park(func() {
		a.ended.Add(1)
		a.mu.Lock()
		delete(a.parked, x)
		a.mu.Unlock()
	}) {
		a.parked[x] = ticket
	}
}

func (a *app) stream(x *Exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.Stream([]byte("Content-Type: text/event-stream\r\n"), func() {
		a.ended.Add(1)
		a.mu.Lock()
		delete(a.streams, x)
		a.mu.Unlock()
	}) {
		a.streams[x] = struct{}{}
	}
}

func (a *app) large(x *Exchange, path string, n int64) {
	length := n
	if path == "/chunked" || path == "/abort" {
		length = -1
	}
	if x.StartBody(200, nil, length) != nil {
		return
	}
	if path == "/file" {
		err := x.SendFile(a.file.Load().Fd(), 0, n)
		if err == nil {
			x.EndBody()
		}
		a.sent <- err
		return
	}
	piece := bytes.Repeat([]byte("0123456789abcdef"), 40<<10)
	if path == "/short" {
		n /= 2
	}
	for ; n > 0; n -= int64(len(piece)) {
		if x.Write(piece[:min(n, int64(len(piece)))]) != nil {
			return
		}
	}
	if path == "/abort" {
		x.Abort()
		return
	}
	x.EndBody()
}

func (a *app) pieces(x *Exchange) {
	target := string(x.Request().Target)
	h := sha256.New()
	buf := make([]byte, 64<<10)
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{bodyReader{x}}, buf)
	if err == nil {
		x.Reply(200, nil, fmt.Appendf(nil, "POST %s %d %x", target, n, h.Sum(nil)))
	}
}

type bodyReader struct{ x *Exchange }

func (r bodyReader) Read(p []byte) (int, error) { return r.x.ReadBody(p) }

func (a *app) Malformed(status int, code, detail string) (fields, body []byte) {
	return []byte("X-Code: " + code + "\r\n"), []byte(detail)
}

// answerParked answers all parked requests and returns how many.
func (a *app) answerParked(text string) int {
	a.mu.Lock()
	parked := make(map[*Exchange]uint32, len(a.parked))
	for x, ticket := range a.parked {
		parked[x] = ticket
	}
	clear(a.parked)
	a.mu.Unlock()
	n := 0
	for x, ticket := range parked {
		if x.ReplyTicket(ticket, 200, nil, []byte(text)) {
			n++
		}
	}
	return n
}

// forget takes x, which has been answered, off the books.
func (a *app) forget(x *Exchange) {
	a.mu.Lock()
	delete(a.parked, x)
	delete(a.streams, x)
	a.mu.Unlock()
}

// live returns the open streams.
func (a *app) live() []*Exchange {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*Exchange
	for x := range a.streams {
		list = append(list, x)
	}
	return list
}

// front is a transport under test.
type front struct {
	*Transport
	app  *app
	addr string
	t    testing.TB
	done chan error // Serve's result
}

// startFront starts a transport on a port of its own, which is drained at the end of the test.
func startFront(t testing.TB, cfg TransportConfig) *front {
	a := &app{
		t: t, parked: map[*Exchange]uint32{}, streams: map[*Exchange]struct{}{},
		held: make(chan *Exchange, 100), entered: make(chan string, 100), sent: make(chan error, 100), release: make(chan struct{}),
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := NewTransport(cfg, a)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{Transport: s, app: a, addr: ln.Addr().String(), t: t, done: make(chan error, 1)}
	go func() { f.done <- s.Serve(ln) }()
	t.Cleanup(func() {
		if s.Draining() {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // whatever is left is cut
		_ = s.Drain(ctx)
		if err := <-f.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if n := s.Stats(); n.Connections != 0 || n.Parked != 0 || n.Streams != 0 {
			t.Errorf("left after the drain: %+v", n)
		}
		until(t, "goroutines to give their bodies back", func() bool { return s.Stats().InflightBody == 0 })
	})
	return f
}

// peer is a client that writes what it likes.
type peer struct {
	*net.TCPConn
	t  testing.TB
	in *bufio.Reader
}

func (f *front) dial() *peer {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testLimit)); err != nil {
		f.t.Fatal(err)
	}
	return &peer{TCPConn: c.(*net.TCPConn), t: f.t, in: bufio.NewReader(c)}
}

func (p *peer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		p.t.Fatal(err)
	}
}

// read reads one answer, and fails the test if there is none.
func (p *peer) read() (*http.Response, string) {
	p.t.Helper()
	return p.readTo("GET")
}

func (p *peer) readTo(method string) (*http.Response, string) {
	p.t.Helper()
	r, err := http.ReadResponse(p.in, &http.Request{Method: method})
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r, string(body)
}

// want reads one answer and compares it.
func (p *peer) want(status int, body string) *http.Response {
	p.t.Helper()
	r, got := p.read()
	if r.StatusCode != status || got != body {
		p.t.Fatalf("got %d %.200q, want %d %.200q", r.StatusCode, got, status, body)
	}
	return r
}

// wantEnd expects the end of the connection, after nothing else.
func (p *peer) wantEnd() {
	p.t.Helper()
	if b, err := io.ReadAll(p.in); err != nil || len(b) > 0 {
		p.t.Fatalf("%q, %v instead of the end", b, err)
	}
}

// until waits for a condition that nothing tells about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(testLimit)
	defer limit.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func post(target string, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n" }

func TestAnswers(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	p.send(post("/append", "abc"))
	r := p.want(204, "")
	if r.Header.Get("Stream-Next-Offset") == "" || r.Header.Get("Date") == "" || r.Header.Get("Content-Length") != "" || r.Close {
		t.Errorf("headers %v", r.Header)
	}
	for _, path := range []string{"/", "/go", "/defer"} {
		p.send(post(path, "abc"))
		p.want(200, digest("POST", path, []byte("abc")))
	}
	p.send("HEAD /answer?5 HTTP/1.1\r\nHost: a\r\n\r\n")
	if r, body := p.readTo("HEAD"); r.ContentLength != 5 || body != "" {
		t.Errorf("HEAD: length %d, body %q", r.ContentLength, body)
	}
	p.send("HEAD /head?77 HTTP/1.1\r\nHost: a\r\n\r\n")
	if r, _ := p.readTo("HEAD"); r.ContentLength != 77 {
		t.Errorf("HEAD: length %d", r.ContentLength)
	}
	p.send("HEAD /big?1000000 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /chunked?1000000 HTTP/1.1\r\nHost: a\r\n\r\n")
	if r, _ := p.readTo("HEAD"); r.ContentLength != 1000000 {
		t.Errorf("HEAD: length %d", r.ContentLength)
	}
	if r, _ := p.readTo("HEAD"); len(r.TransferEncoding) != 1 {
		t.Errorf("HEAD: %v", r.TransferEncoding)
	}
	p.send(get("/keep"))
	p.want(200, "abc"+strings.Repeat("d", 5000))
	p.send(get("/answer?100000"))
	p.want(200, strings.Repeat("y", 100000))
	p.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if r := p.want(200, digest("GET", "/", nil)); !r.Close {
		t.Error("no Connection: close")
	}
	p.wantEnd()
}

func TestHTTP10(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	p.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if r := p.want(200, digest("GET", "/a", nil)); r.Proto != "HTTP/1.0" || r.Header.Get("Connection") != "keep-alive" {
		t.Errorf("%s %v", r.Proto, r.Header)
	}
	p.send("GET /chunked?100000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	r, body := p.read()
	if len(r.TransferEncoding) != 0 || len(body) != 100000 {
		t.Errorf("%v, %d bytes", r.TransferEncoding, len(body))
	}
	p.wantEnd()
	p = f.dial()
	p.send("GET /abort?100000 HTTP/1.0\r\n\r\n")
	if b, err := io.ReadAll(p.in); err == nil {
		t.Errorf("an aborted answer of %d bytes looks complete", len(b))
	}
}

func TestLargeAnswers(t *testing.T) {
	const size = 20 << 20
	f := startFront(t, TransportConfig{})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if _, err := file.Write(want); err != nil {
		t.Fatal(err)
	}
	f.app.file.Store(file)
	p := f.dial()
	for _, path := range []string{"/big?", "/chunked?", "/file?"} {
		p.send(get(path+strconv.Itoa(size)) + get("/next"))
		if _, body := p.read(); body != string(want) {
			t.Errorf("%s: other bytes, %d of them", path, len(body))
		}
		p.want(200, digest("GET", "/next", nil))
	}
	for _, path := range []string{"/short?", "/abort?"} {
		p := f.dial()
		p.send(get(path + strconv.Itoa(size)))
		r, err := http.ReadResponse(p.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Errorf("%s: %d bytes look complete", path, n)
		}
	}
}

func TestPanics(t *testing.T) {
	f := startFront(t, TransportConfig{})
	for _, path := range []string{"/panic", "/silent"} {
		p := f.dial()
		p.send(get(path) + get("/next"))
		if r, _ := p.read(); r.StatusCode != 500 || !r.Close {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
		p.wantEnd()
	}
	p := f.dial()
	p.send(get("/panic-late"))
	p.want(200, "late")
	p.wantEnd()
	p = f.dial()
	p.send(get("/"))
	p.want(200, digest("GET", "/", nil))
}

func TestConnectionCap(t *testing.T) {
	f := startFront(t, TransportConfig{MaxConnections: 10})
	var open []*peer
	for range 10 {
		p := f.dial()
		p.send(get("/"))
		p.want(200, digest("GET", "/", nil))
		open = append(open, p)
	}
	for range 15 {
		p := f.dial()
		if _, err := p.in.ReadByte(); err == nil {
			t.Fatal("a connection beyond the cap was served")
		}
	}
	if n := f.Stats(); n.Connections != 10 || n.Refused != 15 {
		t.Errorf("%+v", n)
	}
	open[0].Close()
	until(t, "the connection to end", func() bool { return f.Stats().Connections == 9 })
	p := f.dial()
	p.send(get("/"))
	p.want(200, digest("GET", "/", nil))
}
