//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// forkOf forks a stream and returns the fork's path.
func (f *field) forkOf(source string, header ...string) string {
	f.Helper()
	fork := f.name()
	f.want(http.StatusCreated, "PUT", fork, "", append(slices.Clone(header), "Stream-Forked-From", target(source))...)
	return fork
}

// A fork that is refused leaves its source as free as before.
func TestField100RefusedForkHoldsNothing(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	tail := f.want(http.StatusNoContent, "POST", s, `[1,22,333]`, "Content-Type", jsonType).header.Get("Stream-Next-Offset")
	taken := f.create(plain)
	from := []string{"Stream-Forked-From", target(s)}
	for what, c := range map[string]struct {
		status int
		name   string
		body   string
		header []string
	}{
		"other type":          {409, "", "", []string{"Content-Type", plain}},
		"beyond the tail":     {400, "", "", []string{"Stream-Fork-Offset", "99999"}},
		"malformed offset":    {400, "", "", []string{"Stream-Fork-Offset", "x"}},
		"inside a message":    {400, "", "", []string{"Stream-Fork-Offset", "1"}},
		"sub-offset too far":  {400, "", "", []string{"Stream-Fork-Offset", "0", "Stream-Fork-Sub-Offset", "4"}},
		"sub-offset at tail":  {400, "", "", []string{"Stream-Fork-Offset", tail, "Stream-Fork-Sub-Offset", "1"}},
		"malformed sub":       {400, "", "", []string{"Stream-Fork-Sub-Offset", "-1"}},
		"malformed TTL":       {400, "", "", []string{"Stream-TTL", "x"}},
		"two lifetimes":       {400, "", "", []string{"Stream-TTL", "60", "Stream-Expires-At", "2100-01-01T00:00:00Z"}},
		"name taken":          {409, taken, "", nil},
		"invalid body":        {400, "", "{", nil},
		"invalid typed body":  {400, "", "{", []string{"Content-Type", jsonType}},
		"unknown incarnation": {404, "", "", []string{"Stream-Incarnation", "1"}},
	} {
		for range 5 {
			name := c.name
			if name == "" {
				name = f.name()
			}
			r, err := f.once("PUT", name, c.body, with(from, c.header))
			if err != nil || r.status != c.status {
				t.Errorf("%s: %v, %v", what, r, err)
			}
			if c.name == "" {
				f.want(http.StatusNotFound, "HEAD", name, "")
			}
		}
	}
	for range 5 {
		f.want(http.StatusNotFound, "PUT", f.name(), "", "Stream-Forked-From", target(f.name()))
	}
	f.want(http.StatusNoContent, "DELETE", s, "")
	f.want(http.StatusNotFound, "HEAD", s, "")
	f.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)
	f.holds(s, "")

	// With a fork, the source is held, and no longer than the fork lives.
	fork := f.forkOf(s)
	f.want(http.StatusNoContent, "DELETE", s, "")
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
		f.want(http.StatusGone, method, s, "")
	}
	if r := f.want(http.StatusConflict, "PUT", s, "", "Content-Type", plain); r.code() != "name_held_by_forks" {
		t.Errorf("%s", r.body)
	}
	for range 5 {
		if r := f.want(http.StatusConflict, "PUT", f.name(), "", "Stream-Forked-From", target(s)); r.code() != "fork_source_gone" {
			t.Errorf("%s", r.body)
		}
	}
	f.want(http.StatusOK, "PUT", fork, "", "Stream-Forked-From", target(s)) // a repeat is compared with what was said
	f.want(http.StatusNoContent, "DELETE", fork, "")
	f.eventually(wirePatience, "the name is free", func() bool { return !f.held(s) })
	f.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)

	// A chain goes as a whole with its last link.
	a := f.create(plain)
	b := f.forkOf(a)
	c := f.forkOf(b)
	f.want(http.StatusNoContent, "DELETE", a, "")
	f.want(http.StatusNoContent, "DELETE", b, "")
	f.want(http.StatusNoContent, "DELETE", c, "")
	f.eventually(wirePatience, "the names are free", func() bool { return !f.held(a) && !f.held(b) && !f.held(c) })
}

// held reports whether a name belongs to a deleted stream that forks keep.
func (f *field) held(s string) bool {
	f.Helper()
	r, err := f.once("HEAD", s, "", nil)
	if err != nil || r.status != http.StatusGone && r.status != http.StatusNotFound {
		f.Fatalf("%s: %v, %v", s, r, err)
	}
	return r.status == http.StatusGone
}

