package server

import (
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/engine"
)

// boot is a bootstrap that has been read.
type boot struct {
	header   http.Header
	snapshot string
	head     map[string][]string // of the snapshot's part
	messages []string
}

func (n *node) boot(s string) boot {
	n.t.Helper()
	a := n.want(200, "GET", s+"/bootstrap", "")
	b, err := parseBoot(a)
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

func parseBoot(a answer) (b boot, err error) {
	b.header = a.header
	kind, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		return b, fmt.Errorf("%q: %v", kind, err)
	}
	r := multipart.NewReader(strings.NewReader(a.body), params["boundary"])
	for i := 0; ; i++ {
		part, err := r.NextRawPart()
		if err == io.EOF {
			if i == 0 {
				return b, fmt.Errorf("no part at all")
			}
			return b, nil
		}
		if err != nil {
			return b, err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return b, err
		}
		if got := part.Header.Get("Content-Length"); got != strconv.Itoa(len(body)) {
			return b, fmt.Errorf("part %d says that it has %s bytes, and has %d", i, got, len(body))
		}
		if i == 0 {
			b.snapshot, b.head = string(body), part.Header
		} else {
			b.messages = append(b.messages, string(body))
		}
	}
}

func equal(a, b []string) bool { return strings.Join(a, "\x00|\x00") == strings.Join(b, "\x00|\x00") }

func TestBootstrapWithoutSnapshot(t *testing.T) {
	n := newNode(t, nil).on("plain")
	n.refused(404, "stream_not_found", "GET", "none/bootstrap", "")
	s := n.create(text)
	b := n.boot(s)
	if len(b.messages) != 0 || b.snapshot != "" || b.header.Get("Stream-Snapshot-Offset") != "-1" || b.head["Stream-Snapshot-Offset"][0] != "-1" ||
		b.head["Content-Type"][0] != octets || b.header.Get("Stream-Next-Offset") != offset(0) || b.header.Get("Stream-Up-To-Date") != "true" ||
		b.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v", b)
	}
	n.append(s, text, "a")
	n.want(204, "POST", s, "b", "Content-Type", text, "Stream-Closed", "true")
	if b = n.boot(s); !equal(b.messages, []string{"a", "b"}) || b.header.Get("Stream-Closed") != "true" {
		t.Errorf("%+v", b)
	}
	n.want(200, "HEAD", s+"/bootstrap", "")
	n.want(400, "GET", s+"/bootstrap?live=long-poll", "")
	n.want(412, "GET", s+"/bootstrap", "", "Stream-Incarnation", "1")
}

// Parts are byte for byte what was appended, whatever it looks like, from memory and
// from disk (field report 112).
func TestField112ExactParts(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 256 << 10; o.WALFileBytes = 8 << 20 }).on("exact")
	for _, contentType := range []string{text, octets, "Text/Plain; charset=UTF-8"} {
		s := n.create(contentType)
		var want []string
		add := func(m string) {
			n.append(s, contentType, m)
			want = append(want, m)
		}
		boundary := ""
		for i := range 60 {
			for _, m := range []string{"\r\n", "\n--", "--", "\r\n--" + boundary + "--\r\n", "--" + boundary, "\x00", "x\r"} {
				add(m)
			}
			large := make([]byte, 1+rnd.IntN(20_000))
			if i%20 == 19 {
				large = make([]byte, 300_000)
			}
			for j := range large {
				large[j] = byte(rnd.Uint32())
			}
			add(string(large))
			if i%20 == 0 {
				_, params, _ := mime.ParseMediaType(n.boot(s).header.Get("Content-Type"))
				if params["boundary"] == boundary {
					t.Error("a boundary came twice")
				}
				boundary = params["boundary"]
			}
		}
		if b := n.boot(s); !equal(b.messages, want) {
			t.Fatalf("seed %d, %s: %d messages, want %d", seed, contentType, len(b.messages), len(want))
		}
		at, k := 0, 100
		for _, m := range want[:k] {
			at += len(m)
		}
		n.want(204, "PUT", fmt.Sprintf("%s/snapshot/%d", s, at), "\r\n--"+boundary+"\r\n", "Content-Type", "application/x-state")
		b := n.boot(s)
		if !equal(b.messages, want[k:]) || b.snapshot != "\r\n--"+boundary+"\r\n" || b.head["Content-Type"][0] != "application/x-state" ||
			b.header.Get("Stream-Snapshot-Offset") != offset(at) || b.header.Get("Stream-Snapshot-Digest") != digestOf(b.snapshot) {
			t.Fatalf("seed %d, %s: %d messages, want %d; %v", seed, contentType, len(b.messages), len(want)-k, b.header)
		}
	}
}

