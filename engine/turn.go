package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// turn first gives the disk its next batch, then answers the one before: the
// answers, the dearest part of an append, are written while the disk works.
func (s *shard) turn() {
	s.mu.Lock()
	s.rung, s.turning = false, true
	d := s.done
	s.done = nil
	idle := !s.busy && !s.closed && s.e.Err() == nil
	var ops []*Op
	since, draining := s.since, s.draining
	if idle {
		ops, s.box = s.box, s.spare[:0]
	}
	s.mu.Unlock()
	var refused *batch
	if idle {
		refused = s.stage(ops, since, draining)
	}
	if d != nil {
		s.retire(d)
	}
	if refused != nil {
		refused.answer(s.n)
		s.free = append(s.free, refused)
	}
	s.note()
	s.mu.Lock()
	s.turning = false
	s.mu.Unlock()
}

// stage decides as many of ops as one batch takes and hands it to the disk
// goroutine; the rest goes back into the mailbox. A batch without records is
// returned: its answers rest on batches that have been published.
func (s *shard) stage(ops []*Op, since time.Time, draining bool) *batch {
	s.setClock()
	n, b := 0, (*batch)(nil)
	switch admits := s.admitsWrites(); {
	case admits && (len(ops) > 0 || s.timers.due(s.now) || s.erasing == erasingLog || len(s.later) > 0):
		b = s.newBatch()
		b.since = since
		s.cur = b
		n = s.fill(ops)
		s.cur = nil
	case !admits && draining: // a flush that may never succeed is not waited for
		b, n = s.newBatch(), len(ops)
		for _, o := range ops {
			o.Answer = core.Answer{Code: core.ShuttingDown}
			b.ops = append(b.ops, o)
		}
	}
	full := b != nil && b.log != nil && b.log.Len() > 0
	if full {
		s.buildViews(b)
	}
	s.requeue(ops, n, full)
	s.armTimer()
	if full {
		s.jobs <- b
		return nil
	}
	if 0 < n && n < len(ops) || b != nil && b.log != nil && s.timers.due(s.now) {
		s.ring() // no sync will: go on with the rest
	}
	return b
}

// fill puts into the current batch what is due and as many of ops as fit, and
// returns how many.
func (s *shard) fill(ops []*Op) int {
	n, room := s.fit(ops)
	l, ok := s.log.Begin(room)
	switch {
	case ok:
		s.cur.log = l
		s.leftLog()
		s.expireDue()
		s.resume()
	case s.log.Err() != nil:
		s.e.fail(s.log.Err())
		return 0
	case s.log.NoSpace() && !s.flushHelps():
		s.env.DiskFull = true // there is no file for any record, only refusals
	default:
		return 0 // the next file is not ready; the log rings when it is
	}
	for _, o := range ops[:n] {
		s.process(o)
		if !s.hold(o) {
			s.cur.ops = append(s.cur.ops, o)
		}
	}
	s.mark()
	return n
}

// flushHelps reports whether a flush may give the log files to go on in. The keeper
// rings when it is done, or finds no space either.
func (s *shard) flushHelps() bool {
	if s.keep.noSpace.Load() {
		return false
	}
	return len(s.reads.Load().frozen) > 0 || s.active.Bytes() > 0 && s.freeze()
}

// requeue puts ops[n:] back in front of what has come since and marks the disk as
// busy when a batch is about to be handed over.
func (s *shard) requeue(ops []*Op, n int, busy bool) {
	s.mu.Lock()
	s.busy = busy
	if n < len(ops) {
		s.box = append(append(make([]*Op, 0, len(ops)-n+len(s.box)), ops[n:]...), s.box...)
	}
	s.mu.Unlock()
	clear(ops)
	s.spare = ops[:0]
}

// setClock takes the time for this turn; core's time never goes back.
func (s *shard) setClock() {
	s.now = max(s.now, s.e.now())
	s.env = core.Env{
		Settings: &s.settings, Now: s.now, State: s.stateBytes, DiskFull: s.e.diskFull.Load(),
	}
}

// admitsWrites freezes the memtable when it is due. It is false while two frozen
// ones wait to be flushed and the active one is full: operations then stay in the
// mailbox, whose bound turns further ones away. If they wait for want of space,
// whatever adds data is refused instead; the rest fits.
func (s *shard) admitsWrites() bool {
	o := &s.e.opts
	most := o.WALMaxBytes
	if s.env.DiskFull {
		most = o.WALFileBytes // what is left of the disk is for flushes, not for log that waits for them
	}
	full := s.active.Bytes() >= o.MemtableBytes || s.walBytes >= most
	erase := s.erase()
	switch {
	case !full && !erase && !s.quiet() && !s.exposed():
	case s.freeze():
		if erase {
			s.erasing = erasingNothing
		}
	case full:
		s.env.DiskFull = s.env.DiskFull || s.keep.noSpace.Load()
		return s.env.DiskFull
	}
	return true
}

