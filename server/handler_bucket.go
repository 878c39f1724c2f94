package server

import (
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

// describeBucket answers a GET of a bucket.
func (c *call) describeBucket() {
	info, ok := c.engine.Load().Bucket(c.op.Bucket)
	if !ok {
		c.refuse(protocol.BucketNotFound)
		return
	}
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