func TestBootstrapOfJSON(t *testing.T) {
	n := newNode(t, nil).on("json")
	s := n.create(json)
	n.append(s, json, `[1, "a,b", {"x":[1,2]}]`)
	next := n.append(s, json, `[[3,4]]`)
	n.append(s, json, `5`)
	if b := n.boot(s); !equal(b.messages, []string{`1`, `"a,b"`, `{"x":[1,2]}`, `[3,4]`, `5`}) {
		t.Errorf("%q", b.messages)
	}
	n.want(204, "PUT", s+"/snapshot/"+next, "state")
	if b := n.boot(s); !equal(b.messages, []string{`5`}) || b.snapshot != "state" {
		t.Errorf("%q", b.messages)
	}
}

// A tail that is very long ends with a page; an ordinary read goes on from there.
func TestBootstrapIsPaged(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.MaxReadBytes = 35 }).on("paged")
	s := n.ten(text)
	n.want(204, "PUT", s+"/snapshot/20", "state")
	b := n.boot(s)
	if !equal(b.messages, []string{"message 2 ", "message 3 ", "message 4 "}) || b.header.Get("Stream-Next-Offset") != offset(50) ||
		b.header.Get("Stream-Up-To-Date") != "" || b.header.Get("Stream-Record-Next") != "5" {
		t.Errorf("%+v", b)
	}
	if a := n.want(200, "GET", s+"?offset="+b.header.Get("Stream-Next-Offset"), ""); !strings.HasPrefix(a.body, "message 5 ") {
		t.Errorf("got %q", a.body)
	}
}

// While writers append and publish, every bootstrap is one cut: what the snapshot
// stands for and the messages behind it have no gap and no overlap, and its end goes on
// (field report 113).
func TestField113BootstrapIsOneCut(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 256 << 10; o.WALFileBytes = 8 << 20 }).on("onecut")
	s := n.create(text)
	const lines, width = 3000, 100
	line := func(i int) string { return fmt.Sprintf("%-*d\n", width-1, i) }
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range lines {
			n.append(s, text, line(i))
			if i%50 == 49 { // the state is how many lines it stands for
				a := n.do("PUT", fmt.Sprintf("%s/snapshot/%d", s, (i+1-20)*width), strconv.Itoa(i+1-20))
				if a.status != 204 {
					t.Errorf("publish: %d %s", a.status, a.body)
				}
			}
		}
	})
	cuts := 0
	for next := 0; next < lines; cuts++ {
		a, err := n.try("GET", s+"/bootstrap", "")
		if err != nil {
			continue // trimmed while it was sent
		}
		b, err := parseBoot(a)
		if err != nil || a.status != 200 {
			t.Fatalf("%d: %v", a.status, err)
		}
		at := 0
		if b.snapshot != "" {
			at, _ = strconv.Atoi(b.snapshot)
		}
		for i, m := range b.messages {
			if m != line(at+i) {
				t.Fatalf("message %d of a bootstrap from %d is %q", i, at, m)
			}
		}
		next = at + len(b.messages)
		if b.header.Get("Stream-Next-Offset") != offset(next*width) {
			t.Fatalf("next offset %s after %d lines", b.header.Get("Stream-Next-Offset"), next)
		}
	}
	wg.Wait()
	t.Logf("%d bootstraps", cuts)
}