// A shard that has written nothing for quietAfter gives up a memtable of quietBytes
// or more: what is idle should not cost memory, nor a start the replay.
const (
	quietAfter = base.Millis(2000)
	quietBytes = 4 << 20
)

func (s *shard) quiet() bool {
	return s.active.Bytes() >= quietBytes && s.now-s.wrote >= quietAfter
}

// exposed reports that the memtable holds what should be in the object store by now.
func (s *shard) exposed() bool {
	return s.e.tier != nil && s.walBytes > 0 && s.now >= s.exposedAt()
}

// exposedAt is when the memtable is to go: the same time for all shards, since a fork goes
// to a restore only together with what its source's shard says of it, which may wait in
// turn for other shards' forks.
func (s *shard) exposedAt() base.Millis {
	d := s.e.opts.exposure()
	return s.began - s.began%d + d
}

func (s *shard) newBatch() *batch {
	s.batchSeq++
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		*b = batch{ops: b.ops[:0], touched: b.touched[:0], upkeep: b.upkeep[:0]}
		return b
	}
	return &batch{}
}

// fit returns how many of ops go into one batch, and the room that they need.
func (s *shard) fit(ops []*Op) (n int, room int64) {
	limit := s.log.MaxBatch() - s.e.opts.expiryRoom()
	for small := int64(0); n < len(ops); n++ {
		size := ops[n].bound()
		if n > 0 && (room+size > limit || small > maxBatchBytes) {
			break
		}
		if room += size; len(ops[n].Event.Body) <= record.InlineBody {
			small += size
		}
	}
	return n, room + s.e.opts.expiryRoom()
}

// process decides one operation and, when that makes a record, logs and applies it.
func (s *shard) process(o *Op) {
	switch o.Event.Op {
	case core.OpFreeze:
		s.freezeBucket(o)
		return
	case core.OpThaw:
		s.thawBucket(o.Event.Stream)
		o.Answer = core.Answer{Code: core.Deleted}
		return
	}
	st := s.find(o)
	if s.cur.log != nil {
		st = s.expireFirst(o, st)
		if o.Event.Op == core.OpExpire { // whether its deadline has passed is not core's to know
			o.Answer = core.Answer{Code: core.Deleted}
			return
		}
	}
	for {
		var h *core.Head
		if st != nil {
			h = st.head
		}
		s.env.State = s.stateBytes
		if h == nil && o.Event.Op == core.OpCreate {
			s.env.Bucket = s.bucketState(&o.Event)
		}
		if h == nil && o.Event.Op == core.OpCreate && !s.assignID(o) {
			o.Answer = core.Answer{Code: core.Overloaded}
			return
		}
		write := core.Decide(h, &o.Event, &s.env, &o.rec, &o.Answer)
		if write && s.cur.log == nil {
			o.Answer.Code = core.DiskFull // only deletes and upkeep come here: the log has no file for them
			s.postpone(o, st)
			return
		}
		if !write {
			s.repeated(o, st)
			return
		}
		if st == nil {
			st = s.names.place(s, appendKey(s.keyBuf[:0], o.Event.Bucket, o.Event.Name))
		}
		s.log1(st, &o.rec, &o.Event, &o.head)
		if n := o.rec.Snapshot; n != nil {
			s.e.blobs.Pin(n.Digest) // its owner's reference is there until the answer
		}
		if o.lineage != nil {
			st.inc.lineage = o.lineage
		}
		if o.Answer.Code != core.NeedsRoom {
			return
		}
	}
}

// hold puts off the answer of an operation that has ended a fork until the fork's source
// knows it, and so everything that it kept from ending has ended too: whoever has deleted the
// last fork of a deleted stream finds that one's name free. What has been decided is durable
// before the source is asked, and a start asks it again.
func (s *shard) hold(o *Op) bool {
	n := len(s.cur.upkeep)
	if n == 0 || o.Answer.Code != core.Deleted || o.Event.Op != core.OpDelete && o.Event.Op != core.OpUnpin {
		return false
	}
	u := &s.cur.upkeep[n-1]
	if u.held != nil || u.ev.ForkID != o.rec.Stream {
		return false
	}
	u.held = o
	return true
}

