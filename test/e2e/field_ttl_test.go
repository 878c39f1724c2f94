//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Lifetimes are counted in seconds of the server's clock, which nobody can turn from
// outside: the tests of this file let them pass.

// A lifetime is exactly what the protocol says, or the request is refused.
func TestField92LifetimeSyntax(t *testing.T) {
	f := onShared(t, &ordinary)
	put := func(fields ...string) (string, answer) {
		name := f.name()
		w := f.dial()
		defer w.conn.Close()
		w.head("PUT", target(name), fields...)
		return name, w.answer(0, "PUT")
	}
	for _, bad := range []string{
		"+60", "060", "60.0", "6e1", "-1", "60s", "", "6 0", "0x3c", "00", "6_0", "６０", "3153600001", "18446744073709551617", strings.Repeat("9", 30), "60,60", "null",
	} {
		name, r := put("Stream-TTL: " + bad)
		if r.status != http.StatusBadRequest || r.code() != "invalid_header" || !strings.Contains(r.body, `"field":"Stream-TTL"`) {
			t.Errorf("Stream-TTL: %q: %d %s", bad, r.status, r.body)
		}
		f.want(http.StatusNotFound, "HEAD", name, "")
	}
	for _, good := range []string{"1000", " 60 ", "3153600000"} {
		name, r := put("Stream-TTL: " + good)
		if r.status != http.StatusCreated {
			t.Errorf("Stream-TTL: %q: %d %s", good, r.status, r.body)
		}
		f.has(f.want(http.StatusOK, "HEAD", name, ""), "Stream-TTL", strings.TrimSpace(good), "Stream-Expires-At", "")
	}
	for _, bad := range []string{
		"", "tomorrow", "2100-01-01", "2100-01-01T00:00:00", "2100-01-01 00:00:00Z", "2100-13-01T00:00:00Z", "2100-02-30T00:00:00Z", "2100-01-01T24:00:00Z",
		"2100-01-01T00:60:00Z", "2100-01-01T00:00:00+25:00", "2100-01-01T00:00:00.Z", "4102444800", "Fri, 01 Jan 2100 00:00:00 GMT", "2100-1-1T0:0:0Z", "2100-01-01T00:00:00+0000",
	} {
		if name, r := put("Stream-Expires-At: " + bad); r.status != http.StatusBadRequest || r.code() != "invalid_header" {
			t.Errorf("Stream-Expires-At: %q: %d %s", bad, r.status, r.body)
		} else {
			f.want(http.StatusNotFound, "HEAD", name, "")
		}
	}
	const instant = "2100-01-01T00:00:00Z"
	spellings := []string{instant, "2100-01-01t00:00:00z", "2100-01-01T00:00:00.000Z", "2100-01-01T01:00:00+01:00", "2099-12-31T23:00:00-01:00", "2100-01-01T00:00:00-00:00"}
	s := f.create(plain, "Stream-Expires-At", instant)
	for _, good := range spellings {
		name, r := put("Content-Type: text/plain", "Stream-Expires-At: "+good)
		if r.status != http.StatusCreated {
			t.Errorf("Stream-Expires-At: %q: %d %s", good, r.status, r.body)
			continue
		}
		f.has(f.want(http.StatusOK, "HEAD", name, ""), "Stream-Expires-At", instant, "Stream-TTL", "")
		f.want(http.StatusOK, "PUT", s, "", "Content-Type", plain, "Stream-Expires-At", good)
	}
	f.want(http.StatusConflict, "PUT", s, "", "Content-Type", plain, "Stream-Expires-At", "2100-01-01T00:00:01Z")
	f.want(http.StatusConflict, "PUT", s, "", "Content-Type", plain, "Stream-TTL", "60")
	f.want(http.StatusConflict, "PUT", s, "", "Content-Type", plain)

	name, r := put("Stream-TTL: 60", "Stream-Expires-At: "+instant)
	if r.status != http.StatusBadRequest || r.code() != "ttl_and_expires_at" {
		t.Errorf("both: %v", r)
	}
	f.want(http.StatusNotFound, "HEAD", name, "")
	for _, gone := range []string{"Stream-TTL: 0", "Stream-Expires-At: 2001-01-01T00:00:00Z", "Stream-Expires-At: 1969-12-31T23:59:59Z"} {
		name, r := put(gone)
		if r.status != http.StatusCreated {
			t.Errorf("%s: %v", gone, r)
		}
		f.want(http.StatusNotFound, "HEAD", name, "")
		f.want(http.StatusNotFound, "GET", name, "")
	}
	f.want(http.StatusNoContent, "POST", s, "x", "Content-Type", plain, "Stream-TTL", "nonsense", "Stream-Expires-At", "nonsense")
	f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Expires-At", instant, "Stream-TTL", "")
}

