package vfstest

import (
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/snakream/snakream/internal/vfs"
)

// Create implements vfs.FS.
func (m *MemFS) Create(name string) (vfs.File, error) {
	op := Op{Kind: Create, Path: filepath.Clean(name)}
	var h *handle
	err := m.do(op, func() error {
		n, err := m.create(name)
		if err != nil {
			return err
		}
		h = m.open(n, op.Path, readWrite)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// create enters a new file.
func (m *MemFS) create(name string) (*inode, error) {
	n, at, err := m.find(name)
	switch {
	case err != nil:
		return nil, err
	case n != nil:
		return nil, fs.ErrExist
	}
	n = &node{inode: newInode()}
	m.tree.move(n, place{}, at)
	return n.inode, nil
}

// Open implements vfs.FS.
func (m *MemFS) Open(name string) (vfs.File, error) { return m.openExisting(name, readOnly) }

// OpenAppend implements vfs.FS.
func (m *MemFS) OpenAppend(name string) (vfs.File, error) { return m.openExisting(name, readWrite) }

// OpenDirect implements vfs.FS. Transfers that are not aligned fail with EINVAL.
func (m *MemFS) OpenDirect(name string) (vfs.File, error) { return m.openExisting(name, direct) }

func (m *MemFS) openExisting(name string, how mode) (vfs.File, error) {
	op := Op{Kind: Open, Path: filepath.Clean(name)}
	var h *handle
	err := m.do(op, func() error {
		n, err := m.file(name)
		if err != nil {
			return err
		}
		h = m.open(n, op.Path, how)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Rename implements vfs.FS. Between two directories it is durable when both have
// been synced; before that a power cut leaves the old place or the new one.
func (m *MemFS) Rename(oldname, newname string) error {
	op := Op{Kind: Rename, Path: filepath.Clean(oldname), To: filepath.Clean(newname)}
	return m.do(op, func() error {
		n, from, err := m.find(oldname)
		if err != nil {
			return err
		}
		old, to, err := m.find(newname)
		switch {
		case err != nil:
			return err
		case n == nil:
			return fs.ErrNotExist
		case n == old:
			return nil
		case from.dir == nil || m.within(to.dir, n):
			return syscall.EINVAL
		case old != nil && old.isDir():
			return fs.ErrExist
		case old != nil && n.isDir():
			return syscall.ENOTDIR
		}
		m.tree.move(n, from, to)
		if old != nil {
			old.linked = false
			m.release(old.inode)
		}
		return nil
	})
}

// within says whether dir is n or lies below it.
func (m *MemFS) within(dir, n *node) bool {
	for ; dir != nil; dir = m.tree.now.home[dir].dir {
		if dir == n {
			return true
		}
	}
	return false
}

// Remove implements vfs.FS.
func (m *MemFS) Remove(name string) error {
	return m.do(Op{Kind: Remove, Path: filepath.Clean(name)}, func() error {
		n, at, err := m.find(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return fs.ErrNotExist
		case at.dir == nil:
			return syscall.EBUSY
		case n.isDir() && len(m.tree.now.entries[n]) > 0:
			return syscall.ENOTEMPTY
		}
		m.tree.move(n, at, place{})
		if !n.isDir() {
			n.linked = false
			m.release(n.inode)
		}
		return nil
	})
}

// MkdirAll implements vfs.FS.
func (m *MemFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	n, _, err := m.find(dir)
	m.mu.Unlock()
	switch {
	case err == nil && n != nil && n.isDir():
		return nil
	case err == nil && n != nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	parent := filepath.Dir(dir)
	if err := m.MkdirAll(parent); err != nil {
		return err
	}
	err = m.do(Op{Kind: Mkdir, Path: dir}, func() error {
		n, at, err := m.find(dir)
		switch {
		case err != nil:
			return err
		case n == nil:
			m.tree.move(new(node), place{}, at)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.SyncDir(parent)
}

// List implements vfs.FS.
func (m *MemFS) List(dir string) (names []string, err error) {
	err = m.do(Op{Kind: List, Path: filepath.Clean(dir)}, func() error {
		n, err := m.directory(dir)
		if err != nil {
			return err
		}
		names = m.tree.now.names(n)
		return nil
	})
	return names, err
}

// Stat implements vfs.FS. The size of a directory is 0.
func (m *MemFS) Stat(name string) (size int64, err error) {
	err = m.do(Op{Kind: Stat, Path: filepath.Clean(name)}, func() error {
		n, err := m.existing(name)
		if err != nil {
			return err
		}
		if !n.isDir() {
			size = n.now.size
		}
		return nil
	})
	return size, err
}

// SyncDir implements vfs.FS.
func (m *MemFS) SyncDir(dir string) error {
	op := Op{Kind: SyncDir, Path: filepath.Clean(dir)}
	fault := m.fault(op)
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.directory(dir)
	switch {
	case err != nil:
	case fault != nil:
		m.tree.syncFailed(n)
		err = fault
	default:
		m.tree.sync(n)
	}
	return m.done(op, err)
}

// Lock implements vfs.FS.
func (m *MemFS) Lock(name string) (io.Closer, error) {
	var held *inode
	err := m.do(Op{Kind: Lock, Path: filepath.Clean(name)}, func() error {
		n, _, err := m.find(name)
		if err != nil {
			return err
		}
		if n == nil {
			held, err = m.create(name)
		} else {
			held, err = m.file(name)
		}
		switch {
		case err != nil:
			return err
		case held.locked:
			return vfs.ErrLocked
		}
		held.locked = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return unlocker(sync.OnceValue(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		held.locked = false
		return nil
	})), nil
}

// unlocker is a function as an io.Closer.
type unlocker func() error

func (u unlocker) Close() error { return u() }
