package server

import (
	"math"

	"github.com/snakream/snakream/protocol"
	"github.com/snakream/snakream/server/http1"
)

// handler gives the transport's requests to the operations. Everything here runs
// on a poller unless it says otherwise, and so does not block.
type handler struct{ *Server }

var _ Handler = handler{}

// Serve routes one complete request.
func (h handler) Serve(x *Exchange) {
	c := h.take(x)
	length := int64(len(x.Body()))
	if x.Streamed() {
		length = bodyLength(x)
	}
	if p := c.parse(length); p != nil {
		c.problem(p)
		return
	}
	if c.tooLarge(length) {
		return
	}
	operations[c.op.Kind](c)
}

// operations says who answers each kind of operation.
var operations = [...]func(*call){
	protocol.KindCreate:  (*call).create,
	protocol.KindAppend:  (*call).append,
	protocol.KindRead:    (*call).read,
	protocol.KindHead:    (*call).head,
	protocol.KindDelete:  (*call).delete,
	protocol.KindOptions: (*call).preflight,

	protocol.KindBucketCreate: (*call).createBucket,
	protocol.KindBucketGet:    (*call).describeBucket,
	protocol.KindBucketDelete: (*call).deleteBucket,
	protocol.KindList:         (*call).list,

	protocol.KindSnapshotPut:    (*call).publish,
	protocol.KindSnapshotLatest: (*call).latestSnapshot,
	protocol.KindSnapshotGet:    (*call).snapshot,
	protocol.KindSnapshotDelete: (*call).dropSnapshot,
	protocol.KindRetention:      (*call).retain,
	protocol.KindBootstrap:      (*call).bootstrap,
	protocol.KindAttrsGet:       (*call).attrs,
	protocol.KindAttrsPut:       (*call).replaceAttrs,
	protocol.KindAppendBatch:    (*call).appendBatch,

	protocol.KindDocument: (*call).document,
}

// preflight answers an OPTIONS.
func (c *call) preflight() {
	c.reply(204, c.render.Options(c.out[:0], &c.op), nil)
}

// Head decides, before a body is asked for, what the headers alone decide. What
// producers, closing tuples and Stream-Seq decide is left to the shard.
func (h handler) Head(x *Exchange) (limit int64, ok bool) {
	c := h.take(x)
	length := bodyLength(x)
	if p := c.parse(length); p != nil {
		c.problem(p)
		return 0, false
	}
	if c.tooLarge(length) {
		return 0, false
	}
	if o := c.foresee(length); o != 0 {
		c.refuse(o)
		return 0, false
	}
	limit = h.cfg.MaxBodyBytes
	if c.op.Kind == protocol.KindSnapshotPut {
		x.StreamBody()
		limit = math.MaxInt64 // publish counts for itself
	}
	c.release()
	return limit, true
}

// tooLarge refuses a body that is known to be too large.
func (c *call) tooLarge(length int64) bool {
	limit, o := c.cfg.MaxBodyBytes, protocol.BodyTooLarge
	switch c.op.Kind {
	case protocol.KindSnapshotPut:
		limit, o = c.cfg.MaxSnapshotBytes, protocol.SnapshotTooLarge
	case protocol.KindAttrsPut:
		limit = min(limit, protocol.MaxAttrs)
	}
	if length <= limit {
		return false
	}
	c.res.Limit = limit
	c.refuse(o)
	return true
}

// bodyLength returns the length of the request's body as its head tells it, -1
// when it does not.
func bodyLength(x *Exchange) int64 {
	switch r := x.Request(); {
	case r.Chunked:
		return -1
	case r.ContentLength < 0:
		return 0
	default:
		return r.ContentLength
	}
}

// foresee returns the refusal that a PUT or POST with a body of that length, -1 for
// unknown, would get whatever the body is; 0 when that is not certain. It looks
// only at what is durable, so that a refusal is final.
func (c *call) foresee(length int64) protocol.Outcome {
	switch c.op.Kind {
	case protocol.KindAppend:
		return c.foreseeAppend(length)
	case protocol.KindCreate:
		switch o := c.find(); {
		case o == protocol.BucketNotFound:
			return o
		case o == protocol.NotFound && c.op.Fault != nil && !c.op.HasIncarnation:
			return protocol.HeaderFault
		}
	case protocol.KindSnapshotPut:
		return c.foreseeSnapshot()
	case protocol.KindAppendBatch, protocol.KindAttrsPut:
		return c.foreseeReach()
	}
	return 0
}

// foreseeReach is the beginning of what foresee finds for every write to a stream.
func (c *call) foreseeReach() protocol.Outcome {
	if o := c.find(); o != 0 {
		return o
	}
	if !c.stream.Alive(c.view) {
		return 0
	}
	return c.checkHeaders()
}

func (c *call) foreseeAppend(length int64) protocol.Outcome {
	if o := c.foreseeReach(); o != 0 || !c.stream.Alive(c.view) {
		return o
	}
	switch op, v := &c.op, c.view; {
	case op.Producer.Set || length <= 0:
		return 0
	case v.Closed:
		return protocol.StreamClosed
	case !op.Match(c.res.Incarnation, c.res.Tail, false):
		return protocol.PreconditionFailed
	case op.HasRecordMatch && op.RecordMatch != v.NextRecord:
		return protocol.RecordMismatch
	case !protocol.SameType(op.ContentType, v.ContentType):
		return protocol.ContentTypeMismatch
	}
	return 0
}

// Malformed renders what the transport itself refuses: malformed HTTP, exceeded
// limits, exhausted body memory.
func (h handler) Malformed(status int, code, detail string) (fields, body []byte) {
	h.metrics.count(routeOther, status)
	if code == http1.CodeBodyTooLarge {
		p := protocol.NewProblem(code, detail)
		p.Limit = h.cfg.MaxBodyBytes
		_, fields, body = h.render.Problem(nil, p)
		return fields, body
	}
	return h.render.Malformed(nil, status, code, detail)
}
