package protocol

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const hexDigest = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789"

func digestOf(t *testing.T) (d Digest) {
	t.Helper()
	for i := range d {
		b, err := strconv.ParseUint(hexDigest[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		d[i] = byte(b)
	}
	return d
}

// api §4, and field report 55 for the offset.
func TestParseSnapshot(t *testing.T) {
	op := parse(t, "PUT /ds/buck/s/snapshot/00000000000000000042", "Content-Type: image/PNG", "Stream-Snapshot-Retain: TRUE", "Stream-Snapshot-Digest: "+hexDigest, "Stream-Incarnation: 7", "body: 9")
	if op.Fault != nil || op.At != (Position{Set: true, Offset: 42}) || !op.Snapshot.Retain || !op.Snapshot.HasDigest || op.Snapshot.Digest != digestOf(t) || !op.HasIncarnation {
		t.Errorf("%+v, %+v, %v", op.At, op.Snapshot, op.Fault)
	}
	op = parse(t, "PUT /ds/buck/s/retention?record=7")
	if op.Fault != nil || op.At != (Position{Set: true, ByRecord: true, Record: 7}) {
		t.Errorf("%+v, %v", op.At, op.Fault)
	}
	if op := parse(t, "GET /ds/buck/s/snapshot/0000000000000000_0000000000000007"); op.Fault != nil || op.At.Offset != 7 {
		t.Errorf("the other spelling of an offset: %+v, %v", op.At, op.Fault)
	}
	for _, c := range []struct{ line, field, want string }{
		{"PUT /ds/buck/s/snapshot", "", codeInvalidParameter},
		{"DELETE /ds/buck/s/snapshot", "", codeInvalidParameter},
		{"PUT /ds/buck/s/retention", "", codeInvalidParameter},
		{"PUT /ds/buck/s/snapshot/7?record=7", "", codeExclusiveParameters},
		{"GET /ds/buck/s/snapshot/7?record=7", "", codeExclusiveParameters},
		{"PUT /ds/buck/s/retention/7?record=7", "", codeExclusiveParameters},
		{"PUT /ds/buck/s/retention?record=now", "", codeInvalidParameter},
		{"PUT /ds/buck/s/retention?record=7&record=7", "", codeRepeatedParameter},
		{"GET /ds/buck/s/snapshot?record=", "", codeInvalidParameter},
		{"GET /ds/buck/s/snapshot?record=-1", "", codeInvalidParameter},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Retain: yes", codeInvalidHeader},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Retain:", codeInvalidHeader},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Retain: false", ""},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Digest: " + hexDigest[1:], codeInvalidHeader},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Digest: " + hexDigest + "0", codeInvalidHeader},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Digest: g" + hexDigest[1:], codeInvalidHeader},
		{"PUT /ds/buck/s/snapshot/7", "Stream-Snapshot-Digest:", codeInvalidHeader},
		{"GET /ds/buck/s/snapshot?offset=&limit=0&live=x", "", ""}, // nothing of this page's here
	} {
		var lines []string
		if c.field != "" {
			lines = append(lines, c.field)
		}
		if got := fault(t, c.line, lines...); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.line, c.field, got, c.want)
		}
	}
	for _, offset := range []string{"-1", "now", "+5", "5abc", "-2", "1e3", "x", "%00", "5%20", "18446744073709551616", long9(300), "0_7", "%zz"} {
		for _, line := range []string{"PUT /ds/buck/s/snapshot/", "GET /ds/buck/s/snapshot/", "DELETE /ds/buck/s/snapshot/", "PUT /ds/buck/s/retention/"} {
			if got := fault(t, line+offset); got != codeInvalidOffset {
				t.Errorf("%s%s: %q", line, offset, got)
			}
		}
	}
}

