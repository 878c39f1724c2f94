package enginetest

import (
	"bytes"
	"fmt"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// conditions adds preconditions to a write, most of which are met if what is under way
// changes nothing.
func (w *World) conditions(ev *core.Event, s *state) {
	if !w.cfg.Snapshots || s.inc == nil || s.inc.id == 0 {
		return
	}
	tag := core.Match{Incarnation: core.Incarnation(s.era, s.inc.id), Next: base.Offset(s.next), Closed: s.closed}
	switch w.rng.IntN(20) {
	case 0:
		ev.IfMatch = []core.Match{{}, tag}
	case 1:
		ev.IfMatch = []core.Match{{Any: true}}
	case 2:
		ev.IfNoneMatch = []core.Match{tag}
	case 3:
		ev.RecordMatch, ev.HasRecordMatch = uint64(s.records), true
	}
}

// attributes makes attributes that there were never before.
func (w *World) attributes() []byte {
	w.n++
	return fmt.Appendf(nil, `{"title":"%d"}`, w.n)
}

// snapshotStep does something about snapshots, retention or attributes of st.
func (w *World) snapshotStep(st *stream) {
	if w.e.Lookup([]byte(st.bucket), []byte(st.name)) == nil {
		w.wait() // or its create, under way, would not be found
	}
	w.mu.Lock()
	s := *st.last()
	w.mu.Unlock()
	ev := core.Event{TTL: -1}
	at, n, exact := w.site(&s)
	switch w.rng.IntN(8) {
	default:
		w.publish(st, &s, at, n, exact)
		return
	case 0, 1:
		ev.Op, ev.Offset, ev.Ordinal, ev.BodyFault = core.OpTrim, at, n, !exact
	case 2, 3:
		ev.Op, ev.Offset = core.OpDrop, at
		if len(s.replaced) > 0 && w.rng.IntN(8) > 0 {
			ev.Offset = s.replaced[w.rng.IntN(len(s.replaced))].Offset
		}
	case 4:
		ev.Op, ev.Attrs, ev.BodyFault = core.OpAttrs, w.attributes(), w.rng.IntN(8) == 0
	}
	w.reachOptions(&ev, &s)
	w.submit(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		if a, ok := s.reach(&ev, w.held(s.inc)); !ok {
			return a, s
		}
		switch {
		case ev.Op == core.OpTrim:
			return s.retain(&ev, now)
		case ev.Op == core.OpDrop:
			return s.drop(ev.Offset)
		case ev.BodyFault:
			return s.answer(core.BodyFault), s
		}
		next := s.renewed(now)
		next.attrs = string(ev.Attrs)
		return next.answer(core.Appended), next
	})
}

// reachOptions adds what any operation may carry that asks for no write.
func (w *World) reachOptions(ev *core.Event, s *state) {
	fault := ev.BodyFault
	w.options(ev, s)
	ev.HasSeq, ev.StreamSeq, ev.BodyFault = false, nil, fault
}

// site chooses a place in a stream, mostly where a message begins.
func (w *World) site(s *state) (at base.Offset, n uint64, exact bool) {
	if s.inc == nil {
		return 0, 0, true
	}
	if s.snap != nil && w.rng.IntN(5) == 0 {
		return s.snap.Offset, s.snap.Record, true
	}
	off := w.rng.IntN(s.next + 2)
	if s.records > 0 && w.rng.IntN(10) > 0 {
		off = s.inc.ends[w.rng.IntN(s.records)]
	}
	if off > s.next {
		return base.Offset(off), uint64(s.records), false
	}
	m, exact := s.inc.message(off, s.records)
	return base.Offset(off), uint64(m), exact
}

// publish uploads a snapshot and publishes it.
func (w *World) publish(st *stream, s *state, at base.Offset, n uint64, exact bool) {
	body := w.snapshotBody(s)
	d, err := w.upload(body)
	if err != nil {
		w.fail(fmt.Errorf("upload: %w", err))
		return
	}
	w.mu.Lock()
	now := w.now
	w.mu.Unlock()
	ev := core.Event{Op: core.OpSnapshot, TTL: -1, BodyFault: !exact, Retain: w.rng.IntN(3) == 0}
	ev.Snapshot = &record.Snapshot{Offset: at, Record: n, Digest: d, Size: int64(len(body)), ContentType: textType}
	w.reachOptions(&ev, s)
	w.submitThen(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		if a, ok := s.reach(&ev, w.held(s.inc)); !ok {
			return a, s
		}
		return s.publish(&ev, now)
	}, func() {
		if err := w.e.Blobs().Unpin(d, now); err != nil {
			w.failed(fmt.Errorf("unpin: %w", err))
		}
	})
}

// snapshotBody makes the bytes of a snapshot: new ones, some that others have too, or
// those of the current one again.
func (w *World) snapshotBody(s *state) []byte {
	if s.snap != nil && w.rng.IntN(3) == 0 {
		if b, ok := w.blobs.Load(blob.Digest(s.snap.Digest)); ok {
			return b.([]byte)
		}
	}
	if w.rng.IntN(3) == 0 {
		return fmt.Appendf(nil, "shared %d", w.rng.IntN(3))
	}
	w.n++
	return bytes.Repeat(fmt.Appendf(nil, "{%d}", w.n), 1+w.rng.IntN(3000))
}
