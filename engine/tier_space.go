package engine

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
)

// localBytes returns what segments and snapshots take of the local disk, and how much of
// that can't be evicted: it is not in the object store. A merge of what is there adds
// nothing to the second.
func (e *Engine) localBytes() (all, fixed int64) {
	all = e.blobs.LocalBytes()
	fixed = all
	for _, s := range e.shards {
		rs := s.acquire()
		if rs == nil {
			continue
		}
		for _, r := range rs.segs {
			tail := r.seg.TailBytes()
			if r.evicted {
				all += tail
			} else {
				all += r.seg.Size()
			}
			fixed += max(tail, r.fresh.Load())
		}
		rs.release()
	}
	return all, fixed
}

// overBudget reports whether the local disk holds all that it may. What can be evicted
// soon will be, and does not count.
func (e *Engine) overBudget() bool {
	if e.opts.LocalDiskBudget == 0 {
		return false
	}
	_, fixed := e.localBytes()
	return fixed >= e.opts.LocalDiskBudget
}

// noteBudget has writes refused as soon as what was flushed has used up the budget: until
// the next look at the disk, much more would come.
func (e *Engine) noteBudget() {
	if !e.diskFull.Load() && e.overBudget() {
		e.checkDisk()
	}
}

// evict makes room under the budget: what was read longest ago goes first, and nothing
// that the mirror does not name. It leaves room for what is flushed next.
func (t *tier) evict() {
	if t.e.opts.LocalDiskBudget == 0 {
		return
	}
	local, _ := t.e.localBytes()
	over := local - t.e.opts.evictAbove
	if over <= 0 {
		return
	}
	for _, c := range t.evictable() {
		if over <= 0 {
			return
		}
		freed, err := t.evictSegment(c)
		if t.ctx.Err() != nil {
			return // the engine is being closed, which is no failure
		}
		if err != nil {
			t.e.opts.Logger.Error("evicting a segment", "shard", c.s.s.n, "segment", c.seg.ID, "err", err)
			if errors.Is(err, vfs.ErrNoSpace) || t.e.Err() != nil {
				break // a snapshot goes without taking space
			}
		}
		over -= freed
	}
	if over > 0 {
		freed, err := t.e.blobs.Evict(over)
		if err != nil {
			t.e.opts.Logger.Error("evicting snapshots", "err", err)
		}
		t.stats.evictedBytes.Add(freed)
	}
}

// evictable returns the segments that may go, the one that was used longest ago first.
func (t *tier) evictable() []candidate {
	type used struct {
		candidate
		at int64
	}
	var all []used
	for i := range t.shards {
		s := &t.shards[i]
		rs := s.s.acquire()
		if rs == nil {
			continue
		}
		for id, m := range s.live {
			ref := rs.segs[id]
			if ref == nil || ref.evicted || m.Object == 0 || s.inMirror[id].Object != m.Object {
				continue
			}
			all = append(all, used{candidate{s: s, seg: m}, ref.used.Load()})
		}
		rs.release()
	}
	slices.SortFunc(all, func(a, b used) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seg.Run, b.seg.Run)) })
	out := make([]candidate, len(all))
	for i, u := range all {
		out[i] = u.candidate
	}
	return out
}

// evictSegment leaves of a segment the tail. The tail is durable before the manifest
// says so, and the file goes with its last reader.
func (t *tier) evictSegment(c candidate) (freed int64, err error) {
	ref := c.s.hold(c.seg.ID)
	if ref == nil {
		return 0, nil
	}
	defer func() { c.s.unhold(c.seg.ID, ref) }()
	if err := c.s.writeTail(t, ref); err != nil {
		return 0, err
	}
	if err := c.s.evicted(c.seg.ID); err != nil {
		return 0, err
	}
	freed = ref.seg.Size() - ref.seg.TailBytes()
	t.stats.evictions.Add(1)
	t.stats.evictedBytes.Add(freed)
	return freed, nil
}

func (s *tierShard) writeTail(t *tier, ref *segmentRef) error {
	fsys, sh, id := t.e.opts.FS, s.s, ref.seg.ID()
	tmp := sh.tmpPath(id) + ".tail"
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	src, err := segment.FileSource(ref.file)
	if err != nil {
		return err
	}
	if err := segment.WriteTail(t.ctx, fsys, tmp, src, ref.path, id); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, sh.tailPath(id)); err != nil {
		return err
	}
	for _, dir := range []string{"seg", "tmp"} {
		if err := fsys.SyncDir(sh.path(dir)); err != nil {
			t.e.fail(err)
			return err
		}
	}
	return nil
}

// evicted enters in the manifest that a segment has only its tail, and has readers use
// that from now on.
func (s *tierShard) evicted(id base.SegmentID) (err error) {
	k := s.s.keep
	if !k.do(func() {
		m := k.state.Segments[id]
		m.Evicted = true
		var next *segmentRef
		if next, err = s.s.openSegment(m); err != nil {
			return
		}
		if err = k.edit(manifest.Edit{Add: []manifest.Segment{m}}); err != nil {
			next.refs.Add(1)
			next.release()
			return
		}
		s.s.swapReads(func(rs *readState) {
			old := rs.segs[id]
			next.used.Store(old.used.Load())
			old.dropped.Store(true)
			rs.segs[id] = next
		})
	}) {
		return errQuit
	}
	return err
}

