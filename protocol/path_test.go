package protocol

import (
	"bytes"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

type pathCase struct {
	line           string
	bucket, stream string
	code           string // of the problem, "" for none
}

func checkPaths(t *testing.T, cases []pathCase) {
	t.Helper()
	for _, c := range cases {
		op := new(Operation)
		p := Parse(request(c.line), op)
		switch {
		case c.code == "" && p != nil:
			t.Errorf("%.80s: %v", c.line, p)
		case c.code != "" && (p == nil || p.Code != c.code):
			t.Errorf("%.80s: %v, want %s", c.line, p, c.code)
		case c.code == "" && (string(op.Bucket) != c.bucket || string(op.Stream) != c.stream):
			t.Errorf("%.80s: %q, %q", c.line, op.Bucket, op.Stream)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestPathsV1(t *testing.T) {
	checkPaths(t, []pathCase{
		{"GET /v1/stream/mystream", "_default", "mystream", ""},
		{"GET /v1/stream/a/b/c", "a", "b/c", ""},
		{"GET /v1/stream/_default", "_default", "_default", ""},
		{"GET /v1/stream/a%20b/%C3%A9+%25", "a b", "é+%", ""},
		{"GET /v1/stream/a/streams", "a", "streams", ""},
		{"GET /v1/stream/" + long(1024), "_default", long(1024), ""},
		{"GET /v1/stream/" + strings.Repeat("%78", 1024), "_default", long(1024), ""},
		{"GET /v1/stream/" + long(1025), "", "", codeBadPath},
		{"GET /v1/stream/a/" + long(1023), "", "", codeBadPath},
		{"GET /v1/stream/_default/x", "", "", codeBadPath},
		{"GET /v1/stream/%5Fdefault/x", "", "", codeBadPath},
		{"GET /v1/stream/", "", "", codeBadPath},
		{"POST /v1/stream//t/s", "", "", codeBadPath}, // field report 1
		{"GET /v1/stream/t//s", "", "", codeBadPath},
		{"GET /v1/stream/t/s/", "", "", codeBadPath},
		{"GET /v1/stream/t/./s", "", "", codeBadPath},
		{"GET /v1/stream/t/..", "", "", codeBadPath},
		{"PUT /v1/stream/%2e", "", "", codeBadPath}, // field report 4
		{"PUT /v1/stream/%2e%2e", "", "", codeBadPath},
		{"PUT /v1/stream/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "", "", codeBadPath},
		{"PUT /v1/stream/a%00b", "", "", codeBadPath},
		{"PUT /v1/stream/a%0Ab", "", "", codeBadPath},
		{"PUT /v1/stream/a%7Fb", "", "", codeBadPath},
		{"PUT /v1/stream/a%C2%85b", "", "", codeBadPath},
		{"PUT /v1/stream/a%C2%A0b", "_default", "a\u00a0b", ""},
		{"PUT /v1/stream/a%FF", "", "", codeBadPath},
		{"PUT /v1/stream/a%2Fb", "", "", codeBadPath}, // field report 2
		{"PUT /v1/stream/a%2", "", "", codeBadPath},
		{"PUT /v1/stream/a%zz", "", "", codeBadPath},
		{"PUT /v1/stream/__ds/subscriptions/x", "", "", codeUnknownRoute},
		{"PUT /v1/stream/__ds", "", "", codeUnknownRoute},
		{"PUT /v1/stream/%5F_ds/x", "", "", codeUnknownRoute},
		{"GET /v1/stream", "", "", codeUnknownRoute},
		{"GET /v1/%73tream/s", "", "", codeUnknownRoute}, // an encoded route word is none
		{"GET /v2/stream/s", "", "", codeUnknownRoute},
		{"GET /", "", "", codeUnknownRoute},
		{"GET *", "", "", codeUnknownRoute},
		{"GET ", "", "", codeUnknownRoute},
	})
}

func TestPathsDS(t *testing.T) {
	checkPaths(t, []pathCase{
		{"GET /ds/buck/s", "buck", "s", ""},
		{"GET /ds/a/b%2Fc", "a", "b/c", ""},
		{"GET /ds/Any%20thing/%73treams", "Any thing", "streams", ""},
		{"GET /ds/_default/x", "_default", "x", ""},
		{"GET /d%73/buck/s", "", "", codeUnknownRoute},
		{"GET /ds/buck/", "", "", codeBadPath},
		{"GET /ds//s", "", "", codeBadPath},
		{"GET /ds/a%2Fb/s", "", "", codeBadPath},
		{"GET /ds/buck/%2e%2e", "", "", codeBadPath},
		{"GET /ds/buck/a%2F%2Fb", "", "", codeBadPath},
		{"GET /ds/buck/a%2F..", "", "", codeBadPath},
		{"GET /ds/__ds/x", "", "", codeUnknownRoute},
		{"GET /ds/buck/" + long(1020), "", "", codeBadPath},
		{"PUT /ds/abc/s", "", "", codeBadPath},
		{"PUT /ds/Buck/s", "", "", codeBadPath},
		{"PUT /ds/__buck/s", "", "", codeBadPath},
		{"PUT /ds/" + long(65) + "/s", "", "", codeBadPath},
		{"PUT /ds/buck/a%2Fb", "", "", codeBadPath},
		{"PUT /ds/buck/%73treams", "", "", codeBadPath},
		{"PUT /ds/buck/$x", "", "", codeBadPath},
		{"PUT /ds/buck/" + long(118), "", "", codeBadPath},
		{"PUT /ds/buck/" + long(117), "buck", long(117), ""},
		{"PUT /ds/buck/a..b", "buck", "a..b", ""},
	})
}

func TestAppendPath(t *testing.T) {
	for _, c := range []struct {
		s                    Surface
		bucket, stream, want string
	}{
		{SurfaceV1, "_default", "a b", "/v1/stream/a%20b"},
		{SurfaceV1, "a", "b/c?d", "/v1/stream/a/b/c%3Fd"},
		{SurfaceV1, "_default", "é+%2F", "/v1/stream/%C3%A9+%252F"},
		{SurfaceDS, "buck", "a/b", "/ds/buck/a%2Fb"},
		{SurfaceDS, "buck", "streams", "/ds/buck/%73treams"},
	} {
		if got := AppendPath(nil, c.s, []byte(c.bucket), []byte(c.stream)); string(got) != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// What Parse takes for a stream's name, AppendPath spells so that Parse finds it
// again, on the same surface and through /ds.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"/v1/stream/a", "/v1/stream/a/b%20c/%C3%A9", "/ds/b/a%2Fb", "/ds/b/%73treams", "/v1/stream/..%2f", "/v1/stream/__ds", "/v1/stream/a%00"} {
		f.Add("GET", path, "offset=-1&live=sse", "Last-Event-ID", "7")
	}
	f.Add("PUT", "/ds/buck", "if-not-exists=true", "", "")
	f.Add("GET", "/ds/buck/streams", "prefix=%C3&after=b&limit=1000", "", "")
	f.Add("GET", "/ds/buck/s/snapshot/%30", "record=5", "Range", "bytes=0-5")
	f.Add("PUT", "/ds/buck/s/retention/7", "", "Stream-Snapshot-Digest", "00")
	f.Add("GET", "/v1/stream/x", "record=now&max_records=2&record_view=envelope", "Accept", "*/*")
	f.Add("PUT", "/v1/stream/x", "", "Stream-Attrs", `{"title":"x"}`)
	f.Add("POST", "/ds/buck/s/append-batch", "", "If-Match", `"a"`)
	f.Add("PUT", "/v1/stream/x", "", "Stream-Forked-From", "/ds/a/b")
	f.Add("POST", "/v1/stream/x", "", "Content-Type", `text/plain; a="\"b"`)
	f.Add("GET", "/v1/stream/x", "max_bytes=1&timeout=99&cursor=%31", "Accept", "application/x-ndjson;q=0.5, */*;q=0.1")
	f.Fuzz(func(t *testing.T, method, path, query, name, value string) {
		fields := []base.Field{{Name: []byte(name), Value: []byte(value)}}
		op, again := new(Operation), new(Operation)
		if Parse(&Request{Method: []byte(method), Path: []byte(path), Query: []byte(query), Fields: fields}, op) != nil || op.Kind == KindOptions {
			return
		}
		if op.Stream == nil {
			if p := Parse(&Request{Method: []byte("GET"), Path: appendBucketPath(nil, op.Bucket)}, again); p != nil || !bytes.Equal(op.Bucket, again.Bucket) || again.Stream != nil {
				t.Fatalf("%q is the bucket %q, which became %q: %v", path, op.Bucket, again.Bucket, p)
			}
			return
		}
		for _, s := range []Surface{op.Surface, SurfaceDS} {
			encoded := AppendPath(nil, s, op.Bucket, op.Stream)
			if !isRawPath(encoded) {
				t.Fatalf("%q has a byte that no path may have", encoded)
			}
			if p := Parse(&Request{Method: []byte("GET"), Path: encoded}, again); p != nil {
				t.Fatalf("%q became %q: %v", path, encoded, p)
			}
			if !bytes.Equal(op.Bucket, again.Bucket) || !bytes.Equal(op.Stream, again.Stream) {
				t.Fatalf("%q is %q, %q; %q is %q, %q", path, op.Bucket, op.Stream, encoded, again.Bucket, again.Stream)
			}
		}
		if op.HasContentType {
			if n, ok := NormalizeContentType(op.ContentType); !ok || !SameType(n, op.MediaType) || strings.ContainsAny(n, "\r\n") {
				t.Fatalf("type %q became %q, %v", op.ContentType, n, ok)
			}
		}
		if r := op.Read; r.Timeout < 0 || r.Timeout > MaxTimeout || r.MaxBytes < 0 || r.Records.Max < 0 || r.Records.Set && r.Given && op.Fault == nil {
			t.Fatalf("%+v", r)
		}
		if op.Kind == KindList && op.Fault == nil && (op.List.Limit < 1 || op.List.Limit > MaxList) {
			t.Fatalf("%+v", op.List)
		}
	})
}
