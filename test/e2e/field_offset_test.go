//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An offset is one, or the request is refused, wherever it stands.
func TestField55MalformedOffsets(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	real := f.text(s, strings.Repeat("x", 1000)).header.Get("Stream-Next-Offset")
	bad := []string{"0_-1", "+5", "%205", "5%20", "5abc", "-2", "1e3", "--1", "-1-1", "-0", "NOW", "now%00", "no", "1.0", "0x10", "%00", "5%00",
		"18446744073709551616", strings.Repeat("1", 21), strings.Repeat("0", 300), strings.Repeat("0", 20) + "1", "_", "1_1",
		"0000000000000000_000000000000000", "0000000000000000_00000000000000000", "000000000000000x_0000000000000000", "0000000000000000_000000000000000x",
		"0000000000000000-0000000000000000", "%EF%BC%91", "%D9%A1", "null", "undefined", "..", "..%2f", "5,5", "%5B5%5D"}
	for i := range real {
		for _, c := range []string{"-", "_", "x", "%00"} {
			bad = append(bad, real[:i]+c+real[i+1:])
		}
	}
	for _, offset := range bad {
		for _, live := range []string{"", "&live=long-poll", "&live=sse"} {
			r := f.want(http.StatusBadRequest, "GET", s+"?offset="+offset+live, "")
			if r.code() != "invalid_offset" && r.code() != "invalid_parameter" {
				t.Errorf("offset=%s%s: %s", offset, live, r.body)
			}
		}
	}
	for _, offset := range []string{"x", "-2", "1e3", "", "18446744073709551616", "0_-1", real + "0", "5 5"} {
		name := f.name()
		r := f.want(http.StatusBadRequest, "PUT", name, "", "Stream-Forked-From", target(s), "Stream-Fork-Offset", offset)
		if r.code() != "invalid_offset" {
			t.Errorf("Stream-Fork-Offset: %q: %s", offset, r.body)
		}
		f.want(http.StatusNotFound, "HEAD", name, "")
		r = f.want(http.StatusBadRequest, "GET", s+"?offset=-1&live=sse", "", "Last-Event-ID", offset)
		if r.code() != "invalid_offset" {
			t.Errorf("Last-Event-ID: %q: %s", offset, r.body)
		}
	}
	// What is an offset is taken in each of its forms, and means the same.
	for offset, n := range map[string]int{"-1": 1000, "0": 1000, "10": 990, "0010": 990, real: 0, "00000000000000000010": 990, "0000000000000007_0000000000000010": 990, "now": 0, "%31%30": 990} {
		if r := f.want(http.StatusOK, "GET", s+"?offset="+offset, ""); len(r.body) != n || r.header.Get("Stream-Next-Offset") != real {
			t.Errorf("offset=%s: %d bytes", offset, len(r.body))
		}
	}
	f.holds(s, strings.Repeat("x", 1000))
}

// An offset beyond the tail is refused at once in every mode, before and after the stream
// has grown and closed.
func TestField56BeyondTheTail(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{plain, jsonType} {
		s := f.create(contentType)
		grow := func(n int) string {
			return f.want(http.StatusNoContent, "POST", s, strings.Repeat("1", n), "Content-Type", contentType).header.Get("Stream-Next-Offset")
		}
		tail := grow(10)
		check := func() {
			t.Helper()
			for _, offset := range []string{"1000", "9223372036854775807", "9223372036854775808", "18446744073709551615"} {
				for _, live := range []string{"", "&live=long-poll", "&live=sse"} {
					began := time.Now()
					r := f.want(http.StatusBadRequest, "GET", s+"?offset="+offset+live, "")
					if r.code() != "offset_beyond_tail" {
						t.Errorf("offset=%s%s: %s", offset, live, r.body)
					}
					f.has(r, "Stream-Next-Offset", tail)
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("offset=%s%s: answered after %v", offset, live, took)
					}
				}
				r := f.want(http.StatusBadRequest, "GET", s+"?offset=-1&live=sse", "", "Last-Event-ID", offset)
				if r.code() != "offset_beyond_tail" {
					t.Errorf("Last-Event-ID: %s: %s", offset, r.body)
				}
				r = f.want(http.StatusBadRequest, "PUT", f.name(), "", "Stream-Forked-From", target(s), "Stream-Fork-Offset", offset)
				if r.code() != "fork_offset_invalid" {
					t.Errorf("fork at %s: %s", offset, r.body)
				}
			}
		}
		check()
		tail = grow(20)
		check()
		f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
		check()
	}
}

