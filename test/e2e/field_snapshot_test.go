//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bucketed asks about what lies below a stream, which is on /ds only.
func (f *field) bucketed(ctx context.Context, method, stream, below string, body io.Reader, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.daemon.url()+"/ds/"+stream+below, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return f.client.Do(req)
}

// about sends a request to a path below a stream on /ds.
func (f *field) about(method, stream, below, body string, header ...string) (answer, error) {
	resp, err := f.bucketed(f.Context(), method, stream, below, strings.NewReader(body), header...)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// wantAbout is about with the status that must come back.
func (f *field) wantAbout(status int, method, stream, below, body string, header ...string) answer {
	f.Helper()
	r, err := f.withRoom(status, func() (answer, error) { return f.about(method, stream, below, body, header...) })
	if err != nil || r.status != status {
		f.Fatalf("%s %s%s: want %d, got %v, %v", method, stream, below, status, r, err)
	}
	return r
}

// boot is a bootstrap that has been taken apart.
type boot struct {
	answer
	at       int // the snapshot's offset, -1 for none
	snapshot string
	messages []string
	next     int
}

// bootstrap reads a bootstrap and checks what every one promises.
func (f *field) bootstrap(stream string) (boot, error) {
	r, err := f.about("GET", stream, "/bootstrap", "")
	if err != nil {
		return boot{}, err
	}
	if r.status != http.StatusOK {
		return boot{}, fmt.Errorf("bootstrap: %v", r)
	}
	b := boot{answer: r}
	parts, err := partsOf(r.header.Get("Content-Type"), strings.NewReader(r.body))
	if err != nil {
		return boot{}, err
	}
	b.snapshot, b.messages = parts[0], parts[1:]
	b.at, err = r.number("Stream-Snapshot-Offset")
	if err != nil {
		return boot{}, err
	}
	if b.next, err = r.number("Stream-Next-Offset"); err != nil {
		return boot{}, err
	}
	if b.at >= 0 && r.header.Get("Stream-Snapshot-Digest") != digestOf(b.snapshot) {
		return boot{}, fmt.Errorf("the digest is not that of the %d bytes of the snapshot", len(b.snapshot))
	}
	if size := len(strings.Join(b.messages, "")); max(b.at, 0)+size != b.next {
		return boot{}, fmt.Errorf("from %d on there are %d bytes, and reading goes on at %d", b.at, size, b.next)
	}
	return b, nil
}

// partsOf reads a multipart body by Go's parser, and its lengths.
func partsOf(contentType string, body io.Reader) ([]string, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/mixed" {
		return nil, fmt.Errorf("the type is %s: %w", contentType, err)
	}
	var parts []string
	for r := multipart.NewReader(body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF && len(parts) > 0 {
			return parts, nil
		}
		if err != nil {
			return parts, err
		}
		b, err := io.ReadAll(p)
		if err != nil {
			return parts, err
		}
		if length := p.Header.Get("Content-Length"); length != strconv.Itoa(len(b)) {
			return parts, fmt.Errorf("a part of %d bytes says %s", len(b), length)
		}
		parts = append(parts, string(b))
	}
}

// numbered are lines of one length, from line first to the one before next, so that an offset is a number.
func numbered(first, next int) string {
	var b strings.Builder
	for n := first; n < next; n++ {
		fmt.Fprintf(&b, "%0*d\n", lineSize-1, n)
	}
	return b.String()
}

const lineSize = 20

// imageAt is the snapshot of the lines up to an offset, of some size.
func imageAt(offset, size int) string {
	rng := rand.New(rand.NewPCG(uint64(offset), 110))
	block := fmt.Sprintf("up to %d: %x %x\n", offset, rng.Uint64(), rng.Uint64())
	return strings.Repeat(block, size/len(block)+1)
}

