package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

// request makes a request from a request line and header lines. A last line that
// begins with "body:" gives the body's length.
func request(line string, lines ...string) *Request {
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	r := &Request{Method: []byte(method), Path: []byte(path), Query: []byte(query)}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ":")
		if name == "body" {
			fmt.Sscan(value, &r.BodyLength)
			continue
		}
		r.Fields = append(r.Fields, base.Field{Name: []byte(name), Value: []byte(value)})
	}
	return r
}

func parse(t *testing.T, line string, lines ...string) *Operation {
	t.Helper()
	op := new(Operation)
	if p := Parse(request(line, lines...), op); p != nil {
		t.Fatalf("%s: %v", line, p)
	}
	return op
}

// fault returns the code of the header or query fault, "" for none.
func fault(t *testing.T, line string, lines ...string) string {
	t.Helper()
	if op := parse(t, line, lines...); op.Fault != nil {
		return op.Fault.Code
	}
	return ""
}

func TestParseAppend(t *testing.T) {
	op := parse(t, "POST /v1/stream/a/b/c?unknown=1", "content-TYPE: Application/JSON; charset=UTF-8", "Stream-Closed:  TRUE ", "Stream-Seq: 09",
		"Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 9007199254740991", "Stream-Incarnation: 7",
		`If-None-Match: "a"`, `If-None-Match: W/"b"`, "Stream-TTL: nonsense", "body: 3")
	if op.Kind != KindAppend || op.Surface != SurfaceV1 || string(op.Bucket) != "a" || string(op.Stream) != "b/c" {
		t.Errorf("kind %d on %q, %q", op.Kind, op.Bucket, op.Stream)
	}
	if !op.HasContentType || string(op.MediaType) != "application/json" || string(op.ContentType) != "Application/JSON; charset=UTF-8" {
		t.Errorf("type %q of %q", op.MediaType, op.ContentType)
	}
	if !op.Closed || !op.HasStreamSeq || string(op.StreamSeq) != "09" || op.Incarnation != 7 || !op.HasIncarnation || len(op.IfNoneMatch) != 2 {
		t.Errorf("%+v", op)
	}
	if p := op.Producer; !p.Set || string(p.ID) != "p" || p.Epoch != 0 || p.Seq != 1<<53-1 {
		t.Errorf("%+v", p)
	}
	if op.Fault != nil || op.HasTTL {
		t.Errorf("fault %v", op.Fault)
	}
}

// PROTOCOL.md §4.1 and field report 106.
func TestStreamClosedValues(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "TRUE": true, " True\t": true, "": false, "false": false, "1": false, "yes": false, "truee": false} {
		if op := parse(t, "PUT /v1/stream/s", "Stream-Closed:"+value); op.Closed != want || op.Fault != nil {
			t.Errorf("%q: %v, fault %v", value, op.Closed, op.Fault)
		}
	}
}

