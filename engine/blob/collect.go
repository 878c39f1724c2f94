package blob

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
)

// Collect removes the blobs that nobody has referred to since before the given time,
// nor reads now, and returns how many; from then on their objects are Orphaned. An error
// that Sync would return is final; what could not be done is tried again by the next
// call.
func (s *Store) Collect(before base.Millis) (n int, err error) {
	if err := s.journal.sync(); err != nil {
		return 0, err
	}
	dirs := map[string]bool{}
	for _, e := range s.condemn(before) {
		if failed := s.remove(e); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		dirs[filepath.Dir(s.path(e.digest))] = true
		n++
	}
	for dir := range dirs {
		// A blob that has only ever been an object has no directory.
		if err := s.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, s.journal.fail(err)
		}
	}
	if err == nil {
		err = s.journal.trim(s.candidates)
	}
	return n, errors.Join(err, s.markOrphans(), s.trimLedger())
}

// condemn marks the blobs that are to be removed as busy and returns them.
func (s *Store) condemn(before base.Millis) (all []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.blobs {
		if e.refs == 0 && e.readers == 0 && !e.saving && e.since < before && e.busy == nil && e.moving == nil {
			s.wanted(e)
			e.busy = make(chan struct{})
			all = append(all, e)
		}
	}
	return all
}

// remove removes the file of a condemned blob, and then the entry.
func (s *Store) remove(e *entry) error {
	if e.open != nil {
		s.closeBlob(e.open)
		e.open = nil
	}
	err := s.unlink(s.path(e.digest), func() error { return nil })
	s.settle(e, err != nil)
	return err
}

// unlinkStep is how much of a file gives its place on the disk back at a time, in bytes.
const unlinkStep = 4 << 20

// unlink removes a file, if it is there, and calls gone once its name is removed. A large
// one goes piece by piece: a disk that is told of all of it at once, as it is under the
// mount option discard, has others wait for that.
func (s *Store) unlink(path string, gone func() error) error {
	size := int64(0)
	f, err := s.fs.OpenAppend(path)
	if err == nil {
		defer func() {
			if err := f.Close(); err != nil {
				s.log.Warn("closing a file that has been removed", "path", path, "err", err)
			}
		}()
		size, err = f.Size()
	}
	if err != nil {
		size = 0 // it is only to be removed
	}
	if err := s.fs.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if size <= unlinkStep {
		return nil
	}
	if err := gone(); err != nil {
		return err
	}
	for size > unlinkStep {
		size -= unlinkStep
		if f.Truncate(size) != nil {
			break // what is left goes when the file is closed
		}
	}
	return nil
}

// settle ends what made an entry busy; without keep it is taken out. mu is not held.
func (s *Store) settle(e *entry, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(e.busy)
	e.busy = nil
	if keep {
		s.enlist(e)
		return
	}
	if e.object.Number != 0 {
		s.orphans[e.object.Number] = &orphan{Object: e.object}
	}
	s.setObject(e, Object{})
	s.setFile(e, fileAbsent, 0)
	s.enlist(e)
	delete(s.blobs, e.digest)
}

// candidates returns what the journal has to name: all that may be removed one day, of
// what is there now.
func (s *Store) candidates() (all []Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, e := range s.blobs {
		if e.named {
			all = append(all, d)
		}
	}
	return all
}
