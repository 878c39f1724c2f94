package segment

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

var update = flag.Bool("update", false, "write the golden files anew")

const goldenName, futureName = "segment-v1.seg", "segment-v2.seg"

// future is a segment as a later program might write it: another version under a
// checksum that holds.
func future(data []byte) []byte {
	data = bytes.Clone(data)
	copy(data, encodeHeader(testID, testKind, formatVersion+1))
	return data
}

func TestGolden(t *testing.T) {
	data := written(t, small(), nil)
	for name, want := range map[string][]byte{goldenName: data, futureName: future(data)} {
		path := filepath.Join("testdata", name)
		if *update {
			must(t, os.WriteFile(path, want, 0o644))
		}
		got, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the writer writes now", name)
		}
	}
	golden, err := os.ReadFile(filepath.Join("testdata", goldenName))
	must(t, err)
	if err := compare(opened(t, golden), small()); err != nil {
		t.Error(err)
	}
}

func TestFutureVersion(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", futureName))
	must(t, err)
	_, err = Open(inMemory(data), "s.seg", testID)
	var version *base.VersionError
	if !errors.As(err, &version) || version.Version != formatVersion+1 || version.Newest != formatVersion || isCorruption(err) {
		t.Fatal(err)
	}
}

// A footer whose checksum holds but whose rows make no sense.
func TestFooterRows(t *testing.T) {
	good := footerRow{idDelta: 1, start: 5, payload: 10, firstRecord: 1, records: 3, bounds: 2, rows: 7}
	lay := layout{payload: 10, bounds: 2, rows: 7, streams: 1}
	if _, err := decodeFooter(appendFooterRow(nil, good), lay); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*footerRow, *layout){
		"id zero":                  func(r *footerRow, _ *layout) { r.idDelta = 0 },
		"payload beyond":           func(r *footerRow, _ *layout) { r.payload = 11 },
		"payload short":            func(r *footerRow, _ *layout) { r.payload = 9 },
		"bounds beyond":            func(r *footerRow, _ *layout) { r.bounds = 3 },
		"rows beyond":              func(r *footerRow, _ *layout) { r.rows = 8 },
		"rows short":               func(r *footerRow, _ *layout) { r.rows = 6 },
		"offset overflows":         func(r *footerRow, _ *layout) { r.start = 1<<64 - 5 },
		"ordinal overflows":        func(r *footerRow, _ *layout) { r.firstRecord = 1<<64 - 2 },
		"more messages than bytes": func(r *footerRow, l *layout) { r.records, r.bounds, l.bounds = 11, 10, 10 },
		"no messages":              func(r *footerRow, l *layout) { r.records, r.bounds, l.bounds = 0, 0, 0 },
		"too few bounds":           func(r *footerRow, l *layout) { r.bounds, l.bounds = 1, 1 },
		"too many bounds":          func(r *footerRow, l *layout) { r.bounds, l.bounds = 21, 21 },
		"more streams":             func(_ *footerRow, l *layout) { l.streams = 2 },
		"no streams":               func(_ *footerRow, l *layout) { l.streams = 0 },
		"streams beyond memory":    func(_ *footerRow, l *layout) { l.streams = 1 << 40 },
	} {
		r, l := good, lay
		change(&r, &l)
		if _, err := decodeFooter(appendFooterRow(nil, r), l); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	two := appendFooterRow(appendFooterRow(nil, good), footerRow{idDelta: 1<<64 - 1})
	if _, err := decodeFooter(two, layout{payload: 10, bounds: 2, rows: 7, streams: 2}); err == nil {
		t.Error("an id that wraps around: accepted")
	}
}

