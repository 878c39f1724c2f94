package vfstest

import (
	"bytes"

	"github.com/snakream/snakream/internal/vfs"
)

const (
	pageBytes = vfs.BlockSize
	leafPages = 64
)

// owner is who may change a page or a leaf in place: only content that is changed
// with the very same owner. Whoever takes a copy of a content gives the file a new
// owner, and so every page is copied before it is next written. (Not an empty
// struct: two of those may have one address.)
type owner struct{ _ byte }

type page struct {
	owner *owner
	data  [pageBytes]byte
}

// zeroPage stands for every written page of zeros, since logs consist of those.
var zeroPage = new(page)

type leaf struct {
	owner *owner
	pages [leafPages]*page // nil where nothing was ever written
}

// content is the bytes of a file: a copy-on-write table of pages. Copying the
// struct copies the content. Bytes behind size in the last page are zero.
type content struct {
	size   int64
	owner  *owner // of the slice leaves
	leaves []*leaf
}

// pagesFor returns the number of pages that hold size bytes.
func pagesFor(size int64) int64 { return (size + pageBytes - 1) / pageBytes }

// page returns page i, nil where there is none.
func (c *content) page(i int64) *page {
	if l := i / leafPages; l < int64(len(c.leaves)) && c.leaves[l] != nil {
		return c.leaves[l].pages[i%leafPages]
	}
	return nil
}

// slot returns where page i is kept, in a leaf that o may change.
func (c *content) slot(o *owner, i int64) **page {
	at := i / leafPages
	if c.owner != o {
		c.leaves = append(make([]*leaf, 0, max(int(at)+1, len(c.leaves))), c.leaves...)
		c.owner = o
	}
	for int64(len(c.leaves)) <= at {
		c.leaves = append(c.leaves, nil)
	}
	l := c.leaves[at]
	switch {
	case l == nil:
		l = &leaf{owner: o}
	case l.owner != o:
		l = &leaf{owner: o, pages: l.pages}
	}
	c.leaves[at] = l
	return &l.pages[i%leafPages]
}

// put writes b into page i from byte at on. A page of zeros may be shared, unless
// the caller must be able to tell this write from an earlier one.
func (c *content) put(o *owner, i int64, at int, b []byte, share bool) {
	slot := c.slot(o, i)
	whole := at == 0 && len(b) == pageBytes
	if whole && share && bytes.Equal(b, zeroPage.data[:]) {
		*slot = zeroPage
		return
	}
	if old := *slot; old == nil || old.owner != o {
		*slot = &page{owner: o}
		if old != nil && !whole {
			(*slot).data = old.data
		}
	}
	copy((*slot).data[at:], b)
}

// read copies bytes from off on into p, whose end must not be behind size.
func (c *content) read(p []byte, off int64) {
	for len(p) > 0 {
		i, at := off/pageBytes, int(off%pageBytes)
		n := min(len(p), pageBytes-at)
		if pg := c.page(i); pg != nil {
			copy(p[:n], pg.data[at:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// resize changes the size. What is cut off reads as zeros if it comes back.
func (c *content) resize(o *owner, size int64) {
	if size < c.size {
		if at := int(size % pageBytes); at > 0 {
			i := size / pageBytes
			if pg := c.page(i); pg != nil && !bytes.Equal(pg.data[at:], zeroPage.data[at:]) {
				c.put(o, i, at, zeroPage.data[at:], false)
			}
		}
		c.drop(o, pagesFor(size))
	}
	c.size = size
}

// drop forgets the pages from first on.
func (c *content) drop(o *owner, first int64) {
	for i := first; i%leafPages != 0 && i/leafPages < int64(len(c.leaves)); i++ {
		if c.page(i) != nil {
			*c.slot(o, i) = nil
		}
	}
	if keep := (first + leafPages - 1) / leafPages; keep < int64(len(c.leaves)) {
		c.leaves = append([]*leaf(nil), c.leaves[:keep]...)
		c.owner = o
	}
}

// differing returns, in ascending order, the pages below limit that are not the
// same in c and d. It costs little where they share leaves.
func (c *content) differing(d *content, limit int64) []int64 {
	var list []int64
	for l := range int64(max(len(c.leaves), len(d.leaves))) {
		if l < int64(min(len(c.leaves), len(d.leaves))) && c.leaves[l] == d.leaves[l] {
			continue
		}
		for i := l * leafPages; i < min((l+1)*leafPages, limit); i++ {
			if c.page(i) != d.page(i) {
				list = append(list, i)
			}
		}
	}
	return list
}

// written returns the number of pages from first on that have been written.
func (c *content) written(first int64) int64 {
	var n int64
	for at := first / leafPages; at < int64(len(c.leaves)); at++ {
		if c.leaves[at] == nil {
			continue
		}
		for _, pg := range c.leaves[at].pages[max(first-at*leafPages, 0):] {
			if pg != nil {
				n++
			}
		}
	}
	return n
}
