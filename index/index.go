// Package index is a B-tree from a place in a stream to the extent that holds it:
// one entry for each run of a stream in a segment. It is kept in memory and made
// anew from the footers of the live segments at every start.
package index

import (
	"fmt"
	"math"

	"github.com/google/btree"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
)

// degree makes a node hold 31 to 63 extents: about 3.5 KiB, which an edit of a clone
// copies once per level.
const degree = 32

// A Tree holds extents in the order of (stream, start). The runs of a stream never
// overlap. One goroutine may edit a Tree while no other uses it; any number may read
// it while none edits it. A clone is another Tree in this, so it may be edited while
// its original is read.
type Tree struct {
	t *btree.BTreeG[base.Extent]
}

// New returns an empty tree.
func New() *Tree { return &Tree{btree.NewG(degree, before)} }

// before orders extents. An extent is found by its stream and start alone.
func before(a, b base.Extent) bool {
	if a.Stream != b.Stream {
		return a.Stream < b.Stream
	}
	return a.Start < b.Start
}

// Clone returns a tree with the same extents, in constant time. From then on an edit
// of either copies the nodes that it changes. Others may read t meanwhile, but only
// one goroutine may clone it.
func (t *Tree) Clone() *Tree { return &Tree{t.t.Clone()} }

// Len returns the number of extents.
func (t *Tree) Len() int { return t.t.Len() }

// Insert adds an extent, or replaces the one of its stream and start. An extent
// without bytes, that of a stream with nothing but rows in a segment, is left out.
func (t *Tree) Insert(e base.Extent) {
	if e.Start >= e.End {
		return
	}
	if invariants.Enabled {
		t.checkRoom(e)
	}
	t.t.ReplaceOrInsert(e)
}

// checkRoom panics if another run of the stream overlaps e.
func (t *Tree) checkRoom(e base.Extent) {
	t.Ascend(e.Stream, e.Start, func(o base.Extent) bool {
		if o.Start != e.Start && o.Start < e.End {
			panic(fmt.Sprintf("index: run [%d, %d) of stream %d in segment %d overlaps [%d, %d) in segment %d",
				e.Start, e.End, e.Stream, e.Segment, o.Start, o.End, o.Segment))
		}
		return o.Start < e.End
	})
}

// Remove takes out the extent of e's stream, start and segment, and reports whether
// there was one. An extent of another segment at that place, which has replaced it,
// stays.
func (t *Tree) Remove(e base.Extent) bool {
	old, ok := t.t.Delete(e) // mostly it is the one: a search less than to look first
	if ok && old.Segment != e.Segment {
		t.t.ReplaceOrInsert(old)
		return false
	}
	return ok
}

// Find returns the extent that holds the byte at off of the stream.
func (t *Tree) Find(stream base.StreamID, off base.Offset) (base.Extent, bool) {
	e, ok := t.floor(stream, off)
	if !ok || off >= e.End {
		return base.Extent{}, false
	}
	return e, true
}

// floor returns the stream's last extent that starts at or before off.
func (t *Tree) floor(stream base.StreamID, off base.Offset) (e base.Extent, ok bool) {
	t.t.DescendLessOrEqual(base.Extent{Stream: stream, Start: off}, func(o base.Extent) bool {
		e, ok = o, o.Stream == stream
		return false
	})
	return e, ok
}

// Ascend calls fn for the stream's extents that end behind from, in order, until fn
// returns false.
func (t *Tree) Ascend(stream base.StreamID, from base.Offset, fn func(base.Extent) bool) {
	start := from
	if e, ok := t.Find(stream, from); ok {
		start = e.Start
	}
	t.t.AscendGreaterOrEqual(base.Extent{Stream: stream, Start: start}, func(e base.Extent) bool {
		return e.Stream == stream && fn(e)
	})
}

// Last returns the stream's last extent.
func (t *Tree) Last(stream base.StreamID) (base.Extent, bool) {
	e, ok := t.floor(stream, math.MaxUint64)
	if !ok {
		return base.Extent{}, false
	}
	return e, true
}
