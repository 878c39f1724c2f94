// Package vfstest has a file system in memory for tests: it can be cut off from
// its power, fail or stall on demand, run out of space, and say what was asked of
// it in which order.
package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/snakream/snakream/internal/vfs"
)

// errNoSpace matches both what the interface and what the system call names.
var errNoSpace = fmt.Errorf("%w (%w)", vfs.ErrNoSpace, syscall.ENOSPC)

// MemFS is a vfs.FS in memory. Paths with and without a leading slash mean the
// same; the root exists. All methods may be called concurrently. What a power cut
// leaves of it is described at CrashClone.
type MemFS struct {
	mu     sync.Mutex
	tree   *tree
	used   int64 // pages that files take
	budget int64 // pages that they may take, math.MaxInt64 for any number
	hook   func(Op) error
	traced [kinds]bool
	trace  []string
}

var _ vfs.FS = (*MemFS)(nil)

// New returns an empty file system with unlimited space.
func New() *MemFS { return &MemFS{tree: newTree(), budget: math.MaxInt64} }

// SetHook makes f run before each operation, outside of all locks; nil ends that.
// It may block, which is a slow disk, take a CrashClone, or return an error, which
// the operation then fails with, undone. A Datasync that fails so leaves the file
// as Linux does: what was written before it counts as clean, though it may not be
// on the medium, and only writing it again and syncing that makes it durable. A
// SyncDir that fails so leaves entry changes that no later SyncDir makes durable.
func (m *MemFS) SetHook(f func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = f
}

// StartTrace empties the trace and records from now on the operations of the given
// kinds, or, without any, those that change or secure what is stored (all but Open,
// Read, List and Stat).
func (m *MemFS) StartTrace(only ...Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trace = nil
	for k := range kinds {
		m.traced[k] = k.changes()
		if len(only) > 0 {
			m.traced[k] = slices.Contains(only, k)
		}
	}
}

// Trace returns what was recorded since StartTrace: a line for each operation, as
// Op.String has it, in the order in which they took effect. The line of one that
// failed ends in ": " and the error.
func (m *MemFS) Trace() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.trace)
}

// SetFree leaves the given number of bytes of free space, in whole blocks; a
// negative number leaves space without limit, as New does. Blocks are taken when
// they are allocated or first written, and given back when the file is truncated,
// or removed and closed.
func (m *MemFS) SetFree(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budget = math.MaxInt64
	if bytes >= 0 {
		m.budget = m.used + bytes/pageBytes
	}
}

// Free returns the bytes left of what SetFree has set.
func (m *MemFS) Free(string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.budget == math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return uint64(max(m.budget-m.used, 0)) * pageBytes, nil
}

// Corrupt lets f edit in place the bytes of a file from off to its end, on the
// medium and in what is read. What f changes counts as durable. It is no Op.
func (m *MemFS) Corrupt(path string, off int64, f func([]byte)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.file(path)
	if err == nil && (off < 0 || off > n.now.size) {
		err = syscall.EINVAL
	}
	if err != nil {
		return &fs.PathError{Op: "corrupt", Path: path, Err: err}
	}
	n.corrupt(off, f)
	return nil
}

// do runs op under the lock, after the hook, and records it.
func (m *MemFS) do(op Op, act func() error) error {
	err := m.fault(op)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = act()
	}
	return m.done(op, err)
}

// fault asks the hook about op.
func (m *MemFS) fault(op Op) error {
	m.mu.Lock()
	hook := m.hook
	m.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

// done records op and says in err which it was. The caller holds the lock.
func (m *MemFS) done(op Op, err error) error {
	if m.traced[op.Kind] {
		line := op.String()
		if err != nil {
			line += ": " + err.Error()
		}
		m.trace = append(m.trace, line)
	}
	if err == nil || err == io.EOF { // io.ReaderAt wants io.EOF itself
		return err
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Path, Err: err}
}

// find returns the node at path, and its place even if there is none, as long as
// the directory exists. The root's place is nowhere.
func (m *MemFS) find(path string) (*node, place, error) {
	n, at := m.tree.now.root, place{}
	for name := range strings.SplitSeq(filepath.Clean(path), "/") {
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			return nil, place{}, fs.ErrInvalid
		case n == nil:
			return nil, place{}, fs.ErrNotExist
		case !n.isDir():
			return nil, place{}, syscall.ENOTDIR
		}
		at = place{dir: n, name: name}
		n = m.tree.now.lookup(at)
	}
	return n, at, nil
}

// existing returns the node at path.
func (m *MemFS) existing(path string) (*node, error) {
	n, _, err := m.find(path)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	return n, err
}

// file returns the file at path.
func (m *MemFS) file(path string) (*inode, error) {
	n, err := m.existing(path)
	switch {
	case err != nil:
		return nil, err
	case n.isDir():
		return nil, syscall.EISDIR
	}
	return n.inode, nil
}

// directory returns the directory at path.
func (m *MemFS) directory(path string) (*node, error) {
	n, err := m.existing(path)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	return n, err
}

// take takes pages from the free space, or none.
func (m *MemFS) take(pages int64) error {
	if pages > 0 && m.used+pages > m.budget {
		return errNoSpace
	}
	m.used += pages
	return nil
}

// release gives back the space of a file that has no name and is not open.
func (m *MemFS) release(n *inode) {
	if !n.linked && n.handles == 0 {
		m.used -= n.charged
		n.charged = 0
	}
}
