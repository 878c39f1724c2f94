package vfstest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

var errDisk = syscall.EIO

func TestTrace(t *testing.T) {
	m := vfstest.New()
	m.StartTrace()
	must(t, m.MkdirAll("shard-00/wal"))
	f, err := m.Create("shard-00/wal/spare")
	must(t, err)
	must(t, f.Allocate(16*block))
	write(t, f, 1, "ab")
	must(t, f.Datasync())
	must(t, f.Truncate(3*block))
	must(t, f.Close())
	must(t, m.Rename("shard-00/wal/spare", "shard-00/wal/0000000001.wal"))
	must(t, m.SyncDir("shard-00/wal"))
	_ = read(t, m, "shard-00/wal/0000000001.wal") // reads are left out
	must(t, m.Remove("shard-00/wal/0000000001.wal"))
	if err := m.Remove("shard-00/wal/0000000001.wal"); err == nil {
		t.Error("removed twice")
	}
	_, err = m.Lock("lock")
	must(t, err)
	want := `mkdir shard-00
syncdir .
mkdir shard-00/wal
syncdir shard-00
create shard-00/wal/spare
allocate shard-00/wal/spare 65536
write shard-00/wal/spare 4096+8192
datasync shard-00/wal/spare
truncate shard-00/wal/spare 12288
rename shard-00/wal/spare shard-00/wal/0000000001.wal
syncdir shard-00/wal
remove shard-00/wal/0000000001.wal
remove shard-00/wal/0000000001.wal: file does not exist
lock lock`
	if got := strings.Join(m.Trace(), "\n"); got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
}

func TestTraceOfChosenKinds(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "a", "xy")
	m.StartTrace(vfstest.Open, vfstest.Read, vfstest.List, vfstest.Stat)
	_ = read(t, m, "a")
	_, err := m.List("/")
	must(t, err)
	_, err = m.Stat("/a")
	must(t, err)
	want := []string{"open a", "read a 0+8192", "list /", "stat /a"}
	if got := m.Trace(); !slices.Equal(got, want) {
		t.Errorf("trace %q, want %q", got, want)
	}
}

// TestFaults fails each kind of operation once: nothing of it is done, and the
// error says which it was.
func TestFaults(t *testing.T) {
	m := vfstest.New()
	must(t, m.MkdirAll("d"))
	f := newFile(t, m, "d/a", "xyz")
	calls := map[vfstest.Kind]func() error{
		vfstest.Create:   func() error { _, err := m.Create("d/b"); return err },
		vfstest.Mkdir:    func() error { return m.MkdirAll("d/e") },
		vfstest.Open:     func() error { _, err := m.OpenDirect("d/a"); return err },
		vfstest.Read:     func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		vfstest.Write:    func() error { _, err := f.WriteAt([]byte("A"), 0); return err },
		vfstest.Allocate: func() error { return f.Allocate(10 * block) },
		vfstest.Truncate: func() error { return f.Truncate(0) },
		vfstest.Datasync: f.Datasync,
		vfstest.SyncDir:  func() error { return m.SyncDir("d") },
		vfstest.Rename:   func() error { return m.Rename("d/a", "d/b") },
		vfstest.Remove:   func() error { return m.Remove("d/a") },
		vfstest.List:     func() error { _, err := m.List("d"); return err },
		vfstest.Stat:     func() error { _, err := m.Stat("d/a"); return err },
		vfstest.Lock:     func() error { _, err := m.Lock("d/lock"); return err },
	}
	for kind, call := range calls {
		m.SetHook(func(op vfstest.Op) error {
			if op.Kind == kind {
				return errDisk
			}
			return nil
		})
		err := call()
		if !errors.Is(err, errDisk) || !strings.HasPrefix(fmt.Sprint(err), kind.String()+" d") {
			t.Errorf("%v: error %v", kind, err)
		}
	}
	m.SetHook(nil)
	if got := state(t, m); got != "d/ d/a=xyz" {
		t.Errorf("the failed operations left %q", got)
	}
	if got := vfstest.Kind(99).String(); got != "kind(99)" {
		t.Errorf("an unknown kind is called %q", got)
	}
}

// TestSlowDisk: an operation that hangs holds up no other.
func TestSlowDisk(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	hangs, release := make(chan struct{}), make(chan struct{})
	m.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Datasync {
			close(hangs)
			<-release
		}
		return nil
	})
	var wg sync.WaitGroup
	write(t, f, 0, "A")
	wg.Go(func() {
		if err := f.Datasync(); err != nil {
			t.Error(err)
		}
	})
	<-hangs
	write(t, f, 1, "B")
	if got := state(t, m); got != "a=AB" {
		t.Errorf("holds %q", got)
	}
	if got := state(t, m.CrashClone(nil)); got != "a=x" {
		t.Errorf("durable during the sync: %q", got)
	}
	close(release)
	wg.Wait()
}

func TestCrashInTheHook(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "x")
	var left []string
	m.SetHook(func(op vfstest.Op) error {
		left = append(left, op.String()+" "+state(t, m.CrashClone(nil)))
		return nil
	})
	write(t, f, 0, "A")
	must(t, f.Datasync())
	must(t, m.Remove("a"))
	m.SetHook(nil)
	want := []string{"write a 0+4096 a=x", "datasync a a=x", "remove a a=A"}
	if !slices.Equal(left, want) {
		t.Errorf("got %q, want %q", left, want)
	}
}

func free(t *testing.T, m *vfstest.MemFS) uint64 {
	t.Helper()
	n, err := m.Free("/")
	must(t, err)
	return n / block
}

