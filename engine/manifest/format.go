package manifest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// MANIFEST-000007 is a header and edits, each from a 4 KiB boundary on, so that no
// block with a durable edit is ever written again. Integers of fixed width are
// little endian. docs/format/manifest.md says the same for readers of the data.
//
//	┌──────────────────┐ 0
//	│ header           │ 4096 bytes
//	├──────────────────┤ 4096
//	│ first edit       │ the whole state, as an edit of nothing
//	├──────────────────┤ next multiple of 4096
//	│ edit             │
//	├──────────────────┤
//	│ zeros            │ allocated for edits to come
//	└──────────────────┘
//
// Header (the place of magic, version and checksum is the same in every version):
//
//	0         8          12     16         24          32    4088        4096
//	┌─────────┬──────────┬──────┬──────────┬───────────┬─────┬───────────┐
//	│ magic   │ version  │ 0    │ file     │ sequence  │ 0   │ xxhash64  │
//	│ 8 bytes │ u32      │ u32  │ number   │ of first  │ …   │ of before │
//	└─────────┴──────────┴──────┴──────────┴───────────┴─────┴───────────┘
//
// An edit. Sequence numbers run without a gap, from file to file:
//
//	0        4          8           16           24              32
//	┌────────┬──────────┬───────────┬────────────┬───────────────┬─────────┐
//	│ type   │ payload  │ sequence  │ xxhash64   │ xxhash64 of   │ payload │
//	│ u32: 1 │ bytes    │ number    │ of payload │ [0, 24),      │ … zeros │
//	│        │ u32      │ u64       │            │ by file number│         │
//	└────────┴──────────┴───────────┴────────────┴───────────────┴─────────┘
const (
	logMagic      = "SNKRMAN\x00"
	formatVersion = 1

	firstNumber = 1 // of files and of edits

	blockBytes   = vfs.BlockSize
	headerSumPos = blockBytes - 8

	frameBytes   = 32
	frameSumPos  = frameBytes - 8
	typeEdit     = 1
	maxEditBytes = 64 << 20
	maxLogBytes  = 1 << 30
	maxSegments  = 1 << 21 // in one edit, and so in a state
)

// frameSize returns the bytes that an edit takes in the file.
func frameSize(payload int64) int64 {
	return (frameBytes + payload + blockBytes - 1) / blockBytes * blockBytes
}

func encodeHeader(number, seq uint64, version uint32) []byte {
	b := vfs.Aligned(blockBytes)[:0]
	b = append(b, logMagic...)
	b = bin.AppendU32(b, version)
	b = bin.AppendU32(b, 0)
	b = bin.AppendU64(b, number)
	b = bin.AppendU64(b, seq)
	b = b[:headerSumPos]
	return bin.AppendU64(b, bin.Sum(b))
}

// decodeHeader checks the header of the file number and returns the sequence number
// of its first edit. The checksum comes before the version, so that a damaged
// version is corruption and not a newer program's file.
func decodeHeader(b []byte, path string, number uint64) (seq uint64, err error) {
	corrupt := func(detail string) error { return &base.CorruptionError{Path: path, Detail: "header: " + detail} }
	if len(b) < blockBytes || string(b[:len(logMagic)]) != logMagic {
		return 0, corrupt("not a manifest")
	}
	d := bin.NewDecoder(b[headerSumPos:blockBytes])
	if d.U64() != bin.Sum(b[:headerSumPos]) {
		return 0, corrupt("checksum differs")
	}
	d.Reset(b[len(logMagic):headerSumPos])
	if version := d.U32(); version != formatVersion {
		return 0, &base.VersionError{Path: path, Version: version, Newest: formatVersion}
	}
	d.Skip(4)
	if n := d.U64(); n != number {
		return 0, corrupt(fmt.Sprintf("of file %d", n))
	}
	return d.U64(), nil
}

