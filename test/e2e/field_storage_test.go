//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What was acknowledged as deleted stays deleted through a crash and through merges, and
// its bytes leave the disk.
func TestField128DeletedStaysDeleted(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "256KiB", "--segment-max-bytes", "512KiB", "--erase-within", "2s")
	for round := range 3 {
		marker := fmt.Sprintf("private data of round %d. ", round)
		var gone []string
		for range 5 {
			s := f.create(plain)
			for range 3 {
				f.text(s, strings.Repeat(marker, 10_000))
			}
			gone = append(gone, s)
		}
		kept := f.create(plain)
		f.text(kept, "kept")
		var wg sync.WaitGroup
		f.condemn()
		for i := range 3 { // keeps flushes and merges going until the crash
			wg.Go(func() {
				for {
					if _, err := f.once("PUT", fmt.Sprintf("busy/%d-%d", i, names.Add(1)), strings.Repeat("b", 20_000), nil); err != nil {
						return
					}
				}
			})
		}
		for _, s := range gone {
			f.want(http.StatusNoContent, "DELETE", s, "")
		}
		f.daemon.kill(t)
		wg.Wait()
		f.client.CloseIdleConnections()
		f.daemon.start(t)
		for _, s := range gone {
			f.want(http.StatusNotFound, "HEAD", s, "")
			f.want(http.StatusNotFound, "GET", s, "")
		}
		f.holds(kept, "kept")
		f.eventually(60*time.Second, "the bytes have left the disk", func() bool {
			f.text(kept, "x") // time passes for a shard when something happens
			return !f.onDisk(marker)
		})
		for _, s := range gone {
			f.want(http.StatusNotFound, "HEAD", s, "")
			f.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)
			f.holds(s, "")
		}
	}
}

// Slow readers of many streams each get their own stream's bytes, whatever is written
// meanwhile.
func TestField130NobodyElsesBytes(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "512KiB", "--segment-max-bytes", "1MiB")
	const streams, size = 60, 900_000
	pattern := func(i int) string { return fmt.Sprintf("stream %02d ", i) }
	paths := make([]string, streams)
	for i := range paths {
		paths[i] = f.create(plain)
		for range 3 {
			f.text(paths[i], strings.Repeat(pattern(i), size/3/len(pattern(i))))
		}
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			s := fmt.Sprintf("noise/%d-%d", i, names.Add(1))
			if r, err := f.once("PUT", s, "", []string{"Content-Type", plain}); err != nil || r.status != http.StatusCreated {
				t.Errorf("%v, %v", r, err)
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r, err := f.once("POST", s, strings.Repeat("noise ", 20_000), []string{"Content-Type", plain}); err != nil || r.status != http.StatusNoContent && r.status != http.StatusServiceUnavailable {
					t.Errorf("%v, %v", r, err)
					return
				}
			}
		})
	}
	f.together(streams*2, func(i int) error {
		n := i % streams
		var body io.Reader
		if i < streams {
			w := f.dial()
			w.conn.SetReadBuffer(16 << 10)
			w.head("GET", target(paths[n]))
			resp, err := http.ReadResponse(w.r, nil)
			if err != nil {
				return err
			}
			body = resp.Body
		} else {
			e, err := f.tryEvents(paths[n], "offset=-1")
			if err != nil {
				return err
			}
			e.conn.SetReadBuffer(16 << 10)
			body = &eventData{e: e}
		}
		want := strings.Repeat(pattern(n), 3*(size/3/len(pattern(n))))
		buf := make([]byte, 32<<10)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for len(want) > 0 {
			k, err := io.ReadFull(body, buf[:min(len(buf), len(want))])
			if string(buf[:k]) != want[:k] {
				return fmt.Errorf("reader %d: %s", i, differ(string(buf[:k]), want[:k]))
			}
			if want = want[k:]; err != nil {
				return err
			}
			<-tick.C
		}
		return nil
	})
	close(stop)
	writers.Wait()
}

// eventData is the data of an event stream as a reader.
type eventData struct {
	e    *events
	rest string
}

