package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// headers reads header lines into a map and checks their form.
func headers(t *testing.T, fields []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	text := string(fields)
	if !strings.HasSuffix(text, "\r\n") {
		t.Fatalf("the fields end with %q", text[max(0, len(text)-20):])
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || name == "" || value == "" || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("line %q", line)
		}
		if _, twice := out[name]; twice {
			t.Fatalf("%s is there twice", name)
		}
		out[name] = value
	}
	return out
}

// check compares an answer with a status and header lines: "Name: value" must be
// there, "!Name" must not.
func check(t *testing.T, name string, status int, fields []byte, wantStatus int, want ...string) {
	t.Helper()
	got := headers(t, fields)
	if status != wantStatus {
		t.Errorf("%s: status %d, want %d", name, status, wantStatus)
	}
	want = append(want, "X-Content-Type-Options: nosniff", "Cross-Origin-Resource-Policy: cross-origin", "Access-Control-Allow-Origin: *")
	exposed := strings.Split(got["Access-Control-Expose-Headers"], ", ")
	for field := range got {
		ours := strings.HasPrefix(field, "Stream-") || strings.HasPrefix(field, "Producer-") || slices.Contains([]string{"ETag", "Location", "Retry-After", "Link"}, field)
		if ours && !slices.Contains(exposed, field) {
			t.Errorf("%s: a script can't read %s", name, field)
		}
	}
	if len(exposed) < 8 {
		t.Errorf("%s: exposes %q", name, exposed)
	}
	for _, w := range want {
		if absent, ok := strings.CutPrefix(w, "!"); ok {
			if v, there := got[absent]; there {
				t.Errorf("%s: %s: %s", name, absent, v)
			}
			continue
		}
		field, value, _ := strings.Cut(w, ": ")
		if got[field] != value {
			t.Errorf("%s: %s: %q, want %q", name, field, got[field], value)
		}
	}
}

const (
	next42  = "Stream-Next-Offset: 00000000000000000042"
	problem = "Content-Type: application/problem+json"
	private = "Cache-Control: no-store"
)

// Successes of PUT, POST and DELETE (PROTOCOL.md §5.1 to §5.4, api §3).
func TestWriteSuccess(t *testing.T) {
	r := NewRenderer(Settings{})
	post := parse(t, "POST /v1/stream/s", "Content-Type: a/b", "body: 1")
	producer := parse(t, "POST /v1/stream/s", "Content-Type: a/b", "Producer-Id: p", "Producer-Epoch: 3", "Producer-Seq: 5", "body: 1")
	put := parse(t, "PUT /v1/stream/a/b%20c", "Host: h.example:8443")
	for _, c := range []struct {
		name   string
		op     *Operation
		res    WriteResult
		status int
		want   []string
	}{
		{"append", post, WriteResult{Outcome: Appended, Incarnation: 7, Start: 40, HasStart: true, Next: 42}, 204,
			[]string{"Stream-Incarnation: 7", "Stream-Offset: 00000000000000000040", next42, `ETag: "7:00000000000000000042"`, "!Stream-Closed", "!Producer-Seq", "!Content-Type", "!Location"}},
		{"append and close", post, WriteResult{Outcome: Appended, Incarnation: 7, Next: 42, Closed: true}, 204,
			[]string{"Stream-Closed: true", `ETag: "7:00000000000000000042:c"`, "!Stream-Offset"}},
		{"producer", producer, WriteResult{Outcome: Appended, Incarnation: 7, Start: 40, HasStart: true, Next: 42, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 5}, 200,
			[]string{"Producer-Epoch: 3", "Producer-Seq: 5", "!Producer-Closed-Epoch", "Stream-Offset: 00000000000000000040"}},
		{"higher epoch", producer, WriteResult{Outcome: Appended, Next: 42, HasReplaced: true, ReplacedEpoch: 2, ReplacedSeq: 9}, 200,
			[]string{"Producer-Epoch: 3", "Producer-Seq: 5", "Producer-Closed-Epoch: 2", "Producer-Closed-Seq: 9"}},
		{"repeat", producer, WriteResult{Outcome: Duplicate, Incarnation: 7, Start: 40, HasStart: true, Next: 42, Tail: 99, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 8}, 204,
			[]string{"Stream-Offset: 00000000000000000040", next42, `ETag: "7:00000000000000000099"`, "Producer-Seq: 8"}},
		{"close with producer", producer, WriteResult{Outcome: Closed, Next: 42, Closed: true}, 204, []string{"Stream-Closed: true", "Producer-Seq: 5", next42}},
		{"create", put, WriteResult{Outcome: Created, Incarnation: 7, ContentType: "text/html", Next: 42, Start: 0, HasStart: true}, 201,
			[]string{"Location: http://h.example:8443/v1/stream/a/b%20c", "Content-Type: text/html", next42, "!Stream-Offset", `ETag: "7:00000000000000000042"`, "Stream-Incarnation: 7"}},
		{"exists", put, WriteResult{Outcome: Exists, Incarnation: 7, ContentType: "a/b", Next: 42, Closed: true}, 200, []string{"!Location", "Content-Type: a/b", "Stream-Closed: true"}},
		{"delete", parse(t, "DELETE /v1/stream/s"), WriteResult{Outcome: Deleted, Incarnation: 7}, 204, []string{"!Stream-Next-Offset", "!ETag"}},
	} {
		status, fields, body := r.Write(nil, c.op, &c.res)
		check(t, c.name, status, fields, c.status, c.want...)
		if len(body) != 0 {
			t.Errorf("%s: body %q", c.name, body)
		}
	}
}

