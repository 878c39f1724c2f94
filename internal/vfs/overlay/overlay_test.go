package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// twin does the same to an overlay and to a copy of its base, which must not tell them
// apart.
type twin struct {
	t    *testing.T
	rng  *rand.Rand
	both [2]vfs.FS
}

var paths = []string{"d/a", "d/b", "d/e/a", "d/e/c", "d/new", "d/f/x"}

func (w *twin) path() string { return paths[w.rng.IntN(len(paths))] }

// same compares what two calls returned.
func (w *twin) same(what string, a, b string, errs [2]error) {
	w.t.Helper()
	for _, target := range []error{fs.ErrNotExist, fs.ErrExist} {
		if errors.Is(errs[0], target) != errors.Is(errs[1], target) {
			w.t.Fatalf("%s: %v and %v", what, errs[0], errs[1])
		}
	}
	if a != b || (errs[0] == nil) != (errs[1] == nil) {
		w.t.Fatalf("%s: %.60q, %v and %.60q, %v", what, a, errs[0], b, errs[1])
	}
}

func (w *twin) each(what string, f func(fsys vfs.FS) (string, error)) {
	w.t.Helper()
	var got [2]string
	var errs [2]error
	for i, fsys := range w.both {
		got[i], errs[i] = f(fsys)
	}
	w.same(what, got[0], got[1], errs)
}

func contents(f vfs.File) (string, error) {
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b[:n]), err
}

func (w *twin) step() {
	path, other, off := w.path(), w.path(), w.rng.Int64N(12_000)
	data := bytes.Repeat([]byte{byte(w.rng.IntN(256))}, 1+w.rng.IntN(9000))
	switch w.rng.IntN(8) {
	case 0:
		w.each("create "+path, func(fsys vfs.FS) (string, error) {
			f, err := fsys.Create(path)
			if err == nil {
				err = f.Close()
			}
			return "", err
		})
	case 1:
		w.each("remove "+path, func(fsys vfs.FS) (string, error) { return "", fsys.Remove(path) })
	case 2:
		w.each(fmt.Sprint("rename ", path, other), func(fsys vfs.FS) (string, error) { return "", fsys.Rename(path, other) })
	case 3:
		w.each("mkdir", func(fsys vfs.FS) (string, error) { return "", fsys.MkdirAll("d/f") })
	case 4, 5:
		w.change("write "+path, path, func(f vfs.File) error {
			_, err := f.WriteAt(data, off)
			return err
		})
	case 6:
		w.change("truncate "+path, path, func(f vfs.File) error { return f.Truncate(off) })
	case 7:
		w.change("allocate "+path, path, func(f vfs.File) error { return f.Allocate(off) })
	}
}

func (w *twin) change(what, path string, do func(vfs.File) error) {
	w.each(what, func(fsys vfs.FS) (string, error) {
		f, err := fsys.OpenAppend(path)
		if err != nil {
			return "", err
		}
		return "", errors.Join(do(f), f.Close())
	})
}

// look compares everything.
func (w *twin) look() {
	for _, dir := range []string{"d", "d/e", "d/f", "d/a"} {
		w.each("list "+dir, func(fsys vfs.FS) (string, error) {
			names, err := fsys.List(dir)
			return fmt.Sprint(names), err
		})
	}
	for _, path := range paths {
		w.each("read "+path, func(fsys vfs.FS) (string, error) {
			f, err := fsys.Open(path)
			if err != nil {
				return "", err
			}
			size, err := fsys.Stat(path)
			if err != nil {
				return "", err
			}
			s, err := contents(f)
			return fmt.Sprint(size, s), errors.Join(err, f.Close())
		})
	}
}

func TestOverlayIsLikeACopy(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 60 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		base := vfstest.New()
		if err := base.MkdirAll("d/e"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"d/a", "d/b", "d/e/a"} {
			f, err := base.Create(name)
			if err == nil {
				_, err = f.WriteAt(bytes.Repeat([]byte(name), 2000), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		over := New(base)
		w := &twin{t: t, rng: rng, both: [2]vfs.FS{over, base.Clone()}}
		w.look()
		if over.Changed() {
			t.Fatal("looking has changed something")
		}
		base.StartTrace()
		for range 60 {
			w.step()
			w.look()
		}
		if trace := base.Trace(); len(trace) > 0 {
			t.Fatalf("the base was changed: %v", trace)
		}
		if err := over.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOverlayDoesNotRenameDirectories(t *testing.T) {
	base := vfstest.New()
	if err := base.MkdirAll("d/e"); err != nil {
		t.Fatal(err)
	}
	over := New(base)
	if err := over.MkdirAll("d/f"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"d/e", "d/f"} {
		if err := over.Rename(dir, "d/g"); err == nil {
			t.Errorf("%s was renamed", dir)
		}
	}
	if names, err := over.List("d"); err != nil || !slices.Equal(names, []string{"e", "f"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := over.Lock(filepath.Join("d", "LOCK")); err != nil {
		t.Error(err)
	}
}
