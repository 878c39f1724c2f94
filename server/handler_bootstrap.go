package server

import (
	crand "crypto/rand"
	"errors"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// bootstrap answers a GET of a bootstrap: the current snapshot and every message after
// it, as one view has them.
func (c *call) bootstrap() { c.run((*call).bootstrapSteps) }

func (c *call) bootstrapSteps() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	resumed := c.op.Read.LastEventID
	if resumed {
		if v := c.locateOffset(); v != proceed {
			return v
		}
	}
	if v := c.use(); v != proceed {
		return v
	}
	s := c.view.Snapshot()
	if !resumed {
		if c.start = c.view.First; s != nil {
			c.start = s.Offset
		}
	}
	switch {
	case c.op.Read.Live == protocol.LiveSSE:
		return c.bootEvents(s)
	}
	return c.bundle(s)
}

// openSnapshot opens a snapshot's blob and checks its beginning; nil for none.
func (c *call) openSnapshot(s *core.Snapshot) (*blob.Blob, error) {
	if s == nil {
		return nil, nil
	}
	b, err := c.engine.Load().Blobs().Open(s.Digest)
	if err != nil {
		return nil, err
	}
	n := min(s.Size, memoryStep)
	err = b.Verify(c.context(), 0, n)
	if errors.Is(err, blob.ErrNotLocal) {
		buf := copyBuffers.Get().(*[]byte)
		*buf, err = b.Append(c.context(), (*buf)[:0], 0, int(n))
		copyBuffers.Put(buf)
	}
	if err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// bootEvents begins the event stream of a bootstrap.
func (c *call) bootEvents(s *core.Snapshot) verdict {
	snapshot, resumed := snapshotOf(s), c.op.Read.LastEventID
	if resumed {
		s = nil // who has an offset has had the snapshot
	}
	if s != nil && c.inline {
		return blocking
	}
	fields := c.render.BootstrapEvents(c.out[:0], c.res.Incarnation, c.view.ContentType, &snapshot, resumed)
	c.out = fields[:0]
	if c.isHead {
		c.headOnly(fields)
		return answered
	}
	b, err := c.openSnapshot(s)
	if err != nil {
		return c.unreadable(err)
	}
	r := c.newReader(events)
	if b != nil {
		r.boot = &bootSnapshot{blob: b, Snapshot: s}
	}
	c.startEvents(r, fields)
	return answered
}

// headOnly answers a HEAD whose GET has a body of a length that is not known before.
func (c *call) headOnly(fields []byte) {
	c.metrics.count(c.route, 200)
	c.x.ReplyHead(200, fields, -1)
	c.release()
}

// bundle sends a bootstrap as multipart/mixed.
func (c *call) bundle(s *core.Snapshot) verdict {
	if c.inline {
		return blocking
	}
	if v := c.boundBundle(); v != proceed {
		return v
	}
	var random [16]byte
	_, _ = crand.Read(random[:]) // it never fails
	m := protocol.NewMultipart(random)
	v, tail := c.view, c.end == c.view.Next
	fields := c.render.Bootstrap(c.out[:0], m, &protocol.BootstrapResult{
		Incarnation: c.res.Incarnation, ContentType: v.ContentType, Snapshot: snapshotOf(s),
		Next: uint64(c.end), UpToDate: tail, Closed: tail && v.Closed,
		Records: protocol.Records{Set: true, First: v.FirstRecord, Next: c.next},
	})
	c.out = fields[:0]
	if c.isHead {
		c.headOnly(fields)
		return answered
	}
	b, err := c.openSnapshot(s)
	if err != nil {
		return c.unreadable(err)
	}
	if b != nil {
		defer b.Release()
	}
	p := &parcel{call: c, multipart: m, fields: fields, raw: copyBuffers.Get().(*[]byte), out: copyBuffers.Get().(*[]byte)}
	defer copyBuffers.Put(p.raw)
	defer copyBuffers.Put(p.out)
	if err := p.send(s, b); err != nil {
		return c.broken(p.begun, err)
	}
	c.x.EndBody()
	c.release()
	return answered
}

// boundBundle finds where a bootstrap ends: at the tail, or a page earlier when that is
// far away. What follows is read as usual.
func (c *call) boundBundle() verdict {
	v, e := c.view, c.engine.Load()
	c.end, c.next = v.Next, v.NextRecord
	if v.Next-c.start <= base.Offset(c.cfg.MaxReadBytes) {
		return proceed
	}
	var err error
	if c.end, err = e.Fit(c.context(), v, c.start, c.cfg.MaxReadBytes, false); err != nil {
		return c.failed(err)
	}
	if c.next, err = c.recordAt(c.end); err != nil {
		return c.failed(err)
	}
	return proceed
}

// parcel is a bootstrap on its way. It belongs to one goroutine; its memory does not
// grow with what it sends.
type parcel struct {
	*call
	multipart *protocol.Multipart
	fields    []byte
	begun     bool          // the head has been sent
	out       *[]byte       // what is to be sent next
	raw       *[]byte       // stored bytes …
	at        base.Offset   // … from here on
	ends      []base.Offset // of the messages that come next
}

// endsAtOnce is how many ends of messages are looked up together.
const endsAtOnce = 4 << 10

// send sends everything: the snapshot, then the messages of [start, end).
func (p *parcel) send(s *core.Snapshot, b *blob.Blob) error {
	snapshot := snapshotOf(s)
	*p.out = p.multipart.AppendSnapshot((*p.out)[:0], &snapshot)
	if s != nil && s.Size > 0 {
		if _, err := p.sendBlob(b, 0, s.Size, p.flush); err != nil {
			return err
		}
	}
	*p.raw = (*p.raw)[:0]
	for at := p.start; at < p.end; {
		var err error
		p.ends, err = p.engine.Load().Ends(p.context(), p.ends[:0], p.view, at, p.end, endsAtOnce)
		if err != nil {
			if errors.Is(err, engine.ErrStale) && p.sameBytes(at) {
				continue
			}
			return err
		}
		for _, end := range p.ends {
			if err := p.message(at, end); err != nil {
				return err
			}
			at = end
		}
	}
	*p.out = p.multipart.AppendEnd(*p.out)
	return p.flush()
}

// message sends the part of the message [at, end).
func (p *parcel) message(at, end base.Offset) error {
	if p.view.JSON {
		end-- // the comma
	}
	*p.out = p.multipart.AppendMessage(*p.out, p.view.ContentType, int64(end-at))
	for at < end {
		b, err := p.stored(at)
		if err != nil {
			return err
		}
		b = b[:min(base.Offset(len(b)), end-at)]
		*p.out = append(*p.out, b...)
		at += base.Offset(len(b))
		if len(*p.out) >= memoryStep/2 {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stored returns stored bytes from an offset on, as many as are at hand.
func (p *parcel) stored(at base.Offset) ([]byte, error) {
	for {
		if at >= p.at && at-p.at < base.Offset(len(*p.raw)) {
			return (*p.raw)[at-p.at:], nil
		}
		err := p.engine.Load().Read(p.view, at, p.end, memoryStep/2, &p.step)
		if errors.Is(err, engine.ErrStale) && p.sameBytes(at) {
			continue
		}
		if err == nil {
			*p.raw, err = p.step.Append(p.context(), (*p.raw)[:0])
			p.step.Release()
		}
		if p.at = at; err != nil {
			*p.raw = (*p.raw)[:0]
			return nil, err
		}
	}
}

// flush sends what has been put together, the head first.
func (p *parcel) flush() error {
	if !p.begun {
		p.begun = true
		p.metrics.count(p.route, 200)
		if err := p.x.StartBody(200, p.fields, -1); err != nil {
			return err
		}
	}
	err := p.x.Write(*p.out)
	*p.out = (*p.out)[:0]
	return err
}
