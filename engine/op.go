package engine

import (
	"sync"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// Op is one operation on its way to a shard and back. Its owner fills Event and
// Done, and Stream for everything but a create; from Submit to Done it belongs to
// the engine. It may then be used again.
type Op struct {
	Event  core.Event
	Answer core.Answer
	Stream *Stream
	// Done is called exactly once, when nothing of the answer can be lost any more,
	// on the turn or the disk goroutine: it must not block.
	Done func(*Op)
	User any // the owner's

	rec     record.Record
	head    []byte
	lineage []ancestor // of a fork that is being made
}

// BodySum returns the checksum that Event.BodySum wants.
func BodySum(body []byte) uint64 { return bin.Sum(body) }

// companions is the room for records that may go with an operation: an expiry
// before it and the end of an idle producer.
const companions = 2*(64+128) + 2*record.MaxProducerID/16

// bound returns the most bytes that the operation takes in the log.
func (o *Op) bound() int64 {
	ev := &o.Event
	head := 96 + len(ev.Bucket) + len(ev.Name) + len(ev.ContentType) + len(ev.MediaType) + len(ev.Producer.ID) + len(ev.StreamSeq)
	if len(ev.Ends) > 1 {
		head += 5 * len(ev.Ends)
		head = min(head, 96+4*len(ev.Ends)+len(ev.Body)/64)
	}
	if f := ev.Fork; f != nil {
		head += 128 + len(f.Bucket) + len(f.Name)
	}
	n := wal.RecordBytes(head, len(ev.Body)) + companions
	if ev.Op == core.OpAppend && ev.Producer.Set {
		n += record.MaxProducerID
	}
	return n
}

// Submit hands an operation to its shard. When it returns an error the operation
// has not been taken: ErrOverloaded, ErrClosed or ErrFailed. It does not block.
func (e *Engine) Submit(o *Op) error {
	if err := e.Err(); err != nil {
		return ErrFailed
	}
	ev := &o.Event
	if ev.Op == core.OpCreate {
		if ev.Fork != nil && ev.Fork.Resolved == nil {
			return e.submitFork(o)
		}
		var buf [256]byte
		return e.shardOf(appendKey(buf[:0], ev.Bucket, ev.Name)).submit(o)
	}
	if o.Stream == nil {
		o.Answer = core.Answer{Code: core.NotFound}
		o.Done(o)
		return nil
	}
	return o.Stream.shard.submit(o)
}

// Do submits an operation and waits for its answer. o.Done is set by Do.
func (e *Engine) Do(o *Op) error {
	done := make(chan struct{})
	var once sync.Once
	o.Done = func(*Op) { once.Do(func() { close(done) }) }
	if err := e.Submit(o); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-e.failed:
		return ErrFailed
	}
}
