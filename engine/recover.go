package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/index"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// recover brings every shard back: manifest, segments and their rows, then the log
// through the same apply as live records. Nothing is written before all shards have
// read all of that and found no damage. Only when all of them stand are the chains
// between them finished, views published and goroutines started.
func (e *Engine) recover() error {
	if err := blob.Check(e.opts.FS, e.path(blobDir)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(e.shards))
	g := &gate{left: len(e.shards), open: make(chan struct{})}
	for i, s := range e.shards {
		wg.Go(func() {
			errs[i] = s.recover(g)
			if errors.Is(errs[i], errElsewhere) {
				errs[i] = nil // the other shard says why
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := e.openBlobs(); err != nil {
		return err
	}
	for _, s := range e.shards {
		s.durable.Store(uint64(s.end.LSN))
	}
	if e.tier != nil {
		if err := e.tier.open(); err != nil {
			return err
		}
	}
	var loose []upkeep
	inherited := e.inherited()
	for _, s := range e.shards {
		s.recovering = false
		s.publishAll(inherited)
		loose = s.looseEnds(loose)
	}
	for _, s := range e.shards {
		e.disks.Go(s.disk)
		s.keep.start()
		s.keep.wake()
	}
	for _, u := range loose {
		u.shard.ask(u.ev)
	}
	return nil
}

// gate is passed by all shards or none, when each has read what it holds.
type gate struct {
	mu   sync.Mutex
	left int // shards that have not arrived
	shut bool
	open chan struct{} // closed when all have
}

var errElsewhere = errors.New("another shard does not recover")

// arrive tells the others how it went and returns an error if one of them failed.
func (g *gate) arrive(err error) error {
	g.mu.Lock()
	g.shut = g.shut || err != nil
	if g.left--; g.left == 0 {
		close(g.open)
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	<-g.open
	if g.shut {
		return errElsewhere
	}
	return nil
}

func (s *shard) recover(g *gate) error {
	if err := s.load(); err != nil {
		return g.arrive(err)
	}
	if err := s.replay(g); err != nil {
		return err
	}
	clone := s.keep.tree.Clone()
	s.swapReads(func(next *readState) { next.tree = clone })
	s.unknownDead()
	return s.startIDs()
}

// load reads manifest, segments and rows, and changes nothing.
func (s *shard) load() error {
	s.recovering = true
	k := &keeper{
		s: s, tree: index.New(), ended: map[base.StreamID]endedStream{},
		dead: map[base.SegmentID]deadBytes{}, avoid: map[base.SegmentID]bool{},
	}
	s.keep = k
	var err error
	if k.state, err = manifest.Read(s.e.opts.FS, s.path()); err != nil {
		return err
	}
	s.nextSeg = k.state.NextSegment
	if s.nextSeg == 0 {
		s.nextSeg = 1
	}
	refs, err := s.openSegments()
	if err != nil {
		return err
	}
	g := s.newGeneration()
	s.swapReads(func(next *readState) {
		next.active, next.tree = g, k.tree
		for _, r := range refs {
			next.segs[r.seg.ID()] = r
		}
	})
	s.end = k.state.Low
	return s.restoreRows(refs)
}

// openSegments opens what the manifest names.
func (s *shard) openSegments() ([]*segmentRef, error) {
	var refs []*segmentRef
	for id, m := range s.keep.state.Segments {
		if m.Evicted && s.e.cold == nil {
			return nil, fmt.Errorf("%s: %w: segment %d", s.path(), ErrNeedsTier, id)
		}
		r, err := s.openSegment(m)
		if errors.Is(err, fs.ErrNotExist) {
			err = &base.CorruptionError{Path: s.segPath(id), Detail: "the manifest names it, and it is missing"}
		}
		if err != nil {
			for _, r := range refs {
				r.refs.Add(1)
				r.release()
			}
			return nil, err
		}
		refs = append(refs, r)
		s.keep.index(r)
	}
	return refs, nil
}

// takeOver opens the manifest for edits and removes the segments that it doesn't
// name: outputs of flushes and merges that were never entered.
func (s *shard) takeOver() (err error) {
	fsys := s.e.opts.FS
	if s.keep.man, s.keep.state, err = manifest.Open(fsys, s.path()); err != nil {
		return err
	}
	names, err := fsys.List(s.path("seg"))
	if err != nil {
		return err
	}
	for _, n := range names {
		id, tail, ok := parseSegName(n)
		if m, live := s.keep.state.Segments[id]; ok && live && m.Evicted == tail {
			continue
		}
		if !ok || id >= s.keep.state.NextSegment {
			s.e.opts.Logger.Warn("a file that no reservation accounts for is left alone", "path", s.path("seg", n))
			continue
		}
		if err := fsys.Remove(s.path("seg", n)); err != nil {
			return err
		}
	}
	return removeContents(s, s.path("tmp"))
}

// parseSegName reads what segPath and tailPath write.
func parseSegName(name string) (id base.SegmentID, tail, ok bool) {
	digits, ext, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	return base.SegmentID(n), ext == "tail", err == nil && (ext == "seg" || ext == "tail")
}

func removeContents(s *shard, dir string) error {
	if err := s.e.opts.FS.MkdirAll(dir); err != nil {
		return err
	}
	names, err := s.e.opts.FS.List(dir)
	for _, n := range names {
		err = errors.Join(err, removeAll(s.e.opts.FS, filepath.Join(dir, n)))
	}
	return err
}

// rows collects the newest rows of one stream.
type rows struct {
	config, state segment.Row
	others        map[string]segment.Row
	holdsBytes    bool
	deadSince     base.Millis // what the manifest says of the segments with bytes, the oldest; 0: nothing
}

func (r *rows) add(row segment.Row) {
	keep := func(old *segment.Row) {
		if old.LSN == 0 || row.LSN > old.LSN {
			*old = segment.Row{Key: old.Key, LSN: row.LSN, Value: append(old.Value[:0], row.Value...), Removed: row.Removed}
		}
	}
	switch key, _ := record.ParseKey(row.Key); key.Kind {
	case record.RowConfig:
		keep(&r.config)
	case record.RowState:
		keep(&r.state)
	default:
		old, ok := r.others[string(row.Key)]
		if ok && old.LSN >= row.LSN {
			return
		}
		if r.others == nil {
			r.others = map[string]segment.Row{}
		}
		r.others[string(row.Key)] = segment.Row{LSN: row.LSN, Value: append([]byte(nil), row.Value...), Removed: row.Removed}
	}
}

// restoreRows builds the heads from the newest rows of all segments.
func (s *shard) restoreRows(refs []*segmentRef) error {
	all := map[base.StreamID]*rows{}
	for _, ref := range refs {
		for st := range ref.seg.Streams() {
			x := st.Extent
			r := all[x.Stream]
			if r == nil {
				r = &rows{}
				all[x.Stream] = r
			}
			if x.End > x.Start {
				r.holdsBytes = true
				if d := s.keep.state.Segments[x.Segment].DeadSince; r.deadSince == 0 || d != 0 && d < r.deadSince {
					r.deadSince = d
				}
			}
		}
		for row, err := range ref.seg.AllRows() {
			if err != nil {
				return err
			}
			all[row.Stream].add(row.Row)
		}
	}
	for id, r := range all {
		if r.state.Removed {
			if r.holdsBytes {
				s.keep.gone(id, cmp.Or(r.deadSince, s.e.now()))
			}
			continue
		}
		if err := s.restoreStream(id, r); err != nil {
			return &base.CorruptionError{Path: s.path("seg"), Detail: fmt.Sprintf("stream %d: %v", id, err)}
		}
	}
	return nil
}

func (s *shard) restoreStream(id base.StreamID, r *rows) error {
	if r.config.LSN == 0 || r.state.LSN == 0 {
		return fmt.Errorf("no configuration or no state")
	}
	c, err := record.DecodeConfig(r.config.Value)
	if err != nil {
		return err
	}
	state, err := record.DecodeState(r.state.Value)
	if err != nil {
		return err
	}
	if state.History > s.settings.History {
		return s.aheadOf(state.History)
	}
	h := core.Restore(id, c, state)
	for key, row := range r.others {
		if row.Removed {
			continue
		}
		if err := restoreRow(h, []byte(key), row.Value); err != nil {
			return err
		}
	}
	st := s.names.place(s, appendKey(nil, c.Bucket, c.Name))
	if st.head != nil {
		return fmt.Errorf("stream %d has its name too", st.head.ID)
	}
	s.adopt(st, h)
	s.renewed(st, h)
	s.stateBytes += h.Bytes()
	s.now = max(s.now, state.LastWrite, state.Touched)
	return nil
}

// aheadOf says that something was written under a history that the directory has
// not reached: its identity is not the one that goes with its data.
func (s *shard) aheadOf(history uint16) error {
	return fmt.Errorf("written under history %d, but the directory is at %d", history, s.settings.History)
}

// restoreRow puts one further row back. Of a stream that only its forks keep, the
// pins are all that is left.
func restoreRow(h *core.Head, key, value []byte) error {
	k, err := record.ParseKey(key)
	if err != nil {
		return err
	}
	if k.Kind == record.RowPin {
		upTo, err := record.DecodePin(value)
		if err == nil {
			h.AddPin(k.Fork, upTo)
		}
		return err
	}
	if h.Deleted {
		return nil
	}
	switch k.Kind {
	case record.RowProducer:
		p, err := record.DecodeProducer(value)
		if err == nil && p.History > h.History {
			err = fmt.Errorf("a producer wrote under history %d, its stream was written under %d", p.History, h.History)
		}
		if err != nil {
			return err
		}
		h.AddProducer(string(k.Producer), &p)
	case record.RowSnapshot:
		s, err := record.DecodeSnapshot(k.Offset, value)
		if err != nil {
			return err
		}
		h.AddSnapshot(s)
	case record.RowAttrs:
		h.AddAttrs(value)
	}
	return nil
}

// replay applies the log's records above low-water, passes the gate, and opens
// manifest and log for what is new.
func (s *shard) replay(g *gate) error {
	var rec record.Record
	low := s.keep.state.Low
	arrived := false
	log, info, err := wal.Open(wal.Config{
		FS: s.e.opts.FS, Dir: s.path("wal"), FileBytes: s.e.opts.WALFileBytes, Spares: 2, Ready: s.logReady,
		Logf: func(f string, a ...any) { s.e.opts.Logger.Warn(fmt.Sprintf(f, a...), "shard", s.n) },
		Before: func() error {
			arrived = true
			if err := g.arrive(nil); err != nil {
				return err
			}
			return s.takeOver()
		},
	}, wal.Position{LSN: low.LSN, Batch: low.Batch}, func(r wal.Record) error {
		return s.replayRecord(&rec, r)
	})
	if err != nil && !arrived {
		return g.arrive(err)
	}
	if err != nil {
		return err
	}
	s.log = log
	s.stats.replayed = info.Records
	s.stats.torn = info.TornRecords
	return nil
}

func (s *shard) replayRecord(rec *record.Record, r wal.Record) error {
	corrupt := func(err error) error {
		return &base.CorruptionError{Path: s.path("wal"), Detail: fmt.Sprintf("record %d: %v", r.LSN, err)}
	}
	if err := rec.Decode(record.Type(r.Type), r.Head, r.Body); err != nil {
		return corrupt(err)
	}
	if rec.History > s.settings.History {
		return corrupt(s.aheadOf(rec.History))
	}
	if r.Batch != s.end.Batch {
		s.walBytes = padded(s.walBytes)
		if s.active.Bytes() >= s.e.opts.MemtableBytes {
			s.freeze()
		}
	}
	s.end = manifest.Position{LSN: r.LSN, Batch: r.Batch}
	s.walBytes += wal.RecordBytes(len(r.Head), len(r.Body))
	if rec.Type == record.TypeMark {
		s.now = max(s.now, rec.At)
		return nil
	}
	st := s.byID[rec.Stream]
	if rec.Type == record.TypeCreate {
		if st != nil {
			return corrupt(fmt.Errorf("stream %d exists", rec.Stream))
		}
		st = s.names.place(s, appendKey(nil, rec.Config.Bucket, rec.Config.Name))
	} else if st == nil {
		st = &Stream{shard: s} // Apply says what is wrong
	}
	if err := s.apply(st, rec, r.LSN, false); err != nil {
		return corrupt(err)
	}
	return nil
}

// logReady is called by the log when Begin is worth calling again.
func (s *shard) logReady() {
	switch err := s.log.Err(); {
	case err == nil:
		s.ring()
	case !errors.Is(err, wal.ErrClosed): // Close may come while a file is being made
		s.e.fail(err)
	}
}

// startIDs reserves ids above all that may ever have been given out.
func (s *shard) startIDs() error {
	from := max(s.keep.state.NextStream, s.nextID.Load(), 1)
	s.nextID.Store(from)
	err := s.keep.edit(manifest.Edit{ReserveStreams: from + idBatch})
	if errors.Is(err, vfs.ErrNoSpace) {
		s.ids.Store(from) // creates are refused until there is room to reserve some
		return nil
	}
	s.ids.Store(from + idBatch)
	return err
}

// publishAll makes everything that was recovered visible. The log's last batch is
// durable again by now.
func (s *shard) publishAll(inherited map[base.StreamID]base.Offset) {
	for _, st := range s.byID {
		if f := st.head.Fork; f != nil && st.inc.lineage == nil {
			st.inc.lineage = s.e.lineage(f)
		}
		view, recorded := st.newView()
		if st.inc != nil {
			st.inc.recorded.Store(recorded)
		}
		if f := st.recoveredFloor(inherited); f > 0 {
			s.keep.trimmed(view.ID, f, s.e.now())
		}
		if s.e.outlived(st.head) {
			continue // looseEnds has it deleted
		}
		s.replaced(st, st.view.Swap(view), view)
	}
	s.noteDeadlines()
}

// lineage follows a fork to its sources' shards. Only in recovery, when no turn runs.
func (e *Engine) lineage(f *record.Fork) *ancestor {
	src := e.shards[f.Source.Shard(len(e.shards))].byID[f.Source]
	if src == nil || src.head.Fork == nil {
		return extend(nil, f)
	}
	if src.inc.lineage == nil {
		src.inc.lineage = e.lineage(src.head.Fork)
	}
	return extend(src.inc.lineage, f)
}

// extend returns the lineage of a fork of a stream with the given one.
func extend(of *ancestor, f *record.Fork) *ancestor {
	if f.Offset == 0 {
		return nil
	}
	id := f.Source
	for ; of != nil && of.end >= f.Offset; of = of.before {
		id = of.id // the fork ends within what its source has inherited itself
	}
	return &ancestor{id: id, end: f.Offset, endRecord: f.Record, before: of}
}

// looseEnds appends what finishes the chains that a crash has interrupted: pins of
// forks that were never made, or have gone, are dropped, and so are forks that have
// outlived their source.
func (s *shard) looseEnds(to []upkeep) []upkeep {
	for _, st := range s.byID {
		h := st.head
		h.EachPin(func(fork base.StreamID, _ base.Offset) {
			if s.e.shards[fork.Shard(len(s.e.shards))].byID[fork] == nil {
				to = append(to, upkeep{shard: s, ev: core.Event{Op: core.OpUnpin, Stream: h.ID, ForkID: fork}})
			}
		})
		if s.e.outlived(h) {
			to = append(to, upkeep{shard: s, ev: core.Event{Op: core.OpDelete, Stream: h.ID}})
		}
	}
	return to
}

// outlived reports whether a stream is a fork whose source has let go of it, or is such
// a fork's. That happens only after the fork's end, which a restore may lack: it is of
// another shard. Only in recovery.
func (e *Engine) outlived(h *core.Head) bool {
	f := h.Fork
	if f == nil {
		return false
	}
	src := e.shards[f.Source.Shard(len(e.shards))].byID[f.Source]
	if src == nil {
		return true
	}
	pinned := false
	src.head.EachPin(func(id base.StreamID, _ base.Offset) { pinned = pinned || id == h.ID })
	return !pinned || e.outlived(src.head)
}
