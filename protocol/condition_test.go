package protocol

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// api §3 «Conditional writes» and field report 91.
func TestField091IfMatch(t *testing.T) {
	const state, closed = `"7:00000000000000000042"`, `"7:00000000000000000042:c"`
	for _, c := range []struct {
		lines        string
		open, closed bool   // whether it matches (7, 42) as an open and as a closed stream
		fault        string // or this
	}{
		{state, true, false, ""},
		{closed, false, true, ""},
		{"*", true, true, ""},
		{"  *\t", true, true, ""},
		{`"7:00000000000000000040:00000000000000000042"`, true, false, ""},
		{`"7:00000000000000000040:00000000000000000042:ndjson"`, true, false, ""},
		{`"7:00000000000000000040:00000000000000000042:c"`, false, true, ""},
		{`"7:00000000000000000040:00000000000000000042:c:records"`, false, true, ""},
		{`"x", ` + state + `,"y"`, true, false, ""},
		{`"x"|` + state, true, false, ""},
		{`"a"|"b"|"c"|"d"|` + closed, false, true, ""},
		{state + "," + closed, true, true, ""},
		{`,, "x" ,` + state + " ,", true, false, ""},
		{"W/" + state, false, false, ""},
		{`W/"x", ` + state, true, false, ""},
		{`"-1"`, false, false, ""},
		{`"off"`, false, false, ""},
		{`"a", "off"`, false, false, ""},
		{`"00000000000000000042"`, false, false, ""},
		{`"8:00000000000000000042"`, false, false, ""},
		{`"7:00000000000000000041"`, false, false, ""},
		{`"7:42"`, false, false, ""},
		{`"07:00000000000000000042"`, false, false, ""},
		{`"7:00000000000000000042:d"`, false, false, ""},
		{`"7:00000000000000000042:"`, false, false, ""},
		{`"7:00000000000000000043:00000000000000000042"`, false, false, ""},
		{`"7:00000000000000000040:00000000000000000042:xml"`, false, false, ""},
		{`"7:00000000000000000040:00000000000000000042:ndjson:c"`, false, false, ""},
		{`"7:00000000000000000040:00000000000000000042:c:ndjson:x"`, false, false, ""},
		{`""`, false, false, ""},
		{`"7"`, false, false, ""},
		{"off", false, false, codeInvalidHeader},
		{"", false, false, codeInvalidHeader},
		{" ,, ", false, false, codeInvalidHeader},
		{`"off`, false, false, codeInvalidHeader},
		{`"a" "b"`, false, false, codeInvalidHeader},
		{`w/"a"`, false, false, codeInvalidHeader},
		{`*, "a"`, false, false, codeInvalidHeader},
		{`"a", *`, false, false, codeInvalidHeader},
		{`"a"|*`, false, false, codeInvalidHeader},
		{`*|"a"`, false, false, codeInvalidHeader},
		{"*|*", false, false, codeInvalidHeader},
		{`"a b"`, false, false, codeInvalidHeader},
	} {
		lines := []string{"Content-Type: a/b", "body: 1"}
		for line := range strings.SplitSeq(c.lines, "|") {
			lines = append(lines, "If-Match: "+line)
		}
		op := parse(t, "POST /v1/stream/s", lines...)
		switch {
		case c.fault != "":
			if op.Fault == nil || op.Fault.Code != c.fault || op.Fault.Field != "If-Match" {
				t.Errorf("%s: fault %v", c.lines, op.Fault)
			}
		case op.Fault != nil || !op.HasIfMatch || op.Match(7, 42, false) != c.open || op.Match(7, 42, true) != c.closed:
			t.Errorf("%s: open %v, closed %v, %v", c.lines, op.Match(7, 42, false), op.Match(7, 42, true), op.Fault)
		}
	}
	if op := parse(t, "PUT /v1/stream/s", "If-Match: "+state); !op.Match(7, 42, false) || op.Match(7, 43, false) {
		t.Error("If-Match of a PUT does not count")
	}
	if op := parse(t, "GET /v1/stream/s", "If-Match: nonsense"); op.Fault != nil || op.HasIfMatch || !op.Match(1, 2, true) {
		t.Error("If-Match of a GET counts")
	}
}

