package server

import (
	"sync"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// pollAnswer is the answer to a long-poll and what it was made from.
type pollAnswer struct {
	view   *engine.View
	from   base.Offset
	cursor uint64
	wish   wish

	status int
	fields []byte
	body   []byte
}

// servePoll answers a long-poll once there is something to say.
func (e *encoder) servePoll(r *reader, v *engine.View, mem bool) (result, error) {
	if r.offset == v.Next && !v.Closed && !r.over {
		return idle, nil
	}
	p := &e.poll
	cursor := max(r.cursor, e.interval)
	if p.view != v || p.from != r.offset || p.cursor != cursor || p.wish != r.wish {
		if err := e.renderPoll(r, v, cursor, mem); err != nil {
			return idle, err
		}
	}
	e.metrics.count(routeLongPoll, p.status)
	r.x.ReplyTicket(r.ticket, p.status, p.fields, p.body)
	return finished, nil
}

// renderPoll makes e.poll the answer for where the reader stands.
func (e *encoder) renderPoll(r *reader, v *engine.View, cursor uint64, mem bool) error {
	p := &e.poll
	p.view = nil
	to, next, err := e.load(v, r, pollBytes, mem)
	if err != nil {
		return err
	}
	tail := to == v.Next
	e.op.Kind, e.op.Read = protocol.KindRead, r.wish.read(r.offset)
	res := protocol.ReadResult{
		Incarnation: e.engine.Load().Incarnation(v.ID), Start: uint64(r.offset), Next: uint64(to),
		UpToDate: tail, Closed: tail && v.Closed, ContentType: v.ContentType, Cursor: cursor,
	}
	if r.wish.byRecord {
		res.Records = protocol.Records{Set: true, First: v.FirstRecord, HasStart: true, Start: r.record, Next: next}
	}
	p.status, p.fields = e.render.Read(p.fields[:0], &e.op, &res)
	p.body = reuse(p.body, keepFrame)
	if p.status == 200 {
		f := formatOf(v, r.wish, to == r.offset)
		f.first, f.next = r.record, next
		p.body = appendBody(p.body, f, e.raw)
	}
	p.view, p.from, p.cursor, p.wish = v, r.offset, cursor, r.wish
	return nil
}

// end ends a reader whose stream, or the incarnation that it read, is no more.
func (e *encoder) end(r *reader, v *engine.View) result {
	if v != nil && v.Deleted {
		return e.refuse(r, protocol.Gone, nil)
	}
	return e.refuse(r, protocol.NotFound, nil)
}

// refuse ends a reader for another reason than closure or age. v is given when the
// stream is still there.
func (e *encoder) refuse(r *reader, o protocol.Outcome, v *engine.View) result {
	bucket, name := r.stream.Name()
	e.op = protocol.Operation{Kind: protocol.KindRead, Bucket: []byte(bucket), Stream: []byte(name)}
	res := protocol.WriteResult{Outcome: o}
	if v != nil {
		res.Earliest, res.ContentType = uint64(v.First), v.ContentType
	}
	if r.mode == events {
		e.scratch = protocol.AppendSSEEnd(e.scratch[:0], protocol.EndProblem(&e.op, &res))
		r.x.EndStream(e.scratch)
		return finished
	}
	if o != protocol.NotFound {
		res.Incarnation = e.engine.Load().Incarnation(r.id)
	}
	status, fields, body := e.render.Write(e.scratch[:0], &e.op, &res)
	e.scratch = fields[:0]
	e.metrics.count(routeLongPoll, status)
	r.x.ReplyTicket(r.ticket, status, fields, body)
	return finished
}

// rotate ends an event stream that is old enough, with a control event that tells
// where to go on.
func (e *encoder) rotate(r *reader, v *engine.View) result {
	e.scratch = e.appendControl(e.scratch[:0], r, v)
	if e.draining() && !(v.Closed && r.offset == v.Next) {
		e.scratch = protocol.AppendSSEEnd(e.scratch, protocol.EndProblem(&e.op, &protocol.WriteResult{Outcome: protocol.Draining}))
	}
	r.x.EndStream(e.scratch)
	return finished
}

// diskReaders is how many live readers may read the disk at once, storeReaders how many
// the object store, and diskSlice how long one does before the next has its turn.
const (
	diskReaders  = 8
	storeReaders = 16
	diskSlice    = 10 * time.Millisecond
)

// crew reads for live readers what is not in memory. Its goroutines begin with the first
// reader that waits and end with the last; the hub waits for them.
type crew struct {
	mu      sync.Mutex
	waiting []*reader
	active  int
	most    int
	remote  bool      // it reads the object store, too, for which it may have to wait long
	spare   sync.Pool // of *encoder
}

// serveFrom has a reader served by a goroutine that may wait, which then sends it back to
// its loop.
func (h *hub) serveFrom(c *crew, r *reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, r)
	if c.active < c.most {
		c.active++
		h.wg.Go(func() { h.readFor(c) })
	}
}

// readFor serves the readers that wait for a crew until there is none.
func (h *hub) readFor(c *crew) {
	e, _ := c.spare.Get().(*encoder)
	if e == nil {
		e = &encoder{Server: h.Server, remote: c.remote}
	}
	defer c.spare.Put(e)
	for {
		r := c.take()
		if r == nil {
			return
		}
		e.begin(diskSlice)
		res := e.serve(r, r.stream.View(), false)
		r.loop.post(task{kind: taskBack, reader: r, result: res})
	}
}

// take returns the reader that has waited longest; nil ends the caller.
func (c *crew) take() *reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.active--
		return nil
	}
	r := c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	return r
}
