//go:build e2e

package openapi

import (
	"strings"
)

// surface is one of the two forms of URL that streams have.
type surface struct {
	suffix string // of operationIds
	prefix string // of paths
}

var (
	v1 = surface{suffix: "V1", prefix: "/v1/stream/docs/"}
	ds = surface{prefix: "/ds/docs/"}
)

// to makes a request about a stream of the bucket docs.
func (s surface) to(id, stream string) request { return s.in(id, "docs", stream) }

func (s surface) in(id, bucket, stream string) request {
	if s.suffix != "" {
		return to(id+s.suffix, "path", bucket+"/"+stream)
	}
	return to(id, "bucket", bucket, "stream", stream)
}

// name keeps the streams of the surfaces apart.
func (s surface) name(stream string) string { return "s" + s.suffix + "-" + stream }

const (
	jsonType = "application/json"
	textType = "text/plain"
)

// streams drives the operations on streams themselves.
func streams(d *driver, s surface) {
	creates(d, s)
	forks(d, s)
	appends(d, s)
	producers(d, s)
	conditions(d, s)
	reads(d, s)
	recordReads(d, s)
	liveReads(d, s)
	metadata(d, s)
	common(d, s)
}

func creates(d *driver, s surface) {
	create := s.to("createStream", s.name("create"))
	d.want(201, create.send(jsonType, `[{"n":1}]`).with("Stream-TTL", "3600", "Stream-Attrs", `{"title":"x"}`))
	d.want(200, create.send(jsonType, "").with("Stream-TTL", "3600"))
	d.refused(409, "config_mismatch", create.send(textType, ""))
	d.want(201, s.to("createStream", s.name("created-closed")).send("", "abc").with("Stream-Closed", "true"))

	other := s.to("createStream", s.name("refused"))
	d.refused(400, "invalid_header", other.with("Stream-TTL", "-1").bad())
	d.refused(400, "repeated_header", other.with("Stream-TTL", "1", "Stream-TTL", "1").bad())
	d.refused(400, "invalid_content_type", other.with("Content-Type", "json"))
	d.refused(400, "ttl_and_expires_at", other.with("Stream-TTL", "1", "Stream-Expires-At", "2099-01-31T12:00:00Z"))
	d.refused(400, "invalid_attrs", other.with("Stream-Attrs", `{"colour":"red"}`).bad())
	d.refused(400, "invalid_json", other.send(jsonType, `{"n":`).bad())
	d.refused(400, "bad_path", s.to("createStream", "a\x01b"))
	d.refused(413, "body_too_large", other.send(textType, strings.Repeat("x", 65<<10)))
	d.refused(415, "content_coding_not_supported", other.send(textType, "x").with("Content-Encoding", "gzip").bad())
	d.refused(404, "unknown_route", s.in("createStream", "__ds", "x"))
	d.refused(404, "stream_not_found", other.with("Stream-Incarnation", "1"))
	d.refused(412, "precondition_failed", other.with("If-Match", "*"))
	d.refused(412, "incarnation_mismatch", create.with("Stream-Incarnation", "1"))
	if s == ds {
		d.refused(404, "bucket_not_found", s.in("createStream", "nowhere", "x"))
	}
}

