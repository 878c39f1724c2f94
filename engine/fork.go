package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// A fork spans two shards, so it is a chain of records that each mean something by
// themselves: a pin in the source's shard, the create in the fork's, and an unpin if
// that was refused. The fork's id is allocated first, and the pin names it: whoever
// finds a pin whose id the fork's shard doesn't hold may drop it, and a start does.
// A chain runs to its end whatever becomes of its request (design §2).

// chains counts the chains under way, and takes no more once Close has begun.
type chains struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

// start runs f on a goroutine of its own, or is false.
func (c *chains) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.wg.Go(f)
	}
	return !c.ended
}

// end waits for the chains under way.
func (c *chains) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.wg.Wait()
}

func (e *Engine) submitFork(o *Op) error {
	started := e.forks.start(func() {
		a, err := e.fork(o.Event)
		switch {
		case err != nil && e.Err() != nil:
			return // the log has failed: nothing is answered any more
		case err != nil:
			a = core.Answer{Code: e.forkRefused(o.Event.Fork, err)}
		}
		o.Answer = a
		o.Done(o)
	})
	if !started {
		return ErrClosed
	}
	return nil
}

// forkRefused says what a chain that ended with an error answers. What is damaged now
// will be damaged in a moment too, so that must not sound like an overload.
func (e *Engine) forkRefused(spec *core.ForkSpec, err error) core.Code {
	switch {
	case errors.Is(err, ErrColdUnavailable):
		return core.SourceUnavailable
	case errors.Is(err, ErrOverloaded), errors.Is(err, ErrClosed):
		return notTaken(err)
	}
	e.opts.Logger.Error("the source of a fork cannot be read", "bucket", spec.Bucket, "stream", spec.Name, "error", err)
	return core.SourceDamaged
}

// fork carries out the chain. The event and its ForkSpec are copies: the owner's
// stay as they were, so that he may submit them again.
func (e *Engine) fork(ev core.Event) (core.Answer, error) {
	spec := *ev.Fork
	ev.Fork = &spec
	o := &Op{Event: ev}
	if err := e.createOp(o); err != nil || o.Answer.Code != core.NeedsSource {
		return o.Answer, err
	}
	view, f, refused, err := e.seek(&ev)
	if err != nil || f == nil {
		return refused, err
	}
	id, ok := e.shardOf(appendKey(nil, ev.Bucket, ev.Name)).takeID()
	if !ok {
		return core.Answer{}, ErrOverloaded
	}
	pin := &Op{Event: core.Event{Op: core.OpPin, Stream: view.ID, ForkID: id, ForkOffset: f.Offset}}
	home := e.shards[view.ID.Shard(len(e.shards))]
	if err := e.doAt(home, pin); err != nil || !pin.Answer.Code.OK() {
		return trimmedSource(pin.Answer), err
	}
	f.First, f.FirstRecord = pin.Answer.First, pin.Answer.FirstRecord // as of the pin
	unpin := func() { home.ask(core.Event{Op: core.OpUnpin, Stream: view.ID, ForkID: id}) }
	covered := false
	if spec.Snapshot, covered = e.cover(f, pin.Answer.Snapshot); !covered {
		unpin()
		pin.Answer.Code = core.SnapshotTrimmed
		return trimmedSource(pin.Answer), nil
	}
	if n := spec.Snapshot; n != nil {
		defer e.unpinBlob(n.Digest) // the fork has its own
	}
	o.Event.Stream, spec.Resolved = id, f
	if spec.InheritType {
		o.Event.ContentType, o.Event.MediaType, o.Event.JSON = view.ContentType, []byte(view.MediaType), view.JSON
	}
	var of *ancestor
	if view.inc != nil {
		of = view.inc.lineage
	}
	o.lineage = extend(of, f)
	err = e.createOp(o)
	if err != nil || o.Answer.Code != core.Created {
		unpin()
	}
	return o.Answer, err
}

// trimmedSource is the answer to a fork whose source says no: of that, only what it has
// retained is of interest.
func trimmedSource(a core.Answer) core.Answer {
	if a.Code != core.SnapshotTrimmed {
		return core.Answer{Code: a.Code}
	}
	return core.Answer{Code: a.Code, Stream: a.Stream, Fixed: a.Fixed, First: a.First, FirstRecord: a.FirstRecord}
}

// seek finds the source of a fork and where it begins. Without an error, a nil Fork
// means the answer.
func (e *Engine) seek(ev *core.Event) (*View, *record.Fork, core.Answer, error) {
	for {
		view, code, err := e.source(ev.Fork)
		if err != nil || code != 0 {
			return nil, nil, core.Answer{Code: code}, err
		}
		f, code, err := e.resolve(view, ev)
		switch {
		case errors.Is(err, ErrStale): // it was trimmed, or deleted, meanwhile: look again
		case err != nil || code != 0:
			return nil, nil, trimmedSource(core.Answer{
				Code: code, Stream: view.ID, Fixed: view.Fixed, First: view.First, FirstRecord: view.FirstRecord,
			}), err
		default:
			return view, f, core.Answer{}, nil
		}
	}
}

