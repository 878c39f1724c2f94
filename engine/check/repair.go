package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/overlay"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/wal"
)

// ErrBeyondRepair says that a start refuses the data directory and that Repair knows no
// way that ends in a state of which it could be said what it holds.
var ErrBeyondRepair = errors.New("it cannot be repaired")

// Plan is a repair: what there is to do, and what will be lost.
type Plan struct {
	Steps      []string // in order, as sentences; none: nothing has to be done
	Losses     []string // what is gone, as far as can be known
	NewHistory bool     // every incarnation changes, since acknowledged writes may be gone
	Quarantine string   // where everything goes that is taken out; it has a note with it
	Unfinished bool     // an earlier repair has not come to its end

	ops []func(vfs.FS) error
}

// repairer makes a plan, and carries each step out on an overlay as soon as it is
// planned: the next one sees what the last one leaves.
type repairer struct {
	fs      *overlay.FS
	dir     string
	options engine.Options
	plan    *Plan
	lost    losses
}

// Propose finds out how the data directory dir can be repaired, and changes nothing. The
// plan ends in a directory that was opened, as far as that only reads. The error is
// ErrBeyondRepair, with the reason, or as that of Verify.
func Propose(dir string, o engine.Options, now time.Time) (*Plan, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if _, err := take(o.FS, dir); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(o.FS, dir)
	if err != nil {
		return nil, err
	}
	p, err := propose(dir, o, now)
	return p, errors.Join(err, lock.Close())
}

func propose(dir string, o engine.Options, now time.Time) (*Plan, error) {
	over := overlay.New(o.FS)
	o.FS = over
	r := &repairer{fs: over, dir: dir, options: o, plan: &Plan{}, lost: newLosses()}
	err := r.all(now)
	return r.plan, errors.Join(err, over.Close())
}

// Apply makes the plan anew and carries it out. When it returns nil, the directory can be
// opened. After an error it can't be, until Apply has been called again with success;
// nothing that was there is deleted in any case.
func Apply(dir string, o engine.Options, now time.Time) (*Plan, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if _, err := take(o.FS, dir); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(o.FS, dir)
	if err != nil {
		return nil, err
	}
	p, err := propose(dir, o, now)
	if err == nil && (len(p.ops) > 0 || p.Unfinished) {
		err = p.apply(dir, o)
	}
	return p, errors.Join(err, lock.Close())
}

// mirrorTime is how long a repair waits for the object store.
const mirrorTime = 2 * time.Minute

// apply carries the plan out between BeginRepair and EndRepair: whatever becomes of it
// in between, no start takes the directory for whole.
func (p *Plan) apply(dir string, o engine.Options) error {
	fsys := o.FS
	if err := engine.BeginRepair(fsys, dir, p.NewHistory); err != nil {
		return fmt.Errorf("beginning the repair: %w", err)
	}
	if len(p.ops) > 0 {
		if err := p.writeNote(fsys); err != nil {
			return fmt.Errorf("writing the note: %w", err)
		}
	}
	for i, do := range p.ops {
		if err := do(fsys); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, p.Steps[i], err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), mirrorTime)
	defer cancel()
	if err := engine.TellMirror(ctx, fsys, dir, o); err != nil {
		return fmt.Errorf("telling the mirror in the object store of the new history: %w", err)
	}
	if err := engine.EndRepair(fsys, dir); err != nil {
		return fmt.Errorf("ending the repair: %w", err)
	}
	return nil
}

// step plans something and does it to the overlay.
func (r *repairer) step(say string, do func(vfs.FS) error) error {
	if err := do(r.fs); err != nil {
		return fmt.Errorf("%s: %w", say, err)
	}
	r.plan.Steps = append(r.plan.Steps, say)
	r.plan.ops = append(r.plan.ops, do)
	return nil
}

func beyond(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrBeyondRepair, fmt.Errorf(format, a...))
}

func (r *repairer) path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

func (r *repairer) all(now time.Time) error {
	id, err := engine.ReadIdentity(r.fs, r.dir)
	if err != nil {
		return beyond("the identity says how streams are spread over shards, and nothing else does: %w", err)
	}
	if r.plan.Unfinished, err = engine.RepairUnfinished(r.fs, r.dir); err != nil {
		return err
	}
	if r.plan.Quarantine, err = r.freeName(now); err != nil {
		return err
	}
	r.lost.shards = id.Shards
	for n := range id.Shards {
		dir := r.path(shardDir(n))
		if err := r.manifest(dir); err != nil {
			return err
		}
		if err := r.segments(n, dir); err != nil {
			return err
		}
		if err := r.log(dir); err != nil {
			return err
		}
	}
	if err := r.blobs(); err != nil {
		return err
	}
	return r.verdict()
}

