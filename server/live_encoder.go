package server

import (
	"context"
	"errors"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// Sizes in stored bytes. A single JSON message may be larger; it is then alone.
const (
	eventBytes = 128 << 10 // of one data event
	pollBytes  = 256 << 10 // of one answer to a long-poll that waited
)

// result says how far the serving of a reader came.
type result uint8

const (
	idle       result = iota // it has everything there is
	unfinished               // there is more, but the slice of time is over
	stalled                  // the transport keeps the rest of a frame
	needsDisk                // what comes next is not in memory
	finished                 // it has had its last bytes, or has gone
)

// encoder turns ranges of streams into frames and answers, once for all readers
// that stand at the same offset, and sends them. It belongs to one goroutine.
type encoder struct {
	*Server
	now      base.Millis
	interval uint64 // the cursor of now
	until    time.Time

	raw     []byte // stored bytes
	scratch []byte // of a frame that is for one reader only
	step    engine.Step
	frames  [4]frame
	oldest  int
	poll    pollAnswer
	op      protocol.Operation
}

// frame is a data event with its control event, and what it was made from.
type frame struct {
	view     *engine.View
	from     base.Offset
	interval uint64
	wish     wish

	to    base.Offset
	next  uint64 // of a read by record: the one at to
	data  int    // length of the data event
	bytes []byte
}

// begin sets the time until which the encoder may work, and what it takes for now.
func (e *encoder) begin(d time.Duration) {
	t := time.Now()
	e.until = t.Add(d)
	e.now = base.Millis(t.UnixMilli())
	e.interval = protocol.NextCursor(e.now, 0, false, 0)
}

func (e *encoder) late() bool { return time.Now().After(e.until) }

// serve sends a reader what there is for it under v, the stream's view. With mem it
// leaves alone what is not in memory.
func (e *encoder) serve(r *reader, v *engine.View, mem bool) result {
	if r.boot != nil {
		return e.sendSnapshot(r, mem)
	}
	for {
		switch {
		case v == nil || v.ID != r.id || v.Deleted:
			return e.end(r, v)
		case r.offset < v.First:
			return e.refuse(r, protocol.OffsetTrimmed, v)
		}
		var res result
		var err error
		if r.mode == longPoll {
			res, err = e.servePoll(r, v, mem)
		} else {
			res, err = e.serveEvents(r, v, mem)
		}
		switch {
		case err == nil:
			return res
		case errors.Is(err, engine.ErrNotInMemory):
			return needsDisk
		case errors.Is(err, engine.ErrStale):
			if w := r.stream.View(); w != v {
				v = w
				continue
			}
		}
		e.reportDamage(r.id, r.offset, err)
		return e.refuse(r, protocol.RangeDamaged, v)
	}
}

// serveEvents sends events until the reader is at the tail, its socket is full, or
// the time is over.
func (e *encoder) serveEvents(r *reader, v *engine.View, mem bool) (result, error) {
	for {
		if r.over {
			return e.rotate(r, v), nil
		}
		bytes, to, record, err := e.next(r, v, mem)
		if err != nil || bytes == nil {
			return idle, err
		}
		if v.Closed && to == v.Next {
			r.x.EndStream(bytes)
			return finished, nil
		}
		if to > r.offset {
			r.held = 0
		}
		r.offset, r.record, r.greeted, r.sent = to, record, true, e.now
		switch r.x.Send(bytes) {
		case Pending:
			return stalled, nil
		case Gone:
			return finished, nil
		}
		if e.late() {
			return unfinished, nil
		}
	}
}

// next returns the next bytes for a reader, and the offset and the record that they
// bring it to; nil when there is nothing to say.
func (e *encoder) next(r *reader, v *engine.View, mem bool) (bytes []byte, to base.Offset, record uint64, err error) {
	if r.offset < v.Next {
		return e.data(r, v, mem)
	}
	if r.greeted && !v.Closed {
		return nil, v.Next, r.record, nil
	}
	e.scratch = e.appendControl(e.scratch[:0], r, v)
	return e.scratch, v.Next, r.record, nil
}

// appendControl appends a control event for where the reader stands.
func (e *encoder) appendControl(dst []byte, r *reader, v *engine.View) []byte {
	return protocol.AppendSSEControl(dst, control(v, r.offset, max(r.cursor, e.interval), r.wish, r.record))
}

// data returns a data event with its control.
func (e *encoder) data(r *reader, v *engine.View, mem bool) ([]byte, base.Offset, uint64, error) {
	f := e.find(v, r)
	if f == nil {
		to, next, err := e.load(v, r, eventBytes, mem)
		if err != nil {
			return nil, 0, 0, err
		}
		raw, flush := e.raw, false
		if protocol.EncodingOf(v.ContentType) == protocol.EncodeText {
			if raw, flush = e.cutText(r, v, to); len(raw) == 0 {
				return nil, 0, 0, nil
			}
			if end := r.offset + base.Offset(len(raw)); end < to {
				to = end
				if next, err = e.recordAt(v, r.wish, to, mem); err != nil {
					return nil, 0, 0, err
				}
			}
		}
		f = e.encode(v, r, to, next, raw)
		if flush {
			f.view = nil // for this reader only
		}
	}
	if r.cursor <= e.interval {
		return f.bytes, f.to, f.next, nil
	}
	e.scratch = append(e.scratch[:0], f.bytes[:f.data]...)
	e.scratch = protocol.AppendSSEControl(e.scratch, control(v, f.to, r.cursor, r.wish, f.next))
	return e.scratch, f.to, f.next, nil
}

// cutText takes from e.raw what ends between two code points. The beginning of one
// waits for its rest, but not past the stream's end, nor for longer than holdback.
func (e *encoder) cutText(r *reader, v *engine.View, to base.Offset) (raw []byte, flush bool) {
	n := protocol.UTF8Cut(e.raw)
	switch {
	case n == len(e.raw):
		return e.raw, false
	case v.Closed && to == v.Next:
		e.metrics.replaced.Add(1)
		return e.raw, false
	case n > 0:
		return e.raw[:n], false
	}
	if r.held == 0 {
		r.held = e.now
	}
	if e.now < r.held+holdback {
		return nil, false
	}
	e.metrics.replaced.Add(1)
	return e.raw, true
}

// encode makes a frame of stored bytes and keeps it for the next reader.
func (e *encoder) encode(v *engine.View, r *reader, to base.Offset, next uint64, raw []byte) *frame {
	f := &e.frames[e.oldest]
	e.oldest = (e.oldest + 1) % len(e.frames)
	f.view, f.from, f.to, f.interval, f.wish, f.next = v, r.offset, to, e.interval, r.wish, next
	f.bytes = reuse(f.bytes, keepFrame)
	if r.wish.envelope {
		f.bytes = protocol.AppendSSERecords(f.bytes, raw, uint64(r.offset), r.record)
	} else {
		f.bytes = protocol.AppendSSEData(f.bytes, protocol.EncodingOf(v.ContentType), raw, uint64(to))
	}
	f.data = len(f.bytes)
	f.bytes = protocol.AppendSSEControl(f.bytes, control(v, to, e.interval, r.wish, next))
	return f
}

// keepFrame is the largest buffer, in bytes, that is kept from frame to frame.
const keepFrame = 512 << 10

// control returns the control event for a reader at an offset and its record.
func control(v *engine.View, to base.Offset, cursor uint64, w wish, record uint64) protocol.Control {
	tail := to == v.Next
	return protocol.Control{
		Next: uint64(to), Cursor: cursor, UpToDate: tail, Closed: tail && v.Closed,
		HasRecords: w.byRecord, FirstRecord: v.FirstRecord, NextRecord: record,
	}
}

// find returns the frame that comes next for a reader, if it has been made already.
func (e *encoder) find(v *engine.View, r *reader) *frame {
	for i := range e.frames {
		if f := &e.frames[i]; f.view == v && f.from == r.offset && f.interval == e.interval && f.wish == r.wish {
			return f
		}
	}
	return nil
}

// load reads stored bytes from where a reader stands into e.raw, at most most of them,
// whole messages of JSON, and returns where they end: at an offset and, for a read by
// record, at that record.
func (e *encoder) load(v *engine.View, r *reader, most int64, mem bool) (to base.Offset, next uint64, err error) {
	eng, from := e.engine.Load(), r.offset
	to, next = v.Next, v.NextRecord
	if r.wish.most > 0 && next-r.record > uint64(r.wish.most) {
		next = r.record + uint64(r.wish.most)
		if to, err = eng.RecordOffset(context.Background(), v, next, mem); err != nil {
			return 0, 0, err
		}
	}
	if to-from > base.Offset(most) {
		to = from + base.Offset(most)
		if v.JSON || r.wish.byRecord {
			if to, err = eng.Fit(context.Background(), v, from, most, mem); err != nil {
				return 0, 0, err
			}
		}
		if next, err = e.recordAt(v, r.wish, to, mem); err != nil {
			return 0, 0, err
		}
	}
	e.raw = reuse(e.raw, keepFrame)
	for pos := from; pos < to; pos = e.step.End() {
		if err := eng.Read(v, pos, to, int(to-pos), &e.step); err != nil {
			return 0, 0, err
		}
		err := engine.ErrNotInMemory
		if !mem || e.step.InMemory() {
			e.raw, err = e.step.Append(context.Background(), e.raw)
		}
		e.step.Release()
		if err != nil {
			return 0, 0, err
		}
	}
	return to, next, nil
}

// recordAt returns the record that an offset lies in, for a read by record.
func (e *encoder) recordAt(v *engine.View, w wish, at base.Offset, mem bool) (uint64, error) {
	if !w.byRecord {
		return 0, nil
	}
	_, n, err := e.engine.Load().Boundary(context.Background(), v, at, mem)
	return n, err
}

// heartbeat sends a comment.
func (e *encoder) heartbeat(r *reader) result {
	r.sent = e.now
	switch r.x.Send([]byte(protocol.Heartbeat)) {
	case Pending:
		return stalled
	case Gone:
		return finished
	}
	return idle
}
