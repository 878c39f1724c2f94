package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
)

// ahead returns a clock for an engine, and what puts it forward. Timers don't see that, so
// that streams are overdue until somebody asks for them.
func ahead() (now func() time.Time, forward func(time.Duration)) {
	var by atomic.Int64
	now = func() time.Time { return time.Now().Add(time.Duration(by.Load())) }
	return now, func(d time.Duration) { by.Add(int64(d)) }
}

// A stream whose deadline has passed does not exist, whatever else is wrong with a request, and
// does not count.
func TestExpiredComesFirst(t *testing.T) {
	now, forward := ahead()
	n := newNode(t, func(_ *Config, o *engine.Options) { o.Now = now }).on("expired")
	count := func(want int) {
		t.Helper()
		a := n.root().want(200, "GET", "expired", "")
		if !strings.Contains(a.body, fmt.Sprintf(`"streams":%d,`, want)) {
			t.Errorf("%s, want %d streams", a.body, want)
		}
	}
	for _, c := range []struct{ method, path, body, header, value string }{
		{"GET", "", "", "", ""},
		{"HEAD", "", "", incarnation, "1"},
		{"GET", "", "", incarnation, "1"},
		{"GET", "?offset=99", "", "", ""},
		{"GET", "?offset=x", "", "", ""},
		{"GET", "?record=99", "", "", ""},
		{"GET", "?offset=99&live=sse", "", "", ""},
		{"GET", "/attrs", "", incarnation, "1"},
		{"HEAD", "/attrs", "", "", ""},
		{"PUT", "/attrs", "[]", "", ""},
		{"GET", "/bootstrap", "", incarnation, "1"},
		{"GET", "/snapshot", "", "", ""},
		{"GET", "/snapshot/7", "", "", ""},
		{"PUT", "/snapshot/99", "x", "", ""},
		{"DELETE", "/snapshot/99", "", incarnation, "1"},
		{"PUT", "/retention/99", "", "", ""},
		{"POST", "/append-batch", frames("x"), "Content-Type", text},
		{"POST", "/append-batch", "malformed", "Content-Type", text},
		{"POST", "", "x", "Content-Type", json},
		{"POST", "", "x", "If-Match", "nonsense"},
		{"DELETE", "", "", incarnation, "1"},
	} {
		s := fresh()
		n.want(201, "PUT", s, "x", "Content-Type", text, "Stream-TTL", "600")
		count(1)
		forward(601 * time.Second)
		var headers []string
		if c.header != "" {
			headers = []string{c.header, c.value}
		}
		a := n.want(404, c.method, s+c.path, c.body, headers...)
		if c.method != "HEAD" && a.code() != "stream_not_found" {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
		n.want(201, "PUT", s, "x", "Content-Type", text, "Stream-TTL", "600")
		forward(601 * time.Second)
		count(0)
	}
}

// A read that has to wait for the engine, which takes nothing any more, is told so, and not that
// the log has failed.
func TestReadsOfStreamsWithATTLWhileClosing(t *testing.T) {
	now, forward := ahead()
	n := newNode(t, func(_ *Config, o *engine.Options) { o.Now = now })
	s := fresh()
	n.want(201, "PUT", s, "x", "Content-Type", text, "Stream-TTL", "600")
	if err := n.engine.Close(); err != nil {
		t.Fatal(err)
	}
	forward(601 * time.Second)
	a := n.refused(503, "draining", "GET", s, "")
	n.tells(a, "Retry-After", "1")
}
