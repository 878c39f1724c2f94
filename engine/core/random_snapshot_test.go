package core

import (
	"fmt"
	"math/rand/v2"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// ordinal returns how many messages a stream has up to an offset, one that the offset
// cuts included.
func (tw *twin) ordinal(id base.StreamID, at base.Offset) uint64 {
	n, last := 0, base.Offset(0)
	for _, end := range tw.ends[id] {
		if last >= at {
			break
		}
		n, last = n+1, end
	}
	return uint64(n)
}

// randomSnapshot asks something about snapshots, retention or attributes, mostly what
// a front lets through.
func (tw *twin) randomSnapshot(rng *rand.Rand, ev *Event, h *Head) {
	at, n := base.Offset(0), uint64(0)
	if h != nil {
		if ends := tw.ends[h.ID]; len(ends) > 0 && rng.IntN(8) > 0 {
			i := rng.IntN(len(ends))
			at, n = ends[i], uint64(i)+1
		}
		if s := h.snapshot(); s != nil && rng.IntN(4) == 0 {
			at, n = s.Offset, s.Record
		}
		if rng.IntN(30) == 0 {
			at = h.Next + 1
		}
	}
	ev.BodyFault = rng.IntN(30) == 0
	ev.Offset, ev.Ordinal = at, n
	switch rng.IntN(8) {
	default:
		ev.Op, ev.Retain = OpSnapshot, rng.IntN(3) == 0
		ev.Snapshot = &record.Snapshot{Offset: at, Record: n, Digest: digestOf(string(rune('A' + rng.IntN(5)))), Size: 1}
	case 0, 1:
		ev.Op = OpTrim
	case 2, 3:
		ev.Op = OpDrop
		if x := h; x != nil && x.extra != nil && len(x.extra.Replaced) > 0 {
			ev.Offset = x.extra.Replaced[rng.IntN(len(x.extra.Replaced))].Offset
		}
	case 4:
		ev.Op, ev.Attrs = OpAttrs, []byte(fmt.Sprintf(`{"title":"%d"}`, rng.IntN(100)))
	}
}

// checkSnapshots holds what must be true of snapshots after every event: references are
// counted as they are, whatever was trimmed is covered by a snapshot, and snapshots lie
// where a message begins, each with the ordinal of that message.
func (tw *twin) checkSnapshots(w *world, ev *Event, a *Answer, eff *Effects) error {
	for _, s := range eff.Snapshots {
		if s.Replaced == 0 {
			tw.blobs[s.Digest]++
		}
	}
	for _, s := range eff.Freed {
		tw.blobs[s.Digest]--
	}
	if eff.Dropped != nil {
		tw.blobs[eff.Dropped.Digest]--
	}
	have := map[[32]byte]int{}
	for _, h := range w.live.heads {
		if err := tw.checkExtra(h, have); err != nil {
			return fmt.Errorf("stream %d: %w", h.ID, err)
		}
	}
	for d, n := range tw.blobs {
		if have[d] != n {
			return fmt.Errorf("%d snapshots refer to %q, but %d were told of", have[d], d[:1], n)
		}
	}
	switch s := a.Snapshot; {
	case a.Code == SnapshotStale && s.Offset <= ev.Offset, a.Code == SnapshotConflict && s.Offset != ev.Offset:
		return fmt.Errorf("refused because of the snapshot at %d", s.Offset)
	case a.Code == SnapshotTrimmed && ev.Op == OpSnapshot && ev.Offset >= a.First:
		return fmt.Errorf("refused because the stream begins at %d", a.First)
	}
	return nil
}

func (tw *twin) checkExtra(h *Head, have map[[32]byte]int) error {
	ends := tw.ends[h.ID]
	begins := func(at base.Offset, n uint64) bool {
		return n == 0 && at == 0 || n > 0 && n <= uint64(len(ends)) && ends[n-1] == at
	}
	cur := h.snapshot()
	switch {
	case h.First > 0 && !h.Deleted && (cur == nil || cur.Offset < h.First):
		return fmt.Errorf("begins at %d, and no snapshot covers that", h.First)
	case !begins(h.First, h.FirstRecord):
		return fmt.Errorf("begins at %d, message %d, of messages that end at %d", h.First, h.FirstRecord, ends)
	}
	var err error
	h.extra.EachSnapshot(func(s *record.Snapshot) {
		have[s.Digest]++
		if !begins(s.Offset, s.Record) || s != cur && (s.Offset >= cur.Offset || s.Replaced == 0) {
			err = fmt.Errorf("snapshot %+v beside %+v, of messages that end at %d", *s, *cur, ends)
		}
	})
	return err
}
