package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

type event struct{ kind, data, id string }

// readEvents is a parser as WHATWG describes it: any of CR, LF and CR LF ends a line,
// one space behind the colon goes, data lines are joined by LF.
func readEvents(t *testing.T, stream []byte) (events []event) {
	t.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(string(stream), "\r\n", "\n"), "\r", "\n")
	if !strings.HasSuffix(text, "\n\n") {
		t.Fatalf("%q does not end with an event", text)
	}
	var e event
	var data []string
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				e.data = strings.Join(data, "\n")
				events = append(events, e)
			}
			e, data = event{}, nil
		case name == "":
		case name == "event":
			e.kind = value
		case name == "data":
			data = append(data, value)
		case name == "id":
			e.id = value
		default:
			t.Fatalf("line %q", line)
		}
	}
	return events
}

// PROTOCOL.md §5.8, api §3 «SSE», and field report 73: to the byte.
func TestSSEWire(t *testing.T) {
	const id = "\nid: 00000000000000000042\n\n"
	text := func(s string) string { return string(AppendSSEData(nil, EncodeText, []byte(s), 42)) }
	for in, want := range map[string]string{
		"line1\nline2":            "data:line1\ndata:line2",
		"  two":                   "data:   two",
		" ":                       "data:  ",
		":colon":                  "data::colon",
		"x\n\n":                   "data:x\ndata:\ndata:",
		"a\r\nb\rc\n\rd":          "data:a\ndata:b\ndata:c\ndata:\ndata:d",
		"":                        "data:",
		"\tt":                     "data:\tt",
		"a\u0085b\u2028c\u2029d":  "data:a\u0085b\u2028c\u2029d", // field report 70
		"a\vb\fc":                 "data:a\vb\fc",
		"x\xffy\xe4\xbdz\xf0\x9f": "data:x\ufffdy\ufffdz\ufffd",
		"x\xc0\xaf\xed\xa0\x80":   "data:x\ufffd\ufffd\ufffd\ufffd\ufffd",
	} {
		if got := text(in); got != "event: data\n"+want+id {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := string(AppendSSEData(nil, EncodeJSON, []byte(`{"a":1},2,`), 42)); got != "event: data\ndata:[{\"a\":1},2]"+id {
		t.Errorf("JSON: %q", got)
	}
	if got := string(AppendSSEData(nil, EncodeJSON, nil, 42)); got != "event: data\ndata:[]"+id {
		t.Errorf("no JSON: %q", got)
	}
	for c, want := range map[Control]string{
		{Next: 42, Cursor: 7}:                 `{"streamNextOffset":"00000000000000000042","streamCursor":"7"}`,
		{Next: 42, Cursor: 7, UpToDate: true}: `{"streamNextOffset":"00000000000000000042","streamCursor":"7","upToDate":true}`,
		{Next: 42, Cursor: 7, Closed: true}:   `{"streamNextOffset":"00000000000000000042","upToDate":true,"streamClosed":true}`,
	} {
		if got := string(AppendSSEControl(nil, c)); got != "event: control\ndata:"+want+id {
			t.Errorf("%+v: %q", c, got)
		}
	}
	end := AppendSSEEnd(nil, EndProblem(new(Operation), &WriteResult{Outcome: Gone}))
	e := readEvents(t, end)
	if len(e) != 1 || e[0].kind != "end" || !json.Valid([]byte(e[0].data)) || !strings.Contains(e[0].data, codeStreamGone) {
		t.Errorf("end: %q", end)
	}
	if e := readEvents(t, []byte(Heartbeat)); len(e) != 0 {
		t.Errorf("a heartbeat is an event: %v", e)
	}
}

// Field report 74.
func TestSSEBase64(t *testing.T) {
	all := make([]byte, 4097)
	for i := range all {
		all[i] = byte(i)
	}
	for n := range 9 {
		if n == 8 {
			n = len(all)
		}
		e := readEvents(t, AppendSSEData(nil, EncodeBase64, all[:n], 1))
		got, err := base64.StdEncoding.DecodeString(e[0].data)
		if err != nil || !bytes.Equal(got, all[:n]) {
			t.Errorf("%d bytes: %q, %v", n, got, err)
		}
	}
}

// A payload never becomes a field, an event or the end of one.
func FuzzSSE(f *testing.F) {
	for _, s := range []string{"safe\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\n\r\nmore", "a\r\rb", "\n\nid: 5\n\n", " x", "\xff\xf0\x9f", "", "é日𝄞", "\ufeffx", "x\x00y"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		stream := AppendSSEData(nil, EncodeText, payload, 9)
		stream = AppendSSEData(stream, EncodeBase64, payload, 10)
		stream = AppendSSEControl(stream, Control{Next: 10})
		e := readEvents(t, stream)
		if len(e) != 3 || e[0].kind != "data" || e[1].kind != "data" || e[2].kind != "control" {
			t.Fatalf("events %q", e)
		}
		if e[0].id != string(AppendOffset(nil, 9)) || e[1].id != string(AppendOffset(nil, 10)) {
			t.Fatalf("ids %q", e)
		}
		want := strings.ReplaceAll(strings.ReplaceAll(string(payload), "\r\n", "\n"), "\r", "\n")
		if !utf8.ValidString(e[0].data) || utf8.ValidString(want) && e[0].data != want {
			t.Fatalf("text %q, want %q", e[0].data, want)
		}
		if got, err := base64.StdEncoding.DecodeString(e[1].data); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("bytes %q, %v", got, err)
		}

		cut := UTF8Cut(payload)
		if cut < len(payload)-3 || cut > len(payload) {
			t.Fatalf("cut %d of %d", cut, len(payload))
		}
		if utf8.Valid(payload) && cut != len(payload) {
			t.Fatalf("valid text is cut at %d of %d", cut, len(payload))
		}
		if cut < len(payload) && !completes(payload[cut:]) {
			t.Fatalf("%q waits for a rest that can't come", payload[cut:])
		}
	})
}