func (d *eventData) Read(p []byte) (int, error) {
	for d.rest == "" {
		ev, err := d.e.try(wirePatience)
		if err != nil {
			return 0, err
		}
		if ev.name == "data" {
			d.rest = ev.data
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// Clients that vanish right after their request disturb nobody, and what they sent is
// there wholly or not at all.
func TestField133VanishingClients(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	const vanishing, staying = 300, 300
	var mu sync.Mutex
	var took []time.Duration
	f.together(8, func(i int) error {
		if i < 4 {
			for n := range vanishing / 4 {
				body := fmt.Sprintf("<vanished %d-%d %s>", i, n, strings.Repeat("v", 500))
				w := f.dial()
				w.head("POST", target(s), "Content-Type: text/plain", fmt.Sprint("Content-Length: ", len(body)))
				w.send("%s", body)
				w.reset()
			}
			return nil
		}
		for n := range staying / 4 {
			began := time.Now()
			r, err := f.once("POST", s, fmt.Sprintf("<stayed %d-%d>", i, n), []string{"Content-Type", plain})
			if err != nil || r.status != http.StatusNoContent {
				return fmt.Errorf("%v, %v", r, err)
			}
			mu.Lock()
			took = append(took, time.Since(began))
			mu.Unlock()
		}
		return nil
	})
	slices.Sort(took) // the disk may stand still once by itself
	if late := took[len(took)*99/100]; late > 2*time.Second {
		t.Errorf("one of a hundred appends took %v", late)
	}
	content := f.want(http.StatusOK, "GET", s, "").body
	seen := map[string]int{}
	for record := range strings.SplitAfterSeq(content, ">") {
		whole := strings.HasPrefix(record, "<stayed ") || strings.HasPrefix(record, "<vanished ") && strings.HasSuffix(record, strings.Repeat("v", 500)+">")
		if record != "" && !whole {
			t.Fatalf("not a whole record: %.80q", record)
		}
		seen[record]++
	}
	for i := 4; i < 8; i++ {
		for n := range staying / 4 {
			if record := fmt.Sprintf("<stayed %d-%d>", i, n); seen[record] != 1 {
				t.Errorf("%s is there %d times", record, seen[record])
			}
		}
	}
	f.text(s, "the stream goes on")
}

// A restart changes nothing of what is said about a stream.
func TestField134MetadataSurvives(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB", "--shards", "2")
	source := f.create("text/plain; charset=utf-8", "Stream-TTL", "5000")
	f.want(http.StatusOK, "POST", source, "content", with(tuple("p", 3, 0), []string{"Content-Type", plain, "Stream-Seq", "seq-9"})...)
	streams := []string{
		source,
		f.create(`application/json;Charset="UTF-8"`),
		f.create("application/octet-stream", "Stream-Expires-At", "2100-06-01T12:00:00.123Z"),
		f.create(plain, "Stream-Closed", "true"),
		f.forkOf(source, "Stream-Fork-Offset", "0", "Stream-Fork-Sub-Offset", "3"),
		f.create(plain),
	}
	f.want(http.StatusNoContent, "POST", streams[1], `[1,2]`, "Content-Type", jsonType)
	f.want(http.StatusNoContent, "POST", streams[5], "x", "Content-Type", plain, "Stream-Closed", "true")
	held := f.create(plain)
	keeper := f.forkOf(held)
	f.want(http.StatusNoContent, "DELETE", held, "")
	look := func() (all []string) {
		for _, s := range streams {
			for _, r := range []answer{f.want(http.StatusOK, "HEAD", s, ""), f.want(http.StatusOK, "GET", s, "")} {
				r.header.Del("Date")
				all = append(all, fmt.Sprint(s, r.header, r.body))
			}
		}
		r := f.want(http.StatusConflict, "POST", source, "x", "Content-Type", plain, "Stream-Seq", "seq-10")
		all = append(all, r.header.Get("Stream-Last-Seq"))
		r = f.produce(http.StatusForbidden, source, "x", "p", 2, 0)
		all = append(all, r.header.Get("Producer-Epoch"))
		r = f.produce(http.StatusNoContent, source, "x", "p", 3, 0)
		all = append(all, r.header.Get("Stream-Offset"), r.header.Get("Stream-Next-Offset"))
		f.want(http.StatusGone, "HEAD", held, "")
		f.want(http.StatusOK, "PUT", streams[4], "", "Stream-Forked-From", target(source), "Stream-Fork-Offset", "0", "Stream-Fork-Sub-Offset", "3")
		f.want(http.StatusConflict, "PUT", streams[4], "", "Stream-Forked-From", target(source), "Stream-Fork-Offset", "0", "Stream-Fork-Sub-Offset", "2")
		f.want(http.StatusOK, "PUT", streams[2], "", "Stream-Expires-At", "2100-06-01T12:00:00.123Z")
		f.want(http.StatusConflict, "PUT", streams[2], "", "Stream-Expires-At", "2100-06-01T12:00:00.124Z")
		return all
	}
	before := look()
	check := func() {
		t.Helper()
		if after := look(); !slices.Equal(after, before) {
			for i := range before {
				if after[i] != before[i] {
					t.Errorf("before:\n%s\nafter:\n%s", before[i], after[i])
				}
			}
		}
	}
	f.restart()
	check()
	f.text(f.create(plain), strings.Repeat("f", 100_000)) // from the log to segments
	f.eventually(wirePatience, "a segment", func() bool { return f.daemon.metric(t, "snakream_segments") > 0 })
	check()
	f.client.CloseIdleConnections()
	f.daemon.stop(t)
	f.daemon.start(t)
	check()
	f.want(http.StatusNoContent, "DELETE", keeper, "")
	f.eventually(wirePatience, "the name is free", func() bool { return !f.held(held) })
}