func forks(d *driver, s surface) {
	source, fork := s.name("source"), s.to("createStream", s.name("fork"))
	from := s.prefix + source
	end := d.want(201, s.to("createStream", source).send(jsonType, `[1,2,3]`)).get("Stream-Next-Offset")
	d.want(201, fork.with("Stream-Forked-From", from, "Stream-Fork-Offset", "-1", "Stream-Fork-Sub-Offset", "1"))
	if a := d.want(200, s.to("readStream", s.name("fork"))); a.body != "[1]" {
		d.Errorf("the fork is %s", a.body)
	}
	other := s.to("createStream", s.name("other-fork"))
	d.refused(400, "fork_headers_without_source", other.with("Stream-Fork-Offset", end))
	d.refused(400, "invalid_offset", other.with("Stream-Forked-From", from, "Stream-Fork-Offset", "x").bad())
	d.refused(400, "fork_offset_invalid", other.with("Stream-Forked-From", from, "Stream-Fork-Offset", "99"))
	d.refused(404, "fork_source_not_found", other.with("Stream-Forked-From", s.prefix+"none"))
	d.refused(409, "fork_type_mismatch", other.send(textType, "").with("Stream-Forked-From", from))

	d.want(204, s.to("deleteStream", source))
	d.refused(409, "fork_source_gone", other.with("Stream-Forked-From", from))
	d.refused(409, "name_held_by_forks", s.to("createStream", source))
	d.refused(410, "stream_gone", s.to("readStream", source))
	d.refused(410, "stream_gone", s.to("appendToStream", source).send(jsonType, "4"))
	d.refused(410, "stream_gone", s.to("getStreamMetadata", source))
	d.refused(410, "stream_gone", s.to("deleteStream", source))

	trimmed := s.name("trimmed-source")
	at := d.want(201, ds.to("createStream", trimmed).send(jsonType, `[1,2]`)).get("Stream-Next-Offset")
	d.want(204, to("publishSnapshot", "bucket", "docs", "stream", trimmed, "offset", at).send(textType, "3"))
	a := d.refused(410, "offset_trimmed", other.with("Stream-Forked-From", s.prefix+trimmed, "Stream-Fork-Offset", "0"))
	if a.get("Stream-Earliest-Offset") != at || !strings.Contains(a.get("Link"), trimmed) {
		d.Errorf("the source begins at %v", a.header)
	}
}

func appends(d *driver, s surface) {
	name := s.name("append")
	d.want(201, s.to("createStream", name).send(jsonType, ""))
	at := s.to("appendToStream", name)
	d.want(204, at.send(jsonType, `{"n":1}`))
	d.want(204, at.send(jsonType, `[{"n":2},{"n":3}]`).with("Stream-Seq", "b"))
	a := d.refused(409, "stream_seq_regression", at.send(jsonType, "4").with("Stream-Seq", "a"))
	if last := a.get("Stream-Last-Seq"); last != "b" {
		d.Errorf("the last Stream-Seq is %q", last)
	}
	d.refused(409, "content_type_mismatch", at.send(textType, "4"))
	d.refused(400, "empty_body", at)
	d.refused(400, "missing_content_type", at.send("", "4"))
	d.refused(400, "invalid_content_type", at.send("json", "4").bad())
	d.refused(400, "invalid_json", at.send(jsonType, "{").bad())
	d.refused(400, "empty_array", at.send(jsonType, "[]"))
	d.refused(413, "body_too_large", at.send(jsonType, strings.Repeat("1", 65<<10)))
	d.refused(415, "content_coding_not_supported", at.send(jsonType, "4").with("Content-Encoding", "gzip").bad())
	d.want(204, at.with("Stream-Closed", "true"))
	d.want(204, at.with("Stream-Closed", "true"))
	d.refused(409, "closed", at.send(jsonType, "4"))
}

func producers(d *driver, s surface) {
	name := s.name("producers")
	d.want(201, s.to("createStream", name).send(textType, ""))
	as := func(id, epoch, seq string) request {
		return s.to("appendToStream", name).with("Producer-Id", id, "Producer-Epoch", epoch, "Producer-Seq", seq)
	}
	d.want(200, as("p", "0", "0").send(textType, "a"))
	d.want(204, as("p", "0", "0").send(textType, "a"))
	a := d.refused(409, "sequence_gap", as("p", "0", "2").send(textType, "c"))
	if a.get("Producer-Expected-Seq") != "1" || a.get("Producer-Received-Seq") != "2" {
		d.Errorf("the gap is %v", a.header)
	}
	d.refused(400, "epoch_needs_seq_zero", as("p", "1", "1").send(textType, "b"))
	a = d.want(200, as("p", "1", "0").send(textType, "b"))
	if a.get("Producer-Closed-Epoch") != "0" || a.get("Producer-Closed-Seq") != "0" {
		d.Errorf("the epoch replaced %v", a.header)
	}
	d.refused(403, "stale_epoch", as("p", "0", "1").send(textType, "b"))
	d.refused(400, "producer_incomplete", s.to("appendToStream", name).send(textType, "b").with("Producer-Id", "p"))
	d.want(200, as("q", "0", "0").send(textType, "a"))
	d.refused(429, "too_many_producers", as("r", "0", "0").send(textType, "a"))
	d.want(204, s.to("appendToStream", name).with("Stream-Closed", "true"))
	d.refused(409, "closed_duplicate", as("q", "0", "0").send(textType, "a"))
}

