//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// write sends text with a producer's tuple and returns whatever comes.
func (f *field) write(stream, body, id string, epoch, seq int, more ...string) (answer, error) {
	return f.once("POST", stream, body, with(tuple(id, epoch, seq), []string{"Content-Type", plain}, more))
}

// produce is write with the status that must come back.
func (f *field) produce(status int, stream, body, id string, epoch, seq int, more ...string) answer {
	f.Helper()
	return f.want(status, "POST", stream, body, with(tuple(id, epoch, seq), []string{"Content-Type", plain}, more)...)
}

// A producer that repeats what was not acknowledged before a crash, and goes on, leaves
// every write in the stream exactly once.
func TestField43CrashOfAProducer(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := f.create(plain)
	seq := 0
	for range 8 {
		f.condemn()
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			pause(t.Context(), time.Duration(rng.IntN(150))*time.Millisecond)
			f.daemon.cmd.Process.Kill()
			<-f.daemon.ended
		}()
		for {
			r, err := f.write(s, fmt.Sprintf("%d.", seq), "p", 0, seq)
			if err != nil {
				break // its outcome is open: seq is sent again
			}
			if r.status != http.StatusOK {
				t.Fatalf("seed %d: seq %d: %v", seed, seq, r)
			}
			seq++
		}
		<-killed
		f.client.CloseIdleConnections()
		f.daemon.start(t)
		r, err := f.write(s, fmt.Sprintf("%d.", seq), "p", 0, seq)
		if err != nil || r.status != http.StatusOK && r.status != http.StatusNoContent {
			t.Fatalf("seed %d: seq %d after the crash: %v, %v", seed, seq, r, err)
		}
		seq++
	}
	var want strings.Builder
	for i := range seq {
		fmt.Fprintf(&want, "%d.", i)
	}
	f.holds(s, want.String())
}

// A number of a producer is a number, or the request is refused.
func TestField44Integers(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	for _, v := range []string{
		"1abc", "1e3", "-1", "+1", "1.0", "0x1", "", "1 1", "1_0", "１", "9007199254740992", "18446744073709551616", "00", "01", "-0", "0,0", "NaN", "99999999999999999999999999", "\"0\"",
	} {
		for _, bad := range []string{"Producer-Epoch", "Producer-Seq", "Stream-Incarnation"} {
			w := f.dial()
			fields := []string{"Content-Type: text/plain", "Content-Length: 1", "Producer-Id: p", bad + ": " + v}
			for _, other := range []string{"Producer-Epoch", "Producer-Seq"} {
				if other != bad {
					fields = append(fields, other+": 0")
				}
			}
			w.head("POST", target(s), fields...)
			w.send("x")
			if r := w.answer(0, "POST"); r.status != http.StatusBadRequest || r.code() != "invalid_header" {
				t.Errorf("%s: %q: %d %s", bad, v, r.status, r.body)
			}
			w.conn.Close()
		}
	}
	f.holds(s, "")
	for _, incomplete := range [][]string{{"Producer-Id", "p"}, {"Producer-Epoch", "0"}, {"Producer-Id", "p", "Producer-Seq", "0"}, {"Producer-Epoch", "0", "Producer-Seq", "0"}} {
		if r := f.want(http.StatusBadRequest, "POST", s, "x", append(incomplete, "Content-Type", plain)...); r.code() != "producer_incomplete" {
			t.Errorf("%q: %s", incomplete, r.body)
		}
	}
	f.want(http.StatusBadRequest, "POST", s, "x", with(tuple("", 0, 0), []string{"Content-Type", plain})...)
	const largest = 1<<53 - 1
	f.has(f.produce(http.StatusConflict, s, "x", "p", largest, largest), "Producer-Expected-Seq", "0", "Producer-Received-Seq", "9007199254740991")
	f.has(f.produce(http.StatusOK, s, "x", "p", largest, 0), "Producer-Epoch", "9007199254740991", "Producer-Seq", "0")
	f.holds(s, "x")
}

