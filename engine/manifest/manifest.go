// Package manifest keeps the durable list of what belongs to a shard: its live
// segments and where each copy is, the low-water mark of its log, and the segment
// and stream numbers that are reserved. It is a file of edits to which every change
// is appended, and that a shorter one replaces when it has grown.
package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Position is a place in the shard's log: the last record, and its batch, that
// segments cover.
type Position struct {
	LSN   base.LSN
	Batch uint64
}

// A Segment is what the manifest says about one live segment.
type Segment struct {
	ID    base.SegmentID
	Size  int64 // of the whole file, in bytes
	Kind  uint8
	Level uint8
	// Run is shared by the segments into which one flush or merge was split: the LSN
	// of the newest record in them. It orders runs by age.
	Run                  uint64
	MinStream, MaxStream base.StreamID // of its streams; both are in the range
	// DeadSince is when the oldest deleted, trimmed or superseded bytes in it
	// became so; 0 if it holds none.
	DeadSince base.Millis
	// Object is the number of the object that is a verified copy; 0 if there is none.
	Object uint64
	// Evicted says that payload and boundaries are only in the object.
	Evicted bool
}

// State is what the edits so far amount to.
type State struct {
	Segments map[base.SegmentID]Segment
	Low      Position
	// NextSegment and NextStream end the reserved numbers: those below may be in
	// use, on disk or in the object store, and are never reserved again. NextStream
	// counts streams of the shard; it is no StreamID.
	NextSegment base.SegmentID
	NextStream  uint64
}

func (s State) clone() State {
	s.Segments = maps.Clone(s.Segments)
	return s
}

// An Edit is one change, all of which happens or nothing.
type Edit struct {
	// Remove takes segments out. Each must be there.
	Remove []base.SegmentID
	// Add puts segments in. One with the number of a segment that is there replaces
	// what is said about it. Numbers must be reserved, by this edit or before.
	Add []Segment
	// Low, unless nil, moves the low-water mark, never back.
	Low *Position
	// ReserveSegments and ReserveStreams, unless 0, are the new State.NextSegment
	// and State.NextStream, which never go back.
	ReserveSegments base.SegmentID
	ReserveStreams  uint64
}

// ErrInvalid says that an edit does not fit the state. Nothing was written.
var ErrInvalid = errors.New("invalid edit")

// check says what is wrong with e, as an edit of s.
func (s *State) check(e *Edit) error {
	switch {
	case e.ReserveSegments != 0 && e.ReserveSegments < s.NextSegment:
		return fmt.Errorf("%w: segment numbers go back from %d to %d", ErrInvalid, s.NextSegment, e.ReserveSegments)
	case e.ReserveStreams != 0 && e.ReserveStreams < s.NextStream:
		return fmt.Errorf("%w: stream numbers go back from %d to %d", ErrInvalid, s.NextStream, e.ReserveStreams)
	case e.Low != nil && (e.Low.LSN < s.Low.LSN || e.Low.Batch < s.Low.Batch):
		return fmt.Errorf("%w: low-water goes back from %v to %v", ErrInvalid, s.Low, *e.Low)
	}
	seen := make(map[base.SegmentID]bool, len(e.Remove)+len(e.Add))
	for _, id := range e.Remove {
		if _, ok := s.Segments[id]; !ok || seen[id] {
			return fmt.Errorf("%w: segment %d is removed but not there", ErrInvalid, id)
		}
		seen[id] = true
	}
	next := max(s.NextSegment, e.ReserveSegments)
	for _, g := range e.Add {
		switch {
		case g.ID == 0 || g.ID >= next:
			return fmt.Errorf("%w: segment %d is not reserved", ErrInvalid, g.ID)
		case seen[g.ID]:
			return fmt.Errorf("%w: segment %d is named twice", ErrInvalid, g.ID)
		case g.Size < 0 || g.MinStream > g.MaxStream || g.Evicted && g.Object == 0:
			return fmt.Errorf("%w: segment %+v", ErrInvalid, g)
		}
		seen[g.ID] = true
	}
	return nil
}

// apply makes the change e, which check has passed.
func (s *State) apply(e *Edit) {
	for _, id := range e.Remove {
		delete(s.Segments, id)
	}
	for _, g := range e.Add {
		s.Segments[g.ID] = g
	}
	if e.Low != nil {
		s.Low = *e.Low
	}
	s.NextSegment = max(s.NextSegment, e.ReserveSegments)
	s.NextStream = max(s.NextStream, e.ReserveStreams)
}

// rollBytes is the size at which a file is replaced, unless its first edit, which
// is the whole state, takes a quarter of that or more.
const rollBytes = 1 << 20

// A Manifest is open for edits. It has one owner: its methods must not be called
// concurrently, nor may another Manifest be open on its directory.
type Manifest struct {
	fs    vfs.FS
	dir   string
	state State
	log   log
	roll  int64 // the size at which the file is replaced
	err   error // the first error that is final
}

