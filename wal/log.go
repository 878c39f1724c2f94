package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/snakream/snakream/internal/vfs"
)

// ErrClosed is what a closed log returns.
var ErrClosed = errors.New("wal: the log is closed")

// Log is an open log. The package documentation says who may call what.
type Log struct {
	cfg Config // immutable

	// The turn's: what has been staged, which may be ahead of the disk.
	turn struct {
		cur    *logFile
		off    int64    // where in cur the staged batch begins
		head   Position // of the last record staged
		batch  *Batch   // the one begun last
		other  *Batch   // may be committing
		rotate bool     // the next batch shall begin a new file
	}

	// The disk goroutine's: takes batches with referenced bodies.
	bounce []byte

	committed atomic.Uint64 // number of the last durable batch
	deferred  atomic.Bool   // a released file waits for committed to grow
	failure   atomic.Pointer[failure]
	closed    atomic.Bool
	current   atomic.Int64 // turn.off, for Stats
	counts    counts

	mu      sync.Mutex // guards what follows
	next    *logFile   // the prepared file; nil while there is none
	waiting bool       // Begin was false and Ready has not been called since
	noSpace bool       // the last attempt to prepare failed so
	hope    bool       // a released file was taken back since
	old     []*logFile // left by the turn and not yet taken back, oldest first
	low     Position   // everything up to it may go

	// The preparer's, and Open's before it starts.
	prep preparer
}

// logFile is an open file of the log or a spare.
type logFile struct {
	fileHeader
	f    vfs.File
	path string
	last Position // of its last record; known when the turn has left the file
	used int64    // bytes up to the end of its last batch; likewise
}

// failure wraps the first error, which is final.
type failure struct{ err error }

// counts are the running totals behind Stats.
type counts struct {
	batches, records, bytes      atomic.Uint64
	rotations, recycled, removed atomic.Uint64
	waits                        atomic.Uint64
}

// Stats describes a log. Totals are since Open.
type Stats struct {
	Files       int    // files that hold batches not yet released, the current one included
	Spares      int    // zeroed files that wait for reuse, the prepared next one included
	PinnedBytes int64  // used in Files, but for the batch begun last: what Release can free at most
	Batches     uint64 // committed
	Records     uint64 // committed
	Bytes       uint64 // written by commits, padding included
	Rotations   uint64 // files begun
	Recycled    uint64 // released files that were zeroed for reuse
	Removed     uint64 // released files that were removed
	Waits       uint64 // times that Begin found no file ready
}

func newLog(cfg Config) *Log {
	l := &Log{cfg: cfg}
	l.prep.init()
	return l
}

// allocate makes the batches.
func (l *Log) allocate() {
	size := int(min(BatchBytes+bufferRoom, l.cfg.FileBytes))
	l.turn.batch = &Batch{log: l, standard: vfs.Aligned(size)}
	l.turn.other = &Batch{log: l, standard: vfs.Aligned(size)}
}

// Err returns the error that ended the log: the first from the disk, or ErrClosed.
// It is nil while the log works; a full disk doesn't end it.
func (l *Log) Err() error {
	if f := l.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail keeps the first error and returns it.
func (l *Log) fail(err error) error {
	l.failure.CompareAndSwap(nil, &failure{err})
	return l.Err()
}

// NoSpace reports whether the next file can't be made because the disk is full, and
// none that was released is about to take its place. Begin is false then as soon as
// the current file is. The preparer tries again, at intervals and whenever a file is
// released.
func (l *Log) NoSpace() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noSpace && !(l.released() && l.committed.Load() > l.old[0].last.Batch)
}

// MaxRecord returns the largest sum of head and body, in bytes, that Add takes: a
// record fits a file.
func (l *Log) MaxRecord() int64 { return l.cfg.maxRecord() }

// MaxBatch returns the largest bound, in bytes, that Begin takes.
func (l *Log) MaxBatch() int64 { return l.cfg.FileBytes - headerBytes }

// Release says that everything up to p, which must have been committed, is durable
// elsewhere. Files wholly at or below p are zeroed for reuse or removed, in the
// background. A file goes only after a batch behind it has been committed: the log
// on disk is never without a batch, and so a lost file is always noticed.
func (l *Log) Release(p Position) {
	l.mu.Lock()
	if p.Batch > l.low.Batch {
		l.low = p
	}
	l.mu.Unlock()
	l.prep.ring()
}

// Stats returns the current numbers.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Files:     len(l.old) + 1,
		Spares:    int(l.prep.spares.Load()),
		Batches:   l.counts.batches.Load(),
		Records:   l.counts.records.Load(),
		Bytes:     l.counts.bytes.Load(),
		Rotations: l.counts.rotations.Load(),
		Recycled:  l.counts.recycled.Load(),
		Removed:   l.counts.removed.Load(),
		Waits:     l.counts.waits.Load(),
	}
	for _, f := range l.old {
		s.PinnedBytes += f.used
	}
	s.PinnedBytes += l.current.Load()
	if l.next != nil {
		s.Spares++
	}
	return s
}

// Close stops the preparer and closes the files. No commit may be in progress and
// no batch may be staged. Everything committed stays durable.
func (l *Log) Close() error {
	l.fail(ErrClosed)
	if l.closed.Swap(true) {
		return nil
	}
	l.prep.halt()
	return l.closeFiles()
}

func (l *Log) closeFiles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := append(l.old, l.prep.pool...)
	for _, f := range []*logFile{l.turn.cur, l.next} {
		if f != nil {
			files = append(files, f)
		}
	}
	var errs []error
	for _, f := range files {
		if err := f.f.Close(); err != nil {
			errs = append(errs, fmt.Errorf("wal: close %s: %w", f.path, err))
		}
	}
	return errors.Join(errs...)
}
