package server

import (
	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// This file is where the words of the protocol and those of the state machine
// meet: an Operation becomes an Event, an Answer a WriteResult.

// clearEvent forgets the event and the answer of the last request. An operation
// that made a fork is not used again, since the engine keeps things in it.
func (c *call) clearEvent() {
	if c.eop.Event.Fork != nil {
		c.eop = engine.Op{User: c}
		return
	}
	c.eop.Event, c.eop.Answer = core.Event{}, core.Answer{}
	c.eop.Stream, c.eop.Done = nil, nil
}

// appendEvent fills in all of an append but its body.
func (c *call) appendEvent() {
	op := &c.op
	c.eop.Stream = c.stream
	c.eop.Event = core.Event{
		Op:             core.OpAppend,
		Incarnation:    op.Incarnation,
		HasIncarnation: op.HasIncarnation,
		HeaderFault:    op.Fault != nil,
		MediaType:      c.mediaType(op.ContentType),
		Close:          op.Closed,
		StreamSeq:      op.StreamSeq,
		HasSeq:         op.HasStreamSeq,
	}
	c.conditions()
	p := &c.eop.Event.Producer
	p.ID, p.Epoch, p.Seq, p.Set = op.Producer.ID, op.Producer.Epoch, op.Producer.Seq, op.Producer.Set
}

// never is an incarnation that no stream has.
const never = 1 << 63

// conditions fills in If-Match, If-None-Match and Stream-Record-Match.
func (c *call) conditions() {
	op, ev := &c.op, &c.eop.Event
	ev.RecordMatch, ev.HasRecordMatch = op.RecordMatch, op.HasRecordMatch
	if op.HasIfMatch {
		ev.IfMatch = matchesOf(op.IfMatch)
		if len(ev.IfMatch) == 0 { // none of the tags can match, which is not the same as no tags
			ev.IfMatch = []core.Match{{Incarnation: never}}
		}
	}
	if len(op.IfNoneMatch) > 0 {
		ev.IfNoneMatch = matchesOf(op.AppendNoneMatch(nil))
	}
}

// matchesOf translates tags.
func matchesOf(tags []protocol.Match) []core.Match {
	all := make([]core.Match, 0, len(tags))
	for _, m := range tags {
		all = append(all, core.Match{Any: m.Any, Incarnation: m.Incarnation, Next: base.Offset(m.Next), Closed: m.Closed})
	}
	return all
}

// createEvent fills in all of a create but its body.
func (c *call) createEvent() {
	op := &c.op
	ev := &c.eop.Event
	*ev = core.Event{
		Op:             core.OpCreate,
		Bucket:         string(op.Bucket),
		Name:           string(op.Stream),
		Incarnation:    op.Incarnation,
		HasIncarnation: op.HasIncarnation,
		HeaderFault:    op.Fault != nil,
		Close:          op.Closed,
		TTL:            -1,
		Bucketed:       op.Surface == protocol.SurfaceDS,
		Loose:          op.Surface == protocol.SurfaceV1 && !protocol.IsBucketID(op.Bucket),
	}
	if len(op.Attrs) > 0 {
		ev.Attrs = op.Attrs
	}
	c.conditions()
	if op.HasTTL {
		ev.TTL = op.TTL
	}
	if op.HasExpiresAt {
		ev.ExpiresAt = max(op.ExpiresAt, 1) // 0 would be never
	}
	if f := &op.Fork; f.Set {
		ev.Fork = &core.ForkSpec{
			Bucket: string(f.Bucket), Name: string(f.Stream),
			Offset: base.Offset(f.Offset), HasOffset: f.HasOffset, Sub: f.Sub,
			InheritType: !op.HasContentType,
			InheritLife: !op.HasTTL && !op.HasExpiresAt,
		}
	}
	c.createType(ev)
}

// createType settles the content type of a stream to be made. A fork without one
// takes its source's.
func (c *call) createType(ev *core.Event) {
	switch op := &c.op; {
	case op.HasContentType:
		ev.ContentType, _ = protocol.NormalizeContentType(op.ContentType)
	case ev.Fork == nil:
		ev.ContentType = protocol.DefaultContentType
	}
	if ev.ContentType != "" {
		ev.MediaType = c.mediaType([]byte(ev.ContentType))
		ev.JSON = protocol.IsJSON(ev.ContentType)
	}
}

// deleteEvent fills in a delete.
func (c *call) deleteEvent() {
	c.eop.Stream = c.stream
	c.eop.Event = core.Event{
		Op:             core.OpDelete,
		Incarnation:    c.op.Incarnation,
		HasIncarnation: c.op.HasIncarnation,
		HeaderFault:    c.op.Fault != nil,
	}
}

// await has the engine record a use (expire false) or the end of what c looks at,
// waits for it, and returns why that was not possible, or 0. Not on a poller.
func (c *call) await(expire bool) protocol.Outcome {
	kind := core.OpTouch
	if expire {
		kind = core.OpExpire
	}
	op := engine.Op{Event: core.Event{Op: kind, Stream: c.view.ID}, Stream: c.stream}
	switch err := c.engine.Load().Do(&op); {
	case err != nil:
		return outcomeOfError(err)
	case !op.Answer.Code.OK(): // the log has no room, or the engine no time left
		return outcomeOf(&op.Event, op.Answer.Code)
	}
	return 0
}

// outcomes says in the protocol's words how an operation ended.
var outcomes = [...]protocol.Outcome{
	core.Created:             protocol.Created,
	core.Exists:              protocol.Exists,
	core.Appended:            protocol.Appended,
	core.Closed:              protocol.Closed,
	core.Duplicate:           protocol.Duplicate,
	core.Deleted:             protocol.Deleted,
	core.NotFound:            protocol.NotFound,
	core.Gone:                protocol.Gone,
	core.IncarnationMismatch: protocol.IncarnationMismatch,
	core.HeaderFault:         protocol.HeaderFault,
	core.HistoryChanged:      protocol.HistoryChanged,
	core.StaleEpoch:          protocol.StaleEpoch,
	core.StreamClosed:        protocol.StreamClosed,
	core.ClosedDuplicate:     protocol.ClosedDuplicate,
	core.EpochNeedsSeqZero:   protocol.EpochNeedsSeqZero,
	core.SequenceGap:         protocol.SequenceGap,
	core.ContentTypeMismatch: protocol.ContentTypeMismatch,
	core.StreamSeqRegression: protocol.StreamSeqRegression,
	core.BodyFault:           protocol.BodyFault,
	core.ConfigMismatch:      protocol.ConfigMismatch,
	core.NameHeldByForks:     protocol.NameHeldByForks,
	core.ForkSourceNotFound:  protocol.ForkSourceNotFound,
	core.ForkSourceGone:      protocol.ForkSourceGone,
	core.ForkOffsetInvalid:   protocol.ForkOffsetInvalid,
	core.ForkTypeMismatch:    protocol.ForkTypeMismatch,
	core.TooManyProducers:    protocol.TooManyProducers,
	core.StateFull:           protocol.StateFull,
	core.DiskFull:            protocol.DiskFull,
	core.PreconditionFailed:  protocol.PreconditionFailed,
	core.RecordMismatch:      protocol.RecordMismatch,
	core.BucketNotFound:      protocol.BucketNotFound,
	core.BucketClosing:       protocol.BucketClosing,
	core.BucketNotEmpty:      protocol.BucketNotEmpty,
	core.SnapshotTrimmed:     protocol.SnapshotBelowEarliest,
	core.SnapshotBeyondTail:  protocol.SnapshotBeyondTail,
	core.SnapshotStale:       protocol.SnapshotStale,
	core.SnapshotConflict:    protocol.SnapshotConflict,
	core.SnapshotIsCurrent:   protocol.SnapshotIsCurrent,
	core.SnapshotNotFound:    protocol.SnapshotNotFound,
	core.RetentionBehind:     protocol.RetentionBehind,
	core.RetentionAhead:      protocol.RetentionAboveSnapshot,
	core.Overloaded:          protocol.Overloaded,
	core.ShuttingDown:        protocol.Draining,
	core.SourceDamaged:       protocol.RangeDamaged,
	core.SourceUnavailable:   protocol.ColdUnavailable,
}

// outcomeOf translates how ev ended. A code that is no answer is Unavailable.
func outcomeOf(ev *core.Event, code core.Code) protocol.Outcome {
	switch {
	case ev.Op == core.OpAppend || int(code) >= len(outcomes):
	case ev.Op == core.OpCreate && ev.Name == "":
		switch code {
		case core.Created:
			return protocol.BucketCreated
		case core.Exists:
			return protocol.BucketExists
		}
	case ev.Op == core.OpCreate && code == core.SnapshotTrimmed:
		return protocol.OffsetTrimmed // of the source
	case ev.Op == core.OpSnapshot:
		switch code {
		case core.Created, core.Exists:
			return protocol.SnapshotPublished
		case core.BodyFault:
			return protocol.SnapshotNotBoundary
		}
	case ev.Op == core.OpTrim:
		switch code {
		case core.Appended, core.Exists:
			return protocol.RetentionMoved
		case core.BodyFault:
			return protocol.RetentionNotBoundary
		}
	case ev.Op == core.OpDrop && code == core.Deleted:
		return protocol.SnapshotDropped
	case ev.Op == core.OpAttrs && code == core.Appended:
		return protocol.AttrsReplaced
	}
	if int(code) < len(outcomes) && outcomes[code] != 0 {
		return outcomes[code]
	}
	return protocol.Unavailable
}

// answered translates the answer of c.eop into c.res.
func (c *call) answered() { c.translate(&c.res, &c.eop) }

// translate says in the protocol's words what became of o.
func (c *call) translate(r *protocol.WriteResult, o *engine.Op) {
	a := &o.Answer
	*r = protocol.WriteResult{
		Outcome:       outcomeOf(&o.Event, a.Code),
		Next:          uint64(a.Next),
		Tail:          uint64(a.Next),
		Closed:        a.Closed,
		HasStart:      a.HasStart,
		Start:         uint64(a.Start),
		Earliest:      uint64(a.First),
		HasProducer:   a.HasProducer,
		ProducerEpoch: a.Epoch,
		ProducerSeq:   a.Seq,
		ExpectedSeq:   a.ExpectedSeq,
		HasReplaced:   a.HasReplaced,
		ReplacedEpoch: a.ReplacedEpoch,
		ReplacedSeq:   a.ReplacedSeq,
		LastSeq:       a.LastSeq,
		Inherited:     inheritanceOf(a.Inherited),
	}
	if ev := &o.Event; a.Stream != 0 && (ev.Op != core.OpCreate || ev.Name != "") { // a bucket has no such headers
		r.Incarnation = c.engine.Load().Incarnation(a.Stream)
		r.Records = protocol.Records{
			Set: true, First: a.FirstRecord, Next: a.NextRecord, HasStart: a.HasStart, Start: a.StartRecord,
		}
	}
	if f := a.Fixed; f != nil {
		r.ContentType = f.ContentType
	}
	if r.Outcome == protocol.ColdUnavailable {
		c.metrics.unavailable.Add(1)
	}
	switch {
	case a.Code == core.Duplicate:
		c.tailOfDuplicate(r, a.Stream)
	case a.Code == core.Created && a.Fixed != nil && a.Fixed.Fork != nil:
		r.Records.First = a.Fixed.Fork.FirstRecord
	case a.Code == core.Deleted:
		r.Records = protocol.Records{}
	}
	if a.Snapshot != nil {
		r.Snapshot = snapshotOf(a.Snapshot)
	}
}

// tailOfDuplicate looks up where the stream's tail is now: the receipt of a repeat
// tells only where that write ended.
func (c *call) tailOfDuplicate(r *protocol.WriteResult, id base.StreamID) {
	if v := c.stream.View(); v != nil && v.ID == id {
		r.Tail = uint64(v.Next)
		r.Closed = r.Closed || v.Closed
	}
}

// inheritanceOf says in the protocol's words what a stream has from before a restore.
func inheritanceOf(i core.Inheritance) protocol.Inheritance {
	return protocol.Inheritance{Incarnation: i.Incarnation, UpTo: uint64(i.UpTo)}
}

// snapshotOf describes a snapshot in the protocol's words; s may be nil.
func snapshotOf(s *core.Snapshot) protocol.Snapshot {
	if s == nil {
		return protocol.Snapshot{}
	}
	return protocol.Snapshot{
		Set: true, Offset: uint64(s.Offset), Digest: s.Digest, Size: s.Size, ContentType: s.ContentType,
	}
}
