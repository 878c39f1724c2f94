package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/cold"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// Found is what Probe says of one stream, as a start would bring it back.
type Found struct {
	ID           base.StreamID
	Bucket, Name string // Name is empty for the bucket itself
	First, Next  base.Offset
	Deleted      bool // only its forks keep it
	Snapshots    []*record.Snapshot

	// Missing are the offsets that are in none of memory, log and segments: reads of
	// them would fail. A fork's include what it inherits. Ascending, half-open.
	Missing []Missing
	// Orphan says that the stream is a fork of which its source does not know, or whose
	// source ends before the fork begins: nothing keeps the bytes that it inherits, or
	// others may take their place.
	Orphan bool
}

// Missing is a range of a stream's offsets.
type Missing struct{ Start, End base.Offset }

var errProbed = errors.New("everything was read")

// Probe reads the data directory dir as Open would, up to the point where Open begins to
// write, and calls visit for each stream; visit may be nil. It changes nothing, takes no
// lock, and needs the memory that a start needs. The error is the one that Open would
// return, of all shards. What Found is about is only known without an error.
func Probe(dir string, o Options, visit func(*Found)) error {
	if err := o.Validate(); err != nil {
		return err
	}
	e := &Engine{opts: o.withDefaults(), dir: dir, failed: make(chan struct{}), quit: make(chan struct{})}
	e.opts.Ring = func(int) {}
	if e.opts.Tier != nil { // of which nothing is read: the tails of evicted segments are here
		e.cold = cold.New(e.opts.Tier, cold.Options{Bytes: e.opts.ColdCacheBytes, Logger: e.opts.Logger})
		defer e.cold.Close()
	}
	e.stats.init()
	var err error
	if e.id, err = readIdentity(dir, e.opts.FS); err != nil {
		return err
	}
	for n := range e.id.Shards {
		e.shards = append(e.shards, newShard(e, n))
	}
	errs := []error{blob.Check(e.opts.FS, e.path(blobDir))}
	var wg sync.WaitGroup
	errs = append(errs, make([]error, len(e.shards))...)
	for i, s := range e.shards {
		wg.Go(func() { errs[1+i] = s.probe() })
	}
	wg.Wait()
	if err = errors.Join(errs...); err == nil && visit != nil {
		e.visitAll(visit)
	}
	for _, s := range e.shards {
		err = errors.Join(err, s.close())
	}
	return err
}

// probe is recover, as far as that only reads.
func (s *shard) probe() error {
	if err := s.load(); err != nil {
		return err
	}
	var rec record.Record
	low := s.keep.state.Low
	log, _, err := wal.Open(wal.Config{
		FS: s.e.opts.FS, Dir: s.path("wal"), FileBytes: s.e.opts.WALFileBytes,
		Before: func() error { return errProbed },
	}, wal.Position{LSN: low.LSN, Batch: low.Batch}, func(r wal.Record) error {
		return s.replayRecord(&rec, r)
	})
	switch {
	case errors.Is(err, errProbed):
		return nil
	case err == nil:
		return errors.Join(fmt.Errorf("the log of shard %d was opened", s.n), log.Close())
	}
	return err
}

// visitAll tells of every stream. Only in Probe, when no turn runs.
func (e *Engine) visitAll(visit func(*Found)) {
	pins := map[base.StreamID]base.StreamID{} // who keeps bytes of whom
	for _, s := range e.shards {
		for id, st := range s.byID {
			st.head.EachPin(func(fork base.StreamID, _ base.Offset) { pins[fork] = id })
		}
	}
	for _, s := range e.shards {
		for _, st := range s.byID {
			f := e.found(st)
			if c := st.head.Fork; c != nil {
				src := e.shards[c.Source.Shard(len(e.shards))].byID[c.Source]
				f.Orphan = pins[f.ID] != c.Source || src.head.Next < c.Offset
			}
			visit(f)
		}
	}
}

func (e *Engine) found(st *Stream) *Found {
	h := st.head
	f := &Found{ID: h.ID, Bucket: h.Bucket, Name: h.Name, First: h.First, Next: h.Next, Deleted: h.Deleted}
	h.Extra().EachSnapshot(func(n *record.Snapshot) { f.Snapshots = append(f.Snapshots, n) })
	own := h.First
	if c := h.Fork; c != nil {
		own = max(own, c.Offset)
		for a := e.lineage(c); a != nil; a = a.before {
			from := h.First
			if a.before != nil {
				from = max(from, a.before.end)
			}
			f.miss(e, a.id, from, min(a.end, h.Next))
		}
	}
	f.miss(e, h.ID, own, h.Next)
	slices.SortFunc(f.Missing, func(a, b Missing) int { return cmp.Compare(a.Start, b.Start) })
	return f
}

// miss notes what there is not of the bytes [from, to), which are those of the stream id.
func (f *Found) miss(e *Engine, id base.StreamID, from, to base.Offset) {
	s := e.shards[id.Shard(len(e.shards))]
	rs := s.acquire()
	defer rs.release()
	for pos := from; pos < to; {
		r, upto := rs.run(id, pos)
		upto = min(upto, to)
		if r != nil {
			pos = upto
			continue
		}
		x, ok := rs.tree.Find(id, pos)
		if ok {
			pos = min(x.End, to)
			continue
		}
		rs.tree.Ascend(id, pos, func(x base.Extent) bool {
			upto = min(upto, x.Start)
			return false
		})
		f.Missing = append(f.Missing, Missing{Start: pos, End: upto})
		pos = upto
	}
}
