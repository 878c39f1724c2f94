package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// everywhere runs a test on the real file system and on the one in memory, each
// with an empty directory: what the interface promises, both keep.
func everywhere(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("OS", func(t *testing.T) { test(t, vfs.OS, t.TempDir()) })
	t.Run("MemFS", func(t *testing.T) {
		m := vfstest.New()
		must(t, m.MkdirAll("data"))
		test(t, m, "data")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a file with the given bytes and closes it.
func create(t *testing.T, fsys vfs.FS, name, text string) {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	must(t, err)
	must(t, f.Close())
}

// contents reads a whole file.
func contents(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	must(t, f.Close())
	return string(b)
}

func TestFiles(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		f, err := fsys.Create(name)
		must(t, err)
		if n, err := f.WriteAt([]byte("hello"), 10_000); n != 5 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		b := make([]byte, 10)
		if n, err := f.ReadAt(b, 9_998); n != 7 || err != io.EOF || string(b[:7]) != "\x00\x00hello" {
			t.Errorf("read %d bytes %q, %v", n, b[:n], err)
		}
		if n, err := f.ReadAt(b, 20_000); n != 0 || err != io.EOF {
			t.Errorf("read %d bytes behind the end, %v", n, err)
		}
		must(t, f.Datasync())
		must(t, f.Truncate(10_002))
		must(t, f.Truncate(10_004))
		if n, _ := f.ReadAt(b, 10_000); string(b[:n]) != "he\x00\x00" {
			t.Errorf("after cutting and growing: %q", b[:n])
		}
		must(t, f.Allocate(20_000))
		must(t, f.Allocate(5_000))
		must(t, f.Allocate(0))
		if size, err := f.Size(); size != 20_000 || err != nil {
			t.Errorf("size %d, %v", size, err)
		}
		if _, isFile := f.Fd(); isFile != (fsys == vfs.OS) {
			t.Errorf("Fd said %v", isFile)
		}
		must(t, f.Close())
		if err := f.Datasync(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("Datasync of a closed file: %v", err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		if size, err := fsys.Stat(name); size != 20_000 || err != nil {
			t.Errorf("Stat: %d, %v", size, err)
		}
	})
}

func TestOpening(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		for _, open := range []func(string) (vfs.File, error){fsys.Open, fsys.OpenAppend, fsys.OpenDirect} {
			if _, err := open(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("opened what does not exist: %v", err)
			}
		}
		create(t, fsys, name, "x")
		if _, err := fsys.Create(name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("created twice: %v", err)
		}
		if _, err := fsys.Create(filepath.Join(dir, "none", "b")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("created without a directory: %v", err)
		}
		f, err := fsys.Open(name)
		must(t, err)
		if _, err := f.WriteAt([]byte("y"), 0); err == nil {
			t.Error("wrote a file open for reading")
		}
		must(t, f.Close())
		f, err = fsys.OpenAppend(name)
		must(t, err)
		_, err = f.WriteAt([]byte("y"), 1)
		must(t, err)
		must(t, f.Close())
		if got := contents(t, fsys, name); got != "xy" {
			t.Errorf("holds %q", got)
		}
	})
}

func TestDirect(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		f, err := fsys.Create(name)
		must(t, err)
		must(t, f.Allocate(4*vfs.BlockSize))
		must(t, f.Close())
		f, err = fsys.OpenDirect(name)
		must(t, err)
		defer f.Close()
		b := vfs.Aligned(2 * vfs.BlockSize)
		for i := range b {
			b[i] = byte(i)
		}
		_, err = f.WriteAt(b, vfs.BlockSize)
		must(t, err)
		must(t, f.Datasync())
		got := vfs.Aligned(4 * vfs.BlockSize)
		_, err = f.ReadAt(got, 0)
		must(t, err)
		if !bytes.Equal(got[vfs.BlockSize:3*vfs.BlockSize], b) || !bytes.Equal(got[:vfs.BlockSize], make([]byte, vfs.BlockSize)) {
			t.Error("read something else than was written")
		}
		if n, err := f.ReadAt(got, 3*vfs.BlockSize); n != vfs.BlockSize || err != io.EOF {
			t.Errorf("read %d bytes across the end, %v", n, err)
		}
	})
}

func TestAligned(t *testing.T) {
	for _, n := range []int{0, 1, vfs.BlockSize, vfs.BlockSize + 1, 1 << 20} {
		b := vfs.Aligned(n)
		if len(b) < n || len(b) >= n+vfs.BlockSize || len(b)%vfs.BlockSize != 0 || cap(b) != len(b) {
			t.Errorf("Aligned(%d): length %d, capacity %d", n, len(b), cap(b))
		}
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); at%vfs.BlockSize != 0 {
			t.Errorf("Aligned(%d) is at %#x", n, at)
		}
	}
}

