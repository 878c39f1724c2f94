package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// readCurrent returns the number of the file that counts.
func readCurrent(fsys vfs.FS, dir string) (number uint64, err error) {
	path := filepath.Join(dir, currentName)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, &base.CorruptionError{Path: path, Detail: "it is missing"}
	}
	if err != nil {
		return 0, fmt.Errorf("manifest: open: %w", err)
	}
	b := make([]byte, maxCurrentBytes+1)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("manifest: read %s: %w", path, err)
	}
	return decodeCurrent(b[:n], path)
}

// writeCurrent makes the file of this number the one that counts, durably.
func writeCurrent(fsys vfs.FS, dir string, number uint64) error {
	if err := prepareCurrent(fsys, dir, number); err != nil {
		return err
	}
	return installCurrent(fsys, dir)
}

// prepareCurrent writes and syncs the new CURRENT under another name, which changes
// nothing yet.
func prepareCurrent(fsys vfs.FS, dir string, number uint64) error {
	path := filepath.Join(dir, currentTempName)
	f, err := fsys.Create(path)
	if errors.Is(err, fs.ErrExist) { // a crash left it
		if err = fsys.Remove(path); err == nil {
			f, err = fsys.Create(path)
		}
	}
	if err != nil {
		return fmt.Errorf("manifest: create: %w", err)
	}
	_, err = f.WriteAt(encodeCurrent(number, formatVersion), 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("manifest: write %s: %w", path, err)
	}
	return nil
}

// installCurrent puts what prepareCurrent wrote in the place of CURRENT. Durable on
// return; after an error either may be found.
func installCurrent(fsys vfs.FS, dir string) error {
	from, to := filepath.Join(dir, currentTempName), filepath.Join(dir, currentName)
	if err := fsys.Rename(from, to); err != nil {
		return fmt.Errorf("manifest: rename: %w", err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("manifest: sync %s: %w", dir, err)
	}
	return nil
}

// listLogs returns the numbers of the manifest files in dir.
func listLogs(fsys vfs.FS, dir string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("manifest: list: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, err := parseLogName(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// clearUnfinished removes what a Create that did not finish has left in dir: a first
// file that no CURRENT names and that no edit was ever added to. Where anything says
// that there was a manifest, it fails with fs.ErrExist and removes nothing.
func clearUnfinished(fsys vfs.FS, dir string) error {
	taken := func(name string) error {
		return fmt.Errorf("manifest: create: %s: %w", filepath.Join(dir, name), fs.ErrExist)
	}
	if _, err := fsys.Stat(filepath.Join(dir, currentName)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(taken(currentName), err)
	}
	numbers, err := listLogs(fsys, dir)
	if err != nil || len(numbers) == 0 {
		return err
	}
	if len(numbers) > 1 || numbers[0] != firstNumber {
		return taken(logName(numbers[len(numbers)-1]))
	}
	path := logPath(dir, firstNumber)
	f, err := fsys.Open(path)
	if err != nil {
		return fmt.Errorf("manifest: open: %w", err)
	}
	data, err := readAll(f, path)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, used := laterEdit(data, 0, firstNumber, firstNumber); used {
		return taken(logName(firstNumber))
	}
	if err := fsys.Remove(path); err != nil {
		return fmt.Errorf("manifest: create: %w", err)
	}
	return nil
}