// Field report 20.
func TestField020Location(t *testing.T) {
	for _, c := range []struct{ public, host, want string }{
		{"", "localhost:4437", "http://localhost:4437/v1/stream/s"},
		{"", "[::1]:80", "http://[::1]:80/v1/stream/s"},
		{"https://streams.example/base/", "x", "https://streams.example/base/v1/stream/s"},
		{"", "", "/v1/stream/s"},
		{"", "evil/path", "/v1/stream/s"},
		{"", "user@evil", "/v1/stream/s"},
	} {
		op := parse(t, "PUT /v1/stream/s", "Host: "+c.host)
		_, fields, _ := NewRenderer(Settings{PublicURL: c.public}).Write(nil, op, &WriteResult{Outcome: Created, ContentType: "a/b"})
		if got := headers(t, fields)["Location"]; got != c.want {
			t.Errorf("%q, %q: %s", c.public, c.host, got)
		}
	}
}

// Refusals: status, code, and the headers that clients depend on (api §3).
func TestWriteRefusals(t *testing.T) {
	r := NewRenderer(Settings{})
	plain := parse(t, "POST /v1/stream/s", "body: 0")
	plain.SplitBody(nil, nil, []byte("[1,]"))
	producer := parse(t, "POST /v1/stream/s", "Content-Type: a/b", "Producer-Id: p", "Producer-Epoch: 3", "Producer-Seq: 5", "body: 1")
	expected := func(n string) []string {
		return []string{"Producer-Expected-Seq: " + n, "Producer-Received-Seq: 5"}
	}
	for _, c := range []struct {
		outcome Outcome
		op      *Operation
		res     WriteResult
		status  int
		code    string
		want    []string
	}{
		{NotFound, plain, WriteResult{}, 404, "stream_not_found", []string{"!Stream-Incarnation"}},
		{Gone, plain, WriteResult{Incarnation: 7}, 410, "stream_gone", []string{"Stream-Incarnation: 7"}},
		{IncarnationMismatch, plain, WriteResult{Incarnation: 7}, 412, "incarnation_mismatch", []string{"Stream-Incarnation: 7", "!Stream-Previous-Incarnation", "!Stream-Inherited-Offset"}},
		{IncarnationMismatch, plain, WriteResult{Incarnation: 7, Inherited: Inheritance{5, 42}}, 412, "incarnation_mismatch",
			[]string{"Stream-Incarnation: 7", "Stream-Previous-Incarnation: 5", "Stream-Inherited-Offset: 00000000000000000042"}},
		{HeaderFault, plain, WriteResult{Incarnation: 7}, 400, "empty_body", nil},
		{BodyFault, plain, WriteResult{Incarnation: 7}, 400, "invalid_json", nil},
		{HistoryChanged, producer, WriteResult{ProducerEpoch: 3, HasProducer: true, ProducerSeq: 4, HasReplaced: true, ReplacedEpoch: 2, ReplacedSeq: 4}, 403, "history_changed",
			[]string{"Producer-Epoch: 3", "Producer-Closed-Epoch: 2", "Producer-Closed-Seq: 4", "!Producer-Seq", "!Producer-Expected-Seq"}},
		{HistoryChanged, producer, WriteResult{ProducerEpoch: 3}, 403, "history_changed", // a producer that the copy does not know
			[]string{"Producer-Epoch: 3", "!Producer-Closed-Epoch", "!Producer-Closed-Seq"}},
		{StaleEpoch, producer, WriteResult{ProducerEpoch: 4, HasProducer: true}, 403, "stale_epoch", []string{"Producer-Epoch: 4", "!Producer-Expected-Seq"}},
		{StreamClosed, plain, WriteResult{Next: 42}, 409, "closed", []string{"Stream-Closed: true", next42, "!Producer-Epoch", "!Producer-Expected-Seq"}}, // field report 107
		{StreamClosed, producer, WriteResult{Next: 42, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 4}, 409, "closed",
			append(expected("5"), "Stream-Closed: true", next42, "Producer-Epoch: 3", "Producer-Seq: 4")},
		{ClosedDuplicate, producer, WriteResult{Next: 42, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 6}, 409, "closed_duplicate",
			append(expected("5"), "Stream-Closed: true", "Producer-Seq: 6")},
		{EpochNeedsSeqZero, producer, WriteResult{}, 400, "epoch_needs_seq_zero", []string{"!Producer-Expected-Seq"}},
		{SequenceGap, producer, WriteResult{ExpectedSeq: 2}, 409, "sequence_gap", expected("2")},
		{SequenceGap, producer, WriteResult{}, 409, "sequence_gap", expected("0")}, // a producer that nobody knows
		{PreconditionFailed, plain, WriteResult{Incarnation: 7, Next: 42}, 412, "precondition_failed", []string{`ETag: "7:00000000000000000042"`, next42}},
		{ContentTypeMismatch, producer, WriteResult{ContentType: "text/plain"}, 409, "content_type_mismatch", expected("5")},
		{StreamSeqRegression, producer, WriteResult{LastSeq: "zz"}, 409, "stream_seq_regression", append(expected("5"), "Stream-Last-Seq: zz")},
		{StreamSeqRegression, plain, WriteResult{LastSeq: "zz"}, 409, "stream_seq_regression", []string{"Stream-Last-Seq: zz", "!Producer-Expected-Seq"}},
		{ConfigMismatch, plain, WriteResult{Incarnation: 7}, 409, "config_mismatch", nil},
		{NameHeldByForks, plain, WriteResult{}, 409, "name_held_by_forks", nil},
		{ForkSourceNotFound, plain, WriteResult{}, 404, "fork_source_not_found", nil},
		{ForkSourceGone, plain, WriteResult{}, 409, "fork_source_gone", nil},
		{ForkOffsetInvalid, plain, WriteResult{}, 400, "fork_offset_invalid", nil},
		{ForkTypeMismatch, plain, WriteResult{ContentType: "a/b"}, 409, "fork_type_mismatch", nil},
		{OffsetBeyondTail, plain, WriteResult{Next: 42}, 400, "offset_beyond_tail", []string{next42}},
		{OffsetNotBoundary, plain, WriteResult{}, 400, "offset_not_boundary", nil},
		{OffsetTrimmed, plain, WriteResult{Earliest: 9}, 410, "offset_trimmed",
			[]string{"Stream-Earliest-Offset: 00000000000000000009", `Link: </ds/_default/s/bootstrap>; rel="bootstrap"`}},
		{RangeDamaged, plain, WriteResult{}, 500, "range_damaged", nil},
		{ColdUnavailable, plain, WriteResult{}, 503, "cold_unavailable", []string{"Retry-After: 5"}},
		{BodyTooLarge, plain, WriteResult{Limit: 32 << 20}, 413, "body_too_large", nil},
		{TooManyProducers, producer, WriteResult{}, 429, "too_many_producers", []string{"Retry-After: 60"}},
		{StateFull, plain, WriteResult{}, 429, "state_full", []string{"Retry-After: 60"}},
		{DiskFull, plain, WriteResult{}, 507, "disk_full", []string{"Retry-After: 10"}},
		{Overloaded, plain, WriteResult{}, 503, "overloaded", []string{"Retry-After: 1"}},
		{Draining, plain, WriteResult{}, 503, "draining", []string{"Retry-After: 1"}},
		{Fenced, plain, WriteResult{}, 503, "fenced", []string{"Retry-After: 5"}},
		{Unavailable, plain, WriteResult{}, 500, "unavailable", []string{"!Retry-After"}},
		{0, plain, WriteResult{}, 500, "internal", nil},
		{255, plain, WriteResult{}, 500, "internal", nil},
		{HeaderFault, producer, WriteResult{}, 500, "internal", nil}, // a fault that isn't there
	} {
		c.res.Outcome = c.outcome
		status, fields, body := r.Write([]byte("before"), c.op, &c.res)
		name := fmt.Sprintf("%s (%d)", c.code, c.outcome)
		check(t, name, status, fields, c.status, append(c.want, problem, private)...)
		var p struct {
			Type, Title, Detail, Code string
			Status                    int
			Limit                     int64
		}
		if err := json.Unmarshal(body, &p); err != nil || p.Code != c.code || p.Status != c.status || p.Detail == "" || p.Limit != c.res.Limit {
			t.Errorf("%s: %s: %v", name, body, err)
		}
	}
}

