package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

// compareScan reads streams, of which contents tell the same, by a scan.
func compareScan(c *Scan, streams []Stream, contents []content) error {
	for i, st := range streams {
		want := contents[i]
		payload, err := c.Payload(context.Background(), st.Extent.Pos, len(want.payload))
		if err != nil {
			return err
		}
		if string(payload) != string(want.payload) {
			return fmt.Errorf("scan: wrong payload of stream %d", st.Extent.Stream)
		}
		var rows []Row
		for r, err := range c.Rows(st) {
			if err != nil {
				return err
			}
			rows = append(rows, cloneRow(r))
		}
		if !slices.EqualFunc(rows, want.rows, equalRows) {
			return fmt.Errorf("scan: %d rows of stream %d, want %d", len(rows), st.Extent.Stream, len(want.rows))
		}
	}
	return nil
}

// A scan gives the same in any order, also when what is asked for was broken off.
func TestScanInAnyOrder(t *testing.T) {
	for range 100 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		contents := randomContents(rng)
		s := opened(t, written(t, contents, nil))
		streams := slices.Collect(s.Streams())
		scan := s.Scan()
		for range 30 {
			if len(streams) == 0 {
				break
			}
			i := rng.IntN(len(streams))
			for range scan.Rows(streams[i]) {
				if rng.IntN(2) == 0 {
					break
				}
			}
			i = rng.IntN(len(streams))
			if err := compareScan(scan, streams[i:i+1], contents[i:i+1]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if x := streams[i].Extent; x.End > x.Start {
				from := rng.IntN(int(x.End - x.Start))
				n := rng.IntN(int(x.End-x.Start) - from + 1)
				p, err := scan.Payload(context.Background(), x.Pos+int64(from), n)
				if err != nil || string(p) != string(contents[i].payload[from:from+n]) {
					t.Fatalf("seed %d: bytes [%d, +%d) of stream %d differ: %v", seed, from, n, x.Stream, err)
				}
			}
		}
	}
}

// A pass over many small streams reads each block once.
func TestScanReadsBlocksOnce(t *testing.T) {
	var contents []content
	for i := range base.StreamID(3000) {
		contents = append(contents, of(i+1, 0, 0, 100).with(row("s", "0123456789abcdefghij", 7)))
	}
	src := inMemory(written(t, contents, nil))
	s, err := Open(src, "s.seg", testID)
	must(t, err)
	must(t, s.VerifyAll(context.Background()))
	src.reads, src.read = 0, 0
	must(t, compareScan(s.Scan(), slices.Collect(s.Streams()), contents))
	blocks := int(s.lay.dataBytes()/BlockBytes + s.lay.rows/BlockBytes + 2)
	// A stream that lies in two blocks begins another read, whose end is the second block's.
	if src.reads > 2*blocks || src.read > int(s.lay.dataBytes()+s.lay.rows)+blocks*200 {
		t.Errorf("%d reads of %d bytes for %d blocks, %d bytes", src.reads, src.read, blocks, s.lay.dataBytes()+s.lay.rows)
	}
}

func TestScanRanges(t *testing.T) {
	s := opened(t, written(t, small(), nil))
	scan := s.Scan()
	for _, c := range []struct {
		pos int64
		n   int
	}{{-1, 1}, {0, -1}, {s.PayloadBytes(), 1}, {0, int(s.PayloadBytes()) + 1}} {
		if _, err := scan.Payload(context.Background(), c.pos, c.n); !errors.Is(err, ErrRange) {
			t.Errorf("payload [%d, +%d): %v", c.pos, c.n, err)
		}
	}
	foreign := Stream{Extent: base.Extent{Segment: testID + 1}}
	for _, err := range scan.Rows(foreign) {
		if !errors.Is(err, ErrRange) {
			t.Errorf("rows of another segment: %v", err)
		}
	}
}
