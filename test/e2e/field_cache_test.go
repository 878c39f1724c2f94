//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A close changes every tag of the stream's end, so that no 304 hides it.
func TestField85CloseChangesTags(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{plain, jsonType} {
		s := f.create(contentType)
		tail := f.want(http.StatusNoContent, "POST", s, "1", "Content-Type", contentType).header.Get("Stream-Next-Offset")
		reads := map[string][]string{
			s + "?offset=" + tail: nil, s + "?offset=-1": nil, s: nil, s + "?offset=0&live=long-poll": nil,
			s + "?offset=0 ndjson": {"Accept", "application/x-ndjson"},
		}
		get := func(status int, url string, header []string, more ...string) answer {
			t.Helper()
			url, _, _ = strings.Cut(url, " ")
			return f.want(status, "GET", url, "", append(slices.Clone(header), more...)...)
		}
		open := map[string]string{}
		for url, header := range reads {
			open[url] = get(http.StatusOK, url, header).header.Get("ETag")
			get(http.StatusNotModified, url, header, "If-None-Match", open[url])
		}
		state := f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag")
		f.want(http.StatusNotModified, "HEAD", s, "", "If-None-Match", state)
		f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
		for url, header := range reads {
			r := get(http.StatusOK, url, header, "If-None-Match", open[url])
			f.has(r, "Stream-Closed", "true")
			tag := r.header.Get("ETag")
			if tag == open[url] || tag == "" {
				t.Errorf("%s: %s before and after the close", url, tag)
			}
			r = get(http.StatusNotModified, url, header, "If-None-Match", tag)
			f.has(r, "ETag", tag, "Stream-Closed", "true", "Stream-Next-Offset", tail)
			if r.body != "" {
				t.Errorf("a 304 with a body: %v", r)
			}
		}
		f.has(f.want(http.StatusOK, "HEAD", s, "", "If-None-Match", state), "Stream-Closed", "true")
	}
}

// If-None-Match is a list of tags, compared weakly.
func TestField86IfNoneMatch(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	f.text(s, "x")
	tag := f.want(http.StatusOK, "GET", s, "").header.Get("ETag")
	if !strings.HasPrefix(tag, `"`) || !strings.HasSuffix(tag, `"`) {
		t.Fatalf("ETag: %s", tag)
	}
	inner := strings.Trim(tag, `"`)
	ask := func(lines ...string) int {
		w := f.dial()
		defer w.conn.Close()
		var fields []string
		for _, l := range lines {
			fields = append(fields, "If-None-Match: "+l)
		}
		w.head("GET", target(s), fields...)
		return w.answer(0, "GET").status
	}
	for _, match := range [][]string{
		{tag}, {"W/" + tag}, {`"a", ` + tag}, {`"a",W/` + tag + ` ,"b"`}, {tag + `,"b"`}, {`"a"`, tag}, {tag, `"a"`}, {"*"}, {" * "}, {`"a,b", ` + tag}, {`, ,` + tag},
		{`"a"`, "*"}, {`"\",` + tag},
	} {
		if got := ask(match...); got != http.StatusNotModified {
			t.Errorf("%q: %d", match, got)
		}
	}
	for _, differs := range [][]string{
		{`"x` + inner + `x"`}, {`"` + inner[:len(inner)-1] + `"`}, {inner}, {`"` + inner}, {inner + `"`}, {"w/" + tag}, {`"` + inner + ` "`}, {`"a,` + inner + `"`}, {`""`}, {""}, {`"*"`}, {"W/" + inner},
		{`"a" ` + tag}, {`"x ` + inner + ` x"`},
	} {
		if got := ask(differs...); got != http.StatusOK {
			t.Errorf("%q: %d", differs, got)
		}
	}
	// On writes it is a condition: nothing of what it names may be the state.
	state := f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag")
	for _, match := range []string{state, "W/" + state, `"a", ` + state, "*"} {
		r := f.want(http.StatusPreconditionFailed, "POST", s, "x", "Content-Type", plain, "If-None-Match", match)
		f.has(r, "ETag", state, "Stream-Next-Offset", "00000000000000000001")
		f.want(http.StatusPreconditionFailed, "PUT", s, "", "Content-Type", plain, "If-None-Match", match)
	}
	f.holds(s, "x")
	f.want(http.StatusCreated, "PUT", f.name(), "", "If-None-Match", "*")
	f.want(http.StatusNotFound, "GET", f.name(), "", "If-None-Match", "*")
}

