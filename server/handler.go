package server

import (
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
	if p := c.parse(int64(len(x.Body()))); p != nil {
		c.problem(p)
		return
	}
	switch c.op.Kind {
	case protocol.KindAppend:
		c.append()
	case protocol.KindRead:
		c.read()
	case protocol.KindHead:
		c.head()
	case protocol.KindCreate:
		c.create()
	case protocol.KindDelete:
		c.delete()
	case protocol.KindOptions:
		c.reply(204, h.render.Options(c.out[:0], &c.op), nil)
	}
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
	if length > h.cfg.MaxBodyBytes {
		c.res.Limit = h.cfg.MaxBodyBytes
		c.refuse(protocol.BodyTooLarge)
		return 0, false
	}
	if o := c.foresee(length); o != 0 {
		c.refuse(o)
		return 0, false
	}
	c.release()
	return h.cfg.MaxBodyBytes, true
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
		if c.find() == protocol.NotFound && c.op.Fault != nil && !c.op.HasIncarnation {
			return protocol.HeaderFault
		}
	}
	return 0
}

func (c *call) foreseeAppend(length int64) protocol.Outcome {
	if o := c.find(); o != 0 {
		return o
	}
	if !c.stream.Alive(c.view) {
		return 0
	}
	switch op, v := &c.op, c.view; {
	case op.HasIncarnation && op.Incarnation != c.res.Incarnation:
		return protocol.IncarnationMismatch
	case op.Fault != nil:
		return protocol.HeaderFault
	case op.Producer.Set || length <= 0:
		return 0
	case v.Closed:
		return protocol.StreamClosed
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
