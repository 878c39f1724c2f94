package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Record is a record as it was added. Its slices are valid only during the call
// that hands it out.
type Record struct {
	Position
	Type       uint8
	Head, Body []byte
}

// Info is what Open or Inspect found.
type Info struct {
	Files       int
	Records     uint64   // replayed
	Batches     uint64   // replayed, the last one perhaps in part
	TornRecords uint64   // of a batch that was never synced; not replayed
	Bytes       int64    // read
	End         Position // of the last record in the log, or low-water when that is above it
}

// Create makes a new log in cfg.Dir: the directory and its first file, durable on
// return. It may be repeated after a crash; an existing log that is not empty is
// left alone (fs.ErrExist).
func Create(cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return fmt.Errorf("wal: create %s: %w", cfg.Dir, err)
	}
	// If an earlier Create made the directory, its entry may not be durable yet.
	parent := filepath.Dir(cfg.Dir)
	if err := cfg.FS.SyncDir(parent); err != nil {
		return fmt.Errorf("wal: sync directory %s: %w", parent, err)
	}
	found, err := list(cfg.FS, cfg.Dir)
	if _, empty := errors.AsType[*base.CorruptionError](err); err != nil && !empty {
		return err
	}
	if err := removeEmpty(cfg, found.logs); err != nil {
		return err
	}
	for _, path := range found.spares {
		if err := removeFile(cfg, path); err != nil {
			return err
		}
	}
	l := newLog(cfg)
	f, err := l.makeFile(Position{}.next())
	if err != nil {
		return err
	}
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("wal: close %s: %w", f.path, err)
	}
	return nil
}

// removeEmpty removes the file of a log that an earlier Create has just made.
func removeEmpty(cfg Config, numbers []uint64) error {
	if len(numbers) == 0 {
		return nil
	}
	s, err := openScanner(cfg.Dir, numbers, cfg.FS.OpenDirect)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.run(); err != nil {
		return err
	}
	if len(numbers) > 1 || s.end != (Position{}) || len(s.dirty) > 0 {
		return fmt.Errorf("wal: create %s: %w", cfg.Dir, fs.ErrExist)
	}
	return removeFile(cfg, s.files[0].path)
}

// Open recovers the log in cfg.Dir: it calls replay, which may be nil, for each
// record above low, in order, and then makes what it has replayed durable, once
// more, and what is behind it zero. Only after Open has returned may any of it be
// shown to anybody. The next batch and LSN are above both low and the log's last.
//
// A *base.CorruptionError or *base.VersionError, a read error, or an error from
// replay, which comes back as it is, leaves all files as they were.
func Open(cfg Config, low Position, replay func(Record) error) (*Log, Info, error) {
	l, info, err := open(cfg, low, replay)
	if err != nil {
		return nil, info, err
	}
	l.start()
	return l, info, nil
}

// open is Open without starting the preparer.
func open(cfg Config, low Position, replay func(Record) error) (*Log, Info, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, Info{}, err
	}
	found, err := list(cfg.FS, cfg.Dir)
	if err != nil {
		return nil, Info{}, err
	}
	s, err := openScanner(cfg.Dir, found.logs, cfg.FS.OpenDirect)
	if err != nil {
		return nil, Info{}, err
	}
	r := recovery{scanner: s, log: newLog(cfg), low: low, replay: replay}
	if err := r.recover(found.spares); err != nil {
		s.close()
		return nil, r.info, err
	}
	return r.log, r.info, nil
}

// recovery is one run of Open.
type recovery struct {
	*scanner
	log    *Log
	low    Position
	replay func(Record) error
	info   Info
}

func (r *recovery) recover(spares []string) error {
	r.scanner.low = r.low
	r.visit = r.visited
	err := r.run()
	r.info.Files = len(r.files)
	r.info.Bytes = r.win.read
	r.info.TornRecords = r.torn
	r.info.End = r.end
	if err != nil {
		return err
	}
	cfg := &r.log.cfg
	if cfg.Before != nil {
		if err := cfg.Before(); err != nil {
			return err
		}
	}
	if r.torn > 0 {
		cfg.Logf("wal: %s: dropped at least %d records of a batch that was never synced, after batch %d, LSN %d",
			cfg.Dir, r.torn, r.end.Batch, r.end.LSN)
	}
	// Nothing was written up to here.
	if err := r.settle(); err != nil {
		return err
	}
	for _, path := range spares { // they may hold anything, deleted bytes too
		if err := removeFile(*cfg, path); err != nil {
			return err
		}
	}
	if err := syncDir(*cfg); err != nil {
		return err
	}
	r.log.allocate()
	behind := r.end.Batch < r.low.Batch || r.end.LSN < r.low.LSN
	unused := r.batchOff == 0 && r.files[r.last].size != cfg.FileBytes
	if behind || unused {
		return r.beginAnew()
	}
	return r.adopt()
}

