package blob

import (
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
// changes nothing. A journal that can't be read names nothing; Check tells. The store
// should not be open.
func Inspect(fsys vfs.FS, dir string, fn func(Item)) error {
	named, _, err := readJournal(fsys, dir)
	if err != nil {
		named = nil
	}
	subs, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		switch sub {
		case journalName, journalTemp:
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
				i.Digest, i.Named = d, named[d]
				i.Size, i.Err = verifyFile(fsys, i.Path, d)
			}
			fn(i)
		}
	}
	return nil
}

// verifyStep is how much of a blob is hashed at once, in bytes.
const verifyStep = 1 << 20

// verifyFile reads all of a blob's file.
func verifyFile(fsys vfs.FS, path string, d Digest) (size int64, err error) {
	b, err := openFile(fsys, path)
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
		if buf, err = b.Append(buf[:0], pos, int(min(verifyStep, b.size-pos))); err != nil {
			return b.size, err
		}
		sum.Write(buf)
	}
	if got := Digest(sum.Sum(nil)); got != d {
		return b.size, &base.CorruptionError{Path: path, Offset: b.seg.FilePos(b.pos), Detail: fmt.Sprintf("the contents have the SHA-256 %v", got)}
	}
	return b.size, nil
}