func TestDirectories(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		deep := filepath.Join(dir, "x", "y", "z")
		must(t, fsys.MkdirAll(deep))
		must(t, fsys.MkdirAll(deep))
		create(t, fsys, filepath.Join(dir, "x", "b"), "")
		create(t, fsys, filepath.Join(dir, "x", "a"), "")
		names, err := fsys.List(filepath.Join(dir, "x"))
		if want := []string{"a", "b", "y"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("List: %v, %v, want %v", names, err, want)
		}
		must(t, fsys.SyncDir(deep))
		if err := fsys.Remove(filepath.Join(dir, "x")); err == nil {
			t.Error("removed a directory that is not empty")
		}
		must(t, fsys.Remove(deep))
		if _, err := fsys.List(deep); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("listed a removed directory: %v", err)
		}
		if err := fsys.SyncDir(deep); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("synced a removed directory: %v", err)
		}
		if err := fsys.MkdirAll(filepath.Join(dir, "x", "a")); err == nil {
			t.Error("made a directory over a file")
		}
		if _, err := fsys.Stat(deep); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Stat of nothing: %v", err)
		}
		if free, err := fsys.Free(dir); free == 0 || err != nil {
			t.Errorf("Free: %d, %v", free, err)
		}
	})
}

func TestRenameAndRemove(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		create(t, fsys, a, "new")
		create(t, fsys, b, "old")
		old, err := fsys.Open(b)
		must(t, err)
		defer old.Close()
		must(t, fsys.Rename(a, b))
		if got := contents(t, fsys, b); got != "new" {
			t.Errorf("holds %q after the rename", got)
		}
		p := make([]byte, 3)
		if _, err := old.ReadAt(p, 0); err != nil || string(p) != "old" {
			t.Errorf("the replaced file, still open, gives %q, %v", p, err)
		}
		if err := fsys.Rename(a, b); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("renamed nothing: %v", err)
		}
		must(t, fsys.Rename(b, b))
		if err := fsys.Rename(b, filepath.Join(dir, "none", "b")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("renamed into nowhere: %v", err)
		}
		must(t, fsys.MkdirAll(filepath.Join(dir, "d")))
		if err := fsys.Rename(b, filepath.Join(dir, "d")); err == nil {
			t.Error("renamed a file over a directory")
		}
		if err := fsys.Rename(filepath.Join(dir, "d"), b); err == nil {
			t.Error("renamed a directory over a file")
		}
		must(t, fsys.Rename(b, filepath.Join(dir, "d", "c")))
		must(t, fsys.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "e")))
		if err := fsys.Rename(filepath.Join(dir, "e"), filepath.Join(dir, "e", "f")); err == nil {
			t.Error("renamed a directory into itself")
		}
		must(t, fsys.Remove(filepath.Join(dir, "e", "c")))
		if err := fsys.Remove(filepath.Join(dir, "e", "c")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed twice: %v", err)
		}
	})
}

func TestLock(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "lock")
		held, err := fsys.Lock(name)
		must(t, err)
		if _, err := fsys.Lock(name); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("locked twice: %v", err)
		}
		must(t, held.Close())
		again, err := fsys.Lock(name)
		must(t, err)
		must(t, again.Close())
		if _, err := fsys.Lock(filepath.Join(dir, "none", "lock")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("locked in no directory: %v", err)
		}
	})
}

// TestTwins does the same random things to both file systems and compares.
func TestTwins(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfstest.New()
	dirs := map[vfs.FS]string{vfs.OS: t.TempDir(), mem: "/"}
	names := []string{"a", "b", "c"}
	for step := range 2_000 {
		name, other := names[rng.IntN(3)], names[rng.IntN(3)]
		what, size, fill := rng.IntN(7), rng.Int64N(6*vfs.BlockSize), byte(rng.Uint32())
		length := rng.IntN(3 * vfs.BlockSize)
		var results []string
		for _, fsys := range []vfs.FS{vfs.OS, mem} {
			path := filepath.Join(dirs[fsys], name)
			err := doOne(fsys, what, path, filepath.Join(dirs[fsys], other), size, bytes.Repeat([]byte{fill}, length))
			result := "done"
			switch {
			case errors.Is(err, fs.ErrNotExist):
				result = "not there"
			case errors.Is(err, fs.ErrExist):
				result = "already there"
			case err != nil:
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if _, err := fsys.Stat(path); err == nil {
				result += " " + contents(t, fsys, path)
			}
			results = append(results, result)
		}
		if results[0] != results[1] {
			t.Fatalf("seed %d, step %d, operation %d on %s: they differ (%d and %d bytes)", seed, step, what, name, len(results[0]), len(results[1]))
		}
	}
}

// doOne does the operation of the given number.
func doOne(fsys vfs.FS, what int, name, other string, size int64, p []byte) error {
	switch what {
	case 0:
		f, err := fsys.Create(name)
		if err != nil {
			return err
		}
		return f.Close()
	case 1:
		return fsys.Rename(name, other)
	case 2:
		if size > vfs.BlockSize { // rarely
			return nil
		}
		return fsys.Remove(name)
	}
	f, err := fsys.OpenAppend(name)
	if err != nil {
		return err
	}
	switch what {
	case 3:
		err = f.Truncate(size)
	case 4:
		err = f.Allocate(size)
	case 5:
		err = f.Datasync()
	default:
		_, err = f.WriteAt(p, size)
	}
	return errors.Join(err, f.Close())
}
