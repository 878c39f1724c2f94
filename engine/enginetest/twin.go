package enginetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// incarnation is a stream from its creation to its end, as the twin keeps it: a
// slice of bytes, and where its messages end.
type incarnation struct {
	id        base.StreamID // 0 until an answer has told
	media     string
	ttl       int64
	expiresAt base.Millis
	parent    *incarnation   // whose bytes a fork began with
	fork      *core.ForkSpec // as it was asked for
	forkAt    int
	data      []byte
	ends      []int
}

func (c *incarnation) expires() bool { return c.ttl >= 0 || c.expiresAt != 0 }

// deadline returns when the stream expires if it was last used at the given time.
func (c *incarnation) deadline(used base.Millis) base.Millis {
	if c.ttl >= 0 {
		return used + base.Millis(c.ttl)*1000
	}
	return c.expiresAt
}

// granule is how much longer than its TTL a stream may live after a restart.
func (c *incarnation) granule() base.Millis {
	if c.ttl < 0 {
		return 0
	}
	return min(max(base.Millis(c.ttl)*1000/8, 1000), 3600_000)
}

// message returns the ordinal of the message that off lies in, and whether one
// begins there, among the first n messages.
func (c *incarnation) message(off, n int) (record int, exact bool) {
	i, found := slices.BinarySearch(c.ends[:n], off)
	if found {
		return i + 1, true
	}
	return i, off == 0
}

// state is what one name holds after one operation. Immutable but for deadline.
type state struct {
	inc           *incarnation // nil: the name is free
	next, records int
	past
	extra
	closed    bool
	ended     bool // deleted or expired; visible only while forks need it
	seq       string
	hasSeq    bool
	producers map[string]producer
	closer    *record.Producer
	deadline  base.Millis // exact after a use; 0: never
	born      base.Millis // what it was at first
	slack     base.Millis // how much later it may be, after a restart
}

// past is what restores have made of a state: the history that the directory is at,
// the one in which the stream was written last, and the one before that, 0 for none,
// with what the stream held when it ended.
type past struct {
	era, history, previous uint16
	inherited              int
}

// shown reports whether a view has the same past.
func (p *past) shown(v *engine.View) bool {
	return v.History == p.history && v.Previous == p.previous && int(v.Inherited) == p.inherited
}

// inherits reports whether a restore may have lost some of the stream.
func (s *state) inherits() bool { return s.history < s.era || s.previous != 0 }

// inheritance is what a mismatch tells of the time before the restore.
func (s *state) inheritance() core.Inheritance {
	first := s.history // under which the stream is known to have been
	if s.previous != 0 {
		first = s.previous
	}
	was := s.era - 1
	switch {
	case was < first:
		return core.Inheritance{}
	case was < s.history:
		return core.Inheritance{Incarnation: core.Incarnation(was, s.inc.id), UpTo: base.Offset(s.inherited)}
	}
	return core.Inheritance{Incarnation: core.Incarnation(was, s.inc.id), UpTo: base.Offset(s.next)}
}

type producer struct {
	history                  uint16
	epoch, seq               uint64
	start, end, first, after int
}

func (s *state) String() string {
	if s.inc == nil {
		return "nothing"
	}
	return fmt.Sprintf("stream %d of %s, %d bytes, %d messages, past %+v, %v, closed %t, ended %t, ttl %d, expires %d, deadline %d from %d, + %d",
		s.inc.id, s.inc.media, s.next, s.records, s.past, s.extra, s.closed, s.ended, s.inc.ttl, s.inc.expiresAt, s.deadline, s.born, s.slack)
}

// usable reports whether an operation would find the stream.
func (s *state) usable() bool { return s.inc != nil && !s.ended }

// used moves the deadline because the stream was used.
func (s *state) used(now base.Millis) {
	if s.usable() && s.inc.ttl >= 0 {
		s.renew(now)
	}
}

// maybe notes that the stream is about to be used, as far as anybody knows.
func (s *state) maybe(now base.Millis) {
	if s.usable() && s.inc.ttl >= 0 {
		s.slack = max(s.slack, s.inc.deadline(now)-s.deadline)
	}
}

// renew moves the deadline, which after a restart may have been later already.
func (s *state) renew(now base.Millis) {
	latest := s.deadline + s.slack
	s.deadline = s.inc.deadline(now)
	s.slack = max(latest-s.deadline, 0)
}

// answer fills in what every answer about an existing stream says.
func (s *state) answer(code core.Code) core.Answer {
	a := core.Answer{
		Code: code, Stream: s.inc.id, Next: base.Offset(s.next), NextRecord: uint64(s.records), Closed: s.closed,
	}
	s.tell(&a)
	return a
}

