package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/snakream/snakream/internal/vfs"
)

// growBytes is how much a growing file is allocated at a time.
const growBytes = 16 << 10

// growing is a file that entries are added to at its end, durably, in space that is
// allocated ahead, so that it is there that a full disk shows. One goroutine at a time.
type growing struct {
	f    vfs.File
	end  int64 // of what is durable
	size int64 // allocated
	torn int64 // a write that failed may have left something up to here
}

// replaceFile makes a file of the pieces, whose bytes are size in all, under the name tmp
// and then name in the directory. It is durable on return. An error that matches
// vfs.ErrNoSpace leaves what was there before.
func replaceFile(fsys vfs.FS, dir, name, tmp string, size int64, pieces iter.Seq[[]byte]) (growing, error) {
	from, to := filepath.Join(dir, tmp), filepath.Join(dir, name)
	if err := fsys.Remove(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return growing{}, err
	}
	f, err := fsys.Create(from)
	if err != nil {
		return growing{}, err
	}
	g := growing{f: f}
	err = g.fill(size, pieces)
	if err == nil {
		err = fsys.Rename(from, to)
	}
	if err == nil {
		if err = fsys.SyncDir(dir); errors.Is(err, vfs.ErrNoSpace) {
			err = fmt.Errorf("after a rename in %s: %v", dir, err) // which is the old file is not known
		}
	}
	if err != nil {
		return growing{}, errors.Join(err, f.Close())
	}
	return g, nil
}

// resumeFile opens a file to go on behind end, without taking space.
func resumeFile(fsys vfs.FS, dir, name string, end int64) (growing, error) {
	f, err := fsys.OpenAppend(filepath.Join(dir, name))
	if err != nil {
		return growing{}, err
	}
	size, err := f.Size()
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return growing{}, errors.Join(err, f.Close())
	}
	return growing{f: f, end: end, size: size}, nil
}

// fill writes the first pieces, size bytes in all.
func (g *growing) fill(size int64, pieces iter.Seq[[]byte]) error {
	if err := g.allocate(size); err != nil {
		return err
	}
	for p := range pieces {
		if _, err := g.f.WriteAt(p, g.end); err != nil {
			return err
		}
		g.end += int64(len(p))
	}
	return g.f.Datasync()
}

func (g *growing) allocate(size int64) error {
	if size <= g.size {
		return nil
	}
	size = (size + growBytes - 1) / growBytes * growBytes
	if err := g.f.Allocate(size); err != nil {
		return err
	}
	g.size = size
	return nil
}

// write adds b to the file, durably. After an error that matches vfs.ErrNoSpace another
// write may be tried: it leaves nothing of the one that failed.
func (g *growing) write(b []byte) error {
	end := g.end + int64(len(b))
	if err := g.allocate(end); err != nil {
		return err
	}
	if g.torn > end {
		b = append(b, make([]byte, g.torn-end)...)
	}
	g.torn = max(g.torn, end)
	if _, err := g.f.WriteAt(b, g.end); err != nil {
		return err
	}
	if err := g.f.Datasync(); err != nil {
		return err
	}
	g.end, g.torn = end, 0
	return nil
}
