package protocol

import (
	"bytes"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
)

func boundaryOf(seed byte) (random [16]byte) {
	for i := range random {
		random[i] = seed + byte(i)*31
	}
	return random
}

// bootstrap makes a whole body and says how long it was foreseen to be.
func bootstrap(m *Multipart, s *Snapshot, snapshot string, contentType string, messages []string) (body []byte, size int64) {
	body = append(m.AppendSnapshot(nil, s), snapshot...)
	size = m.SnapshotSize(s)
	for _, p := range messages {
		body = append(m.AppendMessage(body, contentType, int64(len(p))), p...)
		size += m.MessageSize(contentType, int64(len(p)))
	}
	return m.AppendEnd(body), size + m.EndSize()
}

type part struct {
	header textproto.MIMEHeader
	body   string
}

// readParts parses a body with the standard library, by the Content-Type of its head.
func readParts(t *testing.T, fields, body []byte) (parts []part) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(headers(t, fields)["Content-Type"])
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("%s, %v", kind, err)
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		if n := p.Header.Get("Content-Length"); n != strconv.Itoa(len(b)) {
			t.Fatalf("a part of %d bytes has Content-Length %s", len(b), n)
		}
		parts = append(parts, part{p.Header, string(b)})
	}
}

// To the byte: a CRLF before a delimiter belongs to the delimiter.
func TestMultipartWire(t *testing.T) {
	m := NewMultipart(boundaryOf(1))
	const b = "01203f5e7d9cbbdaf91837567594b3d2"
	body, size := bootstrap(m, &Snapshot{Set: true, Offset: 12, Size: 3, ContentType: "image/png"}, "abc", "text/plain", []string{"hello", ""})
	want := "--" + b + "\r\nContent-Type: image/png\r\nContent-Length: 3\r\nStream-Snapshot-Offset: 00000000000000000012\r\nStream-Snapshot-Digest: " + strings.Repeat("0", 64) + "\r\n\r\nabc" +
		"\r\n--" + b + "\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello" +
		"\r\n--" + b + "\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n" +
		"\r\n--" + b + "--\r\n"
	if string(body) != want || size != int64(len(want)) {
		t.Errorf("%q, %d bytes foreseen\nwant %q, %d", body, size, want, len(want))
	}
	body, size = bootstrap(m, &Snapshot{ContentType: "not/this", Size: 99}, "", "", nil)
	want = "--" + b + "\r\nContent-Type: application/octet-stream\r\nContent-Length: 0\r\nStream-Snapshot-Offset: -1\r\n\r\n\r\n--" + b + "--\r\n"
	if string(body) != want || size != int64(len(want)) {
		t.Errorf("without a snapshot: %q, %d bytes foreseen", body, size)
	}
}

// Field report 112: a strict parser gets every payload back, whatever is in it.
func TestField112Multipart(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = byte(rng.Uint32())
	}
	old := NewMultipart(boundaryOf(9))
	previous, _ := bootstrap(old, &Snapshot{}, "", "a/b", []string{"x", "y"})
	own := NewMultipart(boundaryOf(1))
	payloads := []string{"", "\r\n", "\n--", "--", "\r\n--", "\r\n\r\n", "\x00\x00", "--" + string(own.boundary[:31]), "\r\n--" + string(own.boundary[:31]) + "\r\n", string(previous),
		"Content-Type: x\r\n\r\nbody", "\r", "\n", "--\r\n", string(large), "é\xff", "\r\n--" + strings.ToUpper(string(own.boundary[:])) + "--\r\n"}
	r := NewRenderer(Settings{})
	for _, contentType := range []string{"text/plain", `application/x; a="\"--b"`, "application/json; charset=utf-8"} {
		for i, snapshot := range payloads {
			s := &Snapshot{Set: true, Offset: 5, Size: int64(len(snapshot)), ContentType: "application/vnd.x"}
			res := &BootstrapResult{Incarnation: 7, ContentType: contentType, Snapshot: *s, Next: 42}
			body, size := bootstrap(own, s, snapshot, contentType, payloads)
			parts := readParts(t, r.Bootstrap(nil, own, res), body)
			if len(parts) != 1+len(payloads) || size != int64(len(body)) {
				t.Fatalf("seed %d, snapshot %d: %d parts, %d bytes of %d foreseen", seed, i, len(parts), size, len(body))
			}
			if p := parts[0]; p.body != snapshot || p.header.Get("Content-Type") != "application/vnd.x" || p.header.Get("Stream-Snapshot-Offset") != "00000000000000000005" || len(p.header.Get("Stream-Snapshot-Digest")) != 64 {
				t.Fatalf("seed %d, snapshot %d: %v", seed, i, p.header)
			}
			for j, p := range parts[1:] {
				if p.body != payloads[j] || p.header.Get("Content-Type") != contentType || p.header.Get("Stream-Snapshot-Offset") != "" {
					t.Fatalf("seed %d, message %d: %v, %d bytes", seed, j, p.header, len(p.body))
				}
			}
			// A response that was cut is not mistaken for a whole one.
			cut := multipart.NewReader(bytes.NewReader(body[:len(body)-len("--\r\n")]), string(own.boundary[:]))
			var err error
			for err == nil {
				_, err = cut.NextRawPart()
			}
			if err == io.EOF {
				t.Fatalf("seed %d: the end of a cut body looks like its end", seed)
			}
		}
	}
}

