package server

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
)

func digestOf(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }

func offset(n int) string { return fmt.Sprintf("%020d", n) }

// ten makes a stream of ten messages of ten bytes each.
func (n *node) ten(contentType string) string {
	n.t.Helper()
	s := n.create(contentType)
	for i := range 10 {
		n.append(s, contentType, fmt.Sprintf("message %d ", i))
	}
	return s
}

func TestPublish(t *testing.T) {
	n := newNode(t, nil).on("snapshots")
	s := n.ten(text)
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot", "")
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot/0", "")
	n.refused(400, "snapshot_not_boundary", "PUT", s+"/snapshot/15", "x")
	n.refused(409, "snapshot_beyond_tail", "PUT", s+"/snapshot/101", "x")
	n.refused(400, "invalid_offset", "PUT", s+"/snapshot/now", "x")
	n.refused(400, "invalid_offset", "PUT", s+"/snapshot/-1", "x")
	n.refused(400, "invalid_parameter", "PUT", s+"/snapshot", "x")
	n.refused(404, "stream_not_found", "PUT", "none/snapshot/0", "x")
	n.refused(412, "incarnation_mismatch", "PUT", s+"/snapshot/20", "x", "Stream-Incarnation", "7")
	n.refused(400, "digest_mismatch", "PUT", s+"/snapshot/20", "x", "Stream-Snapshot-Digest", digestOf("y"))
	n.refused(400, "invalid_header", "PUT", s+"/snapshot/20", "x", "Stream-Snapshot-Digest", "abc")
	n.refused(400, "invalid_header", "PUT", s+"/snapshot/20", "x", "Stream-Snapshot-Retain", "yes")
	n.refused(415, "content_coding_not_supported", "PUT", s+"/snapshot/20", "x", "Content-Encoding", "gzip")
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot", "") // nothing of that was stored, nothing trimmed
	n.want(200, "GET", s, "")

	a := n.want(204, "PUT", s+"/snapshot/20", "state at 20", "Content-Type", "Text/HTML", "Stream-Snapshot-Digest", digestOf("state at 20"))
	for name, want := range map[string]string{
		"Stream-Next-Offset": offset(100), "Stream-Snapshot-Offset": offset(20), "Stream-Snapshot-Digest": digestOf("state at 20"),
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	a = n.want(200, "GET", s+"/snapshot", "") // by the redirect
	if a.body != "state at 20" || a.header.Get("Content-Type") != "text/html" || a.header.Get("Content-Security-Policy") == "" ||
		a.header.Get("Stream-Next-Offset") != offset(20) || a.header.Get("Stream-Up-To-Date") != "" {
		t.Errorf("%q %v", a.body, a.header)
	}
	a = n.want(200, "HEAD", s, "")
	if a.header.Get("Stream-Snapshot-Offset") != offset(20) || a.header.Get("Stream-Snapshot-Digest") != digestOf("state at 20") ||
		a.header.Get("Stream-Earliest-Offset") != offset(20) || a.header.Get("Stream-Record-First") != "2" {
		t.Errorf("HEAD %v", a.header)
	}
	if a = n.want(200, "HEAD", s+"/snapshot/20", ""); a.header.Get("Content-Length") != "11" {
		t.Errorf("HEAD of the snapshot: %v", a.header)
	}

	// Again: the same is a repeat, anything else a conflict; below it is stale or gone.
	n.want(204, "PUT", s+"/snapshot/20", "state at 20", "Content-Type", "text/html")
	for _, other := range [][2]string{{"state at 2!", "text/html"}, {"state at 20", text}, {"", "text/html"}} {
		a = n.refused(409, "snapshot_conflict", "PUT", s+"/snapshot/20", other[0], "Content-Type", other[1])
		if a.header.Get("Stream-Snapshot-Offset") != offset(20) || a.header.Get("Stream-Snapshot-Digest") != digestOf("state at 20") {
			t.Errorf("409 %v", a.header)
		}
	}
	a = n.refused(410, "snapshot_below_earliest", "PUT", s+"/snapshot/10", "x")
	if a.header.Get("Stream-Earliest-Offset") != offset(20) || !strings.HasSuffix(a.header.Get("Link"), `/bootstrap>; rel="bootstrap"`) {
		t.Errorf("410 %v", a.header)
	}
	n.want(204, "PUT", s+"/snapshot/50", "state at 50", "Stream-Snapshot-Retain", "true")
	a = n.refused(409, "snapshot_stale", "PUT", s+"/snapshot/40", "x")
	if a.header.Get("Stream-Snapshot-Offset") != offset(50) {
		t.Errorf("409 %v", a.header)
	}
	n.want(200, "GET", s+"?offset=20", "") // retained

	// The one that was replaced stays readable until it is deleted; the current one can't be.
	if a = n.want(200, "GET", s+"/snapshot/20", ""); a.body != "state at 20" {
		t.Errorf("got %q", a.body)
	}
	a = n.refused(409, "snapshot_is_current", "DELETE", s+"/snapshot/50", "")
	if a.header.Get("Stream-Snapshot-Offset") != offset(50) {
		t.Errorf("409 %v", a.header)
	}
	n.want(204, "DELETE", s+"/snapshot/20", "")
	n.refused(404, "snapshot_not_found", "DELETE", s+"/snapshot/20", "")
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot/20", "")
	n.refused(404, "snapshot_not_found", "DELETE", s+"/snapshot/60", "")

	// At the tail of a closed stream.
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	n.want(204, "PUT", s+"/snapshot/100", "")
	a = n.want(200, "GET", s+"/snapshot/100", "")
	if a.body != "" || a.header.Get("Stream-Up-To-Date") != "true" || a.header.Get("Stream-Closed") != "true" || a.header.Get("Content-Type") != octets {
		t.Errorf("%q %v", a.body, a.header)
	}
}

// A snapshot at offset 0 is allowed, also of a stream without data.
func TestPublishAtZero(t *testing.T) {
	n := newNode(t, nil).on("zero")
	s := n.create(json)
	n.want(204, "PUT", s+"/snapshot/0", "{}", "Content-Type", json)
	n.want(200, "GET", s, "")
	if a := n.want(200, "GET", s+"/snapshot", ""); a.body != "{}" {
		t.Errorf("got %q", a.body)
	}
	n.append(s, json, "[1,2]")
	n.refused(400, "snapshot_not_boundary", "PUT", s+"/snapshot/1", "x")
	n.want(204, "PUT", s+"/snapshot?record=1", "one", "Content-Type", text)
	a := n.want(200, "GET", s+"/snapshot?record=1", "")
	if a.body != "one" || a.header.Get("Stream-Snapshot-Offset") != offset(2) {
		t.Errorf("%q %v", a.body, a.header)
	}
	n.refused(409, "snapshot_beyond_tail", "PUT", s+"/snapshot?record=3", "x")
	n.refused(410, "snapshot_below_earliest", "PUT", s+"/snapshot?record=0", "x")
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot?record=2", "")
	n.refused(400, "exclusive_parameters", "PUT", s+"/snapshot/2?record=1", "x")
}

func TestTrimming(t *testing.T) {
	n := newNode(t, nil).on("trimming")
	s := n.ten(text)
	put := func(status int, code, at string) answer {
		t.Helper()
		a := n.want(status, "PUT", s+"/retention"+at, "")
		if a.code() != code {
			t.Errorf("%s: %s", at, a.body)
		}
		return a
	}
	put(204, "", "/0") // where it is
	put(409, "retention_above_snapshot", "/10")
	n.want(204, "PUT", s+"/snapshot/60", "x", "Stream-Snapshot-Retain", "true")
	n.want(200, "GET", s, "")
	put(409, "retention_not_boundary", "/15")
	put(409, "retention_above_snapshot", "/70")
	put(409, "retention_above_snapshot", "/1000")
	if a := put(204, "", "/20"); a.header.Get("Stream-Earliest-Offset") != offset(20) || a.header.Get("Stream-Next-Offset") != offset(100) {
		t.Errorf("%v", a.header)
	}
	put(204, "", "/20")
	put(409, "retention_behind", "/10")
	put(409, "retention_behind", "?record=1")
	put(204, "", "?record=3")
	put(400, "invalid_parameter", "")

	for _, q := range []string{"", "?offset=-1", "?offset=0", "?offset=29", "?offset=-1&live=long-poll", "?offset=20&live=sse"} {
		a := n.refused(410, "offset_trimmed", "GET", s+q, "")
		if a.header.Get("Stream-Earliest-Offset") != offset(30) || a.header.Get("Link") != "</ds/trimming/"+s+`/bootstrap>; rel="bootstrap"` ||
			a.header.Get("Stream-Incarnation") == "" {
			t.Errorf("%s: %v", q, a.header)
		}
	}
	n.refused(410, "record_trimmed", "GET", s+"?record=2", "")
	if a := n.want(200, "GET", s+"?offset=30&max_bytes=10", ""); a.body != "message 3 " {
		t.Errorf("got %q", a.body)
	}
	n.want(200, "GET", s+"?offset=now", "")
	a := n.refused(410, "offset_trimmed", "PUT", fresh(), "", "Stream-Forked-From", "/ds/trimming/"+s, "Stream-Fork-Offset", "20")
	if a.header.Get("Stream-Earliest-Offset") != offset(30) || a.header.Get("Link") != "</ds/trimming/"+s+`/bootstrap>; rel="bootstrap"` {
		t.Errorf("%v", a.header)
	}

	// A fork takes along what makes its bootstrap whole.
	f := fresh()
	n.want(201, "PUT", f, "", "Stream-Forked-From", "/ds/trimming/"+s)
	if b := n.boot(f); b.snapshot != "x" || len(b.messages) != 4 || b.messages[0] != "message 6 " {
		t.Errorf("bootstrap of a fork: %+v", b)
	}
	n.want(204, "DELETE", f, "")

	// Republishing the same bytes without Retain trims up to the snapshot.
	n.want(204, "PUT", s+"/snapshot/60", "x")
	n.refused(410, "offset_trimmed", "GET", s+"?offset=50", "")
	n.want(200, "GET", s+"?offset=60", "")
}

func TestSnapshotRanges(t *testing.T) {
	n := newNode(t, nil).on("ranges")
	s := n.create(text)
	body := strings.Repeat("0123456789", 30_000)
	n.want(204, "PUT", s+"/snapshot/0", body, "Content-Type", octets)
	path := s + "/snapshot/0"
	tag := n.want(200, "HEAD", path, "").header.Get("ETag")
	for _, step := range []struct {
		value      string
		status     int
		start, end int
	}{
		{"bytes=0-0", 206, 0, 1},
		{"bytes=5-", 206, 5, 300_000},
		{"bytes=-7", 206, 299_993, 300_000},
		{"bytes=70000-200000", 206, 70_000, 200_001},
		{"bytes=0-999999", 206, 0, 300_000},
		{"bytes=300000-", 416, 0, 0},
		{"bytes=0-1,3-4", 200, 0, 300_000},
		{"lines=0-1", 200, 0, 300_000},
	} {
		a := n.want(step.status, "GET", path, "", "Range", step.value)
		if step.status == 416 {
			if got := a.header.Get("Content-Range"); got != "bytes */300000" {
				t.Errorf("Content-Range %q", got)
			}
			continue
		}
		if a.body != body[step.start:step.end] {
			t.Errorf("%s: %d bytes", step.value, len(a.body))
		}
		if want := fmt.Sprintf("bytes %d-%d/300000", step.start, step.end-1); step.status == 206 && a.header.Get("Content-Range") != want {
			t.Errorf("%s: %v", step.value, a.header)
		}
	}
	n.want(206, "GET", path, "", "Range", "bytes=1-2", "If-Range", tag)
	n.want(200, "GET", path, "", "Range", "bytes=1-2", "If-Range", `"x"`)
	n.want(304, "GET", path, "", "If-None-Match", tag)
}

// The request's digest lets a repeat and a conflict be answered before the body is
// sent, as everything else that the headers decide.
func TestDigestBeforeTheBody(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.MaxSnapshotBytes = 1 << 20 }).on("digest")
	s := n.ten(text)
	n.want(204, "PUT", s+"/snapshot/50", "the state", "Stream-Snapshot-Retain", "true")
	for _, step := range []struct {
		path, digest string
		length       int
		want         string
	}{
		{s + "/snapshot/50", digestOf("another"), 100_000, "409"},
		{s + "/snapshot/40", digestOf("another"), 100_000, "409"},
		{s + "/snapshot/45", digestOf("another"), 100_000, "400"},
		{s + "/snapshot/110", digestOf("another"), 100_000, "409"},
		{s + "/snapshot/60", digestOf("another"), 2 << 20, "413"},
		{"none/snapshot/0", digestOf("another"), 100_000, "404"},
		{s + "/snapshot/50", digestOf("the state"), 100_000, "204"},
	} {
		c := n.dial()
		c.printf("PUT /ds/digest/%s HTTP/1.1\r\nHost: x\r\nStream-Snapshot-Digest: %s\r\nContent-Length: %d\r\n\r\n", step.path, step.digest, step.length)
		if got := c.status(); got != step.want {
			t.Errorf("%s: %s, want %s", step.path, got, step.want)
		}
	}
	n.refused(410, "offset_trimmed", "GET", s, "") // the repeat trimmed what the first publication had retained
}

