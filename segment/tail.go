package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// A tail is what stays of a segment's file when payload and boundaries are only in an
// object: its other bytes, one after the other.
//
//	┌──────────────────┐ 0
//	│ header           │ as in the segment
//	├──────────────────┤ 4096
//	│ rows             │ ┐
//	│ checksum table   │ │ as in the segment,
//	│ footer           │ │ from the rows region to the end
//	│ trailer          │ ┘
//	└──────────────────┘
const tailPiece = 1 << 20 // copied at once

// TailBytes returns the size of the segment's tail, in bytes.
func (s *Segment) TailBytes() int64 { return headerBytes + s.lay.size - s.lay.rowsPos() }

// WriteTail writes the tail of the segment id, which src is, to a new file. Its
// contents are durable on return; nothing is left of it after an error, which is that
// of Open when header or trailer are damaged.
func WriteTail(ctx context.Context, fsys vfs.FS, path string, src Source, name string, id base.SegmentID) (err error) {
	lay, err := readLayout(src, name, id)
	if err != nil {
		return err
	}
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("segment: write tail %s: %w", path, err), fsys.Remove(path))
		}
	}()
	if err := f.Allocate(headerBytes + lay.size - lay.rowsPos()); err != nil {
		return err
	}
	if err := copyRange(ctx, f, 0, src, name, 0, headerBytes); err != nil {
		return err
	}
	if err := copyRange(ctx, f, headerBytes, src, name, lay.rowsPos(), lay.size-lay.rowsPos()); err != nil {
		return err
	}
	return f.Datasync()
}

func copyRange(ctx context.Context, f vfs.File, to int64, src Source, name string, from, n int64) error {
	if r, ok := src.(Refetcher); ok {
		src = withContext{r, ctx}
	}
	buf := make([]byte, min(n, tailPiece))
	for done := int64(0); done < n; {
		p := buf[:min(n-done, tailPiece)]
		if err := readFull(src, name, p, from+done); err != nil {
			return err
		}
		if _, err := f.WriteAt(p, to+done); err != nil {
			return err
		}
		done += int64(len(p))
	}
	return nil
}

// OpenTail is Open for a segment of which f is the tail and object the whole. It reads
// nothing of the object, nor do Rows and AllRows. f stays the caller's to close.
func OpenTail(f vfs.File, object Refetcher, name string, id base.SegmentID) (*Segment, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("segment: size: %w", err)
	}
	if size < headerBytes+trailerBytes {
		return nil, &base.CorruptionError{Path: name, Offset: size, Detail: "too short for the tail of a segment"}
	}
	p := make([]byte, trailerBytes)
	if err := readFull(fileSource{f, size}, name, p, size-trailerBytes); err != nil {
		return nil, err
	}
	lay, err := decodeTrailer(p)
	if err == nil && headerBytes+lay.size-lay.rowsPos() != size {
		err = fmt.Errorf("of a tail of %d bytes, which has %d", headerBytes+lay.size-lay.rowsPos(), size)
	}
	if err != nil {
		return nil, &base.CorruptionError{Path: name, Offset: size - trailerBytes, Detail: "trailer: " + err.Error()}
	}
	return Open(tailSource{object, f, lay.rowsPos(), lay.size}, name, id)
}

// tailSource puts a tail and an object together. No read crosses from one to the other.
type tailSource struct {
	Refetcher
	tail    vfs.File
	rowsPos int64
	size    int64
}

func (t tailSource) Size() int64 { return t.size }

func (t tailSource) ReadAt(p []byte, off int64) (int, error) {
	return t.ReadContext(context.Background(), p, off)
}

func (t tailSource) ReadContext(ctx context.Context, p []byte, off int64) (int, error) {
	switch {
	case off+int64(len(p)) <= headerBytes:
		return t.tail.ReadAt(p, off)
	case off >= t.rowsPos:
		return t.tail.ReadAt(p, headerBytes+off-t.rowsPos)
	}
	return t.Refetcher.ReadContext(ctx, p, off)
}

func (t tailSource) Discard(off, n int64) {
	if off < t.rowsPos {
		t.Refetcher.Discard(off, n)
	}
}
