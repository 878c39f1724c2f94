package vfstest_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func TestSyncedFileStays(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "a", "xyz")
	expect(t, outcomes(t, m), "a=xyz")
}

func TestAnySubsetOfBlocks(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xyzw")
	write(t, f, 0, "ABC")
	expect(t, outcomes(t, m), "a=xyzw", "a=Ayzw", "a=xBzw", "a=xyCw", "a=ABzw", "a=AyCw", "a=xBCw", "a=ABCw")
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "a=ABCw")
}

func TestAnyBlockBehindTheOldEnd(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	write(t, f, 1, "AB")
	found := outcomes(t, m)
	for _, want := range []string{"a=x", "a=x..", "a=xA.", "a=x.B", "a=xAB"} {
		if found[want] == 0 {
			t.Errorf("no power cut left %q", want)
		}
	}
	partly := 0
	for seed := range uint64(1000) {
		b := read(t, m.CrashClone(rng(seed)), "a")
		if len(b) < block || len(b) > 3*block {
			t.Fatalf("seed %d: size %d", seed, len(b))
		}
		if len(b)%block != 0 {
			partly++
		}
	}
	if partly == 0 {
		t.Error("no power cut left a size in the middle of a block")
	}
}

func TestAllocatedSizeNeedsSync(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	must(t, f.Allocate(2*block))
	found := outcomes(t, m)
	if found["a=x"] == 0 || found["a=x."] == 0 {
		t.Errorf("the old and the new size are not both among %v", found)
	}
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "a=x.")
}

func TestTruncation(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xyz")
	must(t, f.Truncate(block))
	expect(t, outcomes(t, m), "a=xyz", "a=x")

	// What was cut off never comes back behind a truncation that was kept.
	write(t, f, 2, "C")
	found := outcomes(t, m)
	for _, want := range []string{"a=xyz", "a=x", "a=x..", "a=x.C"} {
		if found[want] == 0 {
			t.Errorf("no power cut left %q", want)
		}
	}
	for _, wrong := range []string{"a=xy.", "a=x.z", "a=xyC"} {
		if found[wrong] > 0 {
			t.Errorf("%d power cuts left %q", found[wrong], wrong)
		}
	}
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "a=x.C")
}

func TestBytesBehindASizeAreZero(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	write(t, f, 1, "A")
	for seed := range uint64(300) {
		c := m.CrashClone(rng(seed))
		size := len(read(t, c, "a"))
		g, err := c.OpenAppend("a")
		must(t, err)
		must(t, g.Truncate(3*block))
		if tail := read(t, c, "a")[size:]; !bytes.Equal(tail, make([]byte, len(tail))) {
			t.Fatalf("seed %d: growing the file from %d brought back what was there", seed, size)
		}
	}
}

func TestSyncOfAFileIsNotOfItsEntry(t *testing.T) {
	m := vfstest.New()
	f, err := m.Create("a")
	must(t, err)
	write(t, f, 0, "x")
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "", "a=x")
	must(t, m.SyncDir("."))
	expect(t, outcomes(t, m), "a=x")
}

func TestSyncOfAnEntryIsNotOfItsFile(t *testing.T) {
	m := vfstest.New()
	f, err := m.Create("a")
	must(t, err)
	write(t, f, 0, "x")
	must(t, m.SyncDir("."))
	found := outcomes(t, m)
	if found["a="] == 0 || found["a=."] == 0 || found["a=x"] == 0 || found[""] > 0 {
		t.Errorf("outcomes %v", found)
	}
}

func TestEntriesOfALostDirectory(t *testing.T) {
	m := vfstest.New()
	m.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.SyncDir && op.Path == "." {
			return errDisk
		}
		return nil
	})
	if err := m.MkdirAll("d"); err == nil {
		t.Fatal("the sync did not fail")
	}
	newFile(t, m, "d/a", "x")
	expect(t, outcomes(t, m), "", "d/ d/a=x")
	m.SetHook(nil)
	must(t, m.SyncDir(".")) // after a failed one it is worth nothing
	expect(t, outcomes(t, m), "", "d/ d/a=x")
}

func TestMkdirAllIsDurable(t *testing.T) {
	m := vfstest.New()
	must(t, m.MkdirAll("d/e"))
	expect(t, outcomes(t, m), "d/ d/e/")
}

