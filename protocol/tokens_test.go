package protocol

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/base"
)

// PROTOCOL.md §8 and field report 55.
func TestOffsets(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "7": 7, "00000000000000000042": 42, "18446744073709551615": 1<<64 - 1,
		"0000000000000000_0000000000000000": 0, "9999999999999999_9999999999999999": 9999999999999999} {
		if s, off, ok := ParseOffset([]byte(in)); !ok || s != StartAt || off != want {
			t.Errorf("%s: %d, %d, %v", in, s, off, ok)
		}
	}
	if s, _, ok := ParseOffset([]byte("-1")); !ok || s != StartBeginning {
		t.Error("-1 is not the beginning")
	}
	if s, _, ok := ParseOffset([]byte("now")); !ok || s != StartNow {
		t.Error("now is not now")
	}
	for _, bad := range []string{"", "+5", " 5", "5 ", "5abc", "-2", "1e3", "NOW", "-01", "18446744073709551616", "99999999999999999999", "000000000000000000007",
		"0_-1", "000000000000000_0000000000000000", "0000000000000000_000000000000000x", "000000000000000x_0000000000000000", "0000000000000000-0000000000000000",
		strings.Repeat("1", 300), "5\x00", "0,1", "../5"} {
		if _, off, ok := ParseOffset([]byte(bad)); ok {
			t.Errorf("%q: taken as %d", bad, off)
		}
	}
	if got := string(AppendOffset([]byte("x"), 1<<64-1)); got != "x18446744073709551615" {
		t.Errorf("got %s", got)
	}
}

