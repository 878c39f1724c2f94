//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const jsonType = "application/json"

// post appends to a JSON stream.
func (f *field) post(stream, body string) answer {
	f.Helper()
	return f.want(http.StatusNoContent, "POST", stream, body, "Content-Type", jsonType)
}

// Numbers come back digit by digit.
func TestField32Numbers(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	messages := []string{
		`{"a":9007199254740993,"b":1.0,"c":1e400,"d":-0,"e":0.1000000000000000055511151231257827,"f":1E+2,"g":12345678901234567890123}`,
		`9007199254740993`, `-9223372036854775809`, `1e-400`, `0.0`, `-0.0`, `1E0`, `100e-2`,
	}
	for _, m := range messages {
		f.post(s, m)
	}
	content := "[" + strings.Join(messages, ",") + "]"
	f.holds(s, content)
	if data, _ := f.events(s, "offset=-1").toTail(); len(data) != 1 || data[0] != content {
		t.Errorf("SSE: %q", data)
	}
	if r := f.want(http.StatusOK, "GET", s, "", "Accept", "application/x-ndjson"); r.body != strings.Join(messages, "\n")+"\n" {
		t.Errorf("NDJSON: %q", r.body)
	}
	for _, m := range []string{"01", "1.", ".5", "+1", "1e", "--1", "0x10", "NaN", "Infinity", "-", "1_000"} {
		f.want(http.StatusBadRequest, "POST", s, m, "Content-Type", jsonType)
	}
}

// Nothing in a message changes but white space between its tokens.
func TestField34BytesOfAMessage(t *testing.T) {
	f := onShared(t, &ordinary)
	for body, stored := range map[string]string{
		`{"b":1,"a":2,"b":3}`:                             `{"b":1,"a":2,"b":3}`,
		`[ {"z":1 ,  "y" : [ 1 , 2 ] } ]`:                 `{"z":1,"y":[1,2]}`,
		` {"s" : " a  b " } `:                             `{"s":" a  b "}`,
		`"\u00e9\/\ud83d\ude00\ud800 \\ \" é 😀"`:          `"\u00e9\/\ud83d\ude00\ud800 \\ \" é 😀"`,
		"{\r\n\t\"k\"\n:\ttrue\r}":                        `{"k":true}`,
		`{"":{"":{}}}`:                                    `{"":{"":{}}}`,
		"\"\u0085\u2028\u2029\u00a0\ufeff\u007f\"":        "\"\u0085\u2028\u2029\u00a0\ufeff\u007f\"",
		`["x",  "y"]`:                                     `"x","y"`,
		`[null,true , false,[ ],{ }]`:                     `null,true,false,[],{}`,
		`{"__proto__":1,"constructor":{"x":"<&>\u2028"}}`: `{"__proto__":1,"constructor":{"x":"<&>\u2028"}}`,
	} {
		for _, method := range []string{"POST", "PUT"} {
			s := f.name()
			if method == "POST" {
				s = f.create(jsonType)
				f.post(s, body)
			} else {
				f.want(http.StatusCreated, "PUT", s, body, "Content-Type", jsonType)
			}
			f.holds(s, "["+stored+"]")
		}
	}
}

// JSON that is not UTF-8 is no JSON.
func TestField35InvalidUTF8(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	for _, bad := range []string{
		"\xff\xfe", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\xf5\x80\x80\x80", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\x80", "\xc3", "a\x00b", "a\x1fb", "a\nb",
	} {
		for _, body := range []string{`{"a":"` + bad + `"}`, `{"` + bad + `":1}`, `["` + bad + `"]`} {
			r := f.want(http.StatusBadRequest, "POST", s, body, "Content-Type", jsonType)
			position := strings.Index(body, bad)
			if bad[0] == 'a' {
				position++
			}
			if want := fmt.Sprintf(`"position":%d,`, position); r.code() != "invalid_json" || !strings.Contains(r.body+",", want) && !strings.Contains(r.body, strings.TrimSuffix(want, ",")) {
				t.Errorf("POST %q: want position %d in %s", body, position, r.body)
			}
			name := f.name()
			f.want(http.StatusBadRequest, "PUT", name, body, "Content-Type", jsonType)
			f.want(http.StatusNotFound, "HEAD", name, "")
		}
	}
	for _, body := range []string{"\ufeff{}", "\xfe\xff\x00{\x00}", "{\x00}", "{} {}", "{}x", "{},", "[1,]", "[,1]", "{'a':1}", "{a:1}", "", " ", "nul", `"a`, "[1", "}", "[1 2]"} {
		f.want(http.StatusBadRequest, "POST", s, body, "Content-Type", jsonType)
	}
	f.holds(s, "[]")
}

