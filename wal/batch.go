package wal

import (
	"fmt"
	"sync/atomic"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs"
)

const (
	// referenceBytes is the largest body that a batch copies, in bytes. Larger ones
	// stay where they are until they are written.
	referenceBytes = 64 << 10
	// bufferRoom is what a batch's buffer holds above BatchBytes, so that the record
	// that reaches that bound still fits.
	bufferRoom = referenceBytes + 8<<10
	// bounceBytes is the size of one write of a batch with referenced bodies.
	bounceBytes = 1 << 20
)

// Batch is a group of records that are committed together. A log has two, which
// take turns; a batch and its memory are used again by the second Begin after.
// Not safe for concurrent use; it belongs to the turn until it is handed to Commit.
type Batch struct {
	log   *Log
	state atomic.Int32 // one of the batch states: catches misuse

	file  *logFile
	off   int64 // where in file it will be
	limit int64 // bytes promised to Begin
	size  int64 // bytes added, referenced bodies included
	count uint32
	pos   Position // of the last record

	buf      []byte // records without referenced bodies
	standard []byte // the memory that buf has unless it had to grow
	refs     []reference
}

// reference is a body that belongs behind the first at bytes of the buffer.
type reference struct {
	at   int
	body []byte
}

const (
	batchFree int32 = iota
	batchStaged
	batchCommitting
)

// Begin starts the next batch, for records of at most n bytes in all (the sum of
// RecordBytes; at least 1, at most MaxBatch). It may begin a new file. It is false
// when that is not ready yet, and Ready will be called; and after a failure, see
// Err. A batch without records may be dropped; one with records must be on its way
// through Commit before the next Begin, and only one may be.
func (l *Log) Begin(n int64) (*Batch, bool) {
	if n <= 0 || n > l.MaxBatch() {
		panic(fmt.Sprintf("wal: a batch of %d bytes", n))
	}
	if l.failure.Load() != nil {
		return nil, false
	}
	t := &l.turn
	if t.batch.count > 0 { // its place in the file is taken
		t.off += roundUp(t.batch.size)
		l.current.Store(t.off)
		t.batch, t.other = t.other, t.batch
		if t.batch.state.Load() != batchFree {
			panic("wal: Begin while two batches are not committed")
		}
		t.batch.count, t.batch.size = 0, 0
	}
	full := t.off+roundUp(n) > t.cur.size
	t.rotate = t.rotate && t.off > headerBytes
	if full || t.rotate {
		switch {
		case l.advance():
			t.rotate = false
		case full:
			return nil, false
		}
	}
	b := t.batch
	b.state.Store(batchStaged)
	b.file, b.off, b.limit, b.pos = t.cur, t.off, n, t.head
	b.buf, b.refs = b.standard[:0], b.refs[:0]
	return b, true
}

// Rotate makes a later Begin start a new file, so that the current one can be
// released although it isn't full: the first Begin for which that file is ready, and
// Ready is called if the next one is too early. It is the turn's to call.
func (l *Log) Rotate() { l.turn.rotate = true }

// Rotating reports whether what Rotate asked for is still to come. The turn's.
func (l *Log) Rotating() bool { return l.turn.rotate }

// advance makes the prepared file the current one.
func (l *Log) advance() bool {
	t := &l.turn
	l.mu.Lock()
	if l.next == nil {
		l.waiting = true
		l.mu.Unlock()
		l.counts.waits.Add(1)
		return false
	}
	t.cur.last, t.cur.used = t.head, t.off
	l.old = append(l.old, t.cur)
	t.cur, l.next = l.next, nil
	t.off = headerBytes
	l.current.Store(t.off)
	l.mu.Unlock()
	l.counts.rotations.Add(1)
	l.prep.ring()
	return true
}

// Add appends a record to the batch and returns its LSN. The type is not zero;
// bodySum is the xxhash64 of the body and ignored when that is empty. The head and
// a body of up to 64 KiB are copied. A larger body is kept by reference: it must
// not change before Commit has returned.
func (b *Batch) Add(typ uint8, head, body []byte, bodySum uint64) base.LSN {
	n := RecordBytes(len(head), len(body))
	b.check(typ, n, body, bodySum)
	t := &b.log.turn
	if b.count == 0 {
		t.head.Batch++
	}
	t.head.LSN++
	b.pos = t.head
	h := recordHeader{
		file:       b.file.number,
		pos:        b.pos,
		payloadSum: payloadSum(head, len(body), bodySum),
		head:       uint32(len(head)),
		body:       uint32(len(body)),
		place:      b.count,
		typ:        typ,
	}
	b.count++
	b.size += n

	copied := len(body)
	if copied > referenceBytes {
		copied = 0
	}
	at := len(b.buf)
	b.grow(recordHeaderBytes + len(head) + copied)
	h.encode(b.buf[at:], b.file.salt)
	at += recordHeaderBytes
	at += copy(b.buf[at:], head)
	if copied > 0 {
		copy(b.buf[at:], body)
	} else if len(body) > 0 {
		b.refs = append(b.refs, reference{at: at, body: body})
	}
	return b.pos.LSN
}

