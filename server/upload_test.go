package server

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/invariants"
)

func TestExpectContinue(t *testing.T) {
	f := startFront(t, TransportConfig{})
	const interim = "HTTP/1.1 100 Continue\r\n\r\n"
	expect := func(target string, size int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", target, size)
	}
	for _, before := range []string{"", get("/defer")} { // met by the poller, and by a goroutine
		for _, size := range []int{3, 100_000} {
			p := f.dial()
			p.send(before + expect("/e", size))
			if before != "" {
				p.read()
			}
			b := make([]byte, len(interim))
			if _, err := io.ReadFull(p.in, b); err != nil || string(b) != interim {
				t.Fatalf("%q, %v", b, err)
			}
			body := strings.Repeat("z", size)
			p.send(body + get("/next"))
			p.want(200, digest("POST", "/e", []byte(body)))
			p.want(200, digest("GET", "/next", nil))
		}
	}
	// A body that is here already needs no invitation, and one that is refused gets none.
	p := f.dial()
	p.send(expect("/e", 3) + "abc")
	p.want(200, digest("POST", "/e", []byte("abc")))
	p.send(expect("/refuse", 3))
	if r := p.want(404, "no such thing"); !r.Close {
		t.Error("the client can't know whether the body is still expected")
	}
	p.wantEnd()
	p = f.dial()
	p.send(expect("/small", 2000))
	if r, _ := p.read(); r.StatusCode != 413 {
		t.Error(r.Status)
	}
}

// A refusal reaches a client that is still sending its body, always, and a small body doesn't cost the connection.
func TestField5EarlyRefusal(t *testing.T) {
	f := startFront(t, TransportConfig{})
	size := 8 << 20
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	body := bytes.Repeat([]byte("x"), size)
	for i := range rounds {
		p := f.dial()
		chunked := i%2 == 1
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			if chunked {
				fmt.Fprintf(p, "POST /refuse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size)
			} else {
				fmt.Fprintf(p, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
			}
			_, _ = p.Write(body) // may fail once the answer has been read
		}()
		if i%4 < 2 {
			<-sent // a client that looks for the answer only when it has sent everything
		}
		if r := p.want(404, "no such thing"); !r.Close {
			t.Fatal("no Connection: close")
		}
		p.Close()
		<-sent
	}
	p := f.dial()
	p.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 50_000))
	if r := p.want(404, "no such thing"); r.Close {
		t.Error("a small unwanted body costs the connection")
	}
	p.send(strings.Repeat("x", 50_000) + get("/next"))
	p.want(200, digest("GET", "/next", nil))
}

func TestBodiesInPieces(t *testing.T) {
	f := startFront(t, TransportConfig{})
	// Up to InlineBody no goroutine is needed, and nothing is owned.
	for _, head := range []string{"Content-Length: 60000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nea60\r\n"} {
		p := f.dial()
		inline := f.app.inline.Load()
		body := bytes.Repeat([]byte("a"), 60000)
		p.send("POST /in HTTP/1.1\r\nHost: a\r\n" + head)
		until(t, "Head to be called", func() bool { return f.app.heads.Load() > 0 })
		for i := range 6 {
			p.send(string(body[i*10000 : (i+1)*10000]))
		}
		if head[0] == 'T' {
			p.send("\r\n0\r\n\r\n")
		}
		p.want(200, digest("POST", "/in", body))
		if f.app.inline.Load() != inline+1 || f.app.owned.Load() != 0 {
			t.Error("a small body was not served inline")
		}
		f.app.heads.Store(0)
	}
	for i, head := range []string{"Content-Length: 200000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n30d40\r\n"} {
		p := f.dial()
		body := bytes.Repeat([]byte("a"), 200_000)
		p.send("POST /large HTTP/1.1\r\nHost: a\r\n" + head + string(body))
		if i == 1 {
			p.send("\r\n0\r\n\r\n")
		}
		p.send(get("/next"))
		p.want(200, digest("POST", "/large", body))
		p.want(200, digest("GET", "/next", nil))
		if f.app.owned.Load() != int64(i+1) {
			t.Error("a large body is not owned")
		}
	}
}

func TestInflightBodyLimit(t *testing.T) {
	f := startFront(t, TransportConfig{MaxInflightBody: 1 << 20})
	first := f.dial()
	first.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
	until(t, "the body to be expected", func() bool { return f.Stats().InflightBody == 1000000 })
	for _, in := range []string{
		"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
		"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\na",
		"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		p := f.dial()
		p.send(in)
		if r, _ := p.read(); r.StatusCode != 503 || r.Header.Get("X-Code") != "overloaded" {
			t.Errorf("%q: %d", in, r.StatusCode)
		}
	}
	p := f.dial()
	p.send(post("/small-and-here", "abc"))
	p.want(200, digest("POST", "/small-and-here", []byte("abc")))
	body := bytes.Repeat([]byte("b"), 1000000)
	first.send(string(body))
	first.want(200, digest("POST", "/a", body))
	until(t, "the bytes to be given back", func() bool { return f.Stats().InflightBody == 0 })

	p = f.dial() // a chunked body meets the limit while it grows
	go func() {
		_, _ = io.WriteString(p, "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n"+strings.Repeat("c", 0x200000))
	}()
	if r, _ := p.read(); r.StatusCode != 503 {
		t.Error(r.Status)
	}
	first.Close()
}

