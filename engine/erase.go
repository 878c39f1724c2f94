package engine

import (
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// The bytes of a stream that has gone, or was trimmed, lie in memtables, in the log and
// in segments, and have to leave them within Options.EraseWithin (design rule 10). By
// half of it the log goes on in a new file and then the memtable is flushed, without
// them, so that the files before that one are zeroed; the keeper has every segment that
// holds some written anew. A shard without such bytes does nothing.

// erasing says how far the turn has come with that. First the log, then the memtable:
// so the flush covers all that the files before hold.
type erasing uint8

const (
	erasingNothing  erasing = iota
	erasingLog              // it was told to go on in a new file
	erasingMemtable         // it has; what the files before hold is to be flushed
)

// eraseAfter is for how long bytes may be dead before they are done away with.
func (o *Options) eraseAfter() base.Millis { return base.Millis(o.EraseWithin.Milliseconds() / 2) }

// erase begins to erase what memtables and log have held for long enough, and reports
// whether the memtable has to be frozen for it now.
func (s *shard) erase() bool {
	if s.erasing == erasingNothing && s.deadSince != 0 && s.now-s.deadSince >= s.e.opts.eraseAfter() {
		s.log.Rotate()
		s.erasing = erasingLog
	}
	return s.erasing == erasingMemtable
}

// died notes that memtables and log may hold dead bytes from now on.
func (s *shard) died(at base.Millis) {
	if s.deadSince == 0 {
		s.deadSince = max(at, 1)
	}
}

// unknownDead is for a start: nobody knows whether the part of the log that is in
// segments holds dead bytes, or since when. Half of the time that they have may be over.
func (s *shard) unknownDead() {
	if s.keep.state.Low.LSN > 0 {
		s.died(s.e.now() - s.e.opts.eraseAfter()/2)
	}
}

// leftLog notes that the batch that has just begun is the first of a new file, if that
// is so: what dies from now on may be in this file too.
func (s *shard) leftLog() {
	if s.erasing == erasingLog && !s.log.Rotating() {
		s.erasing, s.deadSince, s.marking = erasingMemtable, 0, true
	}
}

// mark gives the log's new file a record: the old ones go only behind one.
func (s *shard) mark() {
	if !s.marking {
		return
	}
	if s.marking = false; s.cur.log.Len() > 0 {
		return
	}
	s.scratch = record.Record{Type: record.TypeMark, At: s.now}
	s.headBuf = s.scratch.AppendHead(s.headBuf[:0])
	s.cur.bytes += wal.RecordBytes(len(s.headBuf), 0)
	lsn := s.cur.log.Add(uint8(record.TypeMark), s.headBuf, nil, 0)
	s.end = manifest.Position{LSN: lsn, Batch: s.cur.log.Position().Batch}
}

// endedStream is a stream of which not everything is needed any more.
type endedStream struct {
	at      base.Millis
	below   base.Offset // bytes below are not needed; allBytes when the stream has gone
	counted base.Offset // what segments hold below this is in keeper.dead
}

const allBytes = base.Offset(1<<64 - 1)

// deadBytes is what a segment holds of streams that have gone.
type deadBytes struct {
	n     int64
	since base.Millis
}

// gone notes that nothing of a stream is needed any more. Any goroutine.
func (k *keeper) gone(id base.StreamID, at base.Millis) {
	k.mu.Lock()
	k.end(id, allBytes, at)
	k.mu.Unlock()
}

// trimmed notes that what a stream holds below an offset, where a message begins, is
// not needed any more. Any goroutine.
func (k *keeper) trimmed(id base.StreamID, below base.Offset, at base.Millis) {
	k.mu.Lock()
	if below > k.ended[id].below {
		k.end(id, below, at)
	}
	k.mu.Unlock()
}

func (k *keeper) end(id base.StreamID, below base.Offset, at base.Millis) {
	k.ended[id] = endedStream{at: at, below: below, counted: k.ended[id].counted}
	k.fresh = append(k.fresh, id)
}

// floor returns the offset below which nothing of a stream is needed; allBytes when
// it has gone.
func (k *keeper) floor(id base.StreamID) base.Offset {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended[id].below
}

// forget drops streams of which no trace is left.
func (k *keeper) forget(ids ...base.StreamID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		delete(k.ended, id)
	}
}

