package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// A segment is one file. Integers of fixed width are little endian; uvarint is that
// of internal/bin. docs/format/segment.md says the same for readers of the data.
//
//	┌──────────────────┐ 0
//	│ header           │ 4096 bytes
//	├──────────────────┤ 4096      ┐
//	│ payload          │           │ data region, in blocks of 64 KiB:
//	├──────────────────┤           │ may be evicted when it is in the object store
//	│ boundaries       │           │
//	├──────────────────┤           ┘
//	│ rows             │ rows region, in blocks of 64 KiB
//	├──────────────────┤
//	│ checksum table   │ xxhash64 of each block of the data region, then of each
//	├──────────────────┤ block of the rows region; a region's last block is short
//	│ footer           │ a row for each stream
//	├──────────────────┤
//	│ trailer          │ 96 bytes
//	└──────────────────┘
//
// Header (the place of magic, version and checksum is the same in every version):
//
//	0          8           12       16         24      25     4088        4096
//	┌──────────┬───────────┬────────┬──────────┬───────┬──────┬───────────┐
//	│ magic    │ version   │ 0      │ segment  │ kind  │ 0    │ xxhash64  │
//	│ 8 bytes  │ u32       │ u32    │ id u64   │ u8    │ …    │ of [0,4088)│
//	└──────────┴───────────┴────────┴──────────┴───────┴──────┴───────────┘
//
// Trailer, twelve u64: segment id, kind, file size; bytes of payload, boundaries,
// rows, footer; streams; xxhash64 of the checksum table, xxhash64 of the footer;
// magic; xxhash64 of the eleven before.
//
// The header is written last, so that a file without one was never finished.
const (
	headerMagic  = "SNKRSEG\x00"
	trailerMagic = 0x444e452d524b4e53 // "SNKR-END"

	formatVersion = 1

	headerBytes   = vfs.BlockSize // so that blocks lie on pages of the file
	headerSumPos  = headerBytes - 8
	trailerFields = 12
	trailerBytes  = 8 * trailerFields
	sumBytes      = 8 // an entry of the checksum table
)

// BlockBytes is the unit in which payload, boundaries and rows are checksummed. A
// block is the least that is read the first time.
const BlockBytes = 64 << 10

// Limits. A file or a request beyond one of them is refused.
const (
	// MaxBytes is the size of the largest segment, in bytes.
	MaxBytes = 1 << 40
	// MaxKeyBytes is the length of a row's longest key.
	MaxKeyBytes = 64 << 10
	// MaxValueBytes is the length of a row's longest value.
	MaxValueBytes = 16 << 20
)

// ErrRange says that a position lies outside of what the segment or the run holds.
var ErrRange = errors.New("outside of the range")

// ErrOrder says that a Writer was given streams, boundaries, rows or sizes that
// break the order of a segment. It is a mistake of the caller.
var ErrOrder = errors.New("out of order")

// layout says where everything in a segment lies: the contents of its trailer.
type layout struct {
	id   base.SegmentID
	kind uint8
	size int64 // of the file

	payload, bounds, rows, footer int64 // bytes of each

	streams             uint64
	tableSum, footerSum uint64
}

func (l *layout) dataPos() int64   { return headerBytes }
func (l *layout) dataBytes() int64 { return l.payload + l.bounds }
func (l *layout) rowsPos() int64   { return l.dataPos() + l.dataBytes() }
func (l *layout) tablePos() int64  { return l.rowsPos() + l.rows }
func (l *layout) tableBytes() int64 {
	return sumBytes * (blockCount(l.dataBytes()) + blockCount(l.rows))
}
func (l *layout) footerPos() int64 { return l.tablePos() + l.tableBytes() }
func (l *layout) end() int64       { return l.footerPos() + l.footer + trailerBytes }

// blockCount returns the number of blocks in a region of n bytes.
func blockCount(n int64) int64 { return (n + BlockBytes - 1) / BlockBytes }

// encodeHeader returns the header of a segment.
func encodeHeader(id base.SegmentID, kind uint8, version uint32) []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, headerMagic...)
	b = bin.AppendU32(b, version)
	b = bin.AppendU32(b, 0)
	b = bin.AppendU64(b, uint64(id))
	b = append(b, kind)
	b = b[:headerSumPos]
	return bin.AppendU64(b, bin.Sum(b))
}

