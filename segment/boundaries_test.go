package segment

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

func TestBoundariesAgainstTwin(t *testing.T) {
	for _, messages := range []int{1, 2, 3, 127, 128, 129, 130, 255, 256, 257, 258, 1000, 20_000} {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		lengths := make([]int, messages)
		for i := range lengths {
			lengths[i] = 1 + rng.IntN(9)
			if rng.IntN(50) == 0 {
				lengths[i] = 1 + rng.IntN(1000)
			}
		}
		c := of(9, 1000, 77, lengths...)
		s := opened(t, written(t, []content{of(1, 5, 5, 3, 3, 3), c, of(10, 0, 0, 1, 1)}, nil))
		st, _ := s.Find(9)
		b, err := s.Boundaries(t.Context(), st)
		must(t, err)
		end := st.Extent.End
		for i := range 3000 {
			off := c.start + base.Offset(rng.Uint64N(uint64(end-c.start)+1))
			if i < 600 { // a walk from the start, and one to the end
				off = []base.Offset{min(end, c.start+base.Offset(i/2)), max(c.start, end-base.Offset(i/2))}[i%2]
			}
			checkAt(t, b, c, off, seed)
		}
	}
}

// checkAt compares what the cursor says about off with the twin.
func checkAt(t *testing.T, b *Boundaries, c content, off base.Offset, seed uint64) {
	t.Helper()
	i := c.messageAt(off)
	begin := c.beginOf(i)
	rec, exact, err := b.Locate(off)
	if err != nil || rec != c.first+uint64(i) || exact != (begin == off) {
		t.Fatalf("seed %d: Locate(%d) = %d, %v, %v, want %d, %v", seed, off, rec, exact, err, c.first+uint64(i), begin == off)
	}
	floor, rec, err := b.FloorEnd(off)
	if err != nil || floor != begin || rec != c.first+uint64(i) {
		t.Fatalf("seed %d: FloorEnd(%d) = %d, %d, %v, want %d", seed, off, floor, rec, err, begin)
	}
	next, err := b.Next(off)
	switch {
	case i == len(c.ends):
		if !errors.Is(err, ErrRange) {
			t.Fatalf("seed %d: Next at the end = %d, %v", seed, next, err)
		}
		return
	case err != nil || next != c.ends[i]:
		t.Fatalf("seed %d: Next(%d) = %d, %v, want %d", seed, off, next, err, c.ends[i])
	}
	if got, err := b.EndOf(c.first + uint64(i)); err != nil || got != c.ends[i] {
		t.Fatalf("seed %d: EndOf(%d) = %d, %v, want %d", seed, i, got, err, c.ends[i])
	}
}

func TestBoundariesOutside(t *testing.T) {
	s := opened(t, written(t, []content{of(1, 100, 10, 5, 5), of(2, 50, 3)}, nil))
	st, _ := s.Find(1)
	b, err := s.Boundaries(t.Context(), st)
	must(t, err)
	for _, off := range []base.Offset{0, 99, 111, math.MaxUint64} {
		if _, _, err := b.Locate(off); !errors.Is(err, ErrRange) {
			t.Errorf("Locate(%d): %v", off, err)
		}
		if _, err := b.Next(off); !errors.Is(err, ErrRange) {
			t.Errorf("Next(%d): %v", off, err)
		}
	}
	if _, _, err := b.FloorEnd(99); !errors.Is(err, ErrRange) {
		t.Errorf("FloorEnd before the run: %v", err)
	}
	if end, rec, err := b.FloorEnd(math.MaxUint64); end != 110 || rec != 12 || err != nil {
		t.Errorf("FloorEnd behind the run: %d, %d, %v", end, rec, err)
	}
	for _, rec := range []uint64{0, 9, 12, math.MaxUint64} {
		if _, err := b.EndOf(rec); !errors.Is(err, ErrRange) {
			t.Errorf("EndOf(%d): %v", rec, err)
		}
	}

	empty, _ := s.Find(2)
	b, err = s.Boundaries(t.Context(), empty)
	must(t, err)
	if rec, exact, err := b.Locate(50); rec != 3 || !exact || err != nil {
		t.Errorf("Locate in an empty run: %d, %v, %v", rec, exact, err)
	}
	if _, err := b.Next(50); !errors.Is(err, ErrRange) {
		t.Errorf("Next in an empty run: %v", err)
	}
	for end, err := range b.All() {
		t.Errorf("an empty run has a message: %d, %v", end, err)
	}
}

// Finding a message in a long run reads some restart points and one group.
func TestLocateReadsLittle(t *testing.T) {
	lengths := make([]int, 500_000)
	for i := range lengths {
		lengths[i] = 1 + i%3
	}
	c := of(1, 0, 0, lengths...)
	src := inMemory(written(t, []content{c}, nil))
	s, err := Open(src, "s.seg", testID)
	must(t, err)
	must(t, s.content.verify(t.Context(), s.content.data, 0, s.lay.dataBytes()))
	st, _ := s.Find(1)
	b, err := s.Boundaries(t.Context(), st)
	must(t, err)
	src.reads, src.read = 0, 0
	checkAt(t, b, c, 765_432, 0)
	if src.reads > 10 || src.read > 16<<10 {
		t.Errorf("%d reads of %d bytes", src.reads, src.read)
	}
	src.reads = 0
	for i := range base.Offset(100) {
		checkAt(t, b, c, 765_432+i, 0)
	}
	if src.reads > 2 {
		t.Errorf("%d reads for the next hundred bytes", src.reads)
	}
}
