package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// readAhead is how much a scan reads at once, in bytes.
const readAhead = 1 << 20

// listing is what a log's directory holds.
type listing struct {
	logs   []uint64 // numbers, ascending
	spares []string // paths
}

// list reads the directory. Names that are not ours are left alone.
func list(fsys vfs.FS, dir string) (listing, error) {
	var l listing
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, &base.CorruptionError{Path: dir, Detail: "the log's directory is missing"}
	}
	if err != nil {
		return l, fmt.Errorf("wal: list %s: %w", dir, err)
	}
	for _, name := range names {
		if n, ok := parseName(name, suffixLog); ok {
			l.logs = append(l.logs, n)
		} else if n, ok := parseName(name, suffixSpare); ok {
			l.spares = append(l.spares, filePath(dir, n, suffixSpare))
		}
	}
	slices.Sort(l.logs)
	if len(l.logs) == 0 {
		return l, &base.CorruptionError{Path: dir, Detail: "the directory holds no log file"}
	}
	return l, nil
}

var zeroBlock [block]byte

// allZero reports whether b, of at most a block, is zero.
func allZero(b []byte) bool { return bytes.Equal(b, zeroBlock[:len(b)]) }

// window reads a file through aligned memory, ahead of what is asked for.
type window struct {
	f    vfs.File
	size int64
	buf  []byte
	off  int64 // of buf[0] in the file
	n    int   // valid bytes
	read int64 // bytes read in all
}

// use turns to a file of which the first size bytes matter, a multiple of the block
// size.
func (w *window) use(f vfs.File, size int64) {
	if w.f != f || w.size != size {
		w.f, w.size, w.n = f, size, 0
	}
}

// view returns the bytes [off, off+n), which must lie within the size. They are
// valid until the next call.
func (w *window) view(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(w.n) {
		from := off &^ (block - 1)
		want := max(roundUp(off+int64(n))-from, min(readAhead, w.size-from))
		if int64(len(w.buf)) < want {
			w.buf = vfs.Aligned(int(want))
		}
		w.off, w.n = from, 0
		got, err := w.f.ReadAt(w.buf[:want], from)
		if int64(got) < want {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		w.n = got
		w.read += want
	}
	return w.buf[off-w.off:][:n:n], nil
}
