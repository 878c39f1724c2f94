//go:build e2e

package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestAPI drives every operation against the binary: each status that the document
// gives it, and each code of a refusal.
func TestAPI(t *testing.T) {
	d := newDriver(t,
		"--long-poll-timeout", "200ms", "--sse-max-duration", "1s", "--sse-heartbeat", "500ms", "--max-body-bytes", "64KiB", "--max-snapshot-bytes", "128KiB",
		"--max-producers-per-stream", "2")
	for _, part := range []struct {
		name  string
		drive func(*driver)
	}{
		{"preflights", preflights},
		{"methods", methods},
		{"document", ownDocument},
		{"buckets", buckets},
		{"list", list},
		{"snapshots", snapshots},
		{"retention", retention},
		{"bootstrap", bootstraps},
		{"attributes", attributes},
		{"batch", batch},
	} {
		t.Run(part.name, func(t *testing.T) { part.drive(d.on(t)) })
	}
	for _, s := range []surface{v1, ds} {
		t.Run("streams"+s.suffix, func(t *testing.T) { streams(d.on(t), s) })
	}
	if !t.Failed() {
		d.complete()
	}
}

// undriven are what the document has and no test can bring about here, with the
// reason.
var undriven = map[string]string{
	"500":                 "needs a damaged disk",
	"429 state_full":      "needs more state than a test should make",
	"403 history_changed": "needs a restore: test/e2e",
}

// complete checks that everything that is documented was driven.
func (d *driver) complete() {
	d.Helper()
	for _, id := range d.ids() {
		op := d.operations[id]
		for status, r := range op.Responses.Map() {
			if status == "default" || undriven[status] != "" {
				continue
			}
			codes := slices.DeleteFunc(codesOf(r.Value), func(code string) bool { return undriven[status+" "+code] != "" })
			if len(codes) == 0 && len(codesOf(r.Value)) > 0 {
				continue
			}
			if !d.driven[id+" "+status] {
				d.Errorf("%s is documented with %s and was not driven to it", id, status)
			}
			if op.method == http.MethodHead {
				continue // its problems have no body
			}
			for _, code := range codes {
				if !d.driven[fmt.Sprint(id, " ", status, " ", code)] {
					d.Errorf("%s is documented with %s %s and was not driven to it", id, status, code)
				}
			}
		}
	}
}

// filled returns the parameters of op's path, with values that name something.
func filled(op *operation) (pairs []string) {
	for _, p := range op.parameters() {
		if p.In == "path" {
			pairs = append(pairs, p.Name, example(p))
		}
	}
	return pairs
}

func preflights(d *driver) {
	for _, id := range d.ids() {
		if op := d.operations[id]; op.method == http.MethodOptions {
			a := d.want(204, to(id, filled(op)...).with("Access-Control-Request-Headers", "content-type, x-mine"))
			if allowed := a.get("Access-Control-Allow-Headers"); !strings.Contains(allowed, "x-mine") {
				d.Errorf("%s allows %s", id, allowed)
			}
		}
	}
}

