package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snakream/snakream/internal/vfs"
)

// A File is one file of edits in a manifest's directory, whether it counts or not:
// a crash while a file was being replaced leaves two.
type File struct {
	Number uint64
	Path   string
	State  State
	Err    error // why it can't be read; State is empty then
}

// CurrentPath returns the path of the file that says which one counts.
func CurrentPath(dir string) string { return filepath.Join(dir, currentName) }

// Files reads all files of edits in dir, in the order of their numbers, and changes
// nothing.
func Files(fsys vfs.FS, dir string) ([]File, error) {
	numbers, err := listLogs(fsys, dir)
	if err != nil {
		return nil, err
	}
	var all []File
	for _, n := range numbers {
		f := File{Number: n, Path: logPath(dir, n)}
		var l log
		if l, f.State, f.Err = openNumber(fsys, dir, n); f.Err == nil {
			if err := l.f.Close(); err != nil {
				return nil, fmt.Errorf("manifest: close: %w", err)
			}
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.Number, b.Number) })
	return all, nil
}

// Select makes a file of edits the one that counts, durably. It is for repairs: the
// next Open takes what that file says for the whole truth, and removes the others.
func Select(fsys vfs.FS, dir string, number uint64) error {
	l, _, err := openNumber(fsys, dir, number)
	if err != nil {
		return err
	}
	return errors.Join(l.f.Close(), writeCurrent(fsys, dir, number))
}
