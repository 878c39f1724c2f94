package server

import (
	"errors"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// smallRead is the largest answer, in stored bytes, that is collected and sent in
// one piece; on a poller only if all of it is in memory.
const smallRead = 64 << 10

// read answers a GET, or makes it a live reader.
func (c *call) read() { c.run((*call).readSteps) }

func (c *call) readSteps() verdict {
	for _, step := range [...]func(*call) verdict{
		(*call).reach, (*call).locate, (*call).renew, (*call).follow, (*call).bound, (*call).answer,
	} {
		if v := step(c); v != proceed {
			return v
		}
	}
	return answered
}

// locate finds where the read begins.
func (c *call) locate() verdict {
	if c.op.Read.Records.Set {
		return c.locateRecord()
	}
	return c.locateOffset()
}

func (c *call) locateOffset() verdict {
	v, rd := c.view, &c.op.Read
	switch rd.Start {
	case protocol.StartNow:
		c.start = v.Next
		return proceed
	case protocol.StartAt:
		c.start = base.Offset(rd.Offset)
	default:
		c.start = 0
	}
	switch {
	case c.start > v.Next:
		c.refuse(protocol.OffsetBeyondTail)
	case c.start < v.First:
		c.refuse(protocol.OffsetTrimmed)
	case !v.JSON || c.start == v.First || c.start == v.Next:
		return proceed
	default:
		return c.checkBoundary()
	}
	return answered
}

// checkBoundary refuses a read of JSON that begins inside a message.
func (c *call) checkBoundary() verdict {
	exact, _, err := c.engine.Load().Boundary(c.context(), c.view, c.start, c.inline)
	if err != nil {
		return c.failed(err)
	}
	if !exact {
		c.refuse(protocol.OffsetNotBoundary)
		return answered
	}
	return proceed
}

// failed decides what an error of the engine's reads means for a request that has
// not been answered yet.
func (c *call) failed(err error) verdict {
	switch {
	case errors.Is(err, engine.ErrNotInMemory):
		return blocking
	case errors.Is(err, engine.ErrStale):
		return c.outdated()
	}
	return c.damaged(err)
}

// renew lets the read count as a use of the stream.
func (c *call) renew() verdict {
	switch c.stream.Renew(c.view) {
	case engine.MustTouch:
		return c.settleUse(false)
	case engine.MustExpire:
		return c.settleUse(true)
	}
	return proceed
}

// follow makes a live reader of an SSE request, and of a long-poll that has
// nothing to read yet.
func (c *call) follow() verdict {
	switch c.op.Read.Live {
	case protocol.LiveSSE:
		c.openEvents()
		return answered
	case protocol.LiveLongPoll:
		v := c.view
		if c.start == v.Next && !v.Closed && c.pollTimeout() > 0 && !c.draining() {
			c.park()
			return answered
		}
	}
	return proceed
}

// bound finds where the answer ends: at the tail as it is now, or a page earlier.
func (c *call) bound() verdict {
	v, limit := c.view, c.op.Read.MaxBytes
	if c.op.Read.Records.Set {
		return c.boundRecords()
	}
	if limit > 0 {
		limit = min(limit, c.cfg.MaxReadBytes)
	} else {
		limit = c.cfg.DefaultReadBytes
	}
	c.end = v.Next
	if limit == 0 || v.Next-c.start <= base.Offset(limit) {
		return proceed
	}
	if !v.JSON {
		c.end = c.start + base.Offset(limit)
		return proceed
	}
	end, err := c.engine.Load().Fit(c.context(), v, c.start, limit, c.inline)
	if err != nil {
		return c.failed(err)
	}
	c.end = end
	return proceed
}

// renderHead renders status and fields of the answer.
func (c *call) renderHead() (status int, fields []byte) {
	v := c.view
	tail := c.end == v.Next
	c.rres = protocol.ReadResult{
		Incarnation: c.res.Incarnation, Start: uint64(c.start), Next: uint64(c.end),
		UpToDate: tail, Closed: tail && v.Closed, ContentType: v.ContentType,
	}
	rd := &c.op.Read
	if rd.Live == protocol.LiveLongPoll {
		c.rres.Cursor = nextCursor(rd)
	}
	if rd.Records.Set {
		c.rres.Records = protocol.Records{Set: true, First: v.FirstRecord, HasStart: true, Start: c.first, Next: c.next}
	}
	return c.render.Read(c.out[:0], &c.op, &c.rres)
}

// answer sends [start, end): small ranges in one piece, others as a stream.
func (c *call) answer() verdict {
	status, fields := c.renderHead()
	c.out = fields[:0]
	f := formatOf(c.view, wishOf(&c.op.Read), c.start == c.end)
	f.first, f.next = c.first, c.next
	switch size := c.end - c.start; {
	case status != 200:
		c.reply(status, fields, nil)
		return answered
	case size > smallRead && c.inline:
		return blocking
	case size > smallRead:
		return c.sendRange(fields, f)
	}
	body, err := c.collect(f)
	if err != nil {
		return c.failed(err)
	}
	c.reply(status, fields, body)
	return answered
}

// collect returns the whole body of a small answer.
func (c *call) collect(f format) ([]byte, error) {
	e := c.engine.Load()
	body := append(c.body[:0], f.open...)
	turn := turner{format: &f}
	for pos, last := c.start, f.last(c.start, c.end); pos < last; pos = c.step.End() {
		if err := e.Read(c.view, pos, last, smallRead, &c.step); err != nil {
			return nil, err
		}
		n := len(body)
		var err error
		if c.inline && !c.step.InMemory() {
			err = engine.ErrNotInMemory
		} else {
			body, err = c.step.Append(c.context(), body)
		}
		c.step.Release()
		if err != nil {
			return nil, err
		}
		body = turn.last(body, n)
	}
	body = append(body, f.close...)
	c.body = body
	return body, nil
}
