package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/segment"
)

// maxStep bounds what one step pins, in bytes.
const maxStep = 1 << 20

// Step is a piece of a read: a range of offsets and where its bytes are. It pins
// them until Release, which must follow soon: never wait for a client in between,
// but for the write that is under way. The zero value is ready; it may be reused.
type Step struct {
	rs         *readState    // pinned, when a piece is in memory
	segs       []*segmentRef // pinned otherwise: reading them may take long
	start, end base.Offset
	now        base.Millis
	pieces     []Piece
	slices     [][]byte
}

// Piece is a run of a step's bytes, in memory or in a segment.
type Piece struct {
	Mem []byte // nil for a piece in a segment

	ref  *segmentRef
	pos  int64
	size int
}

// Len returns the number of bytes.
func (p *Piece) Len() int { return p.size }

// Verify checks the blocks that the piece touches and that nobody has checked yet;
// it may read the disk. The error is a *base.CorruptionError when they are damaged.
func (p *Piece) Verify(ctx context.Context) error {
	if p.ref == nil {
		return nil
	}
	return p.ref.seg.Verify(ctx, p.pos, int64(p.size))
}

// File returns the file, the position and the length for sendfile. ok is false for
// memory, for what is only in the object store, and where the file has no descriptor.
// Verify first.
func (p *Piece) File() (fd uintptr, pos, n int64, ok bool) {
	if p.ref == nil || p.ref.evicted {
		return 0, 0, 0, false
	}
	fd, ok = p.ref.file.Fd()
	return fd, p.ref.seg.FilePos(p.pos), int64(p.size), ok
}

// Append appends the piece's bytes to dst, verified; unless the piece is in memory it
// reads the disk, or the object store until ctx ends.
func (p *Piece) Append(ctx context.Context, dst []byte) ([]byte, error) {
	if p.ref == nil {
		return append(dst, p.Mem...), nil
	}
	return p.ref.seg.AppendPayload(ctx, dst, p.pos, p.size)
}

// Start and End return the range [Start, End) of the step.
func (st *Step) Start() base.Offset { return st.start }

// End returns where the step ends.
func (st *Step) End() base.Offset { return st.end }

// Pieces returns the runs of bytes, in order; valid until Release.
func (st *Step) Pieces() []Piece { return st.pieces }

// InMemory reports whether all bytes are in memory.
func (st *Step) InMemory() bool {
	for i := range st.pieces {
		if st.pieces[i].ref != nil {
			return false
		}
	}
	return true
}