// PROTOCOL.md §5.5.
func TestHead(t *testing.T) {
	r := NewRenderer(Settings{})
	m := &Meta{Incarnation: 7, Next: 42, ContentType: "text/plain", TTL: -1}
	status, fields := r.Head(nil, parse(t, "HEAD /v1/stream/s"), m)
	check(t, "open", status, fields, 200, "Content-Type: text/plain", next42, private, "Stream-Incarnation: 7", `ETag: "7:00000000000000000042"`,
		"!Stream-Closed", "!Stream-TTL", "!Stream-Expires-At", "!Stream-Up-To-Date", "!Stream-Previous-Incarnation", "!Stream-Inherited-Offset")
	m.Inherited = Inheritance{5, 40}
	const was, upTo = "Stream-Previous-Incarnation: 5", "Stream-Inherited-Offset: 00000000000000000040"
	status, fields = r.Head(nil, parse(t, "HEAD /v1/stream/s"), m)
	check(t, "restored", status, fields, 200, was, upTo)
	m.Closed, m.TTL, m.ExpiresAt = true, 3600, 1
	status, fields = r.Head(nil, parse(t, "HEAD /v1/stream/s", `If-None-Match: "7:00000000000000000042"`), m)
	check(t, "closed", status, fields, 200, "Stream-Closed: true", "Stream-TTL: 3600", "Stream-Expires-At: 1970-01-01T00:00:00.001Z")
	status, fields = r.Head(nil, parse(t, "HEAD /v1/stream/s", `If-None-Match: W/"7:00000000000000000042:c"`), m)
	check(t, "304", status, fields, 304, was, upTo, "Stream-Closed: true", `ETag: "7:00000000000000000042:c"`, "!Content-Type")
}

