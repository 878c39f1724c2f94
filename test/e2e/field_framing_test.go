//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zeros is a body that has to be sent in many pieces.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(z.left, len(p))
	clear(p[:n])
	z.left -= n
	return n, nil
}

// A refusal that the head alone decides reaches a client that is still sending.
func TestField5EarlyRefusal(t *testing.T) {
	const limit = 16 << 20
	f := onOwn(t, "--max-body-bytes", "16MiB", "--wal-file-bytes", "32MiB")
	closed, open := f.create(plain, "Stream-Closed", "true"), f.create(plain)
	for what, c := range map[string]struct {
		stream, contentType string
		status, body        int
	}{
		"missing":    {f.name(), plain, http.StatusNotFound, limit / 2},
		"closed":     {closed, plain, http.StatusConflict, limit / 2},
		"other type": {open, "application/json", http.StatusConflict, limit / 2},
		"too large":  {open, plain, http.StatusRequestEntityTooLarge, 2 * limit},
	} {
		for i := range 5 {
			for _, chunked := range []bool{false, true} {
				want := fmt.Sprintf("%s, chunked %v, try %d", what, chunked, i)
				req, err := http.NewRequest("POST", f.daemon.url()+target(c.stream), &zeros{c.body})
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", c.contentType)
				if !chunked {
					req.ContentLength = int64(c.body)
				}
				resp, err := f.client.Do(req)
				if err != nil {
					t.Fatalf("%s: %v", want, err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != c.status {
					t.Fatalf("%s: %d", want, resp.StatusCode)
				}
			}
		}
	}
	// A client that looks at the answer only when it has sent everything gets it too, as
	// long as it is not slower than the server's patience.
	for _, stream := range []string{f.name(), closed} {
		w := f.dial()
		w.head("POST", target(stream), "Content-Type: text/plain", fmt.Sprint("Content-Length: ", limit/2))
		if n, err := io.Copy(w.conn, &zeros{limit / 2}); err != nil {
			t.Fatalf("sending the body of a request that is refused: %d bytes, %v", n, err)
		}
		if r := w.answer(0, "POST"); r.status/100 != 4 {
			t.Errorf("%v", r)
		}
	}
	f.holds(open, "")
}

// A client that asks first is told 100 when its body is wanted, and the answer when not.
func TestField7ExpectContinue(t *testing.T) {
	f := onOwn(t)
	open, closed := f.create(plain), f.create(plain, "Stream-Closed", "true")
	for _, c := range []struct {
		stream, contentType string
		length, status      int
	}{
		{f.name(), plain, 100, http.StatusNotFound},
		{closed, plain, 100, http.StatusConflict},
		{open, "text/html", 100, http.StatusConflict},
		{open, plain, 1 << 30, http.StatusRequestEntityTooLarge},
		{open, "", 100, http.StatusBadRequest},
	} {
		w := f.dial()
		w.head("POST", target(c.stream), "Expect: 100-continue", "Content-Type: "+c.contentType, "Content-Length: "+strconv.Itoa(c.length))
		r := w.answer(c.status, "POST") // a 100 would be taken for the answer
		if r.header.Get("Connection") == "close" {
			w.ended()
			continue
		}
		// The connection goes on, so the body is still due on it.
		w.send("%s", strings.Repeat("x", c.length))
		w.head("HEAD", target(open))
		w.answer(http.StatusOK, "HEAD")
	}
	w := f.dial()
	for i, framing := range []string{"Content-Length: 3", "Transfer-Encoding: chunked"} {
		w.head("POST", target(open), "Expect: 100-Continue", "Content-Type: text/plain", framing)
		if line, err := w.r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("want 100 Continue, got %q, %v", line, err)
		}
		if line, err := w.r.ReadString('\n'); err != nil || line != "\r\n" {
			t.Fatalf("behind 100 Continue: %q, %v", line, err)
		}
		if i == 0 {
			w.send("abc")
		} else {
			w.send("3\r\nabc\r\n0\r\n\r\n")
		}
		w.answer(http.StatusNoContent, "POST")
	}
	// Who does not wait for the 100 is not made to.
	w.head("POST", target(open), "Expect: 100-continue", "Content-Type: text/plain", "Content-Length: 3")
	w.send("abc")
	if r := w.answer(0, "POST"); r.status == http.StatusContinue {
		w.answer(http.StatusNoContent, "POST")
	} else if r.status != http.StatusNoContent {
		t.Errorf("body at once: %v", r)
	}
	w.head("POST", target(open), "Expect: something-else", "Content-Type: text/plain", "Content-Length: 3")
	w.answer(http.StatusExpectationFailed, "POST")
	w.ended()
	f.holds(open, "abcabcabc")
}

// ambiguous are ways to say where a body ends that two readers take differently. %s is
// a smuggled request.
var ambiguous = []struct{ name, fields, body string }{
	{"length and chunked", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n%s"},
	{"chunked and length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n%s"},
	{"two lengths", "Content-Length: 1\r\nContent-Length: 5\r\n", "x%s"},
	{"two equal lengths", "Content-Length: 1\r\nContent-Length: 1\r\n", "x%s"},
	{"list of lengths", "Content-Length: 1, 5\r\n", "x%s"},
	{"negative length", "Content-Length: -1\r\n", "x%s"},
	{"signed length", "Content-Length: +1\r\n", "x%s"},
	{"hexadecimal length", "Content-Length: 0x1\r\n", "x%s"},
	{"length that overflows", "Content-Length: 18446744073709551617\r\n", "x%s"},
	{"empty length", "Content-Length:\r\n", "x%s"},
	{"length in a folded line", "Content-Length:\r\n 1\r\n", "x%s"},
	{"space before the colon", "Content-Length : 1\r\n", "x%s"},
	{"folded line", "X-A: b\r\n c\r\nContent-Length: 1\r\n", "x%s"},
	{"field line that ends in LF", "Content-Length: 1\nX-A: b\r\n", "x%s"},
	{"NUL in a field", "X-A: \x00\r\nContent-Length: 1\r\n", "x%s"},
	{"unknown coding", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n%s"},
	{"coding behind chunked", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n%s"},
	{"coding before chunked", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n%s"},
	{"chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n%s"},
	{"quoted chunked", "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n%s"},
	{"vertical tab before chunked", "Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n%s"},
	{"negative chunk", "Transfer-Encoding: chunked\r\n", "-1\r\nx\r\n0\r\n\r\n%s"},
	{"chunk that overflows to 0", "Transfer-Encoding: chunked\r\n", "10000000000000000\r\n%s"},
	{"chunk that overflows to 1", "Transfer-Encoding: chunked\r\n", "10000000000000001\r\nx\r\n0\r\n\r\n%s"},
	{"empty chunk size", "Transfer-Encoding: chunked\r\n", "\r\n%s"},
	{"0x chunk", "Transfer-Encoding: chunked\r\n", "0x1\r\nx\r\n0\r\n\r\n%s"},
	{"space before a chunk size", "Transfer-Encoding: chunked\r\n", " 1\r\nx\r\n0\r\n\r\n%s"},
	{"chunk size that ends in LF", "Transfer-Encoding: chunked\r\n", "1\nx\r\n0\r\n\r\n%s"},
	{"chunk that ends in LF", "Transfer-Encoding: chunked\r\n", "1\r\nx\n0\r\n\r\n%s"},
	{"chunk that is longer than it says", "Transfer-Encoding: chunked\r\n", "1\r\nxy\r\n0\r\n\r\n%s"},
	{"last line that ends in LF", "Transfer-Encoding: chunked\r\n", "0\r\n\n%s"},
	{"LF in an extension", "Transfer-Encoding: chunked\r\n", "1;a\nb\r\nx\r\n0\r\n\r\n%s"},
	{"no Host", "-", "x%s"},
	{"two hosts", "Host: a\r\nContent-Length: 1\r\n", "x%s"},
}

// Nothing that is framed ambiguously is stored, and what follows it is never read as a
// request.
func TestField8AmbiguousFraming(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	for _, c := range ambiguous {
		smuggled := "POST " + target(s) + " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nsmuggled"
		fields := "Host: x\r\n" + c.fields
		if c.fields == "-" {
			fields = "Content-Length: 1\r\n"
		}
		w := f.dial()
		w.send("%s", "POST "+target(s)+" HTTP/1.1\r\nContent-Type: text/plain\r\n"+fields+"\r\n"+strings.Replace(c.body, "%s", smuggled, 1))
		r := w.answer(0, "POST")
		switch {
		case r.status == http.StatusNotImplemented && strings.Contains(c.name, "cod"): // RFC 9112 §6.1
		case r.status == http.StatusRequestEntityTooLarge && strings.Contains(c.name, "overflows"):
		case r.status != http.StatusBadRequest && (r.status != http.StatusNotImplemented || !strings.Contains(c.fields, "Transfer")):
			t.Errorf("%s: %v", c.name, r)
		}
		f.has(r, "Connection", "close", "X-Content-Type-Options", "nosniff", "Access-Control-Allow-Origin", "*", "Content-Type", "application/problem+json")
		w.ended()
	}
	f.holds(s, "")
}

// A body that was cut short leaves no trace: neither bytes nor a producer's step.
func TestField10CutShort(t *testing.T) {
	f := onOwn(t)
	s := f.create(plain, "Stream-TTL", "1000")
	f.want(http.StatusOK, "POST", s, "0.", with(tuple("p", 0, 0), []string{"Content-Type", plain, "Stream-Seq", "a"})...)
	tag := f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag")
	fields := []string{"Content-Type: text/plain", "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 1", "Stream-Seq: b", "Stream-Closed: true"}
	cuts := map[string]func(w *wire, part string){
		"length": func(w *wire, part string) {
			w.head("POST", target(s), append(fields, fmt.Sprint("Content-Length: ", len(part)+600))...)
			w.send("%s", part)
		},
		"chunked, in a chunk": func(w *wire, part string) {
			w.head("POST", target(s), append(fields, "Transfer-Encoding: chunked")...)
			w.send("%x\r\n%s", len(part)+600, part)
		},
		"chunked, between chunks": func(w *wire, part string) {
			w.head("POST", target(s), append(fields, "Transfer-Encoding: chunked")...)
			w.send("%x\r\n%s\r\n", len(part), part)
		},
		"chunked, in the last line": func(w *wire, part string) {
			w.head("POST", target(s), append(fields, "Transfer-Encoding: chunked")...)
			w.send("%x\r\n%s\r\n0\r\n", len(part), part)
		},
	}
	for name, cut := range cuts {
		for _, size := range []int{1, 400, 100_000} {
			w := f.dial()
			cut(w, strings.Repeat("x", size))
			if err := w.conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			// The server has seen the end when it closes its side.
			if r, err := w.try("POST"); err == nil && r.status < 400 {
				t.Errorf("%s, %d bytes: %v", name, size, r)
			}
			w.ended()
			w = f.dial()
			cut(w, strings.Repeat("x", size))
			w.reset()
		}
	}
	// The resets have been seen when only this test's own connection is left.
	f.client.CloseIdleConnections()
	f.eventually(10*time.Second, "all cut connections are gone", func() bool { return f.daemon.metric(t, "snakream_connections") == 0 })
	if got := f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag"); got != tag {
		t.Errorf("the state tag was %s and is %s", tag, got)
	}
	f.holds(s, "0.")
	f.want(http.StatusOK, "POST", s, "1.", with(tuple("p", 0, 1), []string{"Content-Type", plain, "Stream-Seq", "b"})...)
	f.restart()
	f.holds(s, "0.1.")
}

// Slow clients keep nobody waiting, and none stays for ever.
func TestField11SlowClients(t *testing.T) {
	f := onOwn(t)
	s := f.create(plain)

	t.Log("300 heads that come octet by octet")
	began := time.Now()
	var slow []*wire
	for range 300 {
		w := f.dial()
		w.send("GET ")
		slow = append(slow, w)
	}
	half := f.dial() // half a body to the stream that others write to
	half.head("POST", target(s), "Content-Type: text/plain", "Content-Length: 20000")
	half.send("%s", strings.Repeat("slow", 2500))
	var worst time.Duration
	dribble := time.NewTicker(100 * time.Millisecond)
	defer dribble.Stop()
	for i := range 100 {
		at := time.Now()
		f.text(s, "quick.")
		worst = max(worst, time.Since(at))
		if i%10 == 0 {
			<-dribble.C
			for _, w := range slow {
				w.conn.Write([]byte("/")) // may have been reaped
			}
			half.send("s")
		}
	}
	if worst > 5*time.Second {
		t.Errorf("beside slow clients an append took %v", worst)
	}
	f.holds(s, strings.Repeat("quick.", 100))

	t.Log("readers that never read")
	big := f.create("application/octet-stream")
	for range 100 {
		f.want(http.StatusNoContent, "POST", big, strings.Repeat("b", 200_000), "Content-Type", "application/octet-stream")
	}
	before := f.daemon.rss(t)
	var stuck []*wire
	for range 100 {
		w := f.dial()
		w.head("GET", target(big))
		if _, err := w.r.Peek(1); err != nil {
			t.Fatal(err)
		}
		stuck = append(stuck, w)
	}
	if grown := (f.daemon.rss(t) - before) / int64(len(stuck)); grown > 768<<10 {
		t.Errorf("a reader that does not read costs %d bytes", grown)
	}
	f.text(s, "still quick.")

	// The limits are ten seconds for a head and without an octet of a body, fifteen
	// without an octet taken: there is no other way to see them than to wait.
	f.client.CloseIdleConnections()
	for i, w := range slow {
		r, err := w.try("GET")
		if err == nil && r.status != http.StatusRequestTimeout && r.status != http.StatusBadRequest || err != nil && isTimeout(err) {
			t.Fatalf("slow head %d after %v: %v, %v", i, time.Since(began), r, err)
		}
	}
	if r, err := half.try("POST"); err != nil || r.status != http.StatusRequestTimeout {
		t.Errorf("half a body: %v, %v", r, err)
	}
	f.eventually(30*time.Second, "readers that take nothing are cut", func() bool { return f.daemon.metric(t, "snakream_connections") == 0 })
	for _, w := range stuck {
		w.conn.SetReadDeadline(time.Now().Add(wirePatience))
		n, err := io.Copy(io.Discard, w.r)
		if isTimeout(err) || errors.Is(err, io.EOF) || n >= 20_000_000 {
			t.Fatalf("a stuck reader got %d bytes, %v", n, err)
		}
	}
	f.holds(s, strings.Repeat("quick.", 100)+"still quick.")
}
