package server

import (
	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/protocol"
)

// createBucket answers a PUT of a bucket.
func (c *call) createBucket() {
	if c.op.Fault != nil {
		c.refuse(protocol.HeaderFault)
		return
	}
	c.outlive()
	c.eop.Event = core.Event{Op: core.OpCreate, Bucket: string(c.op.Bucket), TTL: -1}
	c.submit()
}

// describeBucket answers a GET of a bucket. Streams whose deadline has passed end first, as
// if somebody had asked for each of them.
func (c *call) describeBucket() {
	e := c.engine.Load()
	info, ok := e.Bucket(c.op.Bucket)
	switch {
	case !ok:
		c.refuse(protocol.BucketNotFound)
	case e.Overdue():
		c.offPoller(func() {
			e.ExpireOverdue()
			if info, ok := e.Bucket(c.op.Bucket); ok {
				c.sendBucket(info)
				return
			}
			c.refuse(protocol.BucketNotFound)
		})
	default:
		c.sendBucket(info)
	}
}

func (c *call) sendBucket(info engine.BucketInfo) {
	fields, body := c.render.Bucket(c.out[:0], &c.op, &protocol.BucketInfo{Streams: info.Streams, CreatedAt: info.Created})
	c.out = fields[:0]
	c.reply(200, fields, body)
}

// deleteBucket answers a DELETE of a bucket.
func (c *call) deleteBucket() {
	c.offPoller(func() {
		a, err := c.engine.Load().DeleteBucket(string(c.op.Bucket))
		switch {
		case err != nil:
			c.refuse(outcomeOfError(err))
		case a.Code == core.Deleted:
			c.refuse(protocol.BucketDeleted)
		default:
			c.refuse(outcomeOf(&core.Event{Op: core.OpDelete}, a.Code))
		}
	})
}