// reach is what comes first in every operation: exists, incarnation, headers.
func (s *state) reach(ev *core.Event, held bool) (core.Answer, bool) {
	switch {
	case s.inc == nil, s.ended && !held:
		return core.Answer{Code: core.NotFound}, false
	case s.ended:
		return s.answer(core.Gone), false
	case ev.HasIncarnation && ev.Incarnation != core.Incarnation(s.era, s.inc.id):
		a := s.answer(core.IncarnationMismatch)
		a.Inherited = s.inheritance()
		return a, false
	case ev.HeaderFault:
		return s.answer(core.HeaderFault), false
	}
	return core.Answer{}, true
}

// append answers an append, or a close, as api §3 has it, and returns the state
// after it, the same one if nothing was stored.
func (s *state) append(ev *core.Event, now base.Millis) (core.Answer, *state) {
	t := ev.Producer
	p, known := s.producers[string(t.ID)]
	known = known && t.Set
	a := s.answer(0)
	if known {
		a.HasProducer, a.Epoch, a.Seq = true, p.epoch, p.seq
	}
	refuse := func(c core.Code) (core.Answer, *state) { a.Code = c; return a, s }
	repeat := func() {
		a.Next, a.NextRecord = base.Offset(p.end), uint64(p.after)
		if t.Seq == p.seq && p.end > p.start {
			a.HasStart, a.Start, a.StartRecord = true, base.Offset(p.start), uint64(p.first)
		}
	}
	switch {
	case t.Set && !known && t.Seq != 0 && s.inherits():
		a.Epoch = t.Epoch
		return refuse(core.HistoryChanged)
	case known && p.history < s.era && (t.Epoch <= p.epoch || t.Seq != 0):
		a.Epoch = max(t.Epoch, p.epoch)
		a.HasReplaced, a.ReplacedEpoch, a.ReplacedSeq = true, p.epoch, p.seq
		return refuse(core.HistoryChanged)
	case known && t.Epoch < p.epoch:
		return refuse(core.StaleEpoch)
	case s.closed && !t.Set && !ev.HasBody && ev.Close:
		return refuse(core.Closed)
	case s.closed && known && s.closer != nil && string(t.ID) == string(s.closer.ID) && t.Epoch == s.closer.Epoch && t.Seq == s.closer.Seq:
		repeat()
		return refuse(core.Duplicate)
	case s.closed && known && t.Epoch == p.epoch && t.Seq <= p.seq:
		return refuse(core.ClosedDuplicate)
	case s.closed:
		return refuse(core.StreamClosed)
	case t.Set && !known && t.Seq != 0:
		return refuse(core.SequenceGap)
	case known && t.Epoch > p.epoch && t.Seq != 0:
		return refuse(core.EpochNeedsSeqZero)
	case known && t.Epoch == p.epoch && t.Seq <= p.seq:
		repeat()
		return refuse(core.Duplicate)
	case known && t.Epoch == p.epoch && t.Seq > p.seq+1:
		a.ExpectedSeq = p.seq + 1
		return refuse(core.SequenceGap)
	case !s.meets(ev):
		return refuse(core.PreconditionFailed)
	case ev.HasRecordMatch && ev.RecordMatch != uint64(s.records):
		return refuse(core.RecordMismatch)
	case ev.HasBody && string(ev.MediaType) != s.inc.media:
		return refuse(core.ContentTypeMismatch)
	case ev.HasSeq && s.hasSeq && string(ev.StreamSeq) <= s.seq:
		a.LastSeq = s.seq
		return refuse(core.StreamSeqRegression)
	case ev.HasBody && ev.BodyFault:
		return refuse(core.BodyFault)
	}
	if known && t.Epoch > p.epoch {
		a.HasReplaced, a.ReplacedEpoch, a.ReplacedSeq = true, p.epoch, p.seq
	}
	next := s.write(ev, now)
	a = stored(a, s, next, ev)
	if a.Code = core.Appended; !ev.HasBody {
		a.Code, a.HasStart = core.Closed, false
	}
	return a, next
}

// stored completes the answer to a write that went from s to next.
func stored(a core.Answer, s, next *state, ev *core.Event) core.Answer {
	a.Start, a.HasStart, a.StartRecord = base.Offset(s.next), true, uint64(s.records)
	a.Next, a.NextRecord, a.Closed = base.Offset(next.next), uint64(next.records), next.closed
	if t := ev.Producer; t.Set {
		a.HasProducer, a.Epoch, a.Seq = true, t.Epoch, t.Seq
	}
	return a
}

