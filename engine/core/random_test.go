package core

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: by the clock")

// tuple is a producer's write, the way it looks from outside.
type tuple struct {
	stream     base.StreamID
	id         string
	epoch, seq uint64
}

// twin is what a naive reader of the answers believes: the bytes of each stream, where
// its messages end, what each tuple stored, and how many snapshots have which bytes.
type twin struct {
	bytes  map[base.StreamID][]byte
	ends   map[base.StreamID][]base.Offset
	stored map[tuple]string
	blobs  map[[32]byte]int
	pinned Answer // the newest pin
}

// TestRandomEvents throws random events at a world, whose replica and rows have to
// follow, and holds the answers against the twin: what was stored is stored once,
// what was refused never, and a repeat is told so.
func TestRandomEvents(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		s := seed + uint64(i)
		if err := randomRun(rand.New(rand.NewPCG(s, 0)), 1000); err != nil {
			t.Fatalf("-seed=%d: %v", s, err)
		}
	}
}

func randomRun(rng *rand.Rand, steps int) error {
	w := newWorld()
	w.settings.MaxProducers, w.settings.ProducerIdle, w.settings.MaxState = 3, 500, 20_000
	tw := &twin{
		bytes: map[base.StreamID][]byte{}, ends: map[base.StreamID][]base.Offset{}, stored: map[tuple]string{}, blobs: map[[32]byte]int{},
	}
	for step := range steps {
		w.now += base.Millis(rng.IntN(40))
		w.diskFull = rng.IntN(20) == 0
		if rng.IntN(300) == 0 {
			w.settings.History++ // the directory has been restored
		}
		object := fmt.Sprintf("s%d", rng.IntN(4))
		ev := randomEvent(rng, w, tw, object)
		if n := len(w.upkeep); n > 0 && rng.IntN(3) == 0 {
			ev = &w.upkeep[0]
			w.upkeep = w.upkeep[1:]
		}
		for {
			h := w.live.heads[ev.Stream]
			if ev.Stream == 0 || ev.Op == OpCreate {
				h = w.live.named("b", object)
			}
			a, rec, eff, logged, err := w.submit(h, ev)
			if err == nil {
				err = tw.check(ev, &a, &rec, &eff, logged)
			}
			if err == nil {
				err = tw.checkSnapshots(w, ev, &a, &eff)
			}
			if err != nil {
				return fmt.Errorf("step %d: %+v\nanswered %+v: %w\nlast records:\n%s", step, *ev, a, err,
					strings.Join(w.log[max(0, len(w.log)-5):], "\n"))
			}
			if a.Code == HistoryChanged {
				err = goesOn(w, h, ev, &a)
			}
			if err != nil {
				return fmt.Errorf("step %d: %+v: %w", step, ev.Producer, err)
			}
			if a.Code != NeedsRoom {
				break
			}
		}
	}
	return nil
}

// goesOn makes sure that a producer that was refused because of a restore may go on
// as it was told to.
func goesOn(w *world, h *Head, ev *Event, a *Answer) error {
	p := h.producers[string(ev.Producer.ID)]
	if (p != nil) != a.HasReplaced || p != nil && (a.ReplacedEpoch != p.Epoch || a.ReplacedSeq != p.Seq) {
		return fmt.Errorf("%d/%d is said to be left of %+v", a.ReplacedEpoch, a.ReplacedSeq, p)
	}
	again := *ev
	again.Producer.Epoch, again.Producer.Seq = a.Epoch+1, 0
	var rec record.Record
	var b Answer
	Decide(h, &again, &Env{Settings: &w.settings, Now: w.now}, &rec, &b)
	switch b.Code {
	case HistoryChanged, StaleEpoch, EpochNeedsSeqZero, SequenceGap, Duplicate:
		return fmt.Errorf("the first write of epoch %d: %s", a.Epoch+1, codeNames[b.Code])
	}
	return nil
}

func randomEvent(rng *rand.Rand, w *world, tw *twin, object string) *Event {
	ev := &Event{TTL: -1}
	if rng.IntN(8) == 0 {
		tw.randomSnapshot(rng, ev, w.live.named("b", object))
		return ev
	}
	id := base.StreamID(1 + rng.IntN(int(w.nextID)))
	switch n := rng.IntN(100); {
	case n < 12:
		ev.Op, ev.Bucket, ev.Name = OpCreate, "b", object
		if rng.IntN(3) == 0 {
			ev.TTL = int64(rng.IntN(3))
		}
		if src := w.live.heads[id]; src != nil && src.pins[w.nextID] > 0 {
			ev.Stream = w.nextID
			ev.Fork = &ForkSpec{Bucket: src.Bucket, Name: src.Name, InheritLife: rng.IntN(2) == 0, Resolved: &record.Fork{
				Source: id, Offset: src.pins[w.nextID], Record: tw.ordinal(id, src.pins[w.nextID]), TTL: src.TTL, ExpiresAt: src.ExpiresAt,
			}}
			if at := tw.pinned; at.Stream == id && at.First <= src.pins[w.nextID] { // or else it would be an older pin's
				f := ev.Fork.Resolved
				f.First, f.FirstRecord = at.First, at.FirstRecord
				if s := at.Snapshot; s != nil && s.Offset <= f.Offset && s.Record <= f.Record {
					ev.Fork.Snapshot = s
				} else if f.First > 0 {
					f.First, f.FirstRecord = 0, 0 // the engine does not make such a fork
				}
			}
		}
		randomWrite(rng, ev)
	case n < 85:
		ev.Op = OpAppend
		randomWrite(rng, ev)
	case n < 88:
		ev.Op = OpDelete
	case n < 90:
		ev.Op, ev.Stream = OpExpire, id
	case n < 93:
		ev.Op, ev.Stream = OpTouch, id
	case n < 98:
		ev.Op, ev.Stream, ev.ForkID, ev.ForkOffset = OpPin, id, w.nextID, base.Offset(rng.IntN(20))
	default:
		ev.Op, ev.Stream, ev.ForkID = OpUnpin, id, w.nextID
	}
	return ev
}

