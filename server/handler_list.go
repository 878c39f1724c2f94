package server

import (
	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/protocol"
)

// list answers a GET of the streams of a bucket. A page costs as much as is on it,
// and goes out in pieces when it is long.
func (c *call) list() {
	if _, ok := c.engine.Load().Bucket(c.op.Bucket); !ok {
		c.refuse(protocol.BucketNotFound)
		return
	}
	if c.op.Fault != nil {
		c.refuse(protocol.HeaderFault)
		return
	}
	c.offPoller(c.sendList)
}

// sendList sends a page, on a goroutine.
func (c *call) sendList() {
	fields := c.render.List(c.out[:0])
	if c.isHead {
		c.metrics.count(c.route, 200)
		c.x.ReplyHead(200, fields, -1)
		c.release()
		return
	}
	e, q := c.engine.Load(), &c.op.List
	bucket, prefix, after := string(c.op.Bucket), string(q.Prefix), string(q.After)
	begun := false
	var w protocol.ListWriter
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	body := w.Begin((*buf)[:0], &c.op)
	var more bool
	for left := q.Limit; left > 0; {
		var page []*engine.Stream
		page, more = e.List(bucket, prefix, after, left)
		for _, st := range page {
			var entry protocol.ListEntry
			if after, left = listEntry(st, &entry, left); entry.Stream == "" {
				continue
			}
			body = w.Append(body, &entry)
			if len(body) < listPiece {
				continue
			}
			if !c.sendPiece(fields, body, &begun) {
				return
			}
			body = body[:0]
		}
		if !more {
			break
		}
	}
	body = w.End(body, more)
	if !begun {
		c.reply(200, fields, body)
		return
	}
	if !c.sendPiece(fields, body, &begun) {
		return
	}
	c.x.EndBody()
	c.release()
}

// listPiece is how much of a list is collected before it is sent, in bytes.
const listPiece = 60 << 10

// sendPiece sends a piece of a body whose length is not known. When the client has
// gone it ends the call and returns false.
func (c *call) sendPiece(fields, piece []byte, begun *bool) bool {
	var err error
	if !*begun {
		*begun = true
		c.metrics.count(c.route, 200)
		err = c.x.StartBody(200, fields, -1)
	}
	if err == nil {
		err = c.x.Write(piece)
	}
	if err != nil {
		c.gone()
	}
	return err == nil
}

// listEntry fills in what a list says of a stream, unless that has gone meanwhile: then the
// entry stays empty and another one may take its place on the page. It returns the
// stream's name and how many entries are left for the page.
func listEntry(st *engine.Stream, e *protocol.ListEntry, left int) (name string, rest int) {
	_, name = st.Name()
	v := st.View()
	if v == nil || v.Deleted {
		return name, left
	}
	*e = protocol.ListEntry{
		Stream: name, Closed: v.Closed, ContentType: v.ContentType, Next: uint64(v.Next),
		CreatedAt: v.Created, LastWriteAt: v.LastWrite,
	}
	return name, left - 1
}
