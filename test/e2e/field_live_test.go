//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Event streams end when they are old, after a control event, and whoever resumes misses
// nothing; a slow reader is not a dead one.
func TestField77OldStreams(t *testing.T) {
	f := onShared(t, &brisk)
	s := f.create(plain)
	e := f.events(s, "offset=-1")
	c := e.control()
	began := time.Now()
	for e.comments < 2 { // it has been idle for longer than a heartbeat
		if _, err := e.in.Peek(1); err != nil {
			t.Fatal(err)
		}
		if line, err := e.in.ReadString('\n'); err != nil || line != ": heartbeat\n" && line != "\n" {
			t.Fatalf("%q, %v", line, err)
		} else if line != "\n" {
			e.comments++
		}
	}
	f.text(s, "late.")
	if data, c := e.data(); data != "late." || !c.UpToDate {
		t.Errorf("%q, %+v", data, c)
	}
	var err error
	var ev event
	for err == nil {
		var next event
		if next, err = e.try(wirePatience); err == nil {
			ev = next
		}
	}
	if err != io.EOF {
		t.Fatalf("the stream was cut: %v", err)
	}
	if c, err = ev.control(); err != nil || !c.UpToDate || c.Closed || c.Next != fmt.Sprintf("%020d", 5) {
		t.Errorf("the last event: %+v, %v", ev, err)
	}
	if life := time.Since(began); life < 2500*time.Millisecond || life > 8*time.Second { // 3 s, more or less a tenth
		t.Errorf("it lived for %v", life)
	}
	f.text(s, "later.")
	if data, _ := f.events(s, "offset="+c.Next).data(); data != "later." {
		t.Errorf("resumed: %q", data)
	}

	// 24 MB for readers who take a few seconds, each in its own mode.
	big := f.create(plain)
	piece := strings.Repeat("0123456789abcdef", 1<<16)
	const pieces = 24
	for range pieces {
		f.text(big, piece)
	}
	f.together(2, func(i int) error {
		if i == 0 {
			w := f.dial()
			w.head("GET", target(big))
			n, err := slowly(w, pieces*len(piece))
			if err != nil {
				return fmt.Errorf("a slow GET: %d bytes, %w", n, err)
			}
			return nil
		}
		offset, got := "-1", 0
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for streams := 0; got < pieces*len(piece); streams++ {
			e, err := f.tryEvents(big, "offset="+offset)
			if err != nil {
				return err
			}
			for {
				ev, err := e.try(wirePatience)
				if err == io.EOF && streams < 20 {
					break
				}
				if err != nil {
					return fmt.Errorf("a slow event stream, at %d: %w", got, err)
				}
				if ev.name == "data" {
					got += len(ev.data)
				} else if c, err := ev.control(); err != nil {
					return err
				} else if offset = c.Next; c.UpToDate {
					break
				}
				<-tick.C
			}
			e.conn.Close()
		}
		if got != pieces*len(piece) {
			return fmt.Errorf("a slow event stream: %d bytes", got)
		}
		return nil
	})
}

// slowly reads an answer in about four seconds and returns the length of its body.
func slowly(w *wire, size int) (n int64, err error) {
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		w.conn.SetDeadline(time.Now().Add(wirePatience))
		m, err := io.CopyN(io.Discard, resp.Body, int64(size/100))
		n += m
		if err == io.EOF && n == int64(size) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		<-tick.C
	}
}

// A reader that takes nothing holds nobody up, costs little, and is cut.
func TestField79SlowSubscriber(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "4MiB", "--wal-file-bytes", "4MiB")
	s := f.create("application/octet-stream")
	const writes, size, normal = 60, 400_000, 10
	var stuck []*events
	for range 5 {
		e := f.events(s, "offset=-1")
		e.control()
		e.conn.SetReadBuffer(4 << 10)
		stuck = append(stuck, e)
	}
	before, files := f.daemon.rss(t), f.daemon.descriptors(t)
	body := strings.Repeat("x", size)
	began := time.Now()
	f.together(normal+1, func(i int) error {
		if i == normal {
			for range writes {
				if r, err := f.once("POST", s, body, []string{"Content-Type", "application/octet-stream"}); err != nil || r.status != http.StatusNoContent {
					return fmt.Errorf("%v, %v", r, err)
				}
			}
			return nil
		}
		e, err := f.tryEvents(s, "offset=-1")
		if err != nil {
			return err
		}
		defer e.conn.Close()
		for got := 0; got < writes*size; {
			ev, err := e.try(wirePatience)
			if err != nil {
				return fmt.Errorf("at %d of %d: %w", got, writes*size, err)
			}
			if ev.name == "data" {
				got += len(ev.data)*3/4 - strings.Count(ev.data[len(ev.data)-2:], "=")
			}
		}
		return nil
	})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the readers that read had everything after %v", took)
	}
	if grown := f.daemon.rss(t) - before; grown > 200<<20 {
		t.Errorf("the server grew by %d MiB", grown>>20)
	}
	// It takes fifteen seconds without an octet taken until they are cut.
	f.client.CloseIdleConnections()
	f.eventually(40*time.Second, "the readers that take nothing are cut", func() bool {
		return f.daemon.metric(t, "snakream_slow_consumers_total") >= float64(len(stuck)) && f.daemon.metric(t, "snakream_live_readers") == 0
	})
	f.eventually(wirePatience, "their descriptors are closed", func() bool { return f.daemon.descriptors(t) <= files })
	for _, e := range stuck {
		e.conn.Close()
	}
}