// Depth is bounded, and what is too deep costs neither the process nor much time.
func TestField37Nesting(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	nested := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	for name, body := range map[string]string{
		"arrays":           nested("[", "", "]", 5_000_000),
		"only open arrays": strings.Repeat("[", 5_000_000),
		"objects":          nested(`{"a":`, "1", "}", 2_000_000),
		"in a string":      `["` + strings.Repeat("[", 1000) + `"` + strings.Repeat("[", 100_000),
		"one too deep":     nested("[", "1", "]", 514),
		"one too deep, in": `{"a":` + nested("[", "1", "]", 512) + `}`,
	} {
		began := time.Now()
		if r := f.want(http.StatusBadRequest, "POST", s, body, "Content-Type", jsonType); r.code() != "invalid_json" {
			t.Errorf("%s: %s", name, r.body)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: refused after %v", name, took)
		}
	}
	f.holds(s, "[]")
	// Depth counts inside a message: the outer array of a batch is not part of one.
	deep := nested("[", "1", "]", 512)
	f.post(s, "["+deep+","+deep+"]")
	f.post(s, nested(`{"a":`, "1", "}", 512))
	content := f.want(http.StatusOK, "GET", s, "").body
	if !json.Valid([]byte(content)) {
		t.Error("what is stored is not JSON as Go reads it")
	}
	f.holds(s, "["+deep+","+deep+","+nested(`{"a":`, "1", "}", 512)+"]")
}

// Exactly one level of arrays is a batch.
func TestField38Flattening(t *testing.T) {
	f := onShared(t, &ordinary)
	for body, content := range map[string]string{
		`{"event":"created"}`:           `[{"event":"created"}]`,
		`[{"event":"a"},{"event":"b"}]`: `[{"event":"a"},{"event":"b"}]`,
		`[[1,2],[3,4]]`:                 `[[1,2],[3,4]]`,
		`[[[1,2,3]]]`:                   `[[[1,2,3]]]`,
		`[[]]`:                          `[[]]`,
		`1`:                             `[1]`,
		`"x"`:                           `["x"]`,
		`null`:                          `[null]`,
		`true`:                          `[true]`,
		`[null]`:                        `[null]`,
		`[1,[2,[3]],{"a":[]}]`:          `[1,[2,[3]],{"a":[]}]`,
		" \t\r\n[1,2]":                  `[1,2]`,
		"\n\n{}":                        `[{}]`,
		`[{"a":[1,2]}]`:                 `[{"a":[1,2]}]`,
		`["[1,2]"]`:                     `["[1,2]"]`,
	} {
		s := f.create(jsonType)
		f.post(s, body)
		f.holds(s, content)
		f.post(s, "[0]")
		f.holds(s, strings.TrimSuffix(content, "]")+",0]")
		f.post(s, body)
		data, _ := f.events(s, "offset=-1").toTail()
		want := strings.TrimSuffix(content, "]") + ",0," + strings.TrimPrefix(content, "[")
		if len(data) != 1 || data[0] != want {
			t.Errorf("SSE of %q: %q", body, data)
		}
	}
}

// messagesOf decodes one body, which must be an array, into its messages.
func messagesOf(body string) (messages []string, err error) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(body), &raw); err != nil {
		return nil, fmt.Errorf("%w in %.60q", err, body)
	}
	for _, m := range raw {
		messages = append(messages, string(m))
	}
	return messages, nil
}

