package server

import (
	"context"
	"errors"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// trouble is why stored bytes could not be read.
type trouble uint8

const (
	damage     trouble = iota // they are not what was written, or not there
	clientGone                // nobody waits for them any more
	storeGone                 // they are in the object store alone, which can't be asked now
)

// troubleOf tells what an error of the engine's reads means. What the object store has
// lost or cut short is damage.
func troubleOf(err error) trouble {
	switch {
	case errors.Is(err, engine.ErrColdUnavailable):
		return storeGone
	case errors.Is(err, context.Canceled): // of a request: nothing else that is waited for has a context
		return clientGone
	}
	return damage
}

// reportUnread counts bytes that could not be read, and logs what is damaged; whatever
// reads the object store logs its failures. The answer names no file.
func (s *Server) reportUnread(id base.StreamID, at base.Offset, err error) {
	switch troubleOf(err) {
	case clientGone:
	case storeGone:
		s.metrics.unavailable.Add(1)
	default:
		s.metrics.damaged.Add(1)
		s.cfg.Logger.Error("a range of a stream cannot be read", "stream_id", uint64(id), "offset", uint64(at), "error", err)
	}
}

// unread answers that the range cannot be served.
func (c *call) unread(err error) verdict {
	c.reportUnread(c.view.ID, c.start, err)
	switch troubleOf(err) {
	case clientGone:
		return c.gone()
	case storeGone:
		c.refuse(protocol.ColdUnavailable)
	default:
		c.refuse(protocol.RangeDamaged)
	}
	return answered
}

// unread ends a live reader whose next bytes cannot be read.
func (e *encoder) unread(r *reader, v *engine.View, err error) result {
	e.reportUnread(r.id, r.offset, err)
	switch troubleOf(err) {
	case clientGone:
		return finished // which the transport tells, too
	case storeGone:
		return e.refuse(r, protocol.ColdUnavailable, v)
	}
	return e.refuse(r, protocol.RangeDamaged, v)
}

// context ends when the reader's client has gone. What answers from memory waits for
// nothing.
func (r *reader) context(mem bool) context.Context {
	if mem {
		return context.Background()
	}
	return r.x.Context()
}

// errRemote says that bytes are only in the object store, and that the caller may not
// wait for that: those who read the disk would wait behind it.
var errRemote = errors.New("only in the object store")

// isLocal reports whether all pieces of a step are in memory or in files.
func isLocal(st *engine.Step) bool {
	for i := range st.Pieces() {
		p := &st.Pieces()[i]
		if _, _, _, inFile := p.File(); !inFile && p.Mem == nil {
			return false
		}
	}
	return true
}

// checkLocal returns errRemote if some of a reader's next bytes, most of them at most,
// are only in the object store. It plans, and reads nothing.
func (e *encoder) checkLocal(v *engine.View, r *reader, most int64) error {
	if err := e.engine.Load().Read(v, r.offset, v.Next, int(most), &e.step); err != nil {
		return err
	}
	defer e.step.Release()
	if !isLocal(&e.step) {
		return errRemote
	}
	return nil
}
