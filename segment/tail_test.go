package segment

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// tailed writes the tail of a segment in memory and opens it over the object.
func tailed(t *testing.T, object *memory) (*Segment, *vfstest.MemFS) {
	t.Helper()
	fsys := vfstest.New()
	must(t, WriteTail(t.Context(), fsys, "s.tail", object, "s.seg", testID))
	f, err := fsys.Open("s.tail")
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	s, err := OpenTail(f, fresh{object}, "s.tail", testID)
	must(t, err)
	return s, fsys
}

func tailContents() []content {
	return []content{of(1, 0, 0, 70_000, 5, 9).with(row("a", "b", 1)), of(3, 5, 5, 1).with(removed("c", 2))}
}

func TestTailReadsOnlyPayloadAndBoundariesAfar(t *testing.T) {
	contents := tailContents()
	object := inMemory(written(t, contents, nil))
	s, _ := tailed(t, object)
	if s.TailBytes() >= s.Size() {
		t.Errorf("a tail of %d bytes for a segment of %d", s.TailBytes(), s.Size())
	}
	from, to := s.Evictable()
	object.reads = 0
	must(t, compareAllRows(s, contents))
	if object.reads != 0 {
		t.Errorf("%d reads of the object for the rows", object.reads)
	}
	clear(object.data[:from])
	clear(object.data[to:])
	must(t, compare(s, contents))
	must(t, s.VerifyAll(t.Context()))
}

// What is spoilt on its way is fetched again; what stays bad is damage, and none of it
// is kept.
func TestTailFetchesAgainBeforeItReportsDamage(t *testing.T) {
	object := inMemory(written(t, tailContents(), nil))
	s, _ := tailed(t, object)
	object.once = map[int64]byte{headerBytes + 100: 1}
	if _, err := s.AppendPayload(t.Context(), nil, 0, 200); err != nil {
		t.Errorf("spoilt once: %v", err)
	}
	if object.discarded == 0 {
		t.Error("what did not verify was not discarded")
	}
	object.discarded = 0
	object.data[headerBytes+100] ^= 1
	if _, err := s.AppendPayload(t.Context(), nil, 0, 200); !isCorruption(err) {
		t.Errorf("damaged: %v", err)
	}
	if object.discarded < 2*(BlockBytes) {
		t.Errorf("%d bytes discarded", object.discarded)
	}
	object.data[headerBytes+100] ^= 1
	if _, err := s.AppendPayload(t.Context(), nil, 0, 200); err != nil {
		t.Errorf("healed: %v", err)
	}
}

func TestTailEndsWithItsContext(t *testing.T) {
	s, _ := tailed(t, inMemory(written(t, tailContents(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.AppendPayload(ctx, nil, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestDamagedTailIsRefused(t *testing.T) {
	object := inMemory(written(t, tailContents(), nil))
	fsys := vfstest.New()
	must(t, WriteTail(t.Context(), fsys, "s.tail", object, "s.seg", testID))
	whole := fileBytes(t, fsys, "s.tail")
	for name, change := range map[string]func([]byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"short":        func(b []byte) []byte { return b[:len(b)-1] },
		"long":         func(b []byte) []byte { return append(b, 0) },
		"trailer":      func(b []byte) []byte { b[len(b)-9] ^= 1; return b },
		"footer":       func(b []byte) []byte { b[len(b)-trailerBytes-1] ^= 1; return b },
		"header":       func(b []byte) []byte { b[20] ^= 1; return b },
		"whole object": func([]byte) []byte { return bytes.Clone(object.data) },
	} {
		f, err := fsys.Create("damaged.tail")
		must(t, err)
		_, err = f.WriteAt(change(bytes.Clone(whole)), 0)
		must(t, err)
		if _, err := OpenTail(f, fresh{object}, "damaged.tail", testID); !isCorruption(err) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, f.Close())
		must(t, fsys.Remove("damaged.tail"))
	}
}

func TestTailOfNothingLeavesNothing(t *testing.T) {
	object := inMemory(written(t, tailContents(), nil))
	object.data[20] ^= 1
	fsys := vfstest.New()
	var damage *base.CorruptionError
	if err := WriteTail(t.Context(), fsys, "s.tail", object, "s.seg", testID); !errors.As(err, &damage) {
		t.Errorf("%v", err)
	}
	if names, err := fsys.List("."); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