func FuzzMultipart(f *testing.F) {
	f.Add([]byte("snapshot"), []byte("\r\n--"), []byte(""), true)
	f.Add([]byte("--01203f5e7d9cbbdaf91837567594b3d"), []byte("\r\n--01203f5e7d9cbbdaf91837567594b3d"), []byte("--\r\n"), false)
	r, m := NewRenderer(Settings{}), NewMultipart(boundaryOf(1))
	f.Fuzz(func(t *testing.T, snapshot, one, two []byte, set bool) {
		s := &Snapshot{Set: set, Size: int64(len(snapshot)), ContentType: "a/b"}
		if !set {
			snapshot = nil
		}
		for _, p := range [][]byte{snapshot, one, two} {
			if bytes.Contains(p, m.boundary[:]) {
				return // nobody can foresee it
			}
		}
		body, size := bootstrap(m, s, string(snapshot), "c/d", []string{string(one), string(two)})
		if size != int64(len(body)) {
			t.Fatalf("%d bytes foreseen, %d made", size, len(body))
		}
		parts := readParts(t, r.Bootstrap(nil, m, &BootstrapResult{}), body)
		if len(parts) != 3 || parts[0].body != string(snapshot) || parts[1].body != string(one) || parts[2].body != string(two) {
			t.Fatalf("%q", parts)
		}
	})
}

// api §4: the head of a bootstrap.
func TestBootstrapHead(t *testing.T) {
	r, m := NewRenderer(Settings{}), NewMultipart(boundaryOf(1))
	res := &BootstrapResult{Incarnation: 7, ContentType: "text/plain", Next: 42}
	check(t, "page", 200, r.Bootstrap(nil, m, res), 200, "Content-Type: multipart/mixed; boundary=01203f5e7d9cbbdaf91837567594b3d2", private, "Stream-Snapshot-Offset: -1", next42,
		"Stream-Incarnation: 7", "!Stream-Up-To-Date", "!Stream-Closed", "!Stream-Snapshot-Digest", "!ETag", "!Stream-Extensions")
	res.UpToDate, res.Closed, res.ContentType, res.Snapshot = true, true, "application/json", Snapshot{Set: true, Offset: 5, ContentType: "a/b"}
	res.Records = Records{Set: true, First: 2, Next: 9}
	check(t, "whole", 200, r.Bootstrap(nil, m, res), 200, "Stream-Up-To-Date: true", "Stream-Closed: true", "Stream-Snapshot-Offset: 00000000000000000005",
		"Stream-Snapshot-Digest: "+strings.Repeat("0", 64), "Stream-Record-First: 2", "Stream-Record-Next: 9", "Stream-Extensions: json-record-coordinates-v1")
	for query, want := range map[string]string{"": "", "live=sse": "", "live=long-poll": codeInvalidParameter, "live=": codeInvalidParameter, "live=SSE": codeInvalidParameter, "live=true": codeInvalidParameter,
		"live=sse&live=sse": codeRepeatedParameter, "offset=&record=": "", "cursor=x": ""} {
		if got := fault(t, "GET /ds/buck/s/bootstrap?"+query); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
	op := parse(t, "GET /ds/buck/s/bootstrap?live=sse", "Last-Event-ID: 00000000000000000042")
	if rd := op.Read; op.Fault != nil || rd.Live != LiveSSE || !rd.LastEventID || rd.Start != StartAt || rd.Offset != 42 {
		t.Errorf("%+v, %v", rd, op.Fault)
	}
	if op := parse(t, "GET /ds/buck/s/bootstrap", "Last-Event-ID: x"); op.Fault != nil || op.Read.LastEventID {
		t.Errorf("Last-Event-ID counts without live=sse: %v", op.Fault)
	}
	if got := fault(t, "GET /ds/buck/s/bootstrap?live=sse", "Last-Event-ID: x"); got != codeInvalidOffset {
		t.Errorf("a malformed Last-Event-ID: %q", got)
	}
}
