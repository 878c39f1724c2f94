package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// A blob's file is a segment of this number and kind, with one stream, whose payload
// is one message: the blob. An empty one has no message. The numbers are on disk.
const (
	segmentID = 1
	kindBlob  = 0xb1
	streamID  = 1
)

// Writer takes an upload. One goroutine; the first error is final.
type Writer struct {
	store *Store
	seg   *segment.Writer
	sum   hash.Hash
	path  string
	size  int64
}

// Create begins an upload of about size bytes, for which it takes space on the disk. End
// it with Commit or Abort.
func (s *Store) Create(size int64) (*Writer, error) {
	s.mu.Lock()
	s.upload++
	path := filepath.Join(s.dir, tmpName, fmt.Sprintf("%010d", s.upload))
	s.mu.Unlock()
	seg, err := segment.Create(s.fs, path, segmentID, max(size, 0), kindBlob)
	if err != nil {
		return nil, err
	}
	seg.Pace(s.beside()) // the log is on the same disk
	w := &Writer{store: s, seg: seg, sum: sha256.New(), path: path}
	if err := seg.Begin(streamID, 0, 0); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Beside tells the store of somebody whose syncs wait for those of uploads: synced returns
// another number after each of them. Uploads then sync in small portions, which takes them
// longer. It is called before the first upload; synced by any goroutine.
func (s *Store) Beside(synced func() uint64) { s.synced = synced }

// beside returns what tells an upload whether there has been a sync since it asked last.
func (s *Store) beside() (busy func() bool) {
	if s.synced == nil {
		return nil
	}
	last := s.synced()
	return func() bool {
		now := s.synced()
		changed := now != last
		last = now
		return changed
	}
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

// Abort gives the upload up. It does nothing after Commit.
func (w *Writer) Abort() { w.seg.Abort() }

// Commit makes the blob durable under its digest and returns that with a reference
// that the caller has to Unpin. A file that is there already and verifies is used
// instead; one that is missing or does not verify is replaced. After an error nothing is
// left of the upload, and there is no reference.
func (w *Writer) Commit() (Digest, error) {
	d := w.Digest()
	if w.store.pinSound(d) {
		w.Abort()
		return d, nil
	}
	err := error(nil)
	if w.size > 0 {
		err = w.seg.Boundary(base.Offset(w.size))
	}
	var size int64
	if err == nil {
		size, err = w.seg.Finish()
	}
	if err != nil {
		w.Abort()
		return d, err
	}
	return d, w.store.install(d, w.path, size)
}

// pinSound adds a reference to a blob whose file is here and not damaged.
func (s *Store) pinSound(d Digest) bool {
	s.mu.Lock()
	e := s.still(d)
	good := e != nil && e.file == fileGood
	s.mu.Unlock()
	if !good {
		return false
	}
	b, err := s.openLocal(d)
	if err != nil {
		return false
	}
	defer b.Release()
	if !b.isLocal() {
		return false
	}
	if err := b.local.seg.VerifyAll(context.Background()); damage(err) {
		b.fallBack(err)
		return false
	}
	return s.Pin(d)
}

// install gives a finished upload its name.
func (s *Store) install(d Digest, tmp string, size int64) error {
	s.mu.Lock()
	e := s.still(d)
	switch {
	case e == nil:
		e = &entry{digest: d, refs: 1, named: true, busy: make(chan struct{})}
		s.blobs[d] = e
		s.mu.Unlock()
		err := s.name(d, tmp)
		if err == nil {
			s.mu.Lock()
			s.setFile(e, fileGood, size)
			s.mu.Unlock()
		}
		s.settle(e, err == nil)
		return err
	case e.file == fileGood: // another upload of the same bytes was faster
		e.refs++
		s.mu.Unlock()
		return s.fs.Remove(tmp)
	}
	e.moving = make(chan struct{})
	s.mu.Unlock()
	err := s.replace(e, tmp, size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		e.refs++
	}
	s.endMove(e)
	return err
}

// replace puts an upload in the place of a file that is missing or damaged. If there is
// an object, it may be a copy of that, or may not have been found either: another is to
// be made, which is durable before anybody relies on this one.
func (s *Store) replace(e *entry, tmp string, size int64) error {
	if err := s.subdir(e.digest); err != nil {
		return errors.Join(err, s.fs.Remove(tmp))
	}
	if err := s.rename(e.digest, tmp); err != nil {
		return err
	}
	s.mu.Lock()
	s.setFile(e, fileGood, size)
	e.made++
	e.doubted = e.object.Number != 0
	old := s.detach(e)
	s.mu.Unlock()
	if old != nil {
		s.closeBlob(old)
	}
	return s.changeLedger(func() []record {
		if e.object.Number == 0 {
			return nil
		}
		return []record{{kindDoubted, e.object}}
	}, func([]record) {})
}

// name journals the digest and renames the file, each durable before the next.
func (s *Store) name(d Digest, tmp string) error {
	err := s.journal.add(d)
	if err == nil {
		err = s.journal.sync()
	}
	if err == nil {
		err = s.subdir(d)
	}
	if err != nil {
		return errors.Join(err, s.fs.Remove(tmp))
	}
	return s.rename(d, tmp)
}

// rename gives an upload its name, durably.
func (s *Store) rename(d Digest, tmp string) error {
	if err := s.fs.Rename(tmp, s.path(d)); err != nil {
		return errors.Join(err, s.fs.Remove(tmp))
	}
	for _, dir := range []string{filepath.Dir(s.path(d)), filepath.Join(s.dir, tmpName)} {
		if err := s.fs.SyncDir(dir); err != nil {
			return s.journal.fail(err) // nobody knows where the file is
		}
	}
	return nil
}

// subdir makes the directory of a digest, durably. Only one goroutine does at a time:
// another would find the directory there, though its entry can still be lost.
func (s *Store) subdir(d Digest) error {
	s.subs.Lock()
	defer s.subs.Unlock()
	if s.made[d[0]] {
		return nil
	}
	err := s.fs.MkdirAll(filepath.Dir(s.path(d)))
	switch {
	case err == nil:
		s.made[d[0]] = true
	case !errors.Is(err, vfs.ErrNoSpace):
		err = s.journal.fail(err)
	}
	return err
}
