package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// split runs SplitJSON as a POST does, behind some bytes that must stay.
func split(t *testing.T, body string) ([]string, *JSONError) {
	t.Helper()
	stored, ends, err := SplitJSON([]byte("before"), []uint32{7}, []byte(body), MaxNesting, true)
	if string(stored[:6]) != "before" || ends[0] != 7 {
		t.Fatalf("%.100q: what was there before is gone", body)
	}
	if err != nil {
		if len(stored) != 6 || len(ends) != 1 {
			t.Fatalf("%.100q: an error left something behind", body)
		}
		return nil, err
	}
	return messages(t, stored[6:], ends[1:]), nil
}

func messages(t *testing.T, stored []byte, ends []uint32) []string {
	t.Helper()
	out := []string{}
	at := uint32(0)
	for _, e := range ends {
		if e <= at || int(e) > len(stored) || stored[e-1] != ',' {
			t.Fatalf("end %d is not behind a comma of %q", e, stored)
		}
		out = append(out, string(stored[at:e-1]))
		at = e
	}
	if int(at) != len(stored) {
		t.Fatalf("%q goes on behind the last message", stored)
	}
	return out
}

// PROTOCOL.md §9.1.2, and field reports 19, 32, 34 and 38.
func TestSplitJSON(t *testing.T) {
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{"event": "created"}`, []string{`{"event":"created"}`}},
		{`[{"event": "a"}, {"event": "b"}]`, []string{`{"event":"a"}`, `{"event":"b"}`}},
		{`[[1,2], [3,4]]`, []string{`[1,2]`, `[3,4]`}},
		{`[[[1,2,3]]]`, []string{`[[1,2,3]]`}},
		{`[]`, []string{}},
		{" [ \n ] ", []string{}},
		{`[[]]`, []string{`[]`}},
		{`1`, []string{`1`}},
		{` "x" `, []string{`"x"`}},
		{"\n\t\r null", []string{`null`}},
		{`true`, []string{`true`}},
		{`[false]`, []string{`false`}},
		{`[1,[2,[3]],{"a":[]}]`, []string{`1`, `[2,[3]]`, `{"a":[]}`}},
		{`{"b":1,"a":2,"b":3}`, []string{`{"b":1,"a":2,"b":3}`}},
		{`[ {"z":1 ,  "y" : [ 1 , 2 ] } ]`, []string{`{"z":1,"y":[1,2]}`}},
		{`{"a":9007199254740993,"b":1.0,"c":1e400,"d":-0,"e":0.1000000000000000055511151231257827,"f":1E+2,"g":12345678901234567890123}`,
			[]string{`{"a":9007199254740993,"b":1.0,"c":1e400,"d":-0,"e":0.1000000000000000055511151231257827,"f":1E+2,"g":12345678901234567890123}`}},
		{`"a  b\u0020\ud800\/\"\\"`, []string{`"a  b\u0020\ud800\/\"\\"`}},
		{`{"" : { } , "k" : [ ] }`, []string{`{"":{},"k":[]}`}},
		{`["` + strings.Repeat("é日𝄞", 50) + `"]`, []string{`"` + strings.Repeat("é日𝄞", 50) + `"`}},
	} {
		got, err := split(t, c.body)
		if err != nil {
			t.Errorf("%s: %v at %d", c.body, err, err.Position)
		} else if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
			t.Errorf("%s: got %q, want %q", c.body, got, c.want)
		}
	}
}

func TestSplitJSONRefuses(t *testing.T) {
	for _, c := range []struct {
		body string
		at   int64
	}{
		{``, 0}, {`  `, 2}, {`{`, 1}, {`[`, 1}, {`[1`, 2}, {`[1,`, 3}, {`[1,]`, 3}, {`[,1]`, 1}, {`{"a"}`, 4}, {`{"a":}`, 5}, {`{"a":1,}`, 7},
		{`{a:1}`, 1}, {`{"a":1]`, 6}, {`[[1}]`, 3}, {`[1 2]`, 3}, {`1 2`, 2}, {`{} x`, 3}, {`NaN`, 0}, {`Infinity`, 0}, {`-`, 1}, {`01`, 1},
		{`-x`, 1}, {`1.`, 2}, {`.5`, 0}, {`+1`, 0}, {`1e`, 2}, {`1e+`, 3}, {`0x10`, 1}, {`tru`, 0}, {`nul`, 0}, {`True`, 0}, {`'a'`, 0},
		{`"a`, 2}, {`"a\`, 2}, {`"\x"`, 1}, {`"\u12g4"`, 1}, {`"\u12"`, 1}, {"\"a\nb\"", 2}, {"\"12345678\x01\"", 9}, {"\x001", 0}, {"[1]\x00", 3},
		{"\ufeff1", 0}, {"\ufeff", 0}, // BOM
		{"{\"a\":\"\xff\xfe\"}", 6}, {"\"\xc0\xaf\"", 1}, {"\"\xed\xa0\x80\"", 1}, {"\"\xe2\x82\"", 1}, // field report 35
		{"\u00a01", 0}, {"// c\n1", 0},
	} {
		got, err := split(t, c.body)
		if err == nil {
			t.Errorf("%q: taken as %q", c.body, got)
		} else if err.Position != c.at || err.Detail == "" {
			t.Errorf("%q: %q at %d, want %d", c.body, err.Detail, err.Position, c.at)
		}
	}
}

// Field report 37. Nesting counts inside a message: the array of a batch is no level.
func TestSplitJSONNesting(t *testing.T) {
	nested := func(open, end string, n int) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	for _, c := range []struct {
		body string
		ok   bool
	}{
		{nested("[", "]", MaxNesting+1), true}, // the outer one is flattened
		{nested("[", "]", MaxNesting+2), false},
		{nested(`{"a":`, "}", MaxNesting-1) + "1", false}, // not JSON at all
		{strings.Repeat(`{"a":`, MaxNesting) + "1" + strings.Repeat("}", MaxNesting), true},
		{strings.Repeat(`{"a":`, MaxNesting+1) + "1" + strings.Repeat("}", MaxNesting+1), false},
		{"[" + strings.Repeat(`{"a":[`, MaxNesting/2) + strings.Repeat("]}", MaxNesting/2) + "]", true},
		{nested("[", "]", 5_000_000), false},
		{strings.Repeat("[", 5_000_000), false},
	} {
		if _, err := split(t, c.body); (err == nil) != c.ok {
			t.Errorf("%.20s… of %d bytes: %v", c.body, len(c.body), err)
		}
	}
	if _, _, err := SplitJSON(nil, nil, []byte("[[]]"), 1, false); err == nil {
		t.Error("two levels where one is allowed")
	}
}

func TestSplitJSONKeepsArrays(t *testing.T) {
	stored, ends, err := SplitJSON(nil, nil, []byte("[1, [2]]"), MaxNesting, false)
	if err != nil || string(stored) != "[1,[2]]," || len(ends) != 1 {
		t.Errorf("got %q, %v, %v", stored, ends, err)
	}
}

// What is stored becomes an array, or lines, without being parsed again.
func TestStoredRange(t *testing.T) {
	stored, _, err := SplitJSON(nil, nil, []byte(`[ {"a,":[1,2]}, "x,\",y" , "\\", [[],{}] ]`), MaxNesting, true)
	if err != nil {
		t.Fatal(err)
	}
	const array = `[{"a,":[1,2]},"x,\",y","\\",[[],{}]]`
	if got := OpenArray + string(stored[:len(stored)-1]) + CloseArray; got != array {
		t.Errorf("array %s, want %s", got, array)
	}
	const lines = `{"a,":[1,2]}` + "\n" + `"x,\",y"` + "\n" + `"\\"` + "\n" + `[[],{}]` + "\n"
	for cut := range len(stored) + 1 {
		var l Lines
		if got := l.Append(l.Append(nil, stored[:cut]), stored[cut:]); string(got) != lines {
			t.Errorf("cut at %d: %q", cut, got)
		}
	}
}

// twin is SplitJSON by means of encoding/json.
func twin(body []byte) (out []string, ok bool) {
	if !json.Valid(body) || !utf8.Valid(body) {
		return nil, false
	}
	parts := []json.RawMessage{body}
	if bytes.TrimLeft(body, " \t\r\n")[0] == '[' {
		parts = nil
		if err := json.Unmarshal(body, &parts); err != nil {
			return nil, false
		}
	}
	for _, p := range parts {
		var b bytes.Buffer
		if json.Compact(&b, p) != nil || depth(b.Bytes()) > MaxNesting {
			return nil, false
		}
		out = append(out, b.String())
	}
	return out, true
}

func depth(b []byte) (deepest int) {
	n, inside := 0, false
	for i := 0; i < len(b); i++ {
		switch {
		case inside && b[i] == '\\':
			i++
		case b[i] == '"':
			inside = !inside
		case inside:
		case b[i] == '[' || b[i] == '{':
			n++
			deepest = max(deepest, n)
		case b[i] == ']' || b[i] == '}':
			n--
		}
	}
	return deepest
}

func FuzzSplitJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5e-3, "x\u00e9\n"], "b": {}}`, `[1, [2], {"k": null}]`, ` [ ] `, `"\\\""`, "[\"é日𝄞 12345678\"]", `{"a":1,}`,
		"\xff", "\ufeff1", strings.Repeat("[", 600) + strings.Repeat("]", 600), `[[],{"":{}}]`, `-0.1E+9`, `"12345678\t1234567"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want, ok := twin(body)
		got, err := split(t, string(body))
		if (err == nil) != ok {
			t.Fatalf("error %v, encoding/json says valid = %v", err, ok)
		}
		if err != nil {
			if err.Position < 0 || err.Position > int64(len(body)) {
				t.Fatalf("position %d of %d bytes", err.Position, len(body))
			}
			return
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func BenchmarkSplitJSON(b *testing.B) {
	message := `{"type":"token","run":"01JABCDEF","index":1234,"text":"some words of a sentence that somebody wrote"}`
	spaced := `{"type": "token", "run": "01JABCDEF", "index": 1234, "tags": [1, 2, 3], "nested": {"a": true, "b": null}}`
	for _, c := range []struct{ name, body string }{
		{"one", message},
		{"batch", "[" + strings.Repeat(message+",", 99) + message + "]"},
		{"spaced", "[" + strings.Repeat(spaced+", ", 99) + spaced + "]"},
		{"numbers", "[" + strings.Repeat("1.25,", 999) + "1]"},
		{"text", `"` + strings.Repeat("a long text without anything in it ", 1000) + `"`},
	} {
		b.Run(c.name, func(b *testing.B) {
			body, dst, bounds := []byte(c.body), make([]byte, 0, len(c.body)+1), make([]uint32, 0, 1000)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := SplitJSON(dst, bounds, body, MaxNesting, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
