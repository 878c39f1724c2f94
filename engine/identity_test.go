package engine_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// The root of a freshly made file system is an empty directory with lost+found in it.
// What that holds is not ours: it stays, also when the making has to start over.
func TestFreshFileSystem(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		fs := vfstest.New()
		if err := fs.MkdirAll("data/lost+found"); err != nil {
			t.Fatal(err)
		}
		write(t, fs, "data/lost+found/#12", []byte("found by fsck"))
		if interrupted {
			write(t, fs, "data/SNAKREAM.new", nil)
			if err := fs.MkdirAll("data/shard-00/seg"); err != nil {
				t.Fatal(err)
			}
		}
		o := tiny(2)
		o.FS = fs
		for range 2 {
			e, err := engine.Open("data", o)
			if err == nil {
				err = e.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := files(t, fs, "data")["data/lost+found/#12"]; string(got) != "found by fsck" {
			t.Errorf("what fsck found is now %q", got)
		}
	}
}

// Nothing else may be there, not even beside lost+found.
func TestFreshFileSystemWithSomethingElse(t *testing.T) {
	for _, name := range []string{"photo.jpg", "lost+found2", "shard-00"} {
		fs := vfstest.New()
		if err := fs.MkdirAll("data/lost+found"); err != nil {
			t.Fatal(err)
		}
		write(t, fs, filepath.Join("data", name), []byte("mine"))
		o := tiny(1)
		o.FS = fs
		if _, err := engine.Open("data", o); !errors.Is(err, engine.ErrForeign) && !errors.Is(err, engine.ErrIncomplete) {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := fs.List("data"); err != nil || !slices.Contains(names, name) || len(names) != 2 {
			t.Errorf("%s: the directory now holds %v: %v", name, names, err)
		}
	}
}
