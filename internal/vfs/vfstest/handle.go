package vfstest

import (
	"io"
	"io/fs"
	"syscall"
	"unsafe"

	"github.com/snakream/snakream/internal/vfs"
)

// mode is the way a file was opened.
type mode uint8

const (
	readOnly mode = iota
	readWrite
	direct
)

// handle is an open file.
type handle struct {
	fs     *MemFS
	n      *inode
	path   string
	mode   mode
	closed bool // guarded by fs.mu
}

var _ vfs.File = (*handle)(nil)

func (m *MemFS) open(n *inode, path string, how mode) *handle {
	n.handles++
	return &handle{fs: m, n: n, path: path, mode: how}
}

// usable says whether the file can be read, or written, at off with p.
func (h *handle) usable(write bool, p []byte, off int64) error {
	switch {
	case h.closed:
		return fs.ErrClosed
	case write && h.mode == readOnly:
		return syscall.EBADF
	case off < 0:
		return syscall.EINVAL
	case h.mode == direct && !aligned(p, off):
		return syscall.EINVAL
	}
	return nil
}

// aligned says whether memory, length and offset suit direct I/O.
func aligned(p []byte, off int64) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return (uint64(at)|uint64(len(p))|uint64(off))%vfs.BlockSize == 0
}

// ReadAt implements vfs.File.
func (h *handle) ReadAt(p []byte, off int64) (n int, err error) {
	err = h.fs.do(Op{Kind: Read, Path: h.path, Off: off, Len: int64(len(p))}, func() error {
		if err := h.usable(false, p, off); err != nil {
			return err
		}
		n = int(min(int64(len(p)), max(h.n.now.size-off, 0)))
		h.n.now.read(p[:n], off)
		if n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt implements vfs.File. When the space does not suffice for all, the first
// blocks are written as far as it goes.
func (h *handle) WriteAt(p []byte, off int64) (n int, err error) {
	err = h.fs.do(Op{Kind: Write, Path: h.path, Off: off, Len: int64(len(p))}, func() error {
		if err := h.usable(true, p, off); err != nil {
			return err
		}
		for n < len(p) {
			at := off + int64(n)
			part := min(len(p)-n, pageBytes-int(at%pageBytes))
			if err := h.fs.take(h.n.cost(at, int64(part))); err != nil {
				return err
			}
			h.n.write(p[n:n+part], at)
			n += part
		}
		return nil
	})
	return n, err
}

// Allocate implements vfs.File.
func (h *handle) Allocate(size int64) error {
	return h.fs.do(Op{Kind: Allocate, Path: h.path, Len: size}, func() error {
		if err := h.usable(true, nil, size/pageBytes*pageBytes); err != nil {
			return err
		}
		if err := h.fs.take(h.n.cost(0, size)); err != nil {
			return err
		}
		h.n.allocate(size)
		return nil
	})
}

// Truncate implements vfs.File.
func (h *handle) Truncate(size int64) error {
	return h.fs.do(Op{Kind: Truncate, Path: h.path, Len: size}, func() error {
		if err := h.usable(true, nil, size/pageBytes*pageBytes); err != nil {
			return err
		}
		h.fs.used -= h.n.truncate(size)
		return nil
	})
}

// Datasync implements vfs.File.
func (h *handle) Datasync() error {
	op := Op{Kind: Datasync, Path: h.path}
	fault := h.fs.fault(op)
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.usable(false, nil, 0)
	switch {
	case err != nil:
	case fault != nil:
		h.n.syncFailed()
		err = fault
	default:
		h.n.sync()
	}
	return h.fs.done(op, err)
}

// Size implements vfs.File.
func (h *handle) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return 0, &fs.PathError{Op: "size", Path: h.path, Err: fs.ErrClosed}
	}
	return h.n.now.size, nil
}

// Fd implements vfs.File: there is no descriptor.
func (h *handle) Fd() (uintptr, bool) { return 0, false }

// Close implements vfs.File.
func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return &fs.PathError{Op: "close", Path: h.path, Err: fs.ErrClosed}
	}
	h.closed = true
	h.n.handles--
	h.fs.release(h.n)
	return nil
}