// decodeHeader checks a header. The checksum comes before the version, so that a
// damaged version is corruption and not a newer program's file.
func decodeHeader(b []byte, name string) (id base.SegmentID, kind uint8, err error) {
	corrupt := func(detail string) error { return &base.CorruptionError{Path: name, Detail: "header: " + detail} }
	if len(b) != headerBytes || string(b[:len(headerMagic)]) != headerMagic {
		return 0, 0, corrupt("not a segment")
	}
	d := bin.NewDecoder(b[headerSumPos:])
	if d.U64() != bin.Sum(b[:headerSumPos]) {
		return 0, 0, corrupt("checksum differs")
	}
	d.Reset(b[len(headerMagic):headerSumPos])
	version := d.U32()
	if version != formatVersion {
		return 0, 0, &base.VersionError{Path: name, Version: version, Newest: formatVersion}
	}
	d.Skip(4)
	id, kind = base.SegmentID(d.U64()), d.U8()
	return id, kind, nil
}

// encodeTrailer returns the trailer for a layout.
func encodeTrailer(l *layout) []byte {
	b := make([]byte, 0, trailerBytes)
	for _, x := range [...]uint64{
		uint64(l.id), uint64(l.kind), uint64(l.size),
		uint64(l.payload), uint64(l.bounds), uint64(l.rows), uint64(l.footer),
		l.streams, l.tableSum, l.footerSum, trailerMagic,
	} {
		b = bin.AppendU64(b, x)
	}
	return bin.AppendU64(b, bin.Sum(b))
}

// decodeTrailer checks a trailer by itself: its regions fill a file of its size.
func decodeTrailer(b []byte) (l layout, err error) {
	if len(b) != trailerBytes {
		return layout{}, bin.ErrShort
	}
	d := bin.NewDecoder(b)
	var f [trailerFields]uint64
	for i := range f {
		f[i] = d.U64()
	}
	if f[10] != trailerMagic {
		return layout{}, errors.New("wrong magic")
	}
	if f[11] != bin.Sum(b[:trailerBytes-8]) {
		return layout{}, errors.New("checksum differs")
	}
	if f[1] > 0xff {
		return layout{}, fmt.Errorf("kind %d", f[1])
	}
	for _, n := range f[2:8] {
		if n > MaxBytes {
			return layout{}, fmt.Errorf("a length of %d bytes", n)
		}
	}
	l = layout{
		id: base.SegmentID(f[0]), kind: uint8(f[1]), size: int64(f[2]),
		payload: int64(f[3]), bounds: int64(f[4]), rows: int64(f[5]), footer: int64(f[6]),
		streams: f[7], tableSum: f[8], footerSum: f[9],
	}
	if l.end() != l.size {
		return layout{}, fmt.Errorf("regions end at %d in a file of %d bytes", l.end(), l.size)
	}
	return l, nil
}

// readLayout reads and checks header and trailer of a source.
func readLayout(src Source, name string, id base.SegmentID) (layout, error) {
	size := src.Size()
	if size < headerBytes+trailerBytes {
		return layout{}, &base.CorruptionError{Path: name, Offset: max(size, 0), Detail: "too short for a segment"}
	}
	head := make([]byte, headerBytes)
	if err := readFull(src, name, head, 0); err != nil {
		return layout{}, err
	}
	headID, kind, err := decodeHeader(head, name)
	if err != nil {
		return layout{}, err
	}
	if headID != id {
		return layout{}, &base.CorruptionError{Path: name, Detail: fmt.Sprintf("header is that of segment %d, not %d", headID, id)}
	}
	tail := make([]byte, trailerBytes)
	at := size - trailerBytes
	if err := readFull(src, name, tail, at); err != nil {
		return layout{}, err
	}
	l, err := decodeTrailer(tail)
	switch {
	case err != nil:
	case l.id != id || l.kind != kind:
		err = fmt.Errorf("of segment %d, kind %d; header says %d, %d", l.id, l.kind, id, kind)
	case l.size != size:
		err = fmt.Errorf("of a file of %d bytes, which has %d", l.size, size)
	}
	if err != nil {
		return layout{}, &base.CorruptionError{Path: name, Offset: at, Detail: "trailer: " + err.Error()}
	}
	return l, nil
}

// readFull fills p from off on. A source that ends early lost bytes that its size
// or its trailer promised.
func readFull(src Source, name string, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &base.CorruptionError{Path: name, Offset: off + int64(n), Detail: "the file ends early"}
	}
	return fmt.Errorf("segment: read %d bytes at %d of %s: %w", len(p), off, name, err)
}
