package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/index"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/wal"
)

// Streams are flushed and merged in groups, so that what is short-lived dies in
// its own segments. The numbers are on disk.
const (
	kindLasting uint8 = 1
	kindExpires uint8 = 2
)

func kindOf(f *core.Fixed) uint8 {
	if f.Expires() {
		return kindExpires
	}
	return kindLasting
}

// frozen is a generation that waits to be flushed, and the last record in it.
type frozen struct {
	gen   *generation
	low   manifest.Position
	quiet bool // the shard has nothing else to do
}

// keeper is the background of a shard: it alone edits the manifest and the index.
// One goroutine, started by Open and ended by Close; a second one, the merger,
// reads and writes segments for it.
type keeper struct {
	s     *shard
	man   *manifest.Manifest
	state manifest.State // as the manifest has it
	tree  *index.Tree    // the keeper's own; readers get clones

	mu    sync.Mutex // guards what others hand over
	queue []frozen
	ended map[base.StreamID]endedStream // gone, and perhaps still in segments
	fresh []base.StreamID               // those of them that countDead has yet to look at
	more  bool                          // ids are running out

	replaced []replaced // snapshots that are to be dropped, in time; guarded by mu

	kick   chan struct{} // capacity 1
	quit   chan struct{}
	over   chan struct{}   // closed at the end of the keeper's goroutine, after a failure before quit is
	ctx    context.Context // ends with quit: for reads of the object store
	cancel context.CancelFunc
	merges chan mergeJob
	merged chan mergeResult
	wg     sync.WaitGroup

	idsAfter time.Time // no ids are reserved before

	noSpace atomic.Bool // the last try to flush found the disk full

	busy       bool          // a merge is under way
	mergeWait  time.Duration // between tries, while merges fail
	mergeAfter time.Time     // the next try

	dead    map[base.SegmentID]deadBytes // what segments hold of streams that have gone
	erasing bool                         // whether the last merge was for that

	avoid map[base.SegmentID]bool // damaged: never merged, so that their bytes are kept

	// For the tier, if there is one. The maps are the keeper's.
	asks      chan func()                  // run between flushes and merges, or while one waits for space
	merging   map[base.SegmentID]bool      // inputs of the merge that is under way
	held      map[base.SegmentID]bool      // being uploaded or evicted: not merged meanwhile
	flushed   map[base.SegmentID]flushedAt // segments of this run of the program
	unseen    int64                        // bytes of memtables that are in segments which the tier has not seen
	lineages  []lineage                    // since the tier asked last
	coldAfter time.Time                    // evicted segments are not merged before
}

// flushedAt is when a segment was written: by a merge, or by a flush, and then after
// which LSN its rows begin.
type flushedAt struct {
	at     time.Time
	merged bool
	after  base.LSN
}

// lineage says what a merge made of what. The store may hold the inputs and not yet
// the outputs.
type lineage struct {
	inputs  []manifest.Segment
	outputs []base.SegmentID
	// since, unless nil, is how far each shard had come when the merge left out bytes
	// that nobody needed any more: what said so may be in no segment yet.
	since []base.LSN
}

const (
	idBatch   = 1 << 17 // stream ids reserved at a time
	segBatch  = 64      // segment numbers reserved at a time
	retryStep = 250 * time.Millisecond
	retryMax  = 10 * time.Second
)

func (k *keeper) start() {
	k.kick, k.quit, k.over = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.merges, k.merged = make(chan mergeJob), make(chan mergeResult)
	k.asks = make(chan func())
	k.held, k.flushed = map[base.SegmentID]bool{}, map[base.SegmentID]flushedAt{}
	k.wg.Go(k.run)
	k.wg.Go(k.merger)
}

// stop ends both goroutines. A flush or merge under way is given up; the log still
// has what it would have written.
func (k *keeper) stop() {
	close(k.quit)
	k.cancel()
	k.wg.Wait()
}

