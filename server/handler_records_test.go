package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snakream/snakream/engine"
)

const envelopes = "application/vnd.durable-stream-records+ndjson"

func TestReadsByRecord(t *testing.T) {
	n := newNode(t, nil).on("records")
	s := n.create(json)
	n.append(s, json, `[10,{"a":[1,2]},"x,y"]`)
	n.append(s, json, `13`)
	for _, step := range []struct {
		query  string
		status int
		body   string // or code
		next   string
	}{
		{"?record=0", 200, "10\n{\"a\":[1,2]}\n\"x,y\"\n13\n", "4"},
		{"?record=1&max_records=2", 200, "{\"a\":[1,2]}\n\"x,y\"\n", "3"},
		{"?record=3", 200, "13\n", "4"},
		{"?record=4", 200, "", "4"},
		{"?record=now", 200, "", "4"},
		{"?tail_records=2", 200, "\"x,y\"\n13\n", "4"},
		{"?tail_records=2&max_records=1", 200, "\"x,y\"\n", "3"},
		{"?tail_records=100", 200, "10\n{\"a\":[1,2]}\n\"x,y\"\n13\n", "4"},
		{"?record=1&record_view=envelope", 200, `{"record":1,"value":{"a":[1,2]}}` + "\n" + `{"record":2,"value":"x,y"}` + "\n" + `{"record":3,"value":13}` + "\n", "4"},
		{"?record=5", 400, "record_beyond_tail", ""},
		{"?record=-1", 400, "invalid_parameter", ""},
		{"?record=1&offset=0", 400, "exclusive_parameters", ""},
		{"?record=1&max_bytes=5", 400, "exclusive_parameters", ""},
		{"?record=1&tail_records=1", 400, "exclusive_parameters", ""},
		{"?max_records=1", 400, "invalid_parameter", ""},
		{"?record=1&max_records=0", 400, "invalid_parameter", ""},
		{"?record=1&record_view=x", 400, "invalid_parameter", ""},
	} {
		a := n.want(step.status, "GET", s+step.query, "")
		if step.status != 200 {
			if a.code() != step.body {
				t.Errorf("%s: %s", step.query, a.body)
			}
			continue
		}
		if a.body != step.body || a.header.Get("Stream-Record-Next") != step.next || a.header.Get("Stream-Record-First") != "0" {
			t.Errorf("%s: %q, %v", step.query, a.body, a.header)
		}
		want := "application/x-ndjson"
		if strings.Contains(step.query, "envelope") {
			want = envelopes
		}
		if got := a.header.Get("Content-Type"); got != want {
			t.Errorf("%s: %s", step.query, got)
		}
		if tail := step.next == "4"; tail != (a.header.Get("Stream-Up-To-Date") == "true") {
			t.Errorf("%s: %v", step.query, a.header)
		}
	}
	tag := n.want(200, "GET", s+"?record=1", "").header.Get("ETag")
	n.want(304, "GET", s+"?record=1", "", "If-None-Match", tag)
	n.want(200, "GET", s+"?record=1&record_view=envelope", "", "If-None-Match", tag)

	x := n.ten(text)
	if a := n.want(200, "GET", x+"?record=8", ""); a.body != "message 8 message 9 " || a.header.Get("Content-Type") != text || a.header.Get("Stream-Record-Start") != "8" {
		t.Errorf("%q %v", a.body, a.header)
	}
	if a := n.want(200, "GET", x+"?tail_records=3&max_records=1", ""); a.body != "message 7 " || a.header.Get("Stream-Next-Offset") != offset(80) {
		t.Errorf("%q %v", a.body, a.header)
	}
	n.refused(400, "record_view_not_json", "GET", x+"?record=1&record_view=envelope", "")
}

