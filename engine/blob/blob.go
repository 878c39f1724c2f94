// Package blob keeps snapshots: immutable bytes that are named by their SHA-256 and
// shared by whoever refers to the same ones.
//
// A blob is a segment with a single stream, so its blocks are checked when they are
// read and go out by sendfile as any other bytes do. Uploads are written to tmp/
// while their digest is computed; the digest is journalled before the file gets its
// name, and so is every blob that nobody refers to any more. So a file that neither
// a reference nor the journal accounts for is one that nobody here may remove.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Digest is the SHA-256 of a blob's bytes.
type Digest [sha256.Size]byte

// String returns the digest as 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ErrNotFound says that no blob has the digest.
var ErrNotFound = errors.New("no such blob")

const tmpName = "tmp" // the directory of uploads

// Store is the blobs of a data directory. All methods are safe for concurrent use.
type Store struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	mu     sync.Mutex // never held across I/O
	blobs  map[Digest]*entry
	idle   []*entry // open, and read by nobody; the one that has been so for longest first
	upload uint64   // number of the next temporary file

	subs sync.Mutex // held while a directory is made, which whoever needs it waits for
	made [256]bool  // directories whose own entries are durable; guarded by subs

	journal *journal
	orphans atomic.Int64
}

// entry is what is known of one blob.
type entry struct {
	refs    int           // snapshots that refer to it, uploads and publishes under way
	readers int           // who read it, or are about to
	since   base.Millis   // since when nobody refers to it
	open    *Blob         // nil: not open
	named   bool          // journalled: it may be removed when refs is 0
	busy    chan struct{} // not nil while its file is being named or removed; closed then
}

// Create makes the directory of a new store, durably.
func Create(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(filepath.Join(dir, tmpName)); err != nil {
		return err
	}
	j, err := startJournal(fsys, dir)
	if err != nil {
		return err
	}
	return j.close()
}

