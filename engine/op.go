package engine

import (
	"fmt"
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
	lineage *ancestor // of a fork that is being made
	own     bool      // the engine's
	turn    int       // see Turn
}

// Turn returns on which shard's turn the answer is given. It is called by Done, and false
// when Done does not run on one.
func (o *Op) Turn() (shard int, ok bool) { return o.turn, o.turn != offTurn }

// finish gives the answer.
func (o *Op) finish(turn int) {
	o.turn = turn
	o.Done(o)
}

// BodySum returns the checksum that Event.BodySum wants.
func BodySum(body []byte) uint64 { return bin.Sum(body) }

// companions is the room for records that may go with an operation: an expiry
// before it and the end of an idle producer.
const companions = 2*(64+128) + 2*record.MaxProducerID/16

// bound returns the most bytes that the operation takes in the log.
func (o *Op) bound() int64 {
	ev := &o.Event
	head := 128 + len(ev.Bucket) + len(ev.Name) + len(ev.ContentType) + len(ev.MediaType) + len(ev.Producer.ID) + len(ev.StreamSeq)
	if f := ev.Fork; f != nil {
		head += 128 + len(f.Bucket) + len(f.Name)
	}
	n := wal.RecordBytes(head+len(ev.Attrs), 0) + companions
	switch ev.Op {
	case core.OpFreeze:
		n += freezeExpiries * expiryBytes
	case core.OpSnapshot:
		n += int64(len(ev.Snapshot.ContentType))
	}
	if ev.Op == core.OpAppend && ev.Producer.Set {
		n += record.MaxProducerID
	}
	if !ev.BodyFault {
		n += int64(len(ev.Body)) + endsBytes(int64(len(ev.Ends)), int64(len(ev.Body)))
	}
	return n
}

// endsBytes returns the most bytes that the ends of n messages take, body bytes
// together: one each, and one more for every 127 bytes beyond.
func endsBytes(n, body int64) int64 { return 8 + n + max(body-n, 0)/127 }

// check reports what would not fit the log, or could not be read back from it. It
// completes the event where a body is to be kept by reference.
func (e *Engine) check(o *Op) error {
	ev := &o.Event
	n := len(ev.Ends)
	switch {
	case ev.BodyFault:
	case (n > 0) != (len(ev.Body) > 0), n > 0 && int(ev.Ends[n-1]) != len(ev.Body):
		return fmt.Errorf("%w: %d ends of messages for a body of %d bytes", ErrInvalid, n, len(ev.Body))
	case len(ev.Body) > record.InlineBody && ev.BodySum == 0:
		ev.BodySum = bin.Sum(ev.Body)
	}
	if size, limit := o.bound(), e.shards[0].log.MaxBatch()-e.opts.expiryRoom(); size > limit {
		return fmt.Errorf("%w: it may take %d bytes in the log, %d is the limit", ErrInvalid, size, limit)
	}
	return nil
}

// Submit hands an operation to its shard. When it returns an error the operation
// has not been taken: ErrOverloaded, ErrClosed, ErrFailed, ErrFenced or ErrInvalid. It
// does not block.
func (e *Engine) Submit(o *Op) error {
	if err := e.Err(); err != nil {
		return ErrFailed
	}
	if e.fenced.Load() {
		return ErrFenced
	}
	if err := e.check(o); err != nil {
		return err
	}
	o.turn = offTurn
	ev := &o.Event
	if ev.Op == core.OpCreate {
		if ev.Name != "" && !ev.Loose && !e.hasBucket(ev.Bucket) {
			return e.submitInBucket(o)
		}
		return e.submitCreate(o)
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