// A producer is known to one stream, and to one that is made anew it is not.
func TestField46ScopeOfProducers(t *testing.T) {
	f := onShared(t, &ordinary)
	a, b := f.create(plain), f.create(plain)
	f.produce(http.StatusOK, a, "a5", "p", 5, 0)
	f.produce(http.StatusOK, b, "b0", "p", 0, 0)
	f.produce(http.StatusForbidden, a, "x", "p", 4, 0)
	fork := f.name()
	f.want(http.StatusCreated, "PUT", fork, "", "Stream-Forked-From", target(a))
	f.produce(http.StatusOK, fork, "f0", "p", 0, 0)
	f.produce(http.StatusOK, a, "a6", "p", 5, 1)
	f.holds(fork, "a5f0")
	f.want(http.StatusNoContent, "DELETE", fork, "")

	f.want(http.StatusNoContent, "DELETE", a, "")
	f.want(http.StatusCreated, "PUT", a, "", "Content-Type", plain)
	f.produce(http.StatusOK, a, "new", "p", 0, 0)
	f.holds(a, "new")

	short := f.create(plain, "Stream-TTL", "1")
	f.produce(http.StatusOK, short, "old", "p", 9, 0)
	f.eventually(wirePatience, "the stream has expired", func() bool {
		r, err := f.once("HEAD", short, "", nil) // does not renew
		return err == nil && r.status == http.StatusNotFound
	})
	f.want(http.StatusCreated, "PUT", short, "", "Content-Type", plain)
	f.produce(http.StatusOK, short, "new", "p", 0, 0)
	f.holds(short, "new")
}

// What came too early is forgotten, and what was missing is taken.
func TestField47GapsFill(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	f.has(f.produce(http.StatusConflict, s, "3.", "p", 0, 3), "Producer-Expected-Seq", "0", "Producer-Received-Seq", "3")
	f.produce(http.StatusOK, s, "0.", "p", 0, 0)
	for range 3 {
		f.has(f.produce(http.StatusConflict, s, "2.", "p", 0, 2), "Producer-Expected-Seq", "1", "Producer-Received-Seq", "2")
	}
	f.produce(http.StatusOK, s, "1.", "p", 0, 1)
	f.produce(http.StatusOK, s, "2.", "p", 0, 2)
	f.has(f.produce(http.StatusNoContent, s, "0.", "p", 0, 0), "Producer-Seq", "2", "Stream-Offset", "")
	f.produce(http.StatusBadRequest, s, "x", "p", 1, 1) // a new epoch begins with 0
	f.holds(s, "0.1.2.")

	// Five in flight, each repeated until its predecessors are there.
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	const window, writes = 5, 100
	order := make([]int, writes)
	for i := range order {
		order[i] = i
	}
	for i := 0; i < writes; i += window {
		rng.Shuffle(window, func(j, k int) { order[i+j], order[i+k] = order[i+k], order[i+j] })
	}
	var next atomic.Int64
	f.together(window, func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= writes {
				return nil
			}
			seq := order[i]
			for deadline := time.Now().Add(wirePatience); ; {
				r, err := f.write(s, fmt.Sprintf("%d;", seq), "q", 0, seq)
				if err != nil {
					return err
				}
				if r.status == http.StatusOK {
					break
				}
				if expected, err := r.number("Producer-Expected-Seq"); r.status != http.StatusConflict || err != nil || expected >= seq || time.Now().After(deadline) {
					return fmt.Errorf("seed %d: seq %d: %v, %v", seed, seq, r, err)
				}
			}
		}
	})
	want := "0.1.2."
	for i := range writes {
		want += strconv.Itoa(i) + ";"
	}
	f.holds(s, want)
}