// Whatever a read crosses, each answer and each event is an array by itself, and all of
// them together are what was written.
func TestField40Joins(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "256KiB", "--segment-max-bytes", "512KiB", "--default-read-bytes", "300KiB")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := f.create(jsonType)
	var all []string
	fork := ""
	at := map[string]int{"-1": 0} // offset → messages before it
	for i := range 60 {
		size := []int{1, 10, 1000, 50_000, 150_000}[rng.IntN(5)]
		var batch []string
		for range 1 + rng.IntN(3) {
			batch = append(batch, fmt.Sprintf(`{"n":%d,"x":"%s"}`, len(all)+len(batch), strings.Repeat("x", rng.IntN(size))))
		}
		r := f.post(s, "["+strings.Join(batch, ",")+"]")
		all = append(all, batch...)
		at[r.header.Get("Stream-Next-Offset")] = len(all)
		if i == 30 { // the rest goes to a fork: reads cross its join
			fork = f.name()
			f.want(http.StatusCreated, "PUT", fork, "", "Stream-Forked-From", target(s))
			f.post(s, `"only in the source"`)
			s = fork
		}
	}
	check := func(what string, from int, got []string, err error) {
		t.Helper()
		if err != nil || !slices.Equal(got, all[from:]) {
			t.Fatalf("seed %d: %s from message %d: %d messages instead of %d, %v", seed, what, from, len(got), len(all)-from, err)
		}
	}
	for offset, n := range at {
		for _, live := range []string{"", "&live=long-poll"} {
			got, err := f.pages(s, offset, live+"&timeout_ms=0")
			check("GET"+live, n, got, err)
		}
		var got []string
		data, _ := f.events(s, "offset="+offset).toTail()
		for _, d := range data {
			messages, err := messagesOf(d)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, messages...)
		}
		check("SSE", n, got, nil)
	}
	got, err := f.pages(s, "-1", "&max_bytes=1")
	check("pages of one message", 0, got, err)
	f.restart()
	got, err = f.pages(s, "-1", "&max_bytes=1000000")
	check("after a restart", 0, got, err)
}

// pages reads from an offset to the tail, page by page.
func (f *field) pages(stream, offset, more string) (messages []string, err error) {
	for {
		r, err := f.once("GET", stream+"?offset="+offset+more, "", nil)
		if err != nil {
			return nil, err
		}
		if r.status == http.StatusNoContent {
			return messages, nil
		}
		page, err := messagesOf(r.body)
		if err != nil {
			return nil, err
		}
		messages = append(messages, page...)
		if r.header.Get("Stream-Up-To-Date") == "true" {
			return messages, nil
		}
		if len(page) == 0 {
			return nil, fmt.Errorf("an empty page at %s that is not up to date", offset)
		}
		offset = r.header.Get("Stream-Next-Offset")
	}
}

// A page has whole messages, at least one; an event of text has whole characters.
func TestField41PageBoundaries(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	var all []string
	for i := range 20 {
		m := strconv.Itoa(i)
		if i == 10 {
			m = `"` + strings.Repeat("é", 5<<20) + `"`
		}
		f.post(s, m)
		all = append(all, m)
	}
	for _, size := range []int{1, 1000, 1 << 20, 1 << 30} {
		got, err := f.pages(s, "-1", fmt.Sprint("&max_bytes=", size))
		if err != nil || !slices.Equal(got, all) {
			t.Errorf("pages of %d: %d messages, %v", size, len(got), err)
		}
	}
	data, _ := f.events(s, "offset=-1").toTail()
	var got []string
	for _, d := range data {
		messages, err := messagesOf(d)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, messages...)
	}
	if !slices.Equal(got, all) {
		t.Errorf("SSE: %d messages", len(got))
	}

	text := f.create("text/plain; charset=utf-8")
	content := "x" + strings.Repeat("é", 1<<20) + strings.Repeat("😀", 1<<18) + strings.Repeat("你", 1<<18)
	for rest := []byte(content); len(rest) > 0; { // appends end anywhere
		n := min(len(rest), 77_777)
		f.want(http.StatusNoContent, "POST", text, string(rest[:n]), "Content-Type", plain)
		rest = rest[n:]
	}
	for _, from := range []int{0, 1, 3} {
		data, last := f.events(text, fmt.Sprint("offset=", from)).toTail()
		if got := strings.Join(data, ""); got != content[from:] {
			t.Errorf("SSE of text from %d: %s", from, differ(got, content[from:]))
		}
		if !last.UpToDate {
			t.Errorf("%+v", last)
		}
	}
	var pages strings.Builder
	for offset := "-1"; ; {
		r := f.want(http.StatusOK, "GET", text+"?max_bytes=99999&offset="+offset, "")
		pages.WriteString(r.body)
		if r.header.Get("Stream-Up-To-Date") == "true" {
			break
		}
		if r.body == "" {
			t.Fatalf("an empty page at %s that is not up to date", offset)
		}
		offset = r.header.Get("Stream-Next-Offset")
	}
	if pages.String() != content {
		t.Error("pages of text:", differ(pages.String(), content))
	}
}