// offset=now in every mode, on every kind of stream.
func TestField58Now(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{plain, jsonType} {
		empty := "[]"
		if contentType == plain {
			empty = ""
		}
		open, bare := f.create(contentType), f.create(contentType)
		tail := f.want(http.StatusNoContent, "POST", open, "12345", "Content-Type", contentType).header.Get("Stream-Next-Offset")
		closed := f.name()
		f.want(http.StatusCreated, "PUT", closed, "12345", "Content-Type", contentType, "Stream-Closed", "true")
		held, fork := f.create(contentType), f.name()
		f.want(http.StatusCreated, "PUT", fork, "", "Stream-Forked-From", target(held))
		f.want(http.StatusNoContent, "DELETE", held, "")
		for stream, at := range map[string]string{open: tail, bare: "00000000000000000000", closed: tail} {
			shut := ""
			if stream == closed {
				shut = "true"
			}
			r := f.want(http.StatusOK, "GET", stream+"?offset=now", "", "If-None-Match", "*")
			f.has(r, "Stream-Next-Offset", at, "Stream-Up-To-Date", "true", "Stream-Closed", shut, "Cache-Control", "no-store", "ETag", "")
			if r.body != empty {
				t.Errorf("offset=now: %q", r.body)
			}
			began, wait := time.Now(), 300*time.Millisecond
			if stream == closed {
				wait = 20 * time.Second // which must not pass
			}
			r = f.want(http.StatusNoContent, "GET", fmt.Sprintf("%s?offset=now&live=long-poll&timeout_ms=%d", stream, wait.Milliseconds()), "")
			f.has(r, "Stream-Next-Offset", at, "Stream-Up-To-Date", "true", "Stream-Closed", shut, "Cache-Control", "no-store", "ETag", "")
			if waited := time.Since(began) >= wait; waited == (stream == closed) {
				t.Errorf("a long-poll on a stream that is closed (%q) took %v", shut, time.Since(began))
			}
			e := f.events(stream, "offset=now")
			if c := e.control(); c.Next != at || !c.UpToDate || c.Closed != (stream == closed) || (c.Cursor == "") != c.Closed {
				t.Errorf("the first control of offset=now: %+v", c)
			}
			if stream == closed {
				e.finish()
				continue
			}
			f.want(http.StatusNoContent, "POST", stream, "6", "Content-Type", contentType)
			if data, c := e.data(); strings.Trim(data, "[]") != "6" || !c.UpToDate {
				t.Errorf("after offset=now: %q %+v", data, c)
			}
		}
		for _, live := range []string{"", "&live=long-poll", "&live=sse"} {
			f.has(f.want(http.StatusNotFound, "GET", f.name()+"?offset=now"+live, ""), "Cache-Control", "no-store")
			f.has(f.want(http.StatusGone, "GET", held+"?offset=now"+live, ""), "Cache-Control", "no-store")
		}
	}

	// A message that is appended while a long-poll begins is delivered, or lies behind
	// the offset that the poll was given.
	s := f.create(plain)
	for round := range 200 {
		var poll, write answer
		f.together(2, func(i int) (err error) {
			if i == 0 {
				poll, err = f.once("GET", s+"?offset=now&live=long-poll&timeout_ms=10", "", nil)
			} else {
				write, err = f.once("POST", s, "message", []string{"Content-Type", plain})
			}
			return err
		})
		start := write.header.Get("Stream-Offset")
		delivered := poll.status == http.StatusOK && poll.body == "message"
		before := poll.status == http.StatusNoContent && poll.header.Get("Stream-Next-Offset") <= start
		after := poll.status == http.StatusNoContent && poll.header.Get("Stream-Next-Offset") == write.header.Get("Stream-Next-Offset")
		if !delivered && !before && !after {
			t.Fatalf("round %d: a message at %s, and the poll says %v", round, start, poll)
		}
	}
}

