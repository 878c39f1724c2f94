package vfstest

import (
	"bytes"
	"math"
)

// inode is a file: what a reader sees, and what a power cut is sure to leave.
// Everything is guarded by the mutex of its MemFS.
type inode struct {
	owner *owner // of what now has been given since it was last copied

	now     content // what a reader sees
	durable content // what the medium surely holds
	// clean is what a sync takes as written already. It is durable, except that
	// a sync that failed makes pages clean that the medium may not hold, as Linux
	// does: only writing them again makes them durable.
	clean content
	// cut is the smallest size that the file was truncated to since the last
	// sync; math.MaxInt64 for none.
	cut int64
	// failed says that a sync has failed: clean may not be durable.
	failed bool

	reserved int64 // pages below it are paid for, written or not
	charged  int64 // pages taken from the free space
	handles  int   // open files
	linked   bool  // has a name
	locked   bool
}

func newInode() *inode { return &inode{owner: new(owner), cut: math.MaxInt64, linked: true} }

// restored returns the file that a machine finds that has c on its medium.
func restored(c content, reserved int64) *inode {
	n := newInode()
	n.now, n.durable, n.clean = c, c, c
	n.reserved = min(reserved, pagesFor(c.size))
	n.charged = n.reserved + c.written(n.reserved)
	return n
}

// clone returns a copy that shares pages until one of the two writes them.
func (n *inode) clone() *inode {
	n.owner = new(owner)
	c := *n
	c.owner = new(owner)
	c.handles, c.locked = 0, false
	return &c
}

// cost returns the pages that writing [off, off+length) takes from the free space.
func (n *inode) cost(off, length int64) int64 {
	var pages int64
	for i := max(off/pageBytes, n.reserved); i < pagesFor(off+length); i++ {
		if n.now.page(i) == nil {
			pages++
		}
	}
	return pages
}

// write writes p at off. The caller has paid cost.
func (n *inode) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	n.charged += n.cost(off, int64(len(p)))
	n.now.size = max(n.now.size, off+int64(len(p)))
	for len(p) > 0 {
		i, at := off/pageBytes, int(off%pageBytes)
		part := min(len(p), pageBytes-at)
		n.now.put(n.owner, i, at, p[:part], !n.failed)
		p, off = p[part:], off+int64(part)
	}
}

// allocate reserves [0, size). The caller has paid cost.
func (n *inode) allocate(size int64) {
	n.charged += n.cost(0, size)
	n.reserved = max(n.reserved, pagesFor(size))
	n.now.size = max(n.now.size, size)
}

// truncate changes the size and returns the pages that became free.
func (n *inode) truncate(size int64) int64 {
	if size < n.now.size {
		n.cut = min(n.cut, size)
	}
	n.now.resize(n.owner, size)
	n.reserved = min(n.reserved, pagesFor(size))
	before := n.charged
	n.charged = n.reserved + n.now.written(n.reserved)
	return before - n.charged
}

// sync makes durable what was written since the last sync, failed ones included.
func (n *inode) sync() {
	if n.failed {
		c, o := n.durable, new(owner)
		c.resize(o, min(c.size, n.cut))
		for _, i := range n.now.differing(&n.clean, math.MaxInt64) {
			*c.slot(o, i) = n.now.page(i)
		}
		c.resize(o, n.now.size)
		n.durable = c
	} else {
		n.durable = n.now
	}
	n.clean, n.cut = n.now, math.MaxInt64
	n.owner = new(owner)
}

// syncFailed does to the file what a failed fdatasync does: the pages count as
// clean from now on, whether or not they reached the medium.
func (n *inode) syncFailed() {
	n.clean, n.failed = n.now, true
	n.owner = new(owner)
}

// crashed returns what a power cut leaves of the file.
func (n *inode) crashed(dice *dice) *inode {
	n.owner = new(owner) // the pages of now are shared from here on
	o := new(owner)
	c := n.durable
	limit := pagesFor(n.now.size)
	var size int64
	switch {
	case n.cut >= c.size:
		size = dice.between(c.size, n.now.size)
	case dice.coin(): // the truncation came through
		c.resize(o, n.cut)
		size = dice.between(n.cut, n.now.size)
	default: // it did not, so neither did anything behind it
		size = c.size
		limit = n.cut / pageBytes
	}
	dirty := n.now.differing(&c, min(limit, pagesFor(size)))
	for at := range dice.subset(len(dirty)) {
		*c.slot(o, dirty[at]) = n.now.page(dirty[at])
	}
	c.size = max(c.size, n.now.size) // kept pages may hold bytes up to there
	c.resize(o, size)
	return restored(c, n.reserved)
}

// corrupt lets f edit the bytes from off on, as if the medium had changed them.
func (n *inode) corrupt(off int64, f func([]byte)) {
	was := make([]byte, n.now.size-off)
	n.now.read(was, off)
	is := bytes.Clone(was)
	f(is)
	o := new(owner)
	for len(is) > 0 {
		i, at := off/pageBytes, int(off%pageBytes)
		part := min(len(is), pageBytes-at)
		if !bytes.Equal(is[:part], was[:part]) {
			n.now.put(o, i, at, is[:part], false)
			*n.durable.slot(o, i) = n.now.page(i)
			*n.clean.slot(o, i) = n.now.page(i)
			n.durable.size = max(n.durable.size, off+int64(part))
		}
		is, was, off = is[part:], was[part:], off+int64(part)
	}
	n.owner = new(owner)
}