// encodeFrame returns the blocks of an edit with the given payload.
func encodeFrame(payload []byte, number, seq uint64) []byte {
	head := make([]byte, 0, frameBytes)
	head = bin.AppendU32(head, typeEdit)
	head = bin.AppendU32(head, uint32(len(payload)))
	head = bin.AppendU64(head, seq)
	head = bin.AppendU64(head, bin.Sum(payload))
	head = bin.AppendU64(head, bin.SumSeeded(number, head))
	whole := vfs.Aligned(int(frameSize(int64(len(payload)))))
	copy(whole, head)
	copy(whole[frameBytes:], payload)
	return whole
}

// decodeFrame returns the payload of the edit at the front of b and its sequence
// number, if header and payload verify for this file.
func decodeFrame(b []byte, number uint64) (payload []byte, seq uint64, ok bool) {
	if len(b) < frameBytes {
		return nil, 0, false
	}
	d := bin.NewDecoder(b[:frameBytes])
	typ, size, seq, payloadSum, sum := d.U32(), d.U32(), d.U64(), d.U64(), d.U64()
	if sum != bin.SumSeeded(number, b[:frameSumPos]) || typ != typeEdit ||
		size > maxEditBytes || uint64(size) > uint64(len(b)-frameBytes) {
		return nil, 0, false
	}
	payload = b[frameBytes : frameBytes+int(size)]
	return payload, seq, bin.Sum(payload) == payloadSum
}

// The payload of an edit, integers as uvarints unless said otherwise:
//
//	flags u8 (1: low-water follows) │ [low LSN, low batch] │ next segment │ next stream
//	│ n, n removed segment ids │ n, n segments
//
// A segment:
//
//	id │ size │ kind u8 │ level u8 │ flags u8 (1: object number follows, 2: evicted) │
//	[object] │ run │ min stream │ max stream │ dead since (varint, ms)
const (
	editLow        = 1
	segmentObject  = 1
	segmentEvicted = 2

	minSegmentBytes = 8
)

func appendEdit(dst []byte, e *Edit) []byte {
	if e.Low != nil {
		dst = append(dst, editLow)
		dst = bin.AppendUvarint(dst, uint64(e.Low.LSN))
		dst = bin.AppendUvarint(dst, e.Low.Batch)
	} else {
		dst = append(dst, 0)
	}
	dst = bin.AppendUvarint(dst, uint64(e.ReserveSegments))
	dst = bin.AppendUvarint(dst, e.ReserveStreams)
	dst = bin.AppendUvarint(dst, uint64(len(e.Remove)))
	for _, id := range e.Remove {
		dst = bin.AppendUvarint(dst, uint64(id))
	}
	dst = bin.AppendUvarint(dst, uint64(len(e.Add)))
	for i := range e.Add {
		dst = AppendSegment(dst, &e.Add[i])
	}
	return dst
}

// AppendSegment appends the encoding of one segment to dst.
func AppendSegment(dst []byte, g *Segment) []byte {
	var flags byte
	if g.Object != 0 {
		flags |= segmentObject
	}
	if g.Evicted {
		flags |= segmentEvicted
	}
	dst = bin.AppendUvarint(dst, uint64(g.ID))
	dst = bin.AppendUvarint(dst, uint64(g.Size))
	dst = append(dst, g.Kind, g.Level, flags)
	if g.Object != 0 {
		dst = bin.AppendUvarint(dst, g.Object)
	}
	dst = bin.AppendUvarint(dst, g.Run)
	dst = bin.AppendUvarint(dst, uint64(g.MinStream))
	dst = bin.AppendUvarint(dst, uint64(g.MaxStream))
	return bin.AppendVarint(dst, int64(g.DeadSince))
}

func decodeEdit(p []byte) (Edit, error) {
	var e Edit
	d := bin.NewDecoder(p)
	flags := d.U8()
	if flags&^editLow != 0 {
		return Edit{}, fmt.Errorf("flags %#x of an edit", flags)
	}
	if flags&editLow != 0 {
		e.Low = &Position{LSN: base.LSN(d.Uvarint()), Batch: d.Uvarint()}
	}
	e.ReserveSegments, e.ReserveStreams = base.SegmentID(d.Uvarint()), d.Uvarint()
	if n := d.Count(maxSegments); n > 0 {
		e.Remove = make([]base.SegmentID, n)
	}
	for i := range e.Remove {
		e.Remove[i] = base.SegmentID(d.Uvarint())
	}
	n := d.Count(maxSegments)
	e.Add = slices.Grow(e.Add, min(n, d.Len()/minSegmentBytes))
	for range n {
		g, err := DecodeSegment(d)
		if err != nil {
			return Edit{}, err
		}
		e.Add = append(e.Add, g)
	}
	return e, d.End()
}

