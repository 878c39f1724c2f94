// Package overlay is a file system over another one that it only reads: what is written
// to it stays in memory. So a change can be tried out, and looked at from all sides,
// before it is made.
package overlay

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/snakream/snakream/internal/vfs"
)

// FS is an overlay. Its methods may be called concurrently. It does everything that
// vfs.FS says but for renaming directories. Nothing is ever durable, and locks exclude
// nobody. Blocks that were written take memory.
type FS struct {
	base vfs.FS

	mu    sync.Mutex
	nodes map[string]*node // what differs from base, by clean path
}

// node is a path that is not, or not only, what the base has there. Of the three at
// most one is set; with none the path is gone.
type node struct {
	file *file
	dir  bool
}

// New returns an overlay of a file system. Close it.
func New(base vfs.FS) *FS { return &FS{base: base, nodes: map[string]*node{}} }

// Close closes the files of the base that were needed. No file may be in use.
func (o *FS) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	closed := map[*file]bool{}
	var errs []error
	for _, n := range o.nodes {
		if n.file != nil && n.file.base != nil && !closed[n.file] {
			closed[n.file] = true
			errs = append(errs, n.file.base.Close())
		}
	}
	return errors.Join(errs...)
}

// Changed reports whether anything was written, made, renamed or removed.
func (o *FS) Changed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		if n.file == nil || n.file.touched() {
			return true
		}
	}
	return false
}

func failed(op, path string, err error) error { return &fs.PathError{Op: op, Path: path, Err: err} }

// exists says what is at a clean path. o.mu is held.
func (o *FS) exists(path string) (n *node, err error) {
	if n := o.nodes[path]; n != nil {
		if n.file == nil && !n.dir {
			return nil, fs.ErrNotExist
		}
		return n, nil
	}
	if _, err := o.base.Stat(path); err != nil {
		return nil, err
	}
	return nil, nil
}

// lookup returns the file at a clean path, which becomes a node. o.mu is held.
func (o *FS) lookup(path string) (*file, error) {
	n, err := o.exists(path)
	switch {
	case err != nil:
		return nil, err
	case n != nil && n.dir:
		return nil, syscall.EISDIR
	case n != nil:
		return n.file, nil
	}
	base, err := o.base.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := base.Size()
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	f := &file{base: base, below: size, size: size, pages: map[int64][]byte{}}
	o.nodes[path] = &node{file: f}
	return f, nil
}

// Create implements vfs.FS.
func (o *FS) Create(name string) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(name)
	if _, err := o.exists(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return nil, failed("create", name, err)
	}
	if _, err := o.exists(filepath.Dir(path)); err != nil {
		return nil, failed("create", name, err)
	}
	f := &file{pages: map[int64][]byte{}}
	o.nodes[path] = &node{file: f}
	return handle{f}, nil
}

// Open implements vfs.FS.
func (o *FS) Open(name string) (vfs.File, error) {
	o.mu.Lock()
	n := o.nodes[filepath.Clean(name)]
	o.mu.Unlock()
	if n == nil {
		return o.base.Open(name)
	}
	return o.OpenAppend(name)
}

// OpenDirect implements vfs.FS.
func (o *FS) OpenDirect(name string) (vfs.File, error) { return o.OpenAppend(name) }

// OpenAppend implements vfs.FS.
func (o *FS) OpenAppend(name string) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.lookup(filepath.Clean(name))
	if err != nil {
		return nil, failed("open", name, err)
	}
	return handle{f}, nil
}

// Rename implements vfs.FS, for files.
func (o *FS) Rename(oldname, newname string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, to := filepath.Clean(oldname), filepath.Clean(newname)
	f, err := o.lookup(from)
	if err == nil {
		_, err = o.exists(filepath.Dir(to))
	}
	if err != nil {
		return failed("rename", oldname, err)
	}
	if n, err := o.exists(to); err == nil && n != nil && n.dir {
		return failed("rename", newname, syscall.EISDIR)
	}
	f.move()
	o.nodes[from] = &node{}
	o.nodes[to] = &node{file: f}
	return nil
}

// Remove implements vfs.FS.
func (o *FS) Remove(name string) error {
	path := filepath.Clean(name)
	if names, err := o.List(path); err == nil && len(names) > 0 {
		return failed("remove", name, syscall.ENOTEMPTY)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.exists(path); err != nil {
		return failed("remove", name, err)
	}
	if n := o.nodes[path]; n != nil && n.file != nil && n.file.base != nil {
		if err := n.file.drop(); err != nil {
			return failed("remove", name, err)
		}
	}
	o.nodes[path] = &node{}
	return nil
}

// MkdirAll implements vfs.FS.
func (o *FS) MkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for path := filepath.Clean(dir); ; path = filepath.Dir(path) {
		n, err := o.exists(path)
		switch {
		case err == nil && n != nil && !n.dir:
			return failed("mkdir", dir, syscall.ENOTDIR)
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return failed("mkdir", dir, err)
		}
		o.nodes[path] = &node{dir: true}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}

// List implements vfs.FS.
func (o *FS) List(dir string) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(dir)
	var names []string
	n, err := o.exists(path)
	switch {
	case err != nil:
	case n == nil:
		names, err = o.base.List(path)
	case !n.dir:
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, failed("list", dir, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		n := o.nodes[filepath.Join(path, name)]
		return n != nil
	})
	for p, n := range o.nodes {
		if (n.file != nil || n.dir) && p != path && filepath.Dir(p) == path {
			names = append(names, strings.TrimPrefix(filepath.Base(p), string(filepath.Separator)))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (o *FS) Stat(name string) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.exists(filepath.Clean(name))
	switch {
	case err != nil:
		return 0, failed("stat", name, err)
	case n == nil:
		return o.base.Stat(name)
	case n.file == nil:
		return 0, nil
	}
	return handle{n.file}.Size()
}

// SyncDir implements vfs.FS: it looks whether there is such a directory.
func (o *FS) SyncDir(dir string) error {
	_, err := o.List(dir)
	return err
}

// Lock implements vfs.FS. It excludes nobody.
func (o *FS) Lock(string) (io.Closer, error) { return nobody{}, nil }

type nobody struct{}

func (nobody) Close() error { return nil }

// Free implements vfs.FS.
func (o *FS) Free(dir string) (uint64, error) { return o.base.Free(dir) }
