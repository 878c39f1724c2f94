package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/index"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// readState is all that reads of a shard need, at one moment. It is immutable;
// whoever changes something makes another and swaps the pointer. What it refers to
// stays readable until the last reader has released it.
type readState struct {
	refs   atomic.Int64
	active *generation
	frozen []*generation // oldest first
	tree   *index.Tree
	segs   map[base.SegmentID]*segmentRef
}

// generation is a memtable with a count of the read states that hold it.
type generation struct {
	refs  atomic.Int64
	table *memtable.Table
}

// segmentRef is an open segment with a count of the read states that hold it.
type segmentRef struct {
	refs    atomic.Int64
	seg     *segment.Segment
	file    vfs.File
	path    string
	fs      vfs.FS
	fresh   atomic.Int64 // bytes that the object store has not, in this segment or in what it was merged from
	evicted bool         // file is only the tail
	used    atomic.Int64 // when it was planned to be read last, in ms
	dropped atomic.Bool  // merged away or evicted: the file goes with the last reader
	report  func(error)
}

func (r *segmentRef) release() {
	if r.refs.Add(-1) > 0 {
		return
	}
	err := r.file.Close()
	if r.dropped.Load() {
		if e := r.fs.Remove(r.path); err == nil {
			err = e
		}
	}
	if err != nil {
		r.report(fmt.Errorf("closing segment %s: %w", r.path, err))
	}
}

func (g *generation) release() {
	if g.refs.Add(-1) == 0 {
		g.table.Release()
	}
}

// acquire returns the present read state, which must be released, or nil when the
// engine is closed.
func (s *shard) acquire() *readState {
	for {
		rs := s.reads.Load()
		if rs == nil {
			return nil
		}
		for n := rs.refs.Load(); n > 0; n = rs.refs.Load() {
			if rs.refs.CompareAndSwap(n, n+1) {
				return rs
			}
		}
	}
}

func (rs *readState) release() {
	if rs.refs.Add(-1) > 0 {
		return
	}
	rs.active.release()
	for _, g := range rs.frozen {
		g.release()
	}
	for _, r := range rs.segs {
		r.release()
	}
}

// swapReads replaces the read state by what edit makes of a copy of it. The copy's
// slices and map are its own; the tree must be replaced, not changed.
func (s *shard) swapReads(edit func(*readState)) {
	s.readMu.Lock()
	old := s.reads.Load()
	next := &readState{segs: map[base.SegmentID]*segmentRef{}}
	if old != nil {
		next.active, next.tree = old.active, old.tree
		next.frozen = append([]*generation(nil), old.frozen...)
		for id, r := range old.segs {
			next.segs[id] = r
		}
	}
	edit(next)
	next.refs.Store(1)
	next.active.refs.Add(1)
	for _, g := range next.frozen {
		g.refs.Add(1)
	}
	for _, r := range next.segs {
		r.refs.Add(1)
	}
	s.reads.Store(next)
	s.readMu.Unlock()
	if old != nil {
		old.release()
	}
}

// newGeneration makes an empty active memtable.
func (s *shard) newGeneration() *generation {
	g := &generation{table: memtable.New(&s.e.pool)}
	s.active, s.walBytes = g.table, 0
	return g
}

// maxFrozen memtables may wait to be flushed.
const maxFrozen = 2

// freeze ends the active generation and gives it to the keeper. Only between
// batches, all of which are published. It is false while too many wait.
func (s *shard) freeze() bool {
	rs := s.reads.Load()
	if len(rs.frozen) >= maxFrozen && !s.recovering {
		return false
	}
	old, quiet := rs.active, s.quiet() && !s.recovering
	if quiet { // the next one may stay empty for long, and should not begin with room for many streams
		s.e.pool.Trim()
	}
	s.gauges.frozen.Add(old.table.Bytes())
	g := s.newGeneration()
	s.swapReads(func(next *readState) {
		next.active = g
		next.frozen = append(next.frozen, old)
	})
	s.keep.flush(frozen{gen: old, low: s.end, quiet: quiet})
	return true
}
