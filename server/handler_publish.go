package server

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// maxUploads is how many snapshots may be received at once. Each has a goroutine, a
// buffer and a file of its own.
const maxUploads = 64

// uploadStep is how much of a snapshot is received at once, in bytes.
const uploadStep = memoryStep

// site is a place in a stream that a request has named.
type site struct {
	where  where
	offset base.Offset // unless it is below or beyond, and named by record
	record uint64
}

type where uint8

const (
	atBoundary where = iota
	insideMessage
	belowEarliest
	beyondTail
)

// locateSite finds the place that the request names, as c.view has it.
func (c *call) locateSite() (site, error) {
	v, at := c.view, &c.op.At
	if at.ByRecord {
		switch s := (site{record: at.Record}); {
		case at.Record < v.FirstRecord:
			s.where = belowEarliest
			return s, nil
		case at.Record > v.NextRecord:
			s.where = beyondTail
			return s, nil
		default:
			var err error
			s.offset, err = c.engine.Load().RecordOffset(c.context(), v, at.Record, c.inline)
			return s, err
		}
	}
	s := site{offset: base.Offset(at.Offset)}
	switch {
	case s.offset < v.First:
		s.where = belowEarliest
		return s, nil
	case s.offset > v.Next:
		s.where = beyondTail
		return s, nil
	}
	exact, n, err := c.engine.Load().Boundary(c.context(), v, s.offset, c.inline)
	s.record = n
	if err == nil && !exact {
		s.where = insideMessage
	}
	return s, err
}

// foreseeSnapshot returns the refusal that a publication would get whatever its body is;
// 0 when that is not certain.
func (c *call) foreseeSnapshot() protocol.Outcome {
	if o := c.foreseeReach(); o != 0 || !c.stream.Alive(c.view) {
		return o
	}
	s, err := c.locateSite()
	if err != nil {
		return 0
	}
	o, _ := c.judge(s)
	return o
}

// judge compares a publication with what is durable, in the order of core's decision. It
// returns the refusal, 0 for none, and whether the request is a repeat: its digest tells
// that without the body.
func (c *call) judge(s site) (o protocol.Outcome, repeat bool) {
	cur, asked := c.view.Snapshot(), &c.op.Snapshot
	switch {
	case s.where == beyondTail:
		return protocol.SnapshotBeyondTail, false
	case s.where != belowEarliest && cur != nil && s.offset == cur.Offset:
		if cur.ContentType != c.snapshotType() || asked.HasDigest && asked.Digest != cur.Digest {
			return protocol.SnapshotConflict, false
		}
		return 0, asked.HasDigest
	case s.where == belowEarliest:
		return protocol.SnapshotBelowEarliest, false
	case s.where == insideMessage:
		return protocol.SnapshotNotBoundary, false
	case cur != nil && s.offset < cur.Offset:
		return protocol.SnapshotStale, false
	}
	return 0, false
}

// snapshotType returns the content type of the snapshot that is published.
func (c *call) snapshotType() string {
	if !c.op.HasContentType {
		return protocol.DefaultContentType
	}
	t, _ := protocol.NormalizeContentType(c.op.ContentType)
	return t
}

// upload is the body of a publication once it is a blob, to which held is a reference.
type upload struct {
	held   bool
	digest blob.Digest
	size   int64
}

// publish answers a PUT of a snapshot.
func (c *call) publish() {
	c.offPoller(func() {
		s, up := c.Server, upload{} // c is gone once it has answered
		for c.publishOnce(&up) == restart {
		}
		if !up.held {
			return
		}
		if err := s.engine.Load().Blobs().Unpin(up.digest, now()); err != nil {
			s.cfg.Logger.Error("giving up the reference to an uploaded snapshot", "error", err)
		}
	})
}

// publishOnce makes one attempt. It is made again only when the stream has been deleted
// and created anew since it was looked at.
func (c *call) publishOnce(up *upload) verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	s, err := c.locateSite()
	if err != nil {
		return c.failed(err)
	}
	o, repeat := c.judge(s)
	if o != 0 {
		c.refuse(o)
		return answered
	}
	if cur := c.view.Snapshot(); repeat && !up.held {
		*up = upload{held: c.engine.Load().Blobs().Pin(cur.Digest), digest: cur.Digest, size: cur.Size}
	}
	if !up.held {
		if v := c.receive(up); v != proceed {
			return v
		}
	}
	return c.decide(core.Event{
		Op: core.OpSnapshot,
		Snapshot: &core.Snapshot{
			Offset: s.offset, Record: s.record, Digest: up.digest, Size: up.size, ContentType: c.snapshotType(),
		},
		Retain: c.op.Snapshot.Retain,
	})
}