// From the moment of its expiry a stream is absent for everything.
func TestField94ExpiredForEverything(t *testing.T) {
	f := onShared(t, &ordinary)
	lives := map[string]func() []string{
		"TTL": func() []string { return []string{"Stream-TTL", "1"} },
		"Expires-At": func() []string {
			return []string{"Stream-Expires-At", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}
		},
	}
	checks := map[string]func(s string){
		"GET":       func(s string) { f.want(http.StatusNotFound, "GET", s, "") },
		"HEAD":      func(s string) { f.want(http.StatusNotFound, "HEAD", s, "") },
		"POST":      func(s string) { f.want(http.StatusNotFound, "POST", s, "x", "Content-Type", plain) },
		"producer":  func(s string) { f.produce(http.StatusNotFound, s, "x", "p", 0, 0) },
		"close":     func(s string) { f.want(http.StatusNotFound, "POST", s, "", "Stream-Closed", "true") },
		"DELETE":    func(s string) { f.want(http.StatusNotFound, "DELETE", s, "") },
		"long-poll": func(s string) { f.want(http.StatusNotFound, "GET", s+"?offset=now&live=long-poll", "") },
		"SSE":       func(s string) { f.want(http.StatusNotFound, "GET", s+"?offset=-1&live=sse", "") },
		"tag":       func(s string) { f.want(http.StatusNotFound, "GET", s, "", "If-None-Match", "*") },
		"fork": func(s string) {
			r := f.want(http.StatusNotFound, "PUT", f.name(), "", "Stream-Forked-From", target(s))
			if r.code() != "fork_source_not_found" {
				t.Errorf("fork: %s", r.body)
			}
		},
		"PUT": func(s string) {
			f.want(http.StatusCreated, "PUT", s, "", "Content-Type", jsonType)
			f.holds(s, "[]")
		},
	}
	streams := map[string][]string{}
	for _, life := range lives {
		for what := range checks {
			s := f.name()
			f.want(http.StatusCreated, "PUT", s, "content", append(life(), "Content-Type", plain)...)
			streams[what] = append(streams[what], s)
		}
	}
	// Parked readers keep a TTL from running out, but not an absolute end from coming.
	kept := f.create(plain, "Stream-TTL", "1")
	keeper := f.events(kept, "offset=-1")
	keeper.control()
	ends := time.Now().Add(1500 * time.Millisecond)
	ending := f.create(plain, "Stream-Expires-At", ends.UTC().Format(time.RFC3339Nano))
	reader := f.events(ending, "offset=-1")
	reader.control()
	poll := f.dial()
	poll.head("GET", target(ending)+"?offset=now&live=long-poll&timeout=60")
	last := time.Now().Add(time.Second)

	ev := reader.next()
	if at := time.Now(); ev.name != "end" || !strings.Contains(ev.data, `"code":"stream_not_found"`) || at.Before(ends.Add(-10*time.Millisecond)) || at.After(ends.Add(5*time.Second)) {
		t.Errorf("SSE across the end, %v after it: %+v", at.Sub(ends), ev)
	}
	reader.finish()
	poll.answer(http.StatusNotFound, "GET")

	f.let(last.Add(10 * time.Millisecond))
	for what, check := range checks {
		for _, s := range streams[what] {
			check(s)
		}
	}
	f.let(last.Add(1500 * time.Millisecond))
	f.text(kept, "still here")
	if data, _ := keeper.data(); data != "still here" {
		t.Errorf("a stream with a reader: %q", data)
	}
	keeper.conn.Close()
}