// A stop ends every reader properly, not all at the same moment, keeps what was
// acknowledged, and exits with 0.
func TestField80Shutdown(t *testing.T) {
	f := onOwn(t)
	s, quiet := f.create(plain), f.create(plain)
	const each = 100
	type farewell struct {
		at  time.Time
		err error
	}
	farewells := make(chan farewell, 2*each)
	for range each {
		e := f.events(s, "offset=now")
		e.control()
		go func() {
			var last event
			for {
				e.conn.SetDeadline(time.Now().Add(wirePatience))
				ev, err := e.read()
				if err == nil && ev.name != "data" {
					last = ev
					continue
				}
				if err == nil {
					continue
				}
				if err == io.EOF {
					err = nil
				}
				if last.name != "end" || !strings.Contains(last.data, `"code":"draining"`) {
					err = fmt.Errorf("the last event: %+v, %w", last, err)
				}
				farewells <- farewell{time.Now(), err}
				return
			}
		}()
		w := f.dial()
		w.head("GET", target(quiet)+"?offset=now&live=long-poll&timeout=60")
		go func() {
			r, err := w.try("GET")
			if err == nil && (r.status != http.StatusNoContent || r.header.Get("Connection") != "close") {
				err = fmt.Errorf("a long-poll: %v", r)
			}
			farewells <- farewell{time.Now(), err}
		}()
	}
	f.waitFor(2 * each)
	var acked strings.Builder
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			r, err := f.once("POST", s, fmt.Sprintf("%d.", i), []string{"Content-Type", plain})
			if err != nil || r.status == http.StatusServiceUnavailable {
				return
			}
			if r.status != http.StatusNoContent {
				t.Errorf("a write during the stop: %v", r)
				return
			}
			fmt.Fprintf(&acked, "%d.", i)
		}
	})
	f.eventually(wirePatience, "some writes are acknowledged", func() bool { return f.daemon.metric(t, "snakream_appends_total") > 20 })
	began := time.Now()
	f.daemon.stop(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
	wg.Wait()
	buckets := map[time.Duration]int{}
	for range 2 * each {
		bye := <-farewells
		if bye.err != nil {
			t.Fatal(bye.err)
		}
		buckets[bye.at.Sub(began)/(200*time.Millisecond)]++
	}
	for at, n := range buckets {
		if n > each {
			t.Errorf("%d of %d readers left in one fifth of a second, %v after the signal", n, 2*each, at*200*time.Millisecond)
		}
	}
	f.client.CloseIdleConnections()
	f.daemon.start(t)
	content := f.want(http.StatusOK, "GET", s, "").body
	if !strings.HasPrefix(content, acked.String()) {
		t.Error("acknowledged writes are missing:", differ(content, acked.String()))
	}
	checkLog(t, f.daemon)
}

// An open event stream does not end at once, and no cache keeps it.
func TestField82NoTightLoop(t *testing.T) {
	f := onShared(t, &brisk)
	s := f.create(plain)
	for _, offset := range []string{"-1", "now"} {
		began := time.Now()
		e := f.events(s, "offset="+offset)
		if cc := e.header.Get("Cache-Control"); !strings.Contains(cc, "no-cache") && !strings.Contains(cc, "no-store") {
			t.Errorf("Cache-Control: %q", cc)
		}
		for {
			ev, err := e.try(wirePatience)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if c, err := ev.control(); err != nil || c.Closed {
				t.Fatalf("%+v, %v", ev, err)
			}
		}
		if life := time.Since(began); life < 2500*time.Millisecond {
			t.Errorf("an open stream ended after %v", life)
		}
	}
}
