package enginetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// NextHistory makes a data directory that nobody has open one that was restored: the
// number in its identity goes up by one, all else is as it was.
func NextHistory(fsys vfs.FS, dir string) error {
	const at, sum = 48, 56 // of the history, and of the checksum behind all
	name := filepath.Join(dir, "SNAKREAM")
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	b := make([]byte, sum+8)
	_, err = f.ReadAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b[sum:]) != bin.Sum(b[:sum]) {
		return fmt.Errorf("%s is not an identity", name)
	}
	binary.LittleEndian.PutUint16(b[at:], binary.LittleEndian.Uint16(b[at:])+1)
	binary.LittleEndian.PutUint64(b[sum:], bin.Sum(b[:sum]))
	next := name + ".next"
	if f, err = fsys.Create(next); err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(next, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