func TestRecordMatch(t *testing.T) {
	if op := parse(t, "POST /v1/stream/s", "Stream-Record-Match: 0", "Content-Type: a/b", "body: 1"); op.Fault != nil || !op.HasRecordMatch || op.RecordMatch != 0 {
		t.Errorf("%d, %v", op.RecordMatch, op.Fault)
	}
	for _, bad := range []string{"", "-1", "01", "1.0", "x", "9007199254740992"} {
		if got := fault(t, "POST /v1/stream/s", "Stream-Record-Match:"+bad, "Content-Type: a/b", "body: 1"); got != codeInvalidHeader {
			t.Errorf("%q: %q", bad, got)
		}
	}
	if got := fault(t, "POST /v1/stream/s", "Stream-Record-Match: 1", "Stream-Record-Match: 1", "body: 0"); got != codeRepeatedHeader {
		t.Errorf("twice: %q", got)
	}
}

// Every tag that we make is read back, and a regular expression agrees on the rest.
func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"7:00000000000000000042"`, `"7:00000000000000000040:00000000000000000042:c:ndjson"`, "*", `W/"a", "b"`, `"a`, "off", `,"a",`, `"0:18446744073709551616"`} {
		f.Add(s, uint64(7), uint64(40), uint64(2), true)
	}
	list := regexp.MustCompile(`^[ \t,]*(?:(?:W/)?"[^" \x00-\x1f\x7f]*"[ \t]*(?:,[ \t,]*|$))+$`)
	ours := regexp.MustCompile(`(W/)?"((?:0|[1-9]\d{0,15}):(?:\d{20})(?::\d{20}(?::c)?(?::ndjson|:records)?|:c)?)"`)
	f.Fuzz(func(t *testing.T, line string, id, start, length uint64, closed bool) {
		op := new(Operation)
		op.parseIfMatch(trim([]byte(line)))
		text := string(trim([]byte(line)))
		if valid := text == "*" || list.MatchString(text); (op.Fault == nil) != valid {
			t.Fatalf("%q: fault %v", line, op.Fault)
		}
		if op.Fault == nil && text != "*" {
			n := 0
			for _, m := range ours.FindAllStringSubmatch(text, -1) {
				if m[1] == "" {
					n++
				}
			}
			if len(op.IfMatch) > n {
				t.Fatalf("%q: %d tags of ours, %v", line, n, op.IfMatch)
			}
		}

		id, start, length = id%(1<<53), start>>1, length>>1
		want := Match{Incarnation: id, Next: start + length, Closed: closed}
		for _, tag := range [][]byte{
			AppendStateTag(nil, id, want.Next, closed),
			AppendRangeTag(nil, id, start, want.Next, closed, ""),
			AppendRangeTag(nil, id, start, want.Next, closed, representationNDJSON),
			AppendRangeTag(nil, id, start, want.Next, closed, representationRecords),
		} {
			op := new(Operation)
			if op.parseIfMatch(tag); op.Fault != nil || len(op.IfMatch) != 1 || op.IfMatch[0] != want {
				t.Fatalf("%s: %v, want %v; %v", tag, op.IfMatch, want, op.Fault)
			}
		}
	})
}

// Which tags of If-None-Match are states that a write must not find.
func TestAppendNoneMatch(t *testing.T) {
	open, closed := Match{Incarnation: 7, Next: 42}, Match{Incarnation: 7, Next: 42, Closed: true}
	const state, rng = `"7:00000000000000000042"`, `"7:00000000000000000000:00000000000000000042"`
	for _, c := range []struct {
		lines []string
		want  []Match
	}{
		{nil, nil},
		{[]string{state}, []Match{open}},
		{[]string{"W/" + state}, []Match{open}},
		{[]string{`"7:00000000000000000042:c"`}, []Match{closed}},
		{[]string{`"other", ` + state, `"7:00000000000000000042:c"`}, []Match{open, closed}},
		{[]string{" * "}, []Match{{Any: true}}},
		{[]string{rng}, nil},
		{[]string{`"07:00000000000000000042"`}, nil},
		{[]string{"7:00000000000000000042"}, nil},
		{[]string{state + " junk"}, nil},
		{[]string{`"7:42"`}, nil},
	} {
		var op Operation
		for _, l := range c.lines {
			op.IfNoneMatch = append(op.IfNoneMatch, []byte(l))
		}
		if got := op.AppendNoneMatch(nil); !slices.Equal(got, c.want) {
			t.Errorf("%q: %+v instead of %+v", c.lines, got, c.want)
		}
	}
}