// decide has the engine decide ev about the incarnation that c.view shows, and answers.
// It waits: not on a poller.
func (c *call) decide(ev core.Event) verdict {
	ev.Incarnation, ev.HasIncarnation = c.engine.Load().Incarnation(c.view.ID), true
	c.eop.Stream, c.eop.Event = c.stream, ev
	if err := c.engine.Load().Do(&c.eop); err != nil {
		c.refuse(outcomeOfError(err))
		return answered
	}
	if c.eop.Answer.Code == core.IncarnationMismatch && !c.op.HasIncarnation {
		return restart
	}
	c.answered()
	c.refuse(c.res.Outcome)
	return answered
}

// receive streams the body to the disk. Unless it returns proceed, the request has its
// answer.
func (c *call) receive(up *upload) verdict {
	if c.engine.Load().DiskFull() {
		c.refuse(protocol.DiskFull)
		return answered
	}
	if c.uploads.Add(1) > maxUploads {
		c.uploads.Add(-1)
		c.refuse(protocol.Overloaded)
		return answered
	}
	defer c.uploads.Add(-1)
	w, err := c.engine.Load().Blobs().Create(bodyLength(c.x))
	if err != nil {
		return c.notStored(err)
	}
	switch err := c.copyUpload(w); {
	case err == nil:
	case errors.Is(err, ErrGone): // the transport has answered, or there is nobody to answer
		w.Abort()
		c.release()
		return answered
	case errors.Is(err, errTooLarge):
		w.Abort()
		c.res.Limit = c.cfg.MaxSnapshotBytes
		c.refuse(protocol.SnapshotTooLarge)
		return answered
	default:
		w.Abort()
		return c.notStored(err)
	}
	switch c.op.SetBodyLength(w.Size()); {
	case c.op.Fault != nil: // what only a body that is not empty makes wrong
		w.Abort()
		c.refuse(protocol.HeaderFault)
		return answered
	case c.op.Snapshot.HasDigest && c.op.Snapshot.Digest != protocol.Digest(w.Digest()):
		w.Abort()
		c.refuse(protocol.DigestMismatch)
		return answered
	}
	size, asked := w.Size(), &c.op.Snapshot
	asked.Digest, asked.HasDigest = protocol.Digest(w.Digest()), true
	if o := c.foreseeSnapshot(); o != 0 { // now that the digest is known, and in case that others have been faster
		w.Abort()
		c.refuse(o)
		return answered
	}
	d, err := w.Commit()
	if err != nil {
		return c.notStored(err)
	}
	*up = upload{held: true, digest: d, size: size}
	return proceed
}

var errTooLarge = errors.New("the body is too large")

// copyUpload copies the body to w.
func (c *call) copyUpload(w *blob.Writer) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := c.x.ReadBody((*buf)[:uploadStep])
		if w.Size()+int64(n) > c.cfg.MaxSnapshotBytes {
			return errTooLarge
		}
		if _, werr := w.Write((*buf)[:n]); werr != nil {
			return werr
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// notStored answers that the disk did not take a snapshot. Nothing has come of it.
func (c *call) notStored(err error) verdict {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		c.refuse(protocol.DiskFull)
		return answered
	}
	c.cfg.Logger.Error("a snapshot cannot be stored", "error", err)
	c.problem(protocol.NewProblem("internal", "The snapshot could not be written to the disk; nothing was stored. The operator has been told."))
	return answered
}

// dropSnapshot answers a DELETE of a snapshot.
func (c *call) dropSnapshot() {
	c.offPoller(func() {
		for c.dropOnce() == restart {
		}
	})
}

func (c *call) dropOnce() verdict {
	if v := c.reach(); v != proceed {
		return v
	}
	at := base.Offset(c.op.At.Offset)
	if c.op.At.ByRecord {
		s := c.snapshotAt()
		if s == nil {
			c.refuse(protocol.SnapshotNotFound)
			return answered
		}
		at = s.Offset
	}
	return c.decide(core.Event{Op: core.OpDrop, Offset: at})
}
