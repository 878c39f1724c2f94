package engine

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/wal"
)

// The identity of a data directory, file SNAKREAM, little endian:
//
//	 0  magic    8   "SNAKREAM"
//	 8  version  u32 1
//	12  shards   u32 1..64
//	16  seed     u64 of the hash that spreads names over shards
//	24  node     16  random
//	40  created  i64 ms since 1970
//	48  history  u16 1..4095, +1 at each restore
//	50  zero     6
//	56  sum      u64 xxhash64 of the 56 bytes above
//
// It gets its name last: a directory with the file SNAKREAM.new instead is one whose
// making was interrupted, which holds nothing yet and is made anew.
const (
	identityFile    = "SNAKREAM"
	identityNew     = "SNAKREAM.new"
	lockFile        = "LOCK"
	shardPrefix     = "shard-"
	blobDir         = "blobs"
	lostFound       = "lost+found" // a freshly made file system has it, and counts as empty
	identityMagic   = "SNAKREAM"
	identityVersion = 1
	identityBytes   = 64
	maxHistory      = 0xfff // it is 12 bits of an incarnation

)

// shardDir returns the name of a shard's directory.
func shardDir(n int) string { return fmt.Sprintf("%s%02d", shardPrefix, n) }

type identity struct {
	Shards  int
	Seed    uint64
	Node    [16]byte
	Created base.Millis
	History uint16
}

func (id *identity) encode() []byte {
	b := append(make([]byte, 0, identityBytes), identityMagic...)
	b = bin.AppendU32(b, identityVersion)
	b = bin.AppendU32(b, uint32(id.Shards))
	b = bin.AppendU64(b, id.Seed)
	b = append(b, id.Node[:]...)
	b = bin.AppendU64(b, uint64(id.Created))
	b = bin.AppendU16(b, id.History)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return bin.AppendU64(b, bin.Sum(b))
}

func decodeIdentity(path string, b []byte) (identity, error) {
	corrupt := func(at int64, detail string) (identity, error) {
		return identity{}, &base.CorruptionError{Path: path, Offset: at, Detail: detail}
	}
	if len(b) < 12 || string(b[:8]) != identityMagic {
		return corrupt(0, "not the identity of a data directory")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != identityVersion {
		return identity{}, &base.VersionError{Path: path, Version: v, Newest: identityVersion}
	}
	if len(b) != identityBytes {
		return corrupt(int64(len(b)), fmt.Sprintf("%d bytes instead of %d", len(b), identityBytes))
	}
	if bin.Sum(b[:56]) != binary.LittleEndian.Uint64(b[56:]) {
		return corrupt(56, "checksum does not match")
	}
	id := identity{
		Shards: int(binary.LittleEndian.Uint32(b[12:])), Seed: binary.LittleEndian.Uint64(b[16:]),
		Created: base.Millis(binary.LittleEndian.Uint64(b[40:])), History: binary.LittleEndian.Uint16(b[48:]),
	}
	copy(id.Node[:], b[24:40])
	if id.Shards < 1 || id.Shards > maxShards || id.History == 0 || id.History > maxHistory {
		return corrupt(12, "impossible number of shards or history")
	}
	return id, nil
}

// openDirectory locks dir and reads its identity, making both if there is nothing
// yet. Whatever is wrong with it, nothing is touched.
func openDirectory(dir string, o *Options) (identity, io.Closer, error) {
	names, err := o.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = o.FS.MkdirAll(dir); err == nil {
			names = nil
		}
	}
	if err != nil {
		return identity{}, nil, err
	}
	known := slices.Contains(names, identityFile) || slices.Contains(names, identityNew)
	for _, n := range names {
		if !known && strings.HasPrefix(n, shardPrefix) {
			return identity{}, nil, fmt.Errorf("%s: %w: it holds %s but no file %s", dir, ErrIncomplete, n, identityFile)
		}
	}
	for _, n := range names {
		if !known && n != lockFile && n != lostFound {
			return identity{}, nil, fmt.Errorf("%s: %w: it holds %s but no file %s", dir, ErrForeign, n, identityFile)
		}
	}
	lock, err := o.FS.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		return identity{}, nil, fmt.Errorf("%s: %w", dir, err)
	}
	id, err := readIdentity(dir, o.FS)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id, err = makeDirectory(dir, o)
	case err == nil:
		err = refuseUnfinished(o.FS, dir)
	}
	if err == nil && o.Shards != 0 && o.Shards != id.Shards {
		err = fmt.Errorf("%s: %w: it has %d, %d were asked for", dir, ErrShards, id.Shards, o.Shards)
	}
	if err != nil {
		return identity{}, nil, errors.Join(err, lock.Close())
	}
	return id, lock, nil
}

func readIdentity(dir string, fsys vfs.FS) (identity, error) {
	return readIdentityFile(filepath.Join(dir, identityFile), fsys)
}

func readIdentityFile(path string, fsys vfs.FS) (identity, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return identity{}, err
	}
	defer f.Close()
	b := make([]byte, identityBytes+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return identity{}, err
	}
	return decodeIdentity(path, b[:n])
}

// makeDirectory makes the shards of a new data directory and names it last.
func makeDirectory(dir string, o *Options) (identity, error) {
	id := identity{Shards: o.Shards, Created: base.Millis(o.Now().UnixMilli()), History: 1}
	if id.Shards == 0 {
		id.Shards = defaultShards()
	}
	var seed [8]byte
	for _, b := range [][]byte{seed[:], id.Node[:]} {
		if _, err := rand.Read(b); err != nil {
			return id, err
		}
	}
	id.Seed = binary.LittleEndian.Uint64(seed[:])
	if err := startOver(dir, o.FS); err != nil {
		return id, err
	}
	for n := range id.Shards {
		if err := makeShard(filepath.Join(dir, shardDir(n)), o); err != nil {
			return id, err
		}
	}
	if err := blob.Create(o.FS, filepath.Join(dir, blobDir)); err != nil {
		return id, err
	}
	return id, nameDirectory(o.FS, dir, &id)
}

// nameDirectory makes a directory that is complete a data directory, durably.
func nameDirectory(fsys vfs.FS, dir string, id *identity) error {
	tmp := filepath.Join(dir, identityNew)
	f, err := fsys.OpenAppend(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(id.encode(), 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, filepath.Join(dir, identityFile)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// startOver marks the directory as being made and removes what an interrupted
// attempt has left.
func startOver(dir string, fsys vfs.FS) error {
	f, err := fsys.Create(filepath.Join(dir, identityNew))
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if n != identityNew && n != lockFile && n != lostFound {
			if err := removeAll(fsys, filepath.Join(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeAll removes a file, or a directory with what it holds.
func removeAll(fsys vfs.FS, path string) error {
	if names, err := fsys.List(path); err == nil {
		for _, n := range names {
			if err := removeAll(fsys, filepath.Join(path, n)); err != nil {
				return err
			}
		}
	}
	return fsys.Remove(path)
}

func makeShard(dir string, o *Options) error {
	for _, d := range []string{dir, filepath.Join(dir, "seg"), filepath.Join(dir, "tmp")} {
		if err := o.FS.MkdirAll(d); err != nil {
			return err
		}
	}
	if err := manifest.Create(o.FS, dir); err != nil {
		return err
	}
	return wal.Create(wal.Config{FS: o.FS, Dir: filepath.Join(dir, "wal"), FileBytes: o.WALFileBytes})
}
