//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestSurfaceSnapshots is the first half of section 4 of the API.
func TestSurfaceSnapshots(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-snapshots")
	const b = "/surface-snapshots/s"
	at := func(offset int, body string) []string {
		return h("Stream-Snapshot-Offset", fmt.Sprintf("@%d", offset), "Stream-Snapshot-Digest", digestOf(body))
	}
	next := func(n int) []string { return h("Stream-Next-Offset", fmt.Sprintf("@%d", n)) }
	published := func(offset int, body string, first int) []string {
		return with(incarnated, next(9), at(offset, body), records(first, 3))
	}
	put := func(what, place, body string, status int, code string, answer []string, header ...string) row {
		return row{what: "PUT " + what, request: "PUT " + b + "/snapshot" + place, header: with(typed("image/png"), header), body: body, status: status, code: code, answer: answer}
	}
	get := func(what, place string, status int, code string, answer []string, content string, header ...string) row {
		return row{what: "GET " + what, request: "GET " + b + "/snapshot" + place, header: header, status: status, code: code, answer: answer, content: content}
	}
	drop := func(what, place string, status int, code string, answer []string) row {
		return row{what: "DELETE " + what, request: "DELETE " + b + "/snapshot" + place, status: status, code: code, answer: answer}
	}
	keep := func(what, place string, status int, code string, answer []string) row {
		return row{what: "retention: " + what, request: "PUT " + b + "/retention" + place, status: status, code: code, answer: answer}
	}
	gone := func(earliest int) []string {
		return with(incarnated, h("Stream-Earliest-Offset", fmt.Sprintf("@%d", earliest), "Link", "</ds"+b+`/bootstrap>; rel="bootstrap"`))
	}
	whole := func(body string, offset int) []string {
		return with(typed("image/png"), incarnated, at(offset, body), next(offset), h("ETag", `"`+digestOf(body)+`"`, "Accept-Ranges", "bytes", "Cache-Control", "public, no-cache"))
	}
	retained := func(earliest, first, offset int, body string) []string {
		return with(published(offset, body, first), h("Stream-Earliest-Offset", fmt.Sprintf("@%d", earliest)))
	}
	s.run([]row{
		put("404", "/0", "x", 404, "stream_not_found", nil),
		{what: "three messages", request: "PUT " + b, header: typed(plain), body: "abc", status: 201,
			answer: with(h("Location", "$base/ds"+b), typed(plain), state("", 3), h("Stream-Record-Start", "0"), records(0, 1))},
		{what: "the second", request: "POST " + b, header: typed(plain), body: "def", status: 204, answer: appended("", 3, 6, 1, 2)},
		{what: "the third", request: "POST " + b, header: typed(plain), body: "ghi", status: 204, answer: appended("", 6, 9, 2, 3)},
		get("404, none", "", 404, "snapshot_not_found", incarnated, ""),
		get("404, none there", "/3", 404, "snapshot_not_found", incarnated, ""),
		drop("404", "/3", 404, "snapshot_not_found", incarnated),
		keep("409 without a snapshot", "/3", 409, "retention_above_snapshot", incarnated),
		put("400, not a boundary", "/4", "x", 400, "snapshot_not_boundary", incarnated),
		put("400, no offset", "/x", "x", 400, "invalid_offset", incarnated),
		put("400, another digest", "/3", "x", 400, "digest_mismatch", incarnated, "Stream-Snapshot-Digest", digestOf("y")),
		put("409, beyond the tail", "/10", "x", 409, "snapshot_beyond_tail", with(incarnated, next(9))),
		put("412", "/3", "x", 412, "incarnation_mismatch", incarnated, "Stream-Incarnation", "1"),
		put("204 at offset 0", "/0", "", 204, "", published(0, "", 0)),
		put("204 and no trim", "/3", "one", 204, "", published(3, "one", 0), "Stream-Snapshot-Retain", "true", "Stream-Snapshot-Digest", digestOf("one")),
		{what: "nothing is trimmed", request: "GET " + b + "?offset=0", status: 200, answer: with(typed(plain), shared, span(0, 9, ""), upToDate), content: "abcdefghi"},
		{what: "HEAD names it", request: "HEAD " + b, status: 200, answer: with(typed(plain), private, state("", 9), at(3, "one"), records(0, 3))},
		put("204, the same again, which trims", "/3", "one", 204, "", published(3, "one", 1)),
		{what: "410 from then on", request: "GET " + b + "?offset=0", status: 410, code: "offset_trimmed", answer: gone(3)},
		{what: "410 from the beginning", request: "GET " + b, status: 410, code: "offset_trimmed", answer: gone(3)},
		{what: "410 live", request: "GET " + b + "?offset=-1&live=long-poll", status: 410, code: "offset_trimmed", answer: gone(3)},
		{what: "but not from the earliest", request: "GET " + b + "?offset=3", status: 200, answer: with(typed(plain), shared, span(3, 9, ""), upToDate), content: "defghi"},
		{what: "HEAD says where it begins", request: "HEAD " + b, status: 200, answer: with(typed(plain), private, state("", 9), at(3, "one"), h("Stream-Earliest-Offset", "@3"), records(1, 3))},
		put("410, below the earliest", "/0", "x", 410, "snapshot_below_earliest", gone(3)),
		put("409, other bytes", "/3", "two", 409, "snapshot_conflict", with(incarnated, at(3, "one"))),
		put("409, other bytes, by the digest", "/3", "two", 409, "snapshot_conflict", with(incarnated, at(3, "one")), "Stream-Snapshot-Digest", digestOf("two")),
		put("409, beyond the tail, with the current one", "/10", "x", 409, "snapshot_beyond_tail", with(incarnated, next(9), at(3, "one"))),
		get("307", "", 307, "", with(incarnated, private, h("Location", "snapshot/@3")), ""),
		get("200", "/3", 200, "", whole("one", 3), "one"),
		get("206", "/3", 206, "", with(whole("one", 3), h("Content-Range", "bytes 1-2/3")), "ne", "Range", "bytes=1-"),
		get("416", "/3", 416, "range_not_satisfiable", with(incarnated, h("Content-Range", "bytes */3")), "", "Range", "bytes=3-"),
		get("404, another place", "/6", 404, "snapshot_not_found", incarnated, ""),
		drop("409, the current one", "/3", 409, "snapshot_is_current", with(incarnated, at(3, "one"))),
		put("204 by record", "?record=3", "all", 204, "", published(9, "all", 1), "Stream-Snapshot-Retain", "true"),
		put("409, older than the current one", "/6", "x", 409, "snapshot_stale", with(incarnated, at(9, "all"))),
		get("200 at the tail", "/9", 200, "", with(whole("all", 9), upToDate), "all"),
		get("200, the one that it replaced", "/3", 200, "", whole("one", 3), "one"),
		drop("204, the one that it replaced", "/3", 204, "", incarnated),
		drop("404, twice", "/3", 404, "snapshot_not_found", incarnated),
		get("404 after it", "/3", 404, "snapshot_not_found", incarnated, ""),
		keep("204 at the earliest changes nothing", "/3", 204, "", retained(3, 1, 9, "all")),
		keep("204", "/6", 204, "", retained(6, 2, 9, "all")),
		keep("409, back", "/3", 409, "retention_behind", with(incarnated, h("Stream-Earliest-Offset", "@6"), at(9, "all"))),
		keep("409, not a boundary", "/7", 409, "retention_not_boundary", with(incarnated, at(9, "all"))),
		keep("409, above the snapshot", "/10", 409, "retention_above_snapshot", with(incarnated, at(9, "all"))),
		keep("400", "/x", 400, "invalid_offset", incarnated),
		keep("204 by record", "?record=3", 204, "", retained(9, 3, 9, "all")),
		{what: "410, a fork from below", request: "PUT /surface-snapshots/f", header: h("Stream-Forked-From", "/ds"+b, "Stream-Fork-Offset", "@3"), status: 410, code: "offset_trimmed",
			answer: gone(9)},
	})
}