// A fork that names no type has its source's.
func TestField101TypeOfAFork(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "text/plain;x=y", "application/octet-stream", "image/png"} {
		s := f.create(contentType)
		f.want(http.StatusNoContent, "POST", s, "1", "Content-Type", contentType)
		json := strings.HasPrefix(contentType, jsonType)
		for _, field := range []string{"X-None: 1", "Content-Type:", "Content-Type: " + strings.ToUpper(contentType)} {
			for _, body := range []string{"", "2"} {
				fork := f.name()
				w := f.dial()
				w.head("PUT", target(fork), "Stream-Forked-From: "+target(s), field, fmt.Sprint("Content-Length: ", len(body)))
				w.send("%s", body)
				r := w.answer(http.StatusCreated, "PUT")
				w.conn.Close()
				for _, r := range []answer{r, f.want(http.StatusOK, "HEAD", fork, ""), f.want(http.StatusOK, "GET", fork, "")} {
					if got := r.header.Get("Content-Type"); !strings.EqualFold(got, contentType) {
						t.Errorf("%s, %q: the fork has %q", contentType, field, got)
					}
				}
				f.want(http.StatusNoContent, "POST", fork, "3", "Content-Type", contentType)
				want := "1" + body + "3"
				if json {
					want = "[" + strings.Join(strings.Split(want, ""), ",") + "]"
				}
				f.holds(fork, want)
			}
		}
		f.want(http.StatusConflict, "PUT", f.name(), "", "Stream-Forked-From", target(s), "Content-Type", "text/html")
	}
}

// What happens to a source after the fork does not happen to the fork.
func TestField103ForksAreIsolated(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB", "--segment-max-bytes", "256KiB", "--shards", "2")
	s := f.create(plain)
	long := strings.Repeat("source.", 10_000)
	f.text(s, long)
	fork := f.forkOf(s)
	tail := f.want(http.StatusOK, "HEAD", fork, "").header.Get("Stream-Next-Offset")
	if tail != fmt.Sprintf("%020d", len(long)) {
		t.Fatalf("the fork begins at %s", tail)
	}
	readers := map[string]*events{s: f.events(s, "offset="+tail), fork: f.events(fork, "offset="+tail)}
	readers[s].control()
	readers[fork].control()
	poll := f.dial()
	poll.head("GET", target(fork)+"?live=long-poll&timeout=60&offset="+tail)
	f.waitFor(3)
	f.text(s, "only source")
	if data, _ := readers[s].data(); data != "only source" {
		t.Errorf("source: %q", data)
	}
	f.text(fork, "only fork")
	if data, _ := readers[fork].data(); data != "only fork" {
		t.Errorf("fork: %q", data)
	}
	if r := poll.answer(http.StatusOK, "GET"); r.body != "only fork" {
		t.Errorf("long-poll on the fork: %v", r)
	}
	for _, header := range [][]string{nil, {"Stream-Fork-Offset", tail}, {"Stream-Fork-Sub-Offset", "0"}, {"Content-Type", plain}} {
		f.want(http.StatusOK, "PUT", fork, "", append(header, "Stream-Forked-From", target(s))...)
	}
	for _, header := range [][]string{{"Stream-Fork-Offset", "1"}, {"Stream-Fork-Sub-Offset", "1"}, {"Stream-TTL", "60"}} {
		f.want(http.StatusConflict, "PUT", fork, "", append(header, "Stream-Forked-From", target(s))...)
	}
	f.want(http.StatusConflict, "PUT", fork, "", "Content-Type", plain)
	f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
	f.has(f.want(http.StatusOK, "HEAD", fork, ""), "Stream-Closed", "")
	late := f.forkOf(s) // of a closed source
	f.text(late, "late")
	f.want(http.StatusNoContent, "POST", fork, "", "Stream-Closed", "true")
	if c := readers[fork].control(); !c.Closed {
		t.Errorf("%+v", c)
	}
	f.want(http.StatusNoContent, "DELETE", s, "")
	check := func() {
		t.Helper()
		f.holds(fork, long+"only fork")
		f.holds(late, long+"only source"+"late")
		f.want(http.StatusGone, "GET", s, "")
		data, _ := f.events(fork, "offset=-1").toTail()
		if got := strings.Join(data, ""); got != long+"only fork" {
			t.Error("SSE across the join:", differ(got, long+"only fork"))
		}
		for _, from := range []int{len(long) - 1, len(long), len(long) + 1} {
			if got := f.want(http.StatusOK, "GET", fmt.Sprintf("%s?max_bytes=3&offset=%d", fork, from), "").body; got != (long + "only fork")[from:from+3] {
				t.Errorf("from %d: %q", from, got)
			}
		}
	}
	check()
	f.restart()
	check()
	// Everything goes to segments, and these are merged.
	f.together(4, func(i int) error {
		for range 10 {
			r, err := f.once("PUT", fmt.Sprintf("filler/%d-%d", i, names.Add(1)), strings.Repeat("f", 30_000), nil)
			if err != nil || r.status != http.StatusCreated {
				return fmt.Errorf("%v, %v", r, err)
			}
		}
		return nil
	})
	f.eventually(wirePatience, "segments have been merged", func() bool { return f.daemon.metric(t, "snakream_merges_total") > 0 })
	check()
	f.restart()
	check()
}

