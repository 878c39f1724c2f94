package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// allocateBytes is how much is allocated at once for edits to come.
const allocateBytes = 64 << 10

// log is one file of edits. It is written and read past the page cache where that is
// possible: after a sync that failed, only the medium tells what is on it.
type log struct {
	f         vfs.File
	number    uint64
	seq       uint64 // of the next edit
	first     int64  // bytes of the first edit
	end       int64  // where the next edit goes
	allocated int64

	last  int64  // where the last edit is …
	dirty int64  // … and where what a crash left behind it ends, if above end
	image []byte // the blocks of the last edit, as they were read
}

// createLog makes a new file whose first edit, of number seq, is the state. Contents
// and directory entry are durable on return; nothing refers to it. After an error it
// may exist.
func createLog(fsys vfs.FS, dir string, number, seq uint64, state State) (log, error) {
	path := logPath(dir, number)
	f, err := fsys.Create(path)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		f, err = fsys.OpenDirect(path)
	}
	if err != nil {
		return log{}, fmt.Errorf("manifest: create: %w", err)
	}
	l := log{f: f, number: number, seq: seq, end: blockBytes}
	err = l.begin(state.snapshot())
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return log{}, errors.Join(fmt.Errorf("manifest: create %s: %w", path, err), f.Close())
	}
	return l, nil
}

// begin writes the header and the first edit.
func (l *log) begin(e *Edit) error {
	p := appendEdit(nil, e)
	if len(p) > maxEditBytes {
		return fmt.Errorf("a state of %d bytes", len(p))
	}
	l.first = frameSize(int64(len(p)))
	if err := l.reserve(int64(len(p))); err != nil {
		return err
	}
	if _, err := l.f.WriteAt(encodeHeader(l.number, l.seq, formatVersion), 0); err != nil {
		return err
	}
	return l.append(p)
}

// reserve makes sure that there is room on the disk for an edit. It fails with
// vfs.ErrNoSpace without having changed what the file says.
func (l *log) reserve(payload int64) error {
	need := l.end + frameSize(payload)
	if need <= l.allocated {
		return nil
	}
	size := need + allocateBytes
	err := l.f.Allocate(size)
	if errors.Is(err, vfs.ErrNoSpace) { // then only what it takes: edits give space back
		size = need
		err = l.f.Allocate(size)
	}
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	l.allocated = size
	return nil
}

// append writes an edit, for which there is room, and syncs it.
func (l *log) append(p []byte) error {
	b := encodeFrame(p, l.number, l.seq)
	if _, err := l.f.WriteAt(b, l.end); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := l.f.Datasync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	l.end += int64(len(b))
	l.seq++
	return nil
}

// openLog finds, reads and checks the file that counts, and changes nothing.
func openLog(fsys vfs.FS, dir string) (log, State, error) {
	number, err := readCurrent(fsys, dir)
	if err != nil {
		return log{}, State{}, err
	}
	return openNumber(fsys, dir, number)
}

// openNumber reads and checks one file of edits, and changes nothing.
func openNumber(fsys vfs.FS, dir string, number uint64) (log, State, error) {
	path := logPath(dir, number)
	f, err := fsys.OpenDirect(path)
	if errors.Is(err, fs.ErrNotExist) {
		return log{}, State{}, &base.CorruptionError{Path: path, Detail: "the manifest is missing"}
	}
	if err != nil {
		return log{}, State{}, fmt.Errorf("manifest: open: %w", err)
	}
	data, err := readAll(f, path)
	if err != nil {
		return log{}, State{}, errors.Join(err, f.Close())
	}
	l := log{f: f, number: number, allocated: int64(len(data))}
	state, err := l.replay(data, path)
	if err != nil {
		return log{}, State{}, errors.Join(err, f.Close())
	}
	return l, state, nil
}

// readAll returns the contents of f, filled up with zeros to whole blocks.
func readAll(f vfs.File, path string) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("manifest: size of %s: %w", path, err)
	}
	if size > maxLogBytes {
		return nil, &base.CorruptionError{Path: path, Offset: maxLogBytes, Detail: "too long for a manifest"}
	}
	data := vfs.Aligned(int(size))
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("manifest: read %s: %w", path, err)
	}
	if int64(n) < size {
		return nil, &base.CorruptionError{Path: path, Offset: int64(n), Detail: "the file ends early"}
	}
	return data, nil
}

// replay applies the edits in data, whole blocks, in order, and sets all of l but
// its file and number.
func (l *log) replay(data []byte, path string) (State, error) {
	seq, err := decodeHeader(data, path, l.number)
	if err != nil {
		return State{}, err
	}
	state := State{Segments: map[base.SegmentID]Segment{}}
	l.seq, l.end = seq, blockBytes
	for {
		payload, seq, ok := decodeFrame(data[l.end:], l.number)
		if !ok || seq != l.seq {
			break
		}
		e, err := decodeEdit(payload)
		if err == nil {
			err = state.check(&e)
		}
		if err != nil {
			return State{}, &base.CorruptionError{Path: path, Offset: l.end, Detail: fmt.Sprintf("edit %d: %v", seq, err)}
		}
		state.apply(&e)
		size := frameSize(int64(len(payload)))
		l.last, l.image = l.end, data[l.end:l.end+size]
		if l.end == blockBytes {
			l.first = size
		}
		l.end += size
		l.seq++
	}
	if l.end == blockBytes {
		return State{}, &base.CorruptionError{Path: path, Offset: blockBytes, Detail: "the first edit is damaged"}
	}
	if at, ok := laterEdit(data, l.end, l.number, l.seq); ok {
		return State{}, &base.CorruptionError{Path: path, Offset: l.end, Detail: fmt.Sprintf("edit %d is damaged, but there is a later one at byte %d", l.seq, at)}
	}
	l.dirty = dirtyEnd(data, l.end)
	return state, nil
}

// laterEdit looks behind an edit that does not verify, which should be number seq,
// for one that does: edits are written one after the other is durable, so the first
// was complete once.
func laterEdit(data []byte, from int64, number, seq uint64) (at int64, ok bool) {
	for at = from; at < int64(len(data)); at += blockBytes {
		if _, s, ok := decodeFrame(data[at:], number); ok && s > seq {
			return at, true
		}
	}
	return 0, false
}

// dirtyEnd returns the end of the last block from from on that is not zero.
func dirtyEnd(data []byte, from int64) int64 {
	end := int64(len(data))
	for end > from && bytes.Equal(data[end-blockBytes:end], zeroBlock[:]) {
		end -= blockBytes
	}
	return end
}

var zeroBlock [blockBytes]byte

// secure writes the last edit again, zeros behind it, and syncs both.
func (l *log) secure() error {
	if _, err := l.f.WriteAt(l.image, l.last); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n := l.dirty - l.end; n > 0 {
		if _, err := l.f.WriteAt(vfs.Aligned(int(n)), l.end); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := l.f.Datasync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	l.image = nil
	return nil
}