// alive looks whether a stream is there, without renewing it.
func (f *field) alive(s string) bool {
	f.Helper()
	r, err := f.once("HEAD", s, "", nil)
	if err != nil || r.status != http.StatusOK && r.status != http.StatusNotFound {
		f.Fatalf("HEAD %s: %v, %v", s, r, err)
	}
	return r.status == http.StatusOK
}

// livesUntil makes sure that a stream is there until a moment, and gone soon after
// another.
func (f *field) livesUntil(s, what string, early, late time.Time) {
	f.Helper()
	for {
		if !f.alive(s) {
			if now := time.Now(); now.Before(early) {
				f.Errorf("%s: the stream ended %v too early", what, early.Sub(now))
			}
			return
		}
		if now := time.Now(); now.After(late.Add(time.Second)) {
			f.Errorf("%s: the stream is there %v after its end", what, now.Sub(late))
			return
		}
		pause(f.Context(), 50*time.Millisecond)
	}
}

// Accepted reads and writes renew; HEAD and refusals don't. What is renewed lives for a
// whole window from then on.
func TestField95WhatRenews(t *testing.T) {
	f := onShared(t, &ordinary)
	const window = 2 * time.Second
	uses := map[string]struct {
		renews bool
		use    func(s string)
	}{
		"GET":         {true, func(s string) { f.holds(s, "x") }},
		"GET at tail": {true, func(s string) { f.want(http.StatusOK, "GET", s+"?offset=1", "") }},
		"GET now":     {true, func(s string) { f.want(http.StatusOK, "GET", s+"?offset=now", "") }},
		"304":         {true, func(s string) { f.want(http.StatusNotModified, "GET", s, "", "If-None-Match", "*") }},
		"long-poll":   {true, func(s string) { f.want(http.StatusNoContent, "GET", s+"?offset=1&live=long-poll&timeout=0", "") }},
		"SSE":         {true, func(s string) { e := f.events(s, "offset=-1"); e.data(); e.conn.Close() }},
		"POST":        {true, func(s string) { f.text(s, "y") }},
		"duplicate":   {true, func(s string) { f.produce(http.StatusNoContent, s, "x", "p", 0, 0) }},
		"HEAD":        {false, func(s string) { f.want(http.StatusOK, "HEAD", s, "") }},
		"bad offset":  {false, func(s string) { f.want(http.StatusBadRequest, "GET", s+"?offset=x", "") }},
		"beyond tail": {false, func(s string) { f.want(http.StatusBadRequest, "GET", s+"?offset=99", "") }},
		"other type":  {false, func(s string) { f.want(http.StatusConflict, "POST", s, "x", "Content-Type", "text/html") }},
		"gap":         {false, func(s string) { f.produce(http.StatusConflict, s, "x", "p", 0, 7) }},
		"no body":     {false, func(s string) { f.want(http.StatusBadRequest, "POST", s, "", "Content-Type", plain) }},
		"other PUT":   {false, func(s string) { f.want(http.StatusConflict, "PUT", s, "", "Content-Type", plain) }},
		"incarnation": {false, func(s string) { f.want(http.StatusPreconditionFailed, "GET", s, "", "Stream-Incarnation", "1") }},
		"precondition": {false, func(s string) {
			f.want(http.StatusPreconditionFailed, "POST", s, "x", "Content-Type", plain, "If-None-Match", "*")
		}},
		"OPTIONS":        {false, func(s string) { f.want(http.StatusNoContent, "OPTIONS", s, "") }},
		"404 of a child": {false, func(s string) { f.want(http.StatusNotFound, "GET", s+"/x", "") }},
	}
	type life struct{ early, late time.Time }
	lives := map[string]life{}
	streams := map[string]string{}
	for what := range uses {
		s := f.create(plain, "Stream-TTL", "2")
		before := time.Now()
		f.produce(http.StatusOK, s, "x", "p", 0, 0)
		streams[what], lives[what] = s, life{before.Add(window), time.Now().Add(window)}
	}
	f.let(time.Now().Add(window * 6 / 10))
	for what, u := range uses {
		before := time.Now()
		u.use(streams[what])
		if u.renews {
			lives[what] = life{before.Add(window), time.Now().Add(window)}
		}
	}
	// Read often, it lives for a window after the last read and not less.
	often := f.create(plain, "Stream-TTL", "2")
	var last life
	for range 15 {
		last.early = time.Now().Add(window)
		f.holds(often, "")
		last.late = time.Now().Add(window)
		pause(t.Context(), 70*time.Millisecond)
	}
	for _, renews := range []bool{false, true} { // in the order in which they end
		for what, u := range uses {
			if u.renews == renews {
				f.livesUntil(streams[what], what, lives[what].early, lives[what].late)
			}
		}
	}
	f.livesUntil(often, "read often", last.early, last.late)
}

