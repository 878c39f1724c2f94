package index_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/snakream/snakream/index"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
)

// twin does what a Tree does, slowly.
type twin []base.Extent

func (w *twin) insert(e base.Extent) {
	if e.Start >= e.End {
		return
	}
	*w = slices.DeleteFunc(*w, func(o base.Extent) bool { return o.Stream == e.Stream && o.Start == e.Start })
	*w = append(*w, e)
	slices.SortFunc(*w, func(a, b base.Extent) int {
		if a.Stream != b.Stream {
			return int(a.Stream) - int(b.Stream)
		}
		return int(a.Start) - int(b.Start)
	})
}

func (w *twin) remove(e base.Extent) bool {
	n := len(*w)
	*w = slices.DeleteFunc(*w, func(o base.Extent) bool {
		return o.Stream == e.Stream && o.Start == e.Start && o.Segment == e.Segment
	})
	return len(*w) < n
}

func (w twin) ascend(id base.StreamID, from base.Offset) (out []base.Extent) {
	for _, e := range w {
		if e.Stream == id && e.End > from {
			out = append(out, e)
		}
	}
	return out
}

func (w twin) overlaps(e base.Extent) bool {
	return slices.ContainsFunc(w, func(o base.Extent) bool {
		return o.Stream == e.Stream && o.Start != e.Start && o.Start < e.End && e.Start < o.End
	})
}

// same compares everything that a tree says with its twin.
func same(t *testing.T, tree *index.Tree, w twin, streams, limit int) {
	t.Helper()
	if tree.Len() != len(w) {
		t.Fatalf("%d extents, want %d", tree.Len(), len(w))
	}
	for id := base.StreamID(0); id <= base.StreamID(streams)+1; id++ {
		for from := base.Offset(0); from <= base.Offset(limit)+1; from++ {
			want := w.ascend(id, from)
			var got []base.Extent
			tree.Ascend(id, from, func(e base.Extent) bool { got = append(got, e); return true })
			if !slices.Equal(got, want) {
				t.Fatalf("Ascend(%d, %d) = %v, want %v", id, from, got, want)
			}
			e, ok := tree.Find(id, from)
			if wantOK := len(want) > 0 && want[0].Start <= from; ok != wantOK || ok && e != want[0] {
				t.Fatalf("Find(%d, %d) = %v, %v in %v", id, from, e, ok, want)
			}
		}
		want := w.ascend(id, 0)
		e, ok := tree.Last(id)
		if ok != (len(want) > 0) || ok && e != want[len(want)-1] {
			t.Fatalf("Last(%d) = %v, %v in %v", id, e, ok, want)
		}
	}
}

func TestAgainstTwin(t *testing.T) {
	const streams, limit = 5, 40
	for round := range 30 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			tree, w := index.New(), twin{}
			var old *index.Tree
			var oldTwin twin
			for range 100 + 20*round {
				start := base.Offset(rng.IntN(limit))
				e := base.Extent{
					Stream: base.StreamID(1 + rng.IntN(streams)), Start: start, End: min(limit, start+base.Offset(rng.IntN(6))),
					Segment: base.SegmentID(1 + rng.IntN(2)),
				}
				switch {
				case rng.IntN(3) == 0:
					if got, want := tree.Remove(e), w.remove(e); got != want {
						t.Fatalf("Remove(%v) = %v, want %v", e, got, want)
					}
				case !w.overlaps(e):
					tree.Insert(e)
					w.insert(e)
				}
				if rng.IntN(50) == 0 {
					old, oldTwin = tree, slices.Clone(w)
					tree = tree.Clone()
				}
			}
			same(t, tree, w, streams, limit)
			if old != nil {
				same(t, old, oldTwin, streams, limit)
			}
		})
	}
}

func TestAscendStops(t *testing.T) {
	tree := index.New()
	for i := range base.Offset(3) {
		tree.Insert(base.Extent{Stream: 1, Start: i, End: i + 1, Segment: 1})
	}
	calls := 0
	tree.Ascend(1, 0, func(base.Extent) bool { calls++; return false })
	if calls != 1 {
		t.Fatalf("called %d times after false", calls)
	}
}

func TestOverlapPanics(t *testing.T) {
	if !invariants.Enabled {
		t.Log("checks are not compiled in; run with -tags invariants or -race")
		return
	}
	tree := index.New()
	tree.Insert(base.Extent{Stream: 1, Start: 10, End: 20, Segment: 1})
	for _, e := range []base.Extent{
		{Stream: 1, Start: 5, End: 11, Segment: 2},
		{Stream: 1, Start: 19, End: 30, Segment: 2},
		{Stream: 1, Start: 5, End: 30, Segment: 2},
		{Stream: 1, Start: 12, End: 13, Segment: 2},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for [%d, %d)", e.Start, e.End)
				}
			}()
			tree.Insert(e)
		}()
	}
	tree.Insert(base.Extent{Stream: 1, Start: 5, End: 10, Segment: 2})
	tree.Insert(base.Extent{Stream: 1, Start: 20, End: 21, Segment: 2})
	tree.Insert(base.Extent{Stream: 1, Start: 10, End: 20, Segment: 3}) // a replacement
}

// An editor works on clones while readers hold every older tree.
func TestReadersOfOldTrees(t *testing.T) {
	const runs = 2000
	tree := index.New()
	for i := range base.StreamID(runs) {
		tree.Insert(base.Extent{Stream: i + 1, End: 10, Segment: 1})
	}
	var readers sync.WaitGroup
	for generation := base.SegmentID(1); generation <= 20; generation++ {
		published, want := tree, generation
		readers.Go(func() {
			for i := range base.StreamID(runs) {
				if e, ok := published.Find(i+1, 9); !ok || e.Segment != want {
					t.Errorf("stream %d: %v, %v, want segment %d", i+1, e, ok, want)
					return
				}
			}
		})
		next := tree.Clone()
		for i := range base.StreamID(runs) {
			if !next.Remove(base.Extent{Stream: i + 1, End: 10, Segment: generation}) {
				t.Fatalf("generation %d: stream %d is missing", generation, i+1)
			}
			next.Insert(base.Extent{Stream: i + 1, End: 10, Segment: generation + 1})
		}
		tree = next
	}
	readers.Wait()
}

const million = 1_000_000

func millionRuns() *index.Tree {
	tree := index.New()
	for i := range base.StreamID(million) {
		tree.Insert(base.Extent{Stream: i + 1, Start: 100, End: 200, Segment: 1, Pos: int64(i) * 100})
	}
	return tree
}

func BenchmarkInsertMillion(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		millionRuns()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/extent")
}

func BenchmarkFind(b *testing.B) {
	tree := millionRuns()
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := tree.Find(base.StreamID(1+rng.IntN(million)), 150); !ok {
			b.Fatal("not found")
		}
	}
}

// A flush of 1000 streams into a clone of a million runs.
func BenchmarkFlushIntoClone(b *testing.B) {
	tree := millionRuns()
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	start := base.Offset(200)
	for b.Loop() {
		tree = tree.Clone()
		for range 1000 {
			tree.Insert(base.Extent{Stream: base.StreamID(1 + rng.IntN(million)), Start: start, End: start + 10, Segment: 2})
		}
		start += 10
	}
}