func conditions(d *driver, s surface) {
	name := s.name("conditions")
	tag := d.want(201, s.to("createStream", name).send(jsonType, "[1]")).get("ETag")
	at := s.to("appendToStream", name).send(jsonType, "2")
	whole := d.want(200, s.to("readStream", name)).get("ETag")
	d.want(304, s.to("readStream", name).with("If-None-Match", whole))
	d.want(304, s.to("getStreamMetadata", name).with("If-None-Match", tag))
	d.refused(412, "precondition_failed", at.with("If-None-Match", tag))
	d.want(204, at.with("If-Match", tag, "Stream-Record-Match", "1"))
	a := d.refused(412, "precondition_failed", at.with("If-Match", tag))
	if a.get("ETag") == tag || a.get("Stream-Next-Offset") == "" {
		d.Errorf("the state is %v", a.header)
	}
	a = d.refused(412, "record_mismatch", at.with("Stream-Record-Match", "1"))
	if a.get("Stream-Record-Next") != "2" {
		d.Errorf("the next record is %v", a.header)
	}
	d.want(200, s.to("createStream", name).with("Content-Type", jsonType, "If-Match", "*"))
}

func reads(d *driver, s surface) {
	name := s.name("read")
	end := d.want(201, s.to("createStream", name).send(jsonType, `[{"n":1},{"n":2}]`)).get("Stream-Next-Offset")
	at := s.to("readStream", name)
	for _, query := range []string{"", "offset=-1", "offset=now", "offset=" + end, "max_bytes=1", "max-bytes=1", "cursor=7"} {
		d.want(200, at.ask(query))
	}
	if a := d.want(200, at.with("Accept", "application/x-ndjson")); a.body != "{\"n\":1}\n{\"n\":2}\n" {
		d.Errorf("the lines are %q", a.body)
	}
	d.refused(400, "invalid_offset", at.ask("offset=x").bad())
	d.refused(400, "offset_beyond_tail", at.ask("offset=999"))
	d.refused(400, "offset_not_boundary", at.ask("offset=1"))
	d.refused(400, "offset_required", at.ask("live=sse"))
	d.refused(400, "invalid_parameter", at.ask("offset=-1&live=often").bad())
	d.refused(400, "invalid_parameter", at.ask("max_bytes=0").bad())
	d.refused(400, "repeated_parameter", at.ask("offset=-1&offset=-1").bad())
	d.refused(400, "exclusive_parameters", at.ask("offset=-1&record=0"))

	d.want(201, s.to("createStream", s.name("html")).send("text/html", "<p>"))
	d.want(200, s.to("readStream", s.name("html")))
	d.want(200, s.to("getStreamMetadata", s.name("html")))

	trimmed := s.name("trimmed")
	cut := d.want(201, ds.to("createStream", trimmed).send(jsonType, `[1,2]`)).get("Stream-Next-Offset")
	d.want(204, to("publishSnapshot", "bucket", "docs", "stream", trimmed, "offset", cut).send(textType, "3"))
	a := d.refused(410, "offset_trimmed", s.to("readStream", trimmed).ask("offset=-1"))
	if a.get("Stream-Earliest-Offset") != cut || a.get("Link") == "" {
		d.Errorf("the trimmed stream says %v", a.header)
	}
	d.refused(410, "record_trimmed", s.to("readStream", trimmed).ask("record=0"))
	d.want(200, s.to("readStream", trimmed).ask("offset="+cut))
	d.want(200, s.to("getStreamMetadata", trimmed))
}