// Append appends all bytes of the step to dst, verified, as Piece.Append does.
func (st *Step) Append(ctx context.Context, dst []byte) ([]byte, error) {
	var err error
	for i := range st.pieces {
		if dst, err = st.pieces[i].Append(ctx, dst); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// Release lets go of what the step pins. Again is no harm.
func (st *Step) Release() {
	if st.rs != nil {
		st.rs.release()
		st.rs = nil
	}
	releaseAll(st.segs)
	clear(st.segs)
	clear(st.pieces)
	clear(st.slices)
	st.segs, st.pieces, st.slices = st.segs[:0], st.pieces[:0], st.slices[:0]
}

// settle lets go of the memtables when no piece is in them: a reader that waits for a
// disk, or for the object store, must not keep them.
func (st *Step) settle() {
	for i := range st.pieces {
		if st.pieces[i].ref == nil {
			return
		}
	}
	for i := range st.pieces {
		ref := st.pieces[i].ref
		ref.refs.Add(1)
		st.segs = append(st.segs, ref)
	}
	st.rs.release()
	st.rs = nil
}

// Read plans the bytes [from, to) of v, at most maxBytes and 1 MiB of them, and
// pins them in st. A step may end earlier: where a fork's own bytes begin, for
// example. to must not be beyond v.Next. It touches no disk.
//
// ErrStale says that v has been overtaken, ErrClosed that the engine is closed; a
// *base.CorruptionError that the bytes are missing though nothing explains it.
func (e *Engine) Read(v *View, from, to base.Offset, maxBytes int, st *Step) error {
	st.Release()
	st.start, st.end, st.now = from, from, e.now()
	to = min(to, v.Next, from+base.Offset(min(maxBytes, maxStep)))
	if from < v.First {
		return ErrStale
	}
	if from >= to {
		return nil
	}
	id, end, _ := v.owner(from)
	to = min(to, end)
	sh := e.shards[id.Shard(len(e.shards))]
	if st.rs = sh.acquire(); st.rs == nil {
		return ErrClosed
	}
	for pos := from; pos < to; {
		next, err := st.plan(id, pos, to)
		if err != nil {
			st.Release()
			return e.hole(v, id, pos, err)
		}
		pos = next
	}
	st.end = to
	st.settle()
	return nil
}

var errHole = errors.New("no run holds these bytes")

// hole tells a view that has been overtaken from bytes that are lost.
func (e *Engine) hole(v *View, id base.StreamID, pos base.Offset, err error) error {
	if e.overtaken(v) {
		return ErrStale
	}
	e.stats.damaged.Add(1)
	return &base.CorruptionError{Detail: fmt.Sprintf("stream %d at offset %d: %v", id, pos, err)}
}

// overtaken reports whether the stream has another view by now under which v's
// bytes may be gone.
func (e *Engine) overtaken(v *View) bool {
	st := e.Lookup([]byte(v.Bucket), []byte(v.Fixed.Name))
	if st == nil {
		return true
	}
	now := st.View()
	return now == nil || now.ID != v.ID || now.Deleted != v.Deleted || now.First != v.First
}

// owner returns whose bytes lie at off, where those end, and how many messages the
// owner's part holds at most.
func (v *View) owner(off base.Offset) (id base.StreamID, end base.Offset, endRecord uint64) {
	id, end, endRecord = v.ID, v.Next, v.NextRecord
	if v.inc != nil {
		for a := v.inc.lineage; a != nil && off < a.end; a = a.before {
			id, end, endRecord = a.id, a.end, a.endRecord
		}
	}
	return id, end, endRecord
}

// plan adds pieces from pos on and returns where they end: the newest memtable run
// that begins at or below pos, or else an extent.
func (st *Step) plan(id base.StreamID, pos, to base.Offset) (base.Offset, error) {
	r, upto := st.rs.run(id, pos)
	if r != nil {
		upto = min(upto, to)
		n := len(st.slices)
		st.slices = r.Slices(st.slices, pos, upto)
		for _, b := range st.slices[n:] {
			st.pieces = append(st.pieces, Piece{Mem: b, size: len(b)})
		}
		return upto, nil
	}
	x, ok := st.rs.tree.Find(id, pos)
	if !ok {
		return 0, errHole
	}
	ref := st.rs.segs[x.Segment]
	if ref == nil {
		return 0, fmt.Errorf("segment %d is not open", x.Segment)
	}
	if now := int64(st.now); ref.used.Load() < now {
		ref.used.Store(now)
	}
	upto = min(x.End, to)
	st.pieces = append(st.pieces, Piece{ref: ref, pos: x.Pos + int64(pos-x.Start), size: int(upto - pos)})
	return upto, nil
}

// run returns the memtable run that holds the byte at pos, and where the next newer
// run begins. Generations hold ascending, adjacent parts of a stream.
func (rs *readState) run(id base.StreamID, pos base.Offset) (*memtable.Run, base.Offset) {
	upto := base.Offset(1<<64 - 1)
	for i := len(rs.frozen); i >= 0; i-- {
		g := rs.active
		if i < len(rs.frozen) {
			g = rs.frozen[i]
		}
		en := g.table.Find(id)
		if en == nil {
			continue
		}
		r := en.Run()
		if r == nil {
			continue
		}
		if r.Start() <= pos {
			return r, upto
		}
		upto = r.Start()
	}
	return nil, upto
}

// Boundary tells of the message that off lies in: its ordinal, and whether it begins
// there. The tail counts as the beginning of the next message. With mem, it answers
// from memory or with ErrNotInMemory.
func (e *Engine) Boundary(ctx context.Context, v *View, off base.Offset, mem bool) (exact bool, record uint64, err error) {
	if off >= v.Next {
		return off == v.Next, v.NextRecord, nil
	}
	err = e.atRun(ctx, v, off, mem, func(b bounds) error {
		record, exact, err = b.locate(off)
		return err
	})
	return exact, record, err
}

// Fit returns the largest end of a message in (from, from+maxBytes], or the end of
// the first message when that is longer; v.Next at most. from is a boundary.
func (e *Engine) Fit(ctx context.Context, v *View, from base.Offset, maxBytes int64, mem bool) (base.Offset, error) {
	limit := v.Next
	if maxBytes < int64(v.Next-from) {
		limit = from + base.Offset(maxBytes)
	} else {
		return v.Next, nil
	}
	at := from
	for at < limit {
		next := at
		err := e.atRun(ctx, v, at, mem, func(b bounds) error {
			end := b.end
			if limit < end {
				var err error
				if end, err = b.floor(limit); err != nil {
					return err
				}
			}
			if end <= at && at == from {
				var err error
				if end, err = b.endOf(at); err != nil {
					return err
				}
			}
			next = max(end, at)
			return nil
		})
		if err != nil {
			return 0, err
		}
		if next == at || next >= limit {
			return next, nil
		}
		at = next
	}
	return at, nil
}

// bounds are the message ends of one run, wherever it lies.
type bounds struct {
	end    base.Offset // of the run, as far as it is published and the view's
	locate func(base.Offset) (uint64, bool, error)
	floor  func(base.Offset) (base.Offset, error)
	endOf  func(base.Offset) (base.Offset, error)
}

// atRun calls f with the message ends of the run that holds off.
func (e *Engine) atRun(ctx context.Context, v *View, off base.Offset, mem bool, f func(bounds) error) error {
	if off < v.First {
		return ErrStale
	}
	id, end, endRecord := v.owner(off)
	rs := e.shards[id.Shard(len(e.shards))].acquire()
	if rs == nil {
		return ErrClosed
	}
	held := true
	unpin := func() {
		if held {
			rs.release()
		}
		held = false
	}
	defer unpin()
	if r, upto := rs.run(id, off); r != nil {
		return f(memoryBounds(rs, r, id, min(upto, end), endRecord))
	}
	if mem {
		return ErrNotInMemory
	}
	x, ok := rs.tree.Find(id, off)
	if !ok {
		return e.hole(v, id, off, errHole)
	}
	ref := rs.segs[x.Segment]
	if ref == nil {
		return fmt.Errorf("segment %d is not open", x.Segment)
	}
	ref.refs.Add(1)
	defer ref.release()
	unpin() // whoever waits for a disk keeps the segment, and no memtables
	b, err := ref.bounds(ctx, x, end)
	if err != nil {
		return err
	}
	return f(b)
}

// memoryBounds wraps a memtable run. How many of its messages are published follows
// from the view, or from where the next newer run begins.
func memoryBounds(rs *readState, r *memtable.Run, id base.StreamID, end base.Offset, endRecord uint64) bounds {
	upto := endRecord
	if newer, _ := rs.run(id, end); newer != nil && newer != r && newer.Start() == end {
		upto = min(upto, newer.First())
	}
	n := int(upto - min(upto, r.First()))
	cut := func(x base.Offset) base.Offset { return min(x, end) } // a fork may end inside a message
	return bounds{
		end:    end,
		locate: func(off base.Offset) (uint64, bool, error) { rec, exact := r.Locate(off, n); return rec, exact, nil },
		floor: func(limit base.Offset) (base.Offset, error) {
			if limit >= end {
				return end, nil
			}
			return cut(r.Floor(limit, n)), nil
		},
		endOf: func(off base.Offset) (base.Offset, error) {
			if x, ok := r.EndOf(off, n); ok {
				return cut(x), nil
			}
			return end, nil
		},
	}
}

// bounds wraps a run in a segment.
func (ref *segmentRef) bounds(ctx context.Context, x base.Extent, end base.Offset) (bounds, error) {
	st, ok := ref.seg.Find(x.Stream)
	if !ok {
		return bounds{}, &base.CorruptionError{Path: ref.path, Detail: fmt.Sprintf("stream %d is in the index but not in the footer", x.Stream)}
	}
	c, err := ref.seg.Boundaries(ctx, st)
	if err != nil {
		return bounds{}, err
	}
	return cutBounds(c, min(x.End, end)), nil
}

func cutBounds(c *segment.Boundaries, end base.Offset) bounds {
	return bounds{
		end:    end,
		locate: c.Locate,
		floor: func(limit base.Offset) (base.Offset, error) {
			if limit >= end {
				return end, nil
			}
			x, _, err := c.FloorEnd(limit)
			return min(x, end), err
		},
		endOf: func(off base.Offset) (base.Offset, error) {
			x, err := c.Next(off)
			return min(x, end), err
		},
	}
}
