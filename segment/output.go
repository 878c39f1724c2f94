package segment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

const (
	writeBytes    = 512 << 10 // a write of the payload, and what a paced writer leaves to the page cache, …
	politeFor     = 64
	politeBytes   = 16 << 10 // … while nobody else syncs; else this
	allocateBytes = 8 << 20  // beyond the size hint
)

// output writes a file from the end of its header on, and sums the blocks of the
// regions that go through write. Its errors name the file.
type output struct {
	f         vfs.File
	path      string
	buf       []byte // to be written at pos; it begins with the beginning of a block
	summed    int    // so much of buf is in the table
	pos       int64
	allocated int64
	unit      int // of buf, at which it is written; whole blocks
	portion   int // in which a paced writer writes and syncs it
	paced     bool
	busy      func() bool // see Writer.Pace
	polite    int         // blocks in small portions that are left, if positive
	dirty     int64       // written and not synced
	table     []byte      // the checksum table so far
}

func newOutput(f vfs.File, path string) output {
	return output{f: f, path: path, buf: vfs.Aligned(writeBytes)[:0], unit: writeBytes, portion: writeBytes, pos: headerBytes}
}

// write adds p to the region that is being written.
func (o *output) write(p []byte) error {
	for len(p) > 0 {
		n := copy(o.buf[len(o.buf):o.unit], p)
		o.buf, p = o.buf[:len(o.buf)+n], p[n:]
		for len(o.buf)-o.summed >= BlockBytes {
			o.sum(o.summed + BlockBytes)
		}
		if len(o.buf) == o.unit {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds the block that ends at to in the buffer to the table.
func (o *output) sum(to int) {
	o.table = bin.AppendU64(o.table, bin.Sum(o.buf[o.summed:to]))
	o.summed = to
}

// endRegion sums the last, short block, and writes what is buffered.
func (o *output) endRegion() error {
	if len(o.buf) > o.summed {
		o.sum(len(o.buf))
	}
	return o.flush()
}

func (o *output) flush() error {
	for p := range slices.Chunk(o.buf, o.portion) {
		if o.paced && o.dirty >= int64(o.portion) && len(p) == o.portion { // what is less is for close to sync
			if err := o.sync(); err != nil {
				return err
			}
		}
		if err := o.append(p); err != nil {
			return err
		}
	}
	o.buf, o.summed = o.buf[:0], 0
	if o.paced {
		o.choose()
	}
	return nil
}

// pace begins block by block: nobody knows yet whether others sync.
func (o *output) pace(busy func() bool) {
	o.paced, o.busy = true, busy
	if busy != nil {
		o.polite, o.unit, o.portion = politeFor, BlockBytes, BlockBytes
	}
}

// choose takes small portions from when somebody else has synced until nobody has for
// politeFor blocks: most portions take less time than passes between two others' syncs.
func (o *output) choose() {
	o.polite--
	switch {
	case o.busy != nil && o.busy():
		o.polite, o.unit, o.portion = politeFor, BlockBytes, politeBytes
	case o.polite <= 0:
		o.unit, o.portion = writeBytes, writeBytes
	}
}

// append writes p at the end of the file.
func (o *output) append(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := o.allocate(o.pos + int64(len(p))); err != nil {
		return err
	}
	if err := o.writeAt(p, o.pos); err != nil {
		return err
	}
	o.pos += int64(len(p))
	o.dirty += int64(len(p))
	return nil
}

// sync syncs what has been written.
func (o *output) sync() error {
	o.dirty = 0
	if err := o.f.Datasync(); err != nil {
		return fmt.Errorf("segment: sync %s: %w", o.path, err)
	}
	return nil
}

func (o *output) writeAt(p []byte, pos int64) error {
	if _, err := o.f.WriteAt(p, pos); err != nil {
		return fmt.Errorf("segment: write %s: %w", o.path, err)
	}
	return nil
}

// allocate makes sure that the first size bytes of the file have their place on the
// disk, so that it is here that a full disk shows.
func (o *output) allocate(size int64) error {
	if size <= o.allocated {
		return nil
	}
	more := size
	if o.allocated > 0 {
		more = max(size, o.allocated+allocateBytes)
	}
	err := o.f.Allocate(more)
	if more > size && errors.Is(err, vfs.ErrNoSpace) { // then only what it takes
		more = size
		err = o.f.Allocate(more)
	}
	if err != nil {
		return fmt.Errorf("segment: allocate %d bytes for %s: %w", more, o.path, err)
	}
	o.allocated = more
	return nil
}

// close cuts the file to what was written, syncs its contents and closes it.
func (o *output) close() error {
	if err := o.f.Truncate(o.pos); err != nil {
		return fmt.Errorf("segment: truncate %s: %w", o.path, err)
	}
	if err := o.sync(); err != nil {
		return err
	}
	if err := o.f.Close(); err != nil {
		return fmt.Errorf("segment: close %s: %w", o.path, err)
	}
	return nil
}