// release asks for what follows from a batch in another shard, and gives the answer that
// waits for it, at once if the other one is closed already.
func (s *shard) release(u *upkeep) {
	ask, held := ownOp(u.ev), u.held
	if held != nil {
		ask.Done = func(ask *Op) { held.finish(ask.turn) }
	}
	if !u.shard.askOp(ask) && held != nil {
		held.finish(s.n)
	}
}

// postpone keeps what the engine has asked of itself until the log has room. A touch
// is asked for again by the next read.
func (s *shard) postpone(o *Op, st *Stream) {
	switch {
	case !o.own:
	case o.Event.Op == core.OpTouch:
		st.inc.touching.Store(false)
	default:
		s.later = append(s.later, o.Event)
	}
}

// resume asks again for what was postponed.
func (s *shard) resume() {
	for _, ev := range s.later {
		s.ask(ev)
	}
	s.later = nil
}

// find returns the place that an operation is about, nil when there is none.
func (s *shard) find(o *Op) *Stream {
	ev := &o.Event
	switch {
	case ev.Op == core.OpCreate:
		return s.names.find(appendKey(s.keyBuf[:0], ev.Bucket, ev.Name))
	case ev.Stream != 0:
		return s.byID[ev.Stream]
	case o.Stream != nil && o.Stream.head == nil:
		return s.names.find(append(s.keyBuf[:0], o.Stream.key...)) // its place may have been given up and made again
	}
	return o.Stream
}

// assignID provides the id for a create. It is false while no reserved id is
// left; the keeper is asked for more long before.
func (s *shard) assignID(o *Op) bool {
	s.env.NewID = 0
	if o.Event.Stream != 0 { // a fork brings its own
		return true
	}
	id, ok := s.takeID()
	s.env.NewID = id
	return ok
}

// log1 is the one way of a decision to the log and into the heads.
func (s *shard) log1(st *Stream, rec *record.Record, ev *core.Event, head *[]byte) {
	*head = rec.AppendHead((*head)[:0])
	sum, owned := uint64(0), false
	if len(rec.Body) > 0 {
		s.cur.writes++
		s.cur.data += int64(len(rec.Body))
		if len(rec.Body) > record.InlineBody {
			sum, owned = ev.BodySum, ev.BodyOwned
		} else {
			sum = bin.Sum(rec.Body)
		}
	}
	s.cur.bytes += wal.RecordBytes(len(*head), len(rec.Body))
	lsn := s.cur.log.Add(uint8(rec.Type), *head, rec.Body, sum)
	s.end = manifest.Position{LSN: lsn, Batch: s.cur.log.Position().Batch}
	if err := s.apply(st, rec, lsn, owned); err != nil {
		panic(fmt.Sprintf("engine: a record that was just decided does not apply: %v", err))
	}
}

// apply carries out a record, live or replayed: heads, memtable, rows, deadlines.
func (s *shard) apply(st *Stream, rec *record.Record, lsn base.LSN, owned bool) error {
	// What most appends change takes no more memory than before.
	sized := rec.Type != record.TypeAppend || rec.Producer.Set || rec.HasSeq
	if sized && st.head != nil {
		s.stateBytes -= st.head.Bytes()
	}
	h, err := core.Apply(st.head, rec, &s.eff)
	if err != nil {
		return err
	}
	eff := &s.eff
	if rec.Type == record.TypeCreate {
		s.adopt(st, h)
	}
	s.now = max(s.now, rec.At)
	s.remember(st, h, rec, lsn, owned)
	if eff.Gone {
		s.bury(st, h, eff)
	} else {
		if sized {
			s.stateBytes += h.Bytes()
		}
		if eff.State {
			s.renewed(st, h)
		}
		if (eff.Trimmed || eff.PinRemoved) && st.floor(h.ID) > 0 {
			s.died(s.now)
		}
	}
	s.touch(st, h, eff.Gone)
	return nil
}

// adopt gives a head its place.
func (s *shard) adopt(st *Stream, h *core.Head) {
	h.Bucket, h.Name, _ = strings.Cut(st.key, "\x00") // share the key's memory
	h.ContentType, h.MediaType = s.e.types.intern(h.ContentType), s.e.types.intern(h.MediaType)
	st.head, st.inc = h, nil
	if h.Expires() || h.Fork != nil {
		st.inc = &incarnation{}
	}
	s.byID[h.ID] = st
	if h.Name != "" {
		s.present[h.Bucket]++
		s.streams++
	}
	if c := uint64(h.ID) / uint64(len(s.e.shards)); s.recovering && c >= s.nextID.Load() {
		s.nextID.Store(c + 1)
	}
	if h.Expires() {
		s.timers.set(st, h.Deadline(h.Touched))
	}
}

