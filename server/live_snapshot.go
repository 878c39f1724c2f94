package server

import (
	"context"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/protocol"
)

// bootSnapshot is a snapshot that goes out as the first event of a bootstrap. What
// happens to the stream meanwhile is said behind it, since an event can't be left
// unfinished.
type bootSnapshot struct {
	*core.Snapshot
	blob  *blob.Blob
	event protocol.SnapshotEvent
	pos   int64 // bytes of the snapshot that have been sent
	begun bool
}

// closeBoot lets go of the snapshot, if there is one.
func (r *reader) closeBoot() {
	if r.boot != nil {
		r.boot.blob.Release()
		r.boot = nil
	}
}

// snapshotPiece is how much of a snapshot goes out at once, in bytes.
const snapshotPiece = 64 << 10

// sendSnapshot sends what the socket takes of a reader's snapshot. r.boot is nil once all
// of it is out.
func (e *encoder) sendSnapshot(r *reader, mem bool) result {
	if mem {
		return needsDisk
	}
	b := r.boot
	for {
		n := min(b.Size-b.pos, snapshotPiece)
		var err error
		if e.raw, err = b.blob.Append(context.Background(), e.raw[:0], b.pos, int(n)); err != nil {
			e.reportDamage(r.id, b.Offset, err)
			r.x.Abort() // the client must not take what it has got for the snapshot
			return finished
		}
		e.scratch = e.scratch[:0]
		if !b.begun {
			b.begun = true
			e.scratch = b.event.Begin(e.scratch, b.ContentType)
		}
		e.scratch = b.event.Append(e.scratch, e.raw)
		b.pos += n
		done := b.pos == b.Size
		if done {
			e.scratch = b.event.End(e.scratch, uint64(b.Offset))
			r.closeBoot()
		}
		r.sent = e.now
		if len(e.scratch) > 0 { // a piece may have nothing but the beginning of a code point
			switch r.x.Send(e.scratch) {
			case Pending:
				return stalled
			case Gone:
				return finished
			}
		}
		if done || e.late() {
			return unfinished
		}
	}
}
