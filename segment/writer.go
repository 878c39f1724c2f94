package segment

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// A Writer writes one segment, stream by stream in ascending order of ids. For each
// stream: Begin, then in any order its payload, its boundaries and its rows.
// Payload goes straight to the file; boundaries, rows and footer are held in memory
// until Finish. The first error is final: every later call returns it, and the
// owner calls Abort. Nothing is durable before Finish. Not for concurrent use.
type Writer struct {
	fs   vfs.FS
	path string
	out  output
	lay  layout
	err  error
	done bool // Finish has succeeded, or Abort was called

	bounds, rows, footer []byte // what waits for Finish

	open bool       // Begin was called, for …
	cur  openStream // … this stream
}

// openStream is the stream that is being written.
type openStream struct {
	id  base.StreamID
	row footerRow // its lengths are set at the end of the stream

	payloadPos        int64 // where in the payload region it begins
	boundsPos, rowPos int   // and where in the writer's bounds and rows

	last     uint64 // where in the run its last message ends
	pending  uint64 // the length of that message, not yet in the bounds
	restarts []byte
	key      []byte // of its last row
	keyed    bool   // it has a row
}

// Create makes the file path for the segment id and allocates sizeHint bytes, which
// Finish cuts to what is needed; a larger segment allocates more as it grows. kind
// is kept for the reader. An error may match vfs.ErrNoSpace; the file is gone then.
func Create(fs vfs.FS, path string, id base.SegmentID, sizeHint int64, kind uint8) (*Writer, error) {
	f, err := fs.Create(path)
	if err != nil {
		return nil, fmt.Errorf("segment: create: %w", err)
	}
	w := &Writer{fs: fs, path: path, out: newOutput(f, path), lay: layout{id: id, kind: kind}}
	if err := w.out.allocate(min(sizeHint, MaxBytes)); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Pace has the writer sync as it goes: Finish would make the disk busy with all of a
// large segment at once, while others wait for their own syncs. It syncs each half
// megabyte, and each 16 KiB once busy says that somebody has synced since it was asked
// last, and for some megabytes after that. Until it can know it syncs each block. busy may be nil.
func (w *Writer) Pace(busy func() bool) { w.out.pace(busy) }

// spacious returns b with room for n more bytes. It doubles: append makes a large slice
// a quarter larger, and so several times as much garbage as it grows to.
func spacious(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return slices.Grow(b, max(n, cap(b), 4<<10))
}

// fail makes err the writer's final error.
func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

func (w *Writer) disorder(format string, args ...any) error {
	return w.fail(fmt.Errorf("segment %s: stream %d: %s: %w", w.path, w.cur.id, fmt.Sprintf(format, args...), ErrOrder))
}

// Begin starts the next stream, whose id is above all before it. Its run begins at
// start with the message of ordinal firstRecord.
func (w *Writer) Begin(id base.StreamID, start base.Offset, firstRecord uint64) error {
	if err := w.endStream(); err != nil {
		return err
	}
	if id <= w.cur.id {
		return w.disorder("stream %d after it", id)
	}
	w.open = true
	w.cur = openStream{
		id:         id,
		row:        footerRow{idDelta: uint64(id - w.cur.id), start: start, firstRecord: firstRecord},
		payloadPos: w.lay.payload,
		boundsPos:  len(w.bounds),
		rowPos:     len(w.rows),
		restarts:   w.cur.restarts[:0],
		key:        w.cur.key[:0],
	}
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
	if err := w.out.write(p); err != nil {
		return w.fail(err)
	}
	return nil
}

// Boundary says that a message ends at the offset end. Ends ascend, and the last
// one is the end of the run.
func (w *Writer) Boundary(end base.Offset) error {
	c := &w.cur
	rel := uint64(end - c.row.start) // wraps around when it is before the start
	switch {
	case w.err != nil:
		return w.err
	case !w.open:
		return w.disorder("a boundary before Begin")
	case end <= c.row.start || rel <= c.last:
		return w.disorder("boundary %d after one at %d", end, c.row.start+base.Offset(c.last))
	}
	// Only now is it known that the message before is not the last of the run, whose
	// length is not written.
	if c.row.records > 0 {
		if i := c.row.records - 1; i > 0 && i%groupRecords == 0 {
			c.restarts = bin.AppendU64(c.restarts, c.last-c.pending)
			c.restarts = bin.AppendU64(c.restarts, uint64(len(w.bounds)-c.boundsPos))
		}
		w.bounds = bin.AppendUvarint(spacious(w.bounds, maxUvarint), c.pending)
	}
	c.row.records++
	c.pending, c.last = rel-c.last, rel
	return nil
}

// Row adds a row of the stream. Keys ascend bytewise. The row is copied.
func (w *Writer) Row(r Row) error {
	c := &w.cur
	switch {
	case w.err != nil:
		return w.err
	case !w.open:
		return w.disorder("a row before Begin")
	case len(r.Key) > MaxKeyBytes || len(r.Value) > MaxValueBytes:
		return w.disorder("a row of %d + %d bytes", len(r.Key), len(r.Value))
	case c.keyed && bytes.Compare(r.Key, c.key) <= 0:
		return w.disorder("row %q after %q", r.Key, c.key)
	}
	w.rows = appendRow(spacious(w.rows, maxRowHead+len(r.Key)+len(r.Value)), r)
	c.key, c.keyed = append(c.key[:0], r.Key...), true
	return nil
}

// endStream writes the footer row of the stream that is open, if there is one.
func (w *Writer) endStream() error {
	if w.err != nil || !w.open {
		return w.err
	}
	c := &w.cur
	r := &c.row
	r.payload = w.lay.payload - c.payloadPos
	switch {
	case c.last != uint64(r.payload):
		return w.disorder("the last message ends at %d in a run of %d bytes", c.last, r.payload)
	case uint64(r.start) > math.MaxUint64-uint64(r.payload) || r.firstRecord > math.MaxUint64-r.records:
		return w.disorder("offset or ordinal overflows")
	}
	w.bounds = append(spacious(w.bounds, len(c.restarts)), c.restarts...)
	r.bounds, r.rows = int64(len(w.bounds)-c.boundsPos), int64(len(w.rows)-c.rowPos)
	w.footer = appendFooterRow(spacious(w.footer, maxFooterRow), *r)
	w.lay.streams++
	w.open = false
	c.restarts = c.restarts[:0]
	return nil
}

// Size returns the size that the file would have if it were finished now, or a
// little more.
func (w *Writer) Size() int64 {
	l := w.lay
	l.bounds, l.rows, l.footer = int64(len(w.bounds)+len(w.cur.restarts)), int64(len(w.rows)), int64(len(w.footer))
	if w.open {
		l.footer += maxFooterRow
	}
	return l.end()
}

// Finish ends the last stream, writes what is left, cuts the file to its size, syncs
// its contents and closes it. The directory entry is the caller's to sync, after
// the rename if there is one. After an error the caller calls Abort.
func (w *Writer) Finish() (size int64, err error) {
	if err := w.endStream(); err != nil {
		return 0, err
	}
	if w.done {
		return 0, w.disorder("finished twice")
	}
	l := &w.lay
	l.bounds, l.rows, l.footer = int64(len(w.bounds)), int64(len(w.rows)), int64(len(w.footer))
	l.size = l.end()
	if l.size > MaxBytes {
		return 0, w.disorder("a segment of %d bytes", l.size)
	}
	if err := w.finish(); err != nil {
		return 0, w.fail(err)
	}
	w.done = true
	return l.size, nil
}

func (w *Writer) finish() error {
	for _, region := range [][]byte{w.bounds, w.rows} { // the bounds end the data region
		if err := w.out.write(region); err != nil {
			return err
		}
		if err := w.out.endRegion(); err != nil {
			return err
		}
	}
	w.lay.tableSum, w.lay.footerSum = bin.Sum(w.out.table), bin.Sum(w.footer)
	for _, p := range [][]byte{w.out.table, w.footer, encodeTrailer(&w.lay)} {
		if err := w.out.append(p); err != nil {
			return err
		}
	}
	if err := w.out.writeAt(encodeHeader(w.lay.id, w.lay.kind, formatVersion), 0); err != nil {
		return err
	}
	return w.out.close()
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
	_ = w.out.f.Close()
	_ = w.fs.Remove(w.path)
}
