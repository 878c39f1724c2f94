package blob

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// The journal, file JOURNAL in the store's directory, names digests that may be
// removed unless a snapshot refers to them: uploads before they get their name, and
// blobs that lost their last reference. It begins anew at each start.
//
//	0       8         12      16
//	┌───────┬─────────┬───────┬──────────────────────┬─────
//	│ magic │ version │ 0 u32 │ entry of 40 bytes    │ entry …
//	│ 8     │ u32     │       │ digest 32 │ sum u64  │
//	└───────┴─────────┴───────┴──────────────────────┴─────
//
// sum is the xxhash64 of the digest. Entries that do not verify are the torn end:
// nothing was removed, nor given a name, on their word.
const (
	journalName    = "JOURNAL"
	journalTemp    = "JOURNAL.tmp"
	journalMagic   = "SNKRBLB\x00"
	journalVersion = 1
	journalHeader  = 16
	journalEntry   = 40
	maxJournal     = 64 << 20 // bytes read at a start
)

type journal struct {
	mu    sync.Mutex // held across its own writes: whoever names a blob waits for the disk anyway
	f     vfs.File
	end   int64
	dirty bool
	err   error // the first one; every later call returns it
}

// startJournal replaces the journal by an empty one, durably.
func startJournal(fsys vfs.FS, dir string, keep []Digest) (*journal, error) {
	tmp := filepath.Join(dir, journalTemp)
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, journalHeader), journalMagic...)
	b = bin.AppendU32(b, journalVersion)
	b = bin.AppendU32(b, 0)
	for _, d := range keep {
		b = appendJournalEntry(b, d)
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err == nil {
		err = fsys.Rename(tmp, filepath.Join(dir, journalName))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &journal{f: f, end: int64(len(b))}, nil
}

func appendJournalEntry(dst []byte, d Digest) []byte {
	dst = append(dst, d[:]...)
	return bin.AppendU64(dst, bin.Sum(d[:]))
}

// add names a digest. Durable after sync.
func (j *journal) add(d Digest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	b := appendJournalEntry(nil, d)
	if _, err := j.f.WriteAt(b, j.end); err != nil {
		return j.fail(err)
	}
	j.end += int64(len(b))
	j.dirty = true
	return nil
}

func (j *journal) sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil || !j.dirty {
		return j.err
	}
	if err := j.f.Datasync(); err != nil {
		return j.fail(err)
	}
	j.dirty = false
	return nil
}

func (j *journal) fail(err error) error {
	j.err = fmt.Errorf("blob journal: %w", err)
	return j.err
}

func (j *journal) close() error { return j.f.Close() }

// readJournal returns the digests that the journal of the last run names.
func readJournal(fsys vfs.FS, dir string) (map[Digest]bool, error) {
	path := filepath.Join(dir, journalName)
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(size, maxJournal))
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return decodeJournal(path, b)
}

func decodeJournal(path string, b []byte) (map[Digest]bool, error) {
	if len(b) < journalHeader || string(b[:8]) != journalMagic {
		return nil, &base.CorruptionError{Path: path, Detail: "not a journal of blobs"}
	}
	d := bin.NewDecoder(b[8:])
	if v := d.U32(); v != journalVersion {
		return nil, &base.VersionError{Path: path, Version: v, Newest: journalVersion}
	}
	d.Skip(4)
	named := map[Digest]bool{}
	for d.Len() >= journalEntry {
		var dg Digest
		copy(dg[:], d.Raw(len(dg)))
		if d.U64() != bin.Sum(dg[:]) {
			break
		}
		named[dg] = true
	}
	return named, d.Err()
}
