package core

import (
	"math"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// Settings bound what a stream may hold.
type Settings struct {
	MaxProducers int         // per stream
	ProducerIdle base.Millis // a producer idle for so long may be forgotten; 0: never
	MaxState     int64       // bytes of heads, above which nothing that adds state is taken
	History      uint16      // of the data directory, 1 or more
}

// Env is what Decide knows besides the event and the head.
type Env struct {
	*Settings
	Now      base.Millis   // never below the time of the last record
	NewID    base.StreamID // for a create that brings none
	State    int64         // bytes of heads now
	DiskFull bool
	Bucket   Bucket // of the event's bucket; for creates
}

// Bucket is what the shard knows of the bucket that a stream is to be made in.
type Bucket uint8

// A bucket is open unless it is said not to be.
const (
	BucketOpen Bucket = iota
	BucketAbsent
	BucketFrozen // somebody is about to delete it
)

// Decide answers an event about a stream, h being its head or nil. When it
// returns true, rec is the one record that makes the answer true: the caller
// logs and applies it, and gives the answer when it is durable. Otherwise the
// answer rests on what has been decided before. rec's slices alias the event.
//
// The order of checks is that of api §3.
func Decide(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	*a = Answer{}
	*rec = record.Record{At: env.Now}
	if h != nil {
		a.Stream, a.Fixed = h.ID, h.Fixed
		a.Next, a.NextRecord, a.Closed = h.Next, h.NextRecord, h.Closed
		a.First, a.FirstRecord = h.First, h.FirstRecord
		a.Snapshot = h.snapshot()
		rec.Stream = h.ID
	}
	switch ev.Op {
	case OpCreate:
		return decideCreate(h, ev, env, rec, a)
	case OpAppend:
		return decideAppend(h, ev, env, rec, a)
	case OpDelete:
		return decideDelete(h, ev, env, rec, a)
	case OpPin:
		return decidePin(h, ev, rec, a)
	case OpSnapshot:
		return decideSnapshot(h, ev, env, rec, a)
	case OpTrim:
		return decideTrim(h, ev, env, rec, a)
	case OpDrop:
		return decideDrop(h, ev, env, rec, a)
	case OpAttrs:
		return decideAttrs(h, ev, env, rec, a)
	case OpExpire, OpTouch, OpUnpin:
		return decideUpkeep(h, ev, rec, a)
	}
	panic("core: event without an operation")
}

func (a *Answer) refuse(c Code) bool {
	a.Code = c
	return false
}

// reach is the beginning of every operation on a name: exists, not deleted, the
// incarnation that was asked for, headers in order.
func reach(h *Head, ev *Event, env *Env, a *Answer) bool {
	switch {
	case h == nil:
		a.Code = NotFound
	case h.Deleted:
		a.Code = Gone
	case ev.HasIncarnation && ev.Incarnation != Incarnation(env.History, h.ID):
		a.Code = IncarnationMismatch
		a.Inherited = inheritance(h.ID, &h.Past, h.Next, env.History, ev.Incarnation)
	case ev.HeaderFault || outsized(ev):
		a.Code = HeaderFault
	default:
		return true
	}
	return false
}

// outsized reports what a record could not hold. The front refuses it earlier, by
// limits of its own; this is for events that come another way, since a record
// that its decoder refuses would keep the log from being read again.
func outsized(ev *Event) bool {
	t := &ev.Producer
	switch {
	case t.Set && len(t.ID) == 0, len(t.ID) > record.MaxProducerID, len(ev.StreamSeq) > record.MaxStreamSeq:
		return true
	case len(ev.Body) > record.MaxBody, len(ev.Ends) > record.MaxMessages:
		return true
	case len(ev.Attrs) > record.MaxAttrs, len(ev.Attrs) == 0 && (ev.Op == OpAttrs && !ev.BodyFault || ev.Attrs != nil):
		return true
	case ev.Op == OpSnapshot:
		return len(ev.Snapshot.ContentType) > record.MaxContentType || ev.Snapshot.Size < 0
	case ev.Op != OpCreate:
		return false
	}
	f := ev.Fork
	return len(ev.Bucket) > record.MaxName || len(ev.Name) > record.MaxName ||
		len(ev.ContentType) > record.MaxContentType || len(ev.MediaType) > record.MaxContentType ||
		f != nil && (len(f.Bucket) > record.MaxName || len(f.Name) > record.MaxName)
}

func decideDelete(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	rec.Type = record.TypeDelete
	a.Code = Deleted
	return true
}

// decideUpkeep handles what the engine asks of itself; an event whose stream has
// gone meanwhile is no refusal, there is just nothing left to do.
func decideUpkeep(h *Head, ev *Event, rec *record.Record, a *Answer) bool {
	a.Code = Deleted
	if h == nil || h.ID != ev.Stream {
		return false
	}
	switch ev.Op {
	case OpUnpin:
		upTo, ok := h.pins[ev.ForkID]
		rec.Type, rec.ForkID, rec.ForkOffset = record.TypeUnpin, ev.ForkID, upTo
		return ok
	case OpTouch:
		rec.Type = record.TypeTouch
	default:
		rec.Type, rec.Expired = record.TypeDelete, true
	}
	return !h.Deleted
}

func decidePin(h *Head, ev *Event, rec *record.Record, a *Answer) bool {
	switch {
	case h == nil || h.ID != ev.Stream:
		return a.refuse(ForkSourceNotFound)
	case h.Deleted:
		return a.refuse(ForkSourceGone)
	case ev.ForkOffset > h.Next:
		return a.refuse(ForkOffsetInvalid)
	case ev.ForkOffset < h.First:
		return a.refuse(SnapshotTrimmed)
	}
	rec.Type, rec.ForkID, rec.ForkOffset = record.TypePin, ev.ForkID, ev.ForkOffset
	a.Code = Deleted
	return true
}

func decideAppend(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if !reach(h, ev, env, a) {
		return false
	}
	var p *record.ProducerState
	if ev.Producer.Set {
		if p = h.producers[string(ev.Producer.ID)]; p != nil {
			a.HasProducer, a.Epoch, a.Seq = true, p.Epoch, p.Seq
		}
		if h.fenced(&ev.Producer, p, env, a) {
			return a.refuse(HistoryChanged)
		}
		if p != nil && ev.Producer.Epoch < p.Epoch {
			return a.refuse(StaleEpoch)
		}
	}
	if h.Closed {
		return a.refuse(afterClosure(h, ev, p, a))
	}
	if ev.Producer.Set && !admitProducer(ev, p, a) {
		return false
	}
	if !h.meets(ev, env, a) {
		return false
	}
	if ev.HasBody && string(ev.MediaType) != h.MediaType {
		return a.refuse(ContentTypeMismatch)
	}
	if ev.HasSeq && h.HasSeq && string(ev.StreamSeq) <= h.Seq {
		a.LastSeq = h.Seq
		return a.refuse(StreamSeqRegression)
	}
	if ev.HasBody && ev.BodyFault {
		return a.refuse(BodyFault)
	}
	crowded := false
	if ev.Producer.Set && p == nil {
		if env.State > env.MaxState {
			return a.refuse(StateFull)
		}
		if crowded = len(h.producers) >= env.MaxProducers; crowded && !forgetIdle(h, env, rec) {
			return a.refuse(TooManyProducers)
		}
	}
	if env.DiskFull {
		return a.refuse(DiskFull)
	}
	if crowded {
		a.Code = NeedsRoom
		return true
	}
	rec.Type = record.TypeAppend
	if h.History < env.History {
		rec.History = env.History
	}
	fillWrite(h.Next, h.NextRecord, ev, rec, a)
	if p != nil && ev.Producer.Epoch > p.Epoch {
		a.HasReplaced, a.ReplacedEpoch, a.ReplacedSeq = true, p.Epoch, p.Seq
	}
	if a.Code = Appended; !ev.HasBody {
		a.Code, a.HasStart = Closed, false
	}
	return true
}

// afterClosure tells a repeat from an attempt to write to a closed stream.
func afterClosure(h *Head, ev *Event, p *record.ProducerState, a *Answer) Code {
	t := ev.Producer
	switch {
	case !t.Set && !ev.HasBody && ev.Close:
		return Closed
	case p == nil:
		return StreamClosed
	case h.HasClosedBy && string(t.ID) == h.ClosedBy && t.Epoch == h.ClosedEpoch && t.Seq == h.ClosedSeq:
		a.repeat(t.Seq, p)
		return Duplicate
	case t.Epoch == p.Epoch && t.Seq <= p.Seq:
		return ClosedDuplicate
	}
	return StreamClosed
}

// admitProducer holds the validation of PROTOCOL.md §5.2.1 for an open stream and
// an epoch that is not stale.
func admitProducer(ev *Event, p *record.ProducerState, a *Answer) bool {
	t := ev.Producer
	switch {
	case p == nil && t.Seq != 0:
		a.ExpectedSeq = 0
		a.Code = SequenceGap
	case p == nil:
		return true
	case t.Epoch > p.Epoch && t.Seq != 0:
		a.Code = EpochNeedsSeqZero
	case t.Epoch > p.Epoch:
		return true
	case t.Seq <= p.Seq:
		a.Code = Duplicate
		a.repeat(t.Seq, p)
	case t.Seq > p.Seq+1:
		a.ExpectedSeq = p.Seq + 1
		a.Code = SequenceGap
	default:
		return true
	}
	return false
}

// repeat gives the newest write of a producer its own receipt again. Of an older
// one only the end of the newest is still known.
func (a *Answer) repeat(seq uint64, p *record.ProducerState) {
	a.Next, a.NextRecord = p.End, p.EndRecord
	if seq == p.Seq && p.End > p.Start {
		a.Start, a.HasStart, a.StartRecord = p.Start, true, p.StartRecord
	}
}

// forgetIdle makes the record that forgets the producer which has been idle for
// the longest, if it has been so for long enough. The tuple that closed a stream is
// never forgotten: a closed stream takes no new producer.
func forgetIdle(h *Head, env *Env, rec *record.Record) bool {
	if env.ProducerIdle == 0 || env.Now-h.oldest < env.ProducerIdle {
		return false
	}
	id, at := h.longestIdle()
	if h.oldest = at; env.Now-at < env.ProducerIdle {
		return false
	}
	rec.Type = record.TypeForget
	rec.Producer.ID = []byte(id)
	return true
}

// longestIdle returns the producer whose newest write is the oldest; of several the
// first by id, so that every replica names the same.
func (h *Head) longestIdle() (id string, at base.Millis) {
	at = math.MaxInt64
	for k, p := range h.producers {
		if p.At < at || p.At == at && k < id {
			id, at = k, p.At
		}
	}
	return id, at
}

// fillWrite completes the record and the answer of a write that begins at off.
func fillWrite(off base.Offset, n uint64, ev *Event, rec *record.Record, a *Answer) {
	rec.Offset, rec.Close = off, ev.Close
	rec.Body, rec.Ends = ev.Body, ev.Ends
	rec.Producer, rec.Seq, rec.HasSeq = ev.Producer, ev.StreamSeq, ev.HasSeq
	a.Start, a.HasStart, a.StartRecord = off, true, n
	a.Next = off + base.Offset(len(ev.Body))
	a.NextRecord = n + uint64(len(ev.Ends))
	a.Closed = ev.Close
	if t := ev.Producer; t.Set {
		a.HasProducer, a.Epoch, a.Seq = true, t.Epoch, t.Seq
	}
}

func decideCreate(h *Head, ev *Event, env *Env, rec *record.Record, a *Answer) bool {
	if h != nil {
		if h.Deleted {
			return a.refuse(NameHeldByForks)
		}
		if !reach(h, ev, env, a) {
			return false
		}
		if !h.meets(ev, env, a) {
			return false
		}
		if !h.matches(ev) {
			return a.refuse(ConfigMismatch)
		}
		return a.refuse(Exists)
	}
	switch {
	case env.Bucket == BucketAbsent && ev.Bucketed:
		return a.refuse(BucketNotFound)
	case ev.HasIncarnation:
		return a.refuse(NotFound)
	case ev.HeaderFault || outsized(ev):
		return a.refuse(HeaderFault)
	case len(ev.IfMatch) > 0:
		return a.refuse(PreconditionFailed) // there is nothing to match
	case ev.HasRecordMatch && ev.RecordMatch != 0:
		return a.refuse(RecordMismatch)
	case env.Bucket != BucketOpen: // absent, it was deleted since it was made for this stream
		return a.refuse(BucketClosing)
	case ev.Fork != nil && ev.Fork.Resolved == nil:
		return a.refuse(NeedsSource)
	case ev.Producer.Set && ev.Producer.Seq != 0:
		return a.refuse(SequenceGap) // nobody is known yet
	case ev.BodyFault:
		return a.refuse(BodyFault)
	case env.State > env.MaxState:
		return a.refuse(StateFull)
	case env.DiskFull:
		return a.refuse(DiskFull)
	}
	rec.Type = record.TypeCreate
	if env.History > 1 {
		rec.History = env.History
	}
	if rec.Stream = ev.Stream; rec.Stream == 0 {
		rec.Stream = env.NewID
	}
	rec.Config = newConfig(ev, env.Now)
	off, n := base.Offset(0), uint64(0)
	if f := rec.Config.Fork; f != nil {
		off, n = f.Offset, f.Record
	}
	fillWrite(off, n, ev, rec, a)
	rec.Attrs = ev.Attrs
	if f := ev.Fork; f != nil {
		rec.Snapshot = f.Snapshot
		a.First, a.FirstRecord, a.Snapshot = f.Resolved.First, f.Resolved.FirstRecord, f.Snapshot
	}
	a.Code, a.Stream = Created, rec.Stream
	a.Fixed = &Fixed{ID: rec.Stream, Config: *rec.Config}
	return true
}

func newConfig(ev *Event, now base.Millis) *record.Config {
	c := &record.Config{
		Bucket: ev.Bucket, Name: ev.Name, ContentType: ev.ContentType, MediaType: string(ev.MediaType), JSON: ev.JSON,
		TTL: ev.TTL, ExpiresAt: ev.ExpiresAt, Created: now,
	}
	if ev.Fork != nil {
		c.Fork = ev.Fork.Resolved
		if ev.Fork.InheritLife {
			c.TTL, c.ExpiresAt = c.Fork.TTL, c.Fork.ExpiresAt
		}
	}
	return c
}

// matches reports whether a PUT asks for the stream that is there (PROTOCOL.md
// §5.1, «Idempotent fork creation»). It looks at what the request said: a header
// that a fork's request leaves out means what the source had to pass on then.
func (h *Head) matches(ev *Event) bool {
	ttl, expires := ev.TTL, ev.ExpiresAt
	f, g := ev.Fork, h.Fork
	if (f == nil) != (g == nil) {
		return false
	}
	if f != nil {
		if f.InheritLife {
			ttl, expires = g.TTL, g.ExpiresAt
		}
		if f.Bucket != g.Bucket || f.Name != g.Name || f.Sub != g.Sub || !sameStart(f, g) {
			return false
		}
	}
	inherit := f != nil && f.InheritType
	return ev.Close == h.Closed && ttl == h.TTL && expires == h.ExpiresAt && (inherit || string(ev.MediaType) == h.MediaType)
}

// sameStart compares where two requests wanted a fork to begin. The first one's
// silence meant the tail that it found, and may be spelled out by its repeat.
func sameStart(f *ForkSpec, g *record.Fork) bool {
	if g.HasReqOffset {
		return f.HasOffset && f.Offset == g.ReqOffset
	}
	return !f.HasOffset || f.Offset == g.Offset
}
