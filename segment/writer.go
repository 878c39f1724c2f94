package segment

import (
	"bytes"
	"fmt"
	"math"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

const (
	writeBytes    = 1 << 20 // a write of the payload
	allocateBytes = 8 << 20 // beyond the size hint
)

// A Writer writes one segment, stream by stream in ascending order of ids. For each
// stream: Begin, then in any order its payload, its boundaries and its rows.
// Payload goes straight to the file; boundaries, rows and footer are held in memory
// until Finish. The first error is final: every later call returns it, and the
// owner calls Abort. Nothing is durable before Finish. Not for concurrent use.
type Writer struct {
	fs   vfs.FS
	path string
	f    vfs.File
	lay  layout
	err  error
	done bool // Finish has succeeded, or Abort was called

	// The file so far.
	buf       []byte // to be written at filePos
	summed    int    // so much of buf is in the checksum table
	filePos   int64
	allocated int64
	table     []byte

	// What waits for Finish.
	bounds, rows, footer []byte

	// The stream that Begin was called for.
	open      bool
	id        base.StreamID
	row       footerRow // its payload, bounds and rows are set at its end
	from      int64     // lay.payload at Begin
	boundsPos int       // len(bounds) at Begin
	rowsPos   int       // len(rows) at Begin
	last      uint64    // end of its last message, relative to the start
	pending   uint64    // length of that message, if there is one
	restarts  []byte
	key       []byte // of its last row
	keyed     bool   // it has a row
}

// Create makes the file path for the segment id and allocates sizeHint bytes, which
// Finish cuts to what is needed; a larger segment allocates more as it grows. kind
// is kept for the reader. An error may match vfs.ErrNoSpace; the file is gone then.
func Create(fs vfs.FS, path string, id base.SegmentID, sizeHint int64, kind uint8) (*Writer, error) {
	f, err := fs.Create(path)
	if err != nil {
		return nil, fmt.Errorf("segment: create: %w", err)
	}
	w := &Writer{fs: fs, path: path, f: f, filePos: headerBytes}
	w.lay.id, w.lay.kind = id, kind
	w.buf = vfs.Aligned(writeBytes)[:0]
	if err := w.allocate(min(sizeHint, MaxBytes)); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// fail makes err the writer's final error.
func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

func (w *Writer) disorder(format string, args ...any) error {
	return w.fail(fmt.Errorf("segment %s: stream %d: %s: %w", w.path, w.id, fmt.Sprintf(format, args...), ErrOrder))
}

// Begin starts the next stream, whose id is above all before it. Its run begins at
// start with the message of ordinal firstRecord.
func (w *Writer) Begin(id base.StreamID, start base.Offset, firstRecord uint64) error {
	if err := w.endStream(); err != nil {
		return err
	}
	if id <= w.id {
		return w.disorder("before stream %d", id)
	}
	w.row = footerRow{idDelta: uint64(id - w.id), start: start, firstRecord: firstRecord}
	w.open, w.id = true, id
	w.from, w.boundsPos, w.rowsPos = w.lay.payload, len(w.bounds), len(w.rows)
	w.last, w.pending, w.restarts = 0, 0, w.restarts[:0]
	w.key, w.keyed = w.key[:0], false
	return nil
}

// Payload appends p, which it copies, to the stream's run.
func (w *Writer) Payload(p []byte) error {
	switch {
	case w.err != nil:
		return w.err
	case !w.open:
		return w.disorder("payload before Begin")
	case int64(len(p)) > MaxBytes-w.Size():
		return w.disorder("a segment of more than %d bytes", int64(MaxBytes))
	}
	w.lay.payload += int64(len(p))
	return w.write(p)
}

// Boundary says that a message ends at the offset end. Ends ascend, and the last
// one is the end of the run.
func (w *Writer) Boundary(end base.Offset) error {
	rel := uint64(end - w.row.start) // wraps around when it is before the start
	switch {
	case w.err != nil:
		return w.err
	case !w.open:
		return w.disorder("a boundary before Begin")
	case end <= w.row.start || rel <= w.last:
		return w.disorder("boundary %d after one at %d", end, w.row.start+base.Offset(w.last))
	}
	// The length of the message before this one is due now: the last one has none.
	if n := w.row.records; n > 0 {
		if i := n - 1; i > 0 && i%groupRecords == 0 {
			w.restarts = bin.AppendU64(w.restarts, w.last-w.pending)
			w.restarts = bin.AppendU64(w.restarts, uint64(len(w.bounds)-w.boundsPos))
		}
		w.bounds = bin.AppendUvarint(w.bounds, w.pending)
	}
	w.row.records++
	w.pending, w.last = rel-w.last, rel
	return nil
}

// Row adds a row of the stream. Keys ascend bytewise. The row is copied.
func (w *Writer) Row(r Row) error {
	switch {
	case w.err != nil:
		return w.err
	case !w.open:
		return w.disorder("a row before Begin")
	case len(r.Key) > MaxKeyBytes || len(r.Value) > MaxValueBytes:
		return w.disorder("a row of %d + %d bytes", len(r.Key), len(r.Value))
	case w.keyed && bytes.Compare(r.Key, w.key) <= 0:
		return w.disorder("row %q after %q", r.Key, w.key)
	}
	w.rows = appendRow(w.rows, r)
	w.key, w.keyed = append(w.key[:0], r.Key...), true
	return nil
}

// endStream writes the footer row of the stream that is open, if there is one.
func (w *Writer) endStream() error {
	if w.err != nil || !w.open {
		return w.err
	}
	r := &w.row
	r.payload = w.lay.payload - w.from
	switch {
	case w.last != uint64(r.payload):
		return w.disorder("the last message ends at %d in a run of %d bytes", w.last, r.payload)
	case uint64(r.start) > math.MaxUint64-uint64(r.payload) || r.firstRecord > math.MaxUint64-r.records:
		return w.disorder("offset or ordinal overflows")
	}
	w.bounds = append(w.bounds, w.restarts...)
	r.bounds, r.rows = int64(len(w.bounds)-w.boundsPos), int64(len(w.rows)-w.rowsPos)
	w.footer = appendFooterRow(w.footer, *r)
	w.lay.streams++
	w.open = false
	return nil
}

// Size returns the size that the file would have if it were finished now, or a
// little more.
func (w *Writer) Size() int64 {
	l := w.lay
	l.bounds, l.rows, l.footer = int64(len(w.bounds)+len(w.restarts)), int64(len(w.rows)), int64(len(w.footer))
	if w.open {
		l.footer += maxFooterRow
	}
	return l.end()
}

// Finish ends the last stream, writes what is left, cuts the file to its size, syncs
// its contents and closes it. The directory entry is the caller's to sync, after
// the rename if there is one. After an error the caller calls Abort.
func (w *Writer) Finish() (size int64, err error) {
	if w.done {
		return 0, w.disorder("finished twice")
	}
	if err := w.endStream(); err != nil {
		return 0, err
	}
	w.lay.bounds, w.lay.rows, w.lay.footer = int64(len(w.bounds)), int64(len(w.rows)), int64(len(w.footer))
	w.lay.size = w.lay.end()
	if w.lay.size > MaxBytes {
		return 0, w.disorder("a segment of %d bytes", w.lay.size)
	}
	if err := w.finish(); err != nil {
		return 0, w.fail(fmt.Errorf("segment: finish %s: %w", w.path, err))
	}
	w.done = true
	return w.lay.size, nil
}

func (w *Writer) finish() error {
	if err := w.allocate(w.lay.size); err != nil {
		return err
	}
	for _, region := range [][]byte{w.bounds, w.rows} { // the bounds end the data region
		if err := w.write(region); err != nil {
			return err
		}
		if err := w.endRegion(); err != nil {
			return err
		}
	}
	w.lay.tableSum, w.lay.footerSum = bin.Sum(w.table), bin.Sum(w.footer)
	for _, p := range [][]byte{w.table, w.footer, encodeTrailer(&w.lay)} {
		if err := w.writeAt(p, w.filePos); err != nil {
			return err
		}
		w.filePos += int64(len(p))
	}
	if err := w.writeAt(encodeHeader(w.lay.id, w.lay.kind, formatVersion), 0); err != nil {
		return err
	}
	if err := w.f.Truncate(w.lay.size); err != nil {
		return err
	}
	if err := w.f.Datasync(); err != nil {
		return err
	}
	return w.f.Close()
}

// Abort closes and removes the file. It does nothing after a Finish that succeeded,
// so it may be deferred. A file that cannot be removed has no reference and goes at
// the next start.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.fail(fmt.Errorf("segment %s: aborted: %w", w.path, ErrOrder))
	_ = w.f.Close()
	_ = w.fs.Remove(w.path)
}

// write adds p to the region that is being written. The buffer always begins at the
// beginning of a block.
func (w *Writer) write(p []byte) error {
	for len(p) > 0 {
		n := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf, p = w.buf[:len(w.buf)+n], p[n:]
		for len(w.buf)-w.summed >= BlockBytes {
			w.sum(w.summed + BlockBytes)
		}
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds the block that ends at to in the buffer to the table.
func (w *Writer) sum(to int) {
	w.table = bin.AppendU64(w.table, bin.Sum(w.buf[w.summed:to]))
	w.summed = to
}

// endRegion sums the last, short block, and writes what is buffered.
func (w *Writer) endRegion() error {
	if len(w.buf) > w.summed {
		w.sum(len(w.buf))
	}
	return w.flush()
}

func (w *Writer) flush() error {
	if err := w.allocate(w.filePos + int64(len(w.buf))); err != nil {
		return err
	}
	if err := w.writeAt(w.buf, w.filePos); err != nil {
		return err
	}
	w.filePos += int64(len(w.buf))
	w.buf, w.summed = w.buf[:0], 0
	return nil
}

func (w *Writer) writeAt(p []byte, pos int64) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := w.f.WriteAt(p, pos); err != nil {
		return w.fail(fmt.Errorf("segment: write %s: %w", w.path, err))
	}
	return nil
}

// allocate makes sure that the first size bytes of the file have their place on the
// disk, so that it is here that a full disk shows.
func (w *Writer) allocate(size int64) error {
	if size <= w.allocated {
		return nil
	}
	if w.allocated > 0 {
		size = max(size, w.allocated+allocateBytes)
	}
	if err := w.f.Allocate(size); err != nil {
		return w.fail(fmt.Errorf("segment: allocate %d bytes for %s: %w", size, w.path, err))
	}
	w.allocated = size
	return nil
}
