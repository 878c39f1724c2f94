package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snakream/snakream/internal/vfs"
)

const (
	// zeroBytes is the size of one write when a file is filled with zeros: small, so
	// that a commit that comes in between waits little.
	zeroBytes = 256 << 10

	// The preparer tries again after retryMin, twice that, and so on up to retryMax
	// while the disk is full.
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

// errStopped ends the preparer's work in the middle.
var errStopped = errors.New("wal: the preparer was stopped")

// preparer makes the files that the turn will need and takes back those that it
// has left and that Release let go. Its goroutine starts in Open and ends in Close
// or at the first error.
type preparer struct {
	kick    chan struct{} // one pending ring is enough
	stop    chan struct{}
	running sync.WaitGroup
	spares  atomic.Int64 // len(pool), for Stats

	// The goroutine's, and Open's before it starts.
	pool   []*logFile // zeroed, synced, under spare names, all of Config.FileBytes
	newest uint64     // number of the last file made
	zeros  []byte     // aligned
	header []byte     // aligned, one block
}

func (p *preparer) init() {
	p.kick = make(chan struct{}, 1)
	p.stop = make(chan struct{})
	p.zeros = vfs.Aligned(zeroBytes)
	p.header = vfs.Aligned(headerBytes)
}

// ring makes the preparer look what there is to do. It never blocks.
func (p *preparer) ring() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *preparer) halt() {
	close(p.stop)
	p.running.Wait()
}

// start lets the preparer run, at once for the first time.
func (l *Log) start() {
	l.prep.ring()
	l.prep.running.Go(l.prepare)
}

func (l *Log) prepare() {
	var retry <-chan time.Time
	backoff := retryMin
	for {
		select {
		case <-l.prep.stop:
			return
		case <-l.prep.kick:
		case <-retry:
		}
		full, err := l.work()
		switch {
		case errors.Is(err, errStopped):
			return
		case err != nil:
			l.reportFailure(err)
			return
		case full:
			retry = time.After(backoff)
			backoff = min(2*backoff, retryMax)
		default:
			retry, backoff = nil, retryMin
		}
	}
}

// work does all there is to do. It reports whether the next file is missing because
// the disk is full; any other error is final. A file that is taken back may help
// out, so after each the next one is tried again.
func (l *Log) work() (full bool, err error) {
	for {
		if !full && l.needsNext() {
			err := l.prepareNext()
			full = errors.Is(err, vfs.ErrNoSpace)
			if err != nil && !full {
				return false, err
			}
			if full {
				l.reportNoSpace(err)
			}
			continue
		}
		f := l.takeReleased()
		if f == nil {
			return full, nil
		}
		if err := l.retire(f); err != nil {
			return false, err
		}
		full = false
	}
}

func (l *Log) needsNext() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next == nil
}

// prepareNext makes the next file and says so if Begin waits for it.
func (l *Log) prepareNext() error {
	f, err := l.makeFile(Position{})
	if err != nil {
		return err
	}
	l.mu.Lock()
	waiting := l.waiting
	l.next, l.noSpace, l.waiting = f, false, false
	l.mu.Unlock()
	if waiting {
		l.cfg.Ready()
	}
	return nil
}

// reportNoSpace tells the turn, once and after a released file has not helped, and
// leaves it waiting for the next file.
func (l *Log) reportNoSpace(err error) {
	l.mu.Lock()
	news := !l.noSpace
	ring := l.waiting && (news || l.hope)
	l.noSpace, l.hope = true, false
	l.mu.Unlock()
	if news {
		l.cfg.Logf("wal: %s: the next file can't be made: %v", l.cfg.Dir, err)
	}
	if ring {
		l.cfg.Ready()
	}
}

// reportFailure keeps the error and tells the turn.
func (l *Log) reportFailure(err error) {
	l.fail(err)
	l.mu.Lock()
	waiting := l.waiting
	l.mu.Unlock()
	if waiting {
		l.cfg.Ready()
	}
}

// makeFile adds a file to the log: zeros behind a new header with a new salt, all
// of it durable before the file gets its name, and the name before makeFile
// returns. A zero position is a file that follows another. After ErrNoSpace nothing
// is left behind.
func (l *Log) makeFile(first Position) (*logFile, error) {
	number := l.prep.newest + 1
	f, err := l.spare(number)
	if err != nil {
		return nil, err
	}
	f.fileHeader = fileHeader{number: number, salt: l.cfg.Salt(), size: l.cfg.FileBytes, first: first}
	f.encode(l.prep.header)
	if _, err = f.f.WriteAt(l.prep.header, 0); err == nil {
		err = f.f.Datasync()
	}
	if err != nil {
		return nil, l.discard(f, fmt.Errorf("wal: prepare %s: %w", f.path, err))
	}
	path := filePath(l.cfg.Dir, number, suffixLog)
	if err := l.rename(f, path); err != nil {
		return nil, errors.Join(err, f.f.Close())
	}
	l.prep.newest = number
	return f, nil
}

