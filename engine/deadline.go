package engine

import (
	"container/heap"
	"slices"
	"time"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// A read moves the deadline of a TTL by an atomic maximum and writes nothing. So
// that a restart does not forget it, the recorded deadline runs ahead by a granule
// g: last record + TTL + g. A read that would come within g/2 of it has a touch
// recorded, one that would pass it waits for that (design §2, «Deadlines»).

const (
	minGranule = base.Millis(1000)
	maxGranule = base.Millis(3600 * 1000)
)

func granule(ttl int64) base.Millis {
	return min(max(base.Millis(ttl)*1000/8, minGranule), maxGranule)
}

// recordedDeadline returns the deadline that a restart would give the head; 0: none.
func recordedDeadline(h *core.Head) int64 {
	if h.TTL < 0 {
		return int64(h.ExpiresAt)
	}
	return int64(h.Deadline(h.Touched) + granule(h.TTL))
}

// Renewal says what an accepted read has to wait for.
type Renewal uint8

// The renewals.
const (
	Renewed    Renewal = iota // nothing
	MustTouch                 // submit an OpTouch for the view's stream, then answer
	MustExpire                // submit an OpExpire for it, then look at the view again
)

// Renew lets a read that began under v count as a use of its stream.
func (s *Stream) Renew(v *View) Renewal {
	inc := v.inc
	if inc == nil || !v.Expires() || v.Deleted {
		return Renewed
	}
	now := s.shard.e.now()
	want := int64(now)
	if v.TTL >= 0 {
		want += v.TTL * 1000
	}
	for {
		d := inc.deadline.Load()
		switch {
		case d <= int64(now): // passed, or sealed by an expiry
			return MustExpire
		case v.TTL < 0:
			return Renewed
		case want > d && !inc.deadline.CompareAndSwap(d, want):
			continue
		}
		break // perhaps somebody else moved it; what he waits for is needed here too
	}
	recorded := inc.recorded.Load()
	switch {
	case want > recorded:
		return MustTouch
	case want > recorded-int64(granule(v.TTL)/2) && inc.touching.CompareAndSwap(false, true):
		if err := s.shard.submit(ownOp(core.Event{Op: core.OpTouch, Stream: v.ID})); err != nil {
			inc.touching.Store(false) // too much waits: a later read asks again, or waits itself
		}
	}
	return Renewed
}

// Alive reports whether the deadline of v has not passed. It renews nothing.
func (s *Stream) Alive(v *View) bool {
	if v.inc == nil || !v.Expires() || v.Deleted {
		return true
	}
	return v.inc.deadline.Load() > int64(s.shard.e.now())
}

// renewed lets a write, or a replayed touch, count.
func (s *shard) renewed(st *Stream, h *core.Head) {
	if st.inc == nil || !h.Expires() {
		return
	}
	st.inc.touching.Store(false)
	to := int64(h.Deadline(h.Touched))
	if s.recovering {
		to = recordedDeadline(h) // reads may have moved it further than any record says
	}
	st.inc.push(to)
}

// expireDue ends the streams whose deadline has come, as many as have room in a batch.
func (s *shard) expireDue() {
	for range s.e.opts.expiryRoom() / expiryBytes {
		if !s.timers.due(s.now) {
			return
		}
		st := heap.Pop(&s.timers).(deadline).st
		if !st.head.Deleted && !s.tryExpire(st) {
			s.timers.set(st, max(base.Millis(st.inc.deadline.Load()), s.now+1))
		}
	}
}

// tryExpire ends a stream if its deadline has passed. A stream with a parked
// reader is touched instead, unless its end is absolute.
func (s *shard) tryExpire(st *Stream) bool {
	h := st.head
	for {
		d := st.inc.deadline.Load()
		if d > int64(s.now) {
			return false
		}
		if h.TTL > 0 && st.Watched() {
			s.logTouch(st)
			return false
		}
		if d >= 0 && !st.inc.deadline.CompareAndSwap(d, -max(d, 1)) {
			continue // a read was faster
		}
		s.scratch = record.Record{Type: record.TypeDelete, Stream: h.ID, At: s.now, Expired: true}
		s.cur.expired++
		s.expiring.Add(1)
		s.log1(st, &s.scratch, nil, &s.headBuf)
		return true
	}
}

// expireFirst makes an operation find a stream whose deadline has passed gone,
// whether its timer has fired or not.
func (s *shard) expireFirst(o *Op, st *Stream) *Stream {
	if st == nil || st.head == nil || st.head.Deleted || !st.head.Expires() {
		return st
	}
	switch o.Event.Op {
	case core.OpTouch, core.OpUnpin:
		return st
	}
	s.tryExpire(st)
	return st
}

// repeated lets an operation that was accepted, but wrote nothing, count as a use of
// its stream: a producer's repeat, a stream that is made, closed or trimmed again. What it
// needs is recorded in the same batch.
func (s *shard) repeated(o *Op, st *Stream) {
	if st == nil || st.head == nil || !o.Answer.Code.OK() {
		return
	}
	switch o.Event.Op {
	case core.OpAppend, core.OpCreate, core.OpSnapshot, core.OpTrim:
	default:
		return
	}
	h := st.head
	if h.TTL < 0 || h.Deleted {
		return
	}
	want := int64(s.now) + h.TTL*1000
	if want > recordedDeadline(h)-int64(granule(h.TTL)/2) && s.cur.log != nil {
		s.logTouch(st)
		return
	}
	st.inc.push(min(want, recordedDeadline(h)))
}

// logTouch records that a stream was used now.
func (s *shard) logTouch(st *Stream) {
	s.scratch = record.Record{Type: record.TypeTouch, Stream: st.head.ID, At: s.now}
	s.log1(st, &s.scratch, nil, &s.headBuf)
}

// push moves the deadline, unless it is sealed or later already.
func (c *incarnation) push(to int64) {
	for {
		d := c.deadline.Load()
		if d < 0 || d >= to || c.deadline.CompareAndSwap(d, to) {
			return
		}
	}
}

// deadline is a timer of the turn: when to look at a stream again.
type deadline struct {
	at base.Millis
	st *Stream
}

// timerHeap orders timers by time, one for each stream that has a deadline. It may
// be early: the stream may have been used since, and is then put back.
type timerHeap []deadline

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].st.timer, h[j].st.timer = i+1, j+1
}

