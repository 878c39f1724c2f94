package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var limits = Limits{Head: 32 << 10, Target: 8 << 10, Fields: MaxFields}

const typical = "POST /v1/stream/orders?producer=a HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: durable-client/1.4.2\r\nAccept: */*\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\nContent-Type: application/json\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n" +
	"X-Request-Id: 7b1c6e0a-6c6b-4b4f-9d0d-0b1f0c9d0a11\r\nContent-Length: 256\r\n\r\n"

// requests is the table that seeds the fuzz targets too. want is a status, or what summary says.
var requests = []struct{ name, in, want string }{
	{"plain", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", `GET / "" a 1`},
	{"query", "GET /a/b%2Fc?x=1&y=%20 HTTP/1.1\r\nHost: a\r\n\r\n", `GET /a/b%2Fc "x=1&y=%20" a 1`},
	{"question mark in query", "GET /a?b?c HTTP/1.1\r\nHost: a\r\n\r\n", `GET /a "b?c" a 1`},
	{"empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", `GET / "" a 1`},
	{"three empty lines first", "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"doubled slash", "POST //x//y HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", `POST //x//y "" a 1 length=1`},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", `GET / "" "" 1`},
	{"host with port", "GET / HTTP/1.1\r\nhOsT:[::1]:80 \t\r\n\r\n", `GET / "" [::1]:80 1`},
	{"bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", "400"},
	{"bare LF after a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "400"},
	{"bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", "400"},
	{"bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", "400"},
	{"bare CR at the end", "GET / HTTP/1.1\r\nHost: a\r\n\rX", "400"},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: y\x00\r\n\r\n", "400"},
	{"obs-text in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa9\r\n\r\n", `GET / "" a 1`},
	{"folded line", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", "400"},
	{"folded coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", "400"},
	{"space before colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc", "400"},
	{"empty name", "GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n", "400"},
	{"illegal name", "GET / HTTP/1.1\r\nHost: a\r\nX@: y\r\n\r\n", "400"},
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", "400"},
	{"no host", "GET / HTTP/1.1\r\n\r\n", "400"},
	{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400"},
	{"host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"},
	{"host with slash", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"},
	{"no host in 1.0", "GET / HTTP/1.0\r\n\r\n", `GET / "" "" 0 close`},
	{"1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", `GET / "" "" 0`},
	{"1.0 both", "GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", `GET / "" "" 0 close`},
	{"close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", `GET / "" a 1 close`},
	{"close in a list", "GET / HTTP/1.1\r\nHost: a\r\nConnection: a , close,\r\n\r\n", `GET / "" a 1 close`},
	{"not close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", `GET / "" a 1`},
	{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 003\r\n\r\n", `POST / "" a 1 length=3`},
	{"GET with a body", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", `GET / "" a 1 length=3`},
	{"lengths that differ", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n", "400"},
	{"equal lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "400"},
	{"length list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", "400"},
	{"empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", "400"},
	{"signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", "400"},
	{"negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n", "400"},
	{"hex length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n", "400"},
	{"length beyond int64", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\n", "400"},
	{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", `POST / "" a 1 chunked`},
	{"length, then chunked", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
	{"chunked, then length", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", "400"},
	{"xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", "501"},
	{"gzip, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501"},
	{"chunked, identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "501"},
	{"chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
	{"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
	{"expect", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n", `POST / "" a 1 length=3 expect`},
	{"expect in 1.0", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", `POST / "" "" 0 close length=3`},
	{"other expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", "417"},
	{"absolute", "GET http://b:1/c?d HTTP/1.1\r\nHost: a\r\n\r\n", `GET /c "d" b:1 1`},
	{"absolute without path", "GET HTTPS://b HTTP/1.1\r\nHost: a\r\n\r\n", `GET / "" b 1`},
	{"absolute, only query", "GET http://b?d HTTP/1.1\r\nHost: a\r\n\r\n", `GET / "d" b 1`},
	{"absolute without host field", "GET http://b/ HTTP/1.1\r\n\r\n", "400"},
	{"absolute without host", "GET http:///c HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"absolute with user", "GET http://u@b/c HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"other scheme", "GET ftp://b/c HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", `OPTIONS * "" a 1`},
	{"asterisk for GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"authority", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"no slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"raw 8-bit target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"control in target", "GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"tab in target", "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"space in target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"space first", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"method with slash", "GE/T / HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"long method", strings.Repeat("A", 33) + " / HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
	{"simple request", "GET /\r\n", "400"},
	{"1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "505"},
	{"2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
	{"0.9", "GET / HTTP/0.9\r\n\r\n", "505"},
	{"1.10", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", "400"},
	{"lower case version", "GET / http/1.1\r\nHost: a\r\n\r\n", "400"},
	{"space behind version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "400"},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00", "400"},
	{"long target", "GET /" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", "414"},
	{"longest target", "GET /" + strings.Repeat("a", 8<<10-1) + " HTTP/1.1\r\nHost: a\r\n\r\n", "ok"},
	{"long target in a long head", "GET /" + strings.Repeat("a", 40<<10), "414"},
	{"large head", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 33<<10) + "\r\n\r\n", "431"},
	{"large head without end", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 33<<10), "431"},
	{"100 fields", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", 99) + "\r\n", "ok"},
	{"101 fields", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", 100) + "\r\n", "431"},
	{"half", "GET / HTTP/1.1\r\nHost: a\r\n", "incomplete"},
}

func summary(r *Request) string {
	s := fmt.Sprintf("%s %s %q %s %d", r.Method, r.Path, r.Query, r.Host, r.Minor)
	if len(r.Host) == 0 {
		s = fmt.Sprintf("%s %s %q \"\" %d", r.Method, r.Path, r.Query, r.Minor)
	}
	if r.Close {
		s += " close"
	}
	if r.ContentLength >= 0 {
		s += fmt.Sprint(" length=", r.ContentLength)
	}
	if r.Chunked {
		s += " chunked"
	}
	if r.Expect {
		s += " expect"
	}
	return s
}

func outcome(in string) string {
	var r Request
	_, err := r.Parse([]byte(in), limits)
	var e *Error
	switch {
	case err == nil:
		return summary(&r)
	case errors.Is(err, ErrIncomplete):
		return "incomplete"
	case errors.As(err, &e) && e.Code != "" && e.Detail != "":
		return fmt.Sprint(e.Status)
	}
	return err.Error()
}

func TestParse(t *testing.T) {
	for _, c := range requests {
		got := outcome(c.in)
		if got != c.want && !(c.want == "ok" && strings.HasPrefix(got, "GET ")) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// Each prefix of a head that is accepted is incomplete, and one byte at a time never gives another answer than the whole.
func TestParsePrefixes(t *testing.T) {
	for _, c := range requests {
		if len(c.in) > 1000 {
			continue
		}
		var whole Request
		n, err := whole.Parse([]byte(c.in), limits)
		if err != nil {
			n = len(c.in)
		}
		var r Request
		for i := range n {
			_, perr := r.Parse([]byte(c.in[:i]), limits)
			if perr != ErrIncomplete && (err == nil || perr == nil || perr.(*Error).Status != err.(*Error).Status) {
				t.Errorf("%s: %d bytes: %v, the whole: %v", c.name, i, perr, err)
			}
		}
	}
}

func TestFields(t *testing.T) {
	var r Request
	n, err := r.Parse([]byte(typical), limits)
	if err != nil || n != len(typical) || len(r.Fields) != 8 || r.ContentLength != 256 {
		t.Fatal(n, err, len(r.Fields))
	}
	if v, ok := r.Get("content-type"); !ok || string(v) != "application/json" {
		t.Errorf("content-type: %q", v)
	}
	if _, ok := r.Get("x-none"); ok {
		t.Error("x-none is there")
	}
	r.Reset()
	if len(r.Fields) != 0 || r.fields[0].Name != nil || r.Method != nil {
		t.Error("Reset keeps bytes")
	}
}

func TestNoAllocations(t *testing.T) {
	var r Request
	var buf [512]byte
	in := []byte(typical)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Parse(in, limits); err != nil {
			t.Fatal(err)
		}
		b := AppendStatus(buf[:0], 204, r.Minor)
		b = AppendField(b, "Stream-Next-Offset", "00000000000000000256")
		AppendInt(b, "Content-Length", 1<<40)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParse(b *testing.B) {
	var r Request
	in := []byte(typical)
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := r.Parse(in, limits); err != nil {
			b.Fatal(err)
		}
	}
}

func TestResponse(t *testing.T) {
	got := AppendStatus(nil, 204, 1)
	got = AppendStatus(got, 404, 0)
	got = AppendStatus(got, 599, 1)
	got = AppendStatus(got, 1000, 1)
	got = AppendInt(got, "Content-Length", -5)
	got = AppendChunk(got, []byte(strings.Repeat("x", 17)))
	got = AppendChunk(got, nil)
	want := "HTTP/1.1 204 No Content\r\nHTTP/1.0 404 Not Found\r\nHTTP/1.1 599 \r\nHTTP/1.1 500 Internal Server Error\r\n" +
		"Content-Length: -5\r\n11\r\nxxxxxxxxxxxxxxxxx\r\n"
	if string(got) != want {
		t.Errorf("got %q", got)
	}
}

// bodies is the table of chunked bodies; want is the data, or a status, or "incomplete".
var bodies = []struct{ name, in, want string }{
	{"empty", "0\r\n\r\n", "= rest 0"},
	{"two chunks", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET", "=abcde rest 3"},
	{"upper and lower case", "a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n", "=01234567890123456789 rest 0"},
	{"extension", "3;a=b;c=\"d\"\r\nabc\r\n0;x\r\n\r\n", "=abc rest 0"},
	{"trailers", "3\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\n", "=abc rest 0"},
	{"no size", "\r\nabc", "400"},
	{"negative", "-1\r\nabc", "400"},
	{"hex prefix", "0x3\r\nabc\r\n0\r\n\r\n", "400"},
	{"space behind size", "3 \r\nabc\r\n0\r\n\r\n", "400"},
	{"size beyond int64", "10000000000000003\r\nabc\r\n0\r\n\r\n", "400"},
	{"bare LF", "3\nabc\n0\n\n", "400"},
	{"bare LF behind data", "3\r\nabc\n0\r\n\r\n", "400"},
	{"data too long", "3\r\nabcd\r\n0\r\n\r\n", "400"},
	{"control in extension", "3;\x01\r\nabc\r\n0\r\n\r\n", "400"},
	{"long extension", "3;" + strings.Repeat("a", 300) + "\r\nabc\r\n0\r\n\r\n", "400"},
	{"bad trailer name", "0\r\nA B: c\r\n\r\n", "400"},
	{"folded trailer", "0\r\nA: b\r\n c\r\n\r\n", "400"},
	{"long trailers", "0\r\n" + strings.Repeat("A: bbbbbbbbbbbbbbbbbbbb\r\n", 200) + "\r\n", "431"},
	{"too large", "ffff\r\n", "413"},
	{"cut in data", "3\r\nab", "incomplete"},
	{"cut before the end", "3\r\nabc\r\n0\r\n", "incomplete"},
}

const maxTestBody = 1000

// decode decodes in pieces of at most step bytes.
func decode(in []byte, step int) (data []byte, rest int, err error) {
	d := Chunked{Max: maxTestBody}
	for i := 0; i < len(in) && !d.Done(); {
		p, n, err := d.Next(in[i:min(len(in), i+step)])
		if err != nil {
			return nil, 0, err
		}
		data = append(data, p...)
		i += n
		rest = len(in) - i
	}
	if !d.Done() {
		return nil, 0, ErrIncomplete
	}
	return data, rest, nil
}

func TestChunked(t *testing.T) {
	for _, c := range bodies {
		for _, step := range []int{1, 2, 3, len(c.in)} {
			data, rest, err := decode([]byte(c.in), step)
			got := fmt.Sprintf("=%s rest %d", data, rest)
			var e *Error
			if errors.As(err, &e) {
				got = fmt.Sprint(e.Status)
			} else if err != nil {
				got = "incomplete"
			}
			if got != c.want {
				t.Errorf("%s, %d bytes at a time: got %s, want %s", c.name, step, got, c.want)
			}
		}
	}
}

func TestChunkedRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		var in, want []byte
		for range rnd.IntN(5) {
			p := bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(200))
			want = append(want, p...)
			in = AppendChunk(in, p)
		}
		in = append(in, LastChunk...)
		got, rest, err := decode(in, 1+rnd.IntN(50))
		if err != nil || rest != 0 || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %q gives %q, %d, %v", seed, in, got, rest, err)
		}
	}
}
