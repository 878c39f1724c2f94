package server

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// requestStream renders n random requests, of all ways in which they are served, and the answers that are due.
func requestStream(rnd *rand.Rand, n int) (in []byte, want []string) {
	paths := []string{"/echo", "/go", "/defer"}
	for i := range n {
		body := make([]byte, rnd.IntN(3)*rnd.IntN(60000)) // a third is empty, some are beyond InlineBody
		for j := range body {
			body[j] = byte(rnd.Uint32())
		}
		target := fmt.Sprintf("%s?%d", paths[rnd.IntN(len(paths))], i)
		want = append(want, digest("POST", target, body))
		if rnd.IntN(2) == 0 {
			in = append(fmt.Appendf(in, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", target, len(body)), body...)
			continue
		}
		in = fmt.Appendf(in, "POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", target)
		for len(body) > 0 {
			k := min(len(body), 1+rnd.IntN(20000))
			in = append(fmt.Appendf(in, "%x;e=1\r\n%s", k, body[:k]), "\r\n"...)
			body = body[k:]
		}
		in = append(in, "0\r\nX-Trailer: a\r\n\r\n"...)
	}
	return in, want
}

func TestPipeliningAtRandomSplits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := startFront(t, TransportConfig{})
	for round := range 40 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		in, want := requestStream(rnd, 30)
		p := f.dial()
		go func() {
			for len(in) > 0 {
				k := 1 + rnd.IntN(40)
				if rnd.IntN(3) > 0 {
					k = 1 + rnd.IntN(1+rnd.IntN(100000))
				}
				k = min(k, len(in))
				if _, err := p.Write(in[:k]); err != nil {
					return // the reader will tell
				}
				in = in[k:]
			}
		}()
		for i, w := range want {
			if _, got := p.read(); got != w {
				t.Fatalf("seed %d, round %d, request %d: got %s, want %s", seed, round, i, got, w)
			}
		}
		p.Close()
	}
}

func TestByteAtATime(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	in := "\r\n" + post("/a", "hello world") +
		"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\n" + get("/c")
	go func() {
		for i := range len(in) {
			if _, err := io.WriteString(p, in[i:i+1]); err != nil {
				return
			}
		}
	}()
	p.want(200, digest("POST", "/a", []byte("hello world")))
	p.want(200, digest("POST", "/b", []byte("hello world")))
	p.want(200, digest("GET", "/c", nil))
}

func TestManyPipelined(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	const n = 20_000 // far more than may wait unanswered: the poller is paused meanwhile
	go func() { _, _ = io.WriteString(p, strings.Repeat(get("/defer")+post("/append", "x"), n/2)) }()
	for range n / 2 {
		p.want(200, digest("GET", "/defer", nil))
		p.want(204, "")
	}
}

func TestPipelinedBehindParked(t *testing.T) {
	f := startFront(t, TransportConfig{})
	p := f.dial()
	p.send(get("/poll") + post("/after", "abc") + get("/poll"))
	f.answerNext("p0")
	p.want(200, "p0")
	p.want(200, digest("POST", "/after", []byte("abc")))
	p.send(get("/last"))
	f.answerNext("p1")
	p.want(200, "p1")
	p.want(200, digest("GET", "/last", nil))

	// A mass of requests behind a parked one pauses the poller, and all are answered in the end.
	const n = 5000
	p.send(get("/poll"))
	until(t, "the request to park", func() bool { return f.Stats().Parked == 1 })
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p, strings.Repeat(post("/x", strings.Repeat("y", 100)), n))
		sent <- err
	}()
	f.answerNext("p2")
	p.want(200, "p2")
	for range n {
		p.want(200, digest("POST", "/x", bytes.Repeat([]byte("y"), 100)))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// answerNext waits until a request is parked, and answers it.
func (f *front) answerNext(text string) {
	f.t.Helper()
	until(f.t, "a request to park", func() bool { return f.app.answerParked(text) == 1 })
}

func TestMalformedRequestsAreAnswered(t *testing.T) {
	f := startFront(t, TransportConfig{})
	for _, c := range []struct {
		in     string
		status int
		code   string
	}{
		{"GET / HTTP/1.1\n\n", 400, "malformed_request"},
		{"GET / HTTP/1.1\r\n\r\n", 400, "malformed_request"},
		{"\x16\x03\x01\x02\x00\x01\x00", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "transfer_coding_not_supported"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 400, "malformed_request"},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat("a", 0x20000) + "\nx", 400, "malformed_request"},
		{"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", 413, "body_too_large"},
		{"POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", 413, "body_too_large"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000000\r\n\r\n", 413, "body_too_large"},
		{"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", 417, "expectation_failed"},
		{"GET /" + strings.Repeat("a", 9000), 414, "target_too_long"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 40000), 431, "head_too_large"},
		{"GET / HTTP/2.0\r\n\r\n", 505, "http_version_not_supported"},
	} {
		for _, before := range []string{"", get("/"), get("/defer")} {
			p := f.dial()
			p.send(before + c.in)
			if before != "" {
				p.read()
			}
			r, body := p.read()
			if r.StatusCode != c.status || r.Header.Get("X-Code") != c.code || !r.Close || body == "" {
				t.Errorf("%.60q: %d %s close=%v %q", c.in, r.StatusCode, r.Header.Get("X-Code"), r.Close, body)
			}
			p.send(get("/never")) // what follows must not be taken for a request
			p.wantEnd()
		}
	}
	if n := f.Stats(); n.Malformed != 17*3 {
		t.Errorf("%d requests were refused", n.Malformed)
	}
}