// PROTOCOL.md §5.2 and field report 25.
func TestAppendBody(t *testing.T) {
	for _, c := range []struct {
		lines, want string
	}{
		{"Content-Type: text/plain|body: 1", ""},
		{"body: 1", codeMissingContentType},
		{"Content-Type:|body: 1", codeMissingContentType},
		{"Content-Type: undefined|body: 1", codeInvalidContentType},
		{"Content-Type: a/b|Content-Type: a/b|body: 1", codeInvalidContentType},
		{"Content-Type: text/plain|body: 0", codeEmptyBody},
		{"Stream-Closed: true|body: 0", ""},
		{"Stream-Closed: false|body: 0", codeEmptyBody},
		{"Stream-Closed: true|Content-Type: undefined|body: 0", ""},
		{"Stream-Closed: true|Content-Type: a/b|Content-Type: c/d|body: 0", ""},
		{"Stream-Closed: true|Producer-Id: p|body: 0", codeProducerIncomplete},
		{"Content-Type: a/b|Content-Encoding: gzip|body: 5", codeContentCoding}, // field report 154
		{"Content-Type: a/b|Content-Encoding: identity|body: 5", ""},
		{"Content-Type: a/b|Content-Encoding: identity|Content-Encoding: br|body: 5", codeContentCoding},
	} {
		if got := fault(t, "POST /v1/stream/s", strings.Split(c.lines, "|")...); got != c.want {
			t.Errorf("%s: %q, want %q", c.lines, got, c.want)
		}
	}
	op := parse(t, "POST /v1/stream/s", "body: -1")
	if op.Fault != nil {
		t.Errorf("a body that is not known yet: %v", op.Fault)
	}
	if op.SetBodyLength(0); op.Fault == nil || op.Fault.Code != codeEmptyBody {
		t.Errorf("a body that turned out empty: %v", op.Fault)
	}
	if got := fault(t, "PUT /v1/stream/s", "Content-Encoding: gzip", "body: 5"); got != codeContentCoding {
		t.Errorf("PUT with a coding: %q", got)
	}
	if got := fault(t, "PUT /v1/stream/s", "Content-Type: undefined", "body: 0"); got != codeInvalidContentType {
		t.Errorf("PUT with a nonsense type: %q", got)
	}
	if op := parse(t, "PUT /v1/stream/s", "Content-Type: ", "body: 5"); op.Fault != nil || op.HasContentType {
		t.Errorf("PUT with a blank type: %v", op.Fault)
	}
}

// Field report 44: every number of ours is plain decimal below 2^53.
func TestField044Integers(t *testing.T) {
	for _, bad := range []string{"1abc", "1e3", "-1", "+1", "1.0", "0x1", "", "1_0", "１", "9007199254740992", "18446744073709551616", "00", "01", "1 1"} {
		for _, lines := range [][]string{
			{"Producer-Id: p", "Producer-Epoch:" + bad, "Producer-Seq: 0"},
			{"Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq:" + bad},
			{"Stream-Incarnation:" + bad},
		} {
			if got := fault(t, "POST /v1/stream/s", append(lines, "Content-Type: a/b", "body: 1")...); got != codeInvalidHeader {
				t.Errorf("%q: %q", lines, got)
			}
		}
	}
}

// PROTOCOL.md §5.1 and field report 92.
func TestField092TTL(t *testing.T) {
	for _, bad := range []string{"+60", "060", "60.0", "6e1", "-1", "60s", "", "3153600001", "99999999999999999999", "1 0"} {
		if got := fault(t, "PUT /v1/stream/s", "Stream-TTL:"+bad); got != codeInvalidHeader {
			t.Errorf("%q: %q", bad, got)
		}
	}
	for value, want := range map[string]int64{"0": 0, "60": 60, " 60 ": 60, "3153600000": 3153600000} {
		if op := parse(t, "PUT /v1/stream/s", "Stream-TTL:"+value); op.Fault != nil || !op.HasTTL || op.TTL != want {
			t.Errorf("%q: %d, %v", value, op.TTL, op.Fault)
		}
	}
	if got := fault(t, "PUT /v1/stream/s", "Stream-TTL: 1", "Stream-Expires-At: 2030-01-01T00:00:00Z"); got != codeTTLAndExpiresAt {
		t.Errorf("both: %q", got)
	}
}