// freeName returns a place in the quarantine that nobody has used.
func (r *repairer) freeName(now time.Time) (string, error) {
	name := now.UTC().Format("20060102T150405Z")
	taken, err := r.fs.List(r.path(quarantineName))
	if err != nil {
		taken = nil // there is none yet
	}
	for i := 2; slices.Contains(taken, name); i++ {
		name = fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405Z"), i)
	}
	return r.path(quarantineName, name), nil
}

// verdict brings all streams back as a start would, and says what is lost.
func (r *repairer) verdict() error {
	var orphans []string
	there := map[blob.Digest]bool{} // of blobs that snapshots refer to, whether they are here or in the object store
	copied, err := blob.Copies(r.fs, r.path(blobsName))
	if err != nil {
		return beyond("%w", err)
	}
	err = engine.Probe(r.dir, r.options, func(f *engine.Found) {
		if f.Orphan {
			orphans = append(orphans, fmt.Sprintf("%s/%s", f.Bucket, f.Name))
		}
		for _, n := range f.Snapshots {
			if _, asked := there[n.Digest]; !asked {
				_, err := r.fs.Stat(blob.Path(r.path(blobsName), n.Digest))
				there[n.Digest] = err == nil || copied(n.Digest)
			}
		}
		r.lost.seen(f, there)
	})
	switch {
	case err != nil && corruption(err) == nil:
		return fmt.Errorf("finding out whether a start would succeed: %w", err)
	case err != nil:
		return beyond("a start would refuse it all the same: %w", err)
	case len(orphans) > 0 && len(r.plan.ops) > 0:
		slices.Sort(orphans)
		return beyond("these forks inherit bytes that would be gone or could become others, since their source is in what is lost: %s",
			strings.Join(orphans, ", "))
	}
	if where, err := engine.UsesTier(r.fs, r.dir); r.plan.NewHistory && where != "" && r.options.Tier == nil {
		return errors.Join(err, fmt.Errorf("%s: %w: the new history has to be told to the mirror at %s", r.dir, engine.ErrNeedsTier, where))
	}
	r.plan.Losses = r.lost.tell()
	return r.unreferenced(there)
}

// unreferenced puts blobs into the quarantine that the next start would remove: perhaps
// only because what referred to them is lost.
func (r *repairer) unreferenced(refs map[blob.Digest]bool) error {
	if !r.plan.NewHistory {
		return nil
	}
	var errs []error
	err := blob.Inspect(r.fs, r.path(blobsName), func(i blob.Item) {
		if _, ok := refs[i.Digest]; !ok && i.Known() && i.Named && !i.Temp {
			errs = append(errs, r.quarantine(i.Path, "no snapshot that is left refers to it, so that the next start would remove it"))
		}
	})
	return errors.Join(append(errs, err)...)
}

// manifest makes a shard's manifest readable.
func (r *repairer) manifest(dir string) error {
	_, readErr := manifest.Read(r.fs, dir)
	if readErr == nil {
		return nil
	}
	if corruption(readErr) == nil {
		return beyond("%w", readErr)
	}
	files, listErr := manifest.Files(r.fs, dir)
	if listErr != nil {
		return beyond("%w", listErr)
	}
	var chosen *manifest.File
	for i, f := range files {
		switch {
		case f.Err == nil:
			chosen = &files[i] // the newest complete one in the end
		case corruption(f.Err) == nil: // a newer program's, or one that can't be read today
			return beyond("%w", f.Err)
		}
	}
	if where, err := engine.UsesTier(r.fs, r.dir); err != nil || where != "" {
		return beyond("an older manifest does not say what became of segments in the object store %s, from which «snakream restore» can bring the directory back: %w",
			where, errors.Join(corruption(readErr), err))
	}
	if chosen == nil {
		return beyond("nothing else says which segments belong to the shard: %w", readErr)
	}
	next, err := r.takeOut(dir, files, chosen, readErr)
	if err != nil {
		return err
	}
	r.plan.NewHistory = true
	r.lost.sayf("%s: what its damaged manifest said beyond %s is not known; everything that is in the log has been found again",
		filepath.Base(dir), filepath.Base(chosen.Path))
	say := fmt.Sprintf("make %s the manifest that counts, with room above all numbers that may have been given out", chosen.Path)
	if err := r.keep(chosen.Path); err != nil {
		return err
	}
	number := chosen.Number
	return r.step(say, func(fsys vfs.FS) error {
		if err := manifest.Select(fsys, dir, number); err != nil {
			return err
		}
		return edit(fsys, dir, next)
	})
}

