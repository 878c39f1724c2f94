package server

import (
	"sync"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/protocol"
)

// batchItem is one append of a batch.
type batchItem struct {
	op    engine.Op
	fault *protocol.Problem // of its body
	err   error             // it was not submitted
}

// appendBatch answers a POST of several appends.
func (c *call) appendBatch() {
	c.offPoller(func() {
		v := c.reach()
		for v == restart {
			v = c.reach()
		}
		if v == proceed {
			c.appendFrames()
		}
	})
}

// appendFrames splits the body, submits every frame in order and collects the answers,
// on a goroutine.
func (c *call) appendFrames() {
	frames := c.op.SplitFrames(nil, c.x.Body())
	if c.op.BodyFault != nil {
		c.refuse(protocol.BodyFault)
		return
	}
	items := c.batchItems(frames)
	if err := c.submitItems(items); err != nil {
		c.refuse(outcomeOfError(err))
		return
	}
	body := append(c.body[:0], protocol.OpenArray...)
	for i := range items {
		it := &items[i]
		res := protocol.WriteResult{Outcome: outcomeOfError(it.err)}
		if it.err == nil {
			c.translate(&res, &it.op)
		}
		if i > 0 {
			body = append(body, ',')
		}
		c.op.BodyFault = it.fault
		body = protocol.AppendBatchItem(body, &c.op, &res)
	}
	body = append(body, protocol.CloseArray...)
	c.body = body
	fields := c.render.Batch(c.out[:0], &c.res)
	c.out = fields[:0]
	c.reply(200, fields, body)
}

// batchItems makes an append of each frame. All are about the incarnation that the
// request has found.
func (c *call) batchItems(frames [][]byte) []batchItem {
	items := make([]batchItem, len(frames))
	media, json := c.mediaType(c.op.ContentType), protocol.IsJSON(string(c.op.ContentType))
	var small []byte // memory of the small bodies together
	if json {
		n := 0
		for _, f := range frames {
			if len(f) < InlineBody {
				n += len(f) + 1
			}
		}
		small = make([]byte, 0, n)
	}
	for i, f := range frames {
		it := &items[i]
		it.op.Stream = c.stream
		ev := &it.op.Event
		*ev = core.Event{
			Op: core.OpAppend, Incarnation: c.res.Incarnation, HasIncarnation: true, MediaType: media, HasBody: true,
		}
		switch large := len(f) >= InlineBody; {
		case json && large:
			c.splitFrame(it, make([]byte, 0, len(f)+1), f)
		case json:
			small = small[:len(small)+c.splitFrame(it, small[len(small):], f)]
		case large:
			ev.Body = append(make([]byte, 0, len(f)), f...) // the engine keeps it, without the rest of the batch
			ev.Ends = []uint32{uint32(len(f))}
		default:
			ev.Body, ev.Ends = f, []uint32{uint32(len(f))}
		}
		if ev.BodyOwned = len(ev.Body) > InlineBody; ev.BodyOwned {
			ev.BodySum = engine.BodySum(ev.Body)
		}
	}
	return items
}

// splitFrame stores the messages of a JSON frame in dst and returns how many bytes that
// took.
func (c *call) splitFrame(it *batchItem, dst, frame []byte) int {
	c.op.BodyFault = nil
	ev := &it.op.Event
	ev.Body, ev.Ends = c.op.SplitBody(dst, nil, frame)
	if c.op.BodyFault != nil {
		it.fault = new(*c.op.BodyFault)
		ev.Body, ev.Ends, ev.BodyFault = nil, nil, true
	}
	return len(ev.Body)
}

// submitItems submits the appends in order and waits for their answers. When the engine
// does not take one, those behind it are not submitted either: they may rest on it. The
// error is that of the first one; then nothing has been stored.
func (c *call) submitItems(items []batchItem) error {
	e := c.engine.Load()
	var wg sync.WaitGroup
	done := func(*engine.Op) { wg.Done() }
	for i := range items {
		it := &items[i]
		it.op.Done = done
		wg.Add(1)
		if it.err = e.Submit(&it.op); it.err == nil {
			continue
		}
		wg.Done()
		if i == 0 {
			return it.err
		}
		for j := range items[i:] {
			items[i+j].err = it.err
		}
		break
	}
	wg.Wait()
	return nil
}
