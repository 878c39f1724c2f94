package server

import (
	"errors"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/protocol"
)

// latestSnapshot answers a GET of …/snapshot.
func (c *call) latestSnapshot() { c.run((*call).latestSteps) }

func (c *call) latestSteps() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	s := c.view.Snapshot()
	if s == nil {
		c.refuse(protocol.SnapshotNotFound)
		return answered
	}
	if v := c.use(); v != proceed {
		return v
	}
	fields := c.render.SnapshotLatest(c.out[:0], c.res.Incarnation, uint64(s.Offset))
	c.out = fields[:0]
	c.reply(307, fields, nil)
	return answered
}

// snapshot answers a GET of a snapshot at an offset.
func (c *call) snapshot() { c.run((*call).snapshotSteps) }

func (c *call) snapshotSteps() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	s := c.snapshotAt()
	if s == nil {
		c.refuse(protocol.SnapshotNotFound)
		return answered
	}
	if v := c.use(); v != proceed {
		return v
	}
	v := c.view
	res := protocol.SnapshotResult{
		Incarnation: c.res.Incarnation, Snapshot: snapshotOf(s), UpToDate: s.Offset == v.Next, Closed: v.Closed,
	}
	status, fields, body, start, end := c.render.Snapshot(c.out[:0], &c.op, &res)
	c.out = fields[:0]
	switch {
	case status != 200 && status != 206:
		c.reply(status, fields, body)
		return answered
	case c.isHead:
		c.metrics.count(c.route, status)
		c.x.ReplyHead(status, fields, s.Size)
		c.release()
		return answered
	case c.inline:
		return blocking
	}
	b, err := c.engine.Load().Blobs().Open(s.Digest)
	if err != nil {
		return c.unreadable(err)
	}
	defer b.Release()
	return c.sendSnapshot(b, status, fields, start, end)
}

// snapshotAt finds the readable snapshot that the request is about; nil when there is
// none.
func (c *call) snapshotAt() (found *core.Snapshot) {
	at := &c.op.At
	c.view.Extra.EachSnapshot(func(s *core.Snapshot) {
		if at.ByRecord && s.Record == at.Record || !at.ByRecord && uint64(s.Offset) == at.Offset {
			found = s
		}
	})
	return found
}

// unreadable decides what an error about a snapshot's blob means for a request that has
// not been answered yet. The view may name one that has gone since.
func (c *call) unreadable(err error) verdict {
	if errors.Is(err, blob.ErrNotFound) {
		return c.outdated()
	}
	return c.unread(err)
}

// sendSnapshot sends the bytes [pos, end) of a snapshot.
func (c *call) sendSnapshot(b *blob.Blob, status int, fields []byte, pos, end int64) verdict {
	begin := func() error {
		c.metrics.count(c.route, status)
		return c.x.StartBody(status, fields, end-pos)
	}
	if begun, err := c.sendBlob(b, pos, end, begin); err != nil {
		return c.broken(begun, err)
	}
	c.x.EndBody()
	c.release()
	return answered
}

// broken ends an answer that an error has interrupted; begun says that its head is out.
func (c *call) broken(begun bool, err error) verdict {
	switch {
	case errors.Is(err, ErrGone):
	case !begun:
		return c.failed(err)
	case !errors.Is(err, engine.ErrStale):
		c.reportUnread(c.view.ID, c.start, err)
	}
	return c.gone()
}

// sendBlob sends the bytes [pos, end) of a blob, checked, in pieces. begin is called
// once the first of them are known to be good; begun says whether it was.
func (c *call) sendBlob(b *blob.Blob, pos, end int64, begin func() error) (begun bool, err error) {
	var buf *[]byte
	for first := true; first || pos < end; first = false {
		n := min(end-pos, fileStep)
		fd, at, isFile := b.File(pos)
		if isFile {
			err = b.Verify(c.context(), pos, n)
			isFile = !errors.Is(err, blob.ErrNotLocal)
		}
		if !isFile {
			if buf == nil {
				buf = copyBuffers.Get().(*[]byte)
				defer copyBuffers.Put(buf)
			}
			n = min(n, memoryStep)
			*buf, err = b.Append(c.context(), (*buf)[:0], pos, int(n))
		}
		if err != nil {
			return begun, err
		}
		if first {
			begun = true
			if err = begin(); err != nil {
				return begun, err
			}
		}
		if isFile {
			err = c.x.SendFile(fd, at, n)
		} else {
			err = c.x.Write(*buf)
		}
		if err != nil {
			return begun, err
		}
		pos += n
	}
	return begun, nil
}
