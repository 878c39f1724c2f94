package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

func TestRoundTrip(t *testing.T) {
	for range 150 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		contents := randomContents(rng)
		data := written(t, contents, rng)
		if !bytes.Equal(data, written(t, contents, nil)) {
			t.Fatalf("seed %d: the order of calls shows in the file", seed)
		}
		if err := compare(opened(t, data), contents); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s, err := Open(fresh{inMemory(data)}, "s.seg", testID)
		must(t, err)
		if err := compare(s, contents); err != nil {
			t.Fatalf("seed %d: from a source that refetches: %v", seed, err)
		}
	}
}

func TestOnTheRealFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "000045.seg")
	contents := []content{of(7, 100, 3, 10, 70_000, 3_000_000).with(row("", "state", 9)), of(8, 0, 0, 5)}
	w, err := Create(vfs.OS, path, testID, 1<<20, testKind)
	must(t, err)
	must(t, fill(w, contents, nil))
	size, err := w.Finish()
	must(t, err)
	w.Abort() // does nothing any more
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() != size {
		t.Fatalf("file has %d bytes, Finish returned %d", info.Size(), size)
	}
	f, err := vfs.OS.Open(path)
	must(t, err)
	defer f.Close()
	src, err := FileSource(f)
	must(t, err)
	s, err := Open(src, path, testID)
	must(t, err)
	if err := compare(s, contents); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	must(t, err)
	if at := s.FilePos(0); !bytes.Equal(raw[at:at+s.PayloadBytes()], append(contents[0].payload, contents[1].payload...)) {
		t.Fatal("FilePos does not lead to the payload")
	}
}

func TestEntryIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(entry{}); n > 64 {
		t.Fatalf("a stream takes %d bytes of memory", n)
	}
}

// A block is read whole once; from then on exactly what is asked for is.
func TestBlocksAreVerifiedOnce(t *testing.T) {
	c := of(1, 0, 0, 3*BlockBytes+100)
	src := inMemory(written(t, []content{c}, nil))
	s, err := Open(src, "s.seg", testID)
	must(t, err)
	table := int(s.lay.tableBytes())
	for _, step := range []struct {
		pos, n      int
		reads, read int
	}{
		{10, 20, 2, BlockBytes + table},                // its block, and the checksum table
		{10, 20, 1, 20},                                // known
		{BlockBytes - 1, 1, 1, 1},                      // known
		{BlockBytes, BlockBytes, 1, BlockBytes},        // a whole new block, in place
		{5, 2*BlockBytes - 5, 1, 2*BlockBytes - 5},     // both known
		{5, 3*BlockBytes + 95, 2, 3*BlockBytes + 95},   // … and two new ones to the end
		{0, 3*BlockBytes + 100, 1, 3*BlockBytes + 100}, // all known
		{3 * BlockBytes, 100, 1, 100},                  // the short block
		{3*BlockBytes + 100, 0, 0, 0},                  // nothing
	} {
		src.reads, src.read = 0, 0
		got, err := s.AppendPayload(t.Context(), nil, int64(step.pos), step.n)
		must(t, err)
		if !bytes.Equal(got, c.payload[step.pos:step.pos+step.n]) {
			t.Fatalf("[%d, +%d): wrong bytes", step.pos, step.n)
		}
		if src.reads != step.reads || src.read != step.read {
			t.Errorf("[%d, +%d): %d reads of %d bytes, want %d of %d", step.pos, step.n, src.reads, src.read, step.reads, step.read)
		}
	}
}

func TestVerify(t *testing.T) {
	c := of(1, 0, 0, 3*BlockBytes)
	src := inMemory(written(t, []content{c}, nil))
	s, err := Open(src, "s.seg", testID)
	must(t, err)
	if s.VerifiedRange(0, 1) || !s.VerifiedRange(5, 0) {
		t.Error("verified before anything was read, or nothing is not")
	}
	must(t, s.Verify(t.Context(), BlockBytes-1, 2))
	src.reads = 0
	for _, want := range []struct {
		pos, n int64
		ok     bool
	}{{0, 2 * BlockBytes, true}, {BlockBytes, 10, true}, {0, 2*BlockBytes + 1, false}, {2 * BlockBytes, 1, false}, {-1, 1, false}, {0, math.MaxInt64, false}} {
		if ok := s.VerifiedRange(want.pos, want.n); ok != want.ok {
			t.Errorf("VerifiedRange(%d, %d) = %v", want.pos, want.n, ok)
		}
	}
	must(t, s.Verify(t.Context(), 0, 2*BlockBytes))
	if src.reads != 0 {
		t.Errorf("%d reads for what is verified", src.reads)
	}
	src.data[headerBytes+2*BlockBytes] ^= 1
	if err := s.Verify(t.Context(), 2*BlockBytes+7, 1); !isCorruption(err) || s.VerifiedRange(2*BlockBytes, 1) {
		t.Errorf("damaged block: %v", err)
	}
}

func TestRefetchedBytesAreAlwaysVerified(t *testing.T) {
	src := inMemory(written(t, []content{of(1, 0, 0, 2*BlockBytes, 1)}, nil))
	s, err := Open(fresh{src}, "s.seg", testID)
	must(t, err)
	must(t, s.Verify(t.Context(), 0, 10))
	if s.VerifiedRange(0, 10) {
		t.Error("a check of bytes that are fetched anew was kept")
	}
	if _, err := s.AppendPayload(t.Context(), nil, 0, 10); err != nil {
		t.Fatal(err)
	}
	src.data[headerBytes+5] ^= 1
	if _, err := s.AppendPayload(t.Context(), nil, 0, 3); !isCorruption(err) {
		t.Errorf("damage after the first read: %v", err)
	}
}

