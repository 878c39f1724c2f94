package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// maxIdle is how many files of blobs stay open that nobody reads: the next reader finds
// open what the last one has checked.
const maxIdle = 128

// ErrNotLocal is what Verify reports of a blob that is not, or no longer, read from its
// file: Append has the bytes.
var ErrNotLocal = errors.New("not read from a local file")

// Blob is an open blob. Release it.
type Blob struct {
	store *Store
	entry *entry
	made  int // of the file: entry.made
	users int // who has to Release it; guarded by store.mu
	size  int64

	local  *copied                // the file; nil if it is not here or no good
	lame   atomic.Bool            // the file is damaged and the object is used instead
	object atomic.Pointer[copied] // nil until it is needed
}

// copied is an open copy of a blob.
type copied struct {
	seg  *segment.Segment
	file vfs.File // nil for an object
	pos  int64    // of the blob in the payload
	size int64
}

// place is where the bytes of a blob are.
type place struct {
	file   state
	made   int
	object Object
}

// Open opens a blob for reading: ErrNotFound when there is none, a
// *base.CorruptionError when its file is missing or damaged and there is no object. A
// damaged block is told of when it is read. It may touch the disk, and the object store
// when the file is not here.
func (s *Store) Open(d Digest) (*Blob, error) { return s.open(d, s.load) }

// openLocal is Open for somebody who is interested in the file alone.
func (s *Store) openLocal(d Digest) (*Blob, error) { return s.open(d, s.loadFile) }

func (s *Store) open(d Digest, load func(*entry, place) (*Blob, error)) (*Blob, error) {
	s.mu.Lock()
	e := s.still(d)
	if e == nil {
		s.mu.Unlock()
		return nil, ErrNotFound
	}
	e.readers++ // from now on it stays
	s.wanted(e)
	s.used(e)
	if b := e.open; b != nil {
		b.users++
		s.mu.Unlock()
		return b, nil
	}
	at := place{e.file, e.made, e.object}
	s.mu.Unlock()
	b, err := load(e, at)
	s.mu.Lock()
	faster := e.open
	switch {
	case faster != nil:
		faster.users++
	case err != nil:
		e.readers--
	default:
		b.users++
		if e.made == at.made { // otherwise the file has been replaced, and is for the next one
			e.open = b
		}
	}
	s.mu.Unlock()
	if faster != nil { // somebody else was
		if err == nil {
			s.closeBlob(b)
		}
		return faster, nil
	}
	return b, err
}

// wanted takes an entry off the list of idle ones. mu is held.
func (s *Store) wanted(e *entry) {
	if i := slices.Index(s.idle, e); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// detach leaves what is open to those who use it already, and returns what nobody does,
// to be closed. mu is held.
func (s *Store) detach(e *entry) *Blob {
	b := e.open
	e.open = nil
	s.wanted(e)
	if b == nil || b.users > 0 {
		return nil
	}
	return b
}

func (s *Store) closeBlob(b *Blob) {
	if err := b.close(); err != nil {
		s.log.Warn("closing a blob", "err", err)
	}
}

func (b *Blob) close() error {
	if b.local == nil {
		return nil
	}
	return b.local.file.Close()
}

// load opens the file or, when that is not here or no good, the object.
func (s *Store) load(e *entry, at place) (*Blob, error) {
	has := at.object.Number != 0 && (s.remote != nil || at.file == fileAbsent)
	if !has || at.file == fileGood {
		b, err := s.loadFile(e, at)
		if err == nil || !has {
			return b, err
		}
	}
	c, err := s.openObject(at.object)
	if err != nil {
		return nil, err
	}
	b := &Blob{store: s, entry: e, made: at.made, size: c.size}
	b.object.Store(c)
	return b, nil
}

// loadFile opens the file.
func (s *Store) loadFile(e *entry, at place) (*Blob, error) {
	c, err := s.openFile(e.digest)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flawed(e, at.made, fileBroken, err)
		return nil, err
	}
	return &Blob{store: s, entry: e, made: at.made, size: c.size, local: c}, nil
}

// damage reports whether an error says that a file is not what it was.
func damage(err error) bool {
	_, corrupt := errors.AsType[*base.CorruptionError](err)
	return corrupt || errors.Is(err, syscall.EIO)
}

