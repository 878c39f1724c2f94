package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
)

// patience bounds every wait of these tests.
const patience = 10 * time.Second

// node is a whole server on a port of its own, over an engine in a directory of
// its own.
type node struct {
	t      testing.TB
	url    string // of the flat surface
	addr   string
	dir    string // of the engine's data
	server *Server
	engine *engine.Engine
	client *http.Client
	stop   func() // once; the test's end does it too

	drained bool
	fails   bool // its engine has failed when the test ends
}

// drain drains the server, once.
func (n *node) drain(within time.Duration) {
	if n.drained {
		return
	}
	n.drained = true
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := n.server.Drain(ctx); err != nil {
		n.t.Logf("drain: %v", err)
	}
}

// newNode starts a node; change, if given, adjusts what it is started with.
func newNode(t testing.TB, change func(*Config, *engine.Options)) *node {
	t.Helper()
	return openNode(t, t.TempDir(), change)
}

// openNode starts a node on a directory that is there already.
func openNode(t testing.TB, dir string, change func(*Config, *engine.Options)) *node {
	t.Helper()
	cfg := Config{LongPollTimeout: 200 * time.Millisecond, MaxBodyBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
	opts := engine.Options{
		Shards: 1, WALFileBytes: 4 << 20, WALMaxBytes: 16 << 20, MemtableBytes: 8 << 20, SegmentMaxBytes: 8 << 20,
		MaxBodyBytes: 1 << 20, Logger: cfg.Logger,
	}
	if change != nil {
		change(&cfg, &opts)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Host(&opts)
	e, err := engine.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(e); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, addr: ln.Addr().String(), dir: dir, server: s, engine: e}
	n.url = "http://" + n.addr + "/v1/stream/"
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	n.client = &http.Client{Transport: tr, Timeout: patience}
	n.stop = sync.OnceFunc(func() {
		tr.CloseIdleConnections()
		n.drain(time.Second)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := e.Close(); err != nil && !n.fails {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

var streams atomic.Uint64

// fresh returns the name of a stream that nobody has used.
func fresh() string { return fmt.Sprintf("s%d", streams.Add(1)) }

// answer is a response that has been read.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request. headers are name, value, name, value.
func (n *node) do(method, path, body string, headers ...string) answer {
	n.t.Helper()
	a, err := n.try(method, path, body, headers...)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (n *node) try(method, path, body string, headers ...string) (answer, error) {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, n.url+path, in)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// want sends a request and fails the test unless it is answered with status.
func (n *node) want(status int, method, path, body string, headers ...string) answer {
	n.t.Helper()
	a := n.do(method, path, body, headers...)
	if a.status != status {
		n.t.Fatalf("%s %s %q: status %d, want %d: %s", method, path, headers, a.status, status, a.body)
	}
	return a
}

const (
	text   = "text/plain"
	json   = "application/json"
	octets = "application/octet-stream"
)

// create makes a stream of a content type and returns its name.
func (n *node) create(contentType string) string {
	n.t.Helper()
	s := fresh()
	n.want(201, "PUT", s, "", "Content-Type", contentType)
	return s
}

// append appends and returns the next offset.
func (n *node) append(s, contentType, body string) string {
	n.t.Helper()
	return n.want(204, "POST", s, body, "Content-Type", contentType).header.Get("Stream-Next-Offset")
}

// sse is an event stream that is being read.
type sse struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
}

// received is one server-sent event.
type received struct{ name, data, id string }

// follow opens an event stream.
func (n *node) follow(path string, headers ...string) *sse {
	n.t.Helper()
	req, err := http.NewRequest("GET", n.url+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := n.client.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		n.t.Fatalf("%s: status %d, %v", path, resp.StatusCode, resp.Header)
	}
	return &sse{n.t, resp, bufio.NewReader(resp.Body)}
}

// next returns the next event; false at the end of the stream.
func (s *sse) next() (received, bool) {
	s.t.Helper()
	var e received
	for lines := 0; ; lines++ {
		line, err := s.in.ReadString('\n')
		if err == io.EOF && line == "" && lines == 0 {
			return received{}, false
		}
		if err != nil {
			s.t.Fatalf("event stream: %v after %q", err, line)
		}
		if line = line[:len(line)-1]; line == "" {
			if e.name == "" && e.data == "" {
				lines = -1 // a comment has gone by
				continue
			}
			return e, true
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "data":
			if e.data != "" {
				e.data += "\n"
			}
			e.data += value
		case "id":
			e.id = value
		}
	}
}

// expect fails the test unless the next event has that name, and returns its data.
func (s *sse) expect(name string) string {
	s.t.Helper()
	e, ok := s.next()
	if !ok || e.name != name {
		s.t.Fatalf("got event %+v (%v), want %q", e, ok, name)
	}
	return e.data
}

// ends fails the test unless the stream ends here.
func (s *sse) ends() {
	s.t.Helper()
	if e, ok := s.next(); ok {
		s.t.Fatalf("got event %+v, want the end", e)
	}
}