// RFC 9110 §14.2: what is no single range of bytes counts as absent.
func TestParseRange(t *testing.T) {
	for value, want := range map[string]ByteRange{
		"bytes=0-4": {Set: true, Last: 4}, "bytes=3-": {Set: true, First: 3, Last: maxInt64}, "bytes=-7": {Set: true, Suffix: true, N: 7}, "Bytes = 0-0": {Set: true},
		"bytes=-0": {Set: true, Suffix: true}, "bytes=5-" + long9(40): {Set: true, First: 5, Last: maxInt64}, "bytes=" + long9(40) + "-": {Set: true, First: maxInt64, Last: maxInt64},
		"bytes=5-4": {}, "bytes=-": {}, "bytes=": {}, "bytes": {}, "": {}, "items=0-4": {}, "bytes=0-4,6-7": {}, "bytes=a-b": {}, "bytes=0-x": {}, "bytes=--5": {}, "bytes=0--5": {}, "bytes=1": {},
	} {
		if got := parseRange([]byte(value)); got != want {
			t.Errorf("%q: %+v, want %+v", value, got, want)
		}
	}
	for _, c := range []struct {
		value      string
		size       int64
		start, end int64
		ok         bool
	}{
		{"bytes=0-4", 10, 0, 5, true}, {"bytes=9-20", 10, 9, 10, true}, {"bytes=10-", 10, 0, 0, false}, {"bytes=3-", 10, 3, 10, true}, {"bytes=-3", 10, 7, 10, true},
		{"bytes=-30", 10, 0, 10, true}, {"bytes=-0", 10, 0, 0, false}, {"bytes=0-0", 0, 0, 0, false}, {"bytes=-5", 0, 0, 0, false}, {"bytes=0-" + long9(40), 10, 0, 10, true},
	} {
		start, end, ok := parseRange([]byte(c.value)).Resolve(c.size)
		if ok != c.ok || ok && (start != c.start || end != c.end) {
			t.Errorf("%s of %d: [%d, %d), %v", c.value, c.size, start, end, ok)
		}
	}
	if op := parse(t, "HEAD /ds/buck/s/snapshot/7", "Range: bytes=0-4"); op.Snapshot.Range.Set {
		t.Error("a HEAD has a range")
	}
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-4", "bytes=3-", "bytes=-7", "bytes=0-1,2-3", "bytes=5-4", "x=1-2"} {
		f.Add(s, int64(10))
	}
	form := regexp.MustCompile(`^(?i:bytes)[ \t]*=[ \t]*(\d*)[ \t]*-[ \t]*(\d*)[ \t]*$`)
	f.Fuzz(func(t *testing.T, value string, size int64) {
		size &= maxInt64
		b := parseRange(trim([]byte(value)))
		m := form.FindStringSubmatch(strings.Trim(value, " \t"))
		if b.Set && (m == nil || m[1] == "" && m[2] == "") {
			t.Fatalf("%q was taken for %+v", value, b)
		}
		start, end, ok := b.Resolve(size)
		if b.Set && ok && (start < 0 || start >= end || end > size) {
			t.Fatalf("%q of %d: [%d, %d)", value, size, start, end)
		}
		if b.Set && !b.Suffix {
			again := parseRange(fmt.Appendf(nil, "bytes=%d-%d", b.First, b.Last))
			if again != b {
				t.Fatalf("%+v became %+v", b, again)
			}
		}
	})
}

// The answers about snapshots (api §4).
func TestSnapshotAnswers(t *testing.T) {
	r := NewRenderer(Settings{})
	d := digestOf(t)
	lower := strings.ToLower(hexDigest)
	res := &SnapshotResult{Incarnation: 7, UpToDate: true, Closed: true, Snapshot: Snapshot{Set: true, Offset: 42, Digest: d, Size: 10, ContentType: "text/html"}}
	named := []string{"Stream-Snapshot-Offset: 00000000000000000042", "Stream-Snapshot-Digest: " + lower, "Stream-Incarnation: 7"}
	whole := append(named, next42, "Content-Type: text/html", "Stream-Up-To-Date: true", "Stream-Closed: true", `ETag: "`+lower+`"`, "Accept-Ranges: bytes",
		"Cache-Control: public, no-cache", "Content-Disposition: attachment")
	for _, c := range []struct {
		lines      string
		status     int
		start, end int64
		want       []string
	}{
		{"", 200, 0, 10, append(whole, "!Content-Range")},
		{"Range: bytes=2-4", 206, 2, 5, append(whole, "Content-Range: bytes 2-4/10")},
		{"Range: bytes=-3", 206, 7, 10, append(whole, "Content-Range: bytes 7-9/10")},
		{"Range: bytes=0-", 206, 0, 10, append(whole, "Content-Range: bytes 0-9/10")},
		{"Range: bytes=0-1,3-4", 200, 0, 10, []string{"!Content-Range"}},
		{"Range: bytes=10-", 416, 0, 0, []string{"Content-Range: bytes */10", problem, private}},
		{"Range: bytes=2-4|If-Range: \"" + lower + `"`, 206, 2, 5, nil},
		{"Range: bytes=2-4|If-Range: \"other\"", 200, 0, 10, nil},
		{"Range: bytes=2-4|If-Range: W/\"" + lower + `"`, 200, 0, 10, nil},
		{"Range: bytes=2-4|If-Range:", 200, 0, 10, nil},
		{"Range: bytes=2-4|If-Range: Wed, 21 Oct 2015 07:28:00 GMT", 200, 0, 10, nil},
		{"If-None-Match: W/\"" + lower + `"`, 304, 0, 10, append(named, "!Content-Type", "!Accept-Ranges", `ETag: "`+lower+`"`)},
		{"If-None-Match: \"x\"|Range: bytes=0-0", 206, 0, 1, []string{"Content-Range: bytes 0-0/10"}},
	} {
		var lines []string
		if c.lines != "" {
			lines = strings.Split(c.lines, "|")
		}
		status, fields, body, start, end := r.Snapshot(nil, parse(t, "GET /ds/buck/s/snapshot/42", lines...), res)
		check(t, c.lines, status, fields, c.status, c.want...)
		if status < 300 && (start != c.start || end != c.end) {
			t.Errorf("%s: [%d, %d)", c.lines, start, end)
		}
		if (len(body) > 0) != (status == 416) || status == 416 && !strings.Contains(string(body), codeRangeNotSatisfiable) {
			t.Errorf("%s: body %q", c.lines, body)
		}
	}
	res.UpToDate = false
	status, fields, _, _, _ := NewRenderer(Settings{CacheVisibility: "private"}).Snapshot(nil, parse(t, "GET /ds/buck/s/snapshot/42"), res)
	check(t, "behind", status, fields, 200, "!Stream-Up-To-Date", "!Stream-Closed", "Cache-Control: private, no-cache")
	check(t, "latest", 307, r.SnapshotLatest(nil, 7, 42), 307, "Location: snapshot/00000000000000000042", private, "Stream-Incarnation: 7", "!Content-Type")
}

