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
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// Digest is the SHA-256 of a blob's bytes.
type Digest [sha256.Size]byte

// String returns the digest as 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ErrNotFound says that no blob has the digest.
var ErrNotFound = errors.New("no such blob")

const (
	kindBlob = 0xb1 // the segment kind of a blob
	streamID = 1    // the one stream in it
)

// Store is the blobs of a data directory. All methods are safe for concurrent use.
type Store struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	mu      sync.Mutex // never held across I/O
	blobs   map[Digest]*entry
	upload  uint64 // number of the next temporary file
	journal *journal

	orphans atomic.Int64
}

// entry is what is known of one blob.
type entry struct {
	refs  int           // snapshots that refer to it, uploads and publishes under way
	idle  base.Millis   // since when nobody does
	open  *Blob         // while somebody reads it, and until it is collected
	stale bool          // journalled: it may be removed when refs is 0
	busy  chan struct{} // not nil while its file is being named or removed; closed then
}

// Create makes the directory of a new store, durably.
func Create(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(filepath.Join(dir, "tmp")); err != nil {
		return err
	}
	j, err := startJournal(fsys, dir, nil)
	if err != nil {
		return err
	}
	return j.close()
}

// Open opens a store. refs says how many snapshots refer to each digest. Temporary
// files, and blobs that the journal says nobody needs, are removed; any other that
// is not referred to is kept, logged and counted.
func Open(fsys vfs.FS, dir string, refs map[Digest]int, log *slog.Logger) (*Store, error) {
	s := &Store{fs: fsys, dir: dir, log: log, blobs: map[Digest]*entry{}}
	for d, n := range refs {
		s.blobs[d] = &entry{refs: n}
	}
	named, err := readJournal(fsys, dir)
	if err != nil {
		return nil, err
	}
	if err := s.sweep(named); err != nil {
		return nil, err
	}
	s.journal, err = startJournal(fsys, dir, nil)
	return s, err
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

// sweep removes what the journal accounts for and reports what nothing does.
func (s *Store) sweep(named map[Digest]bool) error {
	tmp := filepath.Join(s.dir, "tmp")
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
		if len(sub) != 2 {
			continue
		}
		files, err := s.fs.List(filepath.Join(s.dir, sub))
		if err != nil {
			return err
		}
		for _, name := range files {
			if err := s.sweepFile(sub, name, named); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) sweepFile(sub, name string, named map[Digest]bool) error {
	path := filepath.Join(s.dir, sub, name)
	var d Digest
	raw, err := hex.DecodeString(name)
	if err == nil && len(raw) == len(d) && name[:2] == sub {
		copy(d[:], raw)
		if _, ok := s.blobs[d]; ok {
			return nil
		}
		if named[d] {
			return s.fs.Remove(path)
		}
	}
	s.orphans.Add(1)
	s.log.Warn("a file that no snapshot refers to and no deletion accounts for is left alone", "path", path)
	return nil
}

func (s *Store) path(d Digest) string {
	name := d.String()
	return filepath.Join(s.dir, name[:2], name)
}

// Pin adds a reference and reports whether the blob is there to be referred to.
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
// journal says from the next Sync on.
func (s *Store) Unpin(d Digest, now base.Millis) error {
	s.mu.Lock()
	e := s.blobs[d]
	if e == nil || e.refs == 0 {
		s.mu.Unlock()
		return nil
	}
	e.refs--
	name := e.refs == 0 && !e.stale
	if e.refs == 0 {
		e.idle, e.stale = now, true
	}
	s.mu.Unlock()
	if !name {
		return nil
	}
	return s.journal.add(d)
}

// Sync makes everything that Unpin has journalled durable. The log must not give up
// the record that dropped a reference before.
func (s *Store) Sync() error { return s.journal.sync() }

// Collect removes blobs that nobody has referred to since before the given time and
// returns how many.
func (s *Store) Collect(before base.Millis) (int, error) {
	if err := s.journal.sync(); err != nil {
		return 0, err
	}
	n := 0
	for d, e := range s.condemn(before) {
		if e.open != nil {
			if err := e.open.file.Close(); err != nil {
				s.log.Warn("closing a blob", "digest", d.String(), "err", err)
			}
		}
		err := s.fs.Remove(s.path(d))
		s.settle(d, e, false)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n++
	}
	return n, nil
}

// condemn marks the blobs that are to be removed as busy and returns them.
func (s *Store) condemn(before base.Millis) map[Digest]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[Digest]*entry{}
	for d, e := range s.blobs {
		if e.refs == 0 && e.idle < before && e.busy == nil && (e.open == nil || e.open.readers == 0) {
			e.busy = make(chan struct{})
			all[d] = e
		}
	}
	return all
}

// Blob is an open blob. Release it.
type Blob struct {
	store   *Store
	seg     *segment.Segment
	file    vfs.File
	pos     int64
	size    int64
	readers int // guarded by store.mu
}

// Open opens a blob for reading.
func (s *Store) Open(d Digest) (*Blob, error) {
	s.mu.Lock()
	e := s.settled(d)
	if e == nil {
		s.mu.Unlock()
		return nil, ErrNotFound
	}
	if e.open != nil {
		e.open.readers++
		defer s.mu.Unlock()
		return e.open, nil
	}
	e.refs++ // so that it stays while it is opened
	s.mu.Unlock()
	b, err := s.load(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refs--
	if err != nil {
		return nil, err
	}
	if e.open != nil { // somebody else was faster
		s.discard(b)
	} else {
		e.open = b
	}
	e.open.readers++
	return e.open, nil
}

func (s *Store) discard(b *Blob) {
	if err := b.file.Close(); err != nil {
		s.log.Warn("closing a blob", "err", err)
	}
}

func (s *Store) load(d Digest) (*Blob, error) {
	path := s.path(d)
	f, err := s.fs.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &base.CorruptionError{Path: path, Detail: "the blob is missing"}
		}
		return nil, err
	}
	src, err := segment.FileSource(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	seg, err := segment.Open(src, path, 1)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := &Blob{store: s, seg: seg, file: f}
	if st, ok := seg.Find(streamID); ok {
		b.pos, b.size = st.Extent.Pos, int64(st.Extent.End-st.Extent.Start)
	}
	return b, nil
}

// Release ends the use of the blob.
func (b *Blob) Release() {
	b.store.mu.Lock()
	b.readers--
	b.store.mu.Unlock()
}

// Size returns the number of bytes.
func (b *Blob) Size() int64 { return b.size }

// Append appends the bytes [pos, pos+n) to dst, verified.
func (b *Blob) Append(dst []byte, pos int64, n int) ([]byte, error) {
	return b.seg.AppendPayload(dst, b.pos+pos, n)
}

// Verify checks the blocks of [pos, pos+n) that nobody has checked yet.
func (b *Blob) Verify(pos, n int64) error { return b.seg.Verify(b.pos+pos, n) }

// File returns the file and the position in it of a position in the blob, for
// sendfile after Verify. ok is false where the file has no descriptor.
func (b *Blob) File(pos int64) (fd uintptr, at int64, ok bool) {
	fd, ok = b.file.Fd()
	return fd, b.seg.FilePos(b.pos + pos), ok
}

// Writer takes an upload. One goroutine; the first error is final.
type Writer struct {
	store *Store
	seg   *segment.Writer
	sum   hash.Hash
	path  string
	size  int64
}

// Create begins an upload of about size bytes.
func (s *Store) Create(size int64) (*Writer, error) {
	s.mu.Lock()
	s.upload++
	path := filepath.Join(s.dir, "tmp", fmt.Sprintf("%010d", s.upload))
	s.mu.Unlock()
	seg, err := segment.Create(s.fs, path, 1, max(size, 0), kindBlob)
	if err != nil {
		return nil, err
	}
	w := &Writer{store: s, seg: seg, sum: sha256.New(), path: path}
	if err := seg.Begin(streamID, 0, 0); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write adds bytes.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.seg.Payload(p); err != nil {
		return 0, err
	}
	w.sum.Write(p)
	w.size += int64(len(p))
	return len(p), nil
}

// Digest returns the digest of what has been written so far.
func (w *Writer) Digest() (d Digest) {
	w.sum.Sum(d[:0])
	return d
}

// Size returns the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// Abort gives the upload up.
func (w *Writer) Abort() { w.seg.Abort() }

// Commit makes the blob durable under its digest and returns that with a reference
// that the caller has to Unpin. A blob that is there already is used instead.
func (w *Writer) Commit() (Digest, error) {
	d := w.Digest()
	if w.store.Pin(d) {
		w.Abort()
		return d, nil
	}
	if w.size > 0 {
		if err := w.seg.Boundary(base.Offset(w.size)); err != nil {
			w.Abort()
			return d, err
		}
	}
	if _, err := w.seg.Finish(); err != nil {
		w.Abort()
		return d, err
	}
	return d, w.store.install(d, w.path)
}

// install gives a finished upload its name.
func (s *Store) install(d Digest, tmp string) error {
	s.mu.Lock()
	if e := s.settled(d); e != nil { // another upload of the same bytes was faster
		e.refs++
		s.mu.Unlock()
		return s.fs.Remove(tmp)
	}
	e := &entry{refs: 1, stale: true, busy: make(chan struct{})}
	s.blobs[d] = e
	s.mu.Unlock()
	err := s.name(d, tmp)
	s.settle(d, e, err == nil)
	return err
}

// name journals the digest and renames the file, each durable before the next.
func (s *Store) name(d Digest, tmp string) error {
	if err := s.journal.add(d); err != nil {
		return err
	}
	if err := s.journal.sync(); err != nil {
		return err
	}
	path := s.path(d)
	if err := s.fs.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	if err := s.fs.Rename(tmp, path); err != nil {
		return err
	}
	return s.fs.SyncDir(filepath.Dir(path))
}
