package core

import (
	"fmt"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// meets compares the preconditions of a write with the head (api §3, «Conditional
// writes»). A list of tags matches if any of them does.
func (h *Head) meets(ev *Event, env *Env, a *Answer) bool {
	matches := func(m Match) bool {
		return m.Any || m.Incarnation == Incarnation(env.History, h.ID) && m.Next == h.Next && m.Closed == h.Closed
	}
	if len(ev.IfMatch) > 0 && !slices.ContainsFunc(ev.IfMatch, matches) || slices.ContainsFunc(ev.IfNoneMatch, matches) {
		return a.refuse(PreconditionFailed)
	}
	if ev.HasRecordMatch && ev.RecordMatch != h.NextRecord {
		return a.refuse(RecordMismatch)
	}
	return true
}

// decideSnapshot decides a publication (api §4). That the offset is a message
// boundary has been found out before; if it is not, BodyFault says so.
func decideSnapshot(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	s, cur := ev.Snapshot, h.snapshot()
	switch {
	case s.Offset > h.Next:
		return a.refuse(SnapshotBeyondTail)
	case cur != nil && s.Offset == cur.Offset:
		return republish(h, ev, cur, rec, a)
	case s.Offset < h.First:
		return a.refuse(SnapshotTrimmed)
	case ev.BodyFault:
		return a.refuse(BodyFault)
	case cur != nil && s.Offset < cur.Offset:
		return a.refuse(SnapshotStale)
	case env.State > env.MaxState:
		return a.refuse(StateFull)
	case env.DiskFull:
		return a.refuse(DiskFull)
	}
	n := *s
	n.At, n.Replaced = env.Now, 0
	rec.Type, rec.Snapshot, rec.Trim = record.TypeSnapshot, &n, !ev.Retain
	a.Code, a.Snapshot = Created, &n
	if rec.Trim {
		a.First, a.FirstRecord = n.Offset, n.Record
	}
	return true
}

// republish answers the same offset again: the same bytes and type are a repeat,
// which may trim what the first publication retained.
func republish(h *Head, ev *Event, cur *record.Snapshot, rec *record.Record, a *Answer) bool {
	if ev.Snapshot.Digest != cur.Digest || ev.Snapshot.ContentType != cur.ContentType {
		return a.refuse(SnapshotConflict)
	}
	a.Code = Exists
	if ev.Retain || h.First >= cur.Offset {
		return false
	}
	rec.Type, rec.Offset, rec.Ordinal = record.TypeTrim, cur.Offset, cur.Record
	a.First, a.FirstRecord = cur.Offset, cur.Record
	return true
}

// decideTrim decides a change of the retention: monotonic, never above the current
// snapshot, so that a trimmed stream always has a bootstrap.
func decideTrim(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	switch {
	case ev.Offset < h.First:
		return a.refuse(RetentionBehind)
	case ev.Offset == h.First:
		return a.refuse(Exists)
	case a.Snapshot == nil || ev.Offset > a.Snapshot.Offset:
		return a.refuse(RetentionAhead)
	case ev.BodyFault:
		return a.refuse(BodyFault)
	}
	rec.Type, rec.Offset, rec.Ordinal = record.TypeTrim, ev.Offset, ev.Ordinal
	a.Code, a.First, a.FirstRecord = Appended, ev.Offset, ev.Ordinal
	return true
}

func decideDrop(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	switch s := h.extra.Find(ev.Offset); {
	case s == nil:
		return a.refuse(SnapshotNotFound)
	case s == h.extra.Snapshot:
		return a.refuse(SnapshotIsCurrent)
	}
	rec.Type, rec.Offset = record.TypeDrop, ev.Offset
	a.Code = Deleted
	return true
}

func decideAttrs(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	switch {
	case ev.BodyFault:
		return a.refuse(BodyFault)
	case env.State > env.MaxState:
		return a.refuse(StateFull)
	case env.DiskFull:
		return a.refuse(DiskFull)
	}
	rec.Type, rec.Attrs = record.TypeAttrs, ev.Attrs
	a.Code = Appended
	return true
}

// publish makes a snapshot the current one.
func (h *Head) publish(rec *record.Record, eff *Effects) error {
	if rec.Snapshot == nil {
		return fmt.Errorf("stream %d publishes no snapshot", h.ID)
	}
	s := *rec.Snapshot
	x := h.extra.with()
	if old := x.Snapshot; old != nil {
		if s.Offset <= old.Offset {
			return fmt.Errorf("snapshot of stream %d at %d after one at %d", h.ID, s.Offset, old.Offset)
		}
		o := *old
		o.Replaced = rec.At
		x.Replaced = append(slices.Clone(x.Replaced), &o)
		eff.Snapshots = append(eff.Snapshots, &o)
	}
	if !h.holds(s.Offset, s.Record) {
		return fmt.Errorf("snapshot of stream %d at %d, which holds [%d, %d)", h.ID, s.Offset, h.First, h.Next)
	}
	s.At, s.Replaced = rec.At, 0 // a fork's may have been replaced in its source
	x.Snapshot, h.extra = &s, x
	eff.Snapshots = append(eff.Snapshots, &s)
	if rec.Trim {
		h.trim(s.Offset, s.Record, eff)
	}
	h.used(rec.At, eff)
	return nil
}

// holds reports whether a message that is retained can begin at an offset, or the tail.
func (h *Head) holds(at base.Offset, ordinal uint64) bool {
	return h.First <= at && at <= h.Next && h.FirstRecord <= ordinal && ordinal <= h.NextRecord
}

// snapshot returns the current snapshot, or nil.
func (h *Head) snapshot() *record.Snapshot {
	if h.extra == nil {
		return nil
	}
	return h.extra.Snapshot
}

// trim moves the earliest offset; what forks inherit stays for them.
func (h *Head) trim(to base.Offset, record uint64, eff *Effects) {
	if to > h.First {
		h.First, h.FirstRecord = to, record
		eff.State, eff.Trimmed = true, true
	}
}

// drop forgets a replaced snapshot. It is no use of the stream: mostly nobody asked for it.
func (h *Head) drop(at base.Offset, eff *Effects) error {
	s := h.extra.Find(at)
	if s == nil || s == h.extra.Snapshot {
		return fmt.Errorf("stream %d has no replaced snapshot at %d", h.ID, at)
	}
	x := h.extra.with()
	x.Replaced = slices.DeleteFunc(slices.Clone(x.Replaced), func(r *record.Snapshot) bool { return r == s })
	h.extra = x
	eff.Dropped = s
	return nil
}

func (h *Head) setAttrs(attrs []byte, eff *Effects) {
	x := h.extra.with()
	x.Attrs, h.extra = slices.Clone(attrs), x
	eff.Attrs = x.Attrs
}

// AddAttrs puts back the attributes' row.
func (h *Head) AddAttrs(attrs []byte) { h.setAttrs(attrs, &Effects{}) }

// AddSnapshot puts back a snapshot's row.
func (h *Head) AddSnapshot(s *record.Snapshot) {
	x := h.extra.with()
	if s.Replaced == 0 {
		x.Snapshot = s
	} else {
		x.Replaced = append(x.Replaced, s)
	}
	h.extra = x
}

// Extra returns what few streams have, or nil.
func (h *Head) Extra() *Extra { return h.extra }
