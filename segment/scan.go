package segment

import (
	"context"
	"fmt"
	"iter"
)

// A Scan reads what a segment holds for a pass over its streams by ascending ids: a
// block once and in one piece, of however many streams it is. It works in any other
// order too, at a read for each call. Not for concurrent use.
type Scan struct {
	s    *Segment
	rows rowReader

	ahead []byte // verified payload, …
	pos   int64  // … from this position on
}

// Scan returns a scan that has read nothing yet.
func (s *Segment) Scan() *Scan {
	return &Scan{s: s, rows: rowReader{s: s, end: s.lay.rows}}
}

// Rows is that of the segment.
func (c *Scan) Rows(st Stream) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if err := c.s.checkRows(st); err != nil {
			yield(Row{}, err)
			return
		}
		if r := &c.rows; r.next-int64(len(r.buf)) != st.rows.pos {
			*r = rowReader{s: c.s, next: st.rows.pos, end: c.s.lay.rows}
		}
		c.rows.each(st.rows.pos+st.rows.n, yield)
	}
}

// Payload returns the n bytes of the payload region from pos on, valid until the next
// call. Its errors are those of Segment.AppendPayload.
func (c *Scan) Payload(ctx context.Context, pos int64, n int) ([]byte, error) {
	s := c.s
	if !within(pos, int64(n), s.lay.payload) {
		return nil, fmt.Errorf("segment %s: payload [%d, +%d) of %d bytes: %w", s.content.name, pos, n, s.lay.payload, ErrRange)
	}
	if n == 0 {
		return nil, nil
	}
	end := pos + int64(n)
	if pos < c.pos || end > c.pos+int64(len(c.ahead)) {
		to := end
		if n < BlockBytes {
			_, _, to = s.content.data.block(end - 1)
		}
		var err error
		if c.ahead, err = s.content.read(ctx, c.ahead[:0], s.content.data, pos, int(to-pos)); err != nil {
			return nil, err
		}
		c.pos = pos
	}
	return c.ahead[pos-c.pos : end-c.pos], nil
}
