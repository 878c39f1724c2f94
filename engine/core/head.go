// Package core is the state machine of Snakream: Decide turns an event into a
// refusal or one record, Apply turns a record into state. It has no clock, no
// lock, no file, no socket and no goroutine; time arrives in the event's
// environment and in the record.
package core

import (
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// Fixed is what never changes in the life of a stream. Heads and views share it.
type Fixed struct {
	ID base.StreamID
	record.Config
}

// Deadline returns the instant at which a stream that was last touched at the
// given time expires, or 0 if it never does.
func (f *Fixed) Deadline(touched base.Millis) base.Millis {
	switch {
	case f.TTL >= 0:
		return touched + base.Millis(f.TTL)*1000
	default:
		return f.ExpiresAt
	}
}

// Expires reports whether the stream has a deadline at all.
func (f *Fixed) Expires() bool { return f.TTL >= 0 || f.ExpiresAt != 0 }

// Head is what has been decided about a stream; it may be a batch ahead of the
// disk. Only the turn of its shard touches it.
type Head struct {
	*Fixed
	record.State
	producers map[string]*record.ProducerState
	idBytes   int // of all producers' ids
	pins      map[base.StreamID]base.Offset
	oldest    base.Millis // no producer's newest write is older
	extra     *Extra
}

// Extra is what few streams have. Immutable: a change makes another.
type Extra struct {
	Attrs    []byte             // nil: none
	Snapshot *record.Snapshot   // the current one
	Replaced []*record.Snapshot // earlier ones that are still readable
}

// with returns a copy to be changed.
func (x *Extra) with() *Extra {
	if x == nil {
		return &Extra{}
	}
	y := *x
	return &y
}

// Find returns the snapshot at an offset, the current one or a replaced one.
func (x *Extra) Find(at base.Offset) *record.Snapshot {
	if x == nil {
		return nil
	}
	if s := x.Snapshot; s != nil && s.Offset == at {
		return s
	}
	for _, s := range x.Replaced {
		if s.Offset == at {
			return s
		}
	}
	return nil
}

// EachSnapshot calls f for every snapshot that is readable.
func (x *Extra) EachSnapshot(f func(*record.Snapshot)) {
	if x == nil {
		return
	}
	if x.Snapshot != nil {
		f(x.Snapshot)
	}
	for _, s := range x.Replaced {
		f(s)
	}
}

// View is what is durable about a stream, immutable and small, for readers.
type View struct {
	*Fixed
	Next, First             base.Offset // retained bytes are [First, Next)
	NextRecord, FirstRecord uint64      // and messages
	record.Past
	LastWrite base.Millis
	Closed    bool
	Deleted   bool   // ended, but kept for its forks
	Extra     *Extra // nil: neither attributes nor snapshots
}

// Snapshot returns the current snapshot, or nil.
func (v *View) Snapshot() *record.Snapshot {
	if v.Extra == nil {
		return nil
	}
	return v.Extra.Snapshot
}

// View returns the head as readers may see it once its batch is durable.
func (h *Head) View() View {
	return View{
		Fixed: h.Fixed, Next: h.Next, First: h.First, NextRecord: h.NextRecord, FirstRecord: h.FirstRecord,
		Past: h.Past, LastWrite: h.LastWrite, Closed: h.Closed, Deleted: h.Deleted, Extra: h.extra,
	}
}

// Pins returns how many forks keep the stream's bytes.
func (h *Head) Pins() int { return len(h.pins) }

// EachPin calls f for every fork that keeps the stream's bytes.
func (h *Head) EachPin(f func(fork base.StreamID, upTo base.Offset)) {
	for id, off := range h.pins {
		f(id, off)
	}
}

// Approximate sizes in bytes, for --max-state-bytes.
const (
	headBytes     = 640
	producerBytes = 192
	pinBytes      = 64
	snapshotBytes = 192
)

// Bytes estimates the memory that the head takes.
func (h *Head) Bytes() int64 {
	n := headBytes + 2*(len(h.Bucket)+len(h.Name)) + len(h.ContentType) + len(h.Seq) + len(h.ClosedBy)
	if f := h.Fork; f != nil {
		n += len(f.Bucket) + len(f.Name)
	}
	if x := h.extra; x != nil {
		n += len(x.Attrs) + snapshotBytes*(1+len(x.Replaced))
	}
	return int64(n + pinBytes*len(h.pins) + producerBytes*len(h.producers) + h.idBytes)
}

// idBits is how much of a StreamID an incarnation holds.
const idBits = 41

// Incarnation returns what the header Stream-Incarnation says of a stream: the
// data directory's history number followed by the low 41 bits of the id (design §4).
func Incarnation(history uint16, id base.StreamID) uint64 {
	return uint64(history&record.MaxHistory)<<idBits | uint64(id)&(1<<idBits-1)
}