func TestFreeSpace(t *testing.T) {
	m := vfstest.New()
	old := newFile(t, m, "old", "xyz")
	m.SetFree(10 * block)
	f, err := m.Create("a")
	must(t, err)
	must(t, f.Allocate(6*block))
	if err := f.Allocate(11 * block); !errors.Is(err, vfs.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("allocated too much: %v", err)
	}
	write(t, f, 0, "ABCDEF") // allocated already
	if got := free(t, m); got != 4 {
		t.Errorf("%d blocks free, want 4", got)
	}
	n, err := f.WriteAt(blocks("123456789"), 4*block)
	if n != 6*block || !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("wrote %d blocks, %v; want 6 and ErrNoSpace", n/block, err)
	}
	write(t, f, 4, "YY") // over what is there
	if got := state(t, m); got != "a=ABCDYY3456 old=xyz" {
		t.Errorf("holds %q", got)
	}
	must(t, f.Datasync())
	must(t, m.SyncDir("."))
	if got := free(t, m.CrashClone(rng(1))); got != 0 {
		t.Errorf("%d blocks free after a crash, want 0", got)
	}
	must(t, f.Truncate(5*block))
	if got := free(t, m); got != 5 {
		t.Errorf("%d blocks free after truncating, want 5", got)
	}
	must(t, m.Remove("old"))
	if got := free(t, m); got != 5 {
		t.Errorf("%d blocks free while the removed file is open, want 5", got)
	}
	must(t, old.Close())
	must(t, f.Close())
	b, err := m.Create("b")
	must(t, err)
	must(t, b.Close())
	must(t, m.Rename("b", "a"))
	if got := free(t, m); got != 13 {
		t.Errorf("%d blocks free after removing and replacing, want 13", got)
	}
	m.SetFree(0)
	b, err = m.OpenAppend("a")
	must(t, err)
	if _, err := b.WriteAt([]byte("x"), 0); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("wrote on a full disk: %v", err)
	}
	m.SetFree(-1)
	if _, err := b.WriteAt([]byte("x"), 0); err != nil || free(t, m) == 0 {
		t.Errorf("writing with unlimited space: %v", err)
	}
}

func TestDirectWantsAlignment(t *testing.T) {
	m := vfstest.New()
	newFile(t, m, "a", "xyz")
	f, err := m.OpenDirect("a")
	must(t, err)
	b := vfs.Aligned(2 * block)
	for name, err := range map[string]error{
		"offset":   second(f.WriteAt(b, 512)),
		"length":   second(f.WriteAt(b[:100], 0)),
		"address":  second(f.WriteAt(b[8:block+8], 0)),
		"read":     second(f.ReadAt(b[:100], 0)),
		"negative": second(f.ReadAt(b, -block)),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	if err := second(f.WriteAt(b, block)); err != nil {
		t.Error(err)
	}
	must(t, f.Truncate(block+100)) // sizes are free
}

func second(_ int, err error) error { return err }

func TestCorrupt(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", "xyz")
	write(t, f, 2, "ZW")
	must(t, m.Corrupt("a", block+1, func(b []byte) {
		if len(b) != 3*block-1 {
			t.Errorf("got %d bytes to edit", len(b))
		}
		b[0] = '!'
	}))
	for seed := range uint64(50) {
		b := read(t, m.CrashClone(rng(seed)), "a")
		if string(b[block:block+3]) != "y!y" {
			t.Fatalf("seed %d: %q", seed, b[block:block+3])
		}
	}
	b := read(t, m.CrashClone(nil), "a")
	if b[block+1] = 'y'; summary(b) != "xyz" {
		t.Errorf("more than one byte has changed: %s", summary(b))
	}
	if err := m.Corrupt("none", 0, func([]byte) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("corrupted nothing: %v", err)
	}
	if err := m.Corrupt("a", 9*block, func([]byte) {}); err == nil {
		t.Error("corrupted behind the end")
	}
}

// TestCrashCloneIsCheap: the price is that of what changed, not of what there is.
func TestCrashCloneIsCheap(t *testing.T) {
	const mib = 1 << 20
	m := vfstest.New()
	files := make([]vfs.File, 8)
	for i := range files {
		files[i] = newFile(t, m, fmt.Sprint("f", i), strings.Repeat("x", 4*mib/block))
	}
	write(t, files[0], 3, "ABC")
	const clones = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for seed := range uint64(clones) {
		c := m.CrashClone(rng(seed))
		f, err := c.OpenAppend("f1")
		must(t, err)
		write(t, f, 100, "Y")
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / clones; each > 64<<10 {
		t.Errorf("a crash clone of 32 MiB takes %d bytes", each)
	}
}

func TestConcurrentUse(t *testing.T) {
	m := vfstest.New()
	f := newFile(t, m, "a", strings.Repeat("x", 16))
	var wg sync.WaitGroup
	for i := range int64(4) {
		wg.Go(func() {
			for j := range int64(50) {
				_, err := f.WriteAt(blocks("Y"), (4*i+j%4)*block)
				if j%10 == 0 {
					err = errors.Join(err, f.Datasync())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for j := range int64(50) {
				g, err := m.CrashClone(rng(uint64(j))).OpenAppend("a")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = g.WriteAt(blocks("Z"), j%16*block)
				if err := errors.Join(err, g.Datasync(), second(g.ReadAt(make([]byte, block), 0)), g.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, want := state(t, m), "a="+strings.Repeat("Y", 16); got != want {
		t.Errorf("holds %q, want %q", got, want)
	}
}

func BenchmarkCrashClone(b *testing.B) {
	m := vfstest.New()
	for i := range 20 {
		newFile(b, m, fmt.Sprint("f", i), strings.Repeat("x", 1000))
	}
	f, err := m.OpenAppend("f0")
	must(b, err)
	write(b, f, 0, "0123456789")
	r := rng(1)
	b.ReportAllocs()
	for b.Loop() {
		m.CrashClone(r)
	}
}
