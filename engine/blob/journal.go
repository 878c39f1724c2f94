package blob

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// The journal, file JOURNAL in the store's directory, names digests that may be
// removed unless a snapshot refers to them: uploads before they get their name, and
// blobs that lost their last reference. It begins anew at each start, if there is
// space. Little endian:
//
//	 0  magic    8   "SNKRBLB" and a zero
//	 8  version  u32 1
//	12  zero     4
//	16  sum      u64 xxhash64 of the 16 bytes above
//	24  entries, 40 bytes each: digest 32, sum u64 xxhash64 of the digest
//
// Entries that do not verify are the torn end: nothing was removed, nor given a name,
// on their word. Behind it the file is zero, which no entry is.
const (
	journalName    = "JOURNAL"
	journalTemp    = "JOURNAL.tmp"
	journalMagic   = "SNKRBLB\x00"
	journalVersion = 1
	journalHeader  = 24
	journalEntry   = 40

	maxJournal  = 64 << 20 // bytes read at a start
	trimJournal = 1 << 20  // from this size on it is written anew when half of it says nothing
)

type journal struct {
	fs  vfs.FS
	dir string

	mu      sync.Mutex // guards what follows; never held across I/O
	pending []Digest   // to be written by the next sync
	err     error      // the first one but for a lack of space; every later call returns it

	writing sync.Mutex // held by whoever writes the file, across that
	growing
}

// startJournal replaces the journal by one that names the digests, durably.
func startJournal(fsys vfs.FS, dir string, keep ...Digest) (*journal, error) {
	b := append(make([]byte, 0, journalHeader+len(keep)*journalEntry), journalMagic...)
	b = bin.AppendU32(b, journalVersion)
	b = bin.AppendU32(b, 0)
	b = bin.AppendU64(b, bin.Sum(b))
	b = appendEntries(b, keep)
	g, err := replaceFile(fsys, dir, journalName, journalTemp, int64(len(b)), slices.Values([][]byte{b}))
	if err != nil {
		return nil, err
	}
	return &journal{fs: fsys, dir: dir, growing: g}, nil
}

// resumeJournal goes on with the journal that is there, behind its last whole entry. What
// it names may be removed as before.
func resumeJournal(fsys vfs.FS, dir string, end int64) (*journal, error) {
	g, err := resumeFile(fsys, dir, journalName, end)
	if err != nil {
		return nil, err
	}
	return &journal{fs: fsys, dir: dir, growing: g}, nil
}

func appendEntries(dst []byte, all []Digest) []byte {
	for _, d := range all {
		dst = append(dst, d[:]...)
		dst = bin.AppendU64(dst, bin.Sum(d[:]))
	}
	return dst
}

// add names a digest. Durable after sync; it does no I/O.
func (j *journal) add(d Digest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, d)
	return j.err
}

// sync makes durable what was added before it was called.
func (j *journal) sync() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	pending, err := j.pending, j.err
	j.pending = nil
	j.mu.Unlock()
	if err != nil || len(pending) == 0 {
		return err
	}
	err = j.write(appendEntries(nil, pending))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vfs.ErrNoSpace):
		j.mu.Lock()
		j.pending = append(pending, j.pending...)
		j.mu.Unlock()
		return fmt.Errorf("blob journal: %w", err)
	}
	return j.fail(err)
}

// trim writes the journal anew when half of it is of no use any more. names returns
// what has to stay in it, but for what has been added and not been written yet.
func (j *journal) trim(names func() []Digest) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	if err := j.failed(); err != nil || j.end < trimJournal {
		return err
	}
	keep := names()
	if journalHeader+2*int64(len(keep))*journalEntry > j.end {
		return nil
	}
	next, err := startJournal(j.fs, j.dir, keep...)
	switch {
	case errors.Is(err, vfs.ErrNoSpace):
		return nil // the present one will do
	case err != nil:
		return j.fail(err)
	}
	err = j.f.Close()
	j.growing = next.growing
	if err != nil {
		return j.fail(err)
	}
	return nil
}

// failed returns the final error, if there has been one.
func (j *journal) failed() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// fail makes err final, unless there has been one before.
func (j *journal) fail(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = fmt.Errorf("blob store: %w", err)
	}
	return j.err
}

func (j *journal) close() error { return j.f.Close() }

// readJournal returns the digests that the journal of the last run names, and where its
// entries end.
func readJournal(fsys vfs.FS, dir string) (named map[Digest]bool, end int64, err error) {
	path := filepath.Join(dir, journalName)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = &base.CorruptionError{Path: path, Detail: "the journal of blobs is missing"}
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, 0, err
	}
	b := make([]byte, min(size, maxJournal))
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return decodeJournal(path, b[:n])
}

func decodeJournal(path string, b []byte) (named map[Digest]bool, end int64, err error) {
	corrupt := func(detail string) error { return &base.CorruptionError{Path: path, Detail: detail} }
	if len(b) < journalHeader || string(b[:8]) != journalMagic {
		return nil, 0, corrupt("not a journal of blobs")
	}
	d := bin.NewDecoder(b[8:])
	if v := d.U32(); v != journalVersion {
		return nil, 0, &base.VersionError{Path: path, Version: v, Newest: journalVersion}
	}
	d.Skip(4)
	if d.U64() != bin.Sum(b[:16]) {
		return nil, 0, corrupt("the checksum of the header does not match")
	}
	named, end = map[Digest]bool{}, journalHeader
	for d.Len() >= journalEntry {
		digest := Digest(d.Raw(len(Digest{})))
		if d.U64() != bin.Sum(digest[:]) {
			break
		}
		named[digest] = true
		end += journalEntry
	}
	return named, end, nil
}