// PROTOCOL.md §5.6, §5.7, §8 and §10, field reports 58, 85 and 88.
func TestRead(t *testing.T) {
	r, hidden := NewRenderer(Settings{}), NewRenderer(Settings{CacheVisibility: "private"})
	const shared = "Cache-Control: public, max-age=60, stale-while-revalidate=300"
	const tag = `"7:00000000000000000040:00000000000000000042"`
	data := ReadResult{Incarnation: 7, Start: 40, Next: 42, UpToDate: true, ContentType: "text/plain", Cursor: 99}
	page, closed, tail, end, array := data, data, data, data, data
	page.UpToDate, closed.Closed, tail.Start, end.Start, end.Closed, array.ContentType = false, true, 42, 42, true, "application/json; charset=utf-8"
	for _, c := range []struct {
		name   string
		r      *Renderer
		query  string
		header string
		res    ReadResult
		status int
		want   []string
	}{
		{"data", r, "?offset=40", "", data, 200, []string{shared, "ETag: " + tag, next42, "Stream-Up-To-Date: true", "Content-Type: text/plain", "!Stream-Closed", "!Stream-Cursor", "!Vary", "Stream-Incarnation: 7"}},
		{"private", hidden, "", "", data, 200, []string{"Cache-Control: private, max-age=60, stale-while-revalidate=300"}},
		{"page", r, "", "", page, 200, []string{"!Stream-Up-To-Date", "!Stream-Closed"}},
		{"closed", r, "", "", closed, 200, []string{"Stream-Closed: true", "Stream-Up-To-Date: true", `ETag: "7:00000000000000000040:00000000000000000042:c"`}},
		{"at the end", r, "?offset=42", "", end, 200, []string{"Stream-Closed: true", shared}},
		{"304", r, "", "If-None-Match: " + tag, data, 304, []string{"ETag: " + tag, next42, shared, "!Content-Type"}},
		{"304 does not hide the close", r, "", "If-None-Match: " + tag, closed, 200, nil},
		{"304 of any", r, "", "If-None-Match: *", closed, 304, []string{"Stream-Closed: true"}},
		{"now", r, "?offset=now", "If-None-Match: *", tail, 200, []string{private, "!ETag", "Stream-Up-To-Date: true", next42}},
		{"json", r, "", "", array, 200, []string{"Vary: Accept", "Content-Type: application/json; charset=utf-8"}},
		{"ndjson", r, "", "Accept: application/x-ndjson", array, 200, []string{"Vary: Accept", "Content-Type: application/x-ndjson", `ETag: "7:00000000000000000040:00000000000000000042:ndjson"`}},
		{"ndjson of text", r, "", "Accept: application/x-ndjson", data, 200, []string{"!Vary", "Content-Type: text/plain", "ETag: " + tag}},
		{"poll", r, "?offset=40&live=long-poll", "", data, 200, []string{"Stream-Cursor: 99", shared, "ETag: " + tag}},
		{"poll and end", r, "?offset=40&live=long-poll", "", closed, 200, []string{"Stream-Closed: true"}},
		{"poll in vain", r, "?offset=42&live=long-poll", "", tail, 204, []string{"Stream-Cursor: 99", private, "Stream-Up-To-Date: true", next42, "!ETag", "!Content-Type"}},
		{"poll at the end", r, "?offset=42&live=long-poll", "", end, 204, []string{"!Stream-Cursor", "Stream-Closed: true", "Stream-Up-To-Date: true"}},
		{"poll from now", r, "?offset=now&live=long-poll", "", data, 200, []string{private, "!ETag", "Stream-Cursor: 99"}},
	} {
		lines := []string{}
		if c.header != "" {
			lines = append(lines, c.header)
		}
		status, fields := c.r.Read(nil, parse(t, "GET /v1/stream/s"+c.query, lines...), &c.res)
		check(t, c.name, status, fields, c.status, c.want...)
	}
}