// Only what was stored moves a producer on: a refused write can be put right and sent
// again.
func TestField49RefusedIsNotStored(t *testing.T) {
	f := onOwn(t)
	s := f.create(jsonType)
	f.want(http.StatusNoContent, "POST", s, `"first"`, "Content-Type", jsonType, "Stream-Seq", "m")
	seq := 0
	for _, c := range map[string]struct {
		status int
		body   string
		header []string
	}{
		"invalid JSON":      {http.StatusBadRequest, `{"a":`, []string{"Content-Type", jsonType}},
		"empty array":       {http.StatusBadRequest, "[]", []string{"Content-Type", jsonType}},
		"other type":        {http.StatusConflict, "1", []string{"Content-Type", plain}},
		"stale Stream-Seq":  {http.StatusConflict, "1", []string{"Content-Type", jsonType, "Stream-Seq", "a"}},
		"no type":           {http.StatusBadRequest, "1", nil},
		"too large":         {http.StatusRequestEntityTooLarge, `"` + strings.Repeat("x", 1<<20) + `"`, []string{"Content-Type", jsonType}},
		"content coding":    {http.StatusUnsupportedMediaType, "1", []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}},
		"other incarnation": {http.StatusPreconditionFailed, "1", []string{"Content-Type", jsonType, "Stream-Incarnation", "1"}},
		"no body":           {http.StatusBadRequest, "", []string{"Content-Type", jsonType}},
	} {
		r := f.want(c.status, "POST", s, c.body, with(tuple("p", 0, seq), c.header)...)
		if c.status == http.StatusConflict {
			f.has(r, "Producer-Expected-Seq", strconv.Itoa(seq), "Producer-Received-Seq", strconv.Itoa(seq))
		}
		f.want(http.StatusOK, "POST", s, strconv.Itoa(seq), with(tuple("p", 0, seq), []string{"Content-Type", jsonType})...)
		f.want(http.StatusNoContent, "POST", s, strconv.Itoa(seq), with(tuple("p", 0, seq), []string{"Content-Type", jsonType})...)
		seq++
	}
	want := `["first"`
	for i := range seq {
		want += "," + strconv.Itoa(i)
	}
	f.holds(s, want+"]")
	f.restart()
	f.holds(s, want+"]")
	f.want(http.StatusNoContent, "POST", s, "0", with(tuple("p", 0, seq-1), []string{"Content-Type", jsonType})...)
}

// Of one write that is sent eight times at once, one is stored, and the others are told
// where.
func TestField50TheSameAtOnce(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	want := ""
	for seq := range 100 {
		body := fmt.Sprintf("%d.", seq)
		statuses, places := make([]int, 8), make([]string, 8)
		f.together(8, func(i int) error {
			r, err := f.write(s, body, "p", 0, seq)
			statuses[i], places[i] = r.status, r.header.Get("Stream-Offset")+"-"+r.header.Get("Stream-Next-Offset")
			return err
		})
		slices.Sort(statuses)
		if !slices.Equal(statuses, []int{200, 204, 204, 204, 204, 204, 204, 204}) || len(slices.Compact(places)) != 1 {
			t.Fatalf("seq %d: %v at %v", seq, statuses, places)
		}
		want += body
	}
	f.holds(s, want)
}

