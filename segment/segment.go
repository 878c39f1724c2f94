// Package segment keeps immutable, checksummed data files: their format, a writer,
// and a reader over any source of byte ranges. A segment holds, for each of its
// streams, one run of payload with the boundaries of its messages, and rows of
// state; from the footers and rows of the live segments everything is rebuilt.
package segment

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// A Source is what a segment is read from: a local file or an object. ReadAt may
// be called concurrently and must not change its size.
type Source interface {
	// ReadAt is that of io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// Size returns the size of the whole segment, in bytes.
	Size() int64
}

// A Refetcher is a Source that may fetch its bytes anew at any read, as an object
// behind a cache does. A block that was good once proves nothing there, so every
// read of payload, boundaries and rows is verified, and VerifiedRange is false.
type Refetcher interface {
	Source
	// ReadContext is ReadAt for somebody who may lose interest.
	ReadContext(ctx context.Context, p []byte, off int64) (int, error)
	// Discard says that the n bytes from off on do not verify: they are to be
	// fetched anew.
	Discard(off, n int64)
}

// FileSource returns an open file as a Source, of the size that it has now. The
// file stays the caller's to close, after the last use of the segment.
func FileSource(f vfs.File) (Source, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("segment: size: %w", err)
	}
	return fileSource{f, size}, nil
}

type fileSource struct {
	vfs.File
	size int64
}

func (f fileSource) Size() int64 { return f.size }

// A Stream is one row of a segment's footer: what the segment holds of a stream.
type Stream struct {
	// Extent is the run of payload, with Segment filled in. Start equals End, and
	// Records is 0, when the segment holds only rows of the stream.
	Extent base.Extent

	bounds, rows span // in the boundary bytes and in the rows region
}

// span is a place in a region of the file.
type span struct{ pos, n int64 }

// A Segment is an open segment. All its methods may be called concurrently. It
// holds 56 bytes of memory for each stream, a bit for each block of BlockBytes and,
// once payload or rows were read, the table of checksums (8 bytes a block).
type Segment struct {
	lay     layout
	table   []entry // one for each stream, by id, and one that marks the end
	content blocks
}

// Open reads and verifies header, trailer and footer of the segment id. The name is
// for errors. It returns a CorruptionError when they are damaged, do not fit each
// other or the size of the source, or belong to another segment, and a VersionError
// when the format is a later one. Damage to payload, boundaries and rows is found
// when these are read.
func Open(src Source, name string, id base.SegmentID) (*Segment, error) {
	lay, err := readLayout(src, name, id)
	if err != nil {
		return nil, err
	}
	foot := make([]byte, lay.footer)
	if err := readFull(src, name, foot, lay.footerPos()); err != nil {
		return nil, err
	}
	if bin.Sum(foot) != lay.footerSum {
		return nil, &base.CorruptionError{Path: name, Offset: lay.footerPos(), Detail: "checksum of the footer differs"}
	}
	table, err := decodeFooter(foot, lay)
	if err != nil {
		return nil, &base.CorruptionError{Path: name, Offset: lay.footerPos(), Detail: "footer: " + err.Error()}
	}
	s := &Segment{lay: lay, table: table}
	s.content.init(src, name, lay)
	return s, nil
}

// ID returns the segment's number.
func (s *Segment) ID() base.SegmentID { return s.lay.id }

// Kind returns what Create was given; this package gives it no meaning.
func (s *Segment) Kind() uint8 { return s.lay.kind }

// Size returns the size of the file, in bytes.
func (s *Segment) Size() int64 { return s.lay.size }

// PayloadBytes returns the size of the payload region.
func (s *Segment) PayloadBytes() int64 { return s.lay.payload }

// Evictable returns the part [from, to) of the file, payload and boundaries, that
// may be kept elsewhere when only the rest is local. Open, Rows and AllRows read
// nothing of it.
func (s *Segment) Evictable() (from, to int64) { return s.lay.dataPos(), s.lay.rowsPos() }

// Len returns the number of streams.
func (s *Segment) Len() int { return len(s.table) - 1 }

// Streams yields the footer's rows in ascending order of their ids.
func (s *Segment) Streams() iter.Seq[Stream] {
	return func(yield func(Stream) bool) {
		for i := range s.Len() {
			if !yield(s.stream(i)) {
				return
			}
		}
	}
}

// Find returns the footer's row of a stream, and false if the segment has none.
func (s *Segment) Find(id base.StreamID) (Stream, bool) {
	i, ok := slices.BinarySearchFunc(s.table[:s.Len()], id, func(e entry, id base.StreamID) int {
		switch {
		case e.id < id:
			return -1
		case e.id > id:
			return 1
		}
		return 0
	})
	if !ok {
		return Stream{}, false
	}
	return s.stream(i), true
}

// stream puts the row i together: what it does not say follows from the next one.
func (s *Segment) stream(i int) Stream {
	e, next := &s.table[i], &s.table[i+1]
	return Stream{
		Extent: base.Extent{
			Stream:      e.id,
			Start:       e.start,
			End:         e.start + base.Offset(next.pos-e.pos),
			Segment:     s.lay.id,
			Pos:         e.pos,
			FirstRecord: e.firstRecord,
			Records:     e.records,
		},
		bounds: span{e.boundsPos, next.boundsPos - e.boundsPos},
		rows:   span{e.rowsPos, next.rowsPos - e.rowsPos},
	}
}

// AppendPayload appends to dst the n bytes of the payload region from pos on and
// returns the extended slice; on an error, dst as it was. A block is read whole and
// verified the first time that it is touched (a CorruptionError if it is damaged);
// what has been verified is read as it is. ErrRange if the region ends before pos+n.
func (s *Segment) AppendPayload(ctx context.Context, dst []byte, pos int64, n int) ([]byte, error) {
	if !within(pos, int64(n), s.lay.payload) {
		return dst, fmt.Errorf("segment %s: payload [%d, +%d) of %d bytes: %w", s.content.name, pos, n, s.lay.payload, ErrRange)
	}
	return s.content.read(ctx, dst, s.content.data, pos, n)
}

// Verify reads and verifies the blocks under the n bytes of payload from pos on
// that have not been verified. When it returns nil, these bytes may be sent
// straight from the file, unless the source is a Refetcher.
func (s *Segment) Verify(ctx context.Context, pos, n int64) error {
	if !within(pos, n, s.lay.payload) {
		return fmt.Errorf("segment %s: verify [%d, +%d) of %d bytes: %w", s.content.name, pos, n, s.lay.payload, ErrRange)
	}
	return s.content.verify(ctx, s.content.data, pos, n)
}

// VerifyAll verifies payload, boundaries and rows, all that Open has not. A block that
// was verified before is read again only if the source is a Refetcher.
func (s *Segment) VerifyAll(ctx context.Context) error {
	for _, r := range []region{s.content.data, s.content.rows} {
		if err := s.content.verify(ctx, r, 0, r.size); err != nil {
			return err
		}
	}
	return nil
}

// VerifiedRange reports, without any I/O, whether all blocks under the n bytes of
// payload from pos on have been verified. It is false outside of the region.
func (s *Segment) VerifiedRange(pos, n int64) bool {
	return within(pos, n, s.lay.payload) && s.content.verified(s.content.data, pos, n)
}

// FilePos returns the position in the file of a position in the payload region.
func (s *Segment) FilePos(pos int64) int64 { return s.lay.dataPos() + pos }

// within reports whether [pos, pos+n) lies in [0, size).
func within(pos, n, size int64) bool { return pos >= 0 && n >= 0 && n <= size && pos <= size-n }
