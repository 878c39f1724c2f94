package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/tiering"
)

// A repair takes several steps, and between the first and the last of them the directory
// must not be opened: what was lost may have had offsets that would be used again under
// the same incarnations. So its first step puts the identity as it will be beside the one
// that there is, which no start passes, and its last step renames it: history number and
// the end of the repair are one atomic change.
const (
	identityRepair     = "SNAKREAM.repair"
	identityRepairTemp = "SNAKREAM.repair.tmp"
)

// ErrHistories says that no history number is left: 4095 restores and repairs.
var ErrHistories = errors.New("the data directory has no history number left")

// Identity is what can be said of a data directory without opening it.
type Identity struct {
	Shards  int
	History uint16
}

// ReadIdentity reads the identity of the data directory dir. The error is a
// *base.CorruptionError, a *base.VersionError, or one of the file system.
func ReadIdentity(fsys vfs.FS, dir string) (Identity, error) {
	id, err := readIdentity(dir, fsys)
	return Identity{Shards: id.Shards, History: id.History}, err
}

// BeginRepair keeps the data directory from being opened until EndRepair, durably.
// After that it has the history number that there is now or, with newHistory, the next
// one. Where a repair was begun before and not ended it goes on, and a new history that
// was asked for then stays so.
func BeginRepair(fsys vfs.FS, dir string, newHistory bool) error {
	id, err := readIdentity(dir, fsys)
	if err != nil {
		return err
	}
	next, err := readIdentityFile(filepath.Join(dir, identityRepair), fsys)
	switch {
	case err == nil && (next.History > id.History || !newHistory):
		return fsys.SyncDir(dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if newHistory {
		if id.History == maxHistory {
			return ErrHistories
		}
		id.History++
	}
	return replaceFile(fsys, dir, identityRepair, identityRepairTemp, id.encode())
}

// TellMirror gives the mirror in the object store the history number that BeginRepair
// has prepared, by compare-and-set as a restore does: a start of the repaired directory
// finds its own there, and no restore takes the same number. It does nothing when there
// is no new number, or no store, or when an earlier call did it. A directory that does not
// know that it has ever had the prefix tells it if it has. mirror.ErrTaken says
// that the store is somebody else's by now, with mirror.ErrCopy another copy's.
func TellMirror(ctx context.Context, fsys vfs.FS, dir string, o Options) error {
	rec, err := readTierFile(fsys, dir)
	if err != nil || !rec.used() && (len(rec.intents) == 0 || o.Tier == nil) {
		return err
	}
	id, err := readIdentity(dir, fsys)
	if err != nil {
		return err
	}
	next, err := readIdentityFile(filepath.Join(dir, identityRepair), fsys)
	switch {
	case err != nil || next.History == id.History:
		return err
	case o.Tier == nil:
		return fmt.Errorf("%s: %w: it uses %s", dir, ErrNeedsTier, rec.where)
	}
	if err := tellMirror(ctx, fsys, dir, &rec, &id, &next, &o); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTier, o.Tier.String(), err)
	}
	return nil
}

func tellMirror(ctx context.Context, fsys vfs.FS, dir string, rec *tierRecord, id, next *identity, o *Options) error {
	state, version, err := mirror.Load(ctx, o.Tier)
	if errors.Is(err, tiering.ErrNotFound) && !rec.used() {
		return nil // nor has an intent become anything
	}
	if err != nil {
		return err
	}
	was := id.mirrored()
	if told := next.mirrored(); state.History == told.History {
		was = told
	}
	if err := state.Admits(was, rec.known(&state)); err != nil || was.History == next.History {
		if !rec.used() {
			return nil // it is of others, which the next start will say
		}
		return err
	}
	w, err := mirror.NewWriter()
	if err != nil {
		return err
	}
	if err := rec.writeTierFile(fsys, dir, rec.intend(&state, o.Tier.String(), w)); err != nil {
		return err
	}
	_, _, err = mirror.TakeOver(ctx, o.Tier, state, version, was, w, base.Millis(o.withDefaults().Now().UnixMilli()))
	return err
}

// mirrored returns the identity as the mirror has it.
func (id *identity) mirrored() mirror.Identity {
	return mirror.Identity{Node: id.Node, History: id.History, Shards: id.Shards, Seed: id.Seed, Created: id.Created}
}

// EndRepair gives the data directory the identity that BeginRepair has prepared, and
// with it the leave to be opened, durably.
func EndRepair(fsys vfs.FS, dir string) error {
	if err := fsys.Rename(filepath.Join(dir, identityRepair), filepath.Join(dir, identityFile)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// RepairUnfinished reports whether a repair of the directory was begun and not ended.
func RepairUnfinished(fsys vfs.FS, dir string) (bool, error) {
	_, err := fsys.Stat(filepath.Join(dir, identityRepair))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// refuseUnfinished is the error of a start in the middle of a repair.
func refuseUnfinished(fsys vfs.FS, dir string) error {
	if unfinished, err := RepairUnfinished(fsys, dir); err != nil || !unfinished {
		return err
	}
	return fmt.Errorf("%s: %w: a repair has not come to its end (%s); run «snakream repair --apply» again", dir, ErrIncomplete, identityRepair)
}