// DecodeSegment takes from d what AppendSegment appends. It checks no more than that
// the encoding is one.
func DecodeSegment(d *bin.Decoder) (Segment, error) {
	g := Segment{ID: base.SegmentID(d.Uvarint())}
	size := d.Uvarint()
	g.Kind, g.Level = d.U8(), d.U8()
	flags := d.U8()
	if flags&segmentObject != 0 {
		g.Object = d.Uvarint()
	}
	g.Run = d.Uvarint()
	g.MinStream, g.MaxStream = base.StreamID(d.Uvarint()), base.StreamID(d.Uvarint())
	g.DeadSince = base.Millis(d.Varint())
	switch {
	case d.Err() != nil:
		return Segment{}, d.Err()
	case size > math.MaxInt64 || flags&^(segmentObject|segmentEvicted) != 0 || flags&segmentObject != 0 && g.Object == 0:
		return Segment{}, fmt.Errorf("segment %d: size %d, flags %#x", g.ID, size, flags)
	}
	g.Size = int64(size)
	g.Evicted = flags&segmentEvicted != 0
	return g, nil
}

// snapshot returns the state as an edit of nothing.
func (s *State) snapshot() *Edit {
	low := s.Low
	e := &Edit{Low: &low, ReserveSegments: s.NextSegment, ReserveStreams: s.NextStream}
	for _, g := range s.Segments {
		e.Add = append(e.Add, g)
	}
	slices.SortFunc(e.Add, func(a, b Segment) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return e
}

// CURRENT says which file counts. It is text, for people:
//
//	snakream-current 1
//	MANIFEST-000007
//	0123456789abcdef      (xxhash64 of the lines before)
const (
	currentName     = "CURRENT"
	currentTempName = "CURRENT.tmp"
	currentMagic    = "snakream-current "
	logPrefix       = "MANIFEST-"
	sumLineBytes    = 17
	maxCurrentBytes = 256
)

func encodeCurrent(number uint64, version uint32) []byte {
	b := fmt.Appendf(nil, "%s%d\n%s\n", currentMagic, version, logName(number))
	return appendSumLine(b, bin.Sum(b))
}

func appendSumLine(dst []byte, sum uint64) []byte { return fmt.Appendf(dst, "%016x\n", sum) }

func decodeCurrent(b []byte, path string) (number uint64, err error) {
	corrupt := &base.CorruptionError{Path: path, Detail: "not what says which manifest counts"}
	if len(b) < sumLineBytes || len(b) > maxCurrentBytes {
		return 0, corrupt
	}
	text, sum := b[:len(b)-sumLineBytes], b[len(b)-sumLineBytes:]
	if string(appendSumLine(nil, bin.Sum(text))) != string(sum) {
		return 0, corrupt
	}
	first, second, _ := strings.Cut(string(text), "\n")
	digits, ok := strings.CutPrefix(first, currentMagic)
	version, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil {
		return 0, corrupt
	}
	if version != formatVersion {
		return 0, &base.VersionError{Path: path, Version: uint32(version), Newest: formatVersion}
	}
	number, err = parseLogName(strings.TrimSuffix(second, "\n"))
	if err != nil || string(encodeCurrent(number, formatVersion)) != string(b) {
		return 0, corrupt
	}
	return number, nil
}

func logName(number uint64) string { return fmt.Sprintf("%s%06d", logPrefix, number) }

var errLogName = errors.New("not the name of a manifest")

func parseLogName(name string) (number uint64, err error) {
	digits, ok := strings.CutPrefix(name, logPrefix)
	number, err = strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || number == 0 || logName(number) != name {
		return 0, errLogName
	}
	return number, nil
}
