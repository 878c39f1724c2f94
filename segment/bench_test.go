package segment

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// onDisk writes a segment to a real file and opens it.
func onDisk(b *testing.B, write func(w *Writer) error) (*Segment, Source) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "s.seg")
	w, err := Create(vfs.OS, path, testID, 64<<20, testKind)
	must(b, err)
	must(b, write(w))
	_, err = w.Finish()
	must(b, err)
	f, err := vfs.OS.Open(path)
	must(b, err)
	b.Cleanup(func() { f.Close() })
	src, err := FileSource(f)
	must(b, err)
	s, err := Open(src, path, testID)
	must(b, err)
	return s, src
}

const million = 1_000_000

func millionStreams(w *Writer) error {
	payload, r := make([]byte, 100), row("\x01", "0123456789abcdef0123456789abcdef", 1<<30)
	for i := range base.StreamID(million) {
		if err := w.Begin(1+2*i, 12_345, 678); err != nil {
			return err
		}
		if err := w.Payload(payload); err != nil {
			return err
		}
		if err := w.Boundary(12_445); err != nil {
			return err
		}
		if err := w.Row(r); err != nil {
			return err
		}
	}
	return nil
}

func BenchmarkOpenMillionStreams(b *testing.B) {
	_, src := onDisk(b, millionStreams)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(src, "s.seg", testID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllRowsOfMillionStreams(b *testing.B) {
	s, _ := onDisk(b, millionStreams)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.AllRows() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != million {
			b.Fatal(n)
		}
	}
}

func BenchmarkFindAmongMillion(b *testing.B) {
	s, _ := onDisk(b, millionStreams)
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		if _, ok := s.Find(base.StreamID(1 + 2*rng.IntN(million))); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	b.SetBytes(64 << 20)
	dir := b.TempDir()
	for b.Loop() {
		path := filepath.Join(dir, "s.seg")
		w, err := Create(vfs.OS, path, testID, 64<<20, testKind)
		must(b, err)
		for i := range base.StreamID(64) {
			must(b, w.Begin(i+1, 0, 0))
			must(b, w.Payload(payload))
			must(b, w.Boundary(base.Offset(len(payload))))
		}
		_, err = w.Finish()
		must(b, err)
		must(b, vfs.OS.Remove(path))
	}
}

func longRun(w *Writer) error {
	if err := w.Begin(1, 0, 0); err != nil {
		return err
	}
	if err := w.Payload(make([]byte, 64<<20)); err != nil {
		return err
	}
	for end := base.Offset(64); end <= 64<<20; end += 64 {
		if err := w.Boundary(end); err != nil {
			return err
		}
	}
	return nil
}

func BenchmarkRead(b *testing.B) {
	s, src := onDisk(b, longRun)
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		buf := make([]byte, 0, size)
		b.Run(fmt.Sprintf("size=%dk/state=verified", size>>10), func(b *testing.B) {
			must(b, s.Verify(b.Context(), 0, 64<<20))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for pos := int64(0); b.Loop(); pos = (pos + int64(size)) % (64 << 20) {
				if _, err := s.AppendPayload(b.Context(), buf, pos, size); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("size=%dk/state=new", size>>10), func(b *testing.B) {
			s, err := Open(forgetful{src}, "s.seg", testID)
			must(b, err)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for pos := int64(0); b.Loop(); pos = (pos + int64(size)) % (64 << 20) {
				if _, err := s.AppendPayload(b.Context(), buf, pos, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// forgetful has every block verified at every read.
type forgetful struct{ Source }

func (f forgetful) ReadContext(_ context.Context, p []byte, off int64) (int, error) {
	return f.ReadAt(p, off)
}

func (forgetful) Discard(int64, int64) {}

// A reader of a stream of a million messages asks where a step of it may end.
func BenchmarkFloorEnd(b *testing.B) {
	s, _ := onDisk(b, longRun)
	st, _ := s.Find(1)
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		bounds, err := s.Boundaries(b.Context(), st)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := bounds.FloorEnd(base.Offset(rng.IntN(64 << 20))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllBoundaries(b *testing.B) {
	s, _ := onDisk(b, longRun)
	st, _ := s.Find(1)
	b.ReportAllocs()
	for b.Loop() {
		bounds, err := s.Boundaries(b.Context(), st)
		must(b, err)
		for _, err := range bounds.All() {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