// Open opens a store. refs says how many snapshots refer to each digest; where it says
// 0, the log has released the blob. Those, temporary files, and blobs that the journal
// says nobody needs, are removed. Any other file that is not referred to is kept, logged
// and counted.
func Open(fsys vfs.FS, dir string, refs map[Digest]int, log *slog.Logger) (*Store, error) {
	s := &Store{fs: fsys, dir: dir, log: log, blobs: map[Digest]*entry{}}
	dead, end, err := readJournal(fsys, dir)
	if err != nil {
		return nil, err
	}
	for d, n := range refs {
		if n > 0 {
			s.blobs[d] = &entry{refs: n}
		} else {
			dead[d] = true
		}
	}
	if err := s.sweep(dead); err != nil {
		return nil, err
	}
	s.journal, err = startJournal(fsys, dir)
	if errors.Is(err, vfs.ErrNoSpace) {
		s.journal, err = resumeJournal(fsys, dir, end)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Check reports what Open would find wrong with the store, and changes nothing.
func Check(fsys vfs.FS, dir string) error {
	_, _, err := readJournal(fsys, dir)
	return err
}

// Close closes what is open. No blob may be in use.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.journal.close()
	for _, e := range s.blobs {
		if e.open != nil {
			err = errors.Join(err, e.open.file.Close())
		}
	}
	return err
}

// Orphans returns how many files the start found that nothing accounts for.
func (s *Store) Orphans() int64 { return s.orphans.Load() }

// sweep removes what is dead and reports what nothing accounts for. What it removes
// stays removed: the next journal does not name it any more.
func (s *Store) sweep(dead map[Digest]bool) error {
	tmp := filepath.Join(s.dir, tmpName)
	if err := s.fs.MkdirAll(tmp); err != nil {
		return err
	}
	names, err := s.fs.List(tmp)
	for _, n := range names {
		err = errors.Join(err, s.fs.Remove(filepath.Join(tmp, n)))
	}
	if err != nil {
		return err
	}
	subs, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		switch sub {
		case tmpName, journalName, journalTemp:
			continue
		}
		if err := s.sweepDir(sub, dead); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sweepDir(sub string, dead map[Digest]bool) error {
	dir := filepath.Join(s.dir, sub)
	files, err := s.fs.List(dir)
	if errors.Is(err, syscall.ENOTDIR) {
		s.orphan(dir)
		return nil
	}
	removed := false
	for _, name := range files {
		path := filepath.Join(dir, name)
		d, ok := parseDigest(name)
		switch {
		case !ok || name[:2] != sub:
			s.orphan(path)
		case s.blobs[d] != nil:
		case dead[d]:
			err = errors.Join(err, s.fs.Remove(path))
			removed = true
		default:
			s.orphan(path)
		}
	}
	if err == nil && removed {
		err = s.fs.SyncDir(dir)
	}
	return err
}

// orphan notes a file that stays because nobody knows whose it is.
func (s *Store) orphan(path string) {
	s.orphans.Add(1)
	s.log.Warn("a file that no snapshot refers to and no deletion accounts for is left alone", "path", path)
}

// parseDigest reads what Digest.String returns.
func parseDigest(name string) (d Digest, ok bool) {
	if len(name) != 2*len(d) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(name))
	return d, err == nil && d.String() == name
}

func (s *Store) path(d Digest) string { return Path(s.dir, d) }

// Pin adds a reference and reports whether the blob is there to be referred to. Whoever
// holds a reference already does not wait for anything.
func (s *Store) Pin(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.settled(d)
	if e == nil {
		return false
	}
	e.refs++
	return true
}

// settled returns the entry of a digest once its file is neither being named nor
// being removed, or nil. mu is held, but not while it waits.
func (s *Store) settled(d Digest) *entry {
	for {
		e := s.blobs[d]
		if e == nil || e.busy == nil {
			return e
		}
		busy := e.busy
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
}

// settle ends what made an entry busy; without keep it is taken out. mu is not held.
func (s *Store) settle(d Digest, e *entry, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(e.busy)
	e.busy = nil
	if !keep {
		delete(s.blobs, d)
	}
}

// Unpin drops a reference. A blob without any is a candidate for Collect, which the
// journal says durably from the next Sync on. The error is that of an earlier Sync. It
// does no I/O.
func (s *Store) Unpin(d Digest, now base.Millis) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.blobs[d]
	if e == nil || e.refs == 0 {
		return nil
	}
	e.refs--
	if e.refs > 0 {
		return nil
	}
	e.since = now
	if e.named {
		return nil
	}
	e.named = true
	return s.journal.add(d)
}

// Sync makes everything that Unpin has journalled durable. The log must not give up
// the record that dropped a reference before. An error is final, unless it matches
// vfs.ErrNoSpace: then it may be called again.
func (s *Store) Sync() error { return s.journal.sync() }

// Collect removes the blobs that nobody has referred to since before the given time,
// nor reads now, and returns how many. An error that Sync would return is final; what
// could not be removed is tried again by the next call.
func (s *Store) Collect(before base.Millis) (n int, err error) {
	if err := s.journal.sync(); err != nil {
		return 0, err
	}
	dirs := map[string]bool{}
	for d, e := range s.condemn(before) {
		if e.open != nil {
			s.closeBlob(e.open)
			e.open = nil
		}
		if failed := s.remove(d, e); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		dirs[filepath.Dir(s.path(d))] = true
		n++
	}
	for dir := range dirs {
		if err := s.fs.SyncDir(dir); err != nil {
			return n, s.journal.fail(err)
		}
	}
	if err == nil {
		err = s.journal.trim(s.candidates)
	}
	return n, err
}

func (s *Store) remove(d Digest, e *entry) error {
	err := s.fs.Remove(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	s.settle(d, e, err != nil)
	return err
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

// condemn marks the blobs that are to be removed as busy and returns them.
func (s *Store) condemn(before base.Millis) map[Digest]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[Digest]*entry{}
	for d, e := range s.blobs {
		if e.refs == 0 && e.readers == 0 && e.since < before && e.busy == nil {
			s.wanted(e)
			e.busy = make(chan struct{})
			all[d] = e
		}
	}
	return all
}