func TestRemovalIsDoneOrUndone(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	must(t, f.Close())
	must(t, m.Remove("a"))
	expect(t, outcomes(t, m), "", "a=x")
	must(t, m.SyncDir("."))
	expect(t, outcomes(t, m), "")
}

func TestRenameIsAtomic(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "CURRENT", "x")
	newFile(t, m, "tmp", "y")
	must(t, m.Rename("tmp", "CURRENT"))
	expect(t, outcomes(t, m), "CURRENT=x tmp=y", "CURRENT=y")
	must(t, m.SyncDir("."))
	expect(t, outcomes(t, m), "CURRENT=y")
}

func TestRenamesOfOneFile(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "a", "x")
	must(t, m.Rename("a", "b"))
	must(t, m.Rename("b", "c"))
	expect(t, outcomes(t, m), "a=x", "b=x", "c=x")
}

func TestReplacedTwice(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "CURRENT", "x")
	newFile(t, m, "1", "y")
	newFile(t, m, "2", "z")
	must(t, m.Rename("1", "CURRENT"))
	must(t, m.Rename("2", "CURRENT"))
	expect(t, outcomes(t, m), "1=y 2=z CURRENT=x", "2=z CURRENT=y", "1=y CURRENT=z", "CURRENT=z")
}

func TestRemoveAndCreateAgain(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "a", "x")
	must(t, m.Remove("a"))
	f, err := m.Create("a")
	must(t, err)
	write(t, f, 0, "y")
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "", "a=x", "a=y")
}

func TestRenameBetweenDirectories(t *testing.T) {
	m := vfstest.New()
	must(t, m.MkdirAll("d"))
	must(t, m.MkdirAll("e"))
	newFile(t, m, "d/a", "x")
	must(t, m.Rename("d/a", "e/a"))
	must(t, m.SyncDir("e"))
	expect(t, outcomes(t, m), "d/ d/a=x e/", "d/ e/ e/a=x")

	// A later change that is durable must not be undone by the open one.
	newFile(t, m, "e/b", "y")
	must(t, m.Rename("e/b", "e/a"))
	must(t, m.SyncDir("e"))
	expect(t, outcomes(t, m), "d/ d/a=x e/ e/a=y", "d/ e/ e/a=y")
	must(t, m.SyncDir("d"))
	expect(t, outcomes(t, m), "d/ e/ e/a=y")
}

func TestRenamedDirectory(t *testing.T) {
	m := vfstest.New()
	must(t, m.MkdirAll("d"))
	newFile(t, m, "d/a", "x")
	must(t, m.Rename("d", "e"))
	expect(t, outcomes(t, m), "d/ d/a=x", "e/ e/a=x")
}

func TestWithoutDiceOnlyWhatIsSureStays(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xy")
	newFile(t, m, "b", "z")
	write(t, f, 0, "AAA")
	must(t, m.Rename("b", "c"))
	_, err := m.Create("d")
	must(t, err)
	if got, want := state(t, m.CrashClone(nil)), "a=xy b=z"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestSameSeedSameCrash(t *testing.T) {
	build := func() *vfstest.MemFS {
		m := vfstest.New()
		for _, name := range []string{"a", "b", "c", "d"} {
			f := newFile(t, m, name, "pqrstuvw")
			write(t, f, 2, "ABCDEFGHIJKL")
		}
		must(t, m.Rename("a", "e"))
		must(t, m.Remove("b"))
		return m
	}
	one, two := build(), build()
	different := map[string]bool{}
	for seed := range uint64(200) {
		first := state(t, one.CrashClone(rng(seed)))
		different[first] = true
		for _, m := range []*vfstest.MemFS{one, two} {
			if again := state(t, m.CrashClone(rng(seed))); again != first {
				t.Fatalf("seed %d left %q and then %q", seed, first, again)
			}
		}
	}
	if len(different) < 100 {
		t.Errorf("200 seeds left only %d different states", len(different))
	}
}

func TestCrashLeavesTheOriginal(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xyz")
	write(t, f, 1, "BC")
	before := state(t, m)
	clones := make([]*vfstest.MemFS, 50)
	states := make([]string, len(clones))
	for i := range clones {
		clones[i] = m.CrashClone(rng(uint64(i)))
		states[i] = state(t, clones[i])
	}
	write(t, f, 0, "0123")
	for i, c := range clones {
		if got := state(t, c); got != states[i] {
			t.Fatalf("writing the original changed clone %d from %q to %q", i, states[i], got)
		}
		g, err := c.OpenAppend("a")
		must(t, err)
		write(t, g, 0, "----")
		must(t, g.Datasync())
	}
	if got := state(t, m); before != "a=xBC" || got != "a=0123" {
		t.Errorf("the original went from %q to %q", before, got)
	}
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "a=0123")
}

