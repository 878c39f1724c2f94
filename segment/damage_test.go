package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

// small has a bit of everything, and restart points.
func small() []content {
	lengths := make([]int, 300)
	for i := range lengths {
		lengths[i] = 1 + i%3
	}
	return []content{
		of(3, 0, 0, 5, 1, 9).with(row("\x01", "a stream", 1), row("\x02", "its attributes", 2), removed("\x03p", 8)),
		of(4, 1<<40, 7).with(row("only a row", "", 3)),
		of(900, 12, 1, lengths...),
		of(1<<50, 1<<60, 1<<33, 200),
	}
}

// read reads everything that a segment has. It returns the first error; where there
// is none the data must be that of the contents.
func read(src Source, contents []content) error {
	s, err := Open(src, "s.seg", testID)
	if err != nil {
		return err
	}
	return compare(s, contents)
}

func TestEveryFlippedByteIsDetected(t *testing.T) {
	contents := small()
	data := written(t, contents, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for at := range data {
		flipped := bytes.Clone(data)
		flipped[at] ^= byte(1 + rng.IntN(255))
		if err := read(inMemory(flipped), contents); !isCorruption(err) {
			t.Fatalf("byte %d of %d: %v", at, len(data), err)
		}
	}
}

func TestEveryTruncationIsDetected(t *testing.T) {
	contents := small()
	data := written(t, contents, nil)
	for n := range data {
		if err := read(inMemory(data[:n]), contents); !isCorruption(err) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
		}
		// An object store that promises all and sends less.
		if err := read(&memory{data: data[:n], size: int64(len(data))}, contents); !isCorruption(err) {
			t.Fatalf("ends after %d of %d bytes: %v", n, len(data), err)
		}
	}
	for _, longer := range [][]byte{append(bytes.Clone(data), 0), append(bytes.Clone(data), data...)} {
		if err := read(inMemory(longer), contents); !isCorruption(err) {
			t.Fatalf("%d bytes instead of %d: %v", len(longer), len(data), err)
		}
	}
}

// A damaged block takes its range with it and nothing else.
func TestDamageStaysInItsBlock(t *testing.T) {
	c := of(1, 0, 0, 5*BlockBytes)
	data := written(t, []content{c}, nil)
	data[headerBytes+2*BlockBytes+5] ^= 0x80
	s := opened(t, data)
	for i := range int64(5) {
		got, err := s.AppendPayload(t.Context(), nil, i*BlockBytes+100, 50)
		if i == 2 {
			var damage *base.CorruptionError
			if !errors.As(err, &damage) || damage.Offset != headerBytes+2*BlockBytes || damage.Path != "s.seg" || len(got) > 0 {
				t.Errorf("damaged block: %q, %v", got, err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, c.payload[i*BlockBytes+100:][:50]) {
			t.Errorf("block %d: %v", i, err)
		}
	}
	if got, err := s.AppendPayload(t.Context(), []byte("x"), 0, 5*BlockBytes); !isCorruption(err) || string(got) != "x" {
		t.Errorf("a range over the damaged block: %d bytes, %v", len(got), err)
	}
	if err := s.Verify(t.Context(), 0, 5*BlockBytes); !isCorruption(err) {
		t.Errorf("Verify over the damaged block: %v", err)
	}
}

// Blocks that verify by themselves but lie in each other's place.
func TestSwappedBlocks(t *testing.T) {
	data := written(t, []content{of(1, 0, 0, 2*BlockBytes)}, nil)
	a, b := data[headerBytes:][:BlockBytes], data[headerBytes+BlockBytes:][:BlockBytes]
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
	if _, err := opened(t, data).AppendPayload(t.Context(), nil, 0, 1); !isCorruption(err) {
		t.Fatal(err)
	}
}

func TestAnotherSegmentsFile(t *testing.T) {
	data := written(t, small(), nil)
	if _, err := Open(inMemory(data), "s.seg", testID+1); !isCorruption(err) {
		t.Fatal(err)
	}
	for _, junk := range [][]byte{nil, make([]byte, 100), make([]byte, len(data)), bytes.Repeat([]byte("x"), 10_000)} {
		if _, err := Open(inMemory(junk), "s.seg", testID); !isCorruption(err) {
			t.Fatalf("%d bytes of junk: %v", len(junk), err)
		}
	}
}

// A read error is not corruption, whenever it comes, and the next try may succeed.
func TestReadErrors(t *testing.T) {
	contents := small()
	data := written(t, contents, nil)
	for fail := 1; ; fail++ {
		src := &failing{memory: inMemory(data), after: fail}
		s, err := Open(src, "s.seg", testID)
		if err == nil {
			if err = compare(s, contents); err == nil {
				return // so many reads are not needed
			}
			if err := compare(s, contents); err != nil {
				t.Fatalf("after the failed read %d: %v", fail, err)
			}
		}
		if !errors.Is(err, errDisk) || isCorruption(err) {
			t.Fatalf("read %d fails: %v", fail, err)
		}
	}
}

var errDisk = errors.New("a broken disk")

// failing fails its n-th read.
type failing struct {
	*memory
	after int
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after == 0 {
		return len(p) / 2, errDisk
	}
	n, err := f.memory.ReadAt(p, off)
	if n == len(p) {
		err = io.EOF // io.ReaderAt allows it at the end
	}
	return n, err
}
