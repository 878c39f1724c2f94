//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// Headers that many answers of section 3 have.
var (
	extensions = h("Stream-Extensions", "json-record-coordinates-v1")
	incarnated = h("Stream-Incarnation", "$id")
	shared     = h("Cache-Control", "public, max-age=60, stale-while-revalidate=300")
	private    = h("Cache-Control", "no-store")
	upToDate   = h("Stream-Up-To-Date", "true")
	varies     = h("Vary", "Accept")
	ndjson     = h("Content-Type", "application/x-ndjson")
)

// typed is the header of a body's type.
func typed(contentType string) []string { return h("Content-Type", contentType) }

// span are the headers of a read of the bytes from start to next; suffix belongs to the tag.
func span(start, next int, suffix string) []string {
	return with(incarnated, h("Stream-Next-Offset", fmt.Sprintf("@%d", next), "ETag", fmt.Sprintf(`"$id:@%d:@%d%s"`, start, next, suffix)))
}

// bucket makes the bucket of a table.
func (s *surfaceTest) bucket(name string) {
	s.Helper()
	if r := s.send(s.T, "PUT", "/"+name, row{}); r.status != 201 {
		s.Fatal(r)
	}
}

func TestSurfaceCreate(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-create")
	const b = "/surface-create"
	location := func(stream string) []string { return h("Location", "$base/ds"+b+stream) }
	const later = "2099-01-31T12:00:00Z"
	s.run([]row{
		{what: "201", request: "PUT " + b + "/s", header: typed(plain), body: "abc", status: 201,
			answer: with(location("/s"), typed(plain), appended("", 0, 3, 0, 1)[:6], h("Stream-Record-Start", "0"), records(0, 1))},
		{what: "200 by the same configuration, whatever the body says", request: "PUT " + b + "/s", header: typed("Text/Plain; charset=x"), body: "other", status: 200,
			answer: with(typed(plain), state("", 3), records(0, 1))},
		{what: "409 by another", request: "PUT " + b + "/s", header: typed(jsonType), status: 409, code: "config_mismatch", answer: incarnated},
		{what: "without a type", request: "PUT " + b + "/o", status: 201, answer: with(location("/o"), typed("application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "an id is encoded in Location", request: "PUT " + b + "/%C3%A4%20x", status: 201,
			answer: with(location("/%C3%A4%20x"), typed("application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "400, an id with a slash", request: "PUT " + b + "/a%2Fb", status: 400, code: "bad_path"},
		{what: "400, a reserved id", request: "PUT " + b + "/$x", status: 400, code: "bad_path"},
		{what: "closed from the start", request: "PUT " + b + "/c", header: with(typed(jsonType), h("Stream-Closed", "true")), body: "[1,2]", status: 201,
			answer: with(location("/c"), typed(jsonType), state(":c", 4), h("Stream-Record-Start", "0"), jsonRecords(0, 2))},
		{what: "Stream-Closed other than true is none", request: "PUT " + b + "/n", header: h("Stream-Closed", "yes"), status: 201,
			answer: with(location("/n"), typed("application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "an expiry", request: "PUT " + b + "/e", header: h("Stream-Expires-At", later), status: 201,
			answer: with(location("/e"), typed("application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "which HEAD returns", request: "HEAD " + b + "/e", status: 200,
			answer: with(typed("application/octet-stream"), private, h("Stream-Expires-At", later), state("", 0), records(0, 0))},
		{what: "a window", request: "PUT " + b + "/w", header: h("Stream-TTL", "60"), status: 201,
			answer: with(location("/w"), typed("application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "which HEAD returns as it is", request: "HEAD " + b + "/w", status: 200,
			answer: with(typed("application/octet-stream"), private, h("Stream-TTL", "60"), state("", 0), records(0, 0))},
		{what: "400, both", request: "PUT " + b + "/x", header: h("Stream-TTL", "60", "Stream-Expires-At", later), status: 400, code: "ttl_and_expires_at"},
		{what: "400, more than 100 years", request: "PUT " + b + "/x", header: h("Stream-TTL", "3153600001"), status: 400, code: "invalid_header"},
		{what: "a fork names its source by either surface: /ds", request: "PUT " + b + "/f", header: h("Stream-Forked-From", "/ds"+b+"/c", "Stream-Fork-Offset", "@2"), status: 201,
			answer: with(location("/f"), typed(jsonType), state("", 2), h("Stream-Record-Start", "1"), jsonRecords(0, 1))},
		{what: "and /v1", request: "PUT " + b + "/g", header: h("Stream-Forked-From", "/v1/stream"+b+"/c"), status: 201,
			answer: with(location("/g"), typed(jsonType), state("", 4), h("Stream-Record-Start", "2"), jsonRecords(0, 2))},
		{what: "404, no such source", request: "PUT " + b + "/x", header: h("Stream-Forked-From", "/ds"+b+"/x"), status: 404, code: "fork_source_not_found"},
		{what: "a deleted source", request: "DELETE " + b + "/c", status: 204, answer: with(incarnated, extensions)},
		{what: "410 while it has forks: GET", request: "GET " + b + "/c", status: 410, code: "stream_gone", answer: incarnated},
		{what: "410: POST", request: "POST " + b + "/c", header: typed(jsonType), body: "1", status: 410, code: "stream_gone", answer: incarnated},
		{what: "410: DELETE", request: "DELETE " + b + "/c", status: 410, code: "stream_gone", answer: incarnated},
		{what: "410 before 412", request: "DELETE " + b + "/c", header: h("Stream-Incarnation", "1"), status: 410, code: "stream_gone", answer: incarnated},
		{what: "409: PUT", request: "PUT " + b + "/c", status: 409, code: "name_held_by_forks", answer: incarnated},
		{what: "409: a fork from it", request: "PUT " + b + "/x", header: h("Stream-Forked-From", "/ds"+b+"/c"), status: 409, code: "fork_source_gone"},
		{what: "a retried fork is 200", request: "PUT " + b + "/g", header: h("Stream-Forked-From", "/v1/stream"+b+"/c"), status: 200, answer: with(typed(jsonType), state("", 4), jsonRecords(0, 2))},
		{what: "a fork goes on by itself", request: "POST " + b + "/f", header: typed(jsonType), body: "3", status: 204,
			answer: with(extensions, appended("", 2, 4, 1, 2))},
		{what: "of one type", request: "GET " + b + "/f", status: 200, answer: with(typed(jsonType), shared, span(0, 4, ""), upToDate, extensions, varies), content: "[1,3]"},
		{what: "the last fork", request: "DELETE " + b + "/f", status: 204, answer: with(incarnated, extensions)},
		{what: "and its sibling", request: "DELETE " + b + "/g", status: 204, answer: with(incarnated, extensions)},
	})
	s.eventually(wirePatience, "the name is free", func() bool { return s.send(t, "GET", b+"/c", row{}).status != 410 })
	s.run([]row{{what: "free the name", request: "GET " + b + "/c", status: 404, code: "stream_not_found"}})
}

func TestSurfaceOffsets(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-offsets")
	const b = "/surface-offsets"
	text := func(start, next int) []string { return with(typed(plain), shared, span(start, next, ""), upToDate) }
	s.run([]row{
		{what: "text", request: "PUT " + b + "/t", header: typed(plain), body: "abcdef", status: 201,
			answer: with(h("Location", "$base/ds"+b+"/t"), typed(plain), state("", 6), h("Stream-Record-Start", "0"), records(0, 1))},
		{what: "none: the beginning", request: "GET " + b + "/t", status: 200, answer: text(0, 6), content: "abcdef"},
		{what: "-1: the beginning", request: "GET " + b + "/t?offset=-1", status: 200, answer: text(0, 6), content: "abcdef"},
		{what: "1 digit", request: "GET " + b + "/t?offset=2", status: 200, answer: text(2, 6), content: "cdef"},
		{what: "20 digits", request: "GET " + b + "/t?offset=00000000000000000002", status: 200, answer: text(2, 6), content: "cdef"},
		{what: "as other servers write them", request: "GET " + b + "/t?offset=0000000000000007_0000000000000002", status: 200, answer: text(2, 6), content: "cdef"},
		{what: "the tail: 200, empty", request: "GET " + b + "/t?offset=6", status: 200, answer: text(6, 6)},
		{what: "now: the tail, without a tag", request: "GET " + b + "/t?offset=now", status: 200,
			answer: with(typed(plain), private, upToDate, h("Stream-Next-Offset", "@6"), incarnated)},
		{what: "unknown parameters are ignored", request: "GET " + b + "/t?offset=5&Offset=&x=1&x=2", status: 200, answer: text(5, 6), content: "f"},
		{what: "400 beyond the tail", request: "GET " + b + "/t?offset=7", status: 400, code: "offset_beyond_tail", answer: with(incarnated, h("Stream-Next-Offset", "@6"))},
		{what: "400 beyond the tail, the greatest", request: "GET " + b + "/t?offset=18446744073709551615", status: 400, code: "offset_beyond_tail", answer: with(incarnated, h("Stream-Next-Offset", "@6"))},
		{what: "400, 2^64", request: "GET " + b + "/t?offset=18446744073709551616", status: 400, code: "invalid_offset", answer: incarnated},
		{what: "400, 21 digits", request: "GET " + b + "/t?offset=000000000000000000002", status: 400, code: "invalid_offset", answer: incarnated},
		{what: "400, empty", request: "GET " + b + "/t?offset=", status: 400, code: "invalid_parameter", answer: incarnated},
		{what: "400, repeated", request: "GET " + b + "/t?offset=1&offset=1", status: 400, code: "repeated_parameter", answer: incarnated},
		{what: "400, a sign", request: "GET " + b + "/t?offset=%2B1", status: 400, code: "invalid_offset", answer: incarnated},
		{what: "JSON", request: "PUT " + b + "/j", header: typed(jsonType), body: "[10,20]", status: 201,
			answer: with(h("Location", "$base/ds"+b+"/j"), typed(jsonType), state("", 6), h("Stream-Record-Start", "0"), jsonRecords(0, 2))},
		{what: "JSON at a message", request: "GET " + b + "/j?offset=3", status: 200, answer: with(typed(jsonType), shared, span(3, 6, ""), upToDate, extensions, varies), content: "[20]"},
		{what: "400 inside a message", request: "GET " + b + "/j?offset=4", status: 400, code: "offset_not_boundary", answer: incarnated},
		{what: "a page", request: "GET " + b + "/t?max_bytes=4", status: 200, answer: with(typed(plain), shared, span(0, 4, "")), content: "abcd"},
		{what: "a page, otherwise spelt", request: "GET " + b + "/t?max-bytes=4&offset=3", status: 200, answer: text(3, 6), content: "def"},
		{what: "a page of JSON has a whole message", request: "GET " + b + "/j?max_bytes=1", status: 200, answer: with(typed(jsonType), shared, span(0, 3, ""), extensions, varies), content: "[10]"},
		{what: "400, a page of nothing", request: "GET " + b + "/t?max_bytes=0", status: 400, code: "invalid_parameter", answer: incarnated},
		{what: "400, both spellings", request: "GET " + b + "/t?max_bytes=1&max-bytes=1", status: 400, code: "repeated_parameter", answer: incarnated},
		{what: "400, live without an offset", request: "GET " + b + "/t?live=sse", status: 400, code: "offset_required", answer: incarnated},
		{what: "400, an unknown live", request: "GET " + b + "/t?offset=1&live=often", status: 400, code: "invalid_parameter", answer: incarnated},
	})
}

func TestSurfaceConditions(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-conditions")
	const b = "/surface-conditions"
	post := func(what, body string, status int, code string, answer []string, header ...string) row {
		return row{what: what, request: "POST " + b + "/s", header: with(typed(plain), header), body: body, status: status, code: code, answer: answer}
	}
	mismatch := func(next int) []string {
		return with(incarnated, h("ETag", fmt.Sprintf(`"$id:@%d"`, next), "Stream-Next-Offset", fmt.Sprintf("@%d", next)))
	}
	read := func(what string, status int, answer []string, content string, header ...string) row {
		return row{what: what, request: "GET " + b + "/s", header: header, status: status, answer: answer, content: content}
	}
	s.run([]row{
		{what: "PUT, If-Match without a stream", request: "PUT " + b + "/s", header: h("If-Match", "*"), status: 412, code: "precondition_failed"},
		{what: "PUT, Stream-Incarnation without a stream", request: "PUT " + b + "/s", header: h("Stream-Incarnation", "1"), status: 404, code: "stream_not_found"},
		{what: "PUT, If-None-Match: *", request: "PUT " + b + "/s", header: with(typed(plain), h("If-None-Match", "*")), status: 201,
			answer: with(h("Location", "$base/ds"+b+"/s"), typed(plain), appended("", 0, 0, 0, 0))},
		{what: "PUT, If-None-Match: * again", request: "PUT " + b + "/s", header: with(typed(plain), h("If-None-Match", "*")), status: 412, code: "precondition_failed", answer: mismatch(0)},
		{what: "PUT, If-Match", request: "PUT " + b + "/s", header: with(typed(plain), h("If-Match", `"$id:@0"`)), status: 200, answer: with(typed(plain), state("", 0), records(0, 0))},
		{what: "PUT, another If-Match", request: "PUT " + b + "/s", header: with(typed(plain), h("If-Match", `"$id:@1"`)), status: 412, code: "precondition_failed", answer: mismatch(0)},
		post("POST, If-Match", "a", 204, "", appended("", 0, 1, 0, 1), "If-Match", `"$id:@0"`),
		post("POST, If-Match of the past", "b", 412, "precondition_failed", mismatch(1), "If-Match", `"$id:@0"`),
		post("POST, If-Match of another incarnation", "b", 412, "precondition_failed", mismatch(1), "If-Match", `"1:@1"`),
		post("POST, If-Match of a closed one", "b", 412, "precondition_failed", mismatch(1), "If-Match", `"$id:@1:c"`),
		post("POST, If-Match with a range's tag", "b", 204, "", appended("", 1, 2, 1, 2), "If-Match", `"$id:@0:@1"`),
		post("POST, If-Match: *", "c", 204, "", appended("", 2, 3, 2, 3), "If-Match", "*"),
		post("POST, If-Match with a list", "d", 204, "", appended("", 3, 4, 3, 4), "If-Match", `"x", "$id:@9", "$id:@3"`),
		post("POST, If-None-Match", "e", 412, "precondition_failed", mismatch(4), "If-None-Match", `"$id:@4"`),
		post("POST, Stream-Record-Match", "e", 204, "", appended("", 4, 5, 4, 5), "Stream-Record-Match", "4"),
		post("POST, another Stream-Record-Match", "f", 412, "record_mismatch", with(incarnated, h("Stream-Next-Offset", "@5"), records(0, 5)), "Stream-Record-Match", "4"),
		post("POST, Stream-Incarnation", "f", 204, "", appended("", 5, 6, 5, 6), "Stream-Incarnation", "$id"),
		post("POST, another Stream-Incarnation", "g", 412, "incarnation_mismatch", incarnated, "Stream-Incarnation", "1"),
		{what: "PUT, another Stream-Incarnation", request: "PUT " + b + "/s", header: h("Stream-Incarnation", "1"), status: 412, code: "incarnation_mismatch", answer: incarnated},
		{what: "GET, another Stream-Incarnation", request: "GET " + b + "/s", header: h("Stream-Incarnation", "1"), status: 412, code: "incarnation_mismatch", answer: incarnated},
		{what: "DELETE, another Stream-Incarnation", request: "DELETE " + b + "/s", header: h("Stream-Incarnation", "1"), status: 412, code: "incarnation_mismatch", answer: incarnated},
		read("GET", 200, with(typed(plain), shared, span(0, 6, ""), upToDate), "abcdef"),
		read("GET, If-None-Match", 304, with(shared, span(0, 6, ""), upToDate), "", "If-None-Match", `"$id:@0:@6"`),
		read("GET, If-None-Match, weak and in a list", 304, with(shared, span(0, 6, ""), upToDate), "", "If-None-Match", `"x", W/"$id:@0:@6"`),
		read("GET, If-None-Match of the past", 200, with(typed(plain), shared, span(0, 6, ""), upToDate), "abcdef", "If-None-Match", `"$id:@0:@5"`),
		{what: "HEAD, If-None-Match", request: "HEAD " + b + "/s", header: h("If-None-Match", `"$id:@6"`), status: 304, answer: with(private, state("", 6), records(0, 6))},
		{what: "HEAD", request: "HEAD " + b + "/s", header: h("If-None-Match", `"$id:@0:@6"`), status: 200, answer: with(typed(plain), private, state("", 6), records(0, 6))},
		post("POST, closing", "g", 204, "", appended(":c", 6, 7, 6, 7), "Stream-Closed", "true", "If-Match", `"$id:@6"`),
		read("GET, the tag says that it is closed", 200, with(typed(plain), shared, span(0, 7, ":c"), upToDate, h("Stream-Closed", "true")), "abcdefg", "If-None-Match", `"$id:@0:@7"`),
		post("POST, closed comes before If-Match", "h", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@7")), "If-Match", `"$id:@0"`),
		post("POST, to close again is no conflict", "", 204, "", with(state(":c", 7), records(0, 7)), "Stream-Closed", "true"),
	})
}

func TestSurfaceLive(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-live")
	const b = "/surface-live"
	cursor := h("Stream-Cursor", anyValue)
	stream := h("Content-Type", "text/event-stream", "Cache-Control", "no-cache")
	events := with(stream, h("Stream-Data-Content-Type", jsonType), incarnated, extensions)
	envelopes := with(stream, h("Stream-Data-Content-Type", "application/vnd.durable-stream-record+json"), incarnated, extensions)
	first := "event: data\ndata:[1]\nid: @2\n\nevent: control\ndata:{\"streamNextOffset\":\"@2\",\"upToDate\":true,\"streamClosed\":true}\nid: @2\n\n"
	s.run([]row{
		{what: "an empty stream", request: "PUT " + b + "/s", header: typed(jsonType), status: 201,
			answer: with(h("Location", "$base/ds"+b+"/s"), typed(jsonType), appended("", 0, 0, 0, 0), extensions)},
		{what: "long-poll 204 when the time is over", request: "GET " + b + "/s?offset=-1&live=long-poll&timeout=0", status: 204,
			answer: with(private, incarnated, extensions, upToDate, cursor, h("Stream-Next-Offset", "@0"))},
		{what: "long-poll 204 in milliseconds", request: "GET " + b + "/s?offset=now&live=long-poll&timeout_ms=1", status: 204,
			answer: with(private, incarnated, extensions, upToDate, cursor, h("Stream-Next-Offset", "@0"))},
		{what: "a malformed cursor is ignored", request: "GET " + b + "/s?offset=0&live=long-poll&timeout=0&cursor=x", status: 204,
			answer: with(private, incarnated, extensions, upToDate, cursor, h("Stream-Next-Offset", "@0"))},
		{what: "400, both spellings", request: "GET " + b + "/s?offset=0&live=long-poll&timeout=0&timeout_ms=0", status: 400, code: "repeated_parameter", answer: incarnated},
		{what: "400, negative", request: "GET " + b + "/s?offset=0&live=long-poll&timeout=-1", status: 400, code: "invalid_parameter", answer: incarnated},
		{what: "400, fractional", request: "GET " + b + "/s?offset=0&live=long-poll&timeout=0.5", status: 400, code: "invalid_parameter", answer: incarnated},
		{what: "closed with a message", request: "POST " + b + "/s", header: with(typed(jsonType), h("Stream-Closed", "true")), body: "1", status: 204,
			answer: with(appended(":c", 0, 2, 0, 1), extensions)},
		{what: "long-poll 200", request: "GET " + b + "/s?offset=0&live=long-poll", status: 200,
			answer: with(typed(jsonType), shared, span(0, 2, ":c"), upToDate, h("Stream-Closed", "true"), extensions, varies, cursor), content: "[1]"},
		{what: "long-poll 204, closed", request: "GET " + b + "/s?offset=2&live=long-poll", status: 204,
			answer: with(private, incarnated, extensions, upToDate, h("Stream-Next-Offset", "@2", "Stream-Closed", "true"))},
		{what: "events", request: "GET " + b + "/s?offset=-1&live=sse", status: 200, answer: events, content: first},
		{what: "events without a tag to compare", request: "GET " + b + "/s?offset=-1&live=sse", header: h("If-None-Match", "*"), status: 200, answer: events, content: first},
		{what: "Last-Event-ID wins", request: "GET " + b + "/s?offset=now&live=sse", header: h("Last-Event-ID", "0"), status: 200, answer: events, content: first},
		{what: "400, malformed", request: "GET " + b + "/s?offset=now&live=sse", header: h("Last-Event-ID", "x"), status: 400, code: "invalid_offset", answer: incarnated},
		{what: "400, beyond the tail", request: "GET " + b + "/s?offset=now&live=sse", header: h("Last-Event-ID", "3"), status: 400, code: "offset_beyond_tail", answer: with(incarnated, h("Stream-Next-Offset", "@2"))},
		{what: "bytes", request: "PUT " + b + "/b", header: h("Stream-Closed", "true"), body: "\x00\xff", status: 201,
			answer: with(h("Location", "$base/ds"+b+"/b"), typed("application/octet-stream"), state(":c", 2), h("Stream-Record-Start", "0"), records(0, 1))},
		{what: "events of bytes", request: "GET " + b + "/b?offset=-1&live=sse", status: 200,
			answer:  with(stream, h("Stream-Data-Content-Type", "application/octet-stream", "Stream-SSE-Data-Encoding", "base64"), incarnated),
			content: strings.Replace(first, "[1]", "AP8=", 1)},
		{what: "events by record", request: "GET " + b + "/s?record=0&live=sse&record_view=envelope", status: 200, answer: envelopes,
			content: strings.NewReplacer("[1]", `{"record":0,"value":1}`, `"upToDate"`, `"streamFirstRecord":0,"streamNextRecord":1,"upToDate"`).Replace(first)},
	})
}
