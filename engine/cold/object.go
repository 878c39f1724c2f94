package cold

import (
	"context"
	"fmt"
	"io"
)

// An Object is one object of the store, read through its Cache.
type Object struct {
	c    *Cache
	key  string
	size int64
}

// Size returns the size of the object, in bytes, as it was given.
func (o *Object) Size() int64 { return o.size }

// ReadAt is ReadContext without an end.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	return o.ReadContext(context.Background(), p, off)
}

// ReadContext fills p with the bytes of the object from off on, as io.ReaderAt says:
// with io.EOF where the object ends before p. What is not held is fetched, several
// pieces at a time; when ctx ends first, ReadContext returns its error, and what only
// this reader waited for is given up. Bytes are as the store gave them: the caller
// verifies. Errors match ErrUnavailable, tiering.ErrNotFound or tiering.ErrShort.
func (o *Object) ReadContext(ctx context.Context, p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, fmt.Errorf("cold: read of object %s at byte %d", o.key, off)
	case len(p) == 0:
		return 0, nil
	case off >= o.size:
		return 0, io.EOF
	}
	whole := len(p)
	p = p[:min(int64(whole), o.size-off)]
	n, err := o.read(ctx, p, off)
	switch {
	case err != nil:
		return n, fmt.Errorf("cold: read: %w", err)
	case n < whole:
		return n, io.EOF
	}
	return n, nil
}

// Discard says that the n bytes from off on did not verify: what is held of them is
// dropped, so that the next read fetches them anew.
func (o *Object) Discard(off, n int64) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[o.key]
	if e == nil || n <= 0 {
		return
	}
	for i := off / c.o.PieceBytes; i <= (off+n-1)/c.o.PieceBytes; i++ {
		if p := e.pieces[i]; p != nil && p.state == held {
			c.detach(p)
		}
	}
	c.dispatch()
}

// A reader is one call of ReadContext: it takes one piece after the other and has asked
// for several from there on. It pins only the first of them: if it held on to others
// while it waits for one, readers could take all memory and wait for each other.
type reader struct {
	o     *Object
	e     *entry
	next  int64    // index of asked[0], or of the next piece to ask for
	last  int64    // index of the last piece of the read
	asked []*piece // of each, wants counts this reader
}

func (o *Object) read(ctx context.Context, p []byte, off int64) (n int, err error) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, errClosed
	}
	end := off + int64(len(p))
	r := &reader{o: o, e: c.entry(o.key), next: off / c.o.PieceBytes, last: (end - 1) / c.o.PieceBytes}
	r.e.readers++
	run := c.follow(r.e, off, end)
	r.ask()
	c.readAhead(run, o.size)
	defer func() {
		if ctx.Err() != nil {
			c.endRun(run)
		}
		r.drop()
	}()
	for n < len(p) {
		r.ask()
		piece, err := r.take(ctx)
		if err != nil {
			return n, err
		}
		c.mu.Unlock()
		n += copy(p[n:], piece.buf[off+int64(n)-piece.index*c.o.PieceBytes:])
		c.mu.Lock()
		piece.pins--
		c.place(piece)
	}
	return n, nil
}

// entry returns what there is of the object key.
func (c *Cache) entry(key string) *entry {
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, pieces: map[int64]*piece{}}
		c.entries[key] = e
	}
	return e
}

// ask wants pieces from next on: as many as are fetched at once, and again as many, so
// that the next ones are in the queue when a GET ends.
func (r *reader) ask() {
	c := r.o.c
	ahead := min(2*int64(c.o.Parallel), max(c.o.Bytes/c.o.PieceBytes, 1))
	for i := r.next + int64(len(r.asked)); i <= min(r.last, r.next+ahead-1); i++ {
		r.asked = append(r.asked, r.want(i))
	}
}

// want finds or makes the piece i, for this reader too.
func (r *reader) want(i int64) *piece {
	c := r.o.c
	p := r.e.pieces[i]
	if p != nil && p.len != c.length(i, r.o.size) { // of an Object with another size
		c.detach(p)
		p = nil
	}
	switch {
	case p == nil:
		p = c.add(r.e, i, r.o.size)
		c.stats.Misses++
	case p.state == held:
		c.stats.Hits++
	default:
		c.stats.Coalesced++
	}
	c.setAhead(p, nil)
	p.wants++
	c.place(p)
	return p
}

// take waits for the next piece and returns it pinned. The lock is released meanwhile.
func (r *reader) take(ctx context.Context) (*piece, error) {
	c := r.o.c
	for {
		switch {
		case c.closed:
			return nil, errClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		p := r.asked[0]
		if p.state == gone { // evicted before its turn
			p.wants--
			p = r.want(r.next)
			r.asked[0] = p
		}
		p.pins++
		c.place(p)
		c.dispatch()
		if p.state == queued || p.state == fetching {
			c.mu.Unlock()
			select {
			case <-p.ready:
			case <-ctx.Done():
			}
			c.mu.Lock()
		}
		if p.state == held || p.state == failed {
			r.asked, r.next = r.asked[1:], r.next+1
			p.wants--
			if p.state == held {
				return p, nil
			}
			p.pins--
			return nil, p.err
		}
		p.pins--
		c.place(p)
	}
}

// drop gives up what was asked for and not taken.
func (r *reader) drop() {
	c := r.o.c
	for _, p := range r.asked {
		p.wants--
		c.place(p)
	}
	r.e.readers--
	c.tidy(r.e)
	c.dispatch()
}
