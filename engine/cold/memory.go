package cold

// allocate gives p its buffer, if there is room or room can be made. For readers it
// evicts what was used longest ago; ahead of readers it leaves alone what was itself
// fetched ahead and is still to be read.
func (c *Cache) allocate(p *piece) bool {
	for {
		n := len(c.spare)
		switch {
		case n > 0 && p.len == c.o.PieceBytes:
			p.buf = c.spare[n-1]
			c.spare[n-1] = nil
			c.spare = c.spare[:n-1]
			return true
		case c.memory+p.len <= c.o.Bytes:
			p.buf = make([]byte, p.len)
			c.memory += p.len
			return true
		case n > 0:
			c.spare[n-1] = nil
			c.spare = c.spare[:n-1]
			c.memory -= c.o.PieceBytes
		case !c.makeRoom(p):
			return false
		}
	}
}

// makeRoom evicts one piece in favour of p, or reports that p must wait: then a GET is
// under way or a piece is pinned, and when that ends dispatch is called again.
func (c *Cache) makeRoom(p *piece) bool {
	if v := c.recent.last; v != nil && (p.wants > 0 || v.ahead == nil) {
		c.evict(v)
		return true
	}
	if p.wants == 0 {
		return false
	}
	// What is being fetched ahead gives way. Its memory is free when its GET has returned.
	for v := c.aheadGets.first; v != nil && c.memory-c.doomed+p.len > c.o.Bytes; v = c.aheadGets.first {
		c.setAhead(v, nil)
		c.place(v)
	}
	// Everything may be held for readers that wait for something else first. If nothing
	// moves by itself any more, one of them has to fetch its piece again.
	if v := c.awaited.last; v != nil && c.running == 0 && c.pinned.n == 0 {
		c.evict(v)
		return true
	}
	return false
}

// release takes the buffer of p back. Nobody reads or writes it any more.
func (c *Cache) release(p *piece) {
	if p.len == c.o.PieceBytes {
		c.spare = append(c.spare, p.buf)
	} else {
		c.memory -= p.len
	}
	p.buf = nil
}