func (k *keeper) stopping() bool {
	select {
	case <-k.quit:
		return true
	default:
		return false
	}
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// flush takes over a frozen generation. Any goroutine.
func (k *keeper) flush(f frozen) {
	k.mu.Lock()
	k.queue = append(k.queue, f)
	k.mu.Unlock()
	k.wake()
}

// lowOnIDs asks for more stream ids. Any goroutine.
func (k *keeper) lowOnIDs() {
	k.mu.Lock()
	k.more = true
	k.mu.Unlock()
	k.wake()
}

// do runs f on the keeper's goroutine and waits for it. It is false when the keeper
// has ended before, as it does when the engine fails.
func (k *keeper) do(f func()) bool {
	done := make(chan struct{})
	select {
	case k.asks <- func() { f(); close(done) }:
		<-done
		return true
	case <-k.over:
		return false
	}
}

func (k *keeper) next() (f frozen, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) > 0 {
		f, ok = k.queue[0], true
		k.queue = slices.Delete(k.queue, 0, 1) // which lets go of the generation
	}
	return f, ok
}

func (k *keeper) run() {
	defer close(k.over)
	defer close(k.merges)
	tick := time.NewTicker(k.s.e.opts.EraseWithin / 8)
	defer tick.Stop()
	for {
		select {
		case <-k.kick:
		case r := <-k.merged:
			k.finishMerge(r)
		case f := <-k.asks:
			f()
		case <-tick.C:
		case <-k.quit:
			return
		}
		k.reserveIDs()
		if f, ok := k.next(); ok {
			if !k.flushUntilDone(f) {
				return
			}
			k.wake() // more may wait; but so may merges, and the tier
		}
		k.proposeMerge()
	}
}

// edit applies a manifest edit. An error of the manifest is fatal but for a lack
// of space.
func (k *keeper) edit(e manifest.Edit) error {
	err := k.man.Apply(e)
	if err == nil {
		k.state = k.man.State()
		return nil
	}
	if !errors.Is(err, vfs.ErrNoSpace) {
		k.s.e.fail(err)
	}
	return err
}

// reserveIDs reserves more stream ids if they run out.
func (k *keeper) reserveIDs() {
	k.mu.Lock()
	more := k.more
	k.more = false
	k.mu.Unlock()
	if !more || time.Now().Before(k.idsAfter) {
		return
	}
	to := k.state.NextStream + idBatch
	if err := k.edit(manifest.Edit{ReserveStreams: to}); err != nil {
		k.idsAfter = time.Now().Add(retryStep) // whoever needs one asks again
		k.s.e.opts.Logger.Error("reserving stream ids", "shard", k.s.n, "err", err)
		return
	}
	k.s.ids.Store(to)
	k.s.ring()
}

// takeID returns a fresh stream id. It is false while none is reserved.
func (s *shard) takeID() (base.StreamID, bool) {
	end := s.ids.Load()
	c := s.nextID.Load()
	if c+idBatch/2 >= end {
		s.keep.lowOnIDs()
	}
	for {
		c = s.nextID.Load()
		if c >= end {
			return 0, false
		}
		if s.nextID.CompareAndSwap(c, c+1) {
			return base.StreamID(c*uint64(len(s.e.shards)) + uint64(s.n)), true
		}
	}
}

// newSegment opens a writer for the next segment, under its temporary name. The
// number is reserved in the manifest before the file has its final name.
func (k *keeper) newSegment(size int64, kind uint8) (*segment.Writer, base.SegmentID, error) {
	k.mu.Lock()
	id := k.s.nextSeg
	k.s.nextSeg++
	k.mu.Unlock()
	if err := k.s.e.opts.FS.MkdirAll(k.s.path("tmp")); err != nil {
		return nil, 0, err
	}
	w, err := segment.Create(k.s.e.opts.FS, k.s.tmpPath(id), id, size, kind)
	return w, id, err
}

