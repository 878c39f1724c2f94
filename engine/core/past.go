package core

import (
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// A restored data directory goes on under a new history, and may lack the last
// bytes that were acknowledged under the one before (api §4a). A restore changes no
// stream: what a stream was written under an older history shows by its state, until
// the first append carries it over.

// inherits reports whether the stream began under an older history than the
// directory has now.
func (h *Head) inherits(env *Env) bool { return h.History < env.History || h.Previous != 0 }

// fenced refuses the tuple of a producer whose newest writes a restore may have
// lost. What is left of its numbers is told; with the epoch behind a.Epoch it goes
// on. p is what is known of the producer, or nil: then only a first write is
// certain not to continue others.
func (h *Head) fenced(t *record.Producer, p *record.ProducerState, env *Env, a *Answer) bool {
	switch {
	case p == nil && (t.Seq == 0 || !h.inherits(env)):
		return false
	case p == nil:
		a.Epoch = t.Epoch
	case p.History >= env.History, t.Epoch > p.Epoch && t.Seq == 0:
		return false
	default:
		a.Epoch = max(t.Epoch, p.Epoch)
		a.HasReplaced, a.ReplacedEpoch, a.ReplacedSeq = true, p.Epoch, p.Seq
	}
	return true
}

// Inheritance is what a stream has in common with itself before a restore.
type Inheritance struct {
	Incarnation uint64      // that it had then; 0: it has begun since
	UpTo        base.Offset // the bytes below are the same under both incarnations
}

// Inheritance returns what the stream has from before its directory, which is now at
// the given history, was restored. If asked is an incarnation that the stream is
// known to have had, that is the one; otherwise the one that it had before the last
// restore.
func (v *View) Inheritance(history uint16, asked uint64) Inheritance {
	return inheritance(v.ID, &v.Past, v.Next, history, asked)
}

func inheritance(id base.StreamID, p *record.Past, next base.Offset, history uint16, asked uint64) Inheritance {
	first := p.History // under which the stream is known to have been
	if p.Previous != 0 {
		first = p.Previous
	}
	was := historyOf(id, asked)
	if was < first || was >= history {
		was = history - 1
	}
	switch {
	case was < first: // it has begun since
		return Inheritance{}
	case was < p.History:
		return Inheritance{Incarnation: Incarnation(was, id), UpTo: p.Inherited}
	}
	return Inheritance{Incarnation: Incarnation(was, id), UpTo: next} // not written since
}

// historyOf returns the history of an incarnation of the stream, 0 when it is
// another stream's.
func historyOf(id base.StreamID, incarnation uint64) uint16 {
	history := uint16(incarnation >> idBits & record.MaxHistory)
	if Incarnation(history, id) != incarnation {
		return 0
	}
	return history
}
