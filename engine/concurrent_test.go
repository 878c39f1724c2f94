package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/wal/record"
)

// Many writers of one stream: every append has a place of its own, and what is read
// is all of them, once, where their answers said; after a crash too.
func TestConcurrentAppends(t *testing.T) {
	r := newRig(t, tiny(1))
	r.create("s")
	const writers, each = 32, 60
	var mu sync.Mutex
	at := map[string]core.Answer{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				body := fmt.Sprintf("<%d/%d %s>", w, i, strings.Repeat("x", i))
				op := &engine.Op{Event: appendEvent(body), Stream: r.stream("s")}
				if err := r.Do(op); err != nil || op.Answer.Code != core.Appended {
					t.Errorf("append: %d, %v", op.Answer.Code, err)
					return
				}
				mu.Lock()
				at[body] = op.Answer
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	check := func(r *rig) {
		t.Helper()
		all, err := r.content("s")
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for body, a := range at {
			if total += len(body); int(a.Next) > len(all) || all[a.Start:a.Next] != body {
				t.Errorf("%.20s is not at [%d, %d)", body, a.Start, a.Next)
			}
		}
		if len(at) != writers*each || total != len(all) {
			t.Errorf("%d appends of %d bytes make %d", len(at), total, len(all))
		}
	}
	check(r)
	crashed := r.on(r.fs.CrashClone(nil))
	check(crashed)
	crashed.close()
	r.close()
}

// The same write at the same instant: one is stored, the others are repeats that say
// where.
func TestConcurrentRepeats(t *testing.T) {
	r := newRig(t, tiny(1))
	r.create("s")
	const rounds, senders = 100, 8
	for seq := range uint64(rounds) {
		var stored, repeats atomic.Int64
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				ev := appendEvent(fmt.Sprintf("<%03d>", seq))
				ev.Producer = record.Producer{ID: []byte("p"), Seq: seq, Set: true}
				op := &engine.Op{Event: ev, Stream: r.stream("s")}
				if err := r.Do(op); err != nil {
					t.Error(err)
				}
				if op.Answer.Start != 5*(op.Answer.Next/5-1) || op.Answer.Next != 5*(op.Answer.Start/5+1) || int(op.Answer.Start) != int(5*seq) {
					t.Errorf("round %d was told [%d, %d)", seq, op.Answer.Start, op.Answer.Next)
				}
				switch op.Answer.Code {
				case core.Appended:
					stored.Add(1)
				case core.Duplicate:
					repeats.Add(1)
				}
			})
		}
		wg.Wait()
		if stored.Load() != 1 || repeats.Load() != senders-1 {
			t.Fatalf("round %d: %d stored, %d repeats", seq, stored.Load(), repeats.Load())
		}
	}
	if v := r.view("s"); v.NextRecord != rounds {
		t.Errorf("%d messages", v.NextRecord)
	}
	r.close()
}

// Appends, reads and a delete at once: everybody gets an answer that makes sense, and
// afterwards there is nothing.
func TestDeleteAmongAppends(t *testing.T) {
	r := newRig(t, tiny(2))
	for round := range 60 {
		name := fmt.Sprint("s", round%3)
		r.create(name)
		place := r.stream(name)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				op := &engine.Op{Event: appendEvent(fmt.Sprint("x", i)), Stream: place}
				if i == 10 {
					op.Event = core.Event{Op: core.OpDelete}
				}
				if err := r.Do(op); err != nil {
					t.Error(err)
				}
				switch c := op.Answer.Code; {
				case i == 10 && c == core.Deleted, i != 10 && c == core.Appended, i != 10 && c == core.NotFound:
				default:
					t.Errorf("operation %d was answered %d", i, c)
				}
			})
		}
		for range 5 {
			wg.Go(func() {
				v := place.View()
				if v == nil {
					return
				}
				var st engine.Step
				defer st.Release()
				if err := r.Read(v, 0, v.Next, 1<<20, &st); err != nil && !errors.Is(err, engine.ErrStale) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if r.view(name) != nil {
			t.Fatal("an append has brought the stream back")
		}
	}
	r.close()
}

// The same name again and again: nothing that belongs to an earlier stream happens to
// a later one, not in flushes and merges, not after a crash.
func TestDeleteAndRecreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		for round := range 150 {
			name := fmt.Sprint("s", round%5)
			if r.view(name) != nil {
				r.remove(name)
			}
			r.must(name, withTTL(name, 60), core.Created)
			first := r.view(name).ID
			r.append(name, strings.Repeat("old ", 200))
			r.remove(name)
			r.create(name)
			r.append(name, fmt.Sprint("marker ", round))
			if r.view(name).ID == first {
				t.Fatal("two streams have one id")
			}
			if round%10 == 9 {
				for _, fs := range []*vfstest.MemFS{r.fs.CrashClone(nil), r.fs.Clone()} {
					after := r.on(fs)
					for i := range 5 {
						after.expect(fmt.Sprint("s", i), fmt.Sprint("marker ", round-4+(i+5-(round+1)%5)%5))
					}
					after.close()
				}
				later(2 * time.Minute) // the TTLs of those that have gone
			}
		}
		r.close()
	})
}