// A sub-offset counts messages or bytes, as far as the next boundary and no further.
func TestField104SubOffsets(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(jsonType)
	start := f.post(s, `"before"`).header.Get("Stream-Next-Offset")
	f.want(http.StatusOK, "POST", s, `[1,22,333,4444,55555]`, with(tuple("p", 0, 0), []string{"Content-Type", jsonType, "Stream-Seq", "m"})...)
	f.post(s, `"after"`)
	all := []string{`"before"`, "1", "22", "333", "4444", "55555"}
	for sub := range 6 {
		fork := f.forkOf(s, "Stream-Fork-Offset", start, "Stream-Fork-Sub-Offset", fmt.Sprint(sub))
		want := strings.Join(all[:1+sub], ",")
		f.holds(fork, "["+want+"]")
		last := f.want(http.StatusOK, "HEAD", fork, "").header.Get("Stream-Next-Offset")
		// No writer's state comes with what is inherited.
		for i, r := range []answer{
			f.want(http.StatusOK, "POST", fork, `"new"`, with(tuple("p", 0, 0), []string{"Content-Type", jsonType, "Stream-Seq", "a"})...),
			f.post(fork, `"newer"`),
		} {
			if next := r.header.Get("Stream-Next-Offset"); next <= last || r.header.Get("Stream-Offset") != last {
				t.Errorf("append %d on the fork lies at [%s, %s), behind %s", i, r.header.Get("Stream-Offset"), next, last)
			} else {
				last = next
			}
		}
		f.holds(fork, "["+want+`,"new","newer"]`)
		f.want(http.StatusOK, "PUT", fork, "", "Stream-Forked-From", target(s), "Stream-Fork-Offset", start, "Stream-Fork-Sub-Offset", fmt.Sprint(sub))
		f.want(http.StatusConflict, "PUT", fork, "", "Stream-Forked-From", target(s), "Stream-Fork-Offset", start, "Stream-Fork-Sub-Offset", fmt.Sprint(sub+1))
	}
	f.holds(f.forkOf(s, "Stream-Fork-Offset", "-1", "Stream-Fork-Sub-Offset", "1"), `["before"]`)
	for _, sub := range []string{"7", "-1", "1.5", "1e1", "+1", "01", "", "x", "9223372036854775808", "18446744073709551616"} {
		f.want(http.StatusBadRequest, "PUT", f.name(), "", "Stream-Forked-From", target(s), "Stream-Fork-Offset", start, "Stream-Fork-Sub-Offset", sub)
	}
	for _, header := range [][]string{{"Stream-Fork-Sub-Offset", "0"}, {"Stream-Fork-Offset", start}, {"Stream-Fork-Offset", start, "Stream-Fork-Sub-Offset", "1"}} {
		if r := f.want(http.StatusBadRequest, "PUT", f.name(), "", header...); r.code() != "fork_headers_without_source" {
			t.Errorf("%q: %s", header, r.body)
		}
	}

	text := f.create(plain)
	f.text(text, "ab")
	f.text(text, "cé你😀")
	f.text(text, "next")
	const inner = "cé你😀"
	for sub := range len(inner) + 1 {
		fork := f.forkOf(text, "Stream-Fork-Offset", "2", "Stream-Fork-Sub-Offset", fmt.Sprint(sub))
		f.holds(fork, "ab"+inner[:sub])
		f.text(fork, "!")
		f.holds(fork, "ab"+inner[:sub]+"!")
		again := f.forkOf(fork) // of a fork that begins inside an append
		f.text(again, "?")
		f.holds(again, "ab"+inner[:sub]+"!?")
	}
	f.want(http.StatusBadRequest, "PUT", f.name(), "", "Stream-Forked-From", target(text), "Stream-Fork-Offset", "2", "Stream-Fork-Sub-Offset", fmt.Sprint(len(inner)+1))
	f.want(http.StatusBadRequest, "PUT", f.name(), "", "Stream-Forked-From", target(text), "Stream-Fork-Sub-Offset", "1") // past the tail
}