// collect deletes the objects that have been out of the mirror for long enough.
func (t *tier) collect() {
	t.strayNumbers()
	if free := t.deletes.slots(tierDeletes) - len(t.deleting); free > 0 {
		for _, key := range t.dueDeletes(free) {
			t.remove(key)
		}
	}
}

// dueDeletes returns the keys of the objects to be deleted next. What has failed before
// never takes all the places, however much of it there is. While deletes fail one that has
// not been tried comes first, to see whether it is only some that can't be deleted.
func (t *tier) dueDeletes(most int) (keys []string) {
	due := t.e.now() - base.Millis(t.e.opts.GCGrace.Milliseconds())
	tries := tierDeletes / 2
	for key := range t.deleting {
		if !t.deletes.fresh(key) {
			tries--
		}
	}
	again := ""
	for _, d := range t.state.Dead {
		if d.Since > due || len(keys) == most {
			break
		}
		switch {
		case t.deleting[d.Key] || t.deleted[d.Key] || !t.deletes.due(d.Key):
		case t.deletes.fresh(d.Key):
			keys = append(keys, d.Key)
		case !t.deletes.doubtful && tries > 0:
			keys = append(keys, d.Key)
			tries--
		case t.deletes.doubtful && again == "":
			again = d.Key
		}
	}
	if len(keys) == 0 && again != "" {
		keys = append(keys, again)
	}
	return keys
}

func (t *tier) remove(key string) {
	t.deleting[key] = true
	t.spawn(func() func() {
		err := t.store.Delete(t.calls, key)
		return func() {
			delete(t.deleting, key)
			if err != nil {
				if !t.ended(err) {
					t.complain("delete", t.deletes.failed(key), err)
				}
				return
			}
			t.deletes.succeeded(key)
			t.deleted[key] = true
			t.e.cold.Forget(key)
			t.stats.deletes.Add(1)
		}
	})
}

// strayNumbers has the objects deleted that a failed put may have left, of segments and
// snapshots that are not there any more.
func (t *tier) strayNumbers() {
	for p, n := range t.numbers {
		if t.uploading[p] || t.wanted(p) {
			continue
		}
		key := tiering.BlobKey(p.digest, n)
		if p.seg != 0 {
			key = tiering.SegmentKey(p.shard, p.seg, n)
		}
		t.strays[key] = true
		delete(t.numbers, p)
		t.puts.forget(p)
	}
}

// wanted reports whether something that could not be put is still to be.
func (t *tier) wanted(p pending) bool {
	if p.seg == 0 {
		return t.e.blobs.Known(p.digest)
	}
	_, live := t.shards[p.shard].live[p.seg]
	return live
}

// sweepIfDue looks for objects that earlier runs of the program have left: put, and never
// entered anywhere. Their numbers were reserved, so they are unfinished intents. It looks
// again after the grace, for what a node still put that did not know yet that this one
// has its place, and then each day, for who was away for long. Whatever else lies under
// the prefix stays, and is counted.
func (t *tier) sweepIfDue() {
	if t.sweeping || time.Now().Before(t.sweep) || !t.lists.open() {
		return
	}
	t.sweeping = true
	first, known := t.first, t.knownKeys()
	t.spawn(func() func() {
		strays, foreign, err := t.findStrays(first, known)
		return func() {
			t.sweeping = false
			if err != nil {
				t.failed(&t.lists, "list", err)
				return
			}
			t.lists.succeeded()
			wait := tierSweep
			if t.sweep.IsZero() {
				wait = t.e.opts.GCGrace
			}
			t.sweep = time.Now().Add(wait)
			t.stats.foreign.Store(foreign)
			for _, key := range strays {
				t.strays[key] = true
			}
		}
	})
}

// findStrays lists the objects with numbers below first that are not known, and counts
// those that are not Snakream's.
func (t *tier) findStrays(first uint64, known map[string]bool) (strays []string, foreign int64, err error) {
	for _, prefix := range []string{"segments/", "blobs/"} {
		for info, err := range t.store.List(t.calls, prefix) {
			if err != nil {
				return nil, 0, err
			}
			name, ok := tiering.ParseKey(info.Key)
			switch {
			case !ok || name.Kind == tiering.KindSegment && name.Shard >= len(t.shards):
				foreign++
				t.e.opts.Logger.Warn("an object that is not Snakream's is left alone", "key", info.Key)
			case known[info.Key] || name.Object >= first:
			default:
				strays = append(strays, info.Key)
			}
		}
	}
	return strays, foreign, nil
}

// knownKeys returns the objects that something refers to, or that the mirror sees to.
func (t *tier) knownKeys() map[string]bool {
	known := map[string]bool{}
	for _, d := range t.state.Dead {
		known[d.Key] = true
	}
	for i := range t.shards {
		s := &t.shards[i]
		for _, segs := range []map[base.SegmentID]manifest.Segment{s.live, s.inMirror, s.gone} {
			for id, m := range segs {
				known[tiering.SegmentKey(i, id, m.Object)] = true
			}
		}
	}
	t.e.blobs.Objects(func(o blob.Object) bool {
		known[tiering.BlobKey(o.Digest, o.Number)] = true
		return true
	})
	for _, o := range t.e.blobs.Orphaned() {
		known[tiering.BlobKey(o.Digest, o.Number)] = true
	}
	return known
}
