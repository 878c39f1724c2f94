// Package blob keeps snapshots: immutable bytes that are named by their SHA-256 and
// shared by whoever refers to the same ones.
//
// A blob is a segment with a single stream, so its blocks are checked when they are
// read and go out by sendfile as any other bytes do. Uploads are written to tmp/
// while their digest is computed; the digest is journalled before the file gets its
// name, and so is every blob that nobody refers to any more. So a file that neither
// a reference nor the journal accounts for is one that nobody here may remove.
//
// A blob may have a copy in an object store, which a ledger names. Then its file may go,
// and the copy is what is read. Whoever owns the object store makes the copies and deletes
// them; the ledger says which of them nobody needs any more.
package blob

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	fs     vfs.FS
	dir    string
	remote Remote // nil: no objects can be read
	log    *slog.Logger

	mu      sync.Mutex // never held across I/O
	blobs   map[Digest]*entry
	idle    []*entry           // open, and read by nobody; the one that has been so for longest first
	upload  uint64             // number of the next temporary file
	local   int64              // bytes of the files that are here
	unsaved list.List          // *entry, of which a copy is to be made, in the order in which they came
	lru     list.List          // of *entry: whose files may go, the one that was used longest ago first
	saved   int                // entries that have an object
	orphans map[uint64]*orphan // objects that nobody needs, by number

	subs sync.Mutex // held while a directory is made, which whoever needs it waits for
	made [256]bool  // directories whose own entries are durable; guarded by subs

	journal *journal
	strays  atomic.Int64
	synced  func() uint64 // see Beside; nil: there is nobody

	writing sync.Mutex // held by whoever changes the ledger, across that; before mu
	ledger  ledger     // guarded by writing
}

// entry is what is known of one blob.
type entry struct {
	digest  Digest
	refs    int           // snapshots that refer to it, uploads and publishes under way
	readers int           // who read it, or are about to
	since   base.Millis   // since when nobody refers to it
	open    *Blob         // nil: not open
	named   bool          // journalled: it may be removed when refs is 0
	busy    chan struct{} // not nil while it is being named or removed; closed then
	moving  chan struct{} // not nil while its file is being replaced or evicted; closed then

	file state // of the local copy …
	size int64 // … and its bytes, once they are known
	made int   // counts the files that it has had

	object  Object        // Number 0: none
	doubted bool          // the object may be damaged: another is to be made
	saving  bool          // a copy is being made, so that it stays
	unsaved *list.Element // in Store.unsaved
	evict   *list.Element // in Store.lru
}

// state is that of a local file, as far as it is known.
type state uint8

const (
	fileAbsent state = iota
	fileGood
	fileDamaged // in some of its blocks
	fileBroken  // it can't be opened
)

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
// and counted. remote reads objects; nil where there is no object store.
func Open(fsys vfs.FS, dir string, refs map[Digest]int, remote Remote, log *slog.Logger) (*Store, error) {
	dead, end, err := readJournal(fsys, dir)
	if err != nil {
		return nil, err
	}
	objs, err := readLedger(fsys, dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		fs: fsys, dir: dir, remote: remote, log: log, ledger: ledger{fs: fsys, dir: dir},
		blobs: map[Digest]*entry{}, orphans: objs.orphans,
	}
	for d, n := range refs {
		if n > 0 {
			r := objs.live[d]
			delete(objs.live, d)
			s.blobs[d] = &entry{digest: d, refs: n, doubted: r.kind == kindDoubted}
			s.setObject(s.blobs[d], r.Object)
		} else {
			dead[d] = true
		}
	}
	for _, r := range objs.live {
		s.orphans[r.Number] = &orphan{Object: r.Object}
	}
	if err := s.sweep(dead); err != nil {
		return nil, err
	}
	for _, e := range s.blobs {
		s.enlist(e)
	}
	if objs.found {
		err = s.beginLedger(objs.end)
	}
	if err != nil {
		return nil, err
	}
	s.journal, err = startJournal(fsys, dir)
	if errors.Is(err, vfs.ErrNoSpace) {
		s.journal, err = resumeJournal(fsys, dir, end)
	}
	if err != nil {
		return nil, errors.Join(err, s.ledger.close())
	}
	return s, nil
}

// Check reports what Open would find wrong with the store, and changes nothing.
func Check(fsys vfs.FS, dir string) error {
	_, _, err := readJournal(fsys, dir)
	if err == nil {
		_, err = readLedger(fsys, dir)
	}
	return err
}

// Close closes what is open. No blob may be in use.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.journal.close(), s.ledger.close())
	for _, e := range s.blobs {
		if e.open != nil {
			err = errors.Join(err, e.open.close())
		}
	}
	return err
}

// Orphans returns how many files the start found that nothing accounts for.
func (s *Store) Orphans() int64 { return s.strays.Load() }

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
	// What the last run removed may come back after a power cut, unless that is durable
	// before the journal forgets it.
	changed := map[string]bool{}
	for d := range dead {
		changed[d.String()[:2]] = true
	}
	for _, sub := range subs {
		switch sub {
		case tmpName, journalName, journalTemp, ledgerName, ledgerTemp:
			continue
		}
		if err := s.sweepDir(sub, dead, changed[sub]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sweepDir(sub string, dead map[Digest]bool, changed bool) error {
	dir := filepath.Join(s.dir, sub)
	files, err := s.fs.List(dir)
	if errors.Is(err, syscall.ENOTDIR) {
		s.orphan(dir)
		return nil
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		d, ok := parseDigest(name)
		switch {
		case !ok || name[:2] != sub:
			s.orphan(path)
		case s.blobs[d] != nil:
			err = errors.Join(err, s.found(s.blobs[d]))
		case dead[d]:
			err = errors.Join(err, s.fs.Remove(path))
		default:
			s.orphan(path)
		}
	}
	if err == nil && changed {
		err = s.fs.SyncDir(dir)
	}
	return err
}

// found notes that the file of a blob is here. Its size matters only to whoever wants to
// evict it.
func (s *Store) found(e *entry) error {
	size := e.object.Size
	if s.remote != nil && e.object.Number == 0 {
		var err error
		if size, err = s.fs.Stat(s.path(e.digest)); err != nil {
			return err
		}
	}
	s.setFile(e, fileGood, size)
	return nil
}

// setFile notes what has become of an entry's file. mu is held, but for a start.
func (s *Store) setFile(e *entry, file state, size int64) {
	s.local += size - e.size
	e.file, e.size = file, size
}

// orphan notes a file that stays because nobody knows whose it is.
func (s *Store) orphan(path string) {
	s.strays.Add(1)
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

// settled returns the entry of a digest once it is neither being named nor being
// removed, or nil. mu is held, but not while it waits.
func (s *Store) settled(d Digest) *entry {
	for {
		e := s.blobs[d]
		if e == nil || e.busy == nil {
			return e
		}
		s.await(e.busy)
	}
}

// still is settled for whoever wants the file: it waits, too, while that is being
// replaced or evicted.
func (s *Store) still(d Digest) *entry {
	for {
		e := s.settled(d)
		if e == nil || e.moving == nil {
			return e
		}
		s.await(e.moving)
	}
}

func (s *Store) await(end chan struct{}) {
	s.mu.Unlock()
	<-end
	s.mu.Lock()
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