// cover returns the snapshot that a fork of a trimmed stream takes from its source, with a
// reference to the blob: the newest one within what the fork inherits. Without one nobody could
// tell what the fork began with, and it must not be made. A fork that inherits all needs
// none. current is the source's, as of the pin.
func (e *Engine) cover(f *record.Fork, current *record.Snapshot) (*record.Snapshot, bool) {
	if f.First == 0 {
		return nil, true
	}
	for {
		var best *record.Snapshot
		consider := func(n *record.Snapshot) {
			if f.First <= n.Offset && n.Offset <= f.Offset && (best == nil || n.Offset > best.Offset) {
				best = n
			}
		}
		if current != nil {
			consider(current)
		}
		if st := e.Lookup([]byte(f.Bucket), []byte(f.Name)); st != nil {
			if v := st.View(); v != nil && v.ID == f.Source {
				v.Extra.EachSnapshot(consider)
			}
		}
		if best == nil || e.blobs.Pin(best.Digest) {
			return best, best != nil
		}
		if current == nil {
			return nil, false
		}
		current = nil // it has gone since; what is there now is all that counts
	}
}

func (e *Engine) unpinBlob(d blob.Digest) {
	if err := e.blobs.Unpin(d, e.now()); err != nil {
		e.fail(err)
	}
}

// createOp submits the create itself and waits.
func (e *Engine) createOp(o *Op) error {
	return e.doAt(e.shardOf(appendKey(nil, o.Event.Bucket, o.Event.Name)), o)
}

// doAt submits an operation to a shard and waits for its answer.
func (e *Engine) doAt(s *shard, o *Op) error {
	done := make(chan struct{})
	o.Done = func(*Op) { close(done) }
	if err := s.submit(o); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-e.failed:
		return ErrFailed
	}
}

// source finds the stream that a fork is made from.
func (e *Engine) source(f *core.ForkSpec) (*View, core.Code, error) {
	for {
		st := e.Lookup([]byte(f.Bucket), []byte(f.Name))
		if st == nil {
			return nil, core.ForkSourceNotFound, nil
		}
		v := st.View()
		switch {
		case v == nil:
			return nil, core.ForkSourceNotFound, nil
		case v.Deleted:
			return nil, core.ForkSourceGone, nil
		case st.Alive(v):
			return v, 0, nil
		}
		o := &Op{Event: core.Event{Op: core.OpExpire, Stream: v.ID}}
		if err := e.doAt(st.shard, o); err != nil {
			return nil, 0, err
		}
		if !o.Answer.Code.OK() {
			return nil, o.Answer.Code, nil
		}
	}
}

// resolve turns offset and sub-offset into the fork's first own byte and record
// (PROTOCOL.md §4.2). A sub-offset counts messages for JSON, else bytes within the
// message that the offset points at; what it shortens is one record.
func (e *Engine) resolve(v *View, ev *core.Event) (*record.Fork, core.Code, error) {
	spec := ev.Fork
	if !spec.InheritType && string(ev.MediaType) != v.MediaType {
		return nil, core.ForkTypeMismatch, nil
	}
	f := &record.Fork{
		Source: v.ID, Bucket: spec.Bucket, Name: spec.Name, ReqOffset: spec.Offset, HasReqOffset: spec.HasOffset, Sub: spec.Sub,
		TTL: v.TTL, ExpiresAt: v.ExpiresAt, Offset: v.Next,
	}
	if spec.HasOffset {
		f.Offset = spec.Offset
	}
	switch {
	case f.Offset > v.Next:
		return nil, core.ForkOffsetInvalid, nil
	case f.Offset < v.First:
		return nil, core.SnapshotTrimmed, nil
	}
	exact, rec, err := e.Boundary(context.Background(), v, f.Offset, false)
	if err != nil {
		return nil, 0, err
	}
	if v.JSON && !exact {
		return nil, core.ForkOffsetInvalid, nil
	}
	ok := true
	if spec.Sub > 0 {
		f.Offset, exact, rec, ok, err = e.advance(v, f.Offset, rec, spec.Sub)
	}
	if err != nil || !ok {
		return nil, core.ForkOffsetInvalid, err
	}
	if f.Record = rec; !exact {
		f.Record++
	}
	return f, 0, nil
}

// advance goes sub messages, or bytes of one message, beyond off. ok is false when
// there are fewer.
func (e *Engine) advance(v *View, off base.Offset, rec, sub uint64) (to base.Offset, exact bool, record uint64, ok bool, err error) {
	if v.JSON {
		if sub > v.NextRecord-rec {
			return 0, false, 0, false, nil
		}
		off, err = e.RecordOffset(context.Background(), v, rec+sub, false)
		return off, true, rec + sub, err == nil, err
	}
	if off == v.Next {
		return 0, false, 0, false, nil
	}
	end, err := e.messageEnd(v, off)
	if err != nil || sub > uint64(end-off) {
		return 0, false, 0, false, err
	}
	to = off + base.Offset(sub)
	exact, record, err = e.Boundary(context.Background(), v, to, false)
	return to, exact, record, true, err
}

// messageEnd returns where the message ends that off lies in.
func (e *Engine) messageEnd(v *View, off base.Offset) (end base.Offset, err error) {
	err = e.atRun(context.Background(), v, off, false, func(b bounds) error {
		end, err = b.endOf(off)
		return err
	})
	return end, err
}
