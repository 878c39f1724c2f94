package wal

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// The format of a log file, version 1. Integers are little endian. The same page
// for readers without Go is docs/format/wal.md.
//
// A file is a header block and batches, each beginning at a multiple of 4 KiB:
//
//	0        4096                                        size
//	┌────────┬──────────────┬────────┬─────────┬─────────┐
//	│ header │ batch │ 0000 │ batch  │ batch   │ zeros … │
//	└────────┴───────┴──────┴────────┴─────────┴─────────┘
//
// A batch is records one behind the other, then zeros up to the next multiple.
const (
	formatVersion = 1

	block       = vfs.BlockSize // where batches begin, and the unit of writing
	headerBytes = block         // of a file, zeros included

	suffixLog   = ".wal"   // a file of the log: 0000000123.wal
	suffixSpare = ".spare" // a file that is not, or not yet, part of the log

	// maxPayload bounds head and body of one record together.
	maxPayload = 1 << 30
)

// magic begins every log file.
const magic = "SNKRWAL\n"

// fileHeader is the first block of a file. What follows it in the block is zero.
//
//	 0        8         12         16       24      32
//	┌────────┬─────────┬──────────┬────────┬───────┬──────┐
//	│ magic  │ version │ zero     │ number │ salt  │ size │
//	│ 8      │ u32     │ u32      │ u64    │ u64   │ u64  │
//	├────────┴─┬───────┴──────────┼────────┴───────┼──────┘
//	│ first    │ first LSN        │ xxhash64 of    │
//	│ batch u64│ u64              │ bytes 0–55 u64 │
//	└──────────┴──────────────────┴────────────────┘
//	 40         48                 56               64
type fileHeader struct {
	number uint64
	salt   uint64 // seeds the checksum of each record header; new at each use of the file
	size   int64  // of the whole file, a multiple of 4 KiB
	// first is the place of the first record of a log that begins with this file:
	// everything before it is in segments. Zero in a file that follows another,
	// since its header is written before anybody knows what it will hold.
	first Position
}

const (
	fileHeaderSum   = 56 // position of the checksum
	fileHeaderBytes = 64 // with the checksum, without the zeros
)

func (h *fileHeader) encode(b []byte) {
	le := binary.LittleEndian
	clear(b[:headerBytes])
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint64(b[16:], h.number)
	le.PutUint64(b[24:], h.salt)
	le.PutUint64(b[32:], uint64(h.size))
	le.PutUint64(b[40:], h.first.Batch)
	le.PutUint64(b[48:], uint64(h.first.LSN))
	le.PutUint64(b[fileHeaderSum:], bin.Sum(b[:fileHeaderSum]))
}

// decodeFileHeader reads the first block of the file path. The version is looked
// at before anything that another version might lay out in another way.
func decodeFileHeader(path string, b []byte) (fileHeader, error) {
	le := binary.LittleEndian
	corrupt := func(off int64, detail string) (fileHeader, error) {
		return fileHeader{}, &base.CorruptionError{Path: path, Offset: off, Detail: detail}
	}
	if len(b) < fileHeaderBytes {
		return corrupt(0, "the file is too short for a log header")
	}
	if string(b[:len(magic)]) != magic {
		return corrupt(0, "not a log file")
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return fileHeader{}, &base.VersionError{Path: path, Version: v, Newest: formatVersion}
	}
	if le.Uint64(b[fileHeaderSum:]) != bin.Sum(b[:fileHeaderSum]) {
		return corrupt(fileHeaderSum, "checksum of the log header")
	}
	h := fileHeader{
		number: le.Uint64(b[16:]),
		salt:   le.Uint64(b[24:]),
		first:  Position{Batch: le.Uint64(b[40:]), LSN: base.LSN(le.Uint64(b[48:]))},
	}
	size := le.Uint64(b[32:])
	switch {
	case h.number == 0:
		return corrupt(16, "log file number zero")
	case size < MinFileBytes || size > MaxFileBytes || size%block != 0:
		return corrupt(32, fmt.Sprintf("impossible file size %d", size))
	case (h.first.Batch == 0) != (h.first.LSN == 0):
		return corrupt(40, "first batch and first LSN contradict each other")
	}
	h.size = int64(size)
	return h, nil
}

