package engine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// The file TIER says which prefix of an object store the data directory has had for its
// own, and as which writers it may have written the mirror there, in text, for people:
//
//	snakream-tier 2
//	s3://bucket/prefix
//	writer 000102030405060708090a0b0c0d0e0f 42
//	intent 101112131415161718191a1b1c1d1e1f
//
// A writer is what one run of the program calls itself, and behind the one that got the
// prefix is the epoch that it got. It is written down as an intent,
// durably, before the mirror is claimed with it, and in place of all the others after
// that. So whatever is cut off in between, the directory knows whoever has the mirror,
// unless that is another copy of it. An intent stays for as long as a claim of it may
// still arrive in the store: until a later one has. Without a line "writer" the directory
// has yet to get its first prefix. Version 1 ends after the place, and knows whoever it
// finds.
const (
	tierFile     = "TIER"
	tierFileNew  = "TIER.new"
	tierMagic    = "snakream-tier "
	tierVersion  = 2
	maxTierBytes = 4 << 10
	maxIntents   = 8 // the oldest are forgotten: nothing arrives after so many more starts
)

// tierRecord is what the file TIER says.
type tierRecord struct {
	where   string        // "" without the file
	writer  mirror.Writer // zero: has yet to get a prefix; its epoch is 0 then
	epoch   uint64
	intents []mirror.Writer // oldest first
	anybody bool            // version 1
}

// used reports whether the directory has had a prefix for its own.
func (r *tierRecord) used() bool { return r.anybody || r.writer != mirror.Writer{} }

// known returns the writers that the directory may have been. m is the mirror as it is;
// nil if there is none.
func (r *tierRecord) known(m *mirror.State) []mirror.Writer {
	var all []mirror.Writer
	if r.anybody && m != nil {
		all = append(all, m.Writer)
	}
	if r.writer != (mirror.Writer{}) {
		all = append(all, r.writer)
	}
	return append(all, r.intents...)
}

// intend returns the record with the intent to claim the mirror m, nil if there is none,
// at where, as w. An intent that has become m is not one any more: it must not be forgotten
// for its age.
func (r *tierRecord) intend(m *mirror.State, where string, w mirror.Writer) tierRecord {
	next := tierRecord{where: r.where, writer: r.writer, epoch: r.epoch, intents: slices.Clone(r.intents)}
	if !r.used() {
		next.where = where
	}
	if m != nil {
		i := slices.Index(next.intents, m.Writer)
		if i >= 0 || r.anybody { // its claim has arrived, and no earlier one can any more
			next.writer, next.epoch, next.intents = m.Writer, m.Epoch, next.intents[i+1:]
		}
	}
	if next.writer != w && !slices.Contains(next.intents, w) {
		next.intents = append(next.intents, w)
	}
	next.intents = next.intents[max(0, len(next.intents)-maxIntents):]
	return next
}

func (r *tierRecord) encode() []byte {
	b := fmt.Appendf(nil, "%s%d\n%s\n", tierMagic, tierVersion, r.where)
	if r.writer != (mirror.Writer{}) {
		b = fmt.Appendf(b, "writer %v %d\n", r.writer, r.epoch)
	}
	for _, w := range r.intents {
		b = fmt.Appendf(b, "intent %v\n", w)
	}
	return b
}

// decodeTierRecord is the inverse of encode, and reads version 1.
func decodeTierRecord(path string, b []byte) (tierRecord, error) {
	corrupt := func(detail string) (tierRecord, error) {
		return tierRecord{}, &base.CorruptionError{Path: path, Detail: "not what says which object store is used: " + detail}
	}
	text, whole := strings.CutSuffix(string(b), "\n")
	text, ok := strings.CutPrefix(text, tierMagic)
	lines := strings.Split(text, "\n")
	version, err := strconv.ParseUint(lines[0], 10, 32)
	switch {
	case !ok || err != nil || version == 0 || strconv.FormatUint(version, 10) != lines[0] || len(b) > maxTierBytes:
		return corrupt("it does not begin like one")
	case version > tierVersion:
		return tierRecord{}, &base.VersionError{Path: path, Version: uint32(version), Newest: tierVersion}
	case !whole || len(lines) < 2 || lines[1] == "":
		return corrupt("it is cut off")
	}
	r := tierRecord{where: lines[1], anybody: version == 1}
	for i, line := range lines[2:] {
		kind, text, _ := strings.Cut(line, " ")
		text, epoch, claimed := strings.Cut(text, " ")
		n, err := hex.DecodeString(text)
		w := mirror.Writer(append(n, make([]byte, len(mirror.Writer{}))...))
		switch {
		case r.anybody || err != nil || len(n) != len(w) || w == mirror.Writer{} || w.String() != text:
			return corrupt(fmt.Sprintf("line %d", i+3))
		case kind == "writer" && claimed && i == 0:
			r.writer = w
			if r.epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil || r.epoch == 0 || strconv.FormatUint(r.epoch, 10) != epoch {
				return corrupt("the epoch")
			}
		case kind == "intent" && !claimed && len(r.intents) < maxIntents && !slices.Contains(r.known(nil), w):
			r.intents = append(r.intents, w)
		default:
			return corrupt(fmt.Sprintf("line %d", i+3))
		}
	}
	if !r.anybody && len(r.known(nil)) == 0 {
		return corrupt("nobody has written the mirror")
	}
	return r, nil
}

// readTierFile returns what the file TIER says; the zero record without one.
func readTierFile(fsys vfs.FS, dir string) (tierRecord, error) {
	path := filepath.Join(dir, tierFile)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return tierRecord{}, nil
	}
	if err != nil {
		return tierRecord{}, err
	}
	defer f.Close()
	b := make([]byte, maxTierBytes+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return tierRecord{}, err
	}
	return decodeTierRecord(path, b[:n])
}

// writeTierFile has the file TIER say next, durably. r is what it says already.
func (r *tierRecord) writeTierFile(fsys vfs.FS, dir string, next tierRecord) error {
	b := next.encode()
	if !r.anybody && r.where != "" && bytes.Equal(b, r.encode()) {
		return nil
	}
	if err := replaceFile(fsys, dir, tierFile, tierFileNew, b); err != nil {
		return err
	}
	*r = next
	return nil
}

// UsesTier returns the object store that the data directory dir has had for its own, as
// it was named then; "" if none. The error is a *base.CorruptionError, a
// *base.VersionError, or one of the file system. It may be called while the directory is
// open.
func UsesTier(fsys vfs.FS, dir string) (string, error) {
	r, err := readTierFile(fsys, dir)
	if err != nil || !r.used() {
		return "", err
	}
	return r.where, nil
}

// replaceFile gives the file name in dir the contents b, atomically and durably. tmp is
// the name that it is written under.
func replaceFile(fsys vfs.FS, dir, name, tmp string, b []byte) error {
	tmp = filepath.Join(dir, tmp)
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