func recordReads(d *driver, s surface) {
	name := s.name("records")
	d.want(201, s.to("createStream", name).send(jsonType, `[{"n":0},{"n":1},{"n":2}]`).with("Stream-Closed", "true"))
	at := s.to("readStream", name)
	for query, body := range map[string]string{
		"record=1":                      "{\"n\":1}\n{\"n\":2}\n",
		"tail_records=1":                "{\"n\":2}\n",
		"tail_records=2&max_records=1":  "{\"n\":1}\n",
		"record=2&record_view=envelope": "{\"record\":2,\"value\":{\"n\":2}}\n",
		"record=now":                    "",
	} {
		if a := d.want(200, at.ask(query)); a.body != body {
			d.Errorf("%s: %q", query, a.body)
		}
	}
	a := d.want(200, at.ask("record=1&live=sse&record_view=envelope"))
	if e := events(a.body); len(e) != 3 || e[0].data != `{"record":1,"value":{"n":1}}` || !strings.Contains(e[2].data, `"streamNextRecord":3`) {
		d.Errorf("the events are %q", a.body)
	}
	d.refused(400, "record_beyond_tail", at.ask("record=4"))
	d.want(201, s.to("createStream", s.name("text-records")).send(textType, "a"))
	d.refused(400, "record_view_not_json", s.to("readStream", s.name("text-records")).ask("record=0&record_view=envelope"))
}

func liveReads(d *driver, s surface) {
	name := s.name("live")
	end := d.want(201, s.to("createStream", name).send(jsonType, `[1]`)).get("Stream-Next-Offset")
	at := s.to("readStream", name)
	d.want(200, at.ask("offset=-1&live=long-poll"))
	d.want(204, at.ask("offset=now&live=long-poll&timeout_ms=1"))
	d.want(204, at.ask("offset="+end+"&live=long-poll&timeout=0&cursor=5"))
	d.want(200, at.ask("offset=-1&live=sse")) // until it is time to come back
	d.refused(400, "invalid_offset", at.ask("offset=-1&live=sse").with("Last-Event-ID", "x").bad())

	d.want(204, s.to("appendToStream", name).send(jsonType, "2").with("Stream-Closed", "true"))
	a := d.want(200, at.ask("offset=-1&live=sse").with("Last-Event-ID", end))
	if e := events(a.body); len(e) != 2 || e[0].data != "[2]" || !strings.Contains(e[1].data, `"streamClosed":true`) {
		d.Errorf("the events are %q", a.body)
	}
	d.want(204, at.ask("offset=now&live=long-poll"))

	d.want(201, s.to("createStream", s.name("bytes")).send("application/octet-stream", "\x00\x01").with("Stream-Closed", "true"))
	a = d.want(200, s.to("readStream", s.name("bytes")).ask("offset=-1&live=sse"))
	if a.get("Stream-SSE-Data-Encoding") != "base64" || events(a.body)[0].data != "AAE=" {
		d.Errorf("bytes come as %v %q", a.header, a.body)
	}
}

func metadata(d *driver, s surface) {
	name := s.name("metadata")
	d.want(201, s.to("createStream", name).send(textType, "abc").with("Stream-Expires-At", "2099-01-31T12:00:00Z"))
	at := s.to("getStreamMetadata", name)
	if a := d.want(200, at); a.get("Stream-Expires-At") != "2099-01-31T12:00:00Z" {
		d.Errorf("the metadata are %v", a.header)
	}
}

// common drives what all operations on a stream have in common.
func common(d *driver, s surface) {
	name := s.name("common")
	incarnation := d.want(201, s.to("createStream", name).send(textType, "")).get("Stream-Incarnation")
	for _, id := range []string{"appendToStream", "readStream", "getStreamMetadata", "deleteStream"} {
		about := func(bucket, stream string) request {
			if r := s.in(id, bucket, stream); id == "appendToStream" {
				return r.send(textType, "a")
			} else {
				return r
			}
		}
		const header = "Stream-Incarnation"
		at := about("docs", name)
		d.refused(412, "incarnation_mismatch", at.with(header, "1"))
		d.refused(400, "invalid_header", at.with(header, "x").bad())
		d.refused(400, "repeated_header", at.with(header, incarnation, header, incarnation).bad())
		d.refused(400, "bad_path", about("docs", "a\x01b"))
		d.refused(404, "stream_not_found", about("docs", s.name("none")))
		d.refused(404, "unknown_route", about("__ds", "x"))
		if s == ds {
			d.refused(404, "bucket_not_found", about("nowhere", "x"))
		}
	}
	d.want(204, s.to("deleteStream", name))
}
