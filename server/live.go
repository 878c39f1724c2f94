package server

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// mode is the kind of a live reader.
type mode uint8

const (
	longPoll mode = iota
	events
	modes
)

// reader is one live reader, parked or on its way to the tail: all that is kept of
// it between two looks at its stream. It belongs to its loop, but for the part from
// offset to greeted, and over, while it is busy: then the goroutine that reads the disk for it
// has that, and the loop notes what happens until it is back.
type reader struct {
	watch  engine.Watcher
	timer  Timer
	x      *Exchange
	loop   *loop
	stream *engine.Stream

	prev, next *reader // in the loop's list

	id       base.StreamID // the incarnation that it is pinned to
	offset   base.Offset   // everything below it has been sent
	cursor   uint64        // the lowest that may be sent
	deadline base.Millis   // of the long-poll, or when the event stream is to end
	sent     base.Millis   // when the last event or comment was sent
	held     base.Millis   // since when the beginning of a code point waits; 0: none

	wish   wish
	record uint64        // of a read by record: the one at offset
	boot   *bootSnapshot // what is to be sent before everything else; nil as a rule

	ticket  uint32 // long-poll
	mode    mode
	greeted bool // something has been sent

	busy    bool // a goroutine reads the disk for it
	missed  bool // its stream changed while it was busy
	late    bool // its timer fired while it was busy
	drained bool // its last frame went out while it was busy
	blocked bool // the transport still has a rest of the last frame
	queued  bool // it is in the loop's queue
	over    bool // its deadline has passed
	gone    bool // the client has left
	ended   bool
}

// hub holds the live readers. A stream's readers are all on one loop.
type hub struct {
	*Server
	loops []*loop
	seed  maphash.Seed
	disk  crew // who waits for the disk
	store crew // who waits for the object store
	wg    sync.WaitGroup

	readers [modes]atomic.Int64
	spread  atomic.Int64 // milliseconds over which a drain spreads its goodbyes
}

func newHub(s *Server) *hub {
	h := &hub{Server: s, seed: maphash.MakeSeed()}
	for range runtime.GOMAXPROCS(0) {
		h.loops = append(h.loops, newLoop(h))
	}
	h.disk.most, h.store.most, h.store.remote = diskReaders, storeReaders, true
	return h
}

// start starts the loops; stop ends them.
func (h *hub) start() {
	for _, l := range h.loops {
		h.wg.Go(l.run)
	}
}

// stop ends the loops and waits for them. No reader is served any more.
func (h *hub) stop() {
	for _, l := range h.loops {
		l.post(task{kind: taskStop})
	}
	h.wg.Wait()
}

// drain has every live reader end with its last event or answer, spread over a
// quarter of the time that ctx leaves, so that they do not all come back at once.
func (h *hub) drain(ctx context.Context) {
	left := 4 * time.Second
	if d, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(d)/4)
	}
	h.spread.Store(max(left.Milliseconds(), 0))
	for _, l := range h.loops {
		l.post(task{kind: taskDrain})
	}
}

// wake is the engine's Options.Wake: a watched stream has changed. It does not
// block.
func (h *hub) wake(st *engine.Stream) {
	h.loopOf(st).post(task{kind: taskWake, stream: st})
}

// loopOf returns the loop that serves a stream's readers.
func (h *hub) loopOf(st *engine.Stream) *loop {
	if len(h.loops) == 1 {
		return h.loops[0]
	}
	bucket, name := st.Name()
	sum := maphash.String(h.seed, bucket) ^ maphash.String(h.seed, name)<<1
	return h.loops[sum%uint64(len(h.loops))]
}

// newReader makes the record of a live reader.
func (c *call) newReader(m mode) *reader {
	r := &reader{
		x: c.x, loop: c.hub.loopOf(c.stream), stream: c.stream,
		id: c.view.ID, offset: c.start, cursor: nextCursor(&c.op.Read), mode: m,
		wish: wishOf(&c.op.Read), record: c.first,
	}
	if m == events { // there these make no difference, and frames are shared by equal wishes
		r.wish.ndjson, r.wish.now = false, false
	}
	return r
}

// park makes a live reader of a long-poll that stands at the tail.
func (c *call) park() {
	r := c.newReader(longPoll)
	r.deadline = now() + base.Millis(c.pollTimeout().Milliseconds())
	r.ticket = c.x.Ticket()
	if c.x.Park(r.leave) {
		r.loop.post(task{kind: taskStart, reader: r})
	}
	c.release()
}

// openEvents begins an event stream.
func (c *call) openEvents() {
	var fields []byte
	if c.op.Read.Records.Envelope {
		fields = c.render.RecordEvents(c.out[:0], c.res.Incarnation)
	} else {
		fields = c.render.Events(c.out[:0], c.res.Incarnation, c.view.ContentType)
	}
	c.out = fields[:0]
	c.startEvents(c.newReader(events), fields)
}

// startEvents answers with an event stream for r.
func (c *call) startEvents(r *reader, fields []byte) {
	life := float64(c.cfg.SSEMaxDuration.Milliseconds())
	r.deadline = now() + base.Millis(life*(0.9+0.2*rand.Float64()))
	c.x.OnWritable(r.writable)
	c.metrics.count(c.route, 200)
	if c.x.Stream(fields, r.leave) {
		r.loop.post(task{kind: taskStart, reader: r})
	} else {
		r.closeBoot()
	}
	c.release()
}

// leave is called by the transport when the client has gone.
func (r *reader) leave() { r.loop.post(task{kind: taskGone, reader: r}) }

// writable is called by the transport when the rest of a frame has been sent.
func (r *reader) writable() { r.loop.post(task{kind: taskWritable, reader: r}) }

// fire is called by the timer wheel.
func (r *reader) fire() { r.loop.post(task{kind: taskTimer, reader: r}) }

// pollTimeout returns how long a long-poll may wait.
func (c *call) pollTimeout() time.Duration {
	if rd := &c.op.Read; rd.HasTimeout {
		return time.Duration(rd.Timeout) * time.Millisecond
	}
	return c.cfg.LongPollTimeout
}

func nextCursor(rd *protocol.Read) uint64 {
	return protocol.NextCursor(now(), rd.Cursor, rd.HasCursor, rand.Uint64())
}

func now() base.Millis { return base.Millis(time.Now().UnixMilli()) }
