package overlay

import (
	"io"
	"sync"

	"github.com/snakream/snakream/internal/vfs"
)

const pageBytes = vfs.BlockSize

// file is a file of the overlay: pages that were written over what the base has.
type file struct {
	mu    sync.Mutex
	base  vfs.File // nil: a new file
	below int64    // bytes of base that still show
	size  int64
	pages map[int64][]byte // by number
	moved bool             // it has not the name that it has in base
	wrote bool
}

func (f *file) touched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrote || f.moved || f.base == nil
}

func (f *file) move() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved = true
}

// drop gives the base's file up. Handles that are open read zeros from then on.
func (f *file) drop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.base.Close()
	f.base, f.below = nil, 0
	return err
}

// page returns a page as it is now; with write it is made the overlay's own. f.mu is
// held.
func (f *file) page(k int64, write bool) ([]byte, error) {
	if p := f.pages[k]; p != nil {
		return p, nil
	}
	p := make([]byte, pageBytes)
	if from := k * pageBytes; f.base != nil && from < f.below {
		n := min(pageBytes, f.below-from)
		if got, err := f.base.ReadAt(p[:n], from); int64(got) < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	if write {
		f.pages[k] = p
	}
	return p, nil
}

// own reports whether any page of [off, off+n) was written. f.mu is held.
func (f *file) own(off, n int64) bool {
	if len(f.pages) == 0 {
		return false
	}
	for k := off / pageBytes; k*pageBytes < off+n; k++ {
		if f.pages[k] != nil {
			return true
		}
	}
	return false
}

// handle is an open file; all of its methods may be called concurrently.
type handle struct{ *file }

func (h handle) ReadAt(p []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int(min(int64(len(p)), max(h.size-off, 0)))
	if h.base != nil && off+int64(n) <= h.below && !h.own(off, int64(n)) {
		if got, err := h.base.ReadAt(p[:n], off); got < n {
			return got, err
		}
	} else {
		for done := 0; done < n; {
			at := off + int64(done)
			page, err := h.page(at/pageBytes, false)
			if err != nil {
				return done, err
			}
			done += copy(p[done:n], page[at%pageBytes:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h handle) WriteAt(p []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
	for done := 0; done < len(p); {
		at := off + int64(done)
		page, err := h.page(at/pageBytes, true)
		if err != nil {
			return done, err
		}
		done += copy(page[at%pageBytes:], p[done:])
	}
	h.size = max(h.size, off+int64(len(p)))
	return len(p), nil
}

func (h handle) Allocate(size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if size > h.size {
		h.wrote, h.size = true, size
	}
	return nil
}

func (h handle) Truncate(size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
	if size < h.size {
		h.below = min(h.below, size)
		for k, p := range h.pages {
			switch from := k * pageBytes; {
			case from >= size:
				delete(h.pages, k)
			case from+pageBytes > size:
				clear(p[size-from:])
			}
		}
	}
	h.size = size
	return nil
}

func (h handle) Datasync() error { return nil }

func (h handle) Size() (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.size, nil
}

func (h handle) Fd() (uintptr, bool) { return 0, false }

func (h handle) Close() error { return nil }