func FuzzTrailer(f *testing.F) {
	data := written(f, small(), nil)
	f.Add(data[len(data)-trailerBytes:])
	f.Add(make([]byte, trailerBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum would keep the fuzzer out.
		if len(b) == trailerBytes {
			b = bin.AppendU64(bytes.Clone(b[:trailerBytes-8]), bin.Sum(b[:trailerBytes-8]))
		}
		l, err := decodeTrailer(b)
		if err == nil && !bytes.Equal(encodeTrailer(&l), b) {
			t.Fatalf("accepted, but it is not how %+v is written", l)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(encodeHeader(testID, testKind, formatVersion)[:32], true)
	f.Add(encodeHeader(1, 0, 2)[:32], true)
	f.Add(encodeHeader(1, 0, 1)[:32], false)
	f.Fuzz(func(t *testing.T, b []byte, summed bool) {
		if summed { // the checksum would keep the fuzzer out
			whole := make([]byte, headerSumPos)
			copy(whole, b)
			b = bin.AppendU64(whole, bin.Sum(whole))
		}
		id, kind, err := decodeHeader(b, "s.seg")
		if err == nil && !bytes.Equal(encodeHeader(id, kind, formatVersion)[16:25], b[16:25]) {
			t.Fatal("accepted, but it is not how it is written")
		}
	})
}

func FuzzFooter(f *testing.F) {
	data := written(f, small(), nil)
	lay := opened(f, data).lay
	f.Add(data[lay.footerPos():][:lay.footer], uint16(lay.streams), uint16(lay.payload), uint16(lay.bounds), uint16(lay.rows))
	f.Add([]byte{}, uint16(0), uint16(0), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, streams, payload, bounds, rows uint16) {
		table, err := decodeFooter(b, layout{streams: uint64(streams), payload: int64(payload), bounds: int64(bounds), rows: int64(rows)})
		if err != nil {
			return
		}
		var again []byte
		var id base.StreamID
		for i, e := range table[:streams] {
			next := table[i+1]
			again = appendFooterRow(again, footerRow{
				idDelta: uint64(e.id - id), start: e.start, firstRecord: e.firstRecord, records: e.records,
				payload: next.pos - e.pos, bounds: next.boundsPos - e.boundsPos, rows: next.rowsPos - e.rowsPos,
			})
			id = e.id
		}
		if !bytes.Equal(again, b) {
			t.Fatal("accepted, but it is not how it is written")
		}
	})
}

func FuzzRow(f *testing.F) {
	for _, c := range small() {
		for _, r := range c.rows {
			f.Add(appendRow(nil, r))
		}
	}
	f.Add(appendRow(nil, row("k", "v", 1))[:3])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := decodeRow(b)
		if err == nil && !bytes.Equal(appendRow(nil, r), b[:n]) {
			t.Fatalf("accepted %d bytes, but they are not how %v is written", n, r)
		}
	})
}

func FuzzLengths(f *testing.F) {
	f.Add([]byte{1, 2, 0x80, 1}, uint64(0), uint8(3))
	f.Add([]byte{0}, uint64(1), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, from uint64, n uint8) {
		ends, err := decodeLengths(nil, b, from, int(n))
		if err != nil {
			return
		}
		var again []byte
		for _, end := range ends {
			if end <= from {
				t.Fatalf("ends do not ascend: %v", ends)
			}
			again = bin.AppendUvarint(again, end-from)
			from = end
		}
		if !bytes.Equal(again, b) {
			t.Fatal("accepted, but it is not how it is written")
		}
	})
}

// Boundary bytes whose checksum holds: the cursor may refuse them, but neither
// panics nor gives two answers that contradict each other.
func FuzzBoundaries(f *testing.F) {
	c := of(1, 100, 5, slices.Repeat([]int{1, 2, 3}, 100)...)
	data := written(f, []content{c}, nil)
	lay := opened(f, data).lay
	f.Add(data[lay.dataPos()+lay.payload:][:lay.bounds])
	f.Fuzz(func(t *testing.T, b []byte) {
		forged := bytes.Clone(data)
		copy(forged[lay.dataPos()+lay.payload:][:lay.bounds], b)
		sums := forged[lay.tablePos():][:0]
		for p := range slices.Chunk(forged[lay.dataPos():lay.rowsPos()], BlockBytes) {
			sums = bin.AppendU64(sums, bin.Sum(p))
		}
		resum := lay
		resum.tableSum = bin.Sum(sums)
		copy(forged[len(forged)-trailerBytes:], encodeTrailer(&resum))
		s := opened(t, forged)
		st, _ := s.Find(1)
		bounds, err := s.Boundaries(t.Context(), st)
		must(t, err)
		rng := rand.New(rand.NewPCG(1, 1))
		for range 20 {
			off := st.Extent.Start + base.Offset(rng.Uint64N(uint64(len(c.payload))))
			rec, _, err := bounds.Locate(off)
			end, err2 := bounds.Next(off)
			if err != nil || err2 != nil {
				if !isCorruption(errors.Join(err, err2)) {
					t.Fatal(err, err2)
				}
				continue
			}
			if got, err := bounds.EndOf(rec); err != nil || got != end || end <= off || end > st.Extent.End {
				t.Fatalf("at %d: Next says %d, EndOf(%d) says %d, %v", off, end, rec, got, err)
			}
		}
		for _, err := range bounds.All() {
			if err != nil && !isCorruption(err) {
				t.Fatal(err)
			}
		}
	})
}