// Of those who append on one condition, one wins; and the condition is looked at where it
// belongs among the other checks.
func TestField91IfMatch(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	state := func() string { return f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag") }
	want := ""
	for range 50 {
		tag := state()
		answers := make([]answer, 20)
		f.together(len(answers), func(i int) (err error) {
			answers[i], err = f.once("POST", s, fmt.Sprintf("%02d", i), []string{"Content-Type", plain, "If-Match", tag})
			return err
		})
		now := state()
		winners := 0
		for i, r := range answers {
			switch r.status {
			case http.StatusNoContent:
				winners++
				want += fmt.Sprintf("%02d", i)
			case http.StatusPreconditionFailed:
				f.has(r, "ETag", now, "Stream-Next-Offset", fmt.Sprintf("%020d", len(want)+2*(1-winners)))
			default:
				t.Fatalf("%v", r)
			}
		}
		if winners != 1 {
			t.Fatalf("%d of %d won", winners, len(answers))
		}
	}
	f.holds(s, want)

	old := state()
	f.text(s, "x")
	read := f.want(http.StatusOK, "GET", s+"?offset=3", "").header.Get("ETag")
	part := f.want(http.StatusOK, "GET", s+"?offset=0&max_bytes=4", "").header.Get("ETag")
	for match, status := range map[string]int{
		old:    http.StatusPreconditionFailed,
		part:   http.StatusPreconditionFailed,
		`"a"`:  http.StatusPreconditionFailed,
		`"-1"`: http.StatusPreconditionFailed,
		`"` + fmt.Sprintf("%020d", len(want)+1) + `"`: http.StatusPreconditionFailed,
		"W/" + state():             http.StatusPreconditionFailed, // RFC 9110: the comparison is strong
		`"a", ` + old:              http.StatusPreconditionFailed,
		strings.Trim(state(), `"`): http.StatusBadRequest,
		"":                         http.StatusBadRequest,
		`"open`:                    http.StatusBadRequest,
	} {
		f.want(status, "POST", s, "y", "Content-Type", plain, "If-Match", match)
		f.want(status, "PUT", s, "", "Content-Type", plain, "If-Match", match)
	}
	f.want(http.StatusNotFound, "POST", f.name(), "y", "Content-Type", plain, "If-Match", "*")
	missing := f.name()
	f.want(http.StatusPreconditionFailed, "PUT", missing, "", "Content-Type", plain, "If-Match", "*")
	f.want(http.StatusNotFound, "HEAD", missing, "")
	f.holds(s, want+"x")
	want += "x"
	for _, match := range []func() string{ // each with the state as it is then
		func() string { return read },
		func() string { return "*" },
		state,
		func() string { return `"a", ` + state() },
		func() string { return `"a",W/"b",` + state() },
	} {
		f.want(http.StatusOK, "PUT", s, "", "Content-Type", plain, "If-Match", match())
		f.want(http.StatusNoContent, "POST", s, "z", "Content-Type", plain, "If-Match", match())
		want += "z"
	}
	f.holds(s, want)

	// A repeat is answered before anything that can have changed since.
	tag := state()
	first := f.produce(http.StatusOK, s, "p", "p", 0, 0, "If-Match", tag)
	again := f.produce(http.StatusNoContent, s, "p", "p", 0, 0, "If-Match", tag)
	f.has(again, "Stream-Offset", first.header.Get("Stream-Offset"), "Stream-Next-Offset", first.header.Get("Stream-Next-Offset"))
	r := f.produce(http.StatusPreconditionFailed, s, "q", "p", 0, 1, "If-Match", tag)
	f.has(r, "Producer-Expected-Seq", "")
	f.produce(http.StatusConflict, s, "q", "p", 0, 2, "If-Match", tag) // a gap comes before the condition
	f.want(http.StatusPreconditionFailed, "POST", s, "q", "Content-Type", "text/html", "If-Match", tag)
	f.produce(http.StatusOK, s, "q", "p", 0, 1, "If-Match", state())
	f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true", "If-Match", state())
	r = f.want(http.StatusConflict, "POST", s, "x", "Content-Type", plain, "If-Match", tag)
	f.has(r, "Stream-Closed", "true")
	f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true", "If-Match", tag)
	f.holds(s, want+"pq")
}

// What is an error, or true for a moment only, is kept by no cache.
func TestField88WhatCachesMayKeep(t *testing.T) {
	f := onShared(t, &ordinary)
	s, closed := f.create(plain), f.create(plain, "Stream-Closed", "true")
	tail := f.text(s, "x").header.Get("Stream-Next-Offset")
	held, fork := f.create(plain), f.name()
	f.want(http.StatusCreated, "PUT", fork, "", "Stream-Forked-From", target(held))
	f.want(http.StatusNoContent, "DELETE", held, "")
	for _, c := range []struct {
		status       int
		method, url  string
		cacheControl string
	}{
		{400, "GET", s + "?offset=x", "no-store"},
		{400, "GET", s + "?offset=99999", "no-store"},
		{404, "GET", f.name(), "no-store"},
		{404, "HEAD", f.name(), "no-store"},
		{405, "PATCH", s, "no-store"},
		{409, "POST", closed, "no-store"},
		{410, "GET", held, "no-store"},
		{410, "GET", held + "?offset=-1&live=long-poll", "no-store"},
		{204, "GET", s + "?offset=" + tail + "&live=long-poll&timeout=0", "no-store"},
		{204, "GET", closed + "?offset=-1&live=long-poll", "no-store"},
		{200, "HEAD", s, "no-store"},
		{200, "GET", s + "?offset=now", "no-store"},
		{200, "GET", s, "public, max-age=60, stale-while-revalidate=300"},
		{200, "GET", s + "?offset=" + tail, "public, max-age=60, stale-while-revalidate=300"},
		{200, "GET", s + "?offset=0&live=long-poll", "public, max-age=60, stale-while-revalidate=300"},
	} {
		body := ""
		if c.method == "POST" {
			body = "x"
		}
		f.has(f.want(c.status, c.method, c.url, body, "Content-Type", plain), "Cache-Control", c.cacheControl)
	}
}

// With --cache-visibility private, shared caches keep nothing.
func TestField88Private(t *testing.T) {
	f := onOwn(t, "--cache-visibility", "private")
	s := f.create(plain)
	f.text(s, "x")
	for _, url := range []string{s, s + "?offset=0&live=long-poll", s + "?max_bytes=1"} {
		f.has(f.want(http.StatusOK, "GET", url, ""), "Cache-Control", "private, max-age=60, stale-while-revalidate=300")
	}
}

// A script of another origin may send every header of ours and read every header, errors
// included.
func TestField89CORS(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	asked := "producer-id,producer-epoch,producer-seq,stream-seq,stream-closed,if-match,if-none-match,content-type,authorization,stream-ttl," +
		"stream-expires-at,stream-forked-from,stream-fork-offset,stream-fork-sub-offset,stream-incarnation,accept,range,last-event-id,x-of-my-own"
	w := f.dial()
	w.head("OPTIONS", target(s), "Origin: https://a.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: "+asked)
	r := w.answer(http.StatusNoContent, "OPTIONS")
	allowed := strings.ToLower(r.header.Get("Access-Control-Allow-Headers")) + ", "
	for name := range strings.SplitSeq(asked, ",") {
		if !strings.Contains(allowed, name+", ") {
			t.Errorf("the preflight does not allow %s: %s", name, allowed)
		}
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
		if !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("the preflight does not allow %s", method)
		}
	}
	f.has(r, "Access-Control-Allow-Origin", "*", "Access-Control-Max-Age", "86400", "Access-Control-Allow-Credentials", "")
	f.want(http.StatusOK, "POST", s, "x", with(tuple("p", 0, 0), []string{"Content-Type", plain})...)
	held := f.create(plain)
	f.want(http.StatusCreated, "PUT", f.name(), "", "Stream-Forked-From", target(held))
	f.want(http.StatusNoContent, "DELETE", held, "")
	origin := []string{"Origin", "https://a.example"}
	for what, r := range map[string]answer{
		"created":   f.want(http.StatusCreated, "PUT", f.name(), "", with(origin, []string{"Stream-TTL", "60"})...),
		"read":      f.want(http.StatusOK, "GET", s, "", origin...),
		"unchanged": f.want(http.StatusNotModified, "GET", s, "", with(origin, []string{"If-None-Match", "*"})...),
		"long-poll": f.want(http.StatusNoContent, "GET", s+"?offset=now&live=long-poll&timeout=0", "", origin...),
		"head":      f.want(http.StatusOK, "HEAD", s, "", origin...),
		"duplicate": f.want(http.StatusNoContent, "POST", s, "x", with(origin, tuple("p", 0, 0), []string{"Content-Type", plain})...),
		"gap":       f.want(http.StatusConflict, "POST", s, "x", with(origin, tuple("p", 0, 5), []string{"Content-Type", plain})...),
		"missing":   f.want(http.StatusNotFound, "GET", f.name()+"?offset=-1", "", origin...),
		"malformed": f.want(http.StatusBadRequest, "GET", s+"?offset=x", "", origin...),
		"gone":      f.want(http.StatusGone, "GET", held, "", origin...),
		"method":    f.want(http.StatusMethodNotAllowed, "PATCH", s, "", origin...),
		"events":    {http.StatusOK, f.events(f.create("image/png"), "offset=-1").header, ""},
		"parser":    f.refusedByParser(),
	} {
		f.has(r, "Access-Control-Allow-Origin", "*", "Cross-Origin-Resource-Policy", "cross-origin", "X-Content-Type-Options", "nosniff")
		exposed := strings.ToLower(r.header.Get("Access-Control-Expose-Headers")) + ", "
		for name := range r.header {
			name = strings.ToLower(name)
			ours := strings.HasPrefix(name, "stream-") || strings.HasPrefix(name, "producer-") || slices.Contains([]string{"etag", "location", "retry-after", "link"}, name)
			if ours && !strings.Contains(exposed, name+", ") {
				t.Errorf("%s: a script can't read %s", what, name)
			}
		}
	}
}

// refusedByParser returns the answer to a request that is no HTTP.
func (f *field) refusedByParser() answer {
	f.Helper()
	w := f.dial()
	w.send("GET / HTTP/1.1\r\nHost : x\r\n\r\n")
	return w.answer(http.StatusBadRequest, "GET")
}

// With --cors-origin, that origin is the one that is allowed.
func TestField89OneOrigin(t *testing.T) {
	f := onOwn(t, "--cors-origin", "https://app.example")
	for _, origin := range []string{"https://app.example", "https://evil.example"} {
		f.has(f.want(http.StatusNotFound, "GET", f.name(), "", "Origin", origin), "Access-Control-Allow-Origin", "https://app.example")
	}
}
