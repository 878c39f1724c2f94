//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// damage flips an octet in the middle of the first place where the segments hold a
// pattern. The server must not run.
func damage(t *testing.T, dir, pattern string) {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || found || filepath.Ext(path) != ".seg" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := bytes.Index(b, []byte(pattern))
		if at < 0 {
			return nil
		}
		found = true
		b[at+len(pattern)/2] ^= 0x20
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil || !found {
		t.Fatalf("no segment holds %q: %v", pattern, err)
	}
}

// An internal error tells its reader nothing about the inside, and the operator
// everything.
func TestField148ErrorsTellNothing(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB")
	s, other := f.create(plain), f.create(plain)
	f.text(s, strings.Repeat("pattern of the damaged stream ", 6000))
	f.text(other, strings.Repeat("another one ", 10_000))
	f.text(f.create(plain), strings.Repeat("f", 100_000))
	f.eventually(wirePatience, "everything is in segments", func() bool {
		return f.daemon.metric(t, "snakream_memtable_bytes") < 110_000 && f.daemon.metric(t, "snakream_flushes_total") >= 2
	})
	f.client.CloseIdleConnections()
	f.daemon.stop(t)
	damage(t, f.daemon.dir, "pattern of the damaged stream ")
	f.daemon.start(t)
	for _, query := range []string{"", "?offset=-1&live=long-poll", "?offset=0&max_bytes=10"} {
		r := f.want(http.StatusInternalServerError, "GET", s+query, "")
		if r.code() != "range_damaged" {
			t.Errorf("%q: %v", query, r)
		}
		f.has(r, "Cache-Control", "no-store", "ETag", "")
		for _, secret := range []string{f.daemon.dir, "/shard", ".seg", ".go", "goroutine", "checksum", "pattern"} {
			if strings.Contains(r.body, secret) || strings.Contains(fmt.Sprint(r.header), secret) {
				t.Errorf("the answer has %q: %v", secret, r)
			}
		}
	}
	e := f.events(s, "offset=-1")
	if ev := e.next(); ev.name != "end" || !strings.Contains(ev.data, `"code":"range_damaged"`) || strings.Contains(ev.data, ".seg") {
		t.Errorf("SSE: %+v", ev)
	}
	e.finish()
	f.holds(other, strings.Repeat("another one ", 10_000))
	f.text(s, "goes on")
	if f.daemon.metric(t, "snakream_damaged_reads_total") < 4 {
		t.Error("nobody counts the damage")
	}
	log, err := os.ReadFile(f.daemon.log)
	if err != nil || !bytes.Contains(log, []byte(".seg")) {
		t.Errorf("the log does not say where it is: %v", err)
	}
}

