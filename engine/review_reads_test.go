package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// Readers race with appends, flushes, merges, deletes, expiries and forks: each byte
// is what the view says, or the view is stale.
func TestReviewReadersRaceWithEverything(t *testing.T) {
	clock := &handClock{}
	clock.ms.Store(1_700_000_000_000)
	o := smallOptions(vfstest.New())
	o.Shards, o.MemtableBytes, o.EraseWithin, o.Now = 2, 16<<10, time.Second, clock.now
	e := mustOpen(t, o)
	const names = 12
	rounds := 700 // writes to each name; each takes a millisecond of the clock
	if testing.Short() {
		rounds = 300
	}
	var stop atomic.Bool
	var wg, writers sync.WaitGroup
	var reads, stale, created atomic.Int64
	p := &pacer{stop: &stop}
	for w := range names {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		name := fmt.Sprint("s", w)
		writers.Go(func() {
			for range rounds {
				p.writes.Add(1)
				clock.ms.Add(1)
				st := e.Lookup([]byte("b"), []byte(name))
				var v *View
				if st != nil {
					v = st.View()
				}
				switch k := rng.IntN(40); {
				case v == nil || v.Deleted:
					ev := core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}
					if rng.IntN(3) == 0 {
						ev.TTL = 1
					}
					if rng.IntN(2) == 0 {
						ev.Fork = &core.ForkSpec{Bucket: "b", Name: fmt.Sprint("s", rng.IntN(names)), InheritType: true}
						ev.ContentType, ev.MediaType = "", nil
					}
					switch a := mustDo(t, e, &Op{Event: ev}); a.Code {
					case core.Created:
						created.Add(1)
					case core.NameHeldByForks: // by whom? Somebody has to go.
						if other := e.Lookup([]byte("b"), fmt.Append(nil, "s", rng.IntN(names))); other != nil {
							mustDo(t, e, &Op{Stream: other, Event: core.Event{Op: core.OpDelete}})
						}
					}
				case k == 0:
					mustDo(t, e, &Op{Stream: st, Event: core.Event{Op: core.OpDelete}})
				default:
					body := make([]byte, 1+rng.IntN(3000))
					for i := range body {
						body[i] = pattern(v.ID, v.Next+base.Offset(i))
					}
					op := &Op{Stream: st, Event: core.Event{
						Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: body, Ends: []uint32{uint32(len(body))},
						Incarnation: e.Incarnation(v.ID), HasIncarnation: true,
					}}
					mustDo(t, e, op)
				}
			}
		})
	}
	for r := range 4 {
		rng := rand.New(rand.NewPCG(uint64(r), 8))
		wg.Go(func() {
			var step Step
			defer step.Release()
			for !stop.Load() {
				st := e.Lookup([]byte("b"), []byte(fmt.Sprint("s", rng.IntN(names))))
				if st == nil {
					continue
				}
				v := st.View()
				if v == nil || v.Next == v.First {
					continue
				}
				from := v.First + base.Offset(rng.Uint64N(uint64(v.Next-v.First)))
				to := min(v.Next, from+base.Offset(1+rng.IntN(20_000)))
				if rng.IntN(4) == 0 {
					p.await(rng.Int64N(10)) // an old view
				}
				if err := readPattern(e, v, from, to, &step, rng, p); errors.Is(err, ErrStale) {
					stale.Add(1)
				} else if err != nil {
					t.Errorf("%s: %v", st.key, err)
					return
				}
				reads.Add(1)
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	wg.Wait()
	t.Logf("%d reads, %d of them stale, %d streams, %+v", reads.Load(), stale.Load(), created.Load(), e.Stats())
	for _, s := range e.shards {
		t.Logf("%d flushes, %d merges", s.stats.flushes.Load(), s.stats.merges.Load())
	}
}

// pacer counts writes, by which readers can tell that something has happened. A bubble of
// package synctest would not do: its time stands still while anybody runs, and here
// everybody does all the time.
type pacer struct {
	writes atomic.Int64
	stop   *atomic.Bool
}

// await lets others run until there were n more writes, or there will be no more.
func (p *pacer) await(n int64) {
	for end := p.writes.Load() + n; p.writes.Load() < end && !p.stop.Load(); {
		runtime.Gosched()
	}
}

func readPattern(e *Engine, v *View, from, to base.Offset, step *Step, rng *rand.Rand, p *pacer) error {
	for from < to {
		if err := e.Read(v, from, to, 1<<20, step); err != nil {
			return err
		}
		if rng.IntN(8) == 0 {
			p.await(20) // pinned while it is flushed and merged away
		}
		b, err := step.Append(context.Background(), nil)
		if err != nil {
			return err
		}
		id, _, _ := v.owner(from)
		for i, c := range b {
			if want := pattern(id, from+base.Offset(i)); c != want {
				return fmt.Errorf("byte %d of stream %d (view of %d) is %#x instead of %#x", from+base.Offset(i), id, v.ID, c, want)
			}
		}
		if exact, _, err := e.Boundary(context.Background(), v, from, false); err != nil {
			return err
		} else if !exact && from == v.First {
			return fmt.Errorf("no message begins at the beginning")
		}
		from = step.End()
	}
	step.Release()
	return nil
}

// A fork far from its anchor doesn't step over each message in between.
func TestReviewForkFarFromItsAnchor(t *testing.T) {
	o := smallOptions(vfstest.New())
	o.WALFileBytes, o.WALMaxBytes, o.MemtableBytes = 1<<20, 4<<20, 64<<10
	e := mustOpen(t, o)
	json := core.Event{Op: core.OpCreate, Bucket: "b", Name: "s", ContentType: "application/json", MediaType: []byte("application/json"), JSON: true, TTL: -1}
	mustDo(t, e, &Op{Event: json})
	const batch, batches = 30_000, 20
	ends := make([]uint32, batch)
	for i := range ends {
		ends[i] = uint32(2 * (i + 1))
	}
	for range batches {
		a := mustDo(t, e, &Op{Stream: e.Lookup([]byte("b"), []byte("s")), Event: core.Event{
			Op: core.OpAppend, MediaType: []byte("application/json"), HasBody: true, Body: bytes.Repeat([]byte("1,"), batch), Ends: ends,
		}})
		if a.Code != core.Appended {
			t.Fatal(a.Code)
		}
	}
	begin := time.Now()
	for _, sub := range []uint64{0, 1, batch, batch + 1, batch*batches - 1, batch * batches} {
		ev := core.Event{Op: core.OpCreate, Bucket: "b", Name: fmt.Sprint("f", sub), TTL: -1, Fork: &core.ForkSpec{
			Bucket: "b", Name: "s", InheritType: true, HasOffset: true, Sub: sub,
		}}
		if a := mustDo(t, e, &Op{Event: ev}); a.Code != core.Created || uint64(a.Next) != 2*sub || a.NextRecord != sub {
			t.Errorf("%d messages on: %d, at %d, message %d", sub, a.Code, a.Next, a.NextRecord)
		}
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

// Streams that reads keep alive don't hold up the end of one that nobody reads.
func TestReviewExpiryBesideRenewals(t *testing.T) {
	clock := &handClock{}
	clock.ms.Store(1_700_000_000_000)
	o := smallOptions(vfstest.New())
	o.Now, o.MemtableBytes, o.WALFileBytes, o.WALMaxBytes = clock.now, 64<<20, 8<<20, 64<<20
	e := mustOpen(t, o)
	const n = 5000
	for i := range n {
		makeStream(t, e, fmt.Sprint("s", i), 1000)
	}
	clock.ms.Add(1)
	makeStream(t, e, "last", 1000)
	clock.ms.Add(10_000)
	for i := range n {
		st := e.Lookup([]byte("b"), []byte(fmt.Sprint("s", i)))
		if r := st.Renew(st.View()); r != Renewed {
			t.Fatal(r)
		}
	}
	clock.ms.Add(990_000)
	e.shards[0].ring()
	batches := 0 // each is a turn that has looked at the deadlines
	for ; e.Lookup([]byte("b"), []byte("last")) != nil && batches < 1000; batches++ {
		appendTo(t, e, "s0", []byte("x"))
	}
	if batches > 100 {
		t.Errorf("it took %d batches", batches)
	}
	if got := e.Stats().Streams; got < n {
		t.Errorf("%d streams are left of %d", got, n)
	}
}

// Writes that come while the log can't go on in a new file yet don't keep the old one.
func TestReviewEraseWhileLogIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marker := bytes.Repeat([]byte("MARKER-OF-WHAT-IS-DELETED"), 10)
		fs := vfstest.New()
		clock := &handClock{}
		clock.ms.Store(1_700_000_000_000)
		o := smallOptions(fs)
		o.EraseWithin, o.Now = time.Second, clock.now
		e := mustOpen(t, o)
		s := e.shards[0]
		makeStream(t, e, "dead", -1)
		makeStream(t, e, "alive", -1)
		for s.log.Stats().Spares == 0 { // the next file, which the first rotation takes
			later(time.Millisecond)
		}
		gate := make(chan struct{})
		fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Rename && strings.Contains(op.To, "/wal/") && strings.HasSuffix(op.To, ".wal") {
				<-gate
			}
			return nil
		})
		body := bytes.Repeat([]byte("x"), 16<<10)
		for s.log.Stats().Rotations == 0 {
			appendTo(t, e, "alive", body)
		}
		appendTo(t, e, "dead", marker)
		removeStream(t, e, "dead")
		clock.ms.Add(500)
		appendTo(t, e, "alive", []byte("first")) // the log is to go on in a new file, which is not there
		appendTo(t, e, "alive", []byte("second"))
		close(gate)
		eventuallyErased(t, fs, marker)
		quiet(t, fs, clock, e)
	})
}
