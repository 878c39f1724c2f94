package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// api §3 «Record coordinates».
func TestParseRecords(t *testing.T) {
	for query, want := range map[string]RecordQuery{
		"record=0":                          {Set: true, Start: StartAt},
		"record=7&max_records=3":            {Set: true, Start: StartAt, N: 7, Max: 3},
		"record=now&live=sse":               {Set: true, Start: StartNow},
		"record=%6eow&live=long-poll":       {Set: true, Start: StartNow},
		"tail_records=5":                    {Set: true, Start: StartTail, N: 5},
		"tail_records=0":                    {Set: true, Start: StartNow},
		"max_records=1&tail_records=5":      {Set: true, Start: StartTail, N: 5, Max: 1},
		"record_view=envelope&record=1":     {Set: true, Start: StartAt, N: 1, Envelope: true},
		"record=9007199254740991":           {Set: true, Start: StartAt, N: 1<<53 - 1},
		"record=1&max_records=" + long9(30): {Set: true, Start: StartAt, N: 1, Max: maxInt64},
		"offset=-1":                         {},
	} {
		if op := parse(t, "GET /v1/stream/s?"+query); op.Fault != nil || op.Read.Records != want {
			t.Errorf("?%s: %+v, %v", query, op.Read.Records, op.Fault)
		}
	}
	for query, want := range map[string]string{
		"record=": codeInvalidParameter, "record=-1": codeInvalidParameter, "record=01": codeInvalidParameter, "record=1.5": codeInvalidParameter, "record=NOW": codeInvalidParameter,
		"record=9007199254740992": codeInvalidParameter, "record=1&record=1": codeRepeatedParameter,
		"tail_records=-1": codeInvalidParameter, "tail_records=x": codeInvalidParameter, "tail_records=": codeInvalidParameter,
		"record=1&max_records=0": codeInvalidParameter, "record=1&max_records=x": codeInvalidParameter, "record=1&record_view=x": codeInvalidParameter, "record=1&record_view=": codeInvalidParameter,
		"max_records=1": codeInvalidParameter, "record_view=envelope": codeInvalidParameter, "offset=0&max_records=1": codeInvalidParameter,
		"record=1&offset=0": codeExclusiveParameters, "offset=now&record=now": codeExclusiveParameters, "tail_records=1&offset=-1": codeExclusiveParameters,
		"record=1&max_bytes=5": codeExclusiveParameters, "max-bytes=5&tail_records=5": codeExclusiveParameters,
		"record=1&tail_records=1": codeExclusiveParameters, "tail_records=1&record=1": codeExclusiveParameters, "tail_records=1&record=now": codeExclusiveParameters,
		"live=sse&max_records=1": codeInvalidParameter,
	} {
		if got := fault(t, "GET /v1/stream/s?"+query); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
	op := parse(t, "GET /v1/stream/s?live=sse&record=3&record_view=envelope", "Last-Event-ID: 42")
	if r := op.Read; op.Fault != nil || !r.LastEventID || r.Start != StartAt || r.Offset != 42 || !r.Records.Set || !r.Records.Envelope {
		t.Errorf("Last-Event-ID: %+v, %v", r, op.Fault)
	}
}

func long9(n int) string { return strings.Repeat("9", n) }

// Reads by record: NDJSON without being asked, the envelope by its own name.
func TestReadRecords(t *testing.T) {
	r := NewRenderer(Settings{})
	res := ReadResult{Incarnation: 7, Start: 40, Next: 42, UpToDate: true, ContentType: "application/json", Cursor: 99,
		Records: Records{Set: true, First: 2, Next: 9, HasStart: true, Start: 5}}
	text, tail := res, res
	text.ContentType, tail.Start, tail.Records.Start = "text/plain", 42, 9
	const extension = "Stream-Extensions: json-record-coordinates-v1"
	coordinates := []string{"Stream-Record-First: 2", "Stream-Record-Start: 5", "Stream-Record-Next: 9", next42}
	for _, c := range []struct {
		query  string
		res    *ReadResult
		status int
		want   []string
	}{
		{"?record=5", &res, 200, append(coordinates, extension, "Content-Type: application/x-ndjson", "!Vary", `ETag: "7:00000000000000000040:00000000000000000042:ndjson"`)},
		{"?record=5&record_view=envelope", &res, 200, append(coordinates, extension, "Content-Type: application/vnd.durable-stream-records+ndjson",
			`ETag: "7:00000000000000000040:00000000000000000042:records"`, "!Vary")},
		{"?tail_records=4", &text, 200, append(coordinates, "!Stream-Extensions", "Content-Type: text/plain", `ETag: "7:00000000000000000040:00000000000000000042"`)},
		{"?record=now", &tail, 200, []string{private, "!ETag", "Stream-Record-Start: 9"}},
		{"?tail_records=0", &tail, 200, []string{private, "!ETag"}},
		{"?record=9&live=long-poll", &tail, 204, []string{private, "Stream-Record-Next: 9", extension, "Stream-Cursor: 99"}},
		{"?record=5&live=long-poll", &res, 200, append(coordinates, "Stream-Cursor: 99")},
	} {
		op := parse(t, "GET /v1/stream/s"+c.query)
		if op.Fault != nil {
			t.Errorf("%s: %v", c.query, op.Fault)
		}
		status, fields := r.Read(nil, op, c.res)
		check(t, c.query, status, fields, c.status, c.want...)
	}
	if op := parse(t, "GET /v1/stream/s?record=1"); !op.Read.NDJSON {
		t.Error("a read by record is not line by line")
	}
	if op := parse(t, "GET /v1/stream/s?record=1&live=sse"); op.Read.NDJSON {
		t.Error("an event stream is line by line")
	}
	check(t, "events", 200, r.RecordEvents(nil, 7), 200, "Stream-Data-Content-Type: application/vnd.durable-stream-record+json", extension, "!Stream-SSE-Data-Encoding", "Stream-Incarnation: 7")
	check(t, "plain", 200, r.Events(nil, 7, "application/json"), 200, extension)
	check(t, "text", 200, r.Events(nil, 7, "text/plain"), 200, "!Stream-Extensions")
}

// Writes and HEAD tell the ordinals too.
func TestWriteRecords(t *testing.T) {
	r := NewRenderer(Settings{})
	post := parse(t, "POST /v1/stream/s", "Content-Type: application/json", "body: 1")
	res := &WriteResult{Outcome: Appended, Incarnation: 7, Next: 42, ContentType: "application/json", Records: Records{Set: true, First: 1, Next: 9, HasStart: true, Start: 6}}
	status, fields, _ := r.Write(nil, post, res)
	check(t, "append", status, fields, 204, "Stream-Record-First: 1", "Stream-Record-Start: 6", "Stream-Record-Next: 9", "Stream-Extensions: json-record-coordinates-v1")
	res.ContentType, res.Records = "text/plain", Records{Set: true, Next: 9}
	status, fields, _ = r.Write(nil, post, res)
	check(t, "text", status, fields, 204, "Stream-Record-First: 0", "Stream-Record-Next: 9", "!Stream-Record-Start", "!Stream-Extensions")
	status, fields = r.Head(nil, parse(t, "HEAD /v1/stream/s"), &Meta{Incarnation: 7, Next: 42, Earliest: 5, ContentType: "application/json", TTL: -1,
		Records: Records{Set: true, First: 1, Next: 9}, Snapshot: Snapshot{Set: true, Offset: 5, Digest: Digest{0xab}}})
	check(t, "head", status, fields, 200, "Stream-Record-First: 1", "Stream-Record-Next: 9", "!Stream-Record-Start", "Stream-Extensions: json-record-coordinates-v1",
		"Stream-Snapshot-Offset: 00000000000000000005", "Stream-Snapshot-Digest: ab"+strings.Repeat("0", 62), "Stream-Earliest-Offset: 00000000000000000005")
}

// store makes the stored form of messages and the envelope lines of them, the latter
// by way of encoding/json.
func store(t *testing.T, body string, first uint64) (stored []byte, ends []uint32, lines string) {
	t.Helper()
	stored, ends, bad := SplitJSON(nil, nil, []byte(body), MaxNesting, true)
	if bad != nil {
		t.Fatal(bad)
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(slices.Concat([]byte("["), stored[:max(len(stored)-1, 0)], []byte("]")), &messages); err != nil {
		t.Fatal(err)
	}
	for i, m := range messages {
		lines += fmt.Sprintf("{\"record\":%d,\"value\":%s}\n", first+uint64(i), m)
	}
	return stored, ends, lines
}

const awkwardJSON = `[1, "a,b]\",{", {"x":[1,{"y":"}"}],"":[]}, [], null, "\\", [[1,2],[3]], 1e400, {"a":1,"a":2}]`

func TestEnvelope(t *testing.T) {
	for _, first := range []uint64{0, 3, 95, 1<<53 - 20} {
		stored, _, want := store(t, awkwardJSON, first)
		e := Envelope{Next: first}
		if got := string(e.Append(nil, stored)); got != want || e.Next != first+9 {
			t.Errorf("from %d: %s\nwant %s", first, got, want)
		}
		if n := EnvelopeSize(int64(len(stored)), first, first+9); n != int64(len(want)) {
			t.Errorf("from %d: %d bytes foreseen, %d made", first, n, len(want))
		}
	}
	if n := EnvelopeSize(0, 5, 5); n != 0 {
		t.Errorf("nothing has %d bytes", n)
	}
	var twin int64
	for n := uint64(7); n < 100_123; n++ {
		twin += int64(len(fmt.Sprintf(`{"record":%d,"value":}`+"\n", n))) - 1
	}
	if n := EnvelopeSize(0, 7, 100_123); n != twin {
		t.Errorf("100,116 records: %d, want %d", n, twin)
	}
	if n, want := EnvelopeSize(0, 1<<64-2, 1<<64-1), int64(20+len(`{"record":,"value":}`)); n != want {
		t.Errorf("the greatest ordinal: %d, want %d", n, want)
	}
}

// One event a record, with the offset behind it as its id.
func TestSSERecords(t *testing.T) {
	stored, ends, lines := store(t, awkwardJSON, 98)
	got := readEvents(t, AppendSSERecords(nil, stored, 1000, 98))
	want := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d events of %d records", len(got), len(want))
	}
	for i, e := range got {
		if e.kind != "data" || e.data != want[i] || e.id != string(AppendOffset(nil, 1000+uint64(ends[i]))) {
			t.Errorf("event %d: %q, want %q at %d", i, e, want[i], 1000+ends[i])
		}
	}
	c := Control{Next: 42, Cursor: 7, UpToDate: true, HasRecords: true, FirstRecord: 0, NextRecord: 44}
	const control = `{"streamNextOffset":"00000000000000000042","streamFirstRecord":0,"streamNextRecord":44,"streamCursor":"7","upToDate":true}`
	if e := readEvents(t, AppendSSEControl(nil, c)); e[0].data != control {
		t.Errorf("control: %s", e[0].data)
	}
}

// Whatever the cuts, pieces make the same lines, and the size is foreseen.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(awkwardJSON), uint64(9), uint16(3), uint16(11))
	f.Add([]byte(`"\\\""`), uint64(0), uint16(1), uint16(2))
	f.Fuzz(func(t *testing.T, body []byte, first uint64, cut1, cut2 uint16) {
		stored, ends, bad := SplitJSON(nil, nil, body, MaxNesting, true)
		if bad != nil {
			return
		}
		first >>= 1
		a, b := int(cut1)%(len(stored)+1), int(cut2)%(len(stored)+1)
		a, b = min(a, b), max(a, b)
		e := Envelope{Next: first}
		got := e.Append(e.Append(e.Append(nil, stored[:a]), stored[a:b]), stored[b:])
		var want []byte
		at := uint32(0)
		for i, end := range ends {
			want = fmt.Appendf(want, "{\"record\":%d,\"value\":%s}\n", first+uint64(i), stored[at:end-1])
			at = end
		}
		if !bytes.Equal(got, want) || e.Next != first+uint64(len(ends)) {
			t.Fatalf("%q\nwant %q", got, want)
		}
		if n := EnvelopeSize(int64(len(stored)), first, e.Next); n != int64(len(got)) {
			t.Fatalf("%d bytes foreseen, %d made", n, len(got))
		}
		var l Lines
		lines := l.Append(l.Append(nil, stored[:a]), stored[a:])
		if bytes.Count(lines, []byte{'\n'}) != len(ends) {
			t.Fatalf("%d messages became %q", len(ends), lines)
		}
	})
}