// spare takes a file from the pool or creates one.
func (l *Log) spare(number uint64) (*logFile, error) {
	if len(l.prep.pool) > 0 {
		f := l.prep.pool[0]
		l.prep.pool = slices.Delete(l.prep.pool, 0, 1)
		l.prep.spares.Store(int64(len(l.prep.pool)))
		return f, nil
	}
	path := filePath(l.cfg.Dir, number, suffixSpare)
	f, err := l.cfg.FS.Create(path)
	if err != nil {
		return nil, fmt.Errorf("wal: create %s: %w", path, err)
	}
	made := &logFile{f: f, path: path, fileHeader: fileHeader{size: l.cfg.FileBytes}}
	if err := f.Allocate(l.cfg.FileBytes); err != nil {
		return nil, l.discard(made, fmt.Errorf("wal: allocate %s: %w", path, err))
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("wal: close %s: %w", path, err)
	}
	if made.f, err = l.cfg.FS.OpenDirect(path); err != nil {
		return nil, fmt.Errorf("wal: open %s: %w", path, err)
	}
	// Reserved blocks are not enough: the first fdatasync of each would have to
	// note in the file system's journal that it is written now.
	if err := l.zero(made, headerBytes); err != nil {
		return nil, l.discard(made, err)
	}
	return made, nil
}

// retire takes back a released file: as a spare, zeroed, or not at all. It leaves
// the log by a durable rename before its bytes change, and files go in their order.
func (l *Log) retire(f *logFile) error {
	if len(l.prep.pool) >= l.cfg.Spares || f.size != l.cfg.FileBytes {
		if err := l.remove(f); err != nil {
			return err
		}
		l.counts.removed.Add(1)
		return nil
	}
	if err := l.rename(f, filePath(l.cfg.Dir, f.number, suffixSpare)); err != nil {
		return errors.Join(err, f.f.Close())
	}
	err := l.zero(f, 0)
	if err == nil {
		err = f.f.Datasync()
	}
	if err != nil {
		err = l.discard(f, fmt.Errorf("wal: recycle %s: %w", f.path, err))
		if errors.Is(err, vfs.ErrNoSpace) {
			return nil // a file system that writes elsewhere; the file is removed
		}
		return err
	}
	l.pool(f)
	l.counts.recycled.Add(1)
	return nil
}

// pool keeps f, which is zero but perhaps for its header, for the next rotations.
// The oldest is used first: so no file is ever released while the pool holds one
// whose name has the same number.
func (l *Log) pool(f *logFile) {
	l.prep.pool = append(l.prep.pool, f)
	l.prep.spares.Store(int64(len(l.prep.pool)))
}

// takeReleased returns the oldest file that may be taken back, or nil.
func (l *Log) takeReleased() *logFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deferred.Store(false)
	if !l.released() {
		return nil
	}
	f := l.old[0]
	if l.committed.Load() <= f.last.Batch {
		// Set first, then look again: Commit does the same in the other order.
		l.deferred.Store(true)
		if l.committed.Load() <= f.last.Batch {
			return nil
		}
		l.deferred.Store(false)
	}
	l.old, l.hope = slices.Delete(l.old, 0, 1), true
	return f
}

// released reports whether the oldest file has been let go of. The caller holds mu.
func (l *Log) released() bool { return len(l.old) > 0 && l.old[0].last.Batch <= l.low.Batch }

// zero makes the bytes of f from off on zero, without syncing.
func (l *Log) zero(f *logFile, off int64) error {
	for off < f.size {
		select {
		case <-l.prep.stop:
			return errStopped
		default:
		}
		n := min(f.size-off, zeroBytes)
		if _, err := f.f.WriteAt(l.prep.zeros[:n], off); err != nil {
			return fmt.Errorf("wal: fill %s with zeros: %w", f.path, err)
		}
		off += n
	}
	return nil
}

// rename gives f another name in the log's directory, durably.
func (l *Log) rename(f *logFile, path string) error {
	if err := l.cfg.FS.Rename(f.path, path); err != nil {
		return fmt.Errorf("wal: rename %s: %w", f.path, err)
	}
	f.path = path
	return syncDir(l.cfg)
}

// remove closes and unlinks f, durably.
func (l *Log) remove(f *logFile) error {
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("wal: close %s: %w", f.path, err)
	}
	return removeFile(l.cfg, f.path)
}

// discard gives up a spare because of err and returns err, or what prevented it.
// After ErrNoSpace the spare is removed, to give its space back; otherwise it stays
// for the next Open to remove.
func (l *Log) discard(f *logFile, err error) error {
	if !errors.Is(err, vfs.ErrNoSpace) {
		return errors.Join(err, f.f.Close())
	}
	if removing := l.remove(f); removing != nil {
		return removing
	}
	return err
}

func removeFile(cfg Config, path string) error {
	if err := cfg.FS.Remove(path); err != nil {
		return fmt.Errorf("wal: remove %s: %w", path, err)
	}
	return syncDir(cfg)
}

func syncDir(cfg Config) error {
	if err := cfg.FS.SyncDir(cfg.Dir); err != nil {
		return fmt.Errorf("wal: sync directory %s: %w", cfg.Dir, err)
	}
	return nil
}
