package server

import (
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
)

// control is what a control event says.
type controlEvent struct {
	StreamNextOffset string
	StreamCursor     string
	UpToDate         bool
	StreamClosed     bool
}

// control reads a control event.
func (s *sse) control() controlEvent {
	s.t.Helper()
	var c controlEvent
	data := s.expect("control")
	if err := stdjson.Unmarshal([]byte(data), &c); err != nil {
		s.t.Fatalf("%v in %s", err, data)
	}
	return c
}

func TestLongPollWaitsForData(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.LongPollTimeout = patience })
	s := n.create(text)
	got := make(chan answer, 1)
	go func() { got <- n.do("GET", s+"?offset=-1&live=long-poll", "") }()
	n.parked(1)
	tail := n.append(s, text, "x")
	a := <-got
	if a.status != 200 || a.body != "x" || a.header.Get("Stream-Next-Offset") != tail || a.header.Get("Stream-Cursor") == "" {
		t.Errorf("got %+v", a)
	}
}

// parked waits until that many live readers are registered.
func (n *node) parked(want int64) {
	n.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		h := n.server.hub
		if h.readers[longPoll].Load()+h.readers[events].Load() == want {
			return
		}
		<-time.After(time.Millisecond)
	}
	n.t.Fatalf("never %d live readers", want)
}

func TestLongPollEnds(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	a := n.want(204, "GET", s+"?offset=-1&live=long-poll", "")
	if a.header.Get("Stream-Up-To-Date") != "true" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Stream-Cursor") == "" {
		t.Errorf("timeout: %v", a.header)
	}
	n.want(204, "GET", s+"?offset=-1&live=long-poll&timeout=0", "")
	n.want(400, "GET", s+"?offset=-1&live=long-poll&timeout=-1", "")
	n.want(400, "GET", s+"?live=long-poll", "")

	a = n.awaits(s, func() { n.want(204, "POST", s, "end", "Content-Type", text, "Stream-Closed", "true") })
	if a.status != 200 || a.body != "end" || a.header.Get("Stream-Closed") != "true" {
		t.Errorf("final append: %+v", a)
	}
	a = n.want(204, "GET", s+"?offset=now&live=long-poll&timeout=60", "")
	if a.header.Get("Stream-Closed") != "true" || a.header.Get("Stream-Up-To-Date") != "true" {
		t.Errorf("closed: %v", a.header)
	}
}

// awaits has a long-poll wait at the tail of s while f happens, and returns its
// answer.
func (n *node) awaits(s string, f func()) answer {
	n.t.Helper()
	got := make(chan answer, 1)
	go func() { got <- n.do("GET", s+"?offset=now&live=long-poll&timeout=9", "") }()
	n.parked(1)
	f()
	return <-got
}

// A deleted stream ends its readers, and none of them sees the next stream of that
// name (field report 64).
func TestField64ReadersEndWithTheirIncarnation(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	a := n.awaits(s, func() {
		n.want(204, "DELETE", s, "")
		n.want(201, "PUT", s, "other", "Content-Type", text)
	})
	if a.status != 404 {
		t.Errorf("long-poll: %+v", a)
	}
	n.want(204, "DELETE", s, "")
	n.want(201, "PUT", s, "first", "Content-Type", text)
	f := fresh()
	n.want(201, "PUT", f, "", "Stream-Forked-From", "/v1/stream/"+s)
	if a = n.awaits(s, func() { n.want(204, "DELETE", s, "") }); a.status != 410 {
		t.Errorf("long-poll, with a fork: %+v", a)
	}
	e := n.follow(f + "?offset=-1&live=sse")
	if got := e.expect("data"); got != "first" {
		t.Errorf("data %q", got)
	}
	e.control()
	n.want(204, "DELETE", f, "")
	if got := e.expect("end"); !strings.Contains(got, "stream_not_found") {
		t.Errorf("end: %s", got)
	}
	e.ends()
}

func TestEvents(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	e := n.follow(s + "?offset=-1&live=sse")
	if c := e.control(); !c.UpToDate || c.StreamClosed || c.StreamCursor == "" {
		t.Errorf("first event: %+v", c)
	}
	tail := n.append(s, json, `[{"a":1},2]`)
	if got := e.expect("data"); got != `[{"a":1},2]` {
		t.Errorf("data %s", got)
	}
	if c := e.control(); !c.UpToDate || c.StreamNextOffset != tail {
		t.Errorf("control %+v", c)
	}
	n.want(204, "POST", s, "3", "Content-Type", json, "Stream-Closed", "true")
	if got := e.expect("data"); got != `[3]` {
		t.Errorf("data %s", got)
	}
	if c := e.control(); !c.UpToDate || !c.StreamClosed || c.StreamCursor != "" {
		t.Errorf("closing control %+v", c)
	}
	e.ends()
	e = n.follow(s+"?offset=-1&live=sse", "Last-Event-ID", tail)
	if got := e.expect("data"); got != `[3]` {
		t.Errorf("resumed: %s", got)
	}
	e.control()
	e.ends()
	e = n.follow(s + "?offset=now&live=sse")
	if c := e.control(); !c.StreamClosed {
		t.Errorf("at the end of a closed stream: %+v", c)
	}
	e.ends()
}

