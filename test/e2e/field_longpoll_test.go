//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A cursor that comes back is greater than the one that was sent.
func TestField61CursorsGoForward(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	end := f.text(s, "data").header.Get("Stream-Next-Offset")
	current := func() int64 { return time.Since(time.Date(2024, 10, 9, 0, 0, 0, 0, time.UTC)).Milliseconds() / 20_000 }
	ask := func(offset, cursor, live string) int64 {
		t.Helper()
		query := "offset=" + offset
		if cursor != "" {
			query += "&cursor=" + cursor
		}
		var got string
		if live == "sse" {
			got = ""
			e := f.events(s, query)
			for got == "" {
				if ev := e.next(); ev.name == "control" {
					c, err := ev.control()
					if err != nil {
						t.Fatal(err)
					}
					got = c.Cursor
				}
			}
			e.conn.Close()
		} else {
			r, err := f.once("GET", s+"?"+query+"&live=long-poll&timeout_ms=0", "", nil)
			if err != nil || r.status/100 != 2 {
				t.Fatalf("%s: %v, %v", query, r, err)
			}
			got = r.header.Get("Stream-Cursor")
		}
		n, err := strconv.ParseInt(got, 10, 64)
		if err != nil {
			t.Fatalf("%s: cursor %q", query, got)
		}
		return n
	}
	steps := map[int64]bool{}
	for _, offset := range []string{"-1", end, "now"} {
		for _, live := range []string{"long-poll", "sse"} {
			for _, bad := range []string{"", "abc", "-1", "1.5", strings.Repeat("9", 400), "0", "1", "%00"} {
				before := current()
				if got := ask(offset, bad, live); got < before || got > current() {
					t.Errorf("%s at %s: cursor %q made %d, the interval is %d", live, offset, bad, got, current())
				}
			}
			for _, from := range []int64{current(), current() + 1, current() + 3600, 1 << 53} {
				last := from
				for range 8 {
					got := ask(offset, strconv.FormatInt(last, 10), live)
					if got <= last || got > last+180 {
						t.Fatalf("%s at %s: cursor %d made %d", live, offset, last, got)
					}
					steps[got-last] = true
					last = got
				}
			}
		}
	}
	if len(steps) < 10 {
		t.Errorf("the steps are not random: %v", steps)
	}
	f.want(http.StatusBadRequest, "GET", s+"?offset=-1&live=long-poll&cursor=", "")
}