// A restart makes nothing live shorter, and no more than a little longer; what was
// deleted stays so.
func TestField97RestartKeepsLifetimes(t *testing.T) {
	f := onOwn(t)
	const window = 2 * time.Second
	s := f.create(plain, "Stream-TTL", "2")
	read := f.create(plain, "Stream-TTL", "2")
	f.text(s, "x")
	at := time.Now().Add(window).Add(time.Second).UTC()
	absolute := f.create(plain, "Stream-Expires-At", at.Format(time.RFC3339Nano))
	deleted := f.create(plain, "Stream-TTL", "1000")
	f.let(time.Now().Add(time.Second))
	f.holds(read, "")
	early := time.Now().Add(window)
	f.holds(deleted, "")
	f.want(http.StatusNoContent, "DELETE", deleted, "")
	f.restart()
	f.want(http.StatusNotFound, "HEAD", deleted, "")
	f.has(f.want(http.StatusOK, "HEAD", read, ""), "Stream-TTL", "2")
	const granule = time.Second // what the docs grant for a window of up to 8 s
	f.livesUntil(s, "written before the crash", time.Time{}, early.Add(granule))
	f.livesUntil(absolute, "with an absolute end", at, at)
	f.livesUntil(read, "read before the crash", early, early.Add(granule))
	f.restart()
	for _, gone := range []string{s, absolute, read, deleted} {
		f.want(http.StatusNotFound, "HEAD", gone, "")
	}
}

// Streams that nobody touches again are cleared away by themselves, without holding
// anybody up, and give their space back.
func TestField98ExpiredAreReclaimed(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "256KiB", "--segment-max-bytes", "1MiB", "--erase-within", "2s")
	const many, marker = 4000, "bytes that nobody wants any more. "
	other, short := f.create(plain), f.name()
	streams := f.daemon.metric(t, "snakream_streams")
	f.together(20, func(i int) error {
		for n := range many / 20 {
			r, err := f.once("PUT", fmt.Sprintf("%s/%d-%d", short, i, n), strings.Repeat(marker, 30), []string{"Stream-TTL", strconv.Itoa(1 + n%2)})
			if err != nil || r.status != http.StatusCreated {
				return fmt.Errorf("%v, %v", r, err)
			}
		}
		return nil
	})
	if !f.onDisk(marker) {
		t.Error("the data is not on disk")
	}
	var worst time.Duration
	f.eventually(30*time.Second, "no other stream is left", func() bool {
		began := time.Now()
		f.text(other, "x")
		worst = max(worst, time.Since(began))
		return f.daemon.metric(t, "snakream_streams") <= streams
	})
	if worst > 5*time.Second {
		t.Errorf("beside the clearing an append took %v", worst)
	}
	f.eventually(30*time.Second, "their bytes have left the disk", func() bool { return !f.onDisk(marker) })
	if left := f.daemon.metric(t, "snakream_segment_bytes"); left > float64(many*len(marker)*30/4) {
		t.Errorf("%v bytes of segments are left", left)
	}
	f.want(http.StatusNotFound, "HEAD", short+"/0-0", "")
	f.want(http.StatusCreated, "PUT", short+"/0-0", "")
	f.holds(short+"/0-0", "")
}

// onDisk looks for octets in all files of the data directory.
func (f *field) onDisk(marker string) bool {
	f.Helper()
	found := false
	err := filepath.WalkDir(f.daemon.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || found {
			return ignoreMissing(err)
		}
		b, err := os.ReadFile(path)
		found = bytes.Contains(b, []byte(marker))
		return ignoreMissing(err)
	})
	if err != nil {
		f.Fatal(err)
	}
	return found
}

// ignoreMissing passes over files that the server has just removed.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
