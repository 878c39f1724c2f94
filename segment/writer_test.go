package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func TestOrderIsKept(t *testing.T) {
	for name, mistake := range map[string]func(w *Writer) error{
		"payload before Begin":      func(w *Writer) error { return w.Payload([]byte("x")) },
		"boundary before Begin":     func(w *Writer) error { return w.Boundary(1) },
		"row before Begin":          func(w *Writer) error { return w.Row(row("k", "v", 1)) },
		"stream zero":               func(w *Writer) error { return w.Begin(0, 0, 0) },
		"the same stream":           func(w *Writer) error { w.Begin(2, 0, 0); return w.Begin(2, 0, 0) },
		"a lower stream":            func(w *Writer) error { w.Begin(2, 0, 0); return w.Begin(1, 0, 0) },
		"bytes of no message":       func(w *Writer) error { w.Begin(2, 0, 0); w.Payload([]byte("x")); return w.Begin(3, 0, 0) },
		"a message of no bytes":     func(w *Writer) error { w.Begin(2, 5, 0); w.Payload([]byte("x")); return w.Boundary(5) },
		"a boundary before the run": func(w *Writer) error { w.Begin(2, 5, 0); return w.Boundary(4) },
		"boundaries that descend":   func(w *Writer) error { w.Begin(2, 0, 0); w.Boundary(5); return w.Boundary(4) },
		"boundaries that repeat":    func(w *Writer) error { w.Begin(2, 0, 0); w.Boundary(5); return w.Boundary(5) },
		"a boundary behind the run": func(w *Writer) error {
			w.Begin(2, 0, 0)
			w.Payload([]byte("x"))
			w.Boundary(2)
			return w.Begin(3, 0, 0)
		},
		"offsets that overflow": func(w *Writer) error { w.Begin(2, math.MaxUint64, 0); w.Payload([]byte("x")); return w.Boundary(0) },
		"ordinals that overflow": func(w *Writer) error {
			w.Begin(2, 0, math.MaxUint64)
			w.Payload([]byte("x"))
			w.Boundary(1)
			return w.Begin(3, 0, 0)
		},
		"keys that repeat":  func(w *Writer) error { w.Begin(2, 0, 0); w.Row(row("", "", 1)); return w.Row(row("", "", 2)) },
		"keys that descend": func(w *Writer) error { w.Begin(2, 0, 0); w.Row(row("b", "", 1)); return w.Row(row("a", "", 2)) },
		"a long key":        func(w *Writer) error { w.Begin(2, 0, 0); return w.Row(row(strings.Repeat("k", MaxKeyBytes+1), "", 1)) },
		"a long value": func(w *Writer) error {
			w.Begin(2, 0, 0)
			return w.Row(row("k", strings.Repeat("v", MaxValueBytes+1), 1))
		},
		"an unfinished last message": func(w *Writer) error { w.Begin(2, 0, 0); w.Payload([]byte("x")); _, err := w.Finish(); return err },
		"finishing twice": func(w *Writer) error {
			if _, err := w.Finish(); err != nil {
				return err
			}
			_, err := w.Finish()
			return err
		},
		"going on after Abort": func(w *Writer) error { w.Abort(); return w.Begin(1, 0, 0) },
	} {
		w, err := Create(vfstest.New(), "s.seg", testID, 0, testKind)
		must(t, err)
		first := mistake(w)
		if !errors.Is(first, ErrOrder) {
			t.Errorf("%s: %v", name, first)
		}
		for _, again := range []error{w.Begin(99, 0, 0), w.Payload(nil), w.Boundary(1 << 40), w.Row(row("z", "", 1))} {
			if again != first {
				t.Errorf("%s: then %v, after %v", name, again, first)
			}
		}
		w.Abort()
	}
}

