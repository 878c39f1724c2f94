package server

import (
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/protocol"
)

// retain answers a PUT of a stream's retention.
func (c *call) retain() {
	c.offPoller(func() {
		for c.retainOnce() == restart {
		}
	})
}

func (c *call) retainOnce() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	s, err := c.locateSite()
	if err != nil {
		return c.failed(err)
	}
	switch s.where {
	case belowEarliest:
		c.refuse(protocol.RetentionBehind)
		return answered
	case beyondTail:
		c.refuse(protocol.RetentionAboveSnapshot)
		return answered
	}
	return c.decide(core.Event{
		Op: core.OpTrim, Offset: s.offset, Ordinal: s.record, BodyFault: s.where == insideMessage,
	})
}