// Of two publications of different bytes at one offset, one wins and the other learns of it (field report 113).
func TestField113PublicationsRace(t *testing.T) {
	n := newNode(t, nil).on("publications")
	s := n.ten(text)
	for at := 0; at <= 100; at += 10 {
		var wg sync.WaitGroup
		got := make([]answer, 4)
		for i := range got {
			wg.Go(func() {
				got[i] = n.do("PUT", fmt.Sprintf("%s/snapshot/%d", s, at), strings.Repeat("x", i*50_000))
			})
		}
		wg.Wait()
		won := 0
		for _, a := range got {
			if a.status == 204 {
				won++
			} else if a.code() != "snapshot_conflict" {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if won != 1 {
			t.Errorf("%d publications won", won)
		}
	}
}

// A body of unknown length is refused as soon as it is too large; one that is cut short stores nothing.
func TestUploadsThatFail(t *testing.T) {
	n := newNode(t, func(c *Config, _ *engine.Options) { c.MaxSnapshotBytes = 200_000 }).on("uploads")
	s := n.ten(text)
	req, err := http.NewRequest("PUT", n.url+s+"/snapshot/10", io.MultiReader(strings.NewReader(strings.Repeat("x", 200_001))))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 413 || !bytes.Contains(b, []byte(`"snapshot_too_large"`)) || !bytes.Contains(b, []byte(`"limit":200000`)) {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	n.refused(413, "snapshot_too_large", "PUT", s+"/snapshot/10", strings.Repeat("x", 200_001))
	for _, head := range []string{"Content-Length: 150000", "Transfer-Encoding: chunked"} {
		c := n.dial()
		c.printf("PUT /ds/uploads/%s/snapshot/10 HTTP/1.1\r\nHost: x\r\n%s\r\n\r\nabc", s, head)
		c.net.Close()
	}
	for end := time.Now().Add(patience); n.server.uploads.Load() > 0; {
		if time.Now().After(end) {
			t.Fatal("an upload does not end")
		}
		<-time.After(time.Millisecond)
	}
	n.refused(404, "snapshot_not_found", "GET", s+"/snapshot", "")
	n.want(204, "PUT", s+"/snapshot/10", strings.Repeat("x", 200_000))
	n.want(204, "PUT", s+"/snapshot/20", strings.Repeat("y", 200_000), "Transfer-Encoding", "chunked")
}

// A snapshot goes from the socket to the disk, and back, through little memory.
func TestBigSnapshotIsFlat(t *testing.T) {
	size := int64(128 << 20)
	if testing.Short() {
		size = 4 << 20
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // garbage of the client is not what is measured
	n := newNode(t, nil).on("bigsnapshot")
	s := n.create(text)
	warm := n.create(text) // buffers and pools are there once they have been used
	n.want(204, "PUT", warm+"/snapshot/0", strings.Repeat("w", 4<<20))
	n.want(200, "GET", warm+"/snapshot", "")
	debug.FreeOSMemory()
	before, peak := rss(t), int64(0)
	body := io.LimitReader(watched{pattern{}, func() { peak = max(peak, rss(t)-before) }}, size)
	req, err := http.NewRequest("PUT", n.url+s+"/snapshot/0", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = size
	resp, err := n.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 204 {
		t.Fatal(resp.Status)
	}
	resp, err = n.client.Get(n.url + s + "/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := sha256.New()
	got, err := io.Copy(sum, watched{resp.Body, func() { peak = max(peak, rss(t)-before) }})
	if err != nil || got != size || fmt.Sprintf("%x", sum.Sum(nil)) != resp.Header.Get("Stream-Snapshot-Digest") {
		t.Errorf("%d bytes, %v", got, err)
	}
	t.Logf("%d KiB more memory", peak>>10)
	if peak > flat() {
		t.Errorf("%d MiB more memory", peak>>20)
	}
}

// pattern is endless.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 7)
	}
	return len(p), nil
}

// watched calls f at every read.
type watched struct {
	io.Reader
	f func()
}

func (w watched) Read(p []byte) (int, error) {
	w.f()
	return w.Reader.Read(p)
}