// Numbers that a lost edit may have reserved are not given out again.
const (
	streamMargin  = 1 << 24
	segmentMargin = 1 << 16
)

// takeOut puts the other manifests and the segments that the chosen one does not name
// into the quarantine: the next start would remove them. It returns the edit that keeps
// numbers from being used twice.
func (r *repairer) takeOut(dir string, files []manifest.File, chosen *manifest.File, why error) (manifest.Edit, error) {
	next := manifest.Edit{
		ReserveSegments: chosen.State.NextSegment + segmentMargin,
		ReserveStreams:  chosen.State.NextStream + streamMargin,
	}
	for _, f := range files {
		if f.Number == chosen.Number {
			continue
		}
		if err := r.quarantine(f.Path, why.Error()); err != nil {
			return next, err
		}
	}
	current := manifest.CurrentPath(dir)
	if _, err := r.fs.Stat(current); err == nil {
		if err := r.quarantine(current, why.Error()); err != nil {
			return next, err
		}
	}
	highest, err := r.unnamed(dir, chosen.State)
	next.ReserveSegments = max(next.ReserveSegments, highest+1)
	return next, err
}

// unnamed puts the segments that a manifest does not name into the quarantine. It returns
// the highest of their numbers.
func (r *repairer) unnamed(dir string, state manifest.State) (highest base.SegmentID, err error) {
	names, err := r.fs.List(filepath.Join(dir, "seg"))
	if err != nil {
		return 0, beyond("%w", err)
	}
	for _, name := range names {
		id, ok := segmentNumber(name)
		if _, live := state.Segments[id]; !ok || live {
			continue
		}
		highest = max(highest, id)
		if err := r.quarantine(filepath.Join(dir, "seg", name), "the manifest does not name it, so that the next start would remove it"); err != nil {
			return 0, err
		}
	}
	return highest, nil
}

// edit changes a manifest.
func edit(fsys vfs.FS, dir string, e manifest.Edit) error {
	m, _, err := manifest.Open(fsys, dir)
	if err != nil {
		return err
	}
	return errors.Join(m.Apply(e), m.Close())
}