func TestFailedSyncIsNotMadeGoodByAnother(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xyz")
	write(t, f, 0, "A\x00")
	m.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Datasync {
			return errDisk
		}
		return nil
	})
	if err := f.Datasync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	m.SetHook(nil)
	if got := state(t, m); got != "a=A.z" {
		t.Errorf("a reader sees %q", got)
	}
	write(t, f, 2, "C")
	must(t, f.Datasync()) // the second one makes durable only what came between
	expect(t, outcomes(t, m), "a=xyC", "a=AyC", "a=x.C", "a=A.C")
	write(t, f, 0, "A\x00") // the same bytes again, zeros too
	must(t, f.Datasync())
	expect(t, outcomes(t, m), "a=A.C")
}

// TestKilledProcess: what a killed process wrote is there for the next one, and as
// little durable as before.
func TestKilledProcess(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	_, err := m.Lock("lock")
	must(t, err)
	must(t, m.SyncDir("."))
	write(t, f, 0, "A")
	must(t, m.Rename("a", "b"))
	k := m.Clone()
	if got := state(t, k); got != "b=A lock=" {
		t.Errorf("the next process finds %q", got)
	}
	expect(t, outcomes(t, k), "a=x lock=", "a=A lock=", "b=x lock=", "b=A lock=")
	if _, err := k.Lock("lock"); err != nil {
		t.Errorf("the lock outlived its process: %v", err)
	}
	must(t, k.SyncDir("."))
	g, err := k.OpenAppend("b")
	must(t, err)
	write(t, g, 0, "B")
	must(t, g.Datasync())
	expect(t, outcomes(t, k), "b=B lock=")
	expect(t, outcomes(t, m), "a=x lock=", "a=A lock=", "b=x lock=", "b=A lock=")
}

// TestRandomHistories compares crashes with a naive model of one file: a byte is
// what it was at the last sync, what it is now, or zero behind the smallest size
// since.
func TestRandomHistories(t *testing.T) {
	start := rand.Uint64()
	t.Logf("seed %d", start)
	for run := range uint64(100) {
		r := rng(start + run)
		m := vfstest.New()
		f := newFile(t, m, "a", "")
		var now, durable []byte
		smallest := 0
		for range 30 {
			switch r.IntN(8) {
			case 0:
				must(t, f.Datasync())
				durable, smallest = bytes.Clone(now), len(now)
			case 1:
				size := r.IntN(8 * block)
				must(t, f.Truncate(int64(size)))
				now = append(now, make([]byte, max(size-len(now), 0))...)[:size]
				smallest = min(smallest, size)
			default:
				off, n := r.IntN(6*block), r.IntN(2*block)
				p := bytes.Repeat([]byte{byte(1 + r.IntN(255))}, n)
				_, err := f.WriteAt(p, int64(off))
				must(t, err)
				if n > 0 {
					now = append(now, make([]byte, max(off+n-len(now), 0))...)
					copy(now[off:], p)
				}
			}
			if got := read(t, m, "a"); !bytes.Equal(got, now) {
				t.Fatalf("seed %d: a reader sees something else", start+run)
			}
			seed := r.Uint64()
			checkCrash(t, read(t, m.CrashClone(rng(seed)), "a"), durable, now, smallest)
			if got := read(t, m.CrashClone(nil), "a"); !bytes.Equal(got, durable) {
				t.Fatalf("seed %d: without dice something else than the synced bytes is left", start+run)
			}
			if t.Failed() {
				t.Fatalf("seed %d, crash %d", start+run, seed)
			}
		}
	}
}

func checkCrash(t *testing.T, left, durable, now []byte, smallest int) {
	t.Helper()
	if len(left) < min(len(durable), smallest) || len(left) > max(len(durable), len(now)) {
		t.Errorf("%d bytes left of %d durable and %d written ones", len(left), len(durable), len(now))
	}
	for i, b := range left {
		switch {
		case i < len(durable) && b == durable[i]:
		case i < len(now) && b == now[i]:
		case b == 0 && i >= smallest:
		default:
			t.Errorf("byte %d is %d, which nobody wrote", i, b)
			return
		}
	}
}
