package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var someHeaders = []fileHeader{
	{number: 1, salt: 0, size: MinFileBytes, first: Position{LSN: 1, Batch: 1}},
	{number: 123, salt: 1 << 63, size: DefaultFileBytes},
	{number: 1<<64 - 1, salt: 7, size: MaxFileBytes, first: Position{LSN: 1<<64 - 1, Batch: 9}},
}

func TestFileHeaderRoundTrip(t *testing.T) {
	for _, want := range someHeaders {
		b := bytes.Repeat([]byte{0xaa}, headerBytes)
		want.encode(b)
		if !allZero(b[fileHeaderBytes:]) {
			t.Error("the rest of the block is not zero")
		}
		if got, err := decodeFileHeader("x", b); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestFileHeaderDamage(t *testing.T) {
	sealed := func(edit func(b []byte)) func(b []byte) { // an impossible header that verifies
		return func(b []byte) {
			edit(b)
			binary.LittleEndian.PutUint64(b[fileHeaderSum:], bin.Sum(b[:fileHeaderSum]))
		}
	}
	le := binary.LittleEndian
	for _, c := range []struct {
		name   string
		edit   func(b []byte)
		offset int64
	}{
		{"zeros", func(b []byte) { clear(b) }, 0},
		{"magic", func(b []byte) { b[3] = 'x' }, 0},
		{"number", func(b []byte) { b[16]++ }, fileHeaderSum},
		{"salt", func(b []byte) { b[31]++ }, fileHeaderSum},
		{"checksum", func(b []byte) { b[fileHeaderSum]++ }, fileHeaderSum},
		{"number zero", sealed(func(b []byte) { le.PutUint64(b[16:], 0) }), 16},
		{"size not of blocks", sealed(func(b []byte) { le.PutUint64(b[32:], MinFileBytes+1) }), 32},
		{"size too small", sealed(func(b []byte) { le.PutUint64(b[32:], block) }), 32},
		{"size negative", sealed(func(b []byte) { le.PutUint64(b[32:], 1<<63) }), 32},
		{"first batch without LSN", sealed(func(b []byte) { le.PutUint64(b[48:], 0) }), 40},
	} {
		b := make([]byte, headerBytes)
		someHeaders[0].encode(b)
		c.edit(b)
		_, err := decodeFileHeader("the file", b)
		if ce, ok := errors.AsType[*base.CorruptionError](err); !ok || ce.Path != "the file" || ce.Offset != c.offset {
			t.Errorf("%s: got %v, want a corruption at %d", c.name, err, c.offset)
		}
	}
	if _, err := decodeFileHeader("x", []byte(magic)); err == nil {
		t.Error("a short header was accepted")
	}
}

var someRecords = []recordHeader{
	{file: 1, pos: Position{LSN: 1, Batch: 1}, payloadSum: 3, head: 0, body: 0, place: 0, typ: 1},
	{file: 9, pos: Position{LSN: 100, Batch: 7}, payloadSum: 1 << 63, head: 17, body: maxPayload - 17, place: 99, typ: 255},
	{file: 1<<64 - 1, pos: Position{LSN: 1<<64 - 1, Batch: 1<<64 - 1}, head: maxPayload, place: 1<<32 - 1, typ: 2},
}

func TestRecordHeaderRoundTrip(t *testing.T) {
	for _, want := range someRecords {
		b := make([]byte, recordHeaderBytes)
		want.encode(b, 42)
		if got, ok := decodeRecordHeader(b, 42, want.file); !ok || got != want {
			t.Errorf("got %+v, %v, want %+v", got, ok, want)
		}
		if _, ok := decodeRecordHeader(b, 43, want.file); ok {
			t.Error("it verifies under another salt")
		}
		if _, ok := decodeRecordHeader(b, 42, want.file-1); ok {
			t.Error("it is taken for a record of another file")
		}
		for i := range b {
			b[i] ^= 0x10
			if _, ok := decodeRecordHeader(b, 42, want.file); ok {
				t.Errorf("it verifies with byte %d damaged", i)
			}
			b[i] ^= 0x10
		}
	}
}

func TestRecordHeaderLimits(t *testing.T) {
	for name, edit := range map[string]func(h *recordHeader){
		"type zero":             func(h *recordHeader) { h.typ = 0 },
		"batch zero":            func(h *recordHeader) { h.pos.Batch = 0 },
		"LSN zero":              func(h *recordHeader) { h.pos.LSN = 0 },
		"place not below LSN":   func(h *recordHeader) { h.place = 50 },
		"payload too long":      func(h *recordHeader) { h.head, h.body = 1, maxPayload },
		"payload overflows u32": func(h *recordHeader) { h.head, h.body = 1<<31, 1<<31 },
	} {
		h := recordHeader{file: 1, pos: Position{LSN: 50, Batch: 7}, place: 3, typ: 1}
		edit(&h)
		b := make([]byte, recordHeaderBytes)
		h.encode(b, 1)
		if _, ok := decodeRecordHeader(b, 1, 1); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNames(t *testing.T) {
	for _, n := range []uint64{1, 123, 9999999999, 10000000000, 1<<64 - 1} {
		if got, ok := parseName(filepath.Base(filePath("d", n, suffixLog)), suffixLog); !ok || got != n {
			t.Errorf("%d: got %d, %v", n, got, ok)
		}
	}
	for _, name := range []string{"", ".wal", "1.wal", "0000000000.wal", "00000000001.wal", "0000000001.spare",
		"+000000001.wal", "0000000001.wal~", "000000000x.wal", "99999999999999999999.wal"} {
		if n, ok := parseName(name, suffixLog); ok {
			t.Errorf("%q is taken for file %d", name, n)
		}
	}
}

// writeGolden makes the log that testdata/v1.wal holds.
func writeGolden(t *testing.T) []byte {
	l := newLab(t)
	l.batch("first", "second|with a body")
	l.batch(strings.Repeat("h", 5000), "|only a body")
	l.batch("last")
	return l.bytes(1)
}

// installed returns a lab whose log consists of one file.
func installed(t *testing.T, golden string) *lab {
	t.Helper()
	content, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	fs := vfstest.New()
	if err := fs.MkdirAll(labDir); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create(filePath(labDir, 1, suffixLog))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return labOn(t, fs)
}

func TestGolden(t *testing.T) {
	const golden, future = "testdata/v1.wal", "testdata/future.wal"
	made := writeGolden(t)
	if *update {
		newer := bytes.Clone(made[:headerBytes])
		newer[8] = formatVersion + 1
		for name, b := range map[string][]byte{golden: made, future: newer} {
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := installed(t, golden)
	l.mustOpen(Position{})
	l.wantReplayed("1/1/1 first|", "2/1/1 second|with a body", "3/2/1 5000:9af7c80e54f0908a|", "4/2/1 |only a body", "5/3/1 last|")
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(made, want) {
		t.Errorf("what is written differs from %s (%v): the format has changed, and so must its version", golden, err)
	}

	l = installed(t, future)
	err := l.open(Position{})
	if ve, ok := errors.AsType[*base.VersionError](err); !ok || ve.Version != formatVersion+1 || ve.Path == "" {
		t.Errorf("a file of a future version: got %v", err)
	}
	if _, err := Inspect(l.fs, labDir, func(Item) error { return nil }); !errors.As(err, new(*base.VersionError)) {
		t.Errorf("Inspect of a file of a future version: got %v", err)
	}
}

// The whole of a file goes through the direct path of the operating system, too.
func TestOnDisk(t *testing.T) {
	cfg := Config{FS: vfs.OS, Dir: filepath.Join(t.TempDir(), "wal"), FileBytes: 1 << 20}
	if err := Create(cfg); err != nil {
		t.Fatal(err)
	}
	l, _, err := Open(cfg, Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("body"), 50_000)
	for range 3 {
		b, ok := l.Begin(RecordBytes(4, len(body)) + RecordBytes(5, 0))
		if !ok {
			t.Fatal("no room")
		}
		b.Add(1, []byte("head"), body, bin.Sum(body))
		b.Add(2, []byte("small"), nil, 0)
		if err := l.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	l, info, err := Open(cfg, Position{LSN: 2, Batch: 1}, func(r Record) error {
		if n++; n%2 == 1 && !bytes.Equal(r.Body, body) {
			t.Error("another body")
		}
		return nil
	})
	if err != nil || n != 4 || info.Records != 4 || info.Batches != 2 || info.End != at(6, 3) {
		t.Fatalf("%d records, %+v, %v", n, info, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
