package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// The boundary bytes of a run of n messages say how long each of them is but the
// last one, which ends with the run. So a run of one message has none. The lengths
// are uvarints in groups of 128; a restart point for each group but the first says
// where in the run its first message begins and where its lengths do.
//
//	┌─────────────────────────────────────┬────────────────────────────────────┐
//	│ groups of up to 128 lengths,        │ restart points of groups 1, 2, …:  │
//	│ together n−1 uvarints               │ u64 position in the run,           │
//	│                                     │ u64 position in the boundary bytes │
//	└─────────────────────────────────────┴────────────────────────────────────┘
const (
	groupRecords = 128
	restartBytes = 16
	// restartsAtOnce is how many restart points one read fetches: enough that the
	// last steps of a binary search and a walk over groups need no further read.
	restartsAtOnce = 64
)

// groupCount returns the number of groups of a run of records messages.
func groupCount(records uint64) uint64 {
	if records <= 1 {
		return 0
	}
	return (records - 1 + groupRecords - 1) / groupRecords
}

// boundsFit reports whether n bytes can hold the boundaries of that many messages,
// at most MaxBytes.
func boundsFit(records, n uint64) bool {
	groups := groupCount(records)
	if groups == 0 {
		return n == 0
	}
	lengths, restarts := records-1, (groups-1)*restartBytes
	return n >= lengths+restarts && n <= lengths*maxUvarint+restarts
}

// Boundaries finds the messages of a run. It is a cursor that keeps the group of
// messages it was at: steps forward are cheap. Not safe for concurrent use; a
// segment gives out any number of them. Its methods return ErrRange for a position
// outside of the run, and a CorruptionError when the boundaries are damaged.
type Boundaries struct {
	ctx     context.Context // of whoever made the cursor, for all its reads
	s       *Segment
	st      Stream
	groups  uint64
	lengths int64 // bytes of the groups, before the restart points

	restarts []byte // some of the restart points …
	restart  uint64 // … from that of this group on

	group uint64   // the group in ends; groups if there is none
	from  uint64   // where in the run it begins
	ends  []uint64 // where in the run its messages end
	buf   []byte
}

// Boundaries returns a cursor over the messages of the run of st, which must be of
// this segment. It reads nothing yet; the reads of its methods end with ctx.
func (s *Segment) Boundaries(ctx context.Context, st Stream) (*Boundaries, error) {
	if st.Extent.Segment != s.lay.id || !within(st.bounds.pos, st.bounds.n, s.lay.bounds) || !boundsFit(st.Extent.Records, uint64(st.bounds.n)) {
		return nil, fmt.Errorf("segment %s: boundaries of a stream that is not of this segment: %w", s.content.name, ErrRange)
	}
	groups := groupCount(st.Extent.Records)
	b := &Boundaries{ctx: ctx, s: s, st: st, groups: groups, group: groups, lengths: st.bounds.n}
	if groups > 1 {
		b.lengths -= int64(groups-1) * restartBytes
	}
	return b, nil
}

// Locate returns the ordinal of the message that contains off, and whether it
// begins there. The end of the run counts as the beginning of the message after it.
func (b *Boundaries) Locate(off base.Offset) (record uint64, exact bool, err error) {
	i, from, _, err := b.find(off)
	return b.st.Extent.FirstRecord + i, err == nil && from == uint64(off-b.st.Extent.Start), err
}

// FloorEnd returns the largest boundary that is at most limit, the start of the run
// included, and the ordinal of the message that begins there. A limit beyond the
// run finds its end; one before it is ErrRange.
func (b *Boundaries) FloorEnd(limit base.Offset) (end base.Offset, record uint64, err error) {
	i, from, _, err := b.find(min(limit, b.st.Extent.End))
	if err != nil {
		return 0, 0, err
	}
	return b.st.Extent.Start + base.Offset(from), b.st.Extent.FirstRecord + i, nil
}

// Next returns the end of the message that contains off, which is before the end of
// the run.
func (b *Boundaries) Next(off base.Offset) (end base.Offset, err error) {
	if off >= b.st.Extent.End {
		return 0, b.outside("offset", uint64(off))
	}
	_, _, to, err := b.find(off)
	if err != nil {
		return 0, err
	}
	return b.st.Extent.Start + base.Offset(to), nil
}

// EndOf returns the end of the message with this ordinal.
func (b *Boundaries) EndOf(record uint64) (base.Offset, error) {
	i := record - b.st.Extent.FirstRecord // wraps around when it is before the run
	if i >= b.st.Extent.Records {
		return 0, b.outside("record", record)
	}
	if i == b.st.Extent.Records-1 {
		return b.st.Extent.End, nil
	}
	if err := b.load(i / groupRecords); err != nil {
		return 0, err
	}
	return b.st.Extent.Start + base.Offset(b.ends[i%groupRecords]), nil
}

// All yields the end of each message in order. It stops after an error.
func (b *Boundaries) All() iter.Seq2[base.Offset, error] {
	return func(yield func(base.Offset, error) bool) {
		for i := range b.st.Extent.Records {
			end, err := b.EndOf(b.st.Extent.FirstRecord + i)
			if !yield(end, err) || err != nil {
				return
			}
		}
	}
}

