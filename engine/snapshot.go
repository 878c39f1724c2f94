package engine

import (
	"context"
	"errors"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/wal/record"
)

// A snapshot's bytes are a blob that is durable before the record that points to it.
// The uploader holds a reference from its Commit until the answer, so that the turn,
// which adds one for the snapshot, never waits. References are dropped when the record
// that ends the snapshot is published, and the blob store has that in its journal
// before the log gives the record up.

// Blobs returns the store of snapshots.
func (e *Engine) Blobs() *blob.Store { return e.blobs }

// blobChanges is what a batch changes about snapshots, for its publication.
type blobChanges struct {
	freed    []blob.Digest // snapshots that have ended
	replaced []replaced    // snapshots that will
}

// replaced is a snapshot that another has taken the place of: it stays readable for
// a while, for readers that have just been told of it.
type replaced struct {
	id base.StreamID
	at base.Offset
	on base.Millis
}

// rememberExtra keeps the rows that the record changed beyond the usual, and what the
// batch has to tell the blob store.
func (s *shard) rememberExtra(en *memtable.Entry, lsn base.LSN) {
	eff := &s.eff
	if eff.Attrs != nil {
		en.SetRow(record.AttrsKey, lsn, eff.Attrs, false)
	}
	for _, n := range eff.Snapshots {
		s.keyBuf = record.AppendSnapshotKey(s.keyBuf[:0], n.Offset)
		s.rowBuf = n.AppendRow(s.rowBuf[:0])
		en.SetRow(s.keyBuf, lsn, s.rowBuf, false)
		if n.Replaced != 0 && s.cur != nil {
			s.cur.blobs.replaced = append(s.cur.blobs.replaced, replaced{id: en.ID(), at: n.Offset, on: n.Replaced})
		}
	}
	ended := eff.Freed
	if n := eff.Dropped; n != nil {
		s.keyBuf = record.AppendSnapshotKey(s.keyBuf[:0], n.Offset)
		en.SetRow(s.keyBuf, lsn, nil, true)
		ended = append(ended, n)
	}
	for _, n := range ended {
		if s.cur != nil {
			s.cur.blobs.freed = append(s.cur.blobs.freed, n.Digest)
		} else { // recovery counts the references when it is through
			s.released = append(s.released, n.Digest)
		}
	}
}

// blobsPublished drops the references of snapshots whose end is published.
func (s *shard) blobsPublished(c *blobChanges) {
	for _, d := range c.freed {
		s.e.unpinBlob(d)
	}
	c.freed = c.freed[:0]
	s.keep.mu.Lock()
	s.keep.replaced = append(s.keep.replaced, c.replaced...)
	s.keep.mu.Unlock()
	c.replaced = c.replaced[:0]
}

// openBlobs opens the store once all shards know their snapshots.
func (e *Engine) openBlobs() error {
	refs := map[blob.Digest]int{}
	for _, s := range e.shards {
		for _, st := range s.byID {
			st.head.Extra().EachSnapshot(func(n *record.Snapshot) {
				refs[n.Digest]++
				if n.Replaced != 0 {
					s.keep.replaced = append(s.keep.replaced, replaced{id: st.head.ID, at: n.Offset, on: n.Replaced})
				}
			})
		}
		for _, d := range s.released {
			refs[d] += 0 // nobody may refer to it any more, and perhaps no journal says so
		}
		s.released = nil
	}
	remote := blob.Remote(nil)
	if e.tier != nil {
		remote = e.blobObject
	}
	var err error
	e.blobs, err = blob.Open(e.opts.FS, e.path(blobDir), refs, remote, e.opts.Logger)
	if err == nil {
		e.blobs.Beside(e.logged)
	}
	return err
}

// logged returns a number that is another one after each sync of a log.
func (e *Engine) logged() (n uint64) {
	for _, s := range e.shards {
		n += s.durable.Load()
	}
	return n
}

// syncBlobs makes durable what publications so far have told the blob store.
func (e *Engine) syncBlobs() error {
	err := e.blobs.Sync()
	if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		e.fail(err)
	}
	return err
}

// tendBlobs drops replaced snapshots that have had their time and removes blobs that
// nobody refers to. Once a second.
func (e *Engine) tendBlobs() {
	now := e.now()
	due := now - base.Millis(e.opts.SnapshotGrace.Milliseconds())
	for _, s := range e.shards {
		for _, r := range s.keep.outlived(due) {
			s.ask(core.Event{Op: core.OpDrop, Stream: r.id, Offset: r.at})
		}
	}
	if _, err := e.blobs.Collect(now); err != nil {
		e.opts.Logger.Error("removing unused snapshots", "err", err)
		_ = e.syncBlobs() // which ends the engine if that was final
	}
}

// outlived takes the snapshots that were replaced at or before a time.
func (k *keeper) outlived(due base.Millis) (out []replaced) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := k.replaced[:0]
	for _, r := range k.replaced {
		if r.on <= due {
			out = append(out, r)
		} else {
			rest = append(rest, r)
		}
	}
	k.replaced = rest
	return out
}

// floor returns the offset below which nothing of the stream is needed: what has been
// trimmed, unless forks have it yet; 0 when there is nothing to say.
func (st *Stream) floor(id base.StreamID) base.Offset {
	h := st.head
	if h == nil || h.ID != id || h.Pins() > 0 {
		return 0
	}
	return ownFloor(h, h.First)
}

// ownFloor returns what is trimmed of the stream's own bytes when nothing below an
// offset is needed; 0 when it is the source's bytes that were trimmed.
func ownFloor(h *core.Head, below base.Offset) base.Offset {
	if f := h.Fork; f != nil && below <= f.Offset {
		return 0
	}
	return below
}

// recoveredFloor is floor at a start, where inherited says for each stream with forks
// what these have of it. That may be less than when they were made.
func (st *Stream) recoveredFloor(inherited map[base.StreamID]base.Offset) base.Offset {
	h := st.head
	below := h.First
	if h.Pins() > 0 {
		below = min(below, inherited[h.ID])
	}
	return ownFloor(h, below)
}

// inherited returns for each stream with forks the earliest offset that any of them has
// of it. Only in recovery, when no turn runs.
func (e *Engine) inherited() map[base.StreamID]base.Offset {
	all := map[base.StreamID]base.Offset{}
	for _, s := range e.shards {
		for _, st := range s.byID {
			f := st.head.Fork
			if f == nil {
				continue
			}
			if first, ok := all[f.Source]; !ok || f.First < first {
				all[f.Source] = f.First
			}
		}
	}
	return all
}

// RecordOffset returns where a message begins, by its ordinal in [v.FirstRecord,
// v.NextRecord]. With mem it answers from memory or with ErrNotInMemory.
func (e *Engine) RecordOffset(ctx context.Context, v *View, ordinal uint64, mem bool) (base.Offset, error) {
	switch {
	case ordinal < v.FirstRecord:
		return 0, ErrStale
	case ordinal == v.FirstRecord:
		return v.First, nil
	case ordinal >= v.NextRecord:
		return v.Next, nil
	}
	lo, hi := v.First, v.Next // the message begins in (lo, hi)
	for lo < hi {
		mid := lo + (hi-lo)/2
		_, n, err := e.Boundary(ctx, v, mid, mem)
		if err != nil {
			return 0, err
		}
		if n < ordinal {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}
