package blob

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// maxIdle is how many files of blobs stay open that nobody reads: the next reader finds
// open what the last one has checked.
const maxIdle = 128

// Blob is an open blob. Release it.
type Blob struct {
	store *Store
	entry *entry
	seg   *segment.Segment
	file  vfs.File
	pos   int64
	size  int64
}

// Open opens a blob for reading: ErrNotFound when there is none, a
// *base.CorruptionError when its file is missing or damaged. A damaged block is told of
// when it is read. It may touch the disk.
func (s *Store) Open(d Digest) (*Blob, error) {
	s.mu.Lock()
	e := s.settled(d)
	if e == nil {
		s.mu.Unlock()
		return nil, ErrNotFound
	}
	e.readers++ // from now on it stays
	s.wanted(e)
	b := e.open
	s.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := s.load(d, e)
	s.mu.Lock()
	faster := e.open
	switch {
	case faster != nil:
	case err == nil:
		e.open = b
	default:
		e.readers--
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

func (s *Store) closeBlob(b *Blob) {
	if err := b.file.Close(); err != nil {
		s.log.Warn("closing a blob", "err", err)
	}
}

func (s *Store) load(d Digest, e *entry) (*Blob, error) {
	b, err := openFile(s.fs, s.path(d))
	if err != nil {
		return nil, err
	}
	b.store, b.entry = s, e
	return b, nil
}

// openFile opens the file of a blob, which belongs to no store yet.
func openFile(fsys vfs.FS, path string) (*Blob, error) {
	f, err := fsys.Open(path)
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
	seg, err := segment.Open(src, path, segmentID)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	st, ok := seg.Find(streamID)
	if !ok || seg.Kind() != kindBlob {
		return nil, errors.Join(&base.CorruptionError{Path: path, Detail: "a segment, but not a blob"}, f.Close())
	}
	return &Blob{seg: seg, file: f, pos: st.Extent.Pos, size: int64(st.Extent.End - st.Extent.Start)}, nil
}

// Release ends the use of the blob.
func (b *Blob) Release() {
	s, e := b.store, b.entry
	var last *Blob
	s.mu.Lock()
	if e.readers--; e.readers == 0 {
		s.idle = append(s.idle, e)
		if len(s.idle) > maxIdle {
			last = s.idle[0].open
			s.idle[0].open = nil
			s.idle = slices.Delete(s.idle, 0, 1)
		}
	}
	s.mu.Unlock()
	if last != nil {
		s.closeBlob(last)
	}
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