func TestField74BinaryEvents(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(octets)
	var all []byte
	for _, size := range []int{1, 2, 3, 4097, 300000} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(i)
		}
		n.append(s, octets, string(b))
		all = append(all, b...)
	}
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	e := n.follow(s + "?offset=-1&live=sse")
	if e.resp.Header.Get("Stream-SSE-Data-Encoding") != "base64" {
		t.Errorf("%v", e.resp.Header)
	}
	var got []byte
	for closed := false; !closed; {
		b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(e.expect("data"), "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
		c := e.control()
		if want := fmt.Sprintf("%020d", len(got)); c.StreamNextOffset != want {
			t.Fatalf("control at %s, want %s", c.StreamNextOffset, want)
		}
		closed = c.StreamClosed
	}
	if string(got) != string(all) {
		t.Errorf("got %d bytes of %d", len(got), len(all))
	}
}

// The beginning of a character waits for its rest (field report 71).
func TestField71TextIsCutBetweenCharacters(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	e := n.follow(s + "?offset=-1&live=sse")
	e.control()
	n.append(s, text, "a\xe4\xbd")
	if got := e.expect("data"); got != "a" {
		t.Errorf("data %q", got)
	}
	if c := e.control(); c.UpToDate || c.StreamNextOffset != "00000000000000000001" {
		t.Errorf("control %+v", c)
	}
	n.append(s, text, "\xa0\xf0\x9f")
	if got := e.expect("data"); got != "你" {
		t.Errorf("data %q", got)
	}
	e.control()
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	if got := e.expect("data"); !strings.Contains(got, "\ufffd") {
		t.Errorf("dangling bytes at the end: %q", got)
	}
	if c := e.control(); !c.StreamClosed {
		t.Errorf("control %+v", c)
	}
	e.ends()
	if a := n.want(200, "GET", s, ""); a.body != "a你\xf0\x9f" {
		t.Errorf("GET %q", a.body)
	}
}

func TestDanglingTextIsFlushed(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	e := n.follow(s + "?offset=-1&live=sse")
	e.control()
	n.append(s, text, "\xe4\xbd")
	if got := e.expect("data"); !strings.Contains(got, "\ufffd") {
		t.Errorf("data %q", got)
	}
	if c := e.control(); !c.UpToDate || c.StreamNextOffset != "00000000000000000002" {
		t.Errorf("control %+v", c)
	}
}

func TestEventsRotate(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) {
		c.SSEMaxDuration, c.SSEHeartbeat = 1500*time.Millisecond, 200*time.Millisecond
	})
	s := n.create(text)
	e := n.follow(s + "?offset=-1&live=sse")
	e.control()
	if line, err := e.in.ReadString('\n'); err != nil || line[0] != ':' {
		t.Errorf("got %q, %v, want a comment", line, err)
	}
	if line, err := e.in.ReadString('\n'); err != nil || line != "\n" {
		t.Errorf("got %q, %v behind the comment", line, err)
	}
	if c := e.control(); !c.UpToDate || c.StreamClosed {
		t.Errorf("last control: %+v", c)
	}
	e.ends()
}

// Every reader of a stream is woken, whichever way it follows (field report 62).
func TestField62EveryReaderIsWoken(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.LongPollTimeout = patience })
	s := n.create(text)
	const each = 100
	var wg sync.WaitGroup
	for range each {
		e := n.follow(s + "?offset=now&live=sse")
		wg.Go(func() {
			e.control()
			if got := e.expect("data"); got != "news" {
				t.Errorf("sse: %q", got)
			}
		})
		wg.Go(func() {
			if a := n.do("GET", s+"?offset=now&live=long-poll", ""); a.body != "news" {
				t.Errorf("long-poll: %+v", a)
			}
		})
	}
	n.parked(2 * each)
	n.append(s, text, "news")
	wg.Wait()
	n.parked(each)
}

// An append that races with the beginning of a wait is either in its answer or
// before where it began; the wait does not miss it (field report 58).
func TestField58NowRacesWithAppends(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(octets)
	for range 300 {
		got := make(chan answer)
		go func() { got <- n.do("GET", s+"?offset=now&live=long-poll&timeout=9", "") }()
		for waits := true; waits; {
			next := n.append(s, octets, "m")
			select {
			case a := <-got:
				if a.status != 200 || a.body == "" || a.header.Get("Stream-Next-Offset") > next {
					t.Fatalf("got %+v, the tail is %s", a, next)
				}
				waits = false
			default:
			}
		}
	}
}

// Readers whose client has left are forgotten (field report 65).
func TestField65ReadersThatLeaveAreForgotten(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.LongPollTimeout = time.Minute })
	s := n.create(text)
	var conns []*rawConn
	for i := range 50 {
		c := n.dial()
		c.printf("GET /v1/stream/%s?offset=now&live=%s HTTP/1.1\r\nHost: x\r\n\r\n", s, []string{"sse", "long-poll"}[i%2])
		conns = append(conns, c)
	}
	n.parked(50)
	for _, c := range conns {
		c.net.Close()
	}
	n.parked(0)
	n.append(s, text, "x")
}

// A drain gives every live reader its last event or answer, lets writes finish, and
// ends in time (field report 80).
func TestField80Drain(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.LongPollTimeout = time.Minute })
	s := n.create(text)
	var wg sync.WaitGroup
	for range 20 {
		e := n.follow(s + "?offset=now&live=sse")
		wg.Go(func() {
			e.control()
			e.control()
			if got := e.expect("end"); !strings.Contains(got, "draining") {
				t.Errorf("end: %s", got)
			}
			e.ends()
		})
		wg.Go(func() {
			if a, err := n.try("GET", s+"?offset=now&live=long-poll", ""); err != nil || a.status != 204 {
				t.Errorf("long-poll: %+v, %v", a, err)
			}
		})
	}
	n.parked(40)
	began := time.Now()
	n.drain(4 * time.Second)
	wg.Wait()
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("took %v", d)
	}
	if n.server.Ready() == nil {
		t.Error("still ready")
	}
}