// methods checks that a path has the methods that it is documented with, and no other.
func methods(d *driver) {
	for path, item := range d.Paths.Map() {
		some := &operation{item.Options, "PATCH", path, item}
		req := d.build(some, to(item.Options.OperationID, filled(some)...))
		resp, err := d.client.Do(req)
		if err != nil {
			d.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 405 {
			d.Errorf("PATCH %s: %d", path, resp.StatusCode)
		}
		allow := strings.Split(resp.Header.Get("Allow"), ", ")
		slices.Sort(allow)
		documented := names(item.Operations())
		slices.Sort(documented)
		if !slices.Equal(allow, documented) {
			d.Errorf("%s allows %v and is documented with %v", path, allow, documented)
		}
	}
}

func ownDocument(d *driver) {
	a := d.want(200, to("getOpenAPI"))
	d.want(304, to("getOpenAPI").with("If-None-Match", a.get("ETag")))
	if !strings.HasPrefix(a.body, `{"components":`) {
		d.Errorf("the document begins with %.40q", a.body)
	}
}

func buckets(d *driver) {
	d.want(201, to("createBucket", "bucket", "docs"))
	d.want(200, to("createBucket", "bucket", "docs").ask("if-not-exists=true"))
	d.refused(409, "bucket_exists", to("createBucket", "bucket", "docs"))
	d.refused(400, "bad_path", to("createBucket", "bucket", "Docs"))
	d.refused(400, "invalid_parameter", to("createBucket", "bucket", "docs").ask("if-not-exists=yes").bad())
	d.refused(400, "repeated_parameter", to("createBucket", "bucket", "docs").ask("if-not-exists=true&if-not-exists=true").bad())
	d.refused(404, "unknown_route", to("createBucket", "bucket", "__ds"))

	d.want(201, to("createStream", "bucket", "docs", "stream", "only"))
	if a := d.want(200, to("getBucket", "bucket", "docs")); !strings.Contains(a.body, `"streams":1`) {
		d.Errorf("the bucket is %s", a.body)
	}
	d.refused(409, "bucket_not_empty", to("deleteBucket", "bucket", "docs"))
	d.want(204, to("deleteStream", "bucket", "docs", "stream", "only"))
	d.want(204, to("deleteBucket", "bucket", "docs"))
	for _, id := range []string{"getBucket", "deleteBucket"} {
		d.refused(404, "bucket_not_found", to(id, "bucket", "docs"))
		d.refused(404, "unknown_route", to(id, "bucket", "__ds"))
		d.refused(400, "bad_path", to(id, "bucket", "a\x01b"))
	}
	d.want(201, to("createBucket", "bucket", "docs"))
}

func list(d *driver) {
	at := func(bucket string) request { return to("listStreams", "bucket", bucket) }
	d.want(201, to("createBucket", "bucket", "list"))
	for i := range 3 {
		d.want(201, to("createStream", "bucket", "list", "stream", "s"+strconv.Itoa(i)).send("application/json", "[1]"))
	}
	if a := d.want(200, at("list").ask("prefix=s&after=s0&limit=1")); !strings.Contains(a.body, `"next_cursor":"s1","has_more":true`) {
		d.Errorf("the page is %s", a.body)
	}
	if a := d.want(200, at("list").ask("after=s2")); !strings.Contains(a.body, `"streams":[],"stream_count":0,"next_cursor":null,"has_more":false`) {
		d.Errorf("the page is %s", a.body)
	}
	d.want(200, at("list").ask("prefix=&after="))
	d.refused(400, "invalid_parameter", at("list").ask("limit=0").bad())
	d.refused(400, "invalid_parameter", at("list").ask("limit=1001").bad())
	d.refused(400, "repeated_parameter", at("list").ask("limit=1&limit=1").bad())
	d.refused(400, "bad_path", at("a\x01b"))
	d.refused(404, "bucket_not_found", at("none"))
	d.refused(404, "unknown_route", at("__ds"))
}

func attributes(d *driver) {
	at := func(id, stream string) request { return to(id, "bucket", "docs", "stream", stream) }
	const valid = `{"title":"Notes","metadata":{"owner":"ada"}}`
	stream := newStream(d, "attrs", "text/plain", "")
	put := at("putAttributes", "attrs")
	d.want(204, put.send("application/json", valid))
	if a := d.want(200, at("getAttributes", "attrs")); a.body != valid {
		d.Errorf("the attributes are %s", a.body)
	}
	d.want(204, put.send("application/json", `{}`))
	d.refused(400, "empty_body", put.bad())
	d.refused(400, "invalid_content_type", put.send("text/plain", valid).bad())
	d.refused(400, "invalid_json", put.send("application/json", `{"title":`).bad())
	d.refused(400, "invalid_attrs", put.send("application/json", `{"colour":"red"}`).bad())
	d.refused(413, "body_too_large", put.send("application/json", `{"title":"`+strings.Repeat("x", 17<<10)+`"}`))
	d.refused(415, "content_coding_not_supported", put.send("application/json", valid).with("Content-Encoding", "gzip").bad())
	around(d, "attrs", stream, at("getAttributes", "attrs"), put.send("application/json", valid))
}

func batch(d *driver) {
	frames := func(payloads ...string) string {
		var b strings.Builder
		for _, p := range payloads {
			b.WriteString(string([]byte{0, 0, byte(len(p) >> 8), byte(len(p))}) + p)
		}
		return b.String()
	}
	stream := newStream(d, "batch", jsonType, "")
	at := to("appendBatch", "bucket", "docs", "stream", "batch")
	a := d.want(200, at.send(jsonType, frames(`{"n":1}`, `{"n":`, `[2,3]`)))
	if strings.Count(a.body, `"status":204`) != 2 || !strings.Contains(a.body, `"code":"invalid_json"`) {
		d.Errorf("the batch was answered with %s", a.body)
	}
	d.refused(400, "malformed_frames", at.send(jsonType, "\x00\x00\x00\x09short"))
	d.refused(400, "empty_body", at.send(jsonType, "").bad())
	d.refused(400, "missing_content_type", at.send("", frames("1")))
	d.refused(400, "invalid_content_type", at.send("json", frames("1")).bad())
	d.refused(400, "header_not_allowed", at.send(jsonType, frames("1")).with("Stream-Closed", "true").bad())
	if a := d.want(200, at.send("text/plain", frames("1"))); !strings.Contains(a.body, `"code":"content_type_mismatch"`) {
		d.Errorf("a batch of another type was answered with %s", a.body)
	}
	d.refused(413, "body_too_large", at.send(jsonType, strings.Repeat("x", 65<<10)))
	d.refused(415, "content_coding_not_supported", at.send(jsonType, frames("1")).with("Content-Encoding", "gzip").bad())
	d.want(201, to("createStream", "bucket", "docs", "stream", "batch-closed").send(jsonType, "1").with("Stream-Closed", "true"))
	a = d.want(200, to("appendBatch", "bucket", "docs", "stream", "batch-closed").send(jsonType, frames("1")))
	if !strings.Contains(a.body, `"code":"closed"`) {
		d.Errorf("a batch to a closed stream was answered with %s", a.body)
	}
	around(d, "batch", stream, at.send(jsonType, frames("1")))
}

// newStream creates /ds/docs/{name} and returns its incarnation.
func newStream(d *driver, name, contentType, body string) string {
	d.Helper()
	return d.want(201, to("createStream", "bucket", "docs", "stream", name).send(contentType, body)).get("Stream-Incarnation")
}

// around drives what all operations on something that lies around the stream
// /ds/docs/{name} have in common. The stream ends by it.
func around(d *driver, name, incarnation string, requests ...request) {
	d.Helper()
	elsewhere := func(r request, bucket, stream string) request {
		r.path = maps.Clone(r.path)
		r.path["bucket"], r.path["stream"] = bucket, stream
		return r
	}
	for _, r := range requests {
		const header = "Stream-Incarnation"
		d.refused(412, "incarnation_mismatch", r.with(header, "1"))
		d.refused(400, "invalid_header", r.with(header, "x").bad())
		d.refused(400, "repeated_header", r.with(header, incarnation, header, incarnation).bad())
		d.refused(400, "bad_path", elsewhere(r, "docs", "a\x01b"))
		d.refused(404, "stream_not_found", elsewhere(r, "docs", "none"))
		d.refused(404, "bucket_not_found", elsewhere(r, "nowhere", "none"))
		d.refused(404, "unknown_route", elsewhere(r, "__ds", "none"))
	}
	d.want(201, to("createStream", "bucket", "docs", "stream", name+"-fork").with("Stream-Forked-From", "/ds/docs/"+name))
	d.want(204, to("deleteStream", "bucket", "docs", "stream", name))
	for _, r := range requests {
		d.refused(410, "stream_gone", r)
	}
}
