package engine

import (
	"slices"
	"time"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
)

// tierShard is what the tier knows of a shard.
type tierShard struct {
	s *shard

	seen int64 // bytes of memtables that have become live segments since note

	// As the keeper last had it.
	live    map[base.SegmentID]manifest.Segment
	flushed map[base.SegmentID]flushedAt
	low     manifest.Position
	nextSeg base.SegmentID
	nextID  uint64

	inMirror map[base.SegmentID]manifest.Segment
	covered  base.LSN // a restore would find every record up to here
	marks    []mark   // when the shard had flushed how far, of what is not covered; oldest first

	made  map[base.SegmentID]lineage          // of live segments that a merge has made
	gone  map[base.SegmentID]manifest.Segment // merged away, and perhaps all that the mirror can name yet
	facts map[base.SegmentID]*facts           // of segments that the mirror does not name
	after map[base.SegmentID]base.LSN         // of flushed segments: their rows begin behind

	start    []base.LSN     // how far all shards had come when the program started
	firstNew base.SegmentID // segments below were there then: what they leave out is not known
}

func newTierShard(s *shard, start []base.LSN) tierShard {
	return tierShard{
		s: s, start: start, firstNew: s.nextSeg, live: s.keep.state.Segments,
		low: s.keep.state.Low, nextSeg: s.keep.state.NextSegment, nextID: s.keep.state.NextStream,
		inMirror: map[base.SegmentID]manifest.Segment{}, made: map[base.SegmentID]lineage{},
		gone: map[base.SegmentID]manifest.Segment{}, facts: map[base.SegmentID]*facts{},
		after: map[base.SegmentID]base.LSN{},
	}
}

// mark says when a shard's segments reached how far.
type mark struct {
	low base.LSN
	at  time.Time
}

// mirrored notes what the mirror says of the shard.
func (s *tierShard) mirrored(m *mirror.Shard) {
	s.inMirror = make(map[base.SegmentID]manifest.Segment, len(m.Segments))
	for _, g := range m.Segments {
		s.inMirror[g.ID] = g
		delete(s.facts, g.ID)
	}
}

// refresh asks the keepers for what has changed. It is false when one of them has ended:
// nothing may be concluded then.
func (t *tier) refresh() bool {
	for i := range t.shards {
		if !t.shards[i].refresh() {
			return false
		}
	}
	return true
}

func (s *tierShard) refresh() bool {
	k := s.s.keep
	var merges []lineage
	if !k.do(func() {
		s.live, s.low, s.nextSeg, s.nextID = k.state.Segments, k.state.Low, k.state.NextSegment, k.state.NextStream
		s.flushed = make(map[base.SegmentID]flushedAt, len(k.flushed))
		for id, f := range k.flushed {
			s.flushed[id], s.after[id] = f, f.after
		}
		merges, k.lineages = k.lineages, nil
		s.seen += k.unseen
		k.unseen = 0
	}) {
		return false
	}
	for _, l := range merges {
		for _, in := range l.inputs {
			s.gone[in.ID] = in
		}
		for _, id := range l.outputs {
			s.made[id] = l
		}
	}
	if n := len(s.marks); s.low.LSN > s.covered && (n == 0 || s.marks[n-1].low < s.low.LSN) {
		s.marks = append(s.marks, mark{s.low.LSN, time.Now()})
	}
	return true
}

// named reports whether a choice of segments has a live one, or all that it was made of.
func (s *tierShard) named(id base.SegmentID, segs map[base.SegmentID]manifest.Segment) bool {
	missing := func(id base.SegmentID) bool {
		_, ok := segs[id]
		return !ok
	}
	if !missing(id) { // as most are
		return true
	}
	all := true
	s.madeOf(map[base.SegmentID]bool{}, id, func(id base.SegmentID) bool {
		all = all && (!missing(id) || len(s.made[id].inputs) > 0)
		return all && missing(id)
	})
	return all
}

// madeOf calls f with a segment and with all that it was made of, but not with what those
// were made of for which f is false. It goes to each once, and never to what is in visited.
func (s *tierShard) madeOf(visited map[base.SegmentID]bool, id base.SegmentID, f func(base.SegmentID) bool) {
	if visited[id] {
		return
	}
	visited[id] = true
	if !f(id) {
		return
	}
	for _, in := range s.made[id].inputs {
		s.madeOf(visited, in.ID, f)
	}
}

// exposedSince returns since when the oldest bytes are in segments that a restore would
// lack, as far as this run of the program knows; zero if there are none.
func (s *tierShard) exposedSince() (at time.Time) {
	for id := range s.live {
		if !s.named(id, s.inMirror) {
			s.marks = slices.DeleteFunc(s.marks, func(m mark) bool { return m.low <= s.covered })
			if len(s.marks) > 0 {
				at = s.marks[0].at
			}
			return at
		}
	}
	s.marks = nil
	return at
}

// hold pins a segment and keeps it from being merged. It is nil when the segment is not
// there any more, or evicted.
func (s *tierShard) hold(id base.SegmentID) (ref *segmentRef) {
	k := s.s.keep
	k.do(func() {
		ref = k.s.reads.Load().segs[id] // the keeper alone changes them
		if ref == nil || ref.evicted || k.held[id] || k.merging[id] {
			ref = nil
			return
		}
		k.held[id] = true
		ref.refs.Add(1)
	})
	return ref
}

func (s *tierShard) unhold(id base.SegmentID, ref *segmentRef) {
	k := s.s.keep
	k.do(func() {
		delete(k.held, id)
		k.proposeMerge()
	})
	ref.release()
}

// stored enters the object of a segment in the manifest.
func (s *tierShard) stored(id base.SegmentID, object uint64) (err error) {
	k := s.s.keep
	if !k.do(func() {
		m, ok := k.state.Segments[id]
		if !ok {
			return // cannot be: it is held
		}
		m.Object = object
		if err = k.edit(manifest.Edit{Add: []manifest.Segment{m}}); err == nil {
			k.s.reads.Load().segs[id].fresh.Store(0) // the keeper alone changes them
		}
	}) {
		return errQuit
	}
	return err
}