// Field report 155: what a browser would run is served so that it doesn't.
func TestField155ActiveContent(t *testing.T) {
	r := NewRenderer(Settings{})
	for contentType, safe := range map[string]bool{"text/plain; charset=utf-8": true, "application/json": true, "image/png": true, "application/octet-stream": true,
		"text/html": false, "TEXT/HTML; x=y": false, "image/svg+xml": false, "application/xhtml+xml": false, "text/xml": false, "application/pdf": false, "text/javascript": false, "x/unheard-of": false} {
		_, fields := r.Read(nil, parse(t, "GET /v1/stream/s"), &ReadResult{ContentType: contentType})
		got := headers(t, fields)
		if (got["Content-Security-Policy"] == "") != safe || (got["Content-Disposition"] == "") != safe {
			t.Errorf("%s: %v", contentType, got)
		}
	}
}

// PROTOCOL.md §5.8 and field report 76.
func TestEvents(t *testing.T) {
	r := NewRenderer(Settings{})
	fields := r.Events(nil, 7, "text/plain")
	check(t, "text", 200, fields, 200, "Content-Type: text/event-stream", "Cache-Control: no-cache", "X-Accel-Buffering: no", "Stream-Incarnation: 7",
		"Stream-Data-Content-Type: text/plain", "!Stream-SSE-Data-Encoding", "!ETag", "!Content-Length")
	check(t, "binary", 200, r.Events(nil, 7, "image/png"), 200, "Stream-SSE-Data-Encoding: base64", "Stream-Data-Content-Type: image/png")
	check(t, "json", 200, r.Events(nil, 7, "application/json"), 200, "!Stream-SSE-Data-Encoding")
}