// visited hands a record of the run to the caller.
func (r *recovery) visited(_ *logFile, _ int64, rec *scanned) error {
	if rec.pos.LSN <= r.low.LSN {
		return nil
	}
	r.info.Records++
	if rec.place == 0 {
		r.info.Batches++
	}
	if r.replay == nil {
		return nil
	}
	return r.replay(Record{Position: rec.pos, Type: rec.typ, Head: rec.head, Body: rec.body})
}

// settle makes the end of the log durable. The last batch may never have been
// synced, and a sync of it may have failed, after which the kernel takes pages for
// clean that the disk doesn't hold; so it is written again, the same bytes in the
// same place. All else from the end on becomes zero. A crash in the middle of this
// leaves a log with the same end.
func (r *recovery) settle() error {
	f := r.files[r.last]
	if r.batchOff > 0 {
		if err := r.rewrite(f); err != nil {
			return err
		}
	}
	for _, d := range r.dirty {
		f := r.files[d.file]
		for off := d.off; off < d.end; off += zeroBytes {
			zeros := r.log.prep.zeros[:min(d.end-off, zeroBytes)]
			if _, err := f.f.WriteAt(zeros, off); err != nil {
				return fmt.Errorf("wal: clear the end of %s: %w", f.path, err)
			}
		}
	}
	for _, f := range r.files[r.last:] {
		if err := f.f.Datasync(); err != nil {
			return fmt.Errorf("wal: sync %s: %w", f.path, err)
		}
	}
	return nil
}

// rewrite writes the last batch again, as far as it is valid, and zeros up to the
// next boundary.
func (r *recovery) rewrite(f *logFile) error {
	end := roundUp(r.endOff)
	buf := vfs.Aligned(int(min(end-r.batchOff, readAhead)))
	for off := r.batchOff; off < end; {
		n := int(min(end-off, readAhead))
		b, err := r.view(f, off, n)
		if err != nil {
			return err
		}
		copy(buf, b)
		if off+int64(n) > r.endOff {
			clear(buf[r.endOff-off : n])
		}
		if _, err := f.f.WriteAt(buf[:n], off); err != nil {
			return fmt.Errorf("wal: write the last batch of %s again: %w", f.path, err)
		}
		off += int64(n)
	}
	return nil
}

// adopt makes the files those of the log: the one with the end is the current one,
// those before it are in use or wait to be taken back. Those behind it, which are
// empty, become spares again: nobody knows whether their names are durable. There
// can be two, if the crash came during the first batch of a file. Newest first, so
// that no crash in between makes a gap.
func (r *recovery) adopt() error {
	l := r.log
	for i := len(r.files) - 1; i > r.last; i-- {
		f := r.files[i]
		var err error
		if f.size == l.cfg.FileBytes {
			err = l.rename(f, filePath(l.cfg.Dir, f.number, suffixSpare))
			l.pool(f)
		} else {
			err = l.remove(f)
		}
		if err != nil {
			return err
		}
	}
	l.turn.cur = r.files[r.last]
	l.turn.off = roundUp(r.endOff)
	l.current.Store(l.turn.off)
	l.turn.head = r.end
	l.committed.Store(r.end.Batch)
	l.low = r.low
	l.old = append(l.old, r.files[:r.last]...)
	l.prep.newest = l.turn.cur.number
	return nil
}

// beginAnew puts a new file in the place of all there are, none of which holds
// anything that is still needed. Until the last of them is gone the new one is the
// newest that the run may begin with; so a crash in between changes nothing.
func (r *recovery) beginAnew() error {
	l := r.log
	start := Position{LSN: max(r.end.LSN, r.low.LSN), Batch: max(r.end.Batch, r.low.Batch)}
	l.cfg.Logf("wal: %s: begins anew after batch %d, LSN %d; the log ended at batch %d, LSN %d",
		l.cfg.Dir, start.Batch, start.LSN, r.end.Batch, r.end.LSN)
	l.prep.newest = r.files[len(r.files)-1].number
	f, err := l.makeFile(start.next())
	if err != nil {
		return err
	}
	for _, old := range r.files {
		if err := l.remove(old); err != nil {
			return errors.Join(err, f.f.Close())
		}
	}
	l.turn.cur = f
	l.turn.off = headerBytes
	l.current.Store(headerBytes)
	l.turn.head, r.info.End = start, start
	l.committed.Store(start.Batch)
	l.low = r.low
	return nil
}
