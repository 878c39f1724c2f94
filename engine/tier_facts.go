package engine

import (
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/wal/record"
)

// facts is what a segment refers to.
type facts struct {
	forks     []forkFact
	snapshots []snapshotFact
	ended     map[snapshotKey]bool   // snapshots of before that it says are replaced or dropped
	gone      map[base.StreamID]bool // streams that it says have ended
	since     []base.LSN             // how far each shard had come when all this was read
}

type forkFact struct {
	id, source base.StreamID
	upTo       base.Offset
}

type snapshotFact struct {
	snapshotKey
	digest blob.Digest
}

// learn reads the facts of the live segments that the mirror does not name.
func (s *tierShard) learn() error {
	rs := s.s.acquire()
	if rs == nil {
		return ErrClosed
	}
	defer rs.release()
	for id := range s.live {
		ref := rs.segs[id]
		if s.inMirror[id].Object != 0 || s.facts[id] != nil || ref == nil {
			continue
		}
		f, err := factsOf(ref)
		if err != nil {
			return err
		}
		f.since = s.s.e.published()
		s.facts[id] = f
	}
	return nil
}

func factsOf(ref *segmentRef) (*facts, error) {
	f := &facts{ended: map[snapshotKey]bool{}, gone: map[base.StreamID]bool{}}
	for row, err := range ref.seg.AllRows() {
		if err != nil {
			return nil, err
		}
		key, err := record.ParseKey(row.Key)
		if err != nil {
			return nil, err
		}
		switch {
		case key.Kind == record.RowConfig && !row.Removed:
			c, err := record.DecodeConfig(row.Value)
			if err != nil {
				return nil, err
			}
			if c.Fork != nil {
				f.forks = append(f.forks, forkFact{row.Stream, c.Fork.Source, c.Fork.Offset})
			}
		case key.Kind == record.RowState:
			gone, err := ended(row.Row)
			if err != nil {
				return nil, err
			}
			if gone {
				f.gone[row.Stream] = true
			}
		case key.Kind == record.RowSnapshot:
			k := snapshotKey{row.Stream, key.Offset}
			if row.Removed {
				f.ended[k] = true
				continue
			}
			n, err := record.DecodeSnapshot(key.Offset, row.Value)
			if err != nil {
				return nil, err
			}
			if n.Replaced == 0 {
				f.snapshots = append(f.snapshots, snapshotFact{k, n.Digest})
			} else {
				f.ended[k] = true
			}
		}
	}
	return f, nil
}

// ended reports whether a row "s" says that the stream has ended: of one that only its
// forks keep, snapshots are void as of any other.
func ended(row segment.Row) (bool, error) {
	if row.Removed {
		return true, nil
	}
	s, err := record.DecodeState(row.Value)
	return s.Deleted, err
}

// superseded reports whether a newer segment that is chosen too says what has become of
// a snapshot.
func (s *tierShard) superseded(n snapshotFact, m manifest.Segment, c *choice) bool {
	for id, newer := range c.segs {
		if newer.Run <= m.Run {
			continue
		}
		if f := s.facts[id]; f != nil && (f.ended[n.snapshotKey] || f.gone[n.stream]) || f == nil && s.says(id, n.snapshotKey) {
			return true
		}
	}
	return false
}

// says reports whether a live segment says that a snapshot is replaced or dropped, or
// that its stream has ended. It is for those whose facts the mirror has made needless.
func (s *tierShard) says(id base.SegmentID, k snapshotKey) bool {
	rs := s.s.acquire()
	if rs == nil {
		return false
	}
	defer rs.release()
	ref := rs.segs[id]
	if ref == nil {
		return false
	}
	st, ok := ref.seg.Find(k.stream)
	if !ok {
		return false
	}
	for row, err := range ref.seg.Rows(st) {
		if err != nil {
			return false
		}
		switch key, _ := record.ParseKey(row.Key); {
		case key.Kind == record.RowState:
			if gone, err := ended(row); err == nil && gone {
				return true
			}
		case key.Kind == record.RowSnapshot && key.Offset == k.offset:
			if row.Removed {
				return true
			}
			n, err := record.DecodeSnapshot(key.Offset, row.Value)
			return err == nil && n.Replaced != 0
		}
	}
	return false
}

// holds reports whether chosen segments say that a stream has a fork's pin, and reaches
// up to where the fork begins: the bytes are in them or in those before.
func (s *tierShard) holds(f forkFact, c *choice) bool {
	rs := s.s.acquire()
	if rs == nil {
		return false
	}
	defer rs.release()
	pinned, reaches := false, false
	for id := range c.segs {
		ref := rs.segs[id]
		if ref == nil {
			continue
		}
		st, ok := ref.seg.Find(f.source)
		if !ok {
			continue
		}
		for row, err := range ref.seg.Rows(st) {
			if err != nil {
				return false
			}
			switch key, _ := record.ParseKey(row.Key); {
			case key.Kind == record.RowPin && key.Fork == f.id:
				pinned = true
			case key.Kind == record.RowState && row.Removed:
				return true // it has gone since, and so has the fork
			case key.Kind == record.RowState:
				state, err := record.DecodeState(row.Value)
				reaches = reaches || err == nil && state.Next >= f.upTo
			}
		}
	}
	return pinned && reaches
}
