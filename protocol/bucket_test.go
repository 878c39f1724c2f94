package protocol

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/snakream/snakream/internal/base"
)

// api §2 and §7 «Listing».
func TestParseList(t *testing.T) {
	for query, want := range map[string]ListQuery{
		"":                               {Limit: 1000},
		"limit=1":                        {Limit: 1},
		"limit=1000&prefix=a%2Fb&after=": {Limit: 1000, Prefix: []byte("a/b"), After: []byte{}},
		"prefix=":                        {Limit: 1000, Prefix: []byte{}},
		"prefix=%C3%A9+x&after=%00":      {Limit: 1000, Prefix: []byte("é x"), After: []byte{0}},
		"offset=&record=x&utm=1&utm=2":   {Limit: 1000},
	} {
		if op := parse(t, "GET /ds/buck/streams?"+query); op.Fault != nil || !reflect.DeepEqual(op.List, want) {
			t.Errorf("?%s: %+v, %v", query, op.List, op.Fault)
		}
	}
	for query, want := range map[string]string{
		"limit=0": codeInvalidParameter, "limit=1001": codeInvalidParameter, "limit=": codeInvalidParameter, "limit": codeInvalidParameter, "limit=-1": codeInvalidParameter,
		"limit=1.5": codeInvalidParameter, "limit=x": codeInvalidParameter, "limit=010": codeInvalidParameter, "limit=" + long9(40): codeInvalidParameter, "limit=%zz": codeInvalidParameter,
		"limit=5&limit=5": codeRepeatedParameter, "prefix=a&prefix=b": codeRepeatedParameter, "after=&after=": codeRepeatedParameter,
		"prefix=%FF": codeInvalidParameter, "after=%C3": codeInvalidParameter, "prefix=%z": codeInvalidParameter,
	} {
		if got := fault(t, "GET /ds/buck/streams?"+query); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string]bool{"": false, "if-not-exists=true": true, "if-not-exists=false": false} {
		if op := parse(t, "PUT /ds/buck?"+query); op.Fault != nil || op.IfNotExists != want {
			t.Errorf("?%s: %v, %v", query, op.IfNotExists, op.Fault)
		}
	}
	for query, want := range map[string]string{"if-not-exists=": codeInvalidParameter, "if-not-exists=1": codeInvalidParameter, "if-not-exists=true&if-not-exists=true": codeRepeatedParameter} {
		if got := fault(t, "PUT /ds/buck?"+query); got != want {
			t.Errorf("?%s: %q", query, got)
		}
	}
}

// A query that net/url reads means to us what it means to it.
func FuzzList(f *testing.F) {
	for _, s := range []string{"prefix=a&after=b&limit=5", "limit=0", "prefix=%C3%A9+x", "limit=1&limit=1", "&&=&limit=%31", "prefix=a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		op := new(Operation)
		if p := Parse(&Request{Method: []byte("GET"), Path: []byte("/ds/buck/streams"), Query: []byte(query)}, op); p != nil {
			t.Fatal(p)
		}
		twin, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		valid := len(twin["prefix"]) < 2 && len(twin["after"]) < 2 && len(twin["limit"]) < 2 && utf8.ValidString(twin.Get("prefix")) && utf8.ValidString(twin.Get("after"))
		limit := MaxList
		if text, there := twin["limit"]; there && valid {
			limit, err = strconv.Atoi(text[0])
			valid = err == nil && 1 <= limit && limit <= MaxList && text[0] == strconv.Itoa(limit)
		}
		if valid != (op.Fault == nil) {
			t.Fatalf("?%s: fault %v", query, op.Fault)
		}
		if valid && (op.List.Limit != limit || string(op.List.Prefix) != twin.Get("prefix") || string(op.List.After) != twin.Get("after")) {
			t.Fatalf("?%s: %+v", query, op.List)
		}
	})
}

