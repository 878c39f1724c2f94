package server

import (
	"github.com/snakream/snakream/engine/core"
)

// attrs answers a GET of a stream's attributes.
func (c *call) attrs() { c.run((*call).attrsSteps) }

func (c *call) attrsSteps() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	if v := c.use(); v != proceed {
		return v
	}
	text := ""
	if x := c.view.Extra; x != nil {
		text = string(x.Attrs)
	}
	fields, body := c.render.Attrs(c.out[:0], c.res.Incarnation, c.view.ContentType, text)
	c.out = fields[:0]
	c.reply(200, fields, body)
	return answered
}

// replaceAttrs answers a PUT of a stream's attributes.
func (c *call) replaceAttrs() {
	if o := c.find(); o != 0 {
		c.refuse(o)
		return
	}
	c.outlive()
	c.eop.Stream = c.stream
	ev := &c.eop.Event
	*ev = core.Event{
		Op:             core.OpAttrs,
		Incarnation:    c.op.Incarnation,
		HasIncarnation: c.op.HasIncarnation,
		HeaderFault:    c.op.Fault != nil,
	}
	attrs := c.op.ParseAttrs(c.body[:0], c.x.Body())
	if ev.BodyFault = c.op.BodyFault != nil; !ev.BodyFault {
		if len(attrs) == 0 {
			attrs = append(attrs, "{}"...) // which replaces what was there
		}
		c.body, ev.Attrs = attrs, attrs
	}
	c.submit()
}
