package server

import (
	"github.com/snakream/snakream/protocol"
)

// verdict says how a step of a read ended.
type verdict uint8

const (
	proceed  verdict = iota
	answered         // the request has its answer, c is gone
	blocking         // the next step may block, and this is a poller
	restart          // the view is not true any more: look again
)

// run repeats steps until the request is answered, on a goroutine from the moment
// that one of them may block. Steps change nothing, so that they can be repeated.
func (c *call) run(steps func(*call) verdict) {
	for {
		switch steps(c) {
		case answered:
			return
		case blocking:
			c.offPoller(func() { c.run(steps) })
			return
		}
	}
}

// head answers a HEAD. It renews nothing.
func (c *call) head() { c.run((*call).headSteps) }

func (c *call) headSteps() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	v := c.view
	c.meta = protocol.Meta{
		Incarnation: c.res.Incarnation, Next: uint64(v.Next), Earliest: uint64(v.First), Closed: v.Closed,
		ContentType: v.ContentType, TTL: v.TTL, ExpiresAt: v.ExpiresAt,
		Records:   protocol.Records{Set: true, First: v.FirstRecord, Next: v.NextRecord},
		Snapshot:  snapshotOf(v.Snapshot()),
		Inherited: c.inherited(0),
	}
	status, fields := c.render.Head(c.out[:0], &c.op, &c.meta)
	c.out = fields[:0]
	c.metrics.count(c.route, status)
	c.x.ReplyHead(status, fields, -1)
	c.release()
	return answered
}

// reach is the beginning of everything that looks at a stream before the engine does:
// exists, not deleted nor expired, the incarnation that was asked for, headers and query
// in order.
func (c *call) reach() verdict {
	o := c.find()
	if o == 0 && !c.stream.Alive(c.view) {
		return c.settleUse(true)
	}
	if o == 0 {
		o = c.checkHeaders()
	}
	if o == 0 {
		return proceed
	}
	c.refuse(o)
	return answered
}

// checkHeaders is what follows existence in the order of checks: the incarnation
// that was asked for, then headers and query.
func (c *call) checkHeaders() protocol.Outcome {
	switch {
	case c.op.HasIncarnation && c.op.Incarnation != c.res.Incarnation:
		c.res.Inherited = c.inherited(c.op.Incarnation)
		return protocol.IncarnationMismatch
	case c.op.Fault != nil:
		return protocol.HeaderFault
	}
	return 0
}

// inherited describes what the stream has from before a restore, as the incarnation
// that was asked for if it was that then.
func (c *call) inherited(asked uint64) protocol.Inheritance {
	return inheritanceOf(c.view.Inheritance(c.engine.Load().History(), asked))
}

// use lets a read of something around the stream count as a use of it. A HEAD does
// not count.
func (c *call) use() verdict {
	if c.isHead {
		return proceed
	}
	return c.renew()
}

// offPoller runs f where it may block. It is the last thing that the caller does.
func (c *call) offPoller(f func()) {
	if !c.inline {
		f()
		return
	}
	c.outlive()
	c.x.Go(func() {
		c.inline = false
		f()
	})
}

// settleUse has the engine record that the stream was used, or that it has
// expired, before the request goes on.
func (c *call) settleUse(expire bool) verdict {
	if c.inline {
		return blocking
	}
	if o := c.await(expire); o != 0 {
		c.refuse(o)
		return answered
	}
	if expire {
		return restart
	}
	return proceed
}

// outdated decides what an overtaken view means: a new one makes the request start
// over; the same one, that the stored bytes are not what they should be.
func (c *call) outdated() verdict {
	if v := c.stream.View(); v == c.view {
		return c.unread(nil)
	}
	return restart
}
