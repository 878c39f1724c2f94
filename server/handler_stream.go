package server

import (
	"errors"
	"sync"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
)

// Sizes of the steps of a long read, in bytes. A step from a file goes out by
// sendfile; one from memory is copied first, so that a slow client pins nothing.
// One that is put in envelopes grows, by a factor of 17 when the messages are as
// short as can be.
const (
	fileStep     = 1 << 20
	memoryStep   = 128 << 10
	envelopeStep = 8 << 10
)

var copyBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, memoryStep)) }}

// sending is a long answer on its way. It belongs to one goroutine.
type sending struct {
	*call
	format
	fields []byte
	pos    base.Offset // everything below it has been sent
	to     base.Offset // and this is the end
	max    int         // bytes of the next step
	copied int         // and of the largest one that is copied
	begun  bool        // the head has been sent
	turn   turner
	buf    *[]byte
	wide   []byte // of envelopes
}

// sendRange sends an answer of any length with flat memory. Until the first bytes
// have been checked it can still become another answer; after that, what cannot be
// read cuts the connection, so that the client sees that something is missing.
func (c *call) sendRange(fields []byte, f format) verdict {
	s := &sending{
		call: c, format: f, fields: fields,
		pos: c.start, to: f.last(c.start, c.end), max: fileStep, copied: memoryStep,
		buf: copyBuffers.Get().(*[]byte),
	}
	s.turn.format = &s.format
	if f.envelope {
		s.max, s.copied = envelopeStep, envelopeStep
	}
	defer copyBuffers.Put(s.buf)
	for s.pos < s.to {
		err := s.next()
		switch {
		case err == nil:
		case errors.Is(err, ErrGone):
			return c.gone()
		case errors.Is(err, engine.ErrStale) && s.sameBytes(s.pos):
		case !s.begun:
			return c.failed(err)
		default:
			return s.cut(err)
		}
	}
	if s.close != "" && c.x.Write([]byte(s.close)) != nil {
		return c.gone()
	}
	c.x.EndBody()
	c.release()
	return answered
}

// gone ends a call whose client has left.
func (c *call) gone() verdict {
	c.x.Abort()
	c.release()
	return answered
}

// cut ends an answer that cannot be completed.
func (s *sending) cut(err error) verdict {
	if !errors.Is(err, engine.ErrStale) {
		s.reportDamage(s.view.ID, s.pos, err)
	}
	return s.gone()
}

// sameBytes takes the stream's new view if what is left to send, from pos on, is in it
// unchanged: the same incarnation, not trimmed so far.
func (c *call) sameBytes(pos base.Offset) bool {
	v := c.stream.View()
	if v == nil || v == c.view || v.ID != c.view.ID || v.Deleted || v.First > pos {
		return false
	}
	c.view = v
	return true
}

// next sends one step.
func (s *sending) next() error {
	st := &s.step
	if err := s.engine.Load().Read(s.view, s.pos, s.to, s.max, st); err != nil {
		return err
	}
	defer st.Release()
	if !s.lines && !s.envelope && onlyFiles(st) {
		s.max = fileStep
		return s.sendFiles(st)
	}
	if int(st.End()-st.Start()) > s.copied {
		s.max = s.copied // the same again, in a size that is copied
		return nil
	}
	return s.sendCopy(st)
}

// onlyFiles reports whether every piece of a step can go out by sendfile.
func onlyFiles(st *engine.Step) bool {
	for i := range st.Pieces() {
		if _, _, _, ok := st.Pieces()[i].File(); !ok {
			return false
		}
	}
	return true
}

// begin sends the head, once the first bytes are known to be good.
func (s *sending) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	s.metrics.count(s.route, 200)
	if err := s.x.StartBody(200, s.fields, s.size(s.start, s.end)); err != nil {
		return err
	}
	if s.open == "" {
		return nil
	}
	return s.x.Write([]byte(s.open))
}

func (s *sending) sendFiles(st *engine.Step) error {
	for i := range st.Pieces() {
		p := &st.Pieces()[i]
		if err := p.Verify(s.context()); err != nil {
			return err
		}
		if err := s.begin(); err != nil {
			return err
		}
		fd, pos, n, _ := p.File()
		if err := s.x.SendFile(fd, pos, n); err != nil {
			return err
		}
		s.pos += base.Offset(n)
	}
	return nil
}

// sendCopy copies a step, lets go of it, and sends the copy.
func (s *sending) sendCopy(st *engine.Step) error {
	b, err := st.Append(s.context(), (*s.buf)[:0])
	end := st.End()
	st.Release()
	*s.buf = b[:0]
	if err != nil {
		return err
	}
	if s.envelope {
		s.wide = s.turn.append(s.wide[:0], b)
		b = s.wide
	} else {
		b = s.turn.last(b, 0)
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.pos = end
	return s.x.Write(b)
}