func TestRanges(t *testing.T) {
	s := opened(t, written(t, []content{of(1, 0, 0, 100, 100, 100)}, nil))
	for _, r := range []struct {
		pos int64
		n   int
	}{{-1, 1}, {0, -1}, {0, 301}, {300, 1}, {301, 0}, {math.MaxInt64, 1}, {1, math.MaxInt}} {
		if got, err := s.AppendPayload(t.Context(), []byte("x"), r.pos, r.n); !errors.Is(err, ErrRange) || string(got) != "x" {
			t.Errorf("AppendPayload(%d, %d): %q, %v", r.pos, r.n, got, err)
		}
		if err := s.Verify(t.Context(), r.pos, int64(r.n)); !errors.Is(err, ErrRange) {
			t.Errorf("Verify(%d, %d): %v", r.pos, r.n, err)
		}
	}
	for _, id := range []base.StreamID{0, 2, math.MaxUint64} {
		if st, ok := s.Find(id); ok {
			t.Errorf("Find(%d) = %v", id, st)
		}
	}
	foreign := Stream{Extent: base.Extent{Segment: testID + 1}}
	if _, err := s.Boundaries(t.Context(), foreign); !errors.Is(err, ErrRange) {
		t.Errorf("boundaries of a foreign stream: %v", err)
	}
	for _, err := range s.Rows(foreign) {
		if !errors.Is(err, ErrRange) {
			t.Errorf("rows of a foreign stream: %v", err)
		}
	}
}

// With payload and boundaries gone, a start finds all it needs in the rest.
func TestEvictedSegmentOpens(t *testing.T) {
	contents := []content{of(1, 0, 0, 70_000, 5, 9).with(row("a", "b", 1)), of(3, 5, 5, 1).with(removed("c", 2))}
	data := written(t, contents, nil)
	from, to := opened(t, data).Evictable()
	clear(data[from:to])
	s := opened(t, data)
	if err := compareAllRows(s, contents); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendPayload(t.Context(), nil, 0, 1); !isCorruption(err) {
		t.Fatalf("evicted payload: %v", err)
	}
}

func TestConcurrentReaders(t *testing.T) {
	lengths := make([]int, 2000)
	for i := range lengths {
		lengths[i] = 1 + i%400
	}
	c := of(1, 1000, 50, lengths...).with(row("k", "v", 1))
	s, err := Open(shared{bytes.NewReader(written(t, []content{c}, nil))}, "s.seg", testID)
	must(t, err)
	st, _ := s.Find(1)
	var readers sync.WaitGroup
	for g := range uint64(8) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(g, 0))
			b, err := s.Boundaries(t.Context(), st)
			if err != nil {
				t.Error(err)
				return
			}
			for range 200 {
				pos := rng.IntN(len(c.payload))
				n := rng.IntN(min(100_000, len(c.payload)-pos))
				got, err := s.AppendPayload(t.Context(), nil, int64(pos), n)
				if err != nil || !bytes.Equal(got, c.payload[pos:pos+n]) {
					t.Errorf("[%d, +%d): %v", pos, n, err)
				}
				rec, _, err := b.Locate(c.start + base.Offset(pos))
				if want := c.first + uint64(c.messageAt(c.start+base.Offset(pos))); err != nil || rec != want {
					t.Errorf("Locate(%d): %d, %v, want %d", pos, rec, err, want)
				}
				if err := s.Verify(t.Context(), int64(pos), int64(n)); err != nil || !s.VerifiedRange(int64(pos), int64(n)) {
					t.Errorf("Verify: %v", err)
				}
			}
			if err := compareAllRows(s, []content{c}); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
}

func isCorruption(err error) bool {
	_, ok := errors.AsType[*base.CorruptionError](err)
	return ok
}

func ExampleCreate() {
	dir, err := os.MkdirTemp("", "segment")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "000001.seg")

	w, err := Create(vfs.OS, path, 1, 0, 1)
	if err != nil {
		panic(err)
	}
	defer w.Abort()
	// The calls of a Writer may be checked once, at Finish: the first error stays.
	w.Begin(7, 100, 3) // stream 7, from offset 100 on, which is its message 3
	w.Payload([]byte("hello, world"))
	w.Boundary(107)
	w.Boundary(112)
	if _, err := w.Finish(); err != nil {
		panic(err)
	}

	f, err := vfs.OS.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	src, err := FileSource(f)
	if err != nil {
		panic(err)
	}
	s, err := Open(src, path, 1)
	if err != nil {
		panic(err)
	}
	st, _ := s.Find(7)
	b, err := s.Boundaries(context.Background(), st)
	if err != nil {
		panic(err)
	}
	record, exact, err := b.Locate(107)
	if err != nil {
		panic(err)
	}
	p, err := s.AppendPayload(context.Background(), nil, st.Extent.Pos+7, 5)
	fmt.Printf("%s is message %d (at its beginning: %v) %v\n", p, record, exact, err)
	// Output: world is message 4 (at its beginning: true) <nil>
}
