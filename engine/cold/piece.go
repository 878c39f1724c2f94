package cold

import (
	"context"
	"errors"
	"fmt"

	"github.com/snakream/snakream/tiering"
)

// state is how far a piece is. It goes forward only.
type state uint8

const (
	queued   state = iota // no memory yet
	fetching              // memory, and a GET
	held                  // has its bytes
	failed                // has its error; no memory
	gone                  // evicted, or given up; no memory
)

// A piece is a part of an object, from a multiple of PieceBytes on. Its fields are
// guarded by Cache.mu; buf is written by the GET before it is held, and then only read.
type piece struct {
	e     *entry
	index int64 // in the object; its offset is index × PieceBytes
	len   int64
	buf   []byte
	state state
	err   error
	ready chan struct{} // closed when it is held or failed
	stop  context.CancelFunc

	attached bool // in e.pieces: a new reader finds it
	doomed   bool // its GET is cancelled
	// wants counts the readers that have asked for it and not got it: it is not given up.
	// pins counts those of them that wait for it and no other, or copy it: once held, it
	// is not evicted. Who pins a piece that is held waits for nothing, so that pinned
	// memory always comes back.
	wants, pins int
	ahead       *run // for which it was asked ahead; nil once a reader wants it

	in         *pieces
	prev, next *piece
}

// pieces is a list of pieces. A piece is in one at most.
type pieces struct {
	first, last *piece
	n           int
}

func (l *pieces) push(p *piece) {
	p.in, p.prev, p.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = p
	} else {
		l.last = p
	}
	l.first = p
	l.n++
}

func (l *pieces) append(p *piece) {
	p.in, p.prev, p.next = l, l.last, nil
	if l.last != nil {
		l.last.next = p
	} else {
		l.first = p
	}
	l.last = p
	l.n++
}

func (p *piece) unlink() {
	l := p.in
	if l == nil {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	l.n--
	p.in, p.prev, p.next = nil, nil, nil
}

// add makes a piece of e that is to be fetched, and that has no list yet.
func (c *Cache) add(e *entry, index, size int64) *piece {
	p := &piece{e: e, index: index, len: c.length(index, size), ready: make(chan struct{}), attached: true}
	e.pieces[index] = p
	return p
}

// length returns the bytes of the piece index of an object.
func (c *Cache) length(index, size int64) int64 {
	return min(c.o.PieceBytes, size-index*c.o.PieceBytes)
}

// place puts p into the list where its state, readers and run say that it belongs, and
// gives it up when nothing speaks for it. It is called after each change of these.
func (c *Cache) place(p *piece) {
	var to *pieces
	wanted, ahead := p.wants > 0, p.ahead != nil
	switch {
	case p.state == queued && wanted:
		to = &c.demand
	case p.state == queued && ahead:
		to = &c.aheadOf
	case p.state == queued:
		p.state = gone
	case p.state == fetching && !wanted && ahead:
		to = &c.aheadGets
	case p.state == fetching && !wanted && !p.doomed:
		p.doomed = true
		c.doomed += p.len
		c.stats.Cancelled++
		p.stop()
	case p.state == held && p.pins > 0:
		to = &c.pinned
	case p.state == held && !p.attached:
		c.release(p)
		p.state = gone
	case p.state == held && wanted:
		to = &c.awaited
	case p.state == held:
		to = &c.recent
	}
	if to != p.in {
		p.unlink()
		if to != nil {
			to.push(p)
		}
	}
	if p.attached && (p.state == gone || p.doomed) {
		c.detach(p)
	}
}

// detach takes p out of the cache: no new reader finds it. Those that want it already
// still get it, unless it is failed or gone.
func (c *Cache) detach(p *piece) {
	if !p.attached {
		return
	}
	p.attached = false
	delete(p.e.pieces, p.index)
	c.setAhead(p, nil)
	c.place(p)
	c.tidy(p.e)
}

// evict drops p, which is held and not pinned.
func (c *Cache) evict(p *piece) {
	c.release(p)
	p.state = gone
	c.place(p)
}

// tidy drops e when there is nothing in it and nobody uses it.
func (c *Cache) tidy(e *entry) {
	if len(e.pieces) == 0 && len(e.runs) == 0 && e.readers == 0 {
		delete(c.entries, e.key)
	}
}

// dispatch starts GETs as long as there are pieces to fetch, room for them and GETs to
// spare. It is called whenever one of these may have grown.
func (c *Cache) dispatch() {
	for !c.closed && c.running < c.o.Parallel {
		p := c.demand.last
		if p == nil {
			p = c.aheadOf.last
			if p == nil || c.aheadGets.n >= max(c.o.Parallel-1, 1) {
				return
			}
		}
		if !c.allocate(p) {
			return
		}
		ctx, stop := context.WithTimeout(c.ctx, c.o.Timeout)
		p.stop, p.state = stop, fetching
		c.running++
		c.stats.Fetches++
		if p.wants == 0 {
			c.stats.Ahead++
		}
		c.place(p)
		c.gets.Go(func() { c.fetch(ctx, p) })
	}
}

// fetch is the goroutine of one GET: it ends by itself or with ctx.
func (c *Cache) fetch(ctx context.Context, p *piece) {
	off := p.index * c.o.PieceBytes
	err := c.store.Get(ctx, p.e.key, p.buf, off)
	late := ctx.Err() == context.DeadlineExceeded
	p.stop()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if p.doomed {
		c.doomed -= p.len
	}
	if err == nil {
		c.noteHealth(nil)
		c.stats.BytesFetched += p.len
		p.state = held
		c.place(p)
		close(p.ready)
	} else {
		c.release(p)
		if !p.doomed && !c.closed {
			c.stats.Failed++
		}
		c.fail(p, c.explain(p, off, err, late))
	}
	c.dispatch()
}

// explain says to readers why p could not be fetched. An end of the GET's own context
// must not look like that of theirs.
func (c *Cache) explain(p *piece, off int64, err error, late bool) error {
	switch what := fmt.Sprintf("object %s at byte %d", p.e.key, off); {
	case c.closed:
		return errClosed
	case late:
		err = fmt.Errorf("%w: %s: no answer within %v", ErrUnavailable, what, c.o.Timeout)
	case errors.Is(err, tiering.ErrNotFound) || errors.Is(err, tiering.ErrShort):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %s: %v", ErrUnavailable, what, err)
	default:
		err = fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
	}
	if !p.doomed {
		c.noteHealth(err)
	}
	return err
}

// noteHealth logs when the store begins to fail, and when it answers again.
func (c *Cache) noteHealth(err error) {
	if failing := err != nil; failing != c.failing {
		c.failing = failing
		if failing {
			c.o.Logger.Warn("object store fails, reads of old data get 503", "store", c.store.String(), "err", err)
		} else {
			c.o.Logger.Info("object store answers again", "store", c.store.String())
		}
	}
}
