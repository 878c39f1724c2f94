package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/snakream/snakream/engine"
)

func TestReadOffsets(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	first := n.append(s, json, `{"a":1}`)
	tail := n.append(s, json, `[2,3]`)
	for _, step := range []struct {
		query  string
		status int
		body   string
	}{
		{"", 200, `[{"a":1},2,3]`},
		{"?offset=-1", 200, `[{"a":1},2,3]`},
		{"?offset=" + first, 200, `[2,3]`},
		{"?offset=8", 200, `[2,3]`},
		{"?offset=" + tail, 200, `[]`},
		{"?offset=now", 200, `[]`},
		{"?offset=3", 400, ""},
		{"?offset=99", 400, ""},
		{"?offset=", 400, ""},
		{"?offset=1&offset=1", 400, ""},
		{"?offset=-1&live=maybe", 400, ""},
		{"?offset=0&max_bytes=1", 200, `[{"a":1}]`},
		{"?offset=0&max-bytes=11", 200, `[{"a":1},2]`},
		{"?max_bytes=0", 400, ""},
	} {
		a := n.want(step.status, "GET", s+step.query, "")
		if step.status == 200 && a.body != step.body {
			t.Errorf("%s: got %s, want %s", step.query, a.body, step.body)
		}
		if atTail := a.header.Get("Stream-Next-Offset") == tail; step.status == 200 && atTail != (a.header.Get("Stream-Up-To-Date") == "true") {
			t.Errorf("%s: next offset and up-to-date disagree: %v", step.query, a.header)
		}
	}
	if a := n.want(400, "GET", s+"?offset=99", ""); a.header.Get("Stream-Next-Offset") != tail {
		t.Errorf("beyond the tail: %v", a.header)
	}
	a := n.want(200, "GET", s, "", "Accept", "application/x-ndjson")
	if a.body != "{\"a\":1}\n2\n3\n" {
		t.Errorf("NDJSON: %q", a.body)
	}
}

func TestField85And86EntityTags(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	n.append(s, text, "abc")
	tag := n.want(200, "GET", s, "").header.Get("ETag")
	for _, list := range []string{tag, "W/" + tag, `"a", ` + tag, `"a",W/` + tag + ` ,"b"`, "*"} {
		if a := n.want(304, "GET", s, "", "If-None-Match", list); a.header.Get("ETag") != tag || a.body != "" {
			t.Errorf("%s: %v", list, a.header)
		}
	}
	n.want(304, "GET", s, "", "If-None-Match", `"a"`, "If-None-Match", tag)
	n.want(200, "GET", s, "", "If-None-Match", `"x `+strings.Trim(tag, `"`)+` x"`)
	n.want(200, "GET", s+"?offset=now", "", "If-None-Match", "*")
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	a := n.want(200, "GET", s, "", "If-None-Match", tag)
	if a.header.Get("Stream-Closed") != "true" || a.header.Get("ETag") == tag {
		t.Errorf("the closure hides: %v", a.header)
	}
}

// A read without max_bytes streams to the tail, whatever its size and wherever the
// bytes lie.
func TestLongReads(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 256 << 10; o.WALFileBytes = 8 << 20 })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	text1, json1 := n.create(octets), n.create(json)
	var bytes strings.Builder
	var messages []string
	for range 60 {
		chunk := make([]byte, 1+rng.IntN(60<<10))
		for i := range chunk {
			chunk[i] = byte(rng.Uint32())
		}
		n.append(text1, octets, string(chunk))
		bytes.Write(chunk)
		m := fmt.Sprintf(`"%s"`, strings.Repeat("x,", rng.IntN(20<<10)))
		n.append(json1, json, m)
		messages = append(messages, m)
	}
	if a := n.want(200, "GET", text1, ""); a.body != bytes.String() || a.header.Get("Stream-Up-To-Date") != "true" {
		t.Errorf("bytes: got %d of %d", len(a.body), bytes.Len())
	}
	if a := n.want(200, "GET", json1, ""); a.body != "["+strings.Join(messages, ",")+"]" {
		t.Errorf("JSON: got %d bytes", len(a.body))
	}
	if a := n.want(200, "GET", json1, "", "Accept", "application/x-ndjson"); a.body != strings.Join(messages, "\n")+"\n" {
		t.Errorf("NDJSON: got %d bytes", len(a.body))
	}
	n.page(json1, messages)
	for range 20 {
		from := rng.IntN(bytes.Len())
		if a := n.want(200, "GET", fmt.Sprintf("%s?offset=%d", text1, from), ""); a.body != bytes.String()[from:] {
			t.Errorf("bytes from %d: got %d", from, len(a.body))
		}
	}
}

// page reads a JSON stream in small pages, each of whole messages.
func (n *node) page(s string, messages []string) {
	n.t.Helper()
	var got []string
	for offset := "-1"; ; {
		a := n.want(200, "GET", s+"?max_bytes=30000&offset="+offset, "")
		if inner := a.body[1 : len(a.body)-1]; inner != "" {
			got = append(got, inner)
		}
		if a.header.Get("Stream-Up-To-Date") == "true" {
			break
		}
		if next := a.header.Get("Stream-Next-Offset"); next != offset {
			offset = next
			continue
		}
		n.t.Fatalf("no progress at %s", offset)
	}
	if strings.Join(got, ",") != strings.Join(messages, ",") {
		n.t.Error("pages differ from the messages")
	}
}

func TestTTLIsRenewedByReads(t *testing.T) {
	n := newNode(t, nil)
	gone := fresh()
	n.want(201, "PUT", gone, "", "Stream-TTL", "0")
	n.want(404, "GET", gone, "")
	n.want(404, "HEAD", gone, "")
	n.want(201, "PUT", gone, "", "Stream-TTL", "100")
	if a := n.want(200, "HEAD", gone, ""); a.header.Get("Stream-TTL") != "100" {
		t.Errorf("HEAD %v", a.header)
	}
	past := fresh()
	n.want(201, "PUT", past, "", "Stream-Expires-At", "2001-01-01T00:00:00Z")
	n.want(404, "GET", past, "")
}

func TestForks(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	at := n.append(s, json, "[1,2]")
	n.append(s, json, "3")
	f := fresh()
	n.want(201, "PUT", f, "", "Stream-Forked-From", "/v1/stream/"+s, "Stream-Fork-Offset", at)
	n.append(f, json, `"own"`)
	if a := n.want(200, "GET", f, ""); a.body != `[1,2,"own"]` {
		t.Errorf("fork: %s", a.body)
	}
	g := fresh()
	n.want(201, "PUT", g, "4", "Stream-Forked-From", "/v1/stream/"+s, "Stream-Fork-Offset", "0", "Stream-Fork-Sub-Offset", "1")
	if a := n.want(200, "GET", g, ""); a.body != `[1,4]` {
		t.Errorf("fork with a body: %s", a.body)
	}
	n.want(204, "DELETE", s, "")
	n.want(410, "GET", s, "")
	n.want(409, "PUT", s, "", "Content-Type", json)
	n.want(404, "PUT", fresh(), "", "Stream-Forked-From", "/v1/stream/none")
	n.want(409, "PUT", fresh(), "", "Stream-Forked-From", "/v1/stream/"+s)
	if a := n.want(200, "GET", f, ""); a.body != `[1,2,"own"]` {
		t.Errorf("fork of a deleted stream: %s", a.body)
	}
	n.want(204, "DELETE", f, "")
	n.want(410, "GET", s, "")
	n.want(204, "DELETE", g, "")
	n.want(201, "PUT", s, "", "Content-Type", text) // the name is free with the last fork's delete
}