func TestBodyTimeouts(t *testing.T) {
	f := startFront(t, TransportConfig{BodyTimeout: 200 * time.Millisecond, HeadTimeout: 200 * time.Millisecond, IdleTimeout: 300 * time.Millisecond})
	for _, in := range []string{
		"GET / HT", // slow head
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",                 // slow body, on the poller
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc",             // on a goroutine
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n30000\r\nab", // chunked
		"POST /pieces HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc",       // streamed
	} {
		p := f.dial()
		p.send(in)
		if r, _ := p.read(); r.StatusCode != 408 || !r.Close {
			t.Errorf("%q: %s", in, r.Status)
		}
		p.wantEnd()
	}
	f.dial().wantEnd() // silent from the beginning
	p := f.dial()      // idle between requests
	p.send(get("/"))
	p.want(200, digest("GET", "/", nil))
	p.wantEnd()
}

// A body that is cut short is never served.
func TestField10BodyCutShort(t *testing.T) {
	f := startFront(t, TransportConfig{})
	for _, in := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n",
		"POST /pieces HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
	} {
		for _, reset := range []bool{false, true} {
			for _, head := range []string{"", get("/defer")} {
				p := f.dial()
				p.send(head + in + "abc")
				if reset {
					_ = p.SetLinger(0)
				}
				p.Close()
			}
		}
	}
	until(t, "all connections to end", func() bool { n := f.Stats(); return n.Connections == 0 && n.InflightBody == 0 })
	p := f.dial()
	p.send(get("/"))
	p.want(200, digest("GET", "/", nil))
}

func TestStreamedBodies(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	f := startFront(t, TransportConfig{})
	p := f.dial()
	for i := range 20 {
		body := bytes.Repeat([]byte(strconv.Itoa(i)), 1+rnd.IntN(200_000))
		var in []byte
		if rnd.IntN(2) == 0 {
			in = fmt.Appendf(nil, "POST /pieces HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		} else {
			in = fmt.Appendf(nil, "POST /pieces HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}
		in = append(in, get("/next")...)
		go func() {
			k := bytes.Index(in, []byte("\r\n\r\n")) + 4
			_, _ = p.Write(in[:k]) // as a rule the poller sees the head first
			_, _ = p.Write(in[k:])
		}()
		_, got := p.read()
		if want := digest("POST", "/pieces", body); got != want {
			t.Fatalf("seed %d, %d: got %s, want %s", seed, i, got, want)
		}
		p.want(200, digest("GET", "/next", nil))
	}
	p.send("POST /pieces-unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("u", 500_000))
	if r := p.want(409, "enough"); !r.Close {
		t.Error("no Connection: close")
	}
}

// rss returns the resident memory of this process in bytes.
func rss(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// An upload of 128 MiB that the handler takes in pieces needs no memory, and other connections don't notice it.
func TestBigUploadIsFlat(t *testing.T) {
	const size = 128 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // the garbage of other tests is not what is measured
	f := startFront(t, TransportConfig{})
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	sum := sha256.New()
	for range size / len(block) {
		sum.Write(block)
	}
	for _, chunked := range []bool{false, true} {
		debug.FreeOSMemory()
		before := rss(t)
		var peak int64
		p := f.dial()
		uploaded := make(chan error, 1)
		go func() {
			uploaded <- func() error {
				if !chunked {
					if _, err := fmt.Fprintf(p, "POST /pieces HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size); err != nil {
						return err
					}
				} else if _, err := io.WriteString(p, "POST /pieces HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
					return err
				}
				for range size / len(block) {
					if chunked {
						fmt.Fprintf(p, "%x\r\n", len(block))
					}
					if _, err := p.Write(block); err != nil {
						return err
					}
					if chunked {
						_, _ = io.WriteString(p, "\r\n")
					}
				}
				if chunked {
					_, _ = io.WriteString(p, "0\r\n\r\n")
				}
				return nil
			}()
		}()
		ping := f.dial()
		var worst time.Duration
		pings := 0
		for sending := true; sending; {
			select {
			case err := <-uploaded:
				if err != nil {
					t.Fatal(err)
				}
				sending = false
			default:
			}
			begin := time.Now()
			ping.send(get("/ping"))
			ping.want(200, digest("GET", "/ping", nil))
			worst = max(worst, time.Since(begin))
			pings++
			peak = max(peak, rss(t)-before)
		}
		p.want(200, fmt.Sprintf("POST /pieces %d %x", size, sum.Sum(nil)))
		t.Logf("chunked %v: %d pings, the slowest %v, %d KiB more memory", chunked, pings, worst, peak>>10)
		if peak > flat() {
			t.Errorf("%d MiB more memory", peak>>20)
		}
		if worst > time.Second {
			t.Errorf("a ping took %v", worst)
		}
	}
}

func TestPlainClient(t *testing.T) {
	f := startFront(t, TransportConfig{})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, size := range []int{0, 1, 1000, InlineBody, InlineBody + 1, 3 << 20} {
		body := bytes.Repeat([]byte("c"), size)
		for _, r := range []io.Reader{bytes.NewReader(body), struct{ io.Reader }{bytes.NewReader(body)}} {
			resp, err := client.Post("http://"+f.addr+"/c", "text/plain", r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != digest("POST", "/c", body) {
				t.Errorf("%d bytes: %s, %v", size, got, err)
			}
		}
	}
}

// flat is by how much the memory of this process may grow while 128 MiB go through it,
// in bytes. The race detector keeps a shadow of what is touched.
func flat() int64 {
	if invariants.Enabled {
		return 96 << 20
	}
	return 32 << 20
}