// What a reader holds stays as it is until it lets go, whatever becomes of the stream,
// the memtables and the segments.
func TestPinnedBytesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		type held struct {
			step engine.Step
			was  string
		}
		var all []*held
		for i := range 30 {
			name := fmt.Sprint("s", i)
			r.create(name)
			r.append(name, strings.Repeat(fmt.Sprintf("%02d", i), 700))
		}
		r.create("busy")
		hold := func() {
			for i := range 30 {
				v := r.view(fmt.Sprint("s", i))
				h := &held{}
				if err := r.Read(v, 0, v.Next, 1<<20, &h.step); err != nil {
					t.Fatal(err)
				}
				b, err := h.step.Append(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				h.was = string(b)
				all = append(all, h)
			}
		}
		hold() // in memory
		r.fill([]string{"busy"}, 3)
		hold() // in segments
		for i := range 30 {
			r.remove(fmt.Sprint("s", i))
		}
		r.fill([]string{"busy"}, 12) // merges, and memory used again
		later(time.Hour)
		for i, h := range all {
			b, err := h.step.Append(t.Context(), nil)
			if err != nil || string(b) != h.was {
				t.Errorf("step %d has %.20q instead of %.20q: %v", i, b, h.was, err)
			}
			h.step.Release()
			h.step.Release() // no harm
		}
		synctest.Wait()
		if n, live := len(find(t, r.fs, "data/shard-00/seg/*")), r.Stats().Segments; int64(n) != live {
			t.Errorf("%d segment files for %d segments", n, live)
		}
		r.close()
	})
}

// A mailbox has a bound, beyond which operations are refused at once.
func TestFullMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.MailboxOps = 10
		r := newRig(t, o)
		r.create("s")
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Datasync && strings.Contains(op.Path, "/wal/")
		})
		var done []func() bool
		done = append(done, r.start("s", appendEvent("x")))
		synctest.Wait()
		for range 10 {
			done = append(done, r.start("s", appendEvent("x")))
		}
		err := r.Submit(&engine.Op{Event: appendEvent("x"), Stream: r.stream("s"), Done: func(*engine.Op) { t.Error("answered") }})
		if !errors.Is(err, engine.ErrOverloaded) {
			t.Errorf("beyond the bound: %v", err)
		}
		slow.letGo()
		synctest.Wait()
		for i, done := range done {
			if !done() {
				t.Errorf("operation %d was never answered", i)
			}
		}
		r.expect("s", strings.Repeat("x", 11))
		r.close()
	})
}

// A stream has room for so many producers; one that has been idle for long enough
// makes room for another, and only then.
func TestProducersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.MaxProducers, o.ProducerIdle = 3, time.Hour
		r := newRig(t, o)
		r.create("s")
		write := func(id string, seq uint64) core.Event {
			ev := appendEvent("x")
			ev.Producer = record.Producer{ID: []byte(id), Seq: seq, Set: true}
			return ev
		}
		for _, id := range []string{"a", "b", "c"} {
			r.must("s", write(id, 0), core.Appended)
			later(time.Minute)
		}
		r.must("s", write("d", 0), core.TooManyProducers)
		later(50 * time.Minute)
		r.must("s", write("a", 1), core.Appended) // not idle any more
		r.must("s", write("d", 0), core.TooManyProducers)
		later(10 * time.Minute)
		r.must("s", write("d", 0), core.Appended) // in the place of b
		for range 2 {
			r.must("s", write("a", 1), core.Duplicate)
			r.must("s", write("c", 0), core.Duplicate)
			r.must("s", write("d", 0), core.Duplicate)
			r.must("s", write("b", 1), core.SequenceGap)
			r.fill([]string{"s"}, 2)
			r.reopen()
		}
		r.close()
	})
}

// After Close everybody is told so, and nobody waits for ever.
func TestAfterClose(t *testing.T) {
	r := newRig(t, tiny(2))
	r.create("s")
	r.append("s", "x")
	place, v := r.stream("s"), r.view("s")
	r.close()
	r.close() // no harm
	if err := r.Submit(&engine.Op{Event: appendEvent("x"), Stream: place, Done: func(*engine.Op) {}}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("an append: %v", err)
	}
	fork := createEvent("f")
	fork.Fork = &core.ForkSpec{Bucket: "b", Name: "s"}
	if err := r.Submit(&engine.Op{Event: fork, Done: func(*engine.Op) {}}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a fork: %v", err)
	}
	var st engine.Step
	if err := r.Read(v, 0, 1, 1, &st); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a read: %v", err)
	}
	if _, _, err := r.Boundary(t.Context(), v, 0, false); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a boundary: %v", err)
	}
	if r.Stats().Segments != 0 {
		t.Error("segments are open")
	}
}

// What could not be read back from the log is not taken.
func TestInvalidOperations(t *testing.T) {
	r := newRig(t, tiny(1))
	r.create("s")
	huge := appendEvent(strings.Repeat("x", 70<<10))
	noEnds := appendEvent("x")
	noEnds.Ends = nil
	wrongEnds := appendEvent("xyz")
	wrongEnds.Ends = []uint32{1, 2}
	for i, ev := range []core.Event{huge, noEnds, wrongEnds} {
		if err := r.Do(&engine.Op{Event: ev, Stream: r.stream("s")}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	r.append("s", "fine")
	r.reopen()
	r.expect("s", "fine")
	r.close()
}