func (s *shard) path(elem ...string) string {
	return filepath.Join(append([]string{s.e.dir, shardDir(s.n)}, elem...)...)
}

func (s *shard) segPath(id base.SegmentID) string {
	return s.path("seg", fmt.Sprintf("%010d.seg", uint64(id)))
}

// tailPath is where the tail of an evicted segment is.
func (s *shard) tailPath(id base.SegmentID) string {
	return s.path("seg", fmt.Sprintf("%010d.tail", uint64(id)))
}

func (s *shard) tmpPath(id base.SegmentID) string {
	return s.path("tmp", fmt.Sprintf("%010d.seg", uint64(id)))
}

// install gives finished segments their names, durably, and opens them. The numbers
// must have been reserved. After an error nothing is left of them.
func (k *keeper) install(ids []base.SegmentID) (refs []*segmentRef, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			k.uninstall(refs)
			k.discard(ids)
		}
	}()
	fs := k.s.e.opts.FS
	for _, id := range ids {
		if err := fs.Rename(k.s.tmpPath(id), k.s.segPath(id)); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"seg", "tmp"} { // a rename between two is durable when both are
		if err := fs.SyncDir(k.s.path(dir)); err != nil {
			k.s.e.fail(err)
			return nil, err
		}
	}
	for _, id := range ids {
		r, err := k.s.openSegment(manifest.Segment{ID: id})
		if err != nil {
			return refs, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// uninstall removes segments that the manifest did not take for want of space. After
// any other error of the manifest nobody knows what is on disk, and they stay.
func (k *keeper) uninstall(refs []*segmentRef) {
	for _, r := range refs {
		r.refs.Add(1)
		r.dropped.Store(k.s.e.Err() == nil)
		r.release()
	}
}

// openSegment opens a segment as the manifest describes it.
func (s *shard) openSegment(m manifest.Segment) (*segmentRef, error) {
	path := s.segPath(m.ID)
	if m.Evicted {
		path = s.tailPath(m.ID)
	}
	f, err := s.e.opts.FS.Open(path)
	if err != nil {
		return nil, err
	}
	seg, err := s.openFile(f, path, m)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &segmentRef{seg: seg, file: f, path: path, fs: s.e.opts.FS, evicted: m.Evicted, report: func(err error) {
		s.e.opts.Logger.Warn("segment", "err", err)
	}}
	r.used.Store(int64(s.e.now()))
	if m.Object == 0 {
		r.fresh.Store(seg.Size())
	}
	return r, nil
}

func (s *shard) openFile(f vfs.File, path string, m manifest.Segment) (*segment.Segment, error) {
	if m.Evicted {
		return segment.OpenTail(f, s.e.object(tiering.SegmentKey(s.n, m.ID, m.Object), m.Size), path, m.ID)
	}
	src, err := segment.FileSource(f)
	if err != nil {
		return nil, err
	}
	return segment.Open(src, path, m.ID)
}

// describe returns what the manifest says about an open segment.
func describe(r *segmentRef, level uint8, run uint64) manifest.Segment {
	m := manifest.Segment{ID: r.seg.ID(), Size: r.seg.Size(), Kind: r.seg.Kind(), Level: level, Run: run}
	for st := range r.seg.Streams() {
		if m.MinStream == 0 {
			m.MinStream = st.Extent.Stream
		}
		m.MaxStream = st.Extent.Stream
	}
	return m
}

// reserveSegments makes sure that numbers up to id are reserved.
func (k *keeper) reserveSegments(id base.SegmentID) error {
	if id < k.state.NextSegment {
		return nil
	}
	return k.edit(manifest.Edit{ReserveSegments: id + segBatch})
}

// released lets the log use files again whose records are in segments.
func (k *keeper) released(p manifest.Position) {
	k.s.log.Release(wal.Position{LSN: p.LSN, Batch: p.Batch})
	k.s.ring()
}
