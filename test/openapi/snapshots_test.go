//go:build e2e

package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"strings"
)

// about makes a request about /ds/docs/{stream}, at an offset unless it is empty.
func about(id, stream, offset string) request {
	pairs := []string{"bucket", "docs", "stream", stream}
	if offset != "" {
		pairs = append(pairs, "offset", offset)
	}
	return to(id, pairs...)
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// misplaced drives what can be wrong with the place that r names, in the form that
// names it by record or by offset.
func misplaced(d *driver, p places, r request) {
	d.Helper()
	if p.recorded {
		d.refused(400, "invalid_parameter", r.ask("record=x").bad())
		d.refused(400, "repeated_parameter", r.ask("record=2&record=2").bad())
		return
	}
	d.refused(400, "invalid_offset", p.at(r, "x", "").bad())
	d.refused(400, "invalid_parameter", r.ask("record=x").bad())
	d.refused(400, "exclusive_parameters", r.ask("record=2").bad())
}

// places are the two forms of the operations that name a place in a stream: by offset
// in the path, and by record in the query.
type places struct {
	put, get, delete string
	recorded         bool
	at               func(r request, offset, record string) request
}

var (
	byOffset = places{"publishSnapshot", "getSnapshot", "deleteSnapshot", false, func(r request, offset, _ string) request {
		r.path = maps.Clone(r.path)
		r.path["offset"] = offset
		return r
	}}
	byRecord = places{"publishSnapshotAtRecord", "getLatestSnapshot", "deleteSnapshotAtRecord", true, func(r request, _, record string) request {
		return r.ask("record=" + record)
	}}
)

func snapshots(d *driver) {
	for name, p := range map[string]places{"snapshot-offset": byOffset, "snapshot-record": byRecord} {
		publishing(d, name, p)
	}
	latest := "snapshot-latest"
	newStream(d, latest, jsonType, `[1]`)
	d.refused(404, "snapshot_not_found", about("getLatestSnapshot", latest, ""))
	d.want(204, about("publishSnapshotAtRecord", latest, "").ask("record=1").send(textType, "1"))
	a := d.want(307, about("getLatestSnapshot", latest, ""))
	d.want(200, about("getSnapshot", latest, strings.TrimPrefix(a.get("Location"), "snapshot/")))
}

func publishing(d *driver, stream string, p places) {
	incarnation := newStream(d, stream, jsonType, `[1,2]`)
	second := d.want(204, about("appendToStream", stream, "").send(jsonType, "3")).get("Stream-Offset")
	end := d.want(204, about("appendToStream", stream, "").send(jsonType, "4")).get("Stream-Next-Offset")
	put := p.at(about(p.put, stream, ""), second, "2")
	get := p.at(about(p.get, stream, ""), second, "2")
	drop := p.at(about(p.delete, stream, ""), second, "2")

	d.refused(404, "snapshot_not_found", get)
	d.refused(404, "snapshot_not_found", drop)
	if !p.recorded { // a record is never inside a message
		d.refused(400, "snapshot_not_boundary", p.at(put, "7", "").send(textType, "x"))
	}
	d.refused(400, "digest_mismatch", put.send(textType, "state").with("Stream-Snapshot-Digest", digest("other")))
	d.want(204, put.send(textType, "state").with("Stream-Snapshot-Digest", digest("state"), "Stream-Snapshot-Retain", "true"))
	d.want(204, put.send(textType, "state"))
	if a := d.want(200, get); a.body != "state" || a.get("Stream-Snapshot-Digest") != digest("state") {
		d.Errorf("the snapshot is %q, %v", a.body, a.header)
	}
	tag := `"` + digest("state") + `"`
	d.want(304, get.with("If-None-Match", tag))
	if a := d.want(206, get.with("Range", "bytes=1-2", "If-Range", tag)); a.body != "ta" {
		d.Errorf("the range is %q", a.body)
	}
	d.refused(416, "range_not_satisfiable", get.with("Range", "bytes=5-"))
	a := d.refused(409, "snapshot_is_current", drop)
	if a.get("Stream-Snapshot-Offset") != second {
		d.Errorf("the current snapshot is %v", a.header)
	}

	d.refused(409, "snapshot_conflict", put.send(textType, "other"))
	d.refused(409, "snapshot_beyond_tail", p.at(about(p.put, stream, ""), "999", "99").send(textType, "x"))
	d.want(204, p.at(about(p.put, stream, ""), end, "4").send(textType, "more").with("Stream-Snapshot-Retain", "true"))
	d.refused(409, "snapshot_stale", p.at(about(p.put, stream, ""), second, "2").send(textType, "late"))
	d.want(204, drop)
	d.want(204, p.at(about(p.put, stream, ""), end, "4").send(textType, "more"))
	d.refused(410, "snapshot_below_earliest", p.at(about(p.put, stream, ""), "0", "0").send(textType, "x"))

	for _, r := range []request{put.send(textType, "x"), get, drop} {
		misplaced(d, p, r)
	}
	d.refused(413, "snapshot_too_large", put.send(textType, strings.Repeat("x", 129<<10)))
	d.refused(415, "content_coding_not_supported", put.send(textType, "x").with("Content-Encoding", "gzip").bad())
	d.refused(400, "invalid_content_type", put.send("text", "x").bad())
	d.refused(400, "invalid_header", put.send(textType, "x").with("Stream-Snapshot-Retain", "perhaps").bad())
	around(d, stream, incarnation, put.send(textType, "x"), get, drop)
}

func retention(d *driver) {
	for name, id := range map[string]string{"retention-offset": "setRetention", "retention-record": "setRetentionAtRecord"} {
		p := byRecord
		if id == "setRetention" {
			p = byOffset
		}
		incarnation := newStream(d, name, jsonType, `[1,2,3]`)
		at := func(offset, record string) request { return p.at(about(id, name, ""), offset, record) }
		d.refused(409, "retention_above_snapshot", at("4", "2"))
		d.want(204, about("publishSnapshotAtRecord", name, "").ask("record=2").send(textType, "x").with("Stream-Snapshot-Retain", "true"))
		a := d.want(204, at("2", "1"))
		if a.get("Stream-Earliest-Offset") != "00000000000000000002" {
			d.Errorf("the stream begins at %v", a.header)
		}
		d.want(204, at("2", "1"))
		d.refused(409, "retention_behind", at("0", "0"))
		d.refused(409, "retention_above_snapshot", at("6", "3"))
		if !p.recorded {
			d.refused(409, "retention_not_boundary", at("3", ""))
		}
		misplaced(d, p, at("4", "2"))
		around(d, name, incarnation, at("4", "2"))
	}
}

func bootstraps(d *driver) {
	const stream = "bootstrap"
	incarnation := newStream(d, stream, jsonType, `[1,2,3]`)
	at := about("bootstrap", stream, "")
	d.want(200, at)
	d.want(204, about("publishSnapshotAtRecord", stream, "").ask("record=2").send(textType, "state"))
	a := d.want(200, at)
	_, params, err := mime.ParseMediaType(a.get("Content-Type"))
	if err != nil {
		d.Fatal(err)
	}
	r := multipart.NewReader(strings.NewReader(a.body), params["boundary"])
	var parts []string
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			d.Fatal(err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			d.Fatal(err)
		}
		parts = append(parts, string(b))
	}
	if strings.Join(parts, "|") != "state|3" {
		d.Errorf("the parts are %q", parts)
	}
	a = d.want(200, at.ask("live=sse&cursor=5"))
	if e := events(a.body); len(e) < 3 || e[0].name != "snapshot" || e[0].data != "state" || e[1].data != "[3]" {
		d.Errorf("the events are %q", a.body)
	}
	d.want(200, at.ask("live=sse").with("Last-Event-ID", a.get("Stream-Snapshot-Offset")))
	d.refused(400, "invalid_parameter", at.ask("live=long-poll").bad())
	d.refused(400, "repeated_parameter", at.ask("live=sse&live=sse").bad())
	d.refused(400, "invalid_offset", at.ask("live=sse").with("Last-Event-ID", "x").bad())
	d.refused(400, "offset_beyond_tail", at.ask("live=sse").with("Last-Event-ID", "999"))
	d.refused(400, "offset_not_boundary", at.ask("live=sse").with("Last-Event-ID", "5"))
	d.refused(410, "offset_trimmed", at.ask("live=sse").with("Last-Event-ID", "0"))
	around(d, stream, incarnation, at)
}