// Successes of the writes around a stream.
func TestWritesAround(t *testing.T) {
	r, behind := NewRenderer(Settings{}), NewRenderer(Settings{PublicURL: "https://h.example/base"})
	snapshot := Snapshot{Set: true, Offset: 40, Digest: digestOf(t)}
	named := []string{"Stream-Snapshot-Offset: 00000000000000000040", "Stream-Snapshot-Digest: " + strings.ToLower(hexDigest), "Stream-Incarnation: 7", next42}
	for _, c := range []struct {
		name   string
		r      *Renderer
		line   string
		res    WriteResult
		status int
		want   []string
	}{
		{"bucket", r, "PUT /ds/buck", WriteResult{Outcome: BucketCreated}, 201, []string{"Location: http://h:1/ds/buck", "!Stream-Incarnation", "!Content-Type"}},
		{"bucket behind a proxy", behind, "PUT /ds/bu%63k", WriteResult{Outcome: BucketCreated}, 201, []string{"Location: https://h.example/base/ds/buck"}},
		{"bucket again", r, "PUT /ds/buck?if-not-exists=true", WriteResult{Outcome: BucketExists}, 200, []string{"!Location"}},
		{"bucket deleted", r, "DELETE /ds/buck", WriteResult{Outcome: BucketDeleted}, 204, []string{"!Stream-Incarnation"}},
		{"published", r, "PUT /ds/buck/s/snapshot/40", WriteResult{Outcome: SnapshotPublished, Incarnation: 7, Next: 42, Snapshot: snapshot}, 204, named},
		{"dropped", r, "DELETE /ds/buck/s/snapshot/40", WriteResult{Outcome: SnapshotDropped, Incarnation: 7}, 204, []string{"Stream-Incarnation: 7", "!Stream-Next-Offset"}},
		{"retention", r, "PUT /ds/buck/s/retention/9", WriteResult{Outcome: RetentionMoved, Incarnation: 7, Next: 42, Earliest: 9, Snapshot: snapshot, Records: Records{Set: true, First: 3, Next: 5}}, 204,
			append(named, "Stream-Earliest-Offset: 00000000000000000009", "Stream-Record-First: 3")},
		{"attributes", r, "PUT /ds/buck/s/attrs", WriteResult{Outcome: AttrsReplaced, Incarnation: 7}, 204, []string{"Stream-Incarnation: 7", "!ETag", "!Stream-Next-Offset"}},
	} {
		status, fields, body := c.r.Write(nil, parse(t, c.line, "Host: h:1"), &c.res)
		check(t, c.name, status, fields, c.status, c.want...)
		if len(body) != 0 {
			t.Errorf("%s: body %q", c.name, body)
		}
	}
}

