package server

import (
	"errors"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/protocol"
)

// append answers a POST: data, closure, or both.
func (c *call) append() {
	if o := c.find(); o != 0 {
		c.refuse(o)
		return
	}
	c.outlive()
	c.appendEvent()
	c.takeBody(protocol.IsJSON(c.op.ContentType))
	c.submit()
}

// create answers a PUT.
func (c *call) create() {
	c.outlive()
	c.adoptSourceType()
	c.createEvent()
	c.takeBody(c.eop.Event.JSON)
	c.submit()
}

// adoptSourceType gives a fork that has a body but names no type the type of its
// source, since it decides how the body is read.
func (c *call) adoptSourceType() {
	op := &c.op
	if !op.Fork.Set || op.HasContentType || len(c.x.Body()) == 0 {
		return
	}
	if st := c.engine.Load().Lookup(op.Fork.Bucket, op.Fork.Stream); st != nil {
		if v := st.View(); v != nil {
			op.ContentType, op.HasContentType = c.hold([]byte(v.ContentType)), true
		}
	}
}

// delete answers a DELETE.
func (c *call) delete() {
	if o := c.find(); o != 0 {
		c.refuse(o)
		return
	}
	c.outlive()
	c.deleteEvent()
	c.submit()
}

// takeBody makes the request's body the event's: split into messages when it is
// JSON, one message otherwise.
func (c *call) takeBody(json bool) {
	body := c.x.Body()
	if len(body) == 0 {
		return
	}
	ev := &c.eop.Event
	ev.HasBody = true
	if json {
		c.splitBody(body)
	} else {
		c.copyBody(body)
	}
	if ev.BodyOwned = len(ev.Body) > InlineBody; ev.BodyOwned {
		ev.BodySum = engine.BodySum(ev.Body)
	}
}

// splitBody stores a JSON body as messages. A large one gets memory of its own,
// which the engine keeps.
func (c *call) splitBody(body []byte) {
	dst := c.body[:0]
	large := len(body) >= InlineBody // each message gains a comma
	if large {
		dst = make([]byte, 0, len(body)+1)
	}
	stored, ends := c.op.SplitBody(dst, c.ends[:0], body)
	c.ends = ends
	ev := &c.eop.Event
	if ev.BodyFault = c.op.BodyFault != nil; ev.BodyFault {
		return
	}
	if !large {
		c.body = stored
	}
	ev.Body, ev.Ends = stored, ends
}

// copyBody stores a body as it is. One that the connection has given away is taken.
func (c *call) copyBody(body []byte) {
	if !c.x.BodyOwned() {
		c.body = append(c.body[:0], body...)
		body = c.body
	}
	c.ends = append(c.ends[:0], uint32(len(body)))
	c.eop.Event.Body, c.eop.Event.Ends = body, c.ends
}

// submit hands the event to its shard. The answer comes from there.
func (c *call) submit() {
	c.eop.Done = settle
	c.x.Defer()
	if err := c.engine.Load().Submit(&c.eop); err != nil {
		c.refuse(outcomeOfError(err))
	}
}

// outcomeOfError says in the protocol's words why the engine did not take an
// operation.
func outcomeOfError(err error) protocol.Outcome {
	switch {
	case errors.Is(err, engine.ErrOverloaded):
		return protocol.Overloaded
	case errors.Is(err, engine.ErrClosed):
		return protocol.Draining
	case errors.Is(err, engine.ErrFenced):
		return protocol.Fenced
	}
	return protocol.Unavailable
}

// settle answers a write that has been decided and made durable. It runs on the
// turn or the disk goroutine.
func settle(op *engine.Op) {
	c := op.User.(*call)
	if shard, ok := op.Turn(); ok {
		c.gather = c.Server.gather[shard]
	}
	c.answered()
	r := &c.res
	if f := op.Answer.Fixed; r.Outcome == protocol.OffsetTrimmed && f != nil { // a fork's source has the rest
		c.op.Bucket, c.op.Stream = []byte(f.Bucket), []byte(f.Name)
	}
	if r.Outcome == protocol.RangeDamaged { // the engine has logged where
		c.metrics.damaged.Add(1)
	}
	c.refuse(r.Outcome)
}

// mediaType returns type and subtype of a content type in lower case.
func (c *call) mediaType(contentType []byte) []byte {
	n := 0
	for n < len(contentType) && contentType[n] != ';' && contentType[n] != ' ' && contentType[n] != '\t' {
		n++
	}
	if n == 0 {
		return nil
	}
	m := c.hold(contentType[:n])
	for i, b := range m {
		if 'A' <= b && b <= 'Z' {
			m[i] = b | 0x20
		}
	}
	return m
}
