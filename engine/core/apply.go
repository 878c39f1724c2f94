package core

import (
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// Effects is what Apply changed, for whoever keeps the rows and tells others.
type Effects struct {
	Config bool // the row of the configuration
	State  bool // the row of state
	Gone   bool // the stream has ended: one tombstone instead of all rows

	// The row of one producer; Producer nil means removed.
	ProducerID []byte
	Producer   *record.ProducerState

	// The row of one pin.
	Pin        base.StreamID // 0: none
	PinOffset  base.Offset
	PinRemoved bool

	// Rows of snapshots that are new or were replaced, and one that was dropped.
	Snapshots []*record.Snapshot
	Dropped   *record.Snapshot
	Freed     []*record.Snapshot // those of a stream that has ended; their rows go with it
	Trimmed   bool               // bytes below the earliest offset are not needed any more
	Attrs     []byte             // the row of the attributes; nil: unchanged

	// Release is the fork record of a stream that has gone: its source has to be
	// told by an OpUnpin. nil when there is none.
	Release *record.Fork
}

// Apply carries out a record on the head it is about (nil for TypeCreate) and
// returns the head afterwards, the same one or a new one; it is meaningless when
// eff.Gone. It is total: an error means that the record does not follow from the
// head, which is corruption. Recovery and live writes both come here.
func Apply(h *Head, rec *record.Record, eff *Effects) (*Head, error) {
	*eff = Effects{}
	if rec.Type == record.TypeCreate {
		return applyCreate(h, rec, eff)
	}
	if h == nil || h.ID != rec.Stream {
		return nil, fmt.Errorf("record of type %d for stream %d, which does not exist", rec.Type, rec.Stream)
	}
	if h.Deleted && rec.Type != record.TypeUnpin {
		return nil, fmt.Errorf("record of type %d for stream %d, which has ended", rec.Type, rec.Stream)
	}
	switch rec.Type {
	case record.TypeAppend:
		if rec.Offset != h.Next || h.Closed {
			return nil, fmt.Errorf("append to stream %d at %d, which stands at %d (closed %t)", h.ID, rec.Offset, h.Next, h.Closed)
		}
		if rec.History != 0 && rec.History <= h.History {
			return nil, fmt.Errorf("append that begins history %d of stream %d, which is at %d", rec.History, h.ID, h.History)
		}
		h.write(rec, eff)
	case record.TypeTouch:
		h.used(rec.At, eff)
	case record.TypeForget:
		if !h.dropProducer(string(rec.Producer.ID)) {
			return nil, fmt.Errorf("stream %d forgets producer %q, which it does not know", h.ID, rec.Producer.ID)
		}
		eff.ProducerID = rec.Producer.ID
	case record.TypeDelete:
		h.Deleted = true
		h.producers, h.idBytes = nil, 0
		h.extra.EachSnapshot(func(s *record.Snapshot) { eff.Freed = append(eff.Freed, s) })
		h.extra = nil
		h.settle(eff)
	case record.TypePin:
		if rec.ForkOffset > h.Next {
			return nil, fmt.Errorf("fork %d pins stream %d up to %d, which stands at %d", rec.ForkID, h.ID, rec.ForkOffset, h.Next)
		}
		h.AddPin(rec.ForkID, rec.ForkOffset)
		eff.Pin, eff.PinOffset = rec.ForkID, rec.ForkOffset
	case record.TypeUnpin:
		if _, ok := h.pins[rec.ForkID]; !ok {
			return nil, fmt.Errorf("stream %d has no pin of fork %d", h.ID, rec.ForkID)
		}
		delete(h.pins, rec.ForkID)
		eff.Pin, eff.PinRemoved = rec.ForkID, true
		if h.Deleted {
			h.settle(eff)
		}
	case record.TypeSnapshot:
		if err := h.publish(rec, eff); err != nil {
			return nil, err
		}
	case record.TypeTrim:
		if s := h.snapshot(); s == nil || rec.Offset > s.Offset || !h.holds(rec.Offset, rec.Ordinal) {
			return nil, fmt.Errorf("stream %d is trimmed to %d, which holds [%d, %d)", h.ID, rec.Offset, h.First, h.Next)
		}
		h.trim(rec.Offset, rec.Ordinal, eff)
		h.used(rec.At, eff)
	case record.TypeDrop:
		if err := h.drop(rec.Offset, eff); err != nil {
			return nil, err
		}
	case record.TypeAttrs:
		h.setAttrs(rec.Attrs, eff)
		h.used(rec.At, eff)
	default:
		return nil, fmt.Errorf("record of unknown type %d", rec.Type)
	}
	return h, nil
}

func applyCreate(h *Head, rec *record.Record, eff *Effects) (*Head, error) {
	if h != nil {
		return nil, fmt.Errorf("create of stream %d in the place of stream %d", rec.Stream, h.ID)
	}
	h = &Head{Fixed: &Fixed{ID: rec.Stream, Config: *rec.Config}}
	h.History = max(rec.History, 1)
	if f := rec.Config.Fork; f != nil {
		h.Next, h.NextRecord, h.First, h.FirstRecord = f.Offset, f.Record, f.First, f.FirstRecord
	}
	if rec.Offset != h.Next || h.First > h.Next || h.FirstRecord > h.NextRecord {
		return nil, fmt.Errorf("create of stream %d at %d, which begins with [%d, %d)", h.ID, rec.Offset, h.First, h.Next)
	}
	eff.Config = true
	if rec.Snapshot != nil {
		if err := h.publish(rec, eff); err != nil {
			return nil, err
		}
	}
	if rec.Attrs != nil {
		h.setAttrs(rec.Attrs, eff)
	}
	h.write(rec, eff)
	return h, nil
}

// write is the one place where data, closure, Stream-Seq and producer move, together.
func (h *Head) write(rec *record.Record, eff *Effects) {
	start, n := h.Next, h.NextRecord
	if rec.History > h.History {
		h.Past = record.Past{History: rec.History, Previous: h.History, Inherited: h.Next}
	}
	h.Next += base.Offset(len(rec.Body))
	h.NextRecord += uint64(len(rec.Ends))
	h.LastWrite = rec.At
	h.Touched = max(h.Touched, rec.At)
	if rec.HasSeq {
		h.Seq, h.HasSeq = string(rec.Seq), true
	}
	eff.State = true
	if t := rec.Producer; t.Set {
		p := h.producers[string(t.ID)]
		if p == nil {
			p = &record.ProducerState{}
			h.AddProducer(string(t.ID), p)
		}
		*p = record.ProducerState{
			Epoch: t.Epoch, Seq: t.Seq, Start: start, End: h.Next, StartRecord: n, EndRecord: h.NextRecord, At: rec.At,
			History: h.History,
		}
		eff.ProducerID, eff.Producer = t.ID, p
	}
	if rec.Close {
		h.Closed = true
		if t := rec.Producer; t.Set {
			h.HasClosedBy, h.ClosedBy, h.ClosedEpoch, h.ClosedSeq = true, string(t.ID), t.Epoch, t.Seq
		}
	}
}

// used notes that the stream was used: a TTL counts from here.
func (h *Head) used(at base.Millis, eff *Effects) {
	h.Touched = max(h.Touched, at)
	eff.State = true
}

// settle decides what is left of a deleted stream: nothing, or its bytes for as
// long as forks need them.
func (h *Head) settle(eff *Effects) {
	eff.State = true
	if len(h.pins) == 0 {
		eff.Gone, eff.Release = true, h.Fork
	}
}

// Restore returns a head as its rows describe it.
func Restore(id base.StreamID, c *record.Config, s record.State) *Head {
	return &Head{Fixed: &Fixed{ID: id, Config: *c}, State: s}
}

// AddProducer puts back a producer's row.
func (h *Head) AddProducer(id string, p *record.ProducerState) {
	if h.producers == nil {
		h.producers = map[string]*record.ProducerState{}
	}
	h.producers[id] = p
	h.idBytes += len(id)
}

func (h *Head) dropProducer(id string) bool {
	if h.producers[id] == nil {
		return false
	}
	delete(h.producers, id)
	h.idBytes -= len(id)
	return true
}

// AddPin puts back a pin's row.
func (h *Head) AddPin(fork base.StreamID, upTo base.Offset) {
	if h.pins == nil {
		h.pins = map[base.StreamID]base.Offset{}
	}
	h.pins[fork] = upTo
}