func FuzzParseOffset(f *testing.F) {
	for _, s := range []string{"-1", "now", "0", "00000000000000000042", "18446744073709551616", "0000000000000000_0000000000000007", "5abc"} {
		f.Add([]byte(s))
	}
	form := regexp.MustCompile(`^(\d{16}_)?\d{1,20}$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, off, ok := ParseOffset(b)
		if !ok || s != StartAt {
			return
		}
		if !form.Match(b) {
			t.Fatalf("%q was taken", b)
		}
		again, same, ok := ParseOffset(AppendOffset(nil, off))
		if !ok || again != StartAt || same != off {
			t.Fatalf("%q is %d, which comes back as %d, %v", b, off, same, ok)
		}
	})
}

// PROTOCOL.md §10.1 and field report 61.
func TestField061Cursor(t *testing.T) {
	const now = cursorEpoch + 1000*cursorInterval + 7
	if got := NextCursor(now, 0, false, 99); got != 1000 {
		t.Errorf("without one: %d", got)
	}
	if got := NextCursor(now, 999, true, 99); got != 1000 {
		t.Errorf("behind: %d", got)
	}
	if got := NextCursor(cursorEpoch-1, 0, false, 0); got != 0 {
		t.Errorf("before the epoch: %d", got)
	}
	for _, client := range []uint64{1000, 1001, 1000 + cursorJitter, 1 << 53, maxCursor - 1} {
		for range 50 {
			jitter := rand.Uint64()
			got := NextCursor(now, client, true, jitter)
			if got <= client || got > client+cursorJitter {
				t.Fatalf("cursor %d after %d (jitter %d)", got, client, jitter)
			}
			client = got
		}
	}
}

// RFC 9110 §13.1.2 and field report 86.
func TestField086NoneMatch(t *testing.T) {
	const tag = `"7:00000000000000000042:c"`
	for line, want := range map[string]bool{
		tag: true, "W/" + tag: true, `"a", ` + tag: true, `"a",W/` + tag + ` ,"b"`: true, "*": true, " * ": true, `,, "a",` + tag: true, `"a,` + `b", ` + tag: true,
		`"x ` + strings.Trim(tag, `"`) + ` x"`: false, `"7:0000000000000000004"`: false, strings.Trim(tag, `"`): false, "": false, `"`: false, `"a" ` + tag: false,
		`w/` + tag: false, `*, "a"`: false, `"*"`: false,
	} {
		if got := MatchNone([][]byte{[]byte(line)}, []byte(tag)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	if !MatchNone([][]byte{[]byte(`"a"`), []byte(tag)}, []byte(tag)) {
		t.Error("the second header line does not count")
	}
	if MatchNone(nil, []byte(tag)) {
		t.Error("nothing matches")
	}
}

func FuzzMatchNone(f *testing.F) {
	f.Add(`"a", W/"b"`, `"b"`)
	f.Add("*", `"x"`)
	f.Add(`"a,b" , "c`, `"a,b"`)
	list := regexp.MustCompile(`^[ \t,]*(?:(?:W/)?"[^"]*"[ \t]*(?:,[ \t,]*|$))*$`)
	tagIn := regexp.MustCompile(`"[^"]*"`)
	f.Fuzz(func(t *testing.T, line, tag string) {
		if !tagIn.MatchString(tag) || tagIn.FindString(tag) != tag {
			return
		}
		got := MatchNone([][]byte{[]byte(line)}, []byte(tag))
		want := strings.Trim(line, " \t") == "*"
		if list.MatchString(line) {
			for _, one := range tagIn.FindAllString(line, -1) {
				want = want || one == tag
			}
		} else if got && !want && !strings.Contains(line, tag) {
			t.Fatalf("%q matched %q", line, tag)
		} else {
			return
		}
		if got != want {
			t.Fatalf("%q and %q: %v, want %v", line, tag, got, want)
		}
	})
}

func TestTags(t *testing.T) {
	if got := string(AppendStateTag(nil, 7, 42, false)); got != `"7:00000000000000000042"` {
		t.Error(got)
	}
	if got := string(AppendStateTag(nil, 7, 42, true)); got != `"7:00000000000000000042:c"` {
		t.Error(got)
	}
	if got := string(AppendRangeTag(nil, 7, 1, 42, true, "ndjson")); got != `"7:00000000000000000001:00000000000000000042:c:ndjson"` {
		t.Error(got)
	}
	if n := len(AppendRangeTag(nil, 1<<53-1, 1<<64-1, 1<<64-1, true, "envelope")); n > maxTag {
		t.Errorf("a tag of %d bytes", n)
	}
}

// Field reports 14 and 26.
func TestContentTypes(t *testing.T) {
	for in, want := range map[string]string{
		"text/plain": "text/plain", " TEXT/Plain ": "text/plain", "Application/JSON; Charset=UTF-8": "application/json; Charset=UTF-8",
		`a/b;c="d;\"e";f=g`: `a/b;c="d;\"e";f=g`, "a/b;": "a/b;", "a/b ; ; c=d": "a/b ; ; c=d", "application/vnd.x+json": "application/vnd.x+json",
	} {
		if got, ok := NormalizeContentType([]byte(in)); !ok || got != want {
			t.Errorf("%q: %q, %v", in, got, ok)
		}
	}
	for _, bad := range []string{"", "undefined", "/", "a/", "/b", "a/b/c", "a b/c", "a/b c", "a/b; c", "a/b; c=", "a/b; c=\"d", "a/b; c=\"\\", "a/b\r\nX: y", "a/b;c=\"\x01\"", "a/b, c/d", "é/b", "a/" + strings.Repeat("b", maxContentType)} {
		if got, ok := NormalizeContentType([]byte(bad)); ok {
			t.Errorf("%q: taken as %q", bad, got)
		}
	}
	for _, same := range []string{"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=utf-8", "application/json ;x=y"} {
		if !IsJSON(same) || !SameType("application/json", []byte(same)) {
			t.Errorf("%q is not JSON", same)
		}
	}
	for _, other := range []string{"application/vnd.api+json", "application/jsonl", "application/json5; x=application/json", "text/json", ""} {
		if IsJSON(other) {
			t.Errorf("%q is JSON", other)
		}
	}
	for in, want := range map[string]Encoding{"text/plain": EncodeText, "TEXT/html; charset=x": EncodeText, "application/json": EncodeJSON, "application/ndjson": EncodeBase64,
		"image/png": EncodeBase64, "application/vnd.x+json": EncodeBase64, "text": EncodeBase64, "text/": EncodeBase64} {
		if got := EncodingOf(in); got != want {
			t.Errorf("%s: encoding %d", in, got)
		}
	}
}

// api §7: RFC 3339 in all its forms, compared as an instant.
func TestTimestamps(t *testing.T) {
	for in, want := range map[string]string{
		"2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z", "2026-01-31t12:00:00z": "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5Z": "2026-01-31T12:00:00.500Z",
		"2026-01-31T12:00:00.123456789+01:30": "2026-01-31T10:30:00.123Z", "2026-01-31T23:59:60-00:00": "2026-02-01T00:00:00Z", "2024-02-29T00:00:00-23:59": "2024-02-29T23:59:00Z",
		"9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z", "1969-12-31T23:59:59Z": "1970-01-01T00:00:00.001Z", "0000-01-01T00:00:00Z": "1970-01-01T00:00:00.001Z",
	} {
		at, ok := parseTime([]byte(in))
		if got := string(appendTime(nil, at)); !ok || got != want {
			t.Errorf("%s: %s, %v", in, got, ok)
		}
	}
	for _, bad := range []string{"", "not-a-timestamp", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-01-00T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:61Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00+0100", "2026-01-31T12:00:00+24:00",
		"2026-01-31T12:00:00+01:60", "2026-01-31T12:00:00Zx", "+026-01-31T12:00:00Z", "2026-1-31T12:00:00Z", "20a6-01-31T12:00:00Z", "1767225600", "9999-12-31T23:59:59-00:01", "2026-01-31T12:00:00±01:00"} {
		if at, ok := parseTime([]byte(bad)); ok {
			t.Errorf("%q: taken as %s", bad, appendTime(nil, at))
		}
	}
}

// The calendar against package time's.
func TestCalendar(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		at := base.Millis(rng.Int64N(int64(maxTime)-1) + 1)
		layout := "2006-01-02T15:04:05.000Z"
		if at%1000 == 0 {
			layout = "2006-01-02T15:04:05Z"
		}
		want := time.UnixMilli(int64(at)).UTC().Format(layout)
		if got := string(appendTime(nil, at)); got != want {
			t.Fatalf("seed %d: %d is %s, want %s", seed, at, got, want)
		}
		east := rng.IntN(2*1439+1) - 1439 // minutes
		zoned := time.UnixMilli(int64(at)).In(time.FixedZone("", east*60))
		text := zoned.Format(time.RFC3339Nano)
		if zoned.Year() > 9999 || zoned.Year() < 0 {
			continue
		}
		if got, ok := parseTime([]byte(text)); !ok || got != at {
			t.Fatalf("seed %d: %s is %d, %v, want %d", seed, text, got, ok, at)
		}
	}
}

func ExampleAppendOffset() {
	fmt.Printf("%s\n", AppendOffset(nil, 42))
	// Output: 00000000000000000042
}
