package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// Item is a file of a store as Inspect finds it.
type Item struct {
	Path   string
	Digest Digest // what its name says; zero when that is not the name of a blob
	Size   int64  // of the blob, in bytes
	Temp   bool   // what is left of an upload, which the next start removes
	Named  bool   // the journal says that it may be removed unless a snapshot refers to it
	Copied bool   // the ledger says that the object store has a copy, from which it is read when need be
	Err    error  // what is wrong with it, usually a *base.CorruptionError
}

// Known reports whether the file has the name and the place of a blob.
func (i *Item) Known() bool { return i.Digest != Digest{} }

// JournalPath returns the path of a store's journal.
func JournalPath(dir string) string { return filepath.Join(dir, journalName) }

// Path returns the path of a blob in the store in dir.
func Path(dir string, d Digest) string {
	name := d.String()
	return filepath.Join(dir, name[:2], name)
}

// Inspect reads every file of the store in dir, compares each blob with its SHA-256, and
// changes nothing. A journal or ledger that can't be read names nothing; Check tells. The store
// should not be open.
func Inspect(fsys vfs.FS, dir string, fn func(Item)) error {
	named, _, err := readJournal(fsys, dir)
	if err != nil {
		named = nil
	}
	copied, err := Copies(fsys, dir)
	if err != nil {
		copied = func(Digest) bool { return false }
	}
	subs, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		switch sub {
		case journalName, journalTemp, ledgerName, ledgerTemp:
			continue
		}
		path := filepath.Join(dir, sub)
		files, err := fsys.List(path)
		if errors.Is(err, syscall.ENOTDIR) {
			fn(Item{Path: path})
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range files {
			i := Item{Path: filepath.Join(path, name), Temp: sub == tmpName}
			if d, ok := parseDigest(name); ok && name[:2] == sub {
				i.Digest, i.Named, i.Copied = d, named[d], copied(d)
				i.Size, i.Err = verifyFile(fsys, dir, i.Path, d)
			}
			fn(i)
		}
	}
	return nil
}

// Copies returns what tells whether the object store has a copy of a blob, as far as the
// ledger of the store in dir knows. It changes nothing.
func Copies(fsys vfs.FS, dir string) (func(Digest) bool, error) {
	all, err := readLedger(fsys, dir)
	if err != nil {
		return nil, err
	}
	return func(d Digest) bool {
		_, ok := all.live[d]
		return ok
	}, nil
}

// verifyStep is how much of a blob is hashed at once, in bytes.
const verifyStep = 1 << 20

// verifyFile reads all of a blob's file.
func verifyFile(fsys vfs.FS, dir, path string, d Digest) (size int64, err error) {
	b, err := (&Store{fs: fsys, dir: dir}).openFile(d)
	if err != nil {
		return 0, err
	}
	defer b.file.Close()
	b.seg.Check(true, func(damage segment.Damage) {
		if err == nil {
			err = damage.Err
		}
	})
	if err != nil {
		return b.size, err
	}
	sum := sha256.New()
	var buf []byte
	for pos := int64(0); pos < b.size; pos += verifyStep {
		if buf, err = b.seg.AppendPayload(context.Background(), buf[:0], b.pos+pos, int(min(verifyStep, b.size-pos))); err != nil {
			return b.size, err
		}
		sum.Write(buf)
	}
	if got := Digest(sum.Sum(nil)); got != d {
		return b.size, &base.CorruptionError{Path: path, Offset: b.seg.FilePos(b.pos), Detail: fmt.Sprintf("the contents have the SHA-256 %v", got)}
	}
	return b.size, nil
}
