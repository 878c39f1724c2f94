package server

import (
	"context"
	"sync"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// call is one request on its way through: what it asks for, and what is known and
// said about it. It is pooled; a connection without a request has none.
type call struct {
	*Server
	x      *Exchange
	inline bool // on a poller: must not block
	isHead bool // the answer has no body
	route  route

	req protocol.Request
	op  protocol.Operation
	eop engine.Op

	gather      *Gather // where the answer goes; nil: to the socket at once
	stream      *engine.Stream
	view        *engine.View
	start, end  base.Offset // of a read
	first, next uint64      // records of a read by record

	res  protocol.WriteResult
	rres protocol.ReadResult
	meta protocol.Meta
	step engine.Step

	keep []byte   // what the request said, for as long as it takes to answer
	body []byte   // a stored body, or the body of an answer
	ends []uint32 // of the messages in a stored body
	out  []byte   // a rendered answer
}

// Buffers larger than these, in bytes, are not kept from request to request.
const (
	keepBytes = 4 << 10
	bodyBytes = 64<<10 + 1<<10
	endsCount = 4 << 10
)

type callPool struct{ sync.Pool }

// take returns a call for a request that has just arrived.
func (s *Server) take(x *Exchange) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{Server: s}
		c.eop.User = c
	}
	c.x, c.inline = x, x.Inline()
	return c
}

// context ends when the client has gone. On a poller nothing is waited for.
func (c *call) context() context.Context {
	if c.inline {
		return context.Background()
	}
	return c.x.Context()
}

// release gives c back. It is the last thing that is done with it.
func (c *call) release() {
	c.x, c.gather, c.stream, c.view = nil, nil, nil, nil
	c.first, c.next = 0, 0
	c.res, c.rres, c.meta = protocol.WriteResult{}, protocol.ReadResult{}, protocol.Meta{}
	c.req = protocol.Request{}
	c.clearEvent()
	c.keep = reuse(c.keep, keepBytes)
	c.body = reuse(c.body, bodyBytes)
	c.ends = reuse(c.ends, endsCount)
	c.out = reuse(c.out, keepBytes)
	c.calls.Put(c)
}

// reuse returns b emptied, or nothing when it has grown too large to keep.
func reuse[T any](b []T, most int) []T {
	if cap(b) > most {
		return nil
	}
	return b[:0]
}

// parse understands the request. length is that of its body, -1 for unknown.
func (c *call) parse(length int64) *protocol.Problem {
	r := c.x.Request()
	c.req = protocol.Request{
		Method: r.Method, Path: r.Path, Query: r.Query, Fields: r.Fields,
		BodyLength: length, HTTP10: r.Minor == 0,
	}
	c.isHead = string(r.Method) == "HEAD"
	c.route = routeOther
	if p := protocol.Parse(&c.req, &c.op); p != nil {
		return p
	}
	c.op.Host = r.Host // of an absolute target it wins over the field
	c.route = routeOf(&c.op)
	return nil
}

// hold copies b into memory that lives as long as c has this request.
func (c *call) hold(b []byte) []byte {
	n := len(c.keep)
	c.keep = append(c.keep, b...)
	return c.keep[n:len(c.keep):len(c.keep)]
}

// outlive makes everything that is needed of the operation after Serve has
// returned independent of the connection's input.
func (c *call) outlive() {
	op := &c.op
	op.Bucket, op.Stream = c.hold(op.Bucket), c.hold(op.Stream)
	op.ContentType, op.Host = c.hold(op.ContentType), c.hold(op.Host)
	op.Producer.ID, op.StreamSeq = c.hold(op.Producer.ID), c.hold(op.StreamSeq)
	for i, tag := range op.IfNoneMatch {
		op.IfNoneMatch[i] = c.hold(tag)
	}
	op.List.Prefix, op.List.After = c.hold(op.List.Prefix), c.hold(op.List.After)
	if op.Snapshot.IfRange != nil {
		op.Snapshot.IfRange = c.hold(op.Snapshot.IfRange)
	}
}

// reply sends an answer and ends the call.
func (c *call) reply(status int, fields, body []byte) {
	c.metrics.count(c.route, status)
	switch {
	case c.isHead:
		c.x.ReplyHead(status, fields, int64(len(body)))
	case c.gather != nil:
		c.x.ReplyIn(c.gather, status, fields, body)
	default:
		c.x.Reply(status, fields, body)
	}
	c.release()
}

// problem answers with p and ends the call.
func (c *call) problem(p *protocol.Problem) {
	status, fields, body := c.render.Problem(c.out[:0], p)
	c.out = fields[:0]
	c.reply(status, fields, body)
}

// refuse answers with a refusal, or any other outcome that needs no more than what
// c.res says, and ends the call.
func (c *call) refuse(o protocol.Outcome) {
	c.res.Outcome = o
	status, fields, body := c.render.Write(c.out[:0], &c.op, &c.res)
	c.out = fields[:0]
	c.reply(status, fields, body)
}

// find looks the stream up and returns NotFound, BucketNotFound or Gone, or 0 when
// it is there.
func (c *call) find() protocol.Outcome {
	e := c.engine.Load()
	if c.stream = e.Lookup(c.op.Bucket, c.op.Stream); c.stream == nil {
		return c.missing()
	}
	if c.view = c.stream.View(); c.view == nil {
		return c.missing()
	}
	v := c.view
	c.res.Incarnation = e.Incarnation(v.ID)
	c.res.Next, c.res.Tail, c.res.Earliest = uint64(v.Next), uint64(v.Next), uint64(v.First)
	c.res.Closed, c.res.ContentType = v.Closed, v.ContentType
	c.res.Records = protocol.Records{Set: true, First: v.FirstRecord, Next: v.NextRecord}
	if v.Extra != nil {
		c.res.Snapshot = snapshotOf(v.Snapshot())
	}
	if v.Deleted {
		return protocol.Gone
	}
	return 0
}

// missing says what is not there. Through /v1 buckets need not be.
func (c *call) missing() protocol.Outcome {
	if c.op.Surface == protocol.SurfaceDS {
		if _, ok := c.engine.Load().Bucket(c.op.Bucket); !ok {
			return protocol.BucketNotFound
		}
	}
	return protocol.NotFound
}