// The contents are synced once, when all of them are written; the header comes last.
func TestWriteTrace(t *testing.T) {
	mem := vfstest.New()
	mem.StartTrace()
	w, err := Create(mem, "s.seg", testID, 1<<21, testKind)
	must(t, err)
	must(t, fill(w, []content{of(1, 0, 0, 1<<20, 100).with(row("k", "v", 1))}, nil))
	_, err = w.Finish()
	must(t, err)
	want := []string{
		"create s.seg",
		"allocate s.seg 2097152",
		"write s.seg 4096+524288", // payload
		"write s.seg 528384+524288",
		"write s.seg 1052672+103", // its end, and the length of one message
		"write s.seg 1052775+6",   // rows
		"write s.seg 1052781+144", // checksum table
		"write s.seg 1052925+9",   // footer
		"write s.seg 1052934+96",  // trailer
		"write s.seg 0+4096",      // header
		"truncate s.seg 1053030",
		"datasync s.seg",
	}
	if got := mem.Trace(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever operation fails, Finish fails with that error, and Abort leaves nothing.
func TestEveryFailedOperation(t *testing.T) {
	contents := []content{of(1, 0, 0, 3<<20).with(row("k", "v", 1)), of(2, 0, 0, 5)}
	for fail := 0; ; fail++ {
		mem := vfstest.New()
		n, failed := 0, vfstest.Kind(0)
		mem.SetHook(func(op vfstest.Op) error {
			if n++; n-1 == fail {
				failed = op.Kind
				return errDisk
			}
			return nil
		})
		w, err := Create(mem, "s.seg", testID, 1<<20, testKind)
		if err == nil {
			if err = fill(w, contents, nil); err == nil {
				_, err = w.Finish()
			}
			if _, again := w.Finish(); err != nil && again != err {
				t.Fatalf("operation %d, %s: Finish says %v, after %v", fail, failed, again, err)
			}
			mem.SetHook(nil)
			if failed == 0 {
				must(t, err)
				must(t, read(inMemory(fileBytes(t, mem, "s.seg")), contents))
				return
			}
			w.Abort()
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("operation %d, %s: %v", fail, failed, err)
		}
		if _, err := mem.Stat("s.seg"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("operation %d, %s: the file is there: %v", fail, failed, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	mem := vfstest.New()
	mem.SetFree(1 << 20)
	if _, err := Create(mem, "hint.seg", testID, 2<<20, testKind); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("a hint beyond the disk: %v", err)
	}
	w, err := Create(mem, "grow.seg", testID, 512<<10, testKind)
	must(t, err)
	if err := fill(w, []content{of(1, 0, 0, 3<<20)}, nil); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("a segment that outgrows the disk: %v", err)
	}
	w.Abort()
	if names, err := mem.List("."); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
	if free, err := mem.Free("."); err != nil || free != 1<<20 {
		t.Errorf("%d bytes free, %v", free, err)
	}
}

// A paced writer leaves little to the sync at the end; a small segment has only that one.
func TestPace(t *testing.T) {
	for _, c := range []struct{ size, syncs int }{{0, 1}, {writeBytes, 1}, {2 * writeBytes, 2}, {10*writeBytes + 1, 10}} {
		fs := vfstest.New()
		w, err := Create(fs, "paced", 1, int64(c.size), 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Pace(nil)
		fs.StartTrace(vfstest.Write, vfstest.Datasync)
		if err := w.Begin(1, 0, 0); err != nil {
			t.Fatal(err)
		}
		for rest := c.size; rest > 0; {
			n := min(rest, 300_000)
			if err := w.Payload(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			rest -= n
		}
		if c.size > 0 {
			if err := w.Boundary(base.Offset(c.size)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		syncs, large := 0, 0
		for _, line := range fs.Trace() {
			switch {
			case strings.HasPrefix(line, "datasync"):
				syncs, large = syncs+1, 0
			case strings.HasSuffix(line, fmt.Sprint("+", writeBytes)):
				if large++; large > 1 {
					t.Errorf("%d bytes: two large writes without a sync: %s", c.size, line)
				}
			}
		}
		if syncs != c.syncs {
			t.Errorf("%d bytes: %d syncs instead of %d", c.size, syncs, c.syncs)
		}
	}
}

// While others sync, a paced writer does not keep the disk from them for long; once they
// do not, it goes on in large portions.
func TestPaceBesideOthers(t *testing.T) {
	fs := vfstest.New()
	w, err := Create(fs, "paced", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	w.Pace(func() bool { asked++; return asked == 1 })
	fs.StartTrace(vfstest.Write, vfstest.Datasync)
	const size = politeFor*BlockBytes + 4*writeBytes
	err = errors.Join(w.Begin(1, 0, 0), w.Payload(make([]byte, size)), w.Boundary(size))
	if _, ferr := w.Finish(); err != nil || ferr != nil {
		t.Fatal(err, ferr)
	}
	var syncs []int // how many bytes each covers
	dirty := 0
	for _, line := range fs.Trace() {
		if strings.HasPrefix(line, "datasync") {
			syncs = append(syncs, dirty)
			dirty = 0
			continue
		}
		n, err := strconv.Atoi(line[strings.LastIndex(line, "+")+1:])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		dirty += n
	}
	small := 0
	for i, n := range syncs[:len(syncs)-1] {
		if n > writeBytes+politeBytes {
			t.Errorf("sync %d covers %d bytes", i, n)
		}
		if n == politeBytes {
			small++
		}
	}
	if most := politeFor * BlockBytes / politeBytes; small < most-8 || len(syncs) > most+6 {
		t.Errorf("%d of the syncs are of a small portion: %d", small, syncs)
	}
	f, err := fs.Open("paced")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	src, err := FileSource(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(src, "paced", 1)
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := s.Find(1); !ok || st.Extent.End != size {
		t.Errorf("the segment holds %+v", st)
	}
	if err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}