// Field report 13.
func TestField013Repeated(t *testing.T) {
	for _, h := range []string{"Producer-Seq: 0", "Stream-Closed: true", "Stream-Seq: a", "Stream-Incarnation: 1"} {
		if got := fault(t, "POST /v1/stream/s", h, h, "Content-Type: a/b", "body: 1"); got != codeRepeatedHeader {
			t.Errorf("%s twice: %q", h, got)
		}
	}
	for _, h := range []string{"Content-Type: a/b", "Stream-TTL: 1", "Stream-Forked-From: /v1/stream/x", "Stream-Expires-At: 2030-01-01T00:00:00Z"} {
		if got := fault(t, "PUT /v1/stream/s", h, h); got != codeRepeatedHeader {
			t.Errorf("%s twice: %q", h, got)
		}
	}
	for query, want := range map[string]string{
		"offset=": codeInvalidParameter, "offset": codeInvalidParameter, "offset=-1&offset=now": codeRepeatedParameter, "offset=a,b": codeInvalidOffset,
		"offset=..%2f": codeInvalidOffset, "offset=0 1": codeInvalidOffset, "offset=0%201": codeInvalidOffset, "offset=0+1": codeInvalidOffset, "offset=1%0": codeInvalidParameter,
		"live=foo&offset=-1": codeInvalidParameter, "offset=-1&utm=1&utm=2&&=&%zz=1": "", "offset=-1&o%66fset=-1": codeRepeatedParameter,
		"live=sse": codeOffsetRequired, "live=long-poll": codeOffsetRequired, "live=": codeInvalidParameter, "live=sse&live=sse&offset=-1": codeRepeatedParameter,
		"timeout=1&timeout_ms=1": codeRepeatedParameter, "timeout=-1": codeInvalidParameter, "timeout=1.5": codeInvalidParameter, "timeout=": codeInvalidParameter,
		"max_bytes=0": codeInvalidParameter, "max_bytes=x": codeInvalidParameter, "max_bytes=1&max-bytes=1": codeRepeatedParameter, "max-bytes=1": "",
		"cursor=abc": "", "cursor=-1": "", "cursor=" + strings.Repeat("9", 400): "", "cursor=": codeInvalidParameter, "cursor=1&cursor=2": codeRepeatedParameter,
		"": "", "offset=now": "", "offset=%2D1": "",
	} {
		if got := fault(t, "GET /v1/stream/s?"+query); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
}

func TestParseRead(t *testing.T) {
	op := parse(t, "GET /v1/stream/s?offset=0000000000000000_0000000000000007&live=long-poll&cursor=12&timeout=5&max_bytes=99999999999999999999")
	if r := op.Read; r.Live != LiveLongPoll || r.Start != StartAt || r.Offset != 7 || !r.Given || r.Cursor != 12 || !r.HasCursor || r.Timeout != 5000 || r.MaxBytes != 1<<63-1 {
		t.Errorf("%+v", r)
	}
	for query, want := range map[string]base.Millis{"timeout=0": 0, "timeout_ms=1": 1, "timeout=61": MaxTimeout, "timeout_ms=60001": MaxTimeout, "timeout=99999999999999999999": MaxTimeout} {
		if op := parse(t, "GET /v1/stream/s?"+query); op.Read.Timeout != want || !op.Read.HasTimeout || op.Fault != nil {
			t.Errorf("?%s: %d ms, %v", query, op.Read.Timeout, op.Fault)
		}
	}
	if op := parse(t, "GET /v1/stream/s?cursor=x"); op.Read.HasCursor {
		t.Error("a malformed cursor counts")
	}
}

// api §7: Last-Event-ID counts for SSE only, and wins there.
func TestLastEventID(t *testing.T) {
	op := parse(t, "GET /v1/stream/s?live=sse&offset=now", "Last-Event-ID: 00000000000000000042")
	if r := op.Read; r.Start != StartAt || r.Offset != 42 || !r.LastEventID || op.Fault != nil {
		t.Errorf("%+v, %v", r, op.Fault)
	}
	if op := parse(t, "GET /v1/stream/s?live=sse", "Last-Event-ID: 7"); op.Fault != nil || op.Read.Offset != 7 {
		t.Errorf("without an offset: %v", op.Fault)
	}
	for _, bad := range []string{"", "x", "7 8"} {
		if got := fault(t, "GET /v1/stream/s?live=sse&offset=-1", "Last-Event-ID:"+bad); got != codeInvalidOffset {
			t.Errorf("%q: %q", bad, got)
		}
	}
	if op := parse(t, "GET /v1/stream/s?offset=3", "Last-Event-ID: x"); op.Fault != nil || op.Read.Offset != 3 || op.Read.LastEventID {
		t.Errorf("catch-up: %+v, %v", op.Read, op.Fault)
	}
}

func TestAccept(t *testing.T) {
	for accept, want := range map[string]bool{
		"application/x-ndjson": true, "application/json": false, "*/*": false, "application/x-ndjson, */*": false, "application/x-ndjson, */*;q=0.5": true,
		"application/x-ndjson;q=0.5, application/json;q=0.4": true, "application/x-ndjson;q=0.4, application/json;q=0.5": false,
		"application/x-ndjson;q=0": false, "Application/X-NDJSON ; Q=0.001, application/*;q=0": true, "application/x-ndjson;q=0.9,application/json;q=0,*/*": true, "": false,
	} {
		if op := parse(t, "GET /v1/stream/s", "Accept: "+accept); op.Read.NDJSON != want {
			t.Errorf("%q: %v", accept, op.Read.NDJSON)
		}
	}
	if op := parse(t, "GET /v1/stream/s", "Accept: application/json;q=0.1", "Accept: application/x-ndjson"); !op.Read.NDJSON {
		t.Error("two lines are not one list")
	}
}

// PROTOCOL.md §4.2 and field report 104.
func TestParseFork(t *testing.T) {
	op := parse(t, "PUT /v1/stream/f", "Stream-Forked-From: /ds/buck/a%2Fb", "Stream-Fork-Offset: 0000000000000000_0000000000000005", "Stream-Fork-Sub-Offset: 3")
	if f := op.Fork; op.Fault != nil || !f.Set || string(f.Bucket) != "buck" || string(f.Stream) != "a/b" || f.Offset != 5 || !f.HasOffset || f.Sub != 3 || !f.HasSub {
		t.Errorf("%+v, %v", f, op.Fault)
	}
	if op := parse(t, "PUT /v1/stream/f", "Stream-Forked-From: /v1/stream/s", "Stream-Fork-Offset: now", "Stream-Fork-Sub-Offset: 0"); op.Fault != nil || op.Fork.HasOffset || op.Fork.HasSub {
		t.Errorf("%+v, %v", op.Fork, op.Fault)
	}
	if op := parse(t, "PUT /v1/stream/f", "Stream-Forked-From: /v1/stream/s", "Stream-Fork-Offset: -1"); op.Fault != nil || !op.Fork.HasOffset || op.Fork.Offset != 0 {
		t.Errorf("%+v, %v", op.Fork, op.Fault)
	}
	const from = "Stream-Forked-From: /v1/stream/s|"
	for lines, want := range map[string]string{
		"Stream-Fork-Sub-Offset: 0": codeForkHeaders, "Stream-Fork-Offset: 0": codeForkHeaders,
		from + "Stream-Fork-Sub-Offset: -1": codeInvalidHeader, from + "Stream-Fork-Sub-Offset: 1.5": codeInvalidHeader, from + "Stream-Fork-Sub-Offset: 05": codeInvalidHeader,
		from + "Stream-Fork-Sub-Offset: +1": codeInvalidHeader, from + "Stream-Fork-Sub-Offset: abc": codeInvalidHeader, from + "Stream-Fork-Sub-Offset: 99999999999999999999": codeInvalidHeader,
		from + "Stream-Fork-Offset: 5abc": codeInvalidOffset, from + "Stream-Fork-Offset:": codeInvalidOffset,
		"Stream-Forked-From:": codeInvalidHeader, "Stream-Forked-From: /v1/stream/a//b": codeInvalidHeader, "Stream-Forked-From: /v1/stream/s?x=1": codeInvalidHeader,
		"Stream-Forked-From: http://h/v1/stream/s": codeInvalidHeader, "Stream-Forked-From: /elsewhere/s": codeForkSourceNotFound, "Stream-Forked-From: /v1/stream/é": codeInvalidHeader,
	} {
		if got := fault(t, "PUT /v1/stream/f", strings.Split(lines, "|")...); got != want {
			t.Errorf("%s: %q, want %q", lines, got, want)
		}
	}
}

// Field reports 16 and 89.
func TestMethods(t *testing.T) {
	for _, m := range []string{"PATCH", "TRACE", "CONNECT", "PROPFIND", "LINK", "get", ""} {
		p := Parse(request(m+" /v1/stream/s"), new(Operation))
		if p == nil || p.Status != 405 || p.Fields != allowField {
			t.Errorf("%s: %+v", m, p)
		}
	}
	for _, target := range []string{"/v1/stream/s", "/", "*", "/no/such/route", "/v1/stream//"} {
		op := new(Operation)
		if p := Parse(request("OPTIONS "+target, "Access-Control-Request-Headers: a", "Access-Control-Request-Headers: b"), op); p != nil || op.Kind != KindOptions {
			t.Errorf("OPTIONS %s: %v", target, p)
		} else if string(op.RequestHeaders) != "a,b" {
			t.Errorf("asked for %q", op.RequestHeaders)
		}
	}
}

// An Operation that is used again remembers nothing.
func TestParseResets(t *testing.T) {
	op := new(Operation)
	Parse(request("POST /v1/stream/%61?x", "Content-Type: TEXT/plain", "Stream-Closed: true", "Producer-Id:", "Stream-Seq: 1", `If-None-Match: "x"`, "body: 0"), op)
	op.SplitBody(nil, nil, []byte("{"))
	if op.Fault == nil || op.BodyFault == nil {
		t.Fatal("no faults to forget")
	}
	Parse(request("GET /v1/stream/b"), op)
	if op.Fault != nil || op.BodyFault != nil || op.Closed || op.HasStreamSeq || op.HasContentType || op.IfNoneMatch != nil || string(op.Stream) != "b" || op.Producer.Set {
		t.Errorf("%+v", op)
	}
}

// PROTOCOL.md §9.1.3 and field report 19.
func TestSplitBody(t *testing.T) {
	for _, c := range []struct {
		method, body, want string
		position           int64
	}{
		{"POST", "[]", codeEmptyArray, -1}, {"PUT", "[]", "", 0}, {"PUT", "", "", 0}, {"POST", "", "", 0}, {"POST", "[[]]", "", 0}, {"POST", "[1,]", codeInvalidJSON, 3}, {"PUT", "{", codeInvalidJSON, 1},
	} {
		op := parse(t, c.method+" /v1/stream/s", "Content-Type: application/json", "body: 1")
		op.SplitBody(nil, nil, []byte(c.body))
		switch {
		case c.want == "" && op.BodyFault != nil:
			t.Errorf("%s %s: %v", c.method, c.body, op.BodyFault)
		case c.want != "" && (op.BodyFault == nil || op.BodyFault.Code != c.want || op.BodyFault.Position != c.position):
			t.Errorf("%s %s: %+v", c.method, c.body, op.BodyFault)
		}
	}
}

// The sizes of what a stream keeps are bounded.
func TestIdentifierLimit(t *testing.T) {
	long := strings.Repeat("x", maxIdentifier)
	if got := fault(t, "POST /v1/stream/s", "Stream-Seq: "+long, "Content-Type: a/b", "body: 1"); got != "" {
		t.Errorf("at the limit: %q", got)
	}
	op := parse(t, "POST /v1/stream/s", "Stream-Seq: "+long+"x", "Content-Type: a/b", "body: 1")
	if op.Fault == nil || op.Fault.Code != codeInvalidHeader || op.Fault.Limit != maxIdentifier {
		t.Errorf("beyond it: %+v", op.Fault)
	}
	if got := fault(t, "POST /v1/stream/s", "Producer-Id:", "Producer-Epoch: 0", "Producer-Seq: 0", "Content-Type: a/b", "body: 1"); got != codeInvalidHeader {
		t.Errorf("an empty Producer-Id: %q", got)
	}
}