// Create makes an empty manifest in dir, which it makes too if need be; all is
// durable on return. It refuses, with fs.ErrExist, where there is a manifest, and
// takes the place of one whose creation did not finish.
func Create(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("manifest: create: %w", err)
	}
	if err := clearUnfinished(fsys, dir); err != nil {
		return err
	}
	l, err := createLog(fsys, dir, firstNumber, firstNumber, State{})
	if err != nil {
		return err
	}
	if err := errors.Join(writeCurrent(fsys, dir, firstNumber), l.f.Close()); err != nil {
		return fmt.Errorf("manifest: create: %w", err)
	}
	return nil
}

// Open reads the manifest in dir. Before it returns, the last edit has been written
// again and synced, what a crash left behind it is zero, and CURRENT and the
// directory are durable; files of an unfinished replacement are gone. A missing
// CURRENT or file and any damage but to the unfinished last edit are a
// CorruptionError, a later format is a VersionError; then nothing was changed.
func Open(fsys vfs.FS, dir string) (*Manifest, State, error) {
	l, state, err := openLog(fsys, dir)
	if err != nil {
		return nil, State{}, err
	}
	m := &Manifest{fs: fsys, dir: dir, state: state, log: l, roll: rollBytes}
	if err := m.secure(); err != nil {
		return nil, State{}, errors.Join(fmt.Errorf("manifest: open %s: %w", dir, err), l.f.Close())
	}
	return m, state.clone(), nil
}

// Read returns the state that Open would, with the same errors, and changes nothing.
func Read(fsys vfs.FS, dir string) (State, error) {
	l, state, err := openLog(fsys, dir)
	if err != nil {
		return State{}, err
	}
	if err := l.f.Close(); err != nil {
		return State{}, fmt.Errorf("manifest: close: %w", err)
	}
	return state, nil
}

// secure makes durable what was read: a crash may have come before a sync, and a
// sync that failed leaves a page cache that says otherwise.
func (m *Manifest) secure() error {
	if err := m.log.secure(); err != nil {
		return err
	}
	if err := writeCurrent(m.fs, m.dir, m.log.number); err != nil {
		return err
	}
	numbers, err := listLogs(m.fs, m.dir)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n == m.log.number {
			continue
		}
		if err := m.fs.Remove(logPath(m.dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Apply makes the change e durable: when it returns nil, the edit survives a crash,
// and otherwise all of it is there or nothing. ErrInvalid, and vfs.ErrNoSpace when
// there is no room for the edit, leave the manifest as it was. Any other error is
// final: every later Apply returns it, and only a new Open tells what is on disk.
func (m *Manifest) Apply(e Edit) error {
	if m.err != nil {
		return m.err
	}
	if err := m.state.check(&e); err != nil {
		return fmt.Errorf("manifest: apply: %w", err)
	}
	p := appendEdit(nil, &e)
	if len(p) > maxEditBytes {
		return fmt.Errorf("manifest: apply: %w: %d bytes", ErrInvalid, len(p))
	}
	if err := m.log.reserve(int64(len(p))); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			return fmt.Errorf("manifest: apply: %w", err)
		}
		return m.fail(err)
	}
	if err := m.log.append(p); err != nil {
		return m.fail(err)
	}
	m.state.apply(&e)
	if m.log.end < max(m.roll, 4*m.log.first) {
		return nil
	}
	if err := m.replace(); err != nil {
		return m.fail(err)
	}
	return nil
}

func (m *Manifest) fail(err error) error {
	m.err = fmt.Errorf("manifest: %s: %w", m.dir, err)
	return m.err
}

// replace goes on in a new file that begins with the state. For want of space it
// leaves the old one in use; the next edit tries again.
func (m *Manifest) replace() error {
	old, number := m.log, m.log.number+1
	l, err := createLog(m.fs, m.dir, number, old.seq, m.state)
	if err == nil {
		if err = prepareCurrent(m.fs, m.dir, number); err != nil {
			err = errors.Join(err, l.f.Close())
		}
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		if err := m.fs.Remove(logPath(m.dir, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := installCurrent(m.fs, m.dir); err != nil {
		return errors.Join(err, l.f.Close())
	}
	m.log = l
	if err := old.f.Close(); err != nil {
		return err
	}
	return m.fs.Remove(logPath(m.dir, old.number))
}

// State returns a copy of the state.
func (m *Manifest) State() State { return m.state.clone() }

// Close closes the file. Everything that was applied is durable already.
func (m *Manifest) Close() error {
	m.fail(fs.ErrClosed)
	if err := m.log.f.Close(); err != nil {
		return fmt.Errorf("manifest: close: %w", err)
	}
	return nil
}

func logPath(dir string, number uint64) string { return filepath.Join(dir, logName(number)) }
