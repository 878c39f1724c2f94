package engine

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// The file TIER says that the data directory has had the prefix of an object store for
// its own, and which one. It is text, for people:
//
//	snakream-tier 1
//	s3://bucket/prefix
const (
	tierFile     = "TIER"
	tierFileNew  = "TIER.new"
	tierMagic    = "snakream-tier 1\n"
	maxTierBytes = 4 << 10
)

// UsesTier returns the object store that the data directory dir has had for its own, as
// it was named then; "" if none. The error is a *base.CorruptionError or one of the file
// system. It may be called while the directory is open.
func UsesTier(fsys vfs.FS, dir string) (string, error) {
	path := filepath.Join(dir, tierFile)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, maxTierBytes)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	where, ok := strings.CutPrefix(string(b[:n]), tierMagic)
	where, whole := strings.CutSuffix(where, "\n")
	if !ok || !whole || where == "" {
		return "", &base.CorruptionError{Path: path, Detail: "not what says which object store is used"}
	}
	return where, nil
}

// writeTierFile says that where is the store of the data directory dir, durably. known
// is what it says already.
func writeTierFile(fsys vfs.FS, dir, known, where string) error {
	if known == where {
		return nil
	}
	return replaceFile(fsys, dir, tierFile, tierFileNew, []byte(tierMagic+where+"\n"))
}

// replaceFile gives the file name in dir the contents b, atomically and durably. tmp is
// the name that it is written under.
func replaceFile(fsys vfs.FS, dir, name, tmp string, b []byte) error {
	tmp = filepath.Join(dir, tmp)
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