// Every waiting reader gets what is appended, and soon.
func TestField62EverybodyIsWoken(t *testing.T) {
	f := onShared(t, &ordinary)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	s := f.create(plain)
	tail := f.text(s, "before.").header.Get("Stream-Next-Offset")
	const each = 60
	var polls []*wire
	var streams []*events
	for range each {
		w := f.dial()
		w.head("GET", target(s)+"?live=long-poll&offset="+tail)
		polls = append(polls, w)
		e := f.events(s, "offset="+tail)
		e.control()
		streams = append(streams, e)
	}
	pause(t.Context(), time.Duration(rng.IntN(50))*time.Millisecond)
	began := time.Now()
	f.text(s, "now.")
	for i := range each {
		if r := polls[i].answer(http.StatusOK, "GET"); r.body != "now." {
			t.Fatalf("long-poll %d: %v", i, r)
		}
		if data, c := streams[i].data(); data != "now." || !c.UpToDate {
			t.Fatalf("SSE %d: %q, %+v", i, data, c)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("seed %d: it took %v until the last of %d readers had the data", seed, took, 2*each)
	}

	// The append comes at the moment when the reader begins to wait.
	single := f.create(plain)
	tail = "-1"
	for round := range 300 {
		var poll answer
		f.together(2, func(i int) (err error) {
			if i == 0 {
				poll, err = f.once("GET", single+"?live=long-poll&timeout=20&offset="+tail, "", nil)
				return err
			}
			_, err = f.once("POST", single, "x", []string{"Content-Type", plain})
			return err
		})
		if poll.status != http.StatusOK || poll.body != "x" {
			t.Fatalf("round %d: %v", round, poll)
		}
		tail = poll.header.Get("Stream-Next-Offset")
	}
}

// A reader that is still being served from the disk does not miss what is appended
// meanwhile.
func TestField62FromTheDisk(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB")
	cold := func(n int) string {
		s := f.create(plain)
		for range n {
			f.text(s, strings.Repeat("c", 100_000))
		}
		f.text(f.create(plain), strings.Repeat("o", 100_000)) // pushes it out of memory
		return s
	}
	flushed := func() bool { return f.daemon.metric(t, "snakream_segments") > 0 }
	for _, size := range []int{1, 5, 30} {
		s := cold(size)
		f.eventually(wirePatience, "it is in a segment", flushed)
		want := size * 100_000
		for round := range 15 {
			var got int
			f.together(2, func(i int) error {
				if i == 1 {
					_, err := f.once("POST", s, "last", []string{"Content-Type", plain})
					return err
				}
				e, err := f.tryEvents(s, "offset=-1")
				if err != nil {
					return err
				}
				defer e.conn.Close()
				for got < want+4 {
					ev, err := e.try(10 * time.Second)
					if err != nil {
						return fmt.Errorf("round %d of %d appends: at %d of %d: %w", round, size, got, want+4, err)
					}
					if ev.name == "data" {
						got += len(ev.data)
					}
				}
				return nil
			})
			if want += 4; got != want {
				t.Fatalf("round %d: %d bytes instead of %d", round, got, want)
			}
		}
	}
}

// waitFor waits until so many live readers are registered.
func (f *field) waitFor(readers int) {
	f.Helper()
	f.eventually(wirePatience, fmt.Sprint(readers, " live readers"), func() bool {
		return f.daemon.metric(f.T, "snakream_live_readers") == float64(readers)
	})
}

// Readers of a stream that is deleted end at once, and see nothing of the next one.
func TestField64DeletedUnderReaders(t *testing.T) {
	f := onOwn(t)
	for round := range 6 {
		s := f.create(plain)
		end, code := http.StatusNotFound, "stream_not_found"
		tail := f.text(s, "old.").header.Get("Stream-Next-Offset")
		if round == 5 {
			f.want(http.StatusCreated, "PUT", f.name(), "", "Stream-Forked-From", target(s))
			end, code = http.StatusGone, "stream_gone"
		}
		var polls []*wire
		var streams []*events
		for range 50 {
			w := f.dial()
			w.head("GET", target(s)+"?live=long-poll&offset="+tail)
			polls = append(polls, w)
			e := f.events(s, "offset="+tail)
			e.control()
			streams = append(streams, e)
		}
		f.waitFor(100)
		began := time.Now()
		f.want(http.StatusNoContent, "DELETE", s, "")
		if round > 0 && round < 5 { // the next incarnation comes at once, and goes as far
			f.want(http.StatusCreated, "PUT", s, "new.new.", "Content-Type", plain)
			f.text(s, "new.")
		}
		for i := range polls {
			if r := polls[i].answer(end, "GET"); r.code() != code {
				t.Fatalf("long-poll: %v", r)
			}
			ev := streams[i].next()
			if ev.name != "end" || !strings.Contains(ev.data, `"code":"`+code+`"`) {
				t.Fatalf("SSE: %+v", ev)
			}
			streams[i].finish()
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("readers ended %v after the stream", took)
		}
	}
}

// Readers that have gone are gone on the server too.
func TestField65ReadersThatLeave(t *testing.T) {
	f := onOwn(t)
	s := f.create(plain)
	f.client.CloseIdleConnections()
	f.eventually(wirePatience, "nobody is connected", func() bool { return f.daemon.metric(t, "snakream_connections") == 0 })
	files, goroutines := f.daemon.descriptors(t), f.daemon.metric(t, "go_goroutines")
	for round, leave := range []func(w *wire){func(w *wire) { w.conn.Close() }, (*wire).reset, func(w *wire) { w.conn.CloseWrite() }} {
		const each = 300
		var all []*wire
		for range each {
			w := f.dial()
			w.head("GET", target(s)+"?live=long-poll&offset=now&timeout=60")
			all = append(all, w, f.events(s, "offset=now").wire)
		}
		f.waitFor(2 * each)
		if more := f.daemon.metric(t, "go_goroutines") - goroutines; more > 50 {
			t.Errorf("%d parked readers cost %v goroutines", 2*each, more)
		}
		began := time.Now()
		for _, w := range all {
			leave(w)
		}
		f.waitFor(0)
		f.eventually(wirePatience, "their descriptors are closed", func() bool { return f.daemon.descriptors(t) <= files+5 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("round %d: it took %v until they were gone", round, took)
		}
		f.text(s, "x")
		f.client.CloseIdleConnections()
		f.eventually(wirePatience, "no goroutine is left of them", func() bool { return f.daemon.metric(t, "go_goroutines") <= goroutines+20 })
	}
}

// A reader of a stream that has long been quiet, while many others were not, is still a
// reader of it.
func TestField67QuietStream(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB", "--segment-max-bytes", "256KiB")
	s := f.create(plain)
	tail := f.text(s, "before.").header.Get("Stream-Next-Offset")
	e := f.events(s, "offset=-1")
	e.data()
	poll := f.dial()
	poll.head("GET", target(s)+"?live=long-poll&timeout=60&offset="+tail)
	f.waitFor(2)
	const others = 3000
	f.together(20, func(i int) error {
		for n := range others / 20 {
			r, err := f.once("PUT", fmt.Sprintf("crowd/%d-%d", i, n), strings.Repeat("x", 300), []string{"Content-Type", plain})
			if err != nil || r.status != http.StatusCreated {
				return fmt.Errorf("%v, %v", r, err)
			}
		}
		return nil
	})
	f.eventually(wirePatience, "segments have been merged", func() bool { return f.daemon.metric(t, "snakream_merges_total") > 0 })
	f.text(s, "after.")
	if data, c := e.data(); data != "after." || !c.UpToDate {
		t.Errorf("SSE: %q %+v", data, c)
	}
	if r := poll.answer(http.StatusOK, "GET"); r.body != "after." {
		t.Errorf("long-poll: %v", r)
	}
	f.holds(s, "before.after.")
}

// Nothing is silent for so long that a proxy would cut it.
func TestField68KeptAlive(t *testing.T) {
	f := onShared(t, &brisk)
	out, err := exec.Command(binary, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"long-poll-timeout", "sse-heartbeat"} {
		_, rest, _ := bytes.Cut(out, []byte("--"+setting+" "))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		_, value, _ := bytes.Cut(line, []byte(`default "`))
		value, _, _ = bytes.Cut(value, []byte(`"`))
		if d, err := time.ParseDuration(string(value)); err != nil || d > 25*time.Second || d < 5*time.Second {
			t.Errorf("--%s is %q, %v", setting, value, err)
		}
	}
	s := f.create(plain)
	var wg sync.WaitGroup
	wg.Go(func() { // one second is this server's setting
		began := time.Now()
		r, err := f.once("GET", s+"?offset=now&live=long-poll", "", nil)
		if took := time.Since(began); err != nil || r.status != http.StatusNoContent || took < 900*time.Millisecond || took > 5*time.Second {
			t.Errorf("a long-poll: %v, %v, after %v", r, err, took)
		}
		quick := time.Hour // of some, since the machine may be busy
		for range 5 {
			began = time.Now()
			r, err = f.once("GET", s+"?offset=now&live=long-poll&timeout_ms=100", "", nil)
			took := time.Since(began)
			if quick = min(quick, took); err != nil || r.status != http.StatusNoContent || took < 100*time.Millisecond {
				t.Errorf("a long-poll of 100 ms: %v, %v, after %v", r, err, took)
			}
		}
		if quick > 900*time.Millisecond {
			t.Errorf("long-polls of 100 ms took %v and more", quick)
		}
	})
	e := f.events(s, "offset=now") // half a second is this server's heartbeat
	e.control()
	began := time.Now()
	if _, err := e.try(10 * time.Second); err != nil && err != io.EOF {
		t.Error(err)
	}
	if life := time.Since(began); e.comments < 3 || e.comments > int(life/(400*time.Millisecond)) {
		t.Errorf("%d comments in %v", e.comments, life)
	}
	wg.Wait()
}