// recordHeader stands before each record's payload, which is head ‖ body:
//
//	 0           8      16      24    32        40       44       48      52   53
//	┌───────────┬──────┬───────┬─────┬─────────┬────────┬────────┬───────┬────┬──────┬──────┬──────┐
//	│ sum of    │ file │ batch │ LSN │ sum of  │ head   │ body   │ place │type│ zero │ head │ body │
//	│ this  u64 │ u64  │ u64   │ u64 │ payload │ length │ length │ u32   │ u8 │ u8×3 │      │      │
//	│           │      │       │     │ u64     │ u32    │ u32    │       │    │      │      │      │
//	└───────────┴──────┴───────┴─────┴─────────┴────────┴────────┴───────┴────┴──────┴──────┴──────┘
//	                                                                                56
//
// The sum of the header is the xxhash64 of the file's salt (8 bytes) and bytes
// 8 to 55. The sum of the payload is the xxhash64 of the head or, when there is a
// body, of the head and the xxhash64 of the body (8 bytes): a large body is hashed
// where it arrives and not again here. The place is the record's number within its
// batch, from 0. So LSN − place names the first LSN of the batch, and recovery can
// tell a batch that lost its beginning from one whose predecessor lost its end.
type recordHeader struct {
	file       uint64
	pos        Position // batch and LSN
	payloadSum uint64
	head, body uint32 // lengths
	place      uint32
	typ        uint8 // never zero
}

const recordHeaderBytes = 56

// bytes returns the length of the record, header and payload.
func (h *recordHeader) bytes() int64 { return RecordBytes(int(h.head), int(h.body)) }

// firstLSN returns the LSN of the first record of the same batch.
func (h *recordHeader) firstLSN() base.LSN { return h.pos.LSN - base.LSN(h.place) }

// encode writes the header into b[:recordHeaderBytes].
func (h *recordHeader) encode(b []byte, salt uint64) {
	le := binary.LittleEndian
	b = b[:recordHeaderBytes]
	le.PutUint64(b[8:], h.file)
	le.PutUint64(b[16:], h.pos.Batch)
	le.PutUint64(b[24:], uint64(h.pos.LSN))
	le.PutUint64(b[32:], h.payloadSum)
	le.PutUint32(b[40:], h.head)
	le.PutUint32(b[44:], h.body)
	le.PutUint32(b[48:], h.place)
	le.PutUint32(b[52:], uint32(h.typ))
	le.PutUint64(b, bin.SumSeeded(salt, b[8:]))
}

// decodeRecordHeader reads the header at the beginning of b. It is false unless
// the header verifies under the salt and belongs to the file with that number.
func decodeRecordHeader(b []byte, salt, number uint64) (h recordHeader, ok bool) {
	if len(b) < recordHeaderBytes {
		return h, false
	}
	le := binary.LittleEndian
	b = b[:recordHeaderBytes]
	if le.Uint64(b[8:]) != number || le.Uint64(b) != bin.SumSeeded(salt, b[8:]) {
		return h, false
	}
	h = recordHeader{
		file:       number,
		pos:        Position{Batch: le.Uint64(b[16:]), LSN: base.LSN(le.Uint64(b[24:]))},
		payloadSum: le.Uint64(b[32:]),
		head:       le.Uint32(b[40:]),
		body:       le.Uint32(b[44:]),
		place:      le.Uint32(b[48:]),
		typ:        b[52],
	}
	ok = h.typ != 0 && b[53]|b[54]|b[55] == 0 && h.pos.Batch != 0 &&
		uint64(h.pos.LSN) > uint64(h.place) &&
		uint64(h.head)+uint64(h.body) <= maxPayload
	return h, ok
}

// payloadSum returns the checksum of head ‖ body, given the xxhash64 of the body.
func payloadSum(head []byte, body int, bodySum uint64) uint64 {
	if body == 0 {
		return bin.Sum(head)
	}
	return bin.SumFollowed(head, bodySum)
}

// RecordBytes returns how many bytes of a batch a record takes, given the lengths
// of its head and its body.
func RecordBytes(head, body int) int64 { return recordHeaderBytes + int64(head) + int64(body) }

// roundUp returns the smallest multiple of the block size that is not below n.
func roundUp(n int64) int64 { return (n + block - 1) &^ (block - 1) }

// filePath returns the name of file number n with a suffix.
func filePath(dir string, n uint64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", n, suffix))
}

// parseName returns the number in a name made by filePath with that suffix.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && fmt.Sprintf("%010d", n) == digits
}