func (b *Boundaries) outside(what string, x uint64) error {
	e := &b.st.Extent
	return fmt.Errorf("segment %s: %s %d, run [%d, %d) of records [%d, +%d): %w", b.s.content.name, what, x, e.Start, e.End, e.FirstRecord, e.Records, ErrRange)
}

// find returns the index in the run of the message that contains off, and where in
// the run it begins and ends. The end of the run is the message after the last.
func (b *Boundaries) find(off base.Offset) (i, from, to uint64, err error) {
	e := &b.st.Extent
	if off < e.Start || off > e.End {
		return 0, 0, 0, b.outside("offset", uint64(off))
	}
	rel, size := uint64(off-e.Start), uint64(e.End-e.Start)
	if rel == size {
		return e.Records, size, size, nil
	}
	if b.groups == 0 {
		return 0, 0, size, nil
	}
	if err := b.seek(rel); err != nil {
		return 0, 0, 0, err
	}
	j := sort.Search(len(b.ends), func(j int) bool { return b.ends[j] > rel })
	from, to = b.from, size
	if j > 0 {
		from = b.ends[j-1]
	}
	if j < len(b.ends) {
		to = b.ends[j]
	}
	return b.group*groupRecords + uint64(j), from, to, nil
}

// seek loads the group with the message that contains rel, a position in the run.
// The run's last message belongs to the last group though it has no length there.
func (b *Boundaries) seek(rel uint64) error {
	if b.group < b.groups && rel >= b.from && (b.group == b.groups-1 || rel < b.ends[len(b.ends)-1]) {
		return nil
	}
	lo, hi := uint64(0), b.groups // the group is in [lo, hi)
	mid := hi / 2
	if b.group < b.groups && rel >= b.from { // most likely the next one
		lo = b.group
		mid = min(lo+2, hi-1)
	}
	for ; hi-lo > 1; mid = lo + (hi-lo)/2 {
		from, _, err := b.restartPoint(mid)
		if err != nil {
			return err
		}
		if from <= rel {
			lo = mid
		} else {
			hi = mid
		}
	}
	return b.load(lo)
}

// restartPoint returns where in the run the group g begins, and where in the
// boundary bytes its lengths do.
func (b *Boundaries) restartPoint(g uint64) (from uint64, pos int64, err error) {
	if g == 0 {
		return 0, 0, nil
	}
	if g < b.restart || (g-b.restart+1)*restartBytes > uint64(len(b.restarts)) {
		first := max(g, restartsAtOnce/2+1) - restartsAtOnce/2
		n := min(restartsAtOnce, b.groups-first)
		b.restarts, b.restart = b.restarts[:0], first
		b.restarts, err = b.bytes(b.restarts, b.lengths+int64(first-1)*restartBytes, int(n)*restartBytes)
		if err != nil {
			return 0, 0, err
		}
	}
	p := b.restarts[(g-b.restart)*restartBytes:]
	from, at := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if at > uint64(b.lengths) {
		return 0, 0, b.corrupt("a restart point is beyond the lengths")
	}
	return from, int64(at), nil
}

// load decodes the group g into ends.
func (b *Boundaries) load(g uint64) error {
	if b.group == g {
		return nil
	}
	b.group = b.groups // until it is complete
	from, pos, err := b.restartPoint(g)
	if err != nil {
		return err
	}
	to, limit := uint64(b.st.Extent.End-b.st.Extent.Start), b.lengths
	last := g == b.groups-1
	if !last {
		if to, limit, err = b.restartPoint(g + 1); err != nil {
			return err
		}
	}
	n := min(groupRecords, b.st.Extent.Records-1-g*groupRecords)
	b.ends = slices.Grow(b.ends[:0], int(n))
	if pos > limit || limit-pos > int64(n)*maxUvarint {
		return b.corrupt("restart points do not ascend")
	}
	if b.buf, err = b.bytes(b.buf[:0], pos, int(limit-pos)); err != nil {
		return err
	}
	if b.ends, err = decodeLengths(b.ends, b.buf, from, int(n)); err != nil {
		return b.corrupt(err.Error())
	}
	if end := b.ends[n-1]; last && end >= to || !last && end != to {
		return b.corrupt("a group does not end where the next one begins")
	}
	b.group, b.from = g, from
	return nil
}

// decodeLengths appends to ends the ends of n messages, the first of which begins
// at from. p must hold their lengths and nothing else.
func decodeLengths(ends []uint64, p []byte, from uint64, n int) ([]uint64, error) {
	d := bin.NewDecoder(p)
	for range n {
		length := d.Uvarint()
		if d.Err() == nil && (length == 0 || length > math.MaxUint64-from) {
			return ends, fmt.Errorf("a message of %d bytes at %d", length, from)
		}
		from += length
		ends = append(ends, from)
	}
	return ends, d.End()
}

// bytes appends n of the boundary bytes of the stream, verified.
func (b *Boundaries) bytes(dst []byte, pos int64, n int) ([]byte, error) {
	return b.s.content.read(b.ctx, dst, b.s.content.data, b.s.lay.payload+b.st.bounds.pos+pos, n)
}

func (b *Boundaries) corrupt(detail string) error {
	return &base.CorruptionError{
		Path: b.s.content.name, Offset: b.s.lay.dataPos() + b.s.lay.payload + b.st.bounds.pos,
		Detail: fmt.Sprintf("boundaries of stream %d: %s", b.st.Extent.Stream, detail),
	}
}
