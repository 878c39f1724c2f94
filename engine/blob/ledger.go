package blob

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"path/filepath"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// The ledger, file REMOTE in the store's directory, says which objects hold copies of
// blobs. A file that it vouches for may be removed, so that it is the only way to the
// bytes. It is written anew at each start, if there is space; without objects there is
// none. Little endian:
//
//	 0  magic    8   "SNKROBJ" and a zero
//	 8  version  u32 1
//	12  zero     4
//	16  count    u64 entries that the file began with
//	24  zero     32
//	56  sum      u64 xxhash64 of the 56 bytes above
//	64  entries, 64 bytes each
//
//	┌───────────┬────────────┬──────────────┬──────────┬──────────┬──────────┐
//	│ digest 32 │ object u64 │ size u64 of  │ kind u32 │ nth u32  │ sum u64  │
//	│           │            │ the object   │          │ of write │ xxhash64 │
//	└───────────┴────────────┴──────────────┴──────────┴──────────┴──────────┘
//
// Later entries count. Entries that do not verify are the torn end of the last write,
// which was not acknowledged, unless they lie in front of what was written later: nth
// says how many entries that were written at once an entry is behind. Then, and among
// the first count, they are damage: the start is refused.
const (
	ledgerName    = "REMOTE"
	ledgerTemp    = "REMOTE.tmp"
	ledgerMagic   = "SNKROBJ\x00"
	ledgerVersion = 1
	ledgerHeader  = 64
	ledgerEntry   = 64
	ledgerSumPos  = 56 // in header and entry

	ledgerAtOnce = 4096    // entries in one write
	trimLedger   = 1 << 20 // from this size on it is written anew when half of it says nothing
)

// kind is what an entry says of an object.
type kind uint32

// The kinds are on disk.
const (
	kindSaved     kind = 1 // it is the blob's
	kindDoubted   kind = 2 // it is, but a better one is to be made: the file was damaged and has been replaced
	kindOrphaned  kind = 3 // it is nobody's
	kindForgotten kind = 4 // whoever deletes objects knows of it: this is its last entry
	kinds              = 5
)

type record struct {
	kind kind
	Object
}

func appendRecord(dst []byte, r record, nth int) []byte {
	from := len(dst)
	dst = append(dst, r.Digest[:]...)
	dst = bin.AppendU64(dst, r.Number)
	dst = bin.AppendU64(dst, uint64(r.Size))
	dst = bin.AppendU32(dst, uint32(r.kind))
	dst = bin.AppendU32(dst, uint32(nth))
	return bin.AppendU64(dst, bin.Sum(dst[from:]))
}

// decodeRecord returns ok = false for an entry that does not verify, and an error for one
// that does and makes no sense.
func decodeRecord(b []byte) (r record, nth int64, ok bool, err error) {
	d := bin.NewDecoder(b)
	copy(r.Digest[:], d.Raw(len(r.Digest)))
	r.Number = d.U64()
	size := d.U64()
	r.kind, nth = kind(d.U32()), int64(d.U32())
	switch {
	case d.U64() != bin.Sum(b[:ledgerSumPos]) || d.Err() != nil:
		return record{}, 0, false, nil
	case r.kind == 0 || r.kind >= kinds || r.Number == 0 || size > math.MaxInt64:
		return record{}, 0, true, fmt.Errorf("kind %d, object %d of %d bytes", r.kind, r.Number, size)
	}
	r.Size = int64(size)
	return r, nth, true, nil
}

// objects is what a ledger says when it is read to its end.
type objects struct {
	live    map[Digest]record  // kindSaved or kindDoubted
	orphans map[uint64]*orphan // by number
	found   bool               // there is a ledger
	end     int64              // of its entries
}

// orphan is an object that nothing needs any more.
type orphan struct {
	Object
	marked bool // the ledger says so, durably
}

func newObjects() objects {
	return objects{live: map[Digest]record{}, orphans: map[uint64]*orphan{}, end: ledgerHeader}
}

// apply adds an entry.
func (o *objects) apply(r record) {
	old, had := o.live[r.Digest]
	switch r.kind {
	case kindSaved, kindDoubted:
		if had && old.Number != r.Number {
			o.orphans[old.Number] = &orphan{Object: old.Object}
		}
		delete(o.orphans, r.Number)
		o.live[r.Digest] = r
		return
	case kindOrphaned:
		o.orphans[r.Number] = &orphan{Object: r.Object, marked: true}
	case kindForgotten:
		delete(o.orphans, r.Number)
	}
	if had && old.Number == r.Number {
		delete(o.live, r.Digest)
	}
}

// ledger is the open file. Only one goroutine uses it at a time.
type ledger struct {
	fs  vfs.FS
	dir string
	growing
}

// startLedger replaces the ledger by one with these entries, durably.
func startLedger(fsys vfs.FS, dir string, all []record) (ledger, error) {
	size := ledgerHeader + int64(len(all))*ledgerEntry
	g, err := replaceFile(fsys, dir, ledgerName, ledgerTemp, size, func(yield func([]byte) bool) {
		if !yield(appendLedgerHeader(nil, uint64(len(all)), ledgerVersion)) {
			return
		}
		for b := range encoded(all, false) {
			if !yield(b) {
				return
			}
		}
	})
	return ledger{fsys, dir, g}, err
}

func appendLedgerHeader(dst []byte, count uint64, version uint32) []byte {
	from := len(dst)
	dst = append(dst, ledgerMagic...)
	dst = bin.AppendU32(dst, version)
	dst = bin.AppendU32(dst, 0)
	dst = bin.AppendU64(dst, count)
	dst = append(dst, make([]byte, ledgerSumPos-24)...)
	return bin.AppendU64(dst, bin.Sum(dst[from:]))
}