// segments takes segments out whose rows can't be read: nothing brings their streams
// back. Damaged payload is no reason, since all else in the segment is still of use.
func (r *repairer) segments(n int, dir string) error {
	state, err := manifest.Read(r.fs, dir)
	if err != nil {
		return err
	}
	ids := make([]base.SegmentID, 0, len(state.Segments))
	for id := range state.Segments {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var dropped []manifest.Segment
	for _, id := range ids {
		m := state.Segments[id]
		path := pathOf(dir, m)
		extents, err := r.sound(dir, m)
		switch {
		case err == nil:
			continue
		case corruption(err) == nil:
			return beyond("%w", err)
		case m.Object != 0:
			return beyond("the object store has a copy of it, object %d, and a repair does not fetch it; «snakream restore» does. %w", m.Object, err)
		}
		if len(dropped) == 0 {
			if err := r.keepManifest(dir); err != nil {
				return err
			}
			if _, err := r.unnamed(dir, state); err != nil {
				return err
			}
		}
		if err := r.drop(dir, path, id, err); err != nil {
			return err
		}
		dropped = append(dropped, m)
		r.lost.drops = append(r.lost.drops, drop{path: path, shard: n, m: m, extents: extents})
	}
	return r.newest(dir, dropped)
}

// sound reports what of a segment would keep the directory from being opened, and what
// the segment holds, if that can be known.
func (r *repairer) sound(dir string, m manifest.Segment) (extents []base.Extent, err error) {
	seg, f, err := openSegment(r.fs, dir, m)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seg.Check(false, func(d segment.Damage) {
		if err == nil {
			err = d.Err
		}
	})
	if err != nil {
		for st := range seg.Streams() {
			extents = append(extents, st.Extent)
		}
	}
	return extents, err
}

// keepManifest copies a shard's manifest out before it is edited.
func (r *repairer) keepManifest(dir string) error {
	files, err := manifest.Files(r.fs, dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := r.fs.Stat(r.place(f.Path)); err == nil {
			continue // it was there before it was repaired itself
		}
		if err := r.keep(f.Path); err != nil {
			return err
		}
	}
	return nil
}

func (r *repairer) drop(dir, path string, id base.SegmentID, why error) error {
	r.plan.NewHistory = true
	if _, err := r.fs.Stat(path); err == nil {
		if err := r.quarantine(path, why.Error()); err != nil {
			return err
		}
	}
	return r.step(fmt.Sprintf("take segment %d out of the manifest of %s", id, dir), func(fsys vfs.FS) error {
		return edit(fsys, dir, manifest.Edit{Remove: []base.SegmentID{id}})
	})
}

// newest finds out how new the rows are that are left of streams which segments that
// are dropped may have held.
func (r *repairer) newest(dir string, dropped []manifest.Segment) error {
	if len(dropped) == 0 {
		return nil
	}
	state, err := manifest.Read(r.fs, dir)
	if err != nil {
		return err
	}
	for _, m := range state.Segments {
		seg, f, err := openSegment(r.fs, dir, m)
		if err != nil {
			return err
		}
		for row, err := range seg.AllRows() {
			if err != nil {
				return errors.Join(err, f.Close())
			}
			r.lost.row(row.Stream, row.LSN)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// log makes a shard's log end where it is sound.
func (r *repairer) log(dir string) error {
	state, err := manifest.Read(r.fs, dir)
	if err != nil {
		return err
	}
	low := wal.Position{LSN: state.Low.LSN, Batch: state.Low.Batch}
	wdir := filepath.Join(dir, "wal")
	behind := newTail(dir)
	info, end, err := wal.Survey(r.fs, wdir, low, func(i wal.Item) error {
		switch {
		case !i.Behind:
			r.lost.logged(i)
		case i.LSN > low.LSN:
			behind.add(i)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	if corruption(err) == nil {
		return beyond("%w", err)
	}
	anew := end.Path == ""
	if anew && len(end.Behind) == 0 && r.hasLog(wdir) {
		return beyond("manifest and log contradict each other: %w", err)
	}
	behind.end = max(info.End.LSN, low.LSN)
	short := anew || behind.n > 0 || slices.ContainsFunc(end.Behind, func(path string) bool { return path > end.Path })
	if short {
		r.plan.NewHistory = true
		r.lost.tails = append(r.lost.tails, behind)
	}
	for _, path := range slices.Backward(end.Behind) {
		if err := r.quarantine(path, err.Error()); err != nil {
			return err
		}
	}
	if anew {
		return r.step(fmt.Sprintf("begin a new log in %s behind LSN %d", wdir, low.LSN), func(fsys vfs.FS) error {
			return wal.Create(wal.Config{FS: fsys, Dir: wdir, FileBytes: r.options.WALFileBytes})
		})
	}
	if !short { // only files were damaged that nobody needs any more
		return nil
	}
	return r.cut(end.Path, end.Offset, err)
}

// hasLog reports whether a directory has a file of a log.
func (r *repairer) hasLog(dir string) bool {
	names, err := r.fs.List(dir)
	return err == nil && slices.ContainsFunc(names, func(name string) bool { return filepath.Ext(name) == ".wal" })
}

// blobs makes the journal anew if it is damaged, and takes damaged blobs out.
func (r *repairer) blobs() error {
	dir := r.path(blobsName)
	if err := blob.Check(r.fs, dir); err != nil {
		journal := blob.JournalPath(dir)
		if c := corruption(err); c == nil || c.Path != journal {
			return beyond("%w", err) // also of the ledger, without which nobody knows what is in the object store
		}
		if _, statErr := r.fs.Stat(journal); statErr == nil {
			if err := r.quarantine(journal, err.Error()); err != nil {
				return err
			}
		}
		say := fmt.Sprintf("make %s anew, empty: blobs that no snapshot refers to are kept from now on", journal)
		if err := r.step(say, func(fsys vfs.FS) error { return blob.Create(fsys, dir) }); err != nil {
			return err
		}
	}
	var errs []error
	err := blob.Inspect(r.fs, dir, func(i blob.Item) {
		if i.Known() && !i.Temp && corruption(i.Err) != nil {
			if !i.Copied {
				r.lost.blobs[i.Digest] = i.Path
			}
			errs = append(errs, r.quarantine(i.Path, i.Err.Error()))
		}
	})
	return errors.Join(append(errs, err)...)
}