// Ordinals survive trimming, flush and the way to the disk, and envelopes of any number of
// records come in flat memory.
func TestRecordsAreLasting(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 256 << 10; o.WALFileBytes = 8 << 20 }).on("lasting")
	s := n.create(json)
	const count, batch = 60_000, 3000
	var offsets []string
	for i := 0; i < count; i += batch {
		values := make([]string, batch)
		for j := range values {
			values[j] = fmt.Sprint(i + j)
		}
		offsets = append(offsets, n.append(s, json, "["+strings.Join(values, ",")+"]"))
	}
	check := func(first int) {
		t.Helper()
		a := n.want(200, "GET", fmt.Sprintf("%s?record=%d&record_view=envelope", s, first), "")
		i := first
		for line := range strings.Lines(a.body) {
			if want := fmt.Sprintf("{\"record\":%d,\"value\":%d}\n", i, i); line != want {
				t.Fatalf("got %q, want %q", line, want)
			}
			i++
		}
		if i != count {
			t.Errorf("%d records from %d on", i-first, first)
		}
	}
	check(0)
	check(count - 10)
	n.want(204, "PUT", s+"/snapshot/"+offsets[9], "state")
	if a := n.refused(410, "record_trimmed", "GET", s+"?record=0", ""); a.header.Get("Stream-Record-First") != "30000" {
		t.Errorf("%v", a.header)
	}
	check(10 * batch)
	if a := n.want(200, "GET", s+"?tail_records=100000&max_records=1", ""); a.body != "30000\n" {
		t.Errorf("got %q", a.body)
	}
	for _, i := range []int{30_001, 44_999, 45_000, 59_999} {
		if a := n.want(200, "GET", fmt.Sprintf("%s?record=%d&max_records=1", s, i), ""); a.body != fmt.Sprintln(i) {
			t.Errorf("record %d: %q", i, a.body)
		}
	}
}

func TestRecordsLive(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.LongPollTimeout = patience }).on("live")
	s := n.create(json)
	n.append(s, json, `[0,1,2]`)
	a := n.want(200, "GET", s+"?record=1&live=long-poll&record_view=envelope&max_records=1", "")
	if a.body != "{\"record\":1,\"value\":1}\n" || a.header.Get("Stream-Cursor") == "" || a.header.Get("Stream-Up-To-Date") != "" {
		t.Errorf("%q %v", a.body, a.header)
	}
	for _, step := range [][2]string{
		{"?record=now&live=long-poll", "3\n4\n"},
		{"?record=5&live=long-poll&record_view=envelope", "{\"record\":5,\"value\":3}\n{\"record\":6,\"value\":4}\n"},
		{"?record=7&live=long-poll&max_records=1", "3\n"},
		{"?offset=now&live=long-poll", "[3,4]"},
	} {
		got := make(chan answer, 1)
		go func() { got <- n.do("GET", s+step[0], "") }()
		n.parked(1)
		n.append(s, json, `[3,4]`)
		if a := <-got; a.body != step[1] || a.status != 200 {
			t.Errorf("%s: %+v", step[0], a)
		}
	}
}

func TestRecordEvents(t *testing.T) {
	n := newNode(t, nil).on("live")
	s := n.create(json)
	n.append(s, json, `[0,1,2]`)
	e := n.follow(s + "?record=1&live=sse&record_view=envelope")
	for i := 1; i <= 2; i++ {
		ev, _ := e.next()
		if want := fmt.Sprintf(`{"record":%d,"value":%d}`, i, i); ev.data != want || ev.name != "data" || ev.id != offset(2*i+2) {
			t.Errorf("%+v", ev)
		}
	}
	if got := e.expect("control"); !strings.Contains(got, `"streamFirstRecord":0,"streamNextRecord":3,`) || !strings.Contains(got, `"upToDate":true`) {
		t.Errorf("control %s", got)
	}
	n.append(s, json, `3`)
	if got := e.expect("data"); got != `{"record":3,"value":3}` {
		t.Errorf("data %s", got)
	}
	if got := e.expect("control"); !strings.Contains(got, `"streamNextRecord":4,`) {
		t.Errorf("control %s", got)
	}
	e = n.follow(s+"?record=0&live=sse&max_records=3", "Last-Event-ID", offset(2))
	for _, want := range []string{"[1,2,3]"} {
		if got := e.expect("data"); got != want {
			t.Errorf("data %s, want %s", got, want)
		}
		e.expect("control")
	}
	e = n.follow(s + "?tail_records=4&live=sse&max_records=3")
	for _, want := range []string{"[0,1,2]", "[3]"} {
		if got := e.expect("data"); got != want {
			t.Errorf("data %s, want %s", got, want)
		}
		e.expect("control")
	}
	n.refused(400, "record_view_not_json", "GET", n.ten(text)+"?record=0&live=sse&record_view=envelope", "")
	e = n.follow(n.ten(text) + "?record=8&live=sse")
	if got := e.expect("data"); got != "message 8 message 9 " {
		t.Errorf("data %q", got)
	}
	if got := e.expect("control"); !strings.Contains(got, `"streamNextRecord":10,`) {
		t.Errorf("control %s", got)
	}
}