func TestBootstrapEvents(t *testing.T) {
	n := newNode(t, nil).on("events")
	s := n.create(json)
	e := n.follow(s + "/bootstrap?live=sse")
	if e.resp.Header.Get("Stream-Snapshot-Offset") != "-1" {
		t.Errorf("%v", e.resp.Header)
	}
	if c := e.control(); !c.UpToDate {
		t.Errorf("%+v", c)
	}
	next := n.append(s, json, `[1,2]`)
	if got := e.expect("data"); got != "[1,2]" {
		t.Errorf("data %s", got)
	}
	e.control()

	state := "line 1\r\n line 2\nevent: data\ndata:[9]\n\n"
	n.want(204, "PUT", s+"/snapshot/"+next, state, "Content-Type", text)
	tail := n.append(s, json, `3`)
	e = n.follow(s + "/bootstrap?live=sse")
	if h := e.resp.Header; h.Get("Stream-Snapshot-Offset") != next || h.Get("Stream-Snapshot-Digest") != digestOf(state) ||
		h.Get("Stream-Snapshot-Content-Type") != text || h.Get("Stream-Data-Content-Type") != json {
		t.Errorf("%v", h)
	}
	ev, _ := e.next()
	if ev.name != "snapshot" || ev.data != strings.ReplaceAll(state, "\r\n", "\n") || ev.id != next {
		t.Errorf("%+v", ev)
	}
	if got := e.expect("data"); got != "[3]" {
		t.Errorf("data %s", got)
	}
	if c := e.control(); !c.UpToDate || c.StreamNextOffset != tail {
		t.Errorf("%+v", c)
	}
	n.append(s, json, `4`)
	if got := e.expect("data"); got != "[4]" {
		t.Errorf("data %s", got)
	}
	e.control()

	// Who comes back with an event's id has had the snapshot.
	e = n.follow(s+"/bootstrap?live=sse", "Last-Event-ID", tail)
	if h := e.resp.Header; h.Get("Stream-Snapshot-Offset") != next || h.Get("Stream-Snapshot-Digest") != digestOf(state) ||
		h.Get("Stream-Snapshot-Content-Type") != "" {
		t.Errorf("resumed: %v", h)
	}
	if got := e.expect("data"); got != "[4]" {
		t.Errorf("data %s", got)
	}
	n.refused(410, "offset_trimmed", "GET", s+"/bootstrap?live=sse", "", "Last-Event-ID", offset(0))
	n.refused(400, "offset_beyond_tail", "GET", s+"/bootstrap?live=sse", "", "Last-Event-ID", offset(99))
	n.want(204, "DELETE", s, "")
	e.control()
	if got := e.expect("end"); !strings.Contains(got, "stream_not_found") {
		t.Errorf("end: %s", got)
	}
	e.ends()
}

// A snapshot of any size goes out as one event, at the pace of its reader; what happens
// to the stream meanwhile comes behind it.
func TestBootstrapEventsOfALargeSnapshot(t *testing.T) {
	n := newNode(t, nil).on("largeevents")
	s := n.create(octets)
	state := make([]byte, 3<<20+1)
	for i := range state {
		state[i] = byte(i * i >> 3)
	}
	n.want(204, "PUT", s+"/snapshot/0", string(state), "Content-Type", octets)
	e := n.follow(s + "/bootstrap?live=sse")
	if e.resp.Header.Get("Stream-SSE-Snapshot-Encoding") != "base64" {
		t.Errorf("%v", e.resp.Header)
	}
	n.append(s, octets, "news")
	n.want(204, "DELETE", s, "")
	got, err := base64.StdEncoding.DecodeString(e.expect("snapshot"))
	if err != nil || string(got) != string(state) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(state), err)
	}
	if got := e.expect("end"); !strings.Contains(got, "stream_not_found") {
		t.Errorf("end: %s", got)
	}
	e.ends()
}

// A live reader that has fallen below the earliest offset is told where to begin again.
func TestTrimmedReadersAreTold(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 256 << 10; o.WALFileBytes = 8 << 20 }).on("told")
	s := n.create(octets)
	chunk := strings.Repeat("x", 1<<20)
	c := n.dial() // it reads nothing yet
	c.printf("GET /ds/told/%s?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n", s)
	n.parked(1)
	next := ""
	for range 20 {
		next = n.append(s, octets, chunk)
	}
	n.want(204, "PUT", s+"/snapshot/"+next, "state")
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(b), "event: end\ndata:")
	if !strings.Contains(last, `"offset_trimmed"`) {
		t.Errorf("the last %q", b[max(0, len(b)-300):])
	}
}