// flawed notes what an error says of the file that an entry has, if it is still the one
// that was opened. mu is held.
func (s *Store) flawed(e *entry, made int, now state, err error) {
	if e.made != made || e.file == fileAbsent || e.file >= now || !damage(err) {
		return
	}
	s.log.Error("the file of a blob is damaged", "path", s.path(e.digest), "object", e.object.Number, "err", err)
	s.setFile(e, now, e.size)
	s.enlist(e)
}

func (s *Store) openFile(d Digest) (*copied, error) {
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
	c, err := openCopy(src, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.file = f
	return c, nil
}

func (s *Store) openObject(o Object) (*copied, error) {
	name := fmt.Sprintf("object %d of blob %s", o.Number, o.Digest)
	if s.remote == nil {
		return nil, fmt.Errorf("%s: there is no object store to read it from", name)
	}
	return openCopy(s.remote(o), name)
}

func openCopy(src segment.Source, name string) (*copied, error) {
	seg, err := segment.Open(src, name, segmentID)
	if err != nil {
		return nil, err
	}
	st, ok := seg.Find(streamID)
	if !ok || seg.Kind() != kindBlob {
		return nil, &base.CorruptionError{Path: name, Detail: "a segment, but not a blob"}
	}
	return &copied{seg: seg, pos: st.Extent.Pos, size: int64(st.Extent.End - st.Extent.Start)}, nil
}

// Release ends the use of the blob.
func (b *Blob) Release() {
	s, e := b.store, b.entry
	var closing []*Blob
	s.mu.Lock()
	b.users--
	e.readers--
	s.used(e)
	if b.users == 0 && e.open != b { // its file has been replaced
		closing = append(closing, b)
	}
	if e.readers == 0 && e.open != nil {
		s.idle = append(s.idle, e)
		if len(s.idle) > maxIdle {
			closing = append(closing, s.detach(s.idle[0]))
		}
	}
	s.mu.Unlock()
	for _, b := range closing {
		s.closeBlob(b)
	}
}

// Size returns the number of bytes.
func (b *Blob) Size() int64 { return b.size }

// Append appends the bytes [pos, pos+n) to dst, verified. Where the file is damaged they
// come from the object, if there is one.
func (b *Blob) Append(ctx context.Context, dst []byte, pos int64, n int) ([]byte, error) {
	if b.isLocal() {
		out, err := b.local.seg.AppendPayload(ctx, dst, b.local.pos+pos, n)
		if err == nil || !b.fallBack(err) {
			return out, err
		}
	}
	c, err := b.remote()
	if err != nil {
		return dst, err
	}
	return c.seg.AppendPayload(ctx, dst, c.pos+pos, n)
}

// Verify checks the blocks of [pos, pos+n) in the file that nobody has checked yet.
// ErrNotLocal says that File is not ok any more.
func (b *Blob) Verify(ctx context.Context, pos, n int64) error {
	if b.isLocal() {
		err := b.local.seg.Verify(ctx, b.local.pos+pos, n)
		if err == nil || !b.fallBack(err) {
			return err
		}
	}
	return ErrNotLocal
}

// File returns the file and the position in it of a position in the blob, for
// sendfile after Verify. ok is false where the file has no descriptor or is not what is
// read.
func (b *Blob) File(pos int64) (fd uintptr, at int64, ok bool) {
	if !b.isLocal() {
		return 0, 0, false
	}
	fd, ok = b.local.file.Fd()
	return fd, b.local.seg.FilePos(b.local.pos + pos), ok
}

func (b *Blob) isLocal() bool { return b.local != nil && !b.lame.Load() }

// fallBack reports, when err says that the file is damaged, whether there is an object to
// read from now on.
func (b *Blob) fallBack(err error) bool {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flawed(b.entry, b.made, fileDamaged, err)
	if !damage(err) || b.entry.object.Number == 0 || s.remote == nil {
		return false
	}
	b.lame.Store(true)
	return true
}

// remote returns the blob's object, open.
func (b *Blob) remote() (*copied, error) {
	if c := b.object.Load(); c != nil {
		return c, nil
	}
	b.store.mu.Lock()
	o := b.entry.object
	b.store.mu.Unlock()
	c, err := b.store.openObject(o)
	if err != nil {
		return nil, err
	}
	if c.size != b.size {
		return nil, &base.CorruptionError{Path: b.store.path(o.Digest), Detail: fmt.Sprintf("%d bytes, but object %d has %d", b.size, o.Number, c.size)}
	}
	b.object.Store(c)
	return c, nil
}