// However often the machine crashes: a snapshot is whole or not there, it and the trim come together,
// and behind it is exactly the rest.
func TestField110CrashWhilePublishing(t *testing.T) {
	f := onOwn(t)
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	const size = 6 << 20
	s := f.create(plain)
	began := time.Now()
	f.text(s, numbered(0, 1))
	f.wantAbout(http.StatusNoContent, "PUT", s, "/snapshot/"+strconv.Itoa(lineSize), imageAt(lineSize, size))
	within := int64(2 * time.Since(began)) // so that some rounds publish something, and others end in it
	lines, acked := 1, lineSize            // of lines, of the snapshot
	for round := range 12 {
		kill := time.AfterFunc(time.Duration(rng.Int64N(within)), func() { f.daemon.cmd.Process.Kill() })
		tried := acked
		for {
			r, err := f.once("POST", s, numbered(lines, lines+1), []string{"Content-Type", plain})
			if err != nil || r.status != http.StatusNoContent {
				break
			}
			lines++
			tried = lines * lineSize
			r, err = f.about("PUT", s, "/snapshot/"+strconv.Itoa(tried), imageAt(tried, size))
			if err != nil || r.status != http.StatusNoContent {
				break
			}
			acked = tried
		}
		kill.Stop()
		f.daemon.kill(t)
		f.client.CloseIdleConnections()
		for _, junk := range []string{"tmp/0000.tmp", "tmp/junk", "zz.tmp"} {
			path := filepath.Join(f.daemon.dir, "blobs", junk)
			if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f.daemon.start(t)

		where := fmt.Sprintf("seed %d, round %d, %d lines, snapshot %d acknowledged, %d tried", seed, round, lines, acked, tried)
		tail, err := f.want(http.StatusOK, "HEAD", s, "").number("Stream-Next-Offset")
		if err != nil || tail%lineSize != 0 || tail/lineSize < lines || tail/lineSize > lines+1 {
			t.Fatalf("%s: the tail is %d, %v", where, tail, err)
		}
		lines = tail / lineSize
		b, err := f.bootstrap(s)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if b.at != acked && b.at != tried {
			t.Fatalf("%s: the snapshot is that of %d", where, b.at)
		}
		if acked = b.at; b.snapshot != imageAt(acked, size) {
			t.Fatalf("%s: the snapshot of %d is damaged", where, acked)
		}
		if err := sameBytes(strings.Join(b.messages, ""), numbered(acked/lineSize, lines)); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		latest := f.wantAbout(http.StatusOK, "GET", s, "/snapshot", "") // through its redirect
		if latest.body != b.snapshot {
			t.Fatalf("%s: the latest snapshot differs from that of the bootstrap", where)
		}
		gone := f.want(http.StatusGone, "GET", s+"?offset=-1", "")
		if earliest, err := gone.number("Stream-Earliest-Offset"); err != nil || earliest != acked {
			t.Fatalf("%s: the stream begins at %d, %v", where, earliest, err)
		}
	}
	if acked == lineSize {
		t.Errorf("seed %d: no round has published anything", seed)
	}
}

// A strict parser gets the bytes that were written, or an error.
func TestField112StrictParsers(t *testing.T) {
	f := onOwn(t, "--max-body-bytes", "1MiB", "--wal-file-bytes", "4MiB")
	s := f.create("application/octet-stream")
	first, err := f.bootstrap(s)
	if err != nil {
		t.Fatal(err)
	}
	_, params, _ := mime.ParseMediaType(first.header.Get("Content-Type"))
	noise := make([]byte, 1<<20)
	for i, rng := 0, rand.New(rand.NewPCG(112, 0)); i < len(noise); i++ {
		noise[i] = byte(rng.Uint32())
	}
	payloads := []string{
		"\r\n", "\n", "\r", "\n--", "\r\n--", "--", "-", "\x00", "no newline", "a newline\n", "a line end\r\n", "\r\n\r\n",
		"--" + params["boundary"], "\r\n--" + params["boundary"] + "--\r\n", "\r\n--" + params["boundary"] + "\r\n\r\n",
		first.body, string(noise),
	}
	for _, p := range payloads {
		f.want(http.StatusNoContent, "POST", s, p, "Content-Type", "application/octet-stream")
	}
	b, err := f.bootstrap(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.messages) != len(payloads) || b.at != -1 || b.snapshot != "" {
		t.Fatalf("%d messages behind %q at %d", len(b.messages), b.snapshot, b.at)
	}
	for i, p := range payloads {
		if err := sameBytes(b.messages[i], p); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if got, _, _ := strings.Cut(b.header.Get("Content-Type"), "boundary="); got != "multipart/mixed; " {
		t.Errorf("the type is %s", b.header.Get("Content-Type"))
	}

	// A bootstrap that the server cannot finish, because it dies, is not taken for a whole one.
	for range 24 {
		f.want(http.StatusNoContent, "POST", s, string(noise), "Content-Type", "application/octet-stream")
	}
	resp, err := f.bucketed(t.Context(), "GET", s, "/bootstrap", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	begun := make([]byte, 64<<10)
	if _, err := io.ReadFull(resp.Body, begun); err != nil {
		t.Fatal(err)
	}
	f.daemon.kill(t)
	parts, err := partsOf(resp.Header.Get("Content-Type"), io.MultiReader(bytes.NewReader(begun), resp.Body))
	if err == nil {
		t.Errorf("%d parts of %d were taken for all", len(parts), 1+len(payloads)+24)
	}
	f.client.CloseIdleConnections()
	f.daemon.start(t)
}

// Snapshot, tail and live tail meet, whoever writes and publishes meanwhile.
func TestField113SnapshotAndTailMeet(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var written atomic.Int64 // lines
	var published atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if r, err := f.once("POST", s, numbered(n, n+1), []string{"Content-Type", plain}); err != nil || r.status != http.StatusNoContent {
				t.Errorf("line %d: %v, %v", n, r, err)
				return
			}
			written.Store(int64(n) + 1)
			pause(ctx, time.Millisecond)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			at := int(written.Load()) * lineSize
			if r, err := f.about("PUT", s, "/snapshot/"+strconv.Itoa(at), imageAt(at, 1000)); err != nil || r.status != http.StatusNoContent {
				t.Errorf("publishing at %d: %v, %v", at, r, err)
				return
			}
			published.Add(1)
			pause(ctx, 5*time.Millisecond)
		}
	})
	loops := 0
	for ; ctx.Err() == nil && !t.Failed(); loops++ {
		b, err := f.bootstrap(s)
		if err != nil {
			t.Error(err)
			break
		}
		if b.at >= 0 && b.snapshot != imageAt(b.at, 1000) {
			t.Errorf("the snapshot of %d is another", b.at)
		}
		if err := sameBytes(strings.Join(b.messages, ""), numbered(max(b.at, 0)/lineSize, b.next/lineSize)); err != nil {
			t.Errorf("behind %d: %v", b.at, err)
		}
		if err := f.goesOn(s, b.next); err != nil {
			t.Error(err)
		}
	}
	stop()
	wg.Wait()
	if loops < 5 || published.Load() < 20 || written.Load() < 100 {
		t.Errorf("%d loops over %d snapshots of %d lines", loops, published.Load(), written.Load())
	}
	f.refusedSnapshots(s)
	f.oneWinner(s)
}