// TestSurfaceBootstrap is the second half of section 4.
func TestSurfaceBootstrap(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-bootstrap")
	const b = "/surface-bootstrap/s"
	head := func(offset string, next, first, after int, more ...string) []string {
		return with(private, h("Content-Type", "multipart/mixed; boundary=boundary", "Stream-Snapshot-Offset", offset, "Stream-Next-Offset", fmt.Sprintf("@%d", next)),
			incarnated, jsonRecords(first, after), upToDate, more)
	}
	part := func(contentType, body string, more ...string) string {
		lines := append([]string{"--boundary", "Content-Type: " + contentType, fmt.Sprintf("Content-Length: %d", len(body))}, more...)
		return strings.Join(append(lines, "", body), "\r\n") + "\r\n"
	}
	const none, octets, end = "Stream-Snapshot-Offset: -1", "application/octet-stream", "--boundary--\r\n"
	digest := digestOf("state")
	named := h("Stream-Snapshot-Offset: @4", "Stream-Snapshot-Digest: "+digest)
	live := with(h("Content-Type", "text/event-stream", "Cache-Control", "no-cache", "Stream-Data-Content-Type", jsonType), incarnated, extensions)
	events := with(live, h("Stream-Snapshot-Offset", "@4", "Stream-Snapshot-Digest", digest, "Stream-Snapshot-Content-Type", plain))
	resumed := with(live, h("Stream-Snapshot-Offset", "@4", "Stream-Snapshot-Digest", digest)) // of the event that is not sent, no type
	rest := "event: data\ndata:[3]\nid: @6\n\nevent: control\ndata:{\"streamNextOffset\":\"@6\",\"upToDate\":true,\"streamClosed\":true}\nid: @6\n\n"
	s.run([]row{
		{what: "404", request: "GET " + b + "/bootstrap", status: 404, code: "stream_not_found"},
		{what: "an empty stream", request: "PUT " + b, header: typed(jsonType), status: 201,
			answer: with(h("Location", "$base/ds"+b), typed(jsonType), appended("", 0, 0, 0, 0), extensions)},
		{what: "200, nothing", request: "GET " + b + "/bootstrap", status: 200, answer: head("-1", 0, 0, 0), content: part(octets, "", none) + end},
		{what: "two messages", request: "POST " + b, header: typed(jsonType), body: "[1,2]", status: 204, answer: with(appended("", 0, 4, 0, 2), extensions)},
		{what: "200 without a snapshot", request: "GET " + b + "/bootstrap", status: 200, answer: head("-1", 4, 0, 2),
			content: part(octets, "", none) + part(jsonType, "1") + part(jsonType, "2") + end},
		{what: "a snapshot", request: "PUT " + b + "/snapshot?record=2", header: typed(plain), body: "state", status: 204,
			answer: with(incarnated, h("Stream-Next-Offset", "@4", "Stream-Snapshot-Offset", "@4", "Stream-Snapshot-Digest", digest), jsonRecords(2, 2))},
		{what: "200, a snapshot alone", request: "GET " + b + "/bootstrap", status: 200, answer: head("@4", 4, 2, 2, "Stream-Snapshot-Digest", digest), content: part(plain, "state", named...) + end},
		{what: "a third, and closed", request: "POST " + b, header: with(typed(jsonType), h("Stream-Closed", "true")), body: "3", status: 204, answer: with(appended(":c", 4, 6, 2, 3)[:8], extensions,
			h("Stream-Record-First", "2", "Stream-Record-Start", "2", "Stream-Record-Next", "3", "Stream-Offset", "@4"))},
		{what: "200, closed", request: "GET " + b + "/bootstrap", status: 200, answer: head("@4", 6, 2, 3, "Stream-Snapshot-Digest", digest, "Stream-Closed", "true"),
			content: part(plain, "state", named...) + part(jsonType, "3") + end},
		{what: "HEAD", request: "HEAD " + b + "/bootstrap", status: 200, answer: head("@4", 6, 2, 3, "Stream-Snapshot-Digest", digest, "Stream-Closed", "true")},
		{what: "as events", request: "GET " + b + "/bootstrap?live=sse", status: 200, answer: events, content: "event: snapshot\ndata:state\nid: @4\n\n" + rest},
		{what: "as events, resumed", request: "GET " + b + "/bootstrap?live=sse", header: h("Last-Event-ID", "@4"), status: 200, answer: resumed, content: rest},
		{what: "400, another live", request: "GET " + b + "/bootstrap?live=long-poll", status: 400, code: "invalid_parameter", answer: incarnated},
		{what: "412", request: "GET " + b + "/bootstrap", header: h("Stream-Incarnation", "1"), status: 412, code: "incarnation_mismatch", answer: incarnated},
	})
}

