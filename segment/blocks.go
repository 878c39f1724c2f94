package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// region is a part of the file that is checksummed in blocks of BlockBytes.
type region struct {
	pos, size int64 // in the file
	first     int64 // its first block in the checksum table
}

// block returns the number, in the table, of the block that holds the position pos
// of the region, and the part [from, to) of the region that the block is.
func (r region) block(pos int64) (k, from, to int64) {
	i := pos / BlockBytes
	return r.first + i, i * BlockBytes, min((i+1)*BlockBytes, r.size)
}

// blocks reads regions and verifies each block once. Everything but table and done
// is fixed after init; these are atomics, and two goroutines that verify the same
// block at once do the same work twice.
type blocks struct {
	src    Source
	remote Refetcher // src, if it is one
	name   string
	data   region // payload, then boundaries
	rows   region
	lay    layout

	table atomic.Pointer[[]byte] // the checksum table, verified; nil until it is needed
	done  []atomic.Uint64        // bit k: block k was verified
}

func (b *blocks) init(src Source, name string, lay layout) {
	b.remote, _ = src.(Refetcher)
	b.src, b.name, b.lay = src, name, lay
	b.data = region{pos: lay.dataPos(), size: lay.dataBytes()}
	b.rows = region{pos: lay.rowsPos(), size: lay.rows, first: blockCount(lay.dataBytes())}
	n := lay.tableBytes() / sumBytes
	b.done = make([]atomic.Uint64, (n+63)/64)
}

func (b *blocks) isDone(k int64) bool { return b.done[k/64].Load()>>(k%64)&1 != 0 }

// verified reports whether all blocks under [pos, pos+n) have been verified.
func (b *blocks) verified(r region, pos, n int64) bool {
	for end := pos + n; pos < end; {
		k, _, to := r.block(pos)
		if !b.isDone(k) {
			return false
		}
		pos = to
	}
	return b.remote == nil
}

// sums returns the checksum table. It is read when the first block is, so that a
// segment that nobody reads costs nothing for its blocks but a bit each.
func (b *blocks) sums() ([]byte, error) {
	if t := b.table.Load(); t != nil {
		return *t, nil
	}
	t := make([]byte, b.lay.tableBytes())
	if err := readFull(b.src, b.name, t, b.lay.tablePos()); err != nil {
		return nil, err
	}
	if bin.Sum(t) != b.lay.tableSum {
		return nil, &base.CorruptionError{Path: b.name, Offset: b.lay.tablePos(), Detail: "checksum of the checksum table differs"}
	}
	b.table.Store(&t)
	return t, nil
}

// check verifies p, the contents of the block k that begins at from in the region.
func (b *blocks) check(r region, k, from int64, p []byte) error {
	sums, err := b.sums()
	if err != nil {
		return err
	}
	if bin.Sum(p) != binary.LittleEndian.Uint64(sums[k*sumBytes:]) {
		return &base.CorruptionError{Path: b.name, Offset: r.pos + from, Detail: fmt.Sprintf("checksum of block %d differs", k)}
	}
	if b.remote == nil {
		b.done[k/64].Or(1 << (k % 64))
	}
	return nil
}

// read appends [pos, pos+n) of the region to dst, verified. Neighbouring blocks are
// read with one call: those that are verified already, and those that lie wholly in
// the range and are verified in dst. Only a block that sticks out takes a detour.
func (b *blocks) read(ctx context.Context, dst []byte, r region, pos int64, n int) ([]byte, error) {
	if !within(pos, int64(n), r.size) {
		return dst, fmt.Errorf("segment %s: read [%d, +%d) of %d bytes: %w", b.name, pos, n, r.size, ErrRange)
	}
	out := slices.Grow(dst, n)[:len(dst)+n]
	for end := pos + int64(n); pos < end; {
		to := out[len(out)-int(end-pos):]
		upto, known := b.run(r, pos, end)
		if upto == pos { // the block sticks out of the range
			m, err := b.readPart(ctx, to, r, pos)
			if err != nil {
				return dst, err
			}
			pos += int64(m)
			continue
		}
		to = to[:upto-pos]
		if err := b.fetch(ctx, r, pos, to, known); err != nil {
			return dst, err
		}
		pos = upto
	}
	return out, nil
}

// run returns the end, at most end, of the longest part of the region from pos on
// that can be read in one piece: either known blocks, or whole unknown ones.
func (b *blocks) run(r region, pos, end int64) (upto int64, known bool) {
	k, from, to := r.block(pos)
	known = b.isDone(k)
	if !known && (from != pos || to > end) {
		return pos, false
	}
	for to < end {
		next, _, nextEnd := r.block(to)
		if b.isDone(next) != known || !known && nextEnd > end {
			break
		}
		to = nextEnd
	}
	return min(to, end), known
}

// fetch reads p, from pos on, and verifies it unless it is known to be good: then p is
// whole blocks. What comes from afar is fetched once more before it counts as damaged,
// since it may have been damaged on its way.
func (b *blocks) fetch(ctx context.Context, r region, pos int64, p []byte, known bool) error {
	err := b.readSource(ctx, p, r.pos+pos)
	if err != nil || known {
		return err
	}
	if err = b.checkRun(r, pos, p); err == nil || b.remote == nil {
		return err
	}
	b.remote.Discard(r.pos+pos, int64(len(p)))
	if err = b.readSource(ctx, p, r.pos+pos); err != nil {
		return err
	}
	if err = b.checkRun(r, pos, p); err != nil {
		b.remote.Discard(r.pos+pos, int64(len(p)))
	}
	return err
}

// readSource fills p from off on.
func (b *blocks) readSource(ctx context.Context, p []byte, off int64) error {
	if b.remote == nil {
		return readFull(b.src, b.name, p, off)
	}
	return readFull(withContext{b.remote, ctx}, b.name, p, off)
}

// withContext is a Refetcher as one reader sees it.
type withContext struct {
	Refetcher
	ctx context.Context
}

func (w withContext) ReadAt(p []byte, off int64) (int, error) { return w.ReadContext(w.ctx, p, off) }

// checkRun verifies p, whole blocks from pos on.
func (b *blocks) checkRun(r region, pos int64, p []byte) error {
	for len(p) > 0 {
		k, from, to := r.block(pos)
		if err := b.check(r, k, from, p[:to-from]); err != nil {
			return err
		}
		p, pos = p[to-from:], to
	}
	return nil
}

var scratch = sync.Pool{New: func() any { return new([BlockBytes]byte) }}

// readPart verifies the block that holds pos and copies what it has from pos on.
func (b *blocks) readPart(ctx context.Context, dst []byte, r region, pos int64) (int, error) {
	p := scratch.Get().(*[BlockBytes]byte)
	defer scratch.Put(p)
	_, from, to := r.block(pos)
	whole := p[:to-from]
	if err := b.fetch(ctx, r, from, whole, false); err != nil {
		return 0, err
	}
	return copy(dst, whole[pos-from:]), nil
}

// verify verifies the blocks under [pos, pos+n) that have not been.
func (b *blocks) verify(ctx context.Context, r region, pos, n int64) error {
	for end := pos + n; pos < end; {
		k, _, to := r.block(pos)
		if !b.isDone(k) {
			if _, err := b.readPart(ctx, nil, r, pos); err != nil {
				return err
			}
		}
		pos = to
	}
	return nil
}
