package server

import (
	"slices"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// wish is how a read wants its messages.
type wish struct {
	ndjson   bool
	byRecord bool // it counts in records, and so do its control events
	envelope bool
	now      bool  // it began wherever the tail was
	most     int64 // records of one answer or event; 0: no limit
}

func wishOf(rd *protocol.Read) wish {
	if q := &rd.Records; q.Set {
		return wish{
			ndjson: rd.NDJSON, byRecord: true, envelope: q.Envelope, most: q.Max,
			now: q.Start == protocol.StartNow && !rd.LastEventID,
		}
	}
	return wish{ndjson: rd.NDJSON, now: rd.Start == protocol.StartNow}
}

// read returns what a request for the wish asks for, from the offset on.
func (w wish) read(from base.Offset) protocol.Read {
	rd := protocol.Read{
		Live: protocol.LiveLongPoll, Start: protocol.StartAt, Offset: uint64(from), Given: true, NDJSON: w.ndjson,
	}
	if w.now {
		rd.Start = protocol.StartNow
	}
	if w.byRecord {
		rd.Records = protocol.RecordQuery{Set: true, Start: rd.Start, Envelope: w.envelope, Max: w.most}
	}
	return rd
}

// format is how a stored range becomes a body.
type format struct {
	open, close string // around it
	comma       bool   // the range's last byte is a comma that goes
	lines       bool   // commas between messages become line ends
	envelope    bool   // messages become lines with their ordinals, from first up to next
	first, next uint64
}

// formatOf returns the format of a range of a stream. For an envelope the ordinals are
// still to be filled in.
func formatOf(v *engine.View, w wish, empty bool) format {
	switch {
	case !v.JSON:
		return format{}
	case w.envelope:
		return format{envelope: true}
	case w.ndjson:
		return format{lines: true}
	}
	return format{open: protocol.OpenArray, close: protocol.CloseArray, comma: !empty}
}

// appendBody appends the body that a whole range makes.
func appendBody(dst []byte, f format, stored []byte) []byte {
	dst = append(dst, f.open...)
	if f.comma {
		stored = stored[:len(stored)-1]
	}
	turn := turner{format: &f}
	return append(turn.append(dst, stored), f.close...)
}

// last returns where the bytes that are sent end.
func (f *format) last(start, end base.Offset) base.Offset {
	if f.comma && end > start {
		return end - 1
	}
	return end
}

// size returns the length of the body, in bytes.
func (f *format) size(start, end base.Offset) int64 {
	stored := int64(f.last(start, end) - start)
	if f.envelope {
		return protocol.EnvelopeSize(stored, f.first, f.next)
	}
	return stored + int64(len(f.open)+len(f.close))
}

// turner turns the pieces of a range, one after the other, into pieces of a body.
type turner struct {
	format   *format
	lines    protocol.Lines
	envelope protocol.Envelope
	begun    bool
}

// append appends what the next piece becomes to dst, which is not its memory.
func (t *turner) append(dst, stored []byte) []byte {
	switch f := t.format; {
	case f.lines:
		return t.lines.Append(dst, stored)
	case f.envelope:
		if !t.begun {
			t.begun, t.envelope.Next = true, f.first
		}
		return t.envelope.Append(dst, stored)
	}
	return append(dst, stored...)
}

// last is append for a piece that stands at the end of b already, from n on.
func (t *turner) last(b []byte, n int) []byte {
	switch f := t.format; {
	case f.lines:
		return t.lines.Append(b[:n], b[n:])
	case f.envelope:
		return t.append(b[:n], slices.Clone(b[n:]))
	}
	return b
}
