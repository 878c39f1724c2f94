package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzRequest holds the parser and the decoder against net/http's, which are more
// lenient: whatever ours accept, they accept too, and they see the same request in it.
func FuzzRequest(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.in))
	}
	for _, c := range bodies {
		f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + c.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var r Request
		n, err := r.Parse(in, limits)
		if err != nil {
			return
		}
		var p Request
		for _, k := range []int{0, n / 3, n / 2, n - 1} {
			if _, err := p.Parse(in[:k], limits); err != ErrIncomplete {
				t.Fatalf("%d of %d bytes: %v; %q", k, n, err, in[:n])
			}
		}
		twin, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimLeft(in, "\r\n"))))
		if err != nil {
			if _, uerr := url.ParseRequestURI(string(r.Target)); uerr != nil || strings.Contains(err.Error(), "invalid URI") {
				return // net/url wants percent signs to be followed by digits; we leave that to the router
			}
			t.Fatalf("net/http refuses it: %v; %q", err, in[:n])
		}
		compare(t, &r, twin, in[:n])
		body, rest, ok := ourBody(&r, in[n:])
		if !ok {
			return
		}
		if twinBody, err := io.ReadAll(twin.Body); err != nil || !bytes.Equal(twinBody, body) {
			t.Fatalf("net/http reads body %q, %v, instead of %q; %q", twinBody, err, body, in)
		}
		if len(rest) > len(in)-n {
			t.Fatalf("more left than there was")
		}
	})
}

func compare(t *testing.T, r *Request, twin *http.Request, in []byte) {
	t.Helper()
	if twin.Method != string(r.Method) || twin.RequestURI != string(r.Target) || twin.ProtoMinor != int(r.Minor) {
		t.Fatalf("net/http sees %s %s %d; %q", twin.Method, twin.RequestURI, twin.ProtoMinor, in)
	}
	if r.Chunked != slices.Contains(twin.TransferEncoding, "chunked") {
		t.Fatalf("net/http sees codings %v; %q", twin.TransferEncoding, in)
	}
	if !r.Chunked && max(r.ContentLength, 0) != twin.ContentLength {
		t.Fatalf("net/http sees length %d, not %d; %q", twin.ContentLength, r.ContentLength, in)
	}
	if twin.Host != string(r.Host) && r.Target[0] == '/' {
		t.Fatalf("net/http sees host %q, not %q", twin.Host, r.Host)
	}
	if r.Target[0] == '/' && twin.URL.RawQuery != string(r.Query) {
		t.Fatalf("net/http sees query %q, not %q", twin.URL.RawQuery, r.Query)
	}
	for _, f := range r.Fields {
		name := http.CanonicalHeaderKey(string(f.Name))
		switch name {
		case "Host", "Transfer-Encoding", "Content-Length", "Connection", "Trailer":
		default:
			if !slices.Contains(twin.Header[name], string(f.Value)) {
				t.Fatalf("net/http sees %s: %q, not %q; %q", name, twin.Header[name], f.Value, in)
			}
		}
	}
}

// ourBody returns the body of r at the beginning of in, if it is there.
func ourBody(r *Request, in []byte) (body, rest []byte, ok bool) {
	if !r.Chunked {
		n := max(r.ContentLength, 0)
		if n > int64(len(in)) {
			return nil, nil, false
		}
		return in[:n], in[n:], true
	}
	d := Chunked{Max: 1 << 20}
	for len(in) > 0 && !d.Done() {
		data, n, err := d.Next(in)
		if err != nil {
			return nil, nil, false
		}
		body = append(body, data...)
		in = in[n:]
	}
	return body, in, d.Done()
}