// The append that closed a stream can be repeated by its producer, and by nobody else.
func TestField52ClosingAppendRepeats(t *testing.T) {
	f := onOwn(t)
	for _, body := range []string{"end", ""} {
		s := f.create(plain)
		f.produce(http.StatusOK, s, "0.", "p", 3, 0)
		first := http.StatusOK
		if body == "" {
			first = http.StatusNoContent
		}
		for _, incomplete := range [][]string{{"Producer-Id", "p"}, {"Producer-Epoch", "0", "Producer-Seq", "1"}} {
			f.want(http.StatusBadRequest, "POST", s, body, append(incomplete, "Content-Type", plain, "Stream-Closed", "true")...)
		}
		f.has(f.produce(first, s, body, "p", 3, 1, "Stream-Closed", "true"), "Stream-Closed", "true")
		for range 2 {
			for _, again := range []string{body, "another body", ""} {
				r := f.produce(http.StatusNoContent, s, again, "p", 3, 1, "Stream-Closed", "true")
				f.has(r, "Stream-Closed", "true", "Producer-Epoch", "3", "Producer-Seq", "1", "Stream-Next-Offset", fmt.Sprintf("%020d", 2+len(body)))
			}
			for what, r := range map[string]answer{
				"next":         f.produce(http.StatusConflict, s, "x", "p", 3, 2),
				"next close":   f.produce(http.StatusConflict, s, "", "p", 3, 2, "Stream-Closed", "true"),
				"higher epoch": f.produce(http.StatusConflict, s, "x", "p", 4, 0, "Stream-Closed", "true"),
				"other":        f.produce(http.StatusConflict, s, "x", "q", 0, 0, "Stream-Closed", "true"),
				"none":         f.want(http.StatusConflict, "POST", s, "x", "Content-Type", plain, "Stream-Closed", "true"),
				"earlier":      f.produce(http.StatusConflict, s, "0.", "p", 3, 0),
			} {
				code := "closed"
				if what == "earlier" {
					code = "closed_duplicate"
				}
				if r.code() != code {
					t.Errorf("%s: %s", what, r.body)
				}
				f.has(r, "Stream-Closed", "true", "Stream-Next-Offset", fmt.Sprintf("%020d", 2+len(body)))
				if what != "none" && what != "other" {
					f.has(r, "Producer-Epoch", "3", "Producer-Seq", "1")
				}
				if what != "none" { // or clients would take it for 0 and resend for ever
					f.has(r, "Producer-Expected-Seq", r.header.Get("Producer-Received-Seq"))
				}
			}
			f.produce(http.StatusForbidden, s, "x", "p", 2, 0)
			f.has(f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true"), "Stream-Closed", "true")
			f.holds(s, "0."+body)
			f.restart()
		}
	}
}

// Producers are many and cheap up to a limit, beyond which new ones are refused and none
// is forgotten.
func TestField53ManyProducers(t *testing.T) {
	f := onOwn(t, "--wal-file-bytes", "8MiB", "--memtable-bytes", "1MiB")
	const limit = 4096 // the default
	s := f.create(plain)
	var next atomic.Int64
	took := make([]time.Duration, limit)
	f.together(16, func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= limit {
				return nil
			}
			began := time.Now()
			r, err := f.write(s, "x", fmt.Sprintf("producer-%d", i), 0, 0)
			if err != nil || r.status != http.StatusOK {
				return fmt.Errorf("producer %d: %v, %v", i, r, err)
			}
			took[i] = time.Since(began)
		}
	})
	median := func(d []time.Duration) time.Duration {
		d = slices.Clone(d)
		slices.Sort(d)
		return d[len(d)/2]
	}
	// Loose, since the machine may be busy; a search through all of them would show.
	if first, last := median(took[:500]), median(took[limit-500:]); last > 5*first+20*time.Millisecond {
		t.Errorf("an append took %v with few producers, %v with %d", first, last, limit)
	}
	r := f.produce(http.StatusTooManyRequests, s, "x", "one-too-many", 0, 0)
	if r.code() != "too_many_producers" || r.header.Get("Retry-After") == "" {
		t.Errorf("%v", r)
	}
	f.restart()
	for _, i := range []int{0, 1, limit / 2, limit - 1} {
		f.produce(http.StatusNoContent, s, "x", fmt.Sprintf("producer-%d", i), 0, 0)
	}
	f.produce(http.StatusTooManyRequests, s, "x", "one-too-many", 0, 0)
	f.produce(http.StatusOK, s, "y", "producer-0", 0, 1)
	f.text(s, "z")
	f.holds(s, strings.Repeat("x", limit)+"yz")
}

// A producer that has been idle for long enough makes room, the longest idle one first,
// and one that writes is never forgotten.
func TestField53IdleProducers(t *testing.T) {
	f := onOwn(t, "--max-producers-per-stream", "2", "--producer-idle-expiry", "2s")
	s := f.create(plain)
	f.produce(http.StatusOK, s, "a0", "a", 0, 0)
	f.produce(http.StatusOK, s, "b0", "b", 0, 0)
	f.produce(http.StatusTooManyRequests, s, "c0", "c", 0, 0)
	seq := 1
	f.eventually(wirePatience, "a has been idle for two seconds", func() bool { // real ones: the server's clock decides
		f.produce(http.StatusOK, s, "b", "b", 0, seq)
		seq++
		r, err := f.write(s, "c0", "c", 0, 0)
		return err == nil && r.status == http.StatusOK
	})
	f.has(f.produce(http.StatusConflict, s, "a1", "a", 0, 1), "Producer-Expected-Seq", "0")
	f.produce(http.StatusNoContent, s, "c0", "c", 0, 0)
	f.produce(http.StatusOK, s, "b", "b", 0, seq)
	f.produce(http.StatusTooManyRequests, s, "a0", "a", 0, 0)
}