// encoded yields records in pieces. Each piece is one write of its own, or, if they are
// not numbered, all of them are durable before any is looked at. A piece is valid until
// the next one.
func encoded(all []record, numbered bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var b []byte
		for len(all) > 0 {
			b = b[:0]
			n := min(len(all), ledgerAtOnce)
			for i, r := range all[:n] {
				if !numbered {
					i = 0
				}
				b = appendRecord(b, r, i)
			}
			if all = all[n:]; !yield(b) {
				return
			}
		}
	}
}

// resumeLedger goes on with the ledger that was read, where there is no space for a new
// one. What was read may never have reached the disk: it is written again, same bytes,
// same place, and zeros behind it.
func resumeLedger(fsys vfs.FS, dir string, end int64) (ledger, error) {
	g, err := resumeFile(fsys, dir, ledgerName, end)
	if err != nil {
		return ledger{}, err
	}
	buf := make([]byte, ledgerAtOnce*ledgerEntry)
	for at := int64(0); err == nil && at < g.size; {
		p := buf[:min(int64(len(buf)), g.size-at)]
		clear(p)
		if at < end {
			_, err = g.f.ReadAt(p[:min(int64(len(p)), end-at)], at)
		}
		if err == nil || errors.Is(err, io.EOF) {
			_, err = g.f.WriteAt(p, at)
		}
		at += int64(len(p))
	}
	if err == nil {
		err = g.f.Datasync()
	}
	if err != nil {
		return ledger{}, errors.Join(err, g.f.Close())
	}
	return ledger{fsys, dir, g}, nil
}

// add adds entries, durably. After an error that matches vfs.ErrNoSpace the first ones of
// more than ledgerAtOnce may be there.
func (l *ledger) add(all []record) error {
	if l.f == nil { // the first ones
		next, err := startLedger(l.fs, l.dir, all)
		if err == nil {
			*l = next
		}
		return err
	}
	for b := range encoded(all, true) {
		if err := l.write(b); err != nil {
			return err
		}
	}
	return nil
}

// trim writes the ledger anew.
func (l *ledger) trim(all []record) error {
	next, err := startLedger(l.fs, l.dir, all)
	if err != nil {
		return err
	}
	old := l.f
	*l = next
	return old.Close()
}

func (l *ledger) close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// readLedger returns what the ledger of the last run says; nothing if there is none.
func readLedger(fsys vfs.FS, dir string) (objects, error) {
	path := filepath.Join(dir, ledgerName)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newObjects(), nil
	}
	if err != nil {
		return objects{}, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return objects{}, err
	}
	return decodeLedger(path, f, size)
}

// decodeLedger reads a ledger of size bytes, in pieces.
func decodeLedger(path string, src io.ReaderAt, size int64) (objects, error) {
	corrupt := func(at int64, format string, args ...any) (objects, error) {
		return objects{}, &base.CorruptionError{Path: path, Offset: at, Detail: fmt.Sprintf(format, args...)}
	}
	in := io.NewSectionReader(src, 0, size)
	head := make([]byte, ledgerHeader)
	switch _, err := io.ReadFull(in, head); {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt(0, "too short for a ledger of objects")
	case err != nil:
		return objects{}, err
	}
	d := bin.NewDecoder(head[ledgerSumPos:])
	if string(head[:8]) != ledgerMagic || d.U64() != bin.Sum(head[:ledgerSumPos]) {
		return corrupt(0, "not a ledger of objects, or its header is damaged")
	}
	d.Reset(head[8:])
	if v := d.U32(); v != ledgerVersion {
		return objects{}, &base.VersionError{Path: path, Version: v, Newest: ledgerVersion}
	}
	d.Skip(4)
	count := d.U64()
	if count > uint64(size-ledgerHeader)/ledgerEntry {
		return corrupt(size, "the file ends within the %d entries that it began with", count)
	}
	all := newObjects()
	all.found = true
	torn := int64(-1) // the first entry that does not verify
	buf := make([]byte, ledgerAtOnce*ledgerEntry)
	for i := int64(0); i < (size-ledgerHeader)/ledgerEntry; {
		n, err := io.ReadFull(in, buf)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return objects{}, err
		}
		for b := buf[:n]; len(b) >= ledgerEntry; b, i = b[ledgerEntry:], i+1 {
			r, nth, ok, err := decodeRecord(b[:ledgerEntry])
			at := ledgerHeader + i*ledgerEntry
			switch {
			case err != nil:
				return corrupt(at, "entry: %v", err)
			case !ok && torn < 0 && uint64(i) < count:
				return corrupt(at, "an entry is damaged")
			case !ok && torn < 0:
				torn = i
			case ok && torn >= 0 && torn < i-nth:
				return corrupt(ledgerHeader+torn*ledgerEntry, "an entry is damaged, and later ones are not")
			case ok && torn < 0:
				all.apply(r)
				all.end = at + ledgerEntry
			}
		}
	}
	return all, nil
}

// WriteRemote makes the ledger of a new store, for blobs that are only in the object store.
// Of several objects of a blob the last one counts. Durable on return; not while the
// store is open.
func WriteRemote(fsys vfs.FS, dir string, objs []Object) error {
	all := make([]record, len(objs))
	for i, o := range objs {
		if o.Number == 0 || o.Size < 0 {
			return fmt.Errorf("object %d of blob %s, with %d bytes", o.Number, o.Digest, o.Size)
		}
		all[i] = record{kindSaved, o}
	}
	l, err := startLedger(fsys, dir, all)
	if err != nil {
		return err
	}
	return l.close()
}
