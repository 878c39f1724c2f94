package cold

import (
	"container/list"
	"slices"
	"time"
)

const (
	// runSlack is how far a read may begin from where the last one ended and still
	// continue it: blocks at the edges of a step are read twice, small gaps are skipped.
	runSlack int64 = 128 << 10
	// runIdle is how long a reader may stay away and still count as one.
	runIdle = 30 * time.Second
	// maxRuns bounds the readers that are followed. The one that read longest ago is
	// forgotten first.
	maxRuns = 1024
)

// A run is a sequence of reads of which each begins about where the last one ended:
// most likely one reader that goes on. Its fields are guarded by Cache.mu.
type run struct {
	e     *entry
	next  int64 // where the last read ended
	bytes int64 // read in sequence so far, without the first read
	last  time.Time
	timer *time.Timer // ends it when it is idle; nil as long as nothing was read ahead
	place *list.Element
	ended bool
}

// follow notes a read of [off, end) and returns the run that it continues or begins.
func (c *Cache) follow(e *entry, off, end int64) *run {
	var r *run
	best := min(runSlack, c.o.PieceBytes/2) + 1
	for _, x := range e.runs {
		if d := max(off-x.next, x.next-off); d < best {
			r, best = x, d
		}
	}
	if r == nil {
		if c.runs.Len() >= maxRuns {
			c.endRun(c.runs.Back().Value.(*run))
		}
		r = &run{e: e, next: end}
		r.place = c.runs.PushFront(r)
		e.runs = append(e.runs, r)
	}
	r.bytes += max(end-r.next, 0)
	r.next, r.last = end, time.Now()
	c.runs.MoveToFront(r.place)
	if r.timer != nil {
		r.timer.Reset(runIdle)
	}
	return r
}

// readAhead asks for the pieces behind the last read of r: about as much as it has read
// already, so that a short read costs nothing and a long one soon has all it can use.
func (c *Cache) readAhead(r *run, size int64) {
	n := min((r.bytes+c.o.PieceBytes/2)/c.o.PieceBytes, int64(c.o.ReadAhead))
	first := (r.next-1)/c.o.PieceBytes + 1
	for i := first; i < first+n && i*c.o.PieceBytes < size; i++ {
		p := r.e.pieces[i]
		switch {
		case p == nil && c.aheads >= c.maxAhead:
			return
		case p == nil:
			p = c.add(r.e, i, size)
		case p.ahead == nil:
			continue
		}
		c.setAhead(p, r)
		c.place(p)
		if r.timer == nil {
			r.timer = time.AfterFunc(runIdle, func() { c.endIdle(r) })
		}
	}
}

// setAhead says for which run p was asked ahead, or, with nil, that it isn't any more.
func (c *Cache) setAhead(p *piece, r *run) {
	switch {
	case p.ahead == nil && r != nil:
		c.aheads++
	case p.ahead != nil && r == nil:
		c.aheads--
	}
	p.ahead = r
}

// endIdle is called by the run's timer.
func (c *Cache) endIdle(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(r.last) >= runIdle {
		c.endRun(r)
		c.dispatch()
	}
}

// endRun forgets r. What was asked ahead for it is given up, or evicted next.
func (c *Cache) endRun(r *run) {
	if r.ended {
		return
	}
	r.ended = true
	e := r.e
	c.runs.Remove(r.place)
	e.runs = slices.DeleteFunc(e.runs, func(x *run) bool { return x == r })
	if r.timer != nil {
		r.timer.Stop()
		for _, p := range e.pieces {
			if p.ahead != r {
				continue
			}
			c.setAhead(p, nil)
			c.place(p)
			if p.in == &c.recent {
				p.unlink()
				c.recent.append(p)
			}
		}
	}
	c.tidy(e)
}
