package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system.
var OS FS = osFS{}

const (
	filePerm = 0o600
	dirPerm  = 0o700
)

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return open(name, os.O_RDONLY) }

func (osFS) OpenAppend(name string) (File, error) { return open(name, os.O_RDWR) }

func (osFS) OpenDirect(name string) (File, error) {
	f, err := open(name, os.O_RDWR|unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		return open(name, os.O_RDWR)
	}
	if err != nil {
		return nil, err
	}
	// Some file systems take the flag and then refuse the transfers.
	if _, err := f.ReadAt(Aligned(BlockSize), 0); errors.Is(err, unix.EINVAL) {
		if err := f.Close(); err != nil {
			return nil, err
		}
		return open(name, os.O_RDWR)
	}
	return f, nil
}

func (osFS) Rename(oldname, newname string) error { return mapped(os.Rename(oldname, newname)) }

func (osFS) Remove(name string) error { return mapped(os.Remove(name)) }

func (o osFS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := o.MkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return mapped(err)
	}
	return o.SyncDir(parent)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return errors.Join(mapped(err), d.Close())
	}
	return mapped(d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, mapped(err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lock takes the lock on the open file f and makes sure that its name still leads
// to it: after a rename over the name, others would lock another file.
func lock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = control(raw, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", f.Name(), ErrLocked)
	case err != nil:
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	held, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Name())
	if err != nil {
		return err
	}
	if !os.SameFile(held, named) {
		return fmt.Errorf("lock %s: replaced meanwhile: %w", f.Name(), ErrLocked)
	}
	return nil
}

func (osFS) Free(dir string) (uint64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			return st.Bavail * uint64(st.Frsize), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
}

// osFile is an open file. os.File brings the loops for short transfers and for
// interrupted calls, and sets O_CLOEXEC.
type osFile struct {
	f   *os.File
	raw syscall.RawConn // holds the descriptor open during a call of our own
}

func open(name string, flag int) (*osFile, error) {
	f, err := os.OpenFile(name, flag, filePerm)
	if err != nil {
		return nil, mapped(err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{f: f, raw: raw}, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, mapped(err)
}

func (f *osFile) Close() error { return mapped(f.f.Close()) }

func (f *osFile) Allocate(size int64) error {
	if size == 0 {
		return nil // fallocate refuses an empty range
	}
	err := control(f.raw, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.fill(size)
	}
	return f.failed("fallocate", err)
}

// fill reserves space by writing zeros behind the end, for file systems without
// fallocate.
func (f *osFile) fill(size int64) error {
	const chunk = 1 << 20
	end, err := f.Size()
	if err != nil {
		return err
	}
	zeros := Aligned(chunk)
	for end < size {
		n, err := f.WriteAt(zeros[:min(chunk, size-end)], end)
		if err != nil {
			return err
		}
		end += int64(n)
	}
	return nil
}

func (f *osFile) Truncate(size int64) error { return mapped(f.f.Truncate(size)) }

func (f *osFile) Datasync() error { return f.failed("fdatasync", control(f.raw, unix.Fdatasync)) }

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Fd() (uintptr, bool) { return f.f.Fd(), true }

// failed names the call and the file of err, if there is one.
func (f *osFile) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return mapped(&fs.PathError{Op: op, Path: f.f.Name(), Err: err})
}

// control runs call on the descriptor, again only when a signal interrupted it.
func control(raw syscall.RawConn, call func(fd int) error) error {
	var result error
	err := raw.Control(func(fd uintptr) {
		for {
			if result = call(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the only reason not to get the descriptor
	}
	return result
}

// noSpaceError is a system error that also matches ErrNoSpace.
type noSpaceError struct{ err error }

func (e noSpaceError) Error() string   { return e.err.Error() }
func (e noSpaceError) Unwrap() []error { return []error{ErrNoSpace, e.err} }

// mapped makes a full disk or quota match ErrNoSpace.
func mapped(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return noSpaceError{err}
	}
	return err
}