// goesOn follows a stream of numbered lines for a while from an offset.
func (f *field) goesOn(stream string, from int) error {
	e, err := f.tryEvents(stream, "offset="+strconv.Itoa(from))
	if err != nil && strings.Contains(err.Error(), `"code":"offset_trimmed"`) {
		return nil // overtaken by a snapshot; the next bootstrap shows that there is no gap
	}
	if err != nil {
		return err
	}
	defer e.conn.Close()
	var got strings.Builder
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		ev, err := e.try(time.Second)
		if isTimeout(err) {
			break
		}
		if err != nil {
			return err
		}
		if ev.name == "data" {
			got.WriteString(ev.data)
		}
		if ev.name == "end" {
			break
		}
	}
	first := from / lineSize
	return sameBytes(got.String(), numbered(first, first+got.Len()/lineSize))
}

// refusedSnapshots tries the places that a snapshot cannot be at.
func (f *field) refusedSnapshots(s string) {
	f.Helper()
	tail := f.text(s, "end of 17 bytes.\n").header.Get("Stream-Next-Offset")
	at, err := strconv.Atoi(tail)
	if err != nil {
		f.Fatal(err)
	}
	place := func(offset int) string { return "/snapshot/" + strconv.Itoa(offset) }
	f.wantAbout(http.StatusNoContent, "PUT", s, place(at), "state")
	again := f.wantAbout(http.StatusNoContent, "PUT", s, place(at), "state")
	f.has(again, "Stream-Snapshot-Digest", digestOf("state"), "Stream-Snapshot-Offset", tail)
	other := f.wantAbout(http.StatusConflict, "PUT", s, place(at), "other")
	f.has(other, "Stream-Snapshot-Digest", digestOf("state"), "Stream-Snapshot-Offset", tail)
	f.wantAbout(http.StatusConflict, "PUT", s, place(at+1), "beyond")
	f.wantAbout(http.StatusGone, "PUT", s, place(at-17), "below")
	f.text(s, "more")
	f.wantAbout(http.StatusBadRequest, "PUT", s, place(at+1), "inside")
	f.wantAbout(http.StatusConflict, "PUT", s, place(at+5), "beyond")
	f.wantAbout(http.StatusGone, "GET", s, "?offset=0", "")
	if b, err := f.bootstrap(s); err != nil || b.at != at || b.snapshot != "state" || len(b.messages) != 1 {
		f.Errorf("after all these: %+v, %v", b, err)
	}
}

// oneWinner lets many publish different states of one offset at once.
func (f *field) oneWinner(s string) {
	f.Helper()
	tail, err := strconv.Atoi(f.want(http.StatusOK, "HEAD", s, "").header.Get("Stream-Next-Offset"))
	if err != nil {
		f.Fatal(err)
	}
	var mu sync.Mutex
	var winner string
	named := map[string]bool{} // by those who lost
	f.together(16, func(i int) error {
		body := imageAt(i, 100_000)
		r, err := f.about("PUT", s, "/snapshot/"+strconv.Itoa(tail), body, "Stream-Snapshot-Digest", digestOf(body))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.status == http.StatusNoContent && winner == "":
			winner = body
		case r.status == http.StatusConflict && r.code() == "snapshot_conflict":
			named[r.header.Get("Stream-Snapshot-Digest")] = true
		default:
			return fmt.Errorf("a second winner, or neither: %v", r)
		}
		return nil
	})
	if len(named) != 1 || !named[digestOf(winner)] {
		f.Errorf("those who lost were told of %v", named)
	}
	if b, err := f.bootstrap(s); err != nil || b.snapshot != winner {
		f.Errorf("the winner is not what is there: %v", err)
	}
}