// Refusals of the second issue: status, code, and what they name.
func TestRefusalsAround(t *testing.T) {
	r := NewRenderer(Settings{PublicURL: "https://h.example/base/"})
	op := parse(t, "PUT /ds/buck/s/snapshot/7")
	current := Snapshot{Set: true, Offset: 40, Digest: digestOf(t), Size: 9}
	named := []string{"Stream-Snapshot-Offset: 00000000000000000040", "Stream-Snapshot-Digest: " + strings.ToLower(hexDigest)}
	const earliest = "Stream-Earliest-Offset: 00000000000000000009"
	const link = `Link: <https://h.example/base/ds/buck/s/bootstrap>; rel="bootstrap"`
	records := Records{Set: true, First: 3, Next: 5}
	for _, c := range []struct {
		res    WriteResult
		status int
		code   string
		want   []string
	}{
		{WriteResult{Outcome: PreconditionFailed}, 412, "precondition_failed", []string{"!ETag", "!Stream-Next-Offset", "!Stream-Incarnation"}},
		{WriteResult{Outcome: RecordMismatch, Next: 42, Records: records, ContentType: "application/json"}, 412, "record_mismatch",
			[]string{"Stream-Record-Next: 5", next42, "Stream-Extensions: json-record-coordinates-v1"}},
		{WriteResult{Outcome: RecordBeyondTail, Next: 42, Records: records}, 400, "record_beyond_tail", []string{"Stream-Record-Next: 5", next42}},
		{WriteResult{Outcome: RecordTrimmed, Earliest: 9, Records: records}, 410, "record_trimmed", []string{"Stream-Record-First: 3", earliest, link}},
		{WriteResult{Outcome: RecordViewOfText}, 400, "record_view_not_json", nil},
		{WriteResult{Outcome: OffsetTrimmed, Earliest: 9}, 410, "offset_trimmed", []string{earliest, link}},
		{WriteResult{Outcome: BucketExists}, 409, "bucket_exists", nil},
		{WriteResult{Outcome: BucketNotFound}, 404, "bucket_not_found", nil},
		{WriteResult{Outcome: BucketNotEmpty}, 409, "bucket_not_empty", nil},
		{WriteResult{Outcome: BucketClosing}, 503, "bucket_closing", []string{"Retry-After: 1"}},
		{WriteResult{Outcome: SnapshotNotFound}, 404, "snapshot_not_found", []string{"!Stream-Snapshot-Offset"}},
		{WriteResult{Outcome: SnapshotNotBoundary, Snapshot: current}, 400, "snapshot_not_boundary", nil},
		{WriteResult{Outcome: SnapshotStale, Snapshot: current}, 409, "snapshot_stale", named},
		{WriteResult{Outcome: SnapshotConflict, Snapshot: current}, 409, "snapshot_conflict", named},
		{WriteResult{Outcome: SnapshotBeyondTail, Snapshot: current, Next: 42}, 409, "snapshot_beyond_tail", append(named, next42)},
		{WriteResult{Outcome: SnapshotBeyondTail, Next: 42}, 409, "snapshot_beyond_tail", []string{"!Stream-Snapshot-Offset", next42}},
		{WriteResult{Outcome: SnapshotBelowEarliest, Earliest: 9}, 410, "snapshot_below_earliest", []string{earliest, link}},
		{WriteResult{Outcome: SnapshotIsCurrent, Snapshot: current}, 409, "snapshot_is_current", named},
		{WriteResult{Outcome: SnapshotTooLarge, Limit: 128 << 20}, 413, "snapshot_too_large", nil},
		{WriteResult{Outcome: DigestMismatch}, 400, "digest_mismatch", nil},
		{WriteResult{Outcome: RangeNotSatisfiable, Snapshot: current}, 416, "range_not_satisfiable", []string{"Content-Range: bytes */9"}},
		{WriteResult{Outcome: RetentionNotBoundary, Snapshot: current}, 409, "retention_not_boundary", named},
		{WriteResult{Outcome: RetentionBehind, Earliest: 9, Snapshot: current}, 409, "retention_behind", append(named, earliest)},
		{WriteResult{Outcome: RetentionAboveSnapshot}, 409, "retention_above_snapshot", []string{"!Stream-Snapshot-Offset"}},
	} {
		status, fields, body := r.Write(nil, op, &c.res)
		check(t, c.code, status, fields, c.status, append(c.want, problem, private)...)
		if want := fmt.Sprintf(`"code":%q`, c.code); !strings.Contains(string(body), want) {
			t.Errorf("%s: %s", c.code, body)
		}
		if limit := fmt.Sprintf(`"limit":%d`, c.res.Limit); c.res.Limit > 0 && !strings.Contains(string(body), limit) {
			t.Errorf("%s: %s", c.code, body)
		}
	}
}