// remember keeps in the memtable what the record added.
func (s *shard) remember(st *Stream, h *core.Head, rec *record.Record, lsn base.LSN, owned bool) {
	en, eff := s.active.Entry(h.ID, kindOf(h.Fixed)), &s.eff
	en.Append(rec.Offset, h.NextRecord-uint64(len(rec.Ends)), rec.Body, rec.Ends, owned)
	if eff.Config {
		en.Begin()
		s.rowBuf = h.Config.AppendRow(s.rowBuf[:0])
		en.SetRow(record.ConfigKey, lsn, s.rowBuf, false)
	}
	if eff.ProducerID != nil {
		s.keyBuf = record.AppendProducerKey(s.keyBuf[:0], eff.ProducerID)
		s.rowBuf = s.rowBuf[:0]
		if eff.Producer != nil {
			s.rowBuf = eff.Producer.AppendRow(s.rowBuf)
		}
		en.SetRow(s.keyBuf, lsn, s.rowBuf, eff.Producer == nil)
	}
	if eff.Pin != 0 {
		s.keyBuf = record.AppendPinKey(s.keyBuf[:0], eff.Pin)
		s.rowBuf = record.AppendPinRow(s.rowBuf[:0], eff.PinOffset)
		en.SetRow(s.keyBuf, lsn, s.rowBuf, eff.PinRemoved)
	}
	if len(eff.Snapshots) > 0 || eff.Dropped != nil || len(eff.Freed) > 0 || eff.Attrs != nil {
		s.rememberExtra(en, lsn)
	}
	if eff.State {
		s.rowBuf = h.State.AppendRow(s.rowBuf[:0])
		en.SetRow(record.StateKey, lsn, s.rowBuf, false)
	}
}

// bury ends an incarnation.
func (s *shard) bury(st *Stream, h *core.Head, eff *core.Effects) {
	s.active.Entry(h.ID, kindOf(h.Fixed)).Bury(record.StateKey, s.end.LSN)
	s.died(s.now)
	delete(s.byID, h.ID)
	if h.Name != "" {
		s.streams--
		if s.present[h.Bucket]--; s.present[h.Bucket] == 0 {
			delete(s.present, h.Bucket)
		}
	}
	s.timers.drop(st)
	st.head = nil
	if s.recovering {
		s.keep.gone(h.ID, s.now) // live, the batch's publication says so
	}
	if f := eff.Release; f != nil && s.cur != nil {
		s.cur.upkeep = append(s.cur.upkeep, upkeep{
			shard: s.e.shards[f.Source.Shard(len(s.e.shards))],
			ev:    core.Event{Op: core.OpUnpin, Stream: f.Source, ForkID: h.ID},
		})
	}
}

// touch notes that the batch changes the stream's view. In recovery there is no
// batch, and every view is built at its end.
func (s *shard) touch(st *Stream, h *core.Head, gone bool) {
	if s.cur == nil {
		return
	}
	if gone || st.mark != s.batchSeq {
		st.mark = s.batchSeq
		s.cur.touched = append(s.cur.touched, touched{st: st, id: h.ID, gone: gone})
	}
}

// buildViews makes the views that the batch publishes.
func (s *shard) buildViews(b *batch) {
	for i := range b.touched {
		t := &b.touched[i]
		t.view, t.recorded = t.st.newView()
		t.floor = t.st.floor(t.id)
	}
	if s.walBytes == 0 {
		s.began = s.now
	}
	b.end = s.end.LSN
	s.walBytes += padded(b.bytes)
	s.wrote = s.now
}

// padded returns what a batch of n bytes takes in the log.
func padded(n int64) int64 { return (n + vfs.BlockSize - 1) &^ (vfs.BlockSize - 1) }

// newView returns the view of the head and the deadline that its rows hold.
func (st *Stream) newView() (*View, int64) {
	if st.head == nil {
		return nil, 0
	}
	return &View{View: st.head.View(), inc: st.inc}, recordedDeadline(st.head)
}

// retire answers what the disk goroutine has not, starts what follows in other
// shards, and gives up the places of names that are free.
func (s *shard) retire(b *batch) {
	b.answer(s.n)
	for i := range b.upkeep {
		s.release(&b.upkeep[i])
		b.upkeep[i] = upkeep{}
	}
	for i := range b.touched {
		t := &b.touched[i]
		if t.gone && t.st.head == nil && t.st.view.Load() == nil {
			s.names.drop(t.st)
		}
		*t = touched{}
	}
	s.free = append(s.free, b)
}
