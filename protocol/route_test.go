package protocol

import (
	"strings"
	"testing"
)

// api §2 to §4: what each method does to each resource.
func TestRoutes(t *testing.T) {
	for line, want := range map[string]Kind{
		"PUT /ds/buck": KindBucketCreate, "GET /ds/buck": KindBucketGet, "HEAD /ds/buck": KindBucketGet, "DELETE /ds/buck": KindBucketDelete,
		"GET /ds/Any%20thing": KindBucketGet, "DELETE /ds/a": KindBucketDelete, "PUT /ds/_default": KindBucketCreate,
		"GET /ds/buck/streams": KindList, "HEAD /ds/a%20b/streams": KindList,
		"PUT /ds/buck/s": KindCreate, "POST /ds/buck/s": KindAppend, "GET /ds/buck/s": KindRead, "HEAD /ds/buck/s": KindHead, "DELETE /ds/buck/s": KindDelete,
		"GET /ds/buck/%73treams": KindRead, "GET /ds/buck/snapshot": KindRead, "DELETE /ds/buck/stream%73": KindDelete,
		"PUT /ds/buck/s/snapshot/7": KindSnapshotPut, "PUT /ds/buck/s/snapshot?record=7": KindSnapshotPut, "PUT /ds/buck/s/snapshot": KindSnapshotPut,
		"GET /ds/buck/s/snapshot": KindSnapshotLatest, "HEAD /ds/buck/s/snapshot": KindSnapshotLatest, "GET /ds/buck/s/snapshot?record=7": KindSnapshotGet,
		"GET /ds/buck/s/snapshot/%30": KindSnapshotGet, "HEAD /ds/buck/s/snapshot/0": KindSnapshotGet,
		"DELETE /ds/buck/s/snapshot/0": KindSnapshotDelete, "DELETE /ds/a/b%2Fc/snapshot/0": KindSnapshotDelete, "GET /ds/a/%73treams/snapshot": KindSnapshotLatest,
		"PUT /ds/buck/s/retention/7": KindRetention, "PUT /ds/buck/s/retention?record=7": KindRetention,
		"GET /ds/buck/s/bootstrap": KindBootstrap, "HEAD /ds/buck/s/bootstrap": KindBootstrap, "GET /ds/a/b%2Fc/bootstrap": KindBootstrap,
		"GET /ds/buck/s/attrs": KindAttrsGet, "HEAD /ds/buck/s/attrs": KindAttrsGet, "PUT /ds/buck/s/attrs": KindAttrsPut,
		"POST /ds/buck/s/append-batch": KindAppendBatch,
		"GET /openapi.json":            KindDocument,
		"HEAD /openapi.json":           KindDocument,
		"GET /v1/stream/a/b/snapshot":  KindRead, "PUT /v1/stream/a/b/bootstrap": KindCreate, "GET /v1/stream/ds/streams": KindRead,
		"OPTIONS /ds/buck/s/attrs": KindOptions, "OPTIONS /ds": KindOptions,
	} {
		op := new(Operation)
		if p := Parse(request(line), op); p != nil || op.Kind != want {
			t.Errorf("%s: kind %d, want %d; %v", line, op.Kind, want, p)
		}
	}
}

// Field report 16: 405 with Allow, on each resource.
func TestField016Allow(t *testing.T) {
	for path, allow := range map[string]string{
		"/v1/stream/s": "GET, HEAD, PUT, POST, DELETE, OPTIONS", "/ds/buck/s": "GET, HEAD, PUT, POST, DELETE, OPTIONS",
		"/ds/buck": "GET, HEAD, PUT, DELETE, OPTIONS", "/ds/buck/streams": "GET, HEAD, OPTIONS",
		"/ds/buck/s/snapshot": "GET, HEAD, PUT, DELETE, OPTIONS", "/ds/buck/s/snapshot/7": "GET, HEAD, PUT, DELETE, OPTIONS",
		"/ds/buck/s/retention": "PUT, OPTIONS", "/ds/buck/s/retention/7": "PUT, OPTIONS", "/ds/buck/s/bootstrap": "GET, HEAD, OPTIONS",
		"/ds/buck/s/attrs": "GET, HEAD, PUT, OPTIONS", "/ds/buck/s/append-batch": "POST, OPTIONS",
		"/openapi.json": "GET, HEAD, OPTIONS",
	} {
		for m := range strings.SplitSeq("GET HEAD PUT POST DELETE OPTIONS PATCH TRACE CONNECT PROPFIND get", " ") {
			p := Parse(request(m+" "+path), new(Operation))
			taken := p == nil || p.Status != 405
			if want := strings.Contains(", "+allow+",", " "+m+","); taken != want {
				t.Errorf("%s %s: %v", m, path, p)
			}
			if !taken && p.Fields != "Allow: "+allow+"\r\n" {
				t.Errorf("%s %s: %q", m, path, p.Fields)
			}
		}
	}
}