// A stream that is made again is another one: whoever says which one he means is told, and
// no cached answer stays valid.
func TestField59AnotherIncarnation(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{plain, jsonType} {
		s := f.create(contentType)
		old := f.want(http.StatusNoContent, "POST", s, strings.Repeat("1", 10_000), "Content-Type", contentType)
		offset, former := old.header.Get("Stream-Next-Offset"), old.header.Get("Stream-Incarnation")
		tags := []string{
			f.want(http.StatusOK, "GET", s, "").header.Get("ETag"),
			f.want(http.StatusOK, "GET", s+"?offset="+offset, "").header.Get("ETag"),
			f.want(http.StatusOK, "HEAD", s, "").header.Get("ETag"),
		}
		f.want(http.StatusNoContent, "DELETE", s, "")
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
			f.want(http.StatusNotFound, method, s, "", "Stream-Incarnation", former)
		}
		f.want(http.StatusCreated, "PUT", s, "", "Content-Type", contentType)
		f.want(http.StatusNoContent, "POST", s, strings.Repeat("2", 10_000), "Content-Type", contentType)
		now := f.want(http.StatusNoContent, "POST", s, strings.Repeat("3", 10_000), "Content-Type", contentType).header.Get("Stream-Incarnation")
		if now == former || now == "" {
			t.Fatalf("incarnation %q after %q", now, former)
		}
		for _, tag := range tags {
			f.want(http.StatusOK, "GET", s, "", "If-None-Match", tag)
			f.want(http.StatusOK, "GET", s+"?offset="+offset, "", "If-None-Match", tag)
			f.want(http.StatusOK, "HEAD", s, "", "If-None-Match", tag)
		}
		for _, live := range []string{"", "&live=long-poll", "&live=sse"} {
			r := f.want(http.StatusPreconditionFailed, "GET", s+"?offset="+offset+live, "", "Stream-Incarnation", former)
			f.has(r, "Stream-Incarnation", now, "Cache-Control", "no-store")
			if r.code() != "incarnation_mismatch" {
				t.Errorf("%s", r.body)
			}
		}
		f.has(f.want(http.StatusPreconditionFailed, "HEAD", s, "", "Stream-Incarnation", former), "Stream-Incarnation", now)
		for method, body := range map[string]string{"POST": "4", "PUT": "", "DELETE": ""} {
			f.has(f.want(http.StatusPreconditionFailed, method, s, body, "Content-Type", contentType, "Stream-Incarnation", former), "Stream-Incarnation", now)
		}
		// Who names the right one gets on as ever, and every answer names it.
		f.has(f.want(http.StatusOK, "GET", s+"?offset="+offset, "", "Stream-Incarnation", now), "Stream-Incarnation", now)
		f.has(f.want(http.StatusNoContent, "POST", s, "5", "Content-Type", contentType, "Stream-Incarnation", now), "Stream-Incarnation", now)
		f.has(f.want(http.StatusOK, "PUT", s, "", "Content-Type", contentType, "Stream-Incarnation", now), "Stream-Incarnation", now)
		f.has(f.want(http.StatusConflict, "POST", s, "x", "Content-Type", "text/html"), "Stream-Incarnation", now)
		f.has(f.want(http.StatusBadRequest, "GET", s+"?offset=x", ""), "Stream-Incarnation", now)
		f.want(http.StatusNoContent, "DELETE", s, "", "Stream-Incarnation", now)
	}
}