// countDead counts what segments hold of the streams that have gone since it was
// called last.
func (k *keeper) countDead() {
	k.mu.Lock()
	fresh := k.fresh
	k.fresh = nil
	k.mu.Unlock()
	for _, id := range fresh {
		k.mu.Lock()
		e, ok := k.ended[id]
		if ok {
			k.ended[id] = endedStream{at: e.at, below: e.below, counted: e.below}
		}
		k.mu.Unlock()
		if ok {
			k.tree.Ascend(id, 0, func(x base.Extent) bool {
				k.addDead(x, e.counted, e.below, e.at)
				return x.End < e.below
			})
		}
	}
}

// countNew counts an extent that enters the tree: its stream may have gone after its
// bytes were written. One that countDead has yet to look at is left to it.
func (k *keeper) countNew(x base.Extent) {
	k.mu.Lock()
	e := k.ended[x.Stream]
	k.mu.Unlock()
	k.addDead(x, 0, e.counted, e.at)
}

// addDead counts the part of an extent that lies in [from, below).
func (k *keeper) addDead(x base.Extent, from, below base.Offset, at base.Millis) {
	x.Start, x.End = max(x.Start, from), min(x.End, below)
	if x.Start >= x.End {
		return
	}
	if since := k.state.Segments[x.Segment].DeadSince; since != 0 {
		at = min(at, since) // after a restart only the manifest knows
	}
	d := k.dead[x.Segment]
	if d.n == 0 || at < d.since {
		d.since = at
	}
	d.n += int64(x.End - x.Start)
	k.dead[x.Segment] = d
}

// newlyDead returns what the manifest should say about segments that it takes for
// clean: a restart wouldn't know since when they are not, once the ends of their
// streams are in segments too.
func (k *keeper) newlyDead() (add []manifest.Segment) {
	for id, d := range k.dead {
		if m := k.state.Segments[id]; m.ID == id && m.DeadSince == 0 {
			m.DeadSince = d.since
			add = append(add, m)
		}
	}
	return add
}

// pickDue proposes to write the segment anew that has held dead bytes for the longest,
// if that is for long enough.
func (k *keeper) pickDue() (mergeJob, bool) {
	due := k.s.e.now() - k.s.e.opts.eraseAfter()
	return k.pickDead(func(_ base.SegmentID, d deadBytes) bool { return d.since <= due })
}

// pickWaste proposes to write a segment anew half of whose bytes are dead.
func (k *keeper) pickWaste() (mergeJob, bool) {
	segs := k.s.reads.Load().segs // the keeper alone changes them
	return k.pickDead(func(id base.SegmentID, d deadBytes) bool { return 2*d.n > segs[id].seg.PayloadBytes() })
}

// pickDead proposes the segment that has held dead bytes for the longest, of those
// that are wanted.
func (k *keeper) pickDead(want func(base.SegmentID, deadBytes) bool) (mergeJob, bool) {
	var best manifest.Segment
	for id, d := range k.dead {
		if !k.unmergeable(k.state.Segments[id]) && want(id, d) && (best.ID == 0 || d.since < k.dead[best.ID].since) {
			best = k.state.Segments[id]
		}
	}
	if best.ID == 0 {
		return mergeJob{}, false
	}
	return k.job(best.Kind, []run{{id: best.Run, level: best.Level, segs: []manifest.Segment{best}}}, best.Level), true
}

// noteDead leaves for scrapes since when a segment holds dead bytes; 0: none does.
func (k *keeper) noteDead() {
	oldest := base.Millis(0)
	for _, d := range k.dead {
		if oldest == 0 || d.since < oldest {
			oldest = d.since
		}
	}
	k.s.gauges.deadSegments.Store(int64(oldest))
}

// deadAge returns for how long the oldest dead byte of the shard has been dead, as
// far as is known.
func (s *shard) deadAge() base.Millis {
	now, age := s.e.now(), base.Millis(0)
	for _, since := range []int64{s.gauges.deadLog.Load(), s.gauges.deadSegments.Load()} {
		if since != 0 {
			age = max(age, now-base.Millis(since))
		}
	}
	return age
}
