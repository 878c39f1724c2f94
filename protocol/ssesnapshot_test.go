package protocol

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// snapshotEvent writes a snapshot in the pieces that the cuts make of it.
func snapshotEvent(contentType string, payload []byte, cuts ...int) []byte {
	var e SnapshotEvent
	dst := e.Begin(nil, contentType)
	at := 0
	for _, cut := range append(cuts, len(payload)) {
		dst = e.Append(dst, payload[at:cut])
		at = cut
	}
	return e.End(dst, 42)
}

// To the byte: text and JSON line by line, anything else as base64.
func TestSnapshotEvent(t *testing.T) {
	const id = "\nid: 00000000000000000042\n\n"
	for _, c := range []struct{ contentType, payload, want string }{
		{"text/plain; charset=utf-8", "one\ntwo\r\nthree\rfour\n", "data:one\ndata:two\ndata:three\ndata:four\ndata:"},
		{"application/json", "{\n  \"a\": 1\n}", "data:{\ndata:   \"a\": 1\ndata:}"},
		{"text/plain", " x", "data:  x"},
		{"text/plain", "", "data:"},
		{"text/plain", "a\xffb\xe4\xbd", "data:a\ufffdb\ufffd"},
		{"application/octet-stream", "\x00\x01\n", "data:AAEK"},
		{"application/octet-stream", "\x00\x01", "data:AAE="},
		{"application/vnd.x+json", "{}", "data:e30="},
		{"image/png", "", "data:"},
	} {
		for cut := range len(c.payload) + 1 {
			if got := string(snapshotEvent(c.contentType, []byte(c.payload), cut)); got != "event: snapshot\n"+c.want+id {
				t.Errorf("%s %q, cut at %d: %q", c.contentType, c.payload, cut, got)
			}
		}
	}
	r := NewRenderer(Settings{})
	binary := &Snapshot{Set: true, Offset: 42, ContentType: "image/png"}
	text := &Snapshot{Set: true, Offset: 42, ContentType: "application/json"}
	check(t, "binary", 200, r.BootstrapEvents(nil, 7, "text/plain", binary, false), 200, "Content-Type: text/event-stream", "Stream-Data-Content-Type: text/plain", "Stream-Snapshot-Content-Type: image/png",
		"Stream-SSE-Snapshot-Encoding: base64", "!Stream-SSE-Data-Encoding", "Stream-Snapshot-Offset: 00000000000000000042", "Stream-Incarnation: 7")
	check(t, "text", 200, r.BootstrapEvents(nil, 7, "image/png", text, false), 200, "Stream-Snapshot-Content-Type: application/json", "!Stream-SSE-Snapshot-Encoding", "Stream-SSE-Data-Encoding: base64")
	check(t, "none", 200, r.BootstrapEvents(nil, 7, "image/png", new(Snapshot), false), 200, "Stream-Snapshot-Offset: -1", "!Stream-Snapshot-Content-Type", "!Stream-SSE-Snapshot-Encoding")
	check(t, "resumed", 200, r.BootstrapEvents(nil, 7, "text/plain", binary, true), 200, "Stream-Snapshot-Offset: 00000000000000000042", "Stream-Snapshot-Digest: "+strings.Repeat("0", 64),
		"!Stream-Snapshot-Content-Type", "!Stream-SSE-Snapshot-Encoding")
}

// Whatever the cuts, the event is the one that the whole makes, and its data are what
// AppendSSEData would have made of them.
func FuzzSnapshotEvent(f *testing.F) {
	for _, s := range []string{"a\r\nb\rc\n\r\nd", "\xe4\xbd\xa0\xf0\x9f\x98\x80", "\xe4\xbda\xf0\x9f", "  x\n y", "\r\n\nevent: control\ndata: x", "\xe4\r\n", "\xf0\x9f\xf0\x9f\x98\x80", ""} {
		f.Add([]byte(s), uint16(1), uint16(2), uint16(3))
	}
	f.Fuzz(func(t *testing.T, payload []byte, c1, c2, c3 uint16) {
		n := len(payload) + 1
		a, b, c := int(c1)%n, int(c2)%n, int(c3)%n
		a, b = min(a, b), max(a, b)
		b, c = min(b, c), max(b, c)
		a, b = min(a, b), max(a, b)
		twin := strings.Replace(string(AppendSSEData(nil, EncodeText, payload, 42)), "event: data", "event: snapshot", 1)
		if got := string(snapshotEvent("text/plain", payload, a, b, c)); got != twin {
			t.Fatalf("cut at %d, %d, %d: %q, want %q", a, b, c, got, twin)
		}
		e := readEvents(t, snapshotEvent("image/png", payload, a, b, c))
		if len(e) != 1 || e[0].kind != "snapshot" {
			t.Fatalf("%q", e)
		}
		if got, err := base64.StdEncoding.DecodeString(e[0].data); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
