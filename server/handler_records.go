package server

import (
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// locateRecord finds where a read by record begins.
func (c *call) locateRecord() verdict {
	v, q := c.view, &c.op.Read.Records
	if q.Envelope && !v.JSON {
		c.refuse(protocol.RecordViewOfText)
		return answered
	}
	if c.op.Read.LastEventID {
		return c.resumeRecords()
	}
	n := v.NextRecord
	switch q.Start {
	case protocol.StartAt:
		n = q.N
	case protocol.StartTail:
		n -= min(q.N, v.NextRecord-v.FirstRecord)
	}
	switch {
	case n > v.NextRecord:
		c.refuse(protocol.RecordBeyondTail)
		return answered
	case n < v.FirstRecord:
		c.refuse(protocol.RecordTrimmed)
		return answered
	}
	at, err := c.engine.Load().RecordOffset(c.context(), v, n, c.inline)
	if err != nil {
		return c.failed(err)
	}
	c.start, c.first = at, n
	return proceed
}

// resumeRecords finds where an event stream of records goes on.
func (c *call) resumeRecords() verdict {
	if v := c.locateOffset(); v != proceed {
		return v
	}
	n, err := c.recordAt(c.start)
	if err != nil {
		return c.failed(err)
	}
	c.first = n
	return proceed
}

// recordAt returns the ordinal of the record that an offset lies in.
func (c *call) recordAt(at base.Offset) (uint64, error) {
	_, n, err := c.engine.Load().Boundary(c.context(), c.view, at, c.inline)
	return n, err
}

// boundRecords finds where the answer to a read by record ends.
func (c *call) boundRecords() verdict {
	v, e := c.view, c.engine.Load()
	c.end, c.next = v.Next, v.NextRecord
	var err error
	if most := uint64(c.op.Read.Records.Max); most > 0 && most < c.next-c.first {
		c.next = c.first + most
		if c.end, err = e.RecordOffset(c.context(), v, c.next, c.inline); err != nil {
			return c.failed(err)
		}
	}
	if limit := c.cfg.DefaultReadBytes; limit > 0 && c.end-c.start > base.Offset(limit) {
		if c.end, err = e.Fit(c.context(), v, c.start, limit, c.inline); err != nil {
			return c.failed(err)
		}
		if c.next, err = c.recordAt(c.end); err != nil {
			return c.failed(err)
		}
	}
	return proceed
}
