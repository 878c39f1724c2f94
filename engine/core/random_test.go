package core

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
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

// twin is what a naive reader of the answers believes: the bytes of each stream, and
// what each tuple stored.
type twin struct {
	bytes  map[base.StreamID][]byte
	stored map[tuple]string
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
	tw := &twin{bytes: map[base.StreamID][]byte{}, stored: map[tuple]string{}}
	for step := range steps {
		w.now += base.Millis(rng.IntN(40))
		w.diskFull = rng.IntN(20) == 0
		object := fmt.Sprintf("s%d", rng.IntN(4))
		ev := randomEvent(rng, w, object)
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
			if err != nil {
				return fmt.Errorf("step %d: %+v\nanswered %+v: %w\nlast records:\n%s", step, *ev, a, err,
					strings.Join(w.log[max(0, len(w.log)-5):], "\n"))
			}
			if a.Code != NeedsRoom {
				break
			}
		}
	}
	return nil
}

func randomEvent(rng *rand.Rand, w *world, object string) *Event {
	ev := &Event{TTL: -1}
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
				Source: id, Offset: src.pins[w.nextID], Record: src.NextRecord, TTL: src.TTL, ExpiresAt: src.ExpiresAt,
			}}
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
		if !logged {
			break // closed already
		}
		if known {
			return fmt.Errorf("stored a second time")
		}
		if rec.Type == record.TypeCreate && rec.Config.Fork != nil {
			tw.bytes[a.Stream] = tw.bytes[rec.Config.Fork.Source][:rec.Config.Fork.Offset:rec.Config.Fork.Offset]
		}
		if a.HasStart && int(a.Start) != len(tw.bytes[a.Stream]) {
			return fmt.Errorf("begins at %d, but there are %d bytes", a.Start, len(tw.bytes[a.Stream]))
		}
		tw.bytes[a.Stream] = append(tw.bytes[a.Stream], rec.Body...)
		if int(a.Next) != len(tw.bytes[a.Stream]) {
			return fmt.Errorf("ends at %d, but there are %d bytes", a.Next, len(tw.bytes[a.Stream]))
		}
		if ev.Producer.Set {
			tw.stored[key] = string(rec.Body)
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
