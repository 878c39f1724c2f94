package engine

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// flushUntilDone writes a generation to segments, again and again with backoff
// while the disk refuses; the log keeps the records meanwhile. When it is false the
// keeper must flush nothing any more: a later generation that entered the manifest
// would take the low-water mark past this one.
func (k *keeper) flushUntilDone(f frozen) bool {
	for wait := retryStep; ; wait = min(2*wait, retryMax) {
		begin := time.Now()
		err := k.flushOnce(f)
		if err == nil {
			k.noSpace.Store(false)
			k.s.stats.flushes.Add(1)
			k.s.stats.flushSeconds.observe(time.Since(begin))
			if f.quiet {
				k.s.e.pool.Trim()
				k.s.e.opts.Idle()
			}
			return true
		}
		if k.stopping() || k.s.e.Err() != nil {
			return false
		}
		k.s.stats.flushFailures.Add(1)
		k.s.e.opts.Logger.Error("flush failed, trying again", "shard", k.s.n, "in", wait, "err", err)
		k.noSpace.Store(errors.Is(err, vfs.ErrNoSpace))
		k.s.ring() // what waits for the flush is refused for want of space
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-k.kick: // there may be space again
			t.Stop()
			k.reserveIDs()
		case f := <-k.asks: // which may make some
			t.Stop()
			f()
		case <-k.quit:
			t.Stop()
			return false
		}
	}
}

func (k *keeper) flushOnce(f frozen) error {
	k.countDead()
	entries := f.gen.table.Entries()
	var ids []base.SegmentID
	for _, kind := range []uint8{kindLasting, kindExpires} {
		id, err := k.writeGeneration(entries, kind, f.gen.table.Bytes())
		if err != nil {
			k.discard(ids)
			return err
		}
		if id != 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		if err := k.reserveSegments(ids[len(ids)-1]); err != nil {
			k.discard(ids)
			return err
		}
	}
	refs, err := k.install(ids)
	if err != nil {
		return err
	}
	if err := k.s.e.syncBlobs(); err != nil {
		k.uninstall(refs)
		return err
	}
	before := k.state.Low.LSN
	e := manifest.Edit{Low: &f.low}
	for _, r := range refs {
		e.Add = append(e.Add, describe(r, 0, uint64(f.low.LSN)))
	}
	e.Add = append(e.Add, k.newlyDead()...)
	if err := k.edit(e); err != nil {
		k.uninstall(refs)
		return err
	}
	for _, r := range refs {
		k.flushed[r.seg.ID()] = flushedAt{at: time.Now(), after: before}
		k.index(r)
	}
	clone := k.tree.Clone()
	k.s.swapReads(func(next *readState) {
		next.frozen = slices.Delete(next.frozen, 0, 1)
		next.tree = clone
		for _, r := range refs {
			next.segs[r.seg.ID()] = r
		}
	})
	if bytes := f.gen.table.Bytes(); k.s.e.tier != nil {
		k.unseen += bytes
	} else {
		k.s.gauges.frozen.Add(-bytes)
	}
	k.released(f.low)
	k.s.e.noteBudget()
	k.s.e.tier.wake()
	return nil
}

// discard removes the files of an attempt that failed, under either name.
func (k *keeper) discard(ids []base.SegmentID) {
	for _, id := range ids {
		for _, path := range []string{k.s.tmpPath(id), k.s.segPath(id)} {
			if err := k.s.e.opts.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				k.s.e.opts.Logger.Warn("removing a segment that was not needed", "err", err)
			}
		}
	}
}

// index enters a segment's runs into the keeper's tree: every other one first, since
// ascending inserts leave a tree's nodes half full and the second pass fills them.
func (k *keeper) index(r *segmentRef) {
	for pass := range 2 {
		i := 0
		for st := range r.seg.Streams() {
			if x := st.Extent; x.End > x.Start && i%2 == pass {
				k.tree.Insert(x)
				k.countNew(x)
			}
			i++
		}
	}
}

// writeGeneration writes the entries of one kind to a segment under its temporary
// name, or returns 0 if there are none.
func (k *keeper) writeGeneration(entries []*memtable.Entry, kind uint8, hint int64) (id base.SegmentID, err error) {
	var w *segment.Writer
	var parts [][]byte
	for _, en := range entries {
		if en.Kind() != kind || k.forgettable(en) {
			continue
		}
		if w == nil {
			if w, id, err = k.newSegment(hint, kind); err != nil {
				return 0, err
			}
		}
		end, _ := en.End()
		// What says so may be a record that is in no segment yet. With a tier the bytes stay,
		// until a merge: each flush would have to wait for the next one before the mirror names it.
		unneeded := k.s.e.tier == nil && k.floor(en.ID()) >= end
		if parts, err = writeEntry(w, en, en.Dead() || unneeded, parts[:0]); err != nil {
			w.Abort()
			return 0, err
		}
	}
	if w == nil {
		return 0, nil
	}
	if _, err := w.Finish(); err != nil {
		w.Abort()
		return 0, err
	}
	return id, nil
}

// forgettable reports that a stream began and ended within the generation, so that
// not even a tombstone is needed: no segment has anything of it.
func (k *keeper) forgettable(en *memtable.Entry) bool {
	if !en.Dead() || !en.Began() {
		return false
	}
	k.forget(en.ID())
	return true
}

// writeEntry writes one stream: its bytes, unless nobody needs them, and its rows. It
// uses the memory of parts and returns it.
func writeEntry(w *segment.Writer, en *memtable.Entry, noBytes bool, parts [][]byte) ([][]byte, error) {
	r := en.Run()
	end, n := en.End()
	if r == nil || noBytes {
		if err := w.Begin(en.ID(), 0, 0); err != nil {
			return parts, err
		}
	} else {
		if err := w.Begin(en.ID(), r.Start(), r.First()); err != nil {
			return parts, err
		}
		parts = r.Slices(parts, r.Start(), end)
		for _, b := range parts {
			if err := w.Payload(b); err != nil {
				return parts, err
			}
		}
		if err := r.Ends(n, w.Boundary); err != nil {
			return parts, err
		}
	}
	for row := range en.Rows() {
		if err := w.Row(segment.Row(row)); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// errQuit ends a merge that the keeper's end interrupts.
var errQuit = errors.New("stopping")