// TestSurfaceExtras is what section 3 adds to streams: attributes and batches.
func TestSurfaceExtras(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-extras")
	const b = "/surface-extras/s"
	frames := func(payloads ...string) string {
		var all strings.Builder
		for _, p := range payloads {
			all.WriteString(string([]byte{0, 0, 0, byte(len(p))}) + p)
		}
		return all.String()
	}
	attrs := func(what, body string, status int, code string, answer []string, contentType string) row {
		return row{what: "PUT attributes: " + what, request: "PUT " + b + "/attrs", header: typed(contentType), body: body, status: status, code: code, answer: answer}
	}
	batch := func(what, body string, status int, code string, answer []string, content string, header ...string) row {
		return row{what: "batch: " + what, request: "POST " + b + "/append-batch", header: header, body: body, status: status, code: code, answer: answer, content: content}
	}
	read := with(typed(jsonType), private, incarnated)
	const valid = `{"title":"Notes","metadata":{"a":[1]}}`
	s.run([]row{
		{what: "GET attributes: 404", request: "GET " + b + "/attrs", status: 404, code: "stream_not_found"},
		{what: "Stream-Attrs on create", request: "PUT " + b, header: with(typed(plain), h("Stream-Attrs", `{"title":"New"}`)), status: 201,
			answer: with(h("Location", "$base/ds"+b), typed(plain), appended("", 0, 0, 0, 0))},
		{what: "GET attributes", request: "GET " + b + "/attrs", status: 200, answer: read, content: `{"title":"New"}`},
		attrs("204, replaced whole", valid, 204, "", with(incarnated, records(0, 0)), jsonType),
		{what: "GET attributes again", request: "GET " + b + "/attrs", status: 200, answer: read, content: valid},
		attrs("400, another name", `{"colour":"red"}`, 400, "invalid_attrs", incarnated, jsonType),
		attrs("400, title is a string", `{"title":1}`, 400, "invalid_attrs", incarnated, jsonType),
		attrs("400, metadata is an object", `{"metadata":[]}`, 400, "invalid_attrs", incarnated, jsonType),
		attrs("400, no JSON", `{`, 400, "invalid_json", incarnated, jsonType),
		attrs("400, another type", valid, 400, "invalid_content_type", incarnated, plain),
		attrs("413", `{"title":"`+strings.Repeat("x", 16<<10)+`"}`, 413, "body_too_large", nil, jsonType),
		{what: "nothing of the stream changes", request: "HEAD " + b, status: 200, answer: with(typed(plain), private, state("", 0), records(0, 0))},
		batch("200", frames("ab", "c"), 200, "", read,
			`[{"status":204,"stream_next_offset":"@2","stream_offset":"@0","stream_record_start":0,"stream_record_next":1},`+
				`{"status":204,"stream_next_offset":"@3","stream_offset":"@2","stream_record_start":1,"stream_record_next":2}]`,
			"Content-Type", plain),
		batch("400, a frame that is cut", frames("ab")[:5], 400, "malformed_frames", incarnated, "", "Content-Type", plain),
		batch("400, an empty frame", frames("ab", ""), 400, "malformed_frames", incarnated, "", "Content-Type", plain),
		batch("400, 513 frames", strings.Repeat(frames("a"), 513), 400, "malformed_frames", incarnated, "", "Content-Type", plain),
		batch("400, a producer", frames("a"), 400, "header_not_allowed", incarnated, "", with(typed(plain), tuple("p", 0, 0))...),
		batch("400, Stream-Seq", frames("a"), 400, "header_not_allowed", incarnated, "", "Content-Type", plain, "Stream-Seq", "a"),
		batch("400, If-Match", frames("a"), 400, "header_not_allowed", incarnated, "", "Content-Type", plain, "If-Match", "*"),
		{what: "nothing of these is stored", request: "GET " + b, status: 200, answer: with(typed(plain), shared, span(0, 3, ""), upToDate), content: "abc"},
		{what: "closed", request: "POST " + b, header: h("Stream-Closed", "true"), status: 204, answer: with(state(":c", 3), records(0, 2))},
		attrs("204 after the close", `{}`, 204, "", with(incarnated, records(0, 2)), jsonType),
		{what: "GET attributes at last", request: "GET " + b + "/attrs", status: 200, answer: read, content: `{}`},
	})
}