func (b *Batch) check(typ uint8, n int64, body []byte, bodySum uint64) {
	switch {
	case b.state.Load() != batchStaged:
		panic("wal: Add to a batch that is not being staged")
	case typ == 0:
		panic("wal: record type zero")
	case b.size+n > b.limit:
		panic(fmt.Sprintf("wal: %d bytes in a batch that was begun for %d", b.size+n, b.limit))
	case n-recordHeaderBytes > b.log.cfg.maxRecord():
		panic(fmt.Sprintf("wal: a record of %d bytes", n))
	case invariants.Enabled && len(body) > 0 && bin.Sum(body) != bodySum:
		panic("wal: wrong sum of a record's body")
	}
}

// grow makes the buffer n bytes longer. The capacity stays a multiple of the block
// size, so that there is always room for padding.
func (b *Batch) grow(n int) {
	need := len(b.buf) + n
	if need > cap(b.buf) {
		buf := vfs.Aligned(max(need, 2*cap(b.buf)))
		copy(buf, b.buf)
		b.buf = buf[:len(b.buf)]
	}
	b.buf = b.buf[:need]
}

// Position returns the place of the batch's last record, or of the last one staged
// before it while it has none.
func (b *Batch) Position() Position { return b.pos }

// Len returns the number of records.
func (b *Batch) Len() int { return int(b.count) }

// Commit makes the records of b durable: one write, or several if it refers to
// large bodies, and one fdatasync. When it returns nil a crash can't undo them. The
// first error is final and comes back from every later call; the batch is then
// undecided, and Open will tell. One goroutine at a time; batches in their order.
func (l *Log) Commit(b *Batch) error {
	if err := l.Err(); err != nil {
		return err
	}
	if b.count == 0 {
		return nil
	}
	if !b.state.CompareAndSwap(batchStaged, batchCommitting) {
		panic("wal: Commit of a batch that was not begun")
	}
	// The turn may look at count and size while it begins the next batch, so
	// nothing is reset here but the references, which pin the callers' memory.
	padded := roundUp(b.size)
	if err := l.write(b); err != nil {
		return l.fail(fmt.Errorf("wal: write batch %d to %s: %w", b.pos.Batch, b.file.path, err))
	}
	if err := b.file.f.Datasync(); err != nil {
		return l.fail(fmt.Errorf("wal: sync batch %d in %s: %w", b.pos.Batch, b.file.path, err))
	}
	clear(b.refs)
	l.counts.batches.Add(1)
	l.counts.records.Add(uint64(b.count))
	l.counts.bytes.Add(uint64(padded))
	l.committed.Store(b.pos.Batch)
	b.state.Store(batchFree)
	if l.deferred.Load() {
		l.prep.ring()
	}
	return nil
}

// write writes the batch, padded with zeros to whole blocks.
func (l *Log) write(b *Batch) error {
	if len(b.refs) > 0 {
		return l.writeScattered(b)
	}
	n := len(b.buf)
	buf := b.buf[:roundUp(int64(n))]
	clear(buf[n:])
	_, err := b.file.f.WriteAt(buf, b.off)
	return err
}

// writeScattered writes buffer and referenced bodies in their order, through memory
// that is aligned.
func (l *Log) writeScattered(b *Batch) error {
	if l.bounce == nil {
		l.bounce = vfs.Aligned(bounceBytes)
	}
	w := bouncer{file: b.file.f, off: b.off, buf: l.bounce}
	from := 0
	for _, r := range b.refs {
		if err := w.add(b.buf[from:r.at]); err != nil {
			return err
		}
		if err := w.add(r.body); err != nil {
			return err
		}
		from = r.at
	}
	if err := w.add(b.buf[from:]); err != nil {
		return err
	}
	return w.flush()
}

// bouncer collects bytes and writes them in whole blocks, one behind the other.
type bouncer struct {
	file vfs.File
	off  int64  // of the first byte in buf
	buf  []byte // aligned
	n    int    // bytes in buf
}

func (w *bouncer) add(p []byte) error {
	for len(p) > 0 {
		n := copy(w.buf[w.n:], p)
		w.n, p = w.n+n, p[n:]
		if w.n == len(w.buf) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes what is there, padded to whole blocks: only for the last time, or
// when buf is full.
func (w *bouncer) flush() error {
	end := roundUp(int64(w.n))
	if end == 0 {
		return nil
	}
	clear(w.buf[w.n:end])
	_, err := w.file.WriteAt(w.buf[:end], w.off)
	w.off, w.n = w.off+end, 0
	return err
}