func randomWrite(rng *rand.Rand, ev *Event) {
	ev.MediaType = []byte("text/plain")
	if rng.IntN(10) == 0 {
		ev.MediaType = []byte("text/html")
	}
	ev.ContentType = string(ev.MediaType)
	if ev.HasBody = rng.IntN(12) > 0; ev.HasBody {
		for range 1 + rng.IntN(3) {
			ev.Body = append(ev.Body, bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, 1+rng.IntN(5))...)
			ev.Ends = append(ev.Ends, uint32(len(ev.Body)))
		}
	}
	ev.Close = !ev.HasBody || rng.IntN(60) == 0
	ev.BodyFault = rng.IntN(30) == 0
	if rng.IntN(8) == 0 {
		ev.StreamSeq, ev.HasSeq = fmt.Appendf(nil, "%x", rng.IntN(1<<12)), true
	}
	if rng.IntN(20) == 0 {
		ev.IfMatch = []Match{{}, {Any: rng.IntN(2) == 0}}
	}
	if rng.IntN(40) == 0 {
		ev.RecordMatch, ev.HasRecordMatch = uint64(rng.IntN(20)), true
	}
	if ev.Op == OpCreate && rng.IntN(3) == 0 {
		ev.Attrs = []byte("{}")
	}
	if rng.IntN(3) > 0 {
		ev.Producer = producer(string(rune('p'+rng.IntN(5))), uint64(rng.IntN(3)), uint64(rng.IntN(6)))
	}
}

// check holds an answer against what the twin knows, and lets it learn.
func (tw *twin) check(ev *Event, a *Answer, rec *record.Record, eff *Effects, logged bool) error {
	key := tuple{stream: a.Stream, id: string(ev.Producer.ID), epoch: ev.Producer.Epoch, seq: ev.Producer.Seq}
	was, known := tw.stored[key]
	known = known && ev.Producer.Set
	switch a.Code {
	case Created, Appended, Closed:
		if !logged || rec.Type != record.TypeCreate && rec.Type != record.TypeAppend {
			break // closed already, or nothing about bytes
		}
		if known {
			return fmt.Errorf("stored a second time")
		}
		if rec.Type == record.TypeCreate && rec.Config.Fork != nil {
			f := rec.Config.Fork
			tw.bytes[a.Stream] = tw.bytes[f.Source][:f.Offset:f.Offset]
			tw.ends[a.Stream] = slices.Clone(tw.ends[f.Source][:tw.ordinal(f.Source, f.Offset)])
			if n := len(tw.ends[a.Stream]); n > 0 {
				tw.ends[a.Stream][n-1] = min(tw.ends[a.Stream][n-1], f.Offset)
			}
		}
		if a.HasStart && int(a.Start) != len(tw.bytes[a.Stream]) {
			return fmt.Errorf("begins at %d, but there are %d bytes", a.Start, len(tw.bytes[a.Stream]))
		}
		for _, x := range rec.Ends {
			tw.ends[a.Stream] = append(tw.ends[a.Stream], base.Offset(len(tw.bytes[a.Stream]))+base.Offset(x))
		}
		tw.bytes[a.Stream] = append(tw.bytes[a.Stream], rec.Body...)
		if int(a.Next) != len(tw.bytes[a.Stream]) {
			return fmt.Errorf("ends at %d, but there are %d bytes", a.Next, len(tw.bytes[a.Stream]))
		}
		if ev.Producer.Set {
			tw.stored[key] = string(rec.Body)
		}
	case HistoryChanged:
		if known && (!a.HasReplaced || a.ReplacedEpoch < key.epoch || a.ReplacedEpoch == key.epoch && a.ReplacedSeq < key.seq) {
			return fmt.Errorf("it was stored, but %d/%d is said to be what is left", a.ReplacedEpoch, a.ReplacedSeq)
		}
	case Duplicate:
		if !known {
			return fmt.Errorf("called a repeat, but was never stored")
		}
		if got := string(tw.bytes[a.Stream][a.Start:a.Next]); a.HasStart && got != was {
			return fmt.Errorf("its receipt shows %q, but it stored %q", got, was)
		}
	case ClosedDuplicate:
		if !known {
			return fmt.Errorf("called a repeat, but was never stored")
		}
	case StreamClosed, SequenceGap, EpochNeedsSeqZero:
		if known {
			return fmt.Errorf("refused, but it was stored")
		}
	case NeedsRoom:
		for k := range tw.stored {
			if k.stream == rec.Stream && k.id == string(rec.Producer.ID) {
				delete(tw.stored, k)
			}
		}
	}
	if ev.Op == OpPin && logged {
		tw.pinned = *a
	}
	if !logged && (a.Code == Created || a.Code == Appended) {
		return fmt.Errorf("succeeded without a record")
	}
	if logged && !a.Code.OK() && a.Code != NeedsRoom {
		return fmt.Errorf("refused with a record")
	}
	if eff.Gone {
		delete(tw.bytes, rec.Stream)
	}
	return nil
}