// write returns the state after a write that nothing speaks against.
func (s *state) write(ev *core.Event, now base.Millis) *state {
	n := *s
	n.next, n.records = s.next+len(ev.Body), s.records+len(ev.Ends)
	if n.history < n.era {
		n.history, n.previous, n.inherited = n.era, s.history, s.next
	}
	c := s.inc
	c.data = append(c.data[:s.next], ev.Body...)
	c.ends = c.ends[:s.records]
	for _, x := range ev.Ends {
		c.ends = append(c.ends, s.next+int(x))
	}
	n.renew(now)
	n.born = n.deadline
	if ev.HasSeq {
		n.seq, n.hasSeq = string(ev.StreamSeq), true
	}
	t := ev.Producer
	if t.Set {
		n.producers = maps.Clone(s.producers)
		if n.producers == nil {
			n.producers = map[string]producer{}
		}
		n.producers[string(t.ID)] = producer{history: n.history, epoch: t.Epoch, seq: t.Seq, start: s.next, end: n.next, first: s.records, after: n.records}
	}
	if ev.Close {
		if n.closed = true; t.Set {
			n.closer = &t
		}
	}
	return &n
}

// end returns the state after a deletion or an expiry.
func (s *state) end() *state {
	n := *s
	n.ended, n.producers, n.extra = true, nil, extra{first: s.first, firstRecord: s.firstRecord}
	return &n
}

// matches reports whether a create asks for the stream that is there.
func (s *state) matches(ev *core.Event) bool {
	c, f := s.inc, ev.Fork
	if (f == nil) != (c.fork == nil) {
		return false
	}
	ttl, expires := ev.TTL, ev.ExpiresAt
	if f != nil {
		g := c.fork
		if f.InheritLife {
			ttl, expires = c.parent.ttl, c.parent.expiresAt
		}
		if f.Bucket != g.Bucket || f.Name != g.Name || f.Sub != g.Sub {
			return false
		}
		if g.HasOffset && (!f.HasOffset || f.Offset != g.Offset) || !g.HasOffset && f.HasOffset && int(f.Offset) != c.forkAt {
			return false
		}
	}
	inherit := f != nil && f.InheritType
	return ev.Close == s.closed && ttl == c.ttl && expires == c.expiresAt && (inherit || string(ev.MediaType) == c.media)
}

// create returns the first state of a new stream, in a directory of a history.
func create(ev *core.Event, era uint16, now base.Millis) *state {
	c := &incarnation{media: string(ev.MediaType), ttl: ev.TTL, expiresAt: ev.ExpiresAt}
	return (&state{inc: c, past: past{era: era, history: era}, extra: extra{attrs: string(ev.Attrs)}}).write(ev, now)
}

// resolve says whether a fork can be made of the source, and returns its first state.
func (s *state) resolve(ev *core.Event, held bool, now base.Millis) (core.Code, *state) {
	f := ev.Fork
	switch {
	case s.inc == nil, s.ended && !held:
		return core.ForkSourceNotFound, nil
	case s.ended:
		return core.ForkSourceGone, nil
	case !f.InheritType && string(ev.MediaType) != s.inc.media:
		return core.ForkTypeMismatch, nil
	}
	at := s.next
	if f.HasOffset {
		at = int(f.Offset)
	}
	switch {
	case at > s.next:
		return core.ForkOffsetInvalid, nil
	case at < s.first:
		return core.SnapshotTrimmed, nil
	}
	json := s.inc.media == jsonType
	m, exact := s.inc.message(at, s.records)
	switch {
	case json && !exact:
		return core.ForkOffsetInvalid, nil
	case f.Sub == 0:
	case json:
		if f.Sub > uint64(s.records-m) {
			return core.ForkOffsetInvalid, nil
		}
		at = s.inc.ends[m+int(f.Sub)-1]
	default:
		if at == s.next || f.Sub > uint64(s.inc.ends[m]-at) {
			return core.ForkOffsetInvalid, nil
		}
		at += int(f.Sub)
	}
	spec := *f
	c := &incarnation{media: s.inc.media, ttl: ev.TTL, expiresAt: ev.ExpiresAt, parent: s.inc, fork: &spec, forkAt: at}
	if f.InheritLife {
		c.ttl, c.expiresAt = s.inc.ttl, s.inc.expiresAt
	}
	m, exact = s.inc.message(at, s.records)
	c.data, c.ends = slices.Clone(s.inc.data[:at]), slices.Clone(s.inc.ends[:m])
	if !exact {
		c.ends = append(c.ends, at) // the message that the fork cuts ends there
	}
	first := &state{inc: c, next: at, records: len(c.ends), past: past{era: s.era, history: s.era}}
	if !first.inherit(s, at) {
		return core.SnapshotTrimmed, nil
	}
	first.attrs = string(ev.Attrs)
	return core.Created, first.write(ev, now)
}
