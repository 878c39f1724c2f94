package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// A header that is accepted is written the same way again.
func FuzzFileHeader(f *testing.F) {
	for _, h := range someHeaders {
		b := make([]byte, headerBytes)
		h.encode(b)
		f.Add(b)
		f.Add(b[:fileHeaderBytes])
		f.Add(b[:fileHeaderBytes-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeFileHeader("f", b)
		if err != nil {
			if !errors.As(err, new(*base.CorruptionError)) && !errors.As(err, new(*base.VersionError)) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again := make([]byte, headerBytes)
		h.encode(again)
		if got, err := decodeFileHeader("f", again); err != nil || got != h {
			t.Fatalf("%+v comes back as %+v, %v", h, got, err)
		}
		if !bytes.Equal(again[16:fileHeaderBytes-8], b[16:fileHeaderBytes-8]) {
			t.Fatalf("%x is written as %x", b[:fileHeaderBytes], again[:fileHeaderBytes])
		}
	})
}

// A record header that is accepted is within its limits and written the same way
// again.
func FuzzRecordHeader(f *testing.F) {
	for _, h := range someRecords {
		b := make([]byte, recordHeaderBytes)
		h.encode(b, 42)
		f.Add(b, uint64(42), h.file, true)
		f.Add(b, uint64(42), h.file, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, salt, number uint64, seal bool) {
		if seal && len(b) >= recordHeaderBytes { // let the fuzzer look behind the checksum
			b = slices.Clone(b)
			binary.LittleEndian.PutUint64(b[8:], number)
			binary.LittleEndian.PutUint64(b, bin.SumSeeded(salt, b[8:recordHeaderBytes]))
		}
		h, ok := decodeRecordHeader(b, salt, number)
		if !ok {
			return
		}
		if h.typ == 0 || h.bytes() < recordHeaderBytes || h.bytes() > recordHeaderBytes+maxPayload || h.firstLSN() == 0 {
			t.Fatalf("impossible header %+v", h)
		}
		again := make([]byte, recordHeaderBytes)
		h.encode(again, salt)
		if !bytes.Equal(again, b[:recordHeaderBytes]) {
			t.Fatalf("%x is written as %x", b[:recordHeaderBytes], again)
		}
	})
}

// A log that is damaged anywhere is replayed in part or refused, and if it is
// opened, it opens again with the same records.
func FuzzRecover(f *testing.F) {
	golden, err := os.ReadFile("testdata/v1.wal")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), []byte(magic))
	f.Add(uint16(block), []byte{0})
	f.Add(uint16(block+8), make([]byte, 3*block))
	f.Add(uint16(3*block), []byte("garbage"))
	f.Fuzz(func(t *testing.T, off uint16, patch []byte) {
		l := labOn(t, vfstest.New())
		if err := l.fs.MkdirAll(labDir); err != nil {
			t.Fatal(err)
		}
		file, err := l.fs.Create(filePath(labDir, 1, suffixLog))
		if err != nil {
			t.Fatal(err)
		}
		content := slices.Clone(golden)
		copy(content[off:], patch)
		if _, err := file.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		err = l.open(Position{})
		if err != nil {
			if !errors.As(err, new(*base.CorruptionError)) && !errors.As(err, new(*base.VersionError)) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		first := l.replayed
		l.reopen(Position{})
		if !slices.Equal(first, l.replayed) || l.info.TornRecords != 0 {
			t.Fatalf("replayed %q, then %q", first, l.replayed)
		}
	})
}