// completes reports whether some bytes make one code point of b.
func completes(b []byte) bool {
	for first := 0x80; first < 0xc0; first++ {
		for n := 1; len(b)+n <= utf8.UTFMax; n++ {
			whole := append(bytes.Clone(b), byte(first))
			for len(whole) < len(b)+n {
				whole = append(whole, 0x80)
			}
			if r, size := utf8.DecodeRune(whole); r != utf8.RuneError && size == len(whole) {
				return true
			}
		}
	}
	return false
}

// Field report 71: whatever the cuts, the pieces are whole characters.
func TestUTF8Cut(t *testing.T) {
	text := []byte("a你é𝄞\u0800\U00010000\U0010FFFF")
	for i := range len(text) + 1 {
		cut := UTF8Cut(text[:i])
		if !utf8.Valid(text[:cut]) || utf8.FullRune(text[cut:i]) && cut < i {
			t.Errorf("the first %d bytes are cut at %d", i, cut)
		}
	}
	for in, want := range map[string]int{"": 0, "\xe4": 0, "\xe4\xbd": 0, "a\xf0\x9f\x98": 1, "\xff": 1, "\x80": 1, "\xe4\xbd\xa0": 3, "\xc0": 1, "\xe0\x80": 2, "\xed\xa0": 2, "\xf4\x90": 2, "\xf5": 1, "\x80\x80\x80\x80": 4} {
		if got := UTF8Cut([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func BenchmarkSSE(b *testing.B) {
	text := []byte(strings.Repeat("some words of a token stream, with a line end\n", 20))
	for _, c := range []struct {
		name string
		e    Encoding
	}{{"text", EncodeText}, {"json", EncodeJSON}, {"base64", EncodeBase64}} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]byte, 0, 4096)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendSSEControl(AppendSSEData(dst[:0], c.e, text, 42), Control{Next: 42, Cursor: 7, UpToDate: true})
			}
		})
	}
}
