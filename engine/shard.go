package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// shard owns a part of the streams. Its turn, which the host runs, decides and
// stages; its disk goroutine makes one batch at a time durable; its keeper writes
// segments and edits the manifest.
//
//	turn: stage N+1, hand over | answer N | …
//	disk:                      | write N+1, sync, publish | …
type shard struct {
	e     *Engine
	n     int
	live  liveCounts
	log   *wal.Log
	names nameTable

	// The mailbox and the hand-over of batches, guarded by mu.
	mu      sync.Mutex
	box     []*Op
	since   time.Time // when the first of box came
	rung    bool      // a turn will come
	turning bool      // a turn is under way
	busy    bool      // a batch is with the disk goroutine
	done    *batch    // durable, not yet retired
	closed  bool      // nothing is staged any more

	draining bool // nothing is taken any more but what the engine asks of itself

	// The turn's.
	turnState

	nextID  atomic.Uint64  // counter of the next stream's id
	ids     atomic.Uint64  // those below it may be given out
	nextSeg base.SegmentID // the next segment's number; guarded by keep.mu

	jobs  chan *batch // to the disk goroutine
	timer *time.Timer // rings for the next deadline
	fired atomic.Bool // it has, since it was set

	nextEnd  atomic.Int64 // when the next stream may have to end; 0: none has to
	expiring atomic.Int64 // streams whose end is on its way to the disk because their time has come

	durable atomic.Uint64 // LSN of the last record that is published

	reads  atomic.Pointer[readState]
	readMu sync.Mutex // held while reads is replaced, never across I/O
	keep   *keeper
	stats  shardStats
	gauges gauges
}

// turnState is what only the turn touches (and recovery, before there are turns).
type turnState struct {
	byID       map[base.StreamID]*Stream
	streams    int                   // in byID, buckets not counted
	present    map[string]int64      // streams of each bucket, those that only forks keep included
	freezes    map[base.StreamID]int // buckets that somebody is about to delete
	now        base.Millis           // of the last record: time never goes back
	active     *memtable.Table
	wrote      base.Millis // when the last batch with records was staged
	began      base.Millis // when the first one of the active memtable was
	walBytes   int64       // of the log since the active memtable began
	deadSince  base.Millis // when memtables and log began to hold bytes of a stream that has gone; 0: they don't
	erasing    erasing
	marking    bool              // the batch is the first of a new file of the log
	end        manifest.Position // last record staged
	stateBytes int64
	timers     timerHeap
	later      []core.Event // asked of itself when the log had no room
	batchSeq   uint64
	cur        *batch // being filled
	free       []*batch
	spare      []*Op
	released   []blob.Digest // by records that were replayed
	settings   core.Settings
	env        core.Env
	eff        core.Effects
	rowBuf     []byte
	keyBuf     []byte
	headBuf    []byte
	scratch    record.Record
	armed      base.Millis // what the timer is set to
	recovering bool
}

// batch is what one fdatasync makes durable.
type batch struct {
	log     *wal.Batch // nil when the log has no room
	bytes   int64      // of its records
	writes  int64      // records with data
	data    int64      // bytes of that
	expired int64      // streams that end because their time has come
	ops     []*Op      // answered after it
	touched []touched
	upkeep  []upkeep // follow-ups in other shards
	blobs   blobChanges
	since   time.Time // when the first of ops came
	end     base.LSN  // of its last record, or one before
}

// touched is a stream whose view the batch replaces.
type touched struct {
	st       *Stream
	view     *View // nil: the name is free
	recorded int64 // the deadline that a restart would find
	id       base.StreamID
	gone     bool        // an incarnation ended
	floor    base.Offset // bytes below are not needed any more; 0: nothing to say
}

// upkeep is an operation that the engine asks of another shard, or of itself.
type upkeep struct {
	shard *shard
	ev    core.Event
	held  *Op // is answered after it; nil for none
}

const (
	maxBatchBytes = 4 << 20  // of small records; bounds a turn
	maxExpiryRoom = 32 << 10 // of a batch, for streams whose deadline has come
	expiryBytes   = 128      // that one of them takes at most
	smallBatch    = 2        // batches of up to so many are answered by the disk goroutine
)

// submit puts an operation into the mailbox. While a batch is with the disk there
// is no need to ring: the end of its sync will.
func (s *shard) submit(o *Op) error {
	s.mu.Lock()
	if s.closed || s.draining {
		s.mu.Unlock()
		return ErrClosed
	}
	if len(s.box) >= s.e.opts.MailboxOps {
		s.mu.Unlock()
		s.stats.refused.Add(1)
		return ErrOverloaded
	}
	if len(s.box) == 0 {
		s.since = time.Now()
	}
	s.box = append(s.box, o)
	ring := !s.rung && !s.busy
	s.rung = s.rung || ring
	s.mu.Unlock()
	if ring {
		s.e.opts.Ring(s.n)
	}
	return nil
}

func ownOp(ev core.Event) *Op { return &Op{Event: ev, Done: func(*Op) {}, own: true} }

// ask submits an operation of the engine's own, past the mailbox's bound: there is
// at most one for each record of a batch.
func (s *shard) ask(ev core.Event) { s.askOp(ownOp(ev)) }

// askOp is ask, and false when the shard has been closed: then nothing comes of it.
func (s *shard) askOp(o *Op) bool {
	s.mu.Lock()
	open := !s.closed
	if open {
		s.box = append(s.box, o)
	}
	s.mu.Unlock()
	if open {
		s.ring()
	}
	return open
}

// ring asks the host for a turn.
func (s *shard) ring() {
	s.mu.Lock()
	ring := !s.rung
	s.rung = true
	s.mu.Unlock()
	if ring {
		s.e.opts.Ring(s.n)
	}
}

// disk makes batches durable and publishes their views, in order. It ends when
// jobs is closed.
func (s *shard) disk() {
	for b := range s.jobs {
		begin := time.Now()
		if err := s.log.Commit(b.log); err != nil {
			s.e.fail(err)
		}
		if s.e.Err() != nil {
			continue // nothing of this batch, or of a later one, is acknowledged
		}
		s.publish(b)
		s.stats.appends.Add(b.writes)
		s.stats.bytes.Add(b.data)
		s.e.stats.committed(b, begin)
		if len(b.ops) <= smallBatch {
			b.answer(offTurn)
		}
		s.mu.Lock()
		s.busy, s.done = false, b
		ring := !s.rung
		s.rung = true
		s.mu.Unlock()
		if ring {
			s.e.opts.Ring(s.n)
		}
	}
}

// publish lets readers see what a durable batch has changed.
func (s *shard) publish(b *batch) {
	s.durable.Store(uint64(b.end)) // before anybody acts on what the batch has ended
	for i := range b.touched {
		t := &b.touched[i]
		if t.view != nil && t.view.inc != nil {
			t.view.inc.recorded.Store(t.recorded)
		}
		s.replaced(t.st, t.st.view.Swap(t.view), t.view)
		if t.floor > 0 {
			s.keep.trimmed(t.id, t.floor, s.e.now())
		}
		if t.gone {
			s.keep.gone(t.id, s.e.now())
		}
	}
	s.expiring.Add(-b.expired)
	s.blobsPublished(&b.blobs)
	for i := range b.touched {
		b.touched[i].st.wake()
	}
}

// offTurn is where answers come from that no turn gives.
const offTurn = -1

// answer gives the answers that are left, on the turn of the given shard or off any turn.
func (b *batch) answer(turn int) {
	for i, o := range b.ops {
		b.ops[i] = nil
		o.finish(turn)
	}
	b.ops = b.ops[:0]
}
