package segment

import (
	"context"

	"github.com/snakream/snakream/internal/base"
)

// Damage is a part of a segment that does not say what was once written.
type Damage struct {
	Pos, Bytes int64 // in the file
	Err        error // usually a *base.CorruptionError; else why the part can't be read
	// State says that it is in rows or in the checksum table: without them, the
	// segment can't be used at all.
	State bool
	Hurt  []Hurt // the streams that lose something by it, unless State
}

// Hurt is what damage takes from one stream.
type Hurt struct {
	Stream     base.StreamID
	Start, End base.Offset // bytes that can't be read
	// Bounds says that it is not bytes but the message boundaries of this range.
	Bounds bool
}

// Check reads and verifies everything that Open has not looked at: each block of
// payload, boundaries and rows, then what these say. With data false, payload and
// boundaries are left out, as for a segment that has been evicted. It calls found for
// each damage, in the order of the file.
func (s *Segment) Check(data bool, found func(Damage)) {
	if _, err := s.content.sums(); err != nil {
		found(Damage{Pos: s.lay.tablePos(), Bytes: s.lay.tableBytes(), Err: err, State: true})
		return
	}
	hurt := map[base.StreamID]bool{}
	if data {
		s.checkRegion(s.content.data, func(from, to int64, err error) {
			d := Damage{Pos: s.lay.dataPos() + from, Bytes: to - from, Err: err, Hurt: s.hurtBy(from, to)}
			for _, h := range d.Hurt {
				hurt[h.Stream] = true
			}
			found(d)
		})
		s.checkBoundaries(hurt, found)
	}
	sound := true
	s.checkRegion(s.content.rows, func(from, to int64, err error) {
		sound = false
		found(Damage{Pos: s.lay.rowsPos() + from, Bytes: to - from, Err: err, State: true})
	})
	if !sound {
		return
	}
	for _, err := range s.AllRows() {
		if err != nil {
			found(Damage{Pos: s.lay.rowsPos(), Bytes: s.lay.rows, Err: err, State: true})
		}
	}
}

// checkRegion verifies each block of a region.
func (s *Segment) checkRegion(r region, found func(from, to int64, err error)) {
	for pos := int64(0); pos < r.size; {
		_, from, to := r.block(pos)
		if _, err := s.content.readPart(context.Background(), nil, r, pos); err != nil {
			found(from, to, err)
		}
		pos = to
	}
}

// checkBoundaries decodes the boundaries of the streams whose blocks verify.
func (s *Segment) checkBoundaries(hurt map[base.StreamID]bool, found func(Damage)) {
	for st := range s.Streams() {
		x := st.Extent
		if hurt[x.Stream] {
			continue
		}
		b, err := s.Boundaries(context.Background(), st)
		if err == nil {
			for _, err = range b.All() {
				if err != nil {
					break
				}
			}
		}
		if err != nil {
			found(Damage{
				Pos: s.lay.dataPos() + s.lay.payload + st.bounds.pos, Bytes: st.bounds.n, Err: err,
				Hurt: []Hurt{{Stream: x.Stream, Start: x.Start, End: x.End, Bounds: true}},
			})
		}
	}
}

// hurtBy returns what the part [from, to) of the data region is of the streams.
func (s *Segment) hurtBy(from, to int64) (all []Hurt) {
	for st := range s.Streams() {
		x := st.Extent
		n := int64(x.End - x.Start)
		if lo, hi := max(from, x.Pos), min(to, x.Pos+n); lo < hi {
			all = append(all, Hurt{Stream: x.Stream, Start: x.Start + base.Offset(lo-x.Pos), End: x.Start + base.Offset(hi-x.Pos)})
		}
		at := s.lay.payload + st.bounds.pos
		if max(from, at) < min(to, at+st.bounds.n) {
			all = append(all, Hurt{Stream: x.Stream, Start: x.Start, End: x.End, Bounds: true})
		}
	}
	return all
}