// api §1 and §7: route words are raw segments, and nothing is cleaned up.
func TestPathsAround(t *testing.T) {
	checkPaths(t, []pathCase{
		{"GET /ds/buck", "buck", "", ""},
		{"GET /ds/a%20b/streams", "a b", "", ""},
		{"PUT /ds/a_-9", "a_-9", "", ""},
		{"PUT /ds/" + long(64), long(64), "", ""},
		{"PUT /ds/" + long(65), "", "", codeBadPath},
		{"GET /ds/" + long(65), long(65), "", ""},
		{"PUT /ds/abc", "", "", codeBadPath},
		{"PUT /ds/Buck", "", "", codeBadPath},
		{"PUT /ds/bu%63k", "buck", "", ""},
		{"PUT /ds/bu.k", "", "", codeBadPath},
		{"PUT /ds/__buck", "", "", codeBadPath},
		{"GET /ds/__ds", "", "", codeUnknownRoute},
		{"PUT /ds/a%2Fbc", "", "", codeBadPath},
		{"GET /ds/a%zz", "", "", codeBadPath},
		{"GET /ds/a%00b", "", "", codeBadPath},
		{"GET /ds/%2e%2e", "", "", codeBadPath},
		{"GET /ds/", "", "", codeBadPath},
		{"GET /ds", "", "", codeUnknownRoute},
		{"GET /ds//streams", "", "", codeBadPath},
		{"GET /ds/" + long(1024), "", "", codeBadPath},

		{"GET /ds/buck/streams/", "", "", codeUnknownRoute},
		{"GET /ds/buck/streams/snapshot", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/t", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/%73napshot", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/bootstra%70", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/attrs/", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/bootstrap/0", "", "", codeUnknownRoute},
		{"POST /ds/buck/s/append-batch/", "", "", codeUnknownRoute},
		{"GET /ds/buck/s/snapshot/", "", "", codeBadPath},
		{"GET /ds/buck/s/snapshot/0/", "", "", codeUnknownRoute},
		{"PUT /ds/buck/s/retention/0/1", "", "", codeUnknownRoute},
		{"GET /ds/buck//snapshot", "", "", codeBadPath},
		{"GET /ds//s/attrs", "", "", codeBadPath},
		{"PUT /ds/x/$y/attrs", "x", "$y", ""}, // the rules for ids bind creation alone
		{"GET /ds/buck/a%2Fb/bootstrap", "buck", "a/b", ""},
		{"GET /ds/buck/a%2F..%2Fb/bootstrap", "", "", codeBadPath},
	})
}

// A batch takes no header that is about one append, and every body is checked for
// what it has to be.
func TestBodiesAround(t *testing.T) {
	const batch, attrs, snapshot = "POST /ds/buck/s/append-batch", "PUT /ds/buck/s/attrs", "PUT /ds/buck/s/snapshot/7"
	for _, c := range []struct{ line, lines, want string }{
		{batch, "Content-Type: a/b|body: 9", ""},
		{batch, "body: 9", codeMissingContentType},
		{batch, "Content-Type: undefined|body: 9", codeInvalidContentType},
		{batch, "Content-Type: a/b|body: 0", codeEmptyBody},
		{batch, "Content-Type: a/b|Content-Encoding: gzip|body: 9", codeContentCoding},
		{batch, "Content-Type: a/b|Stream-Closed: false|body: 9", ""},
		{batch, "Content-Type: a/b|Stream-Closed: true|body: 9", codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|Producer-Id: p|body: 9", codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|Producer-Seq: x|body: 9", codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|Stream-Seq: 1|body: 9", codeHeaderNotAllowed},
		{batch, `Content-Type: a/b|If-Match: "a"|body: 9`, codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|If-None-Match: *|body: 9", codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|Stream-Record-Match: 1|body: 9", codeHeaderNotAllowed},
		{batch, "Content-Type: a/b|Stream-Incarnation: 7|body: 9", ""},
		{attrs, "Content-Type: application/json; charset=utf-8|body: 2", ""},
		{attrs, "body: 2", ""},
		{attrs, "Content-Type: text/plain|body: 2", codeInvalidContentType},
		{attrs, "body: 0", codeEmptyBody},
		{attrs, "Content-Encoding: br|body: 2", codeContentCoding},
		{snapshot, "body: 0", ""},
		{snapshot, "Content-Type: image/png|body: 5", ""},
		{snapshot, "Content-Type: undefined|body: 5", codeInvalidContentType},
		{snapshot, "Content-Encoding: gzip|body: 5", codeContentCoding},
	} {
		if got := fault(t, c.line, strings.Split(c.lines, "|")...); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.line, c.lines, got, c.want)
		}
	}
	op := parse(t, batch, "Content-Type: a/b", "Producer-Id: p", "If-Match: *", "body: 9")
	if op.Producer.Set || op.HasIfMatch || op.Fault.Field != "Producer-Id" {
		t.Errorf("%+v, fault %+v", op.Producer, op.Fault)
	}
	op = parse(t, batch, "Content-Type: application/json", "body: 9")
	if op.SplitBody(nil, nil, []byte("[]")); op.BodyFault == nil || op.BodyFault.Code != codeEmptyArray {
		t.Errorf("a frame that is an empty array: %v", op.BodyFault)
	}
}