// Push and Pop are for package container/heap.
func (h *timerHeap) Push(x any) {
	d := x.(deadline)
	*h = append(*h, d)
	d.st.timer = len(*h)
}

// Pop removes the last entry.
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = deadline{}
	*h = old[:len(old)-1]
	x.st.timer = 0
	return x
}

// set sets the stream's timer.
func (h *timerHeap) set(st *Stream, at base.Millis) {
	h.drop(st)
	heap.Push(h, deadline{at: at, st: st})
}

// drop ends the stream's timer, if it has one.
func (h *timerHeap) drop(st *Stream) {
	if st.timer > 0 {
		heap.Remove(h, st.timer-1)
	}
}

func (h timerHeap) due(now base.Millis) bool { return len(h) > 0 && h[0].at <= now }

// overdue is when to look again at what was due in this turn: it waits for a flush,
// or for space, both of which ring too.
const overdue = 100 * time.Millisecond

// noteDeadlines publishes when the next stream may have to end.
func (s *shard) noteDeadlines() {
	at := base.Millis(0)
	if len(s.timers) > 0 {
		at = max(s.timers[0].at, 1)
	}
	s.nextEnd.Store(int64(at))
}

// overdue reports whether there may be a stream whose deadline has passed and whose end
// is not published.
func (s *shard) overdue(now base.Millis) bool {
	at := s.nextEnd.Load() // before expiring, which counts a stream before nextEnd forgets it
	return at != 0 && at <= int64(now) || s.expiring.Load() > 0
}

// Overdue reports whether Bucket may count streams whose deadline has passed.
func (e *Engine) Overdue() bool {
	now := e.now()
	return slices.ContainsFunc(e.shards, func(s *shard) bool { return s.overdue(now) })
}

// overduePasses bounds the batches that ExpireOverdue waits for in a shard.
const overduePasses = 64

// ExpireOverdue ends the streams whose deadline has passed, but for what there is no room in
// the log, or no time: some 16,000 in a shard. It waits for the disk: not on a poller.
func (e *Engine) ExpireOverdue() {
	now := e.now()
	for _, s := range e.shards {
		for range overduePasses {
			if !s.overdue(now) {
				break
			}
			o := &Op{Event: core.Event{Op: core.OpExpire}} // of no stream: the batch ends first what is due
			if e.doAt(s, o) != nil {
				return
			}
		}
	}
}

// armTimer has the shard rung when the next deadline comes, or when deleted bytes
// have to leave memtable and log.
func (s *shard) armTimer() {
	s.noteDeadlines()
	at := base.Millis(0)
	if len(s.timers) > 0 {
		at = s.timers[0].at
	}
	if s.deadSince != 0 {
		if e := s.deadSince + s.e.opts.eraseAfter(); at == 0 || e < at {
			at = e
		}
	}
	if s.active.Bytes() >= quietBytes {
		if q := s.wrote + quietAfter; at == 0 || q < at {
			at = q
		}
	}
	if s.e.tier != nil && s.walBytes > 0 {
		if q := s.exposedAt(); at == 0 || q < at {
			at = q
		}
	}
	fired := s.fired.Swap(false) // perhaps early: the wall clock may be set back, or slow
	if at == 0 || !fired && s.now < s.armed && s.armed <= at {
		return // the timer fires early enough; the turn that it asks for looks again
	}
	s.armed = at
	d := time.Duration(max(at-s.e.now(), 0)+1) * time.Millisecond
	if at <= s.now {
		d = overdue
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() {
			s.fired.Store(true)
			s.ring()
		})
		return
	}
	s.timer.Reset(d)
}
