//go:build e2e

package e2e

import (
	"testing"
)

func TestSurfaceAppend(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-append")
	const b = "/surface-append"
	create := func(stream, contentType string, answer []string) row {
		return row{what: "create " + stream, request: "PUT " + b + "/" + stream, header: typed(contentType), status: 201,
			answer: with(h("Location", "$base/ds"+b+"/"+stream), typed(contentType), answer)}
	}
	post := func(what, stream, contentType, body string, status int, code string, answer []string, header ...string) row {
		if contentType != "" {
			header = with(typed(contentType), header)
		}
		return row{what: what, request: "POST " + b + "/" + stream, header: header, body: body, status: status, code: code, answer: answer}
	}
	highest := func(epoch, seq string) []string { return h("Producer-Epoch", epoch, "Producer-Seq", seq) }
	seqs := func(expected, received string) []string {
		return h("Producer-Expected-Seq", expected, "Producer-Received-Seq", received)
	}
	s.run([]row{
		create("t", plain, appended("", 0, 0, 0, 0)),
		post("a new append is 204", "t", plain, "ab", 204, "", appended("", 0, 2, 0, 1)),
		post("the type's parameters are ignored", "t", "TEXT/plain;x=y", "c", 204, "", appended("", 2, 3, 1, 2)),
		post("400, an empty body", "t", plain, "", 400, "empty_body", incarnated),
		post("400, no type", "t", "", "x", 400, "missing_content_type", incarnated),
		post("409, another type", "t", jsonType, "1", 409, "content_type_mismatch", incarnated),
		post("Stream-Seq", "t", plain, "d", 204, "", appended("", 3, 4, 2, 3), "Stream-Seq", "b"),
		post("409, Stream-Seq must increase", "t", plain, "e", 409, "stream_seq_regression", with(incarnated, h("Stream-Last-Seq", "b")), "Stream-Seq", "b"),
		post("bytewise", "t", plain, "e", 204, "", appended("", 4, 5, 3, 4), "Stream-Seq", "ba"),

		create("p", plain, appended("", 0, 0, 0, 0)),
		post("an unknown producer at seq 1", "p", plain, "a", 409, "sequence_gap", with(incarnated, seqs("0", "1")), tuple("p", 0, 1)...),
		post("with producer headers 200", "p", plain, "a", 200, "", with(appended("", 0, 1, 0, 1), highest("0", "0")), tuple("p", 0, 0)...),
		post("a second one", "p", plain, "b", 200, "", with(appended("", 1, 2, 1, 2), highest("0", "1")), tuple("p", 0, 1)...),
		post("the newest again: its own pair", "p", plain, "b", 204, "", with(state("", 2), h("Stream-Offset", "@1", "Stream-Record-Start", "1"), records(0, 2), highest("0", "1")), tuple("p", 0, 1)...),
		post("an older one: only the end", "p", plain, "a", 204, "", with(state("", 2), records(0, 2), highest("0", "1")), tuple("p", 0, 0)...),
		post("a gap", "p", plain, "d", 409, "sequence_gap", with(incarnated, seqs("2", "3")), tuple("p", 0, 3)...),
		post("another 409 names the request's own", "p", jsonType, "1", 409, "content_type_mismatch", with(incarnated, seqs("2", "2")), tuple("p", 0, 2)...),
		post("400, a higher epoch with seq 1", "p", plain, "c", 400, "epoch_needs_seq_zero", incarnated, tuple("p", 1, 1)...),
		post("a higher epoch", "p", plain, "c", 200, "", with(appended("", 2, 3, 2, 3), highest("1", "0"), h("Producer-Closed-Epoch", "0", "Producer-Closed-Seq", "1")), tuple("p", 1, 0)...),
		post("403, a stale one", "p", plain, "d", 403, "stale_epoch", with(incarnated, h("Producer-Epoch", "1")), tuple("p", 0, 2)...),
		post("400, incomplete", "p", plain, "d", 400, "producer_incomplete", incarnated, "Producer-Id", "p"),
		post("closing", "p", plain, "d", 200, "", with(appended(":c", 3, 4, 3, 4), highest("1", "1")), with(tuple("p", 1, 1), h("Stream-Closed", "true"))...),
		post("the tuple that closed it", "p", plain, "d", 204, "", with(state(":c", 4), h("Stream-Offset", "@3", "Stream-Record-Start", "3"), records(0, 4), highest("1", "1")),
			with(tuple("p", 1, 1), h("Stream-Closed", "true"))...),
		post("one that had been applied before", "p", plain, "c", 409, "closed_duplicate",
			with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@4"), highest("1", "1"), seqs("0", "0")), tuple("p", 1, 0)...),
		post("a new one", "p", plain, "e", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@4"), highest("1", "1"), seqs("2", "2")), tuple("p", 1, 2)...),
		post("one of a stranger", "p", plain, "e", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@4"), seqs("0", "0")), tuple("q", 0, 0)...),
		post("without a producer", "p", plain, "e", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@4"))),

		create("o", plain, appended("", 0, 0, 0, 0)),
		post("the order of checks, with a first write", "o", plain, "a", 200, "", with(appended("", 0, 1, 0, 1), highest("1", "0")), with(tuple("p", 1, 0), h("Stream-Seq", "m"))...),
		post("incarnation before an empty body", "o", plain, "", 412, "incarnation_mismatch", incarnated, "Stream-Incarnation", "1"),
		post("an empty body before the epoch", "o", plain, "", 400, "empty_body", incarnated, tuple("p", 0, 0)...),
		post("the epoch before If-Match", "o", plain, "x", 403, "stale_epoch", with(incarnated, h("Producer-Epoch", "1")), with(tuple("p", 0, 0), h("If-Match", `"x"`))...),
		post("a gap before If-Match", "o", plain, "x", 409, "sequence_gap", with(incarnated, seqs("1", "5")), with(tuple("p", 1, 5), h("If-Match", `"x"`))...),
		post("a duplicate before If-Match, type and Stream-Seq", "o", jsonType, "[", 204, "", with(state("", 1), h("Stream-Offset", "@0", "Stream-Record-Start", "0"), records(0, 1), highest("1", "0")),
			with(tuple("p", 1, 0), h("If-Match", `"x"`, "Stream-Seq", "a"))...),
		post("If-Match before the type", "o", jsonType, "1", 412, "precondition_failed", with(incarnated, h("ETag", `"$id:@1"`, "Stream-Next-Offset", "@1")), "If-Match", `"x"`),
		post("Stream-Record-Match before the type", "o", jsonType, "1", 412, "record_mismatch", with(incarnated, h("Stream-Next-Offset", "@1"), records(0, 1)), "Stream-Record-Match", "7"),
		post("the type before Stream-Seq", "o", jsonType, "1", 409, "content_type_mismatch", incarnated, "Stream-Seq", "a"),
		post("and the type before the body", "o", jsonType, "[", 409, "content_type_mismatch", incarnated),
		post("closing without a body", "o", "", "", 204, "", with(state(":c", 1), records(0, 1)), "Stream-Closed", "true", "Stream-Seq", "z"),
		post("the epoch before the closure", "o", plain, "x", 403, "stale_epoch", with(incarnated, h("Producer-Epoch", "1")), tuple("p", 0, 0)...),
		post("the closure before a gap", "o", plain, "x", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@1"), highest("1", "0"), seqs("9", "9")), tuple("p", 1, 9)...),
		post("the closure before the type", "o", jsonType, "1", 409, "closed", with(incarnated, h("Stream-Closed", "true", "Stream-Next-Offset", "@1"))),

		create("j", jsonType, with(appended("", 0, 0, 0, 0), extensions)),
		post("an array is its elements", "j", jsonType, ` [1.0, {"a":1,"a" : 2}] `, 204, "", with(appended("", 0, 18, 0, 2), extensions)),
		post("flattened once", "j", jsonType, `[[3]]`, 204, "", with(appended("", 18, 22, 2, 3), extensions)),
		post("400, an empty array", "j", jsonType, `[]`, 400, "empty_array", incarnated),
		post("400, not JSON", "j", jsonType, `{"a":NaN}`, 400, "invalid_json", incarnated),
		post("Stream-Seq before the body", "j", jsonType, `1`, 204, "", with(appended("", 22, 24, 3, 4), extensions), "Stream-Seq", "5"),
		post("really", "j", jsonType, `[`, 409, "stream_seq_regression", with(incarnated, h("Stream-Last-Seq", "5")), "Stream-Seq", "4"),
		{what: "bytes are kept", request: "GET " + b + "/j", status: 200, answer: with(typed(jsonType), shared, span(0, 24, ""), upToDate, extensions, varies), content: `[1.0,{"a":1,"a":2},[3],1]`},
		{what: "lines", request: "GET " + b + "/j", header: h("Accept", "application/x-ndjson"), status: 200,
			answer: with(ndjson, shared, span(0, 24, ":ndjson"), upToDate, extensions, varies), content: "1.0\n{\"a\":1,\"a\":2}\n[3]\n1\n"},
		{what: "JSON when it ranks above", request: "GET " + b + "/j?offset=22", header: h("Accept", "application/x-ndjson;q=0.5, application/json"), status: 200,
			answer: with(typed(jsonType), shared, span(22, 24, ""), upToDate, extensions, varies), content: "[1]"},
		{what: "deleted", request: "DELETE " + b + "/j", status: 204, answer: with(incarnated, extensions)},
		{what: "another one", request: "PUT " + b + "/j", header: typed(jsonType), status: 201, answer: with(h("Location", "$base/ds"+b+"/j"), typed(jsonType), appended("", 0, 0, 0, 0), extensions)},
	})
}

func TestSurfaceRecords(t *testing.T) {
	s := onSurface(t)
	s.bucket("surface-records")
	const b = "/surface-records"
	lines := func(start, next, first, after int, tag string) []string {
		return with(ndjson, shared, span(start, next, tag), extensions, recordSpan(first, after))
	}
	s.run([]row{
		{what: "JSON", request: "PUT " + b + "/j", header: typed(jsonType), body: "[1,2,3]", status: 201,
			answer: with(h("Location", "$base/ds"+b+"/j"), typed(jsonType), state("", 6), h("Stream-Record-Start", "0"), jsonRecords(0, 3))},
		{what: "HEAD", request: "HEAD " + b + "/j", status: 200, answer: with(typed(jsonType), private, state("", 6), jsonRecords(0, 3))},
		{what: "record=N", request: "GET " + b + "/j?record=1", status: 200, answer: with(lines(2, 6, 1, 3, ":ndjson"), upToDate), content: "2\n3\n"},
		{what: "tail_records=K", request: "GET " + b + "/j?tail_records=1", status: 200, answer: with(lines(4, 6, 2, 3, ":ndjson"), upToDate), content: "3\n"},
		{what: "max_records", request: "GET " + b + "/j?record=0&max_records=2", status: 200, answer: lines(0, 4, 0, 2, ":ndjson"), content: "1\n2\n"},
		{what: "record_view=envelope", request: "GET " + b + "/j?record=2&record_view=envelope", status: 200,
			answer: with(typed("application/vnd.durable-stream-records+ndjson"), shared, span(4, 6, ":records"), upToDate, extensions, recordSpan(2, 3)), content: `{"record":2,"value":3}` + "\n"},
		{what: "record=now", request: "GET " + b + "/j?record=now", status: 200,
			answer: with(ndjson, private, incarnated, upToDate, h("Stream-Next-Offset", "@6"), extensions, recordSpan(3, 3))},
		{what: "400, behind the last", request: "GET " + b + "/j?record=4", status: 400, code: "record_beyond_tail", answer: with(incarnated, h("Stream-Next-Offset", "@6"), jsonRecords(0, 3))},
		{what: "400, with an offset", request: "GET " + b + "/j?record=0&offset=0", status: 400, code: "exclusive_parameters", answer: incarnated},
		{what: "400, with max_bytes", request: "GET " + b + "/j?record=0&max_bytes=1", status: 400, code: "exclusive_parameters", answer: incarnated},
		{what: "400, two of them", request: "GET " + b + "/j?record=0&tail_records=1", status: 400, code: "exclusive_parameters", answer: incarnated},
		{what: "trimmed", request: "PUT " + b + "/j/snapshot?record=1", header: typed(plain), body: "x", status: 204,
			answer: with(incarnated, h("Stream-Next-Offset", "@6", "Stream-Snapshot-Offset", "@2", "Stream-Snapshot-Digest", digestOf("x")), jsonRecords(1, 3))},
		{what: "410", request: "GET " + b + "/j?record=0", status: 410, code: "record_trimmed",
			answer: with(incarnated, h("Stream-Earliest-Offset", "@2", "Link", "</ds"+b+`/j/bootstrap>; rel="bootstrap"`), jsonRecords(1, 3))},
		{what: "text: an append is a record", request: "PUT " + b + "/t", header: typed(plain), body: "abc", status: 201,
			answer: with(h("Location", "$base/ds"+b+"/t"), typed(plain), state("", 3), h("Stream-Record-Start", "0"), records(0, 1))},
		{what: "read by record", request: "GET " + b + "/t?record=0", status: 200, answer: with(typed(plain), shared, span(0, 3, ""), upToDate, recordSpan(0, 1)), content: "abc"},
		{what: "400, an envelope of text", request: "GET " + b + "/t?record=0&record_view=envelope", status: 400, code: "record_view_not_json", answer: incarnated},
	})
}