func TestBucketJSON(t *testing.T) {
	r := NewRenderer(Settings{})
	fields, body := r.Bucket([]byte("before"), parse(t, `GET /ds/a%22b%5C`), &BucketInfo{Streams: 3, CreatedAt: 1700000000123})
	check(t, "bucket", 200, fields, 200, "Content-Type: application/json", private, "!Stream-Incarnation")
	if want := `{"bucket_id":"a\"b\\","streams":3,"created_at_ms":1700000000123}`; string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
}

type listed struct {
	BucketID string `json:"bucket_id"`
	Prefix   *string
	Count    int `json:"stream_count"`
	Streams  []struct {
		StreamID    string `json:"stream_id"`
		Status      string
		ContentType string      `json:"content_type"`
		TailOffset  uint64      `json:"tail_offset"`
		NextOffset  string      `json:"next_offset"`
		CreatedAt   base.Millis `json:"created_at_ms"`
		LastWriteAt base.Millis `json:"last_write_at_ms"`
	}
	NextCursor *string `json:"next_cursor"`
	HasMore    *bool   `json:"has_more"`
}

func TestListJSON(t *testing.T) {
	r := NewRenderer(Settings{})
	op := parse(t, "GET /ds/buck/streams?prefix=%22%C3%A9")
	check(t, "list", 200, r.List(nil), 200, "Content-Type: application/json", private)
	var w ListWriter
	entries := []ListEntry{
		{Stream: `"é<>&\ ` + "\u2028\U0001F600", ContentType: `text/plain; a="\"b"`, Next: 42, CreatedAt: 5, LastWriteAt: 6},
		{Stream: `"é`, Closed: true, ContentType: "a/b", Next: 1<<64 - 1, CreatedAt: 7},
	}
	body := w.Begin(nil, op)
	for i := range entries {
		body = w.Append(body, &entries[i])
	}
	body = w.End(body, true)
	var got listed
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if got.BucketID != "buck" || got.Prefix == nil || *got.Prefix != `"é` || got.Count != 2 || got.NextCursor == nil || *got.NextCursor != `"é` || got.HasMore == nil || !*got.HasMore {
		t.Errorf("%s", body)
	}
	for i, s := range got.Streams {
		e, status := entries[i], map[bool]string{true: "closed", false: "open"}[entries[i].Closed]
		if s.StreamID != e.Stream || s.Status != status || s.ContentType != e.ContentType || s.TailOffset != e.Next || s.NextOffset != string(AppendOffset(nil, e.Next)) || s.CreatedAt != e.CreatedAt || s.LastWriteAt != e.LastWriteAt {
			t.Errorf("%+v, want %+v", s, e)
		}
	}
	if want := `{"bucket_id":"buck","prefix":"","streams":[],"stream_count":0,"next_cursor":null,"has_more":false}`; string(w.End(w.Begin(nil, parse(t, "GET /ds/buck/streams")), false)) != want {
		t.Errorf("an empty page: %s", w.End(w.Begin(nil, parse(t, "GET /ds/buck/streams")), false))
	}
}

// Whatever the name, the list says it and its own path leads to it.
func FuzzListNames(f *testing.F) {
	for _, s := range []string{"a", `"`, `\u0041`, "é/日", "streams", "\u2029", "a b?c#d%e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if checkName([]byte("buck"), []byte(name), false).code != "" || strings.Contains(name, "/") && !utf8.ValidString(name) {
			return
		}
		var w ListWriter
		var got listed
		body := w.End(w.Append(w.Begin(nil, &Operation{Bucket: []byte("buck")}), &ListEntry{Stream: name}), false)
		if err := json.Unmarshal(body, &got); err != nil || got.Streams[0].StreamID != name || *got.NextCursor != name {
			t.Fatalf("%q became %s: %v", name, body, err)
		}
		op := new(Operation)
		if p := Parse(&Request{Method: []byte("GET"), Path: AppendPath(nil, SurfaceDS, []byte("buck"), []byte(got.Streams[0].StreamID))}, op); p != nil || string(op.Stream) != name {
			t.Fatalf("%q leads to %q: %v", name, op.Stream, p)
		}
	})
}