// Field report 89: every header of the API, by name, on every answer.
func TestField089CORS(t *testing.T) {
	r := NewRenderer(Settings{})
	const asked = "producer-id,producer-epoch,producer-seq,stream-seq,stream-closed,if-match,if-none-match,content-type,authorization,stream-ttl,stream-expires-at," +
		"stream-forked-from,stream-fork-offset,stream-fork-sub-offset, X-Mine ,bad name,,stream-incarnation"
	fields := r.Options(nil, parse(t, "OPTIONS /v1/stream/s", "Access-Control-Request-Headers: "+asked))
	check(t, "preflight", 204, fields, 204, "Access-Control-Max-Age: 86400", "Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS", "Allow: GET, HEAD, PUT, POST, DELETE, OPTIONS")
	allowed := strings.Split(headers(t, fields)["Access-Control-Allow-Headers"], ", ")
	has := func(name string) (n int) {
		for _, a := range allowed {
			if strings.EqualFold(a, name) {
				n++
			}
		}
		return n
	}
	for name := range strings.SplitSeq(asked+",Accept,Range,If-Range,Last-Event-ID,Stream-Record-Match,Stream-Attrs,Stream-Snapshot-Retain,Stream-Snapshot-Digest", ",") {
		name = strings.TrimSpace(name)
		if want := name != "" && name != "bad name"; (has(name) == 1) != want {
			t.Errorf("%q is allowed %d times", name, has(name))
		}
	}
	_, fields, _ = r.Write(nil, parse(t, "GET /v1/stream/none"), &WriteResult{Outcome: NotFound})
	list := ", " + headers(t, fields)["Access-Control-Expose-Headers"] + ", "
	for _, name := range []string{"Stream-Next-Offset", "Stream-Offset", "Stream-Cursor", "Stream-Up-To-Date", "Stream-Closed", "Stream-TTL", "Stream-Expires-At", "Stream-Incarnation",
		"Stream-Earliest-Offset", "Stream-Last-Seq", "Stream-SSE-Data-Encoding", "Stream-Data-Content-Type", "Producer-Epoch", "Producer-Seq", "Producer-Expected-Seq",
		"Producer-Received-Seq", "Producer-Closed-Epoch", "Producer-Closed-Seq", "ETag", "Location", "Retry-After", "Link",
		"Stream-Snapshot-Offset", "Stream-Snapshot-Digest", "Stream-Snapshot-Content-Type", "Stream-SSE-Snapshot-Encoding", "Stream-Record-First", "Stream-Record-Next", "Stream-Record-Start",
		"Stream-Extensions", "Stream-Previous-Incarnation", "Stream-Inherited-Offset", "Content-Range", "Accept-Ranges"} {
		if !strings.Contains(list, ", "+name+", ") {
			t.Errorf("%s is not exposed", name)
		}
	}
	_, fields, _ = NewRenderer(Settings{CORSOrigin: "https://a.example"}).Problem(nil, NewProblem(codeInternal, ""))
	if got := headers(t, fields)["Access-Control-Allow-Origin"]; got != "https://a.example" {
		t.Errorf("origin %q", got)
	}
}

func TestMalformed(t *testing.T) {
	r := NewRenderer(Settings{})
	for _, c := range []struct {
		status     int
		code, want string
	}{{400, "malformed_request", "malformed_request"}, {431, "head_too_large", "head_too_large"}, {418, "teapot", "malformed_request"}, {500, "teapot", "internal"}, {503, "overloaded", "overloaded"}} {
		fields, body := r.Malformed(nil, c.status, c.code, "Because.")
		check(t, c.code, c.status, fields, c.status, problem, private)
		if !strings.Contains(string(body), fmt.Sprintf(`"status":%d,"detail":"Because.","code":%q`, c.status, c.want)) {
			t.Errorf("%s: %s", c.code, body)
		}
	}
}