// A misspelt setting, wherever it stands, keeps the server from starting.
func TestField149UnknownSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	start := func(toml string, environ []string, args ...string) (int, string) {
		t.Helper()
		if toml != "" {
			if err := os.WriteFile(file, []byte(toml), 0o644); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--config", file)
		}
		// The last one is wrong in every case, so that nothing starts by mistake.
		cmd := exec.Command(binary, append([]string{"serve", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAKREAM_") }), environ...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		timer := time.AfterFunc(wirePatience, func() { cmd.Process.Kill() })
		defer timer.Stop()
		cmd.Run() // the exit code says it
		return cmd.ProcessState.ExitCode(), out.String()
	}
	for what, c := range map[string]struct {
		toml    string
		environ []string
		args    []string
		names   []string
	}{
		"flag":              {"", nil, []string{"--cors-orgin", "https://a.example"}, []string{"cors-orgin"}},
		"environment":       {"", []string{"SNAKREAM_CORS_ORGIN=https://a.example"}, nil, []string{"SNAKREAM_CORS_ORGIN"}},
		"file":              {"cors-orgin = \"https://a.example\"\n", nil, nil, []string{"cors-orgin"}},
		"table in the file": {"[server]\ncors-origin = \"x\"\n", nil, nil, []string{"server"}},
		"argument":          {"", nil, []string{"surplus"}, []string{"surplus"}},
		"no file":           {"", nil, []string{"--config", filepath.Join(dir, "missing.toml")}, []string{"missing.toml"}},
		"no TOML":           {"= = =\n", nil, nil, []string{"config.toml"}},
		"bad value":         {"", nil, []string{"--max-body-bytes", "32 potatoes"}, []string{"max-body-bytes"}},
		"bad unit":          {"", []string{"SNAKREAM_LONG_POLL_TIMEOUT=20"}, nil, []string{"SNAKREAM_LONG_POLL_TIMEOUT"}},
		"empty value":       {"", nil, []string{"--log-format", ""}, []string{"log-format"}},
		"several": {"no-such-thing = 1\n", []string{"SNAKREAM_NO_SUCH_VARIABLE=1", "SNAKREAM_LOG_LEVEL=loud"}, []string{"--sse-heartbeat", "-5s"},
			[]string{"no-such-thing", "SNAKREAM_NO_SUCH_VARIABLE", "SNAKREAM_LOG_LEVEL", "sse-heartbeat"}},
		"too much memory":   {"", nil, []string{"--memtable-bytes", "1GiB", "--shards", "64"}, []string{"memory"}},
		"one exceeds other": {"", nil, []string{"--max-body-bytes", "64MiB", "--max-inflight-body-bytes", "32MiB"}, []string{"max-inflight-body-bytes"}},
	} {
		code, out := start(c.toml, c.environ, c.args...)
		if code != 2 {
			t.Errorf("%s: exit %d: %s", what, code, out)
		}
		for _, name := range c.names {
			if !strings.Contains(strings.ToLower(out), strings.ToLower(name)) {
				t.Errorf("%s: %q is not named in %s", what, name, out)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("a data directory was made")
	}
}

// What a client proves itself with is in no log and no metric.
func TestField151NoSecretsInLogs(t *testing.T) {
	f := onOwn(t, "--log-level", "debug")
	s := f.create(plain)
	const secret = "s3cr3t-of-a-client"
	fields := []string{"Authorization: Bearer " + secret, "Cookie: session=" + secret, "Proxy-Authorization: Basic " + secret, "X-Api-Key: " + secret}
	query := "access_token=" + secret
	for _, target := range []string{
		target(s) + "?" + query, target(s) + "?offset=x&" + query, target(s) + "?offset=-1&live=long-poll&timeout=0&" + query, target(f.name()) + "?" + query,
		"/v1/stream//" + secret + "?" + query, "/nothing?" + query, target(s) + "?offset=" + secret, "http://user:" + secret + "@host/",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"} {
			if method == "DELETE" && strings.HasPrefix(target, "/v1/stream/"+s) {
				continue
			}
			w := f.dial()
			w.head(method, target, fields...)
			if r := w.answer(0, method); strings.Contains(r.body, secret) {
				t.Errorf("%s %s: %v", method, target, r)
			}
			w.conn.Close()
		}
	}
	for _, broken := range []string{
		"GET /?" + query + " HTTP/1.1\r\nAuthorization : " + secret + "\r\n\r\n",
		"GET /?" + query + " HTTP/3.0\r\n\r\n",
		secret + "\x00\r\n\r\n",
		"POST " + target(s) + "?" + query + " HTTP/1.1\r\nHost: x\r\nAuthorization: " + secret + "\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		w := f.dial()
		w.send("%s", broken)
		w.try("GET") // whatever the answer is
		w.reset()
	}
	e := f.events(s, "offset=-1&"+query, fields...)
	e.control()
	e.wire.reset()
	if strings.Contains(f.daemon.metricsText(t), secret) {
		t.Error("the secret is in /metrics")
	}
	f.client.CloseIdleConnections()
	f.daemon.stop(t)
	log, err := os.ReadFile(f.daemon.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, secret) {
			t.Errorf("the log has the secret: %s", line)
		}
	}
}

// Names, methods and paths that clients make up cost no memory when they are over, and
// are in no metric.
func TestField152MadeUpNames(t *testing.T) {
	f := onOwn(t)
	f.create(plain)
	streams := f.daemon.metric(t, "snakream_streams")
	round := func(n int, first int) {
		f.together(4, func(i int) error {
			w := f.dial()
			const batch = 50
			for from := 0; from < n/4; from += batch {
				var requests strings.Builder
				for k := range batch {
					name := fmt.Sprintf("madeup-%d-%d-%d", first, i, from+k)
					switch k % 5 {
					case 0:
						fmt.Fprintf(&requests, "PUT /v1/stream/field/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", name)
					case 1:
						fmt.Fprintf(&requests, "DELETE /v1/stream/field/madeup-%d-%d-%d HTTP/1.1\r\nHost: x\r\n\r\n", first, i, from+k-1)
					case 2:
						fmt.Fprintf(&requests, "GET /v1/stream/%s HTTP/1.1\r\nHost: %s\r\n\r\n", name, name)
					case 3:
						fmt.Fprintf(&requests, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", name)
					case 4:
						fmt.Fprintf(&requests, "M%d /v1/stream/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", from+k, name)
					}
				}
				w.send("%s", requests.String())
				for k := range batch {
					r, err := w.try("GET")
					if want := []int{201, 204, 404, 404, 405}[k%5]; err != nil || r.status != want {
						return fmt.Errorf("request %d: want %d, got %v, %v", k, want, r, err)
					}
				}
			}
			w.conn.Close()
			return nil
		})
	}
	settled := func() (metrics int, state float64, rss int64) {
		f.client.CloseIdleConnections()
		f.eventually(wirePatience, "every other stream is gone", func() bool { return f.daemon.metric(t, "snakream_streams") <= streams })
		text := f.daemon.metricsText(t)
		if strings.Contains(text, "madeup") {
			t.Error("/metrics has names that clients made up")
		}
		return strings.Count(text, "\n"), f.daemon.metric(t, "snakream_state_bytes"), f.daemon.rss(t)
	}
	round(10_000, 0)
	lines, state, rss := settled()
	round(40_000, 1)
	linesAfter, stateAfter, rssAfter := settled()
	if linesAfter > lines+5 {
		t.Errorf("/metrics has grown from %d to %d lines", lines, linesAfter)
	}
	if stateAfter > state+10_000 {
		t.Errorf("state has grown from %v to %v bytes", state, stateAfter)
	}
	if rssAfter > rss+64<<20 {
		t.Errorf("memory has grown from %d to %d MiB", rss>>20, rssAfter>>20)
	}
}

// A body with a content coding is refused, not unpacked and not stored.
func TestField154ContentCodings(t *testing.T) {
	f := onShared(t, &ordinary)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 64 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	before := f.daemon.rss(t)
	for _, contentType := range []string{plain, jsonType, "application/octet-stream"} {
		s := f.create(contentType)
		for _, coding := range []string{"gzip", "GZIP", "br", "deflate", "zstd", "gzip, identity", "identity, gzip", "x-unknown"} {
			r := f.want(http.StatusUnsupportedMediaType, "POST", s, packed.String(), "Content-Type", contentType, "Content-Encoding", coding)
			if r.code() != "content_coding_not_supported" {
				t.Errorf("%s: %s", coding, r.body)
			}
			name := f.name()
			f.want(http.StatusUnsupportedMediaType, "PUT", name, packed.String(), "Content-Type", contentType, "Content-Encoding", coding)
			f.want(http.StatusNotFound, "HEAD", name, "")
		}
		tail := f.want(http.StatusOK, "HEAD", s, "").header.Get("Stream-Next-Offset")
		if tail != "00000000000000000000" {
			t.Errorf("%s: the stream has grown to %s", contentType, tail)
		}
		f.want(http.StatusNoContent, "POST", s, "1", "Content-Type", contentType, "Content-Encoding", "identity")
	}
	s := f.create(jsonType)
	if r := f.want(http.StatusBadRequest, "POST", s, packed.String(), "Content-Type", jsonType); r.code() != "invalid_json" {
		t.Errorf("packed JSON: %s", r.body)
	}
	if grown := f.daemon.rss(t) - before; grown > 256<<20 {
		t.Errorf("the server has grown by %d MiB", grown>>20)
	}
	// Nor is anything packed on the way out.
	if r := f.want(http.StatusOK, "GET", s, "", "Accept-Encoding", "gzip"); r.header.Get("Content-Encoding") != "" || r.body != "[]" {
		t.Errorf("%v", r)
	}
}

// What somebody stored does not run in a browser with the server's origin.
func TestField155StoredMarkup(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{
		"text/html", "text/html; charset=utf-8", "TEXT/HTML", "image/svg+xml", "application/xhtml+xml", "text/xml", "application/xml", "application/atom+xml",
		"text/javascript", "application/javascript", "text/css", "application/pdf", "application/x-shockwave-flash", "multipart/related; boundary=x", "text/vtt", "x/y",
	} {
		s := f.create(contentType)
		f.want(http.StatusNoContent, "POST", s, "<script>alert(1)</script>", "Content-Type", contentType)
		for _, url := range []string{s, s + "?offset=-1&live=long-poll", s + "?offset=now"} {
			r := f.want(http.StatusOK, "GET", url, "")
			f.has(r, "X-Content-Type-Options", "nosniff", "Content-Security-Policy", "default-src 'none'; sandbox", "Content-Disposition", "attachment")
		}
		f.has(f.want(http.StatusOK, "HEAD", s, ""), "X-Content-Type-Options", "nosniff")
	}
	for _, contentType := range []string{plain, jsonType, "application/octet-stream"} {
		s := f.create(contentType)
		f.has(f.want(http.StatusOK, "GET", s, ""), "X-Content-Type-Options", "nosniff")
	}
	// Nor can a URL or a header be made to come back as markup.
	r := f.want(http.StatusNotFound, "GET", f.name()+"/%3Cscript%3E", "")
	f.has(r, "Content-Type", "application/problem+json", "X-Content-Type-Options", "nosniff")
	if strings.Contains(r.body, "<script") {
		t.Errorf("%v", r)
	}
}

// A producer that does not wait for its answers gets on, on one connection and on five.
func TestField157PipelinedProducer(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	request := func(id string, seq int) string {
		body := fmt.Sprintf("%s%d.", id, seq)
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nProducer-Id: %s\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\nContent-Length: %d\r\n\r\n%s",
			target(s), id, seq, len(body), body)
	}
	want := func(id string, n int) (all string) {
		for i := range n {
			all += id + strconv.Itoa(i) + "."
		}
		return all
	}
	const one = 1000
	w := f.dial()
	done := make(chan error, 1)
	go func() {
		var all strings.Builder
		for seq := range one {
			all.WriteString(request("a", seq))
		}
		_, err := w.conn.Write([]byte(all.String()))
		done <- err
	}()
	for seq := range one {
		if r := w.answer(http.StatusOK, "POST"); r.header.Get("Producer-Seq") != strconv.Itoa(seq) {
			t.Fatalf("answer %d: %v", seq, r)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.holds(s, want("a", one))

	// Five connections, each slow in its own way; what came too early is sent again.
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const many, window = 1000, 5
	var conns []*wire
	for range window {
		conns = append(conns, f.dial())
	}
	requests := 0
	for base := 0; base < many; {
		// Everything in flight at once, in a random order of connections and sequence.
		n := min(window, many-base)
		order := rng.Perm(n)
		for i, k := range order {
			conns[i].send("%s", request("b", base+k))
		}
		next := base
		for i, k := range order {
			requests++
			r := conns[i].answer(0, "POST")
			switch {
			case r.status == http.StatusOK || r.status == http.StatusNoContent:
				next = max(next, base+k+1)
			case r.status == http.StatusConflict && r.header.Get("Producer-Received-Seq") == strconv.Itoa(base+k):
			default:
				t.Fatalf("seed %d: seq %d: %v", seed, base+k, r)
			}
		}
		if next == base && n > 0 {
			t.Fatalf("seed %d: nothing of [%d, %d) was taken", seed, base, base+n)
		}
		base = next
	}
	if requests > 5*many {
		t.Errorf("%d requests for %d writes", requests, many)
	}
	f.holds(s, want("a", one)+want("b", many))
}
