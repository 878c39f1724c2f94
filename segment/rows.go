package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// A Row is the newest state of one key of a stream, in the generation that the
// segment holds. This package gives no meaning to key and value.
type Row struct {
	Key     []byte   // unique within the stream; at most MaxKeyBytes
	LSN     base.LSN // of the record that set it
	Value   []byte   // at most MaxValueBytes
	Removed bool     // the key was removed; it hides older rows of the key
}

// A row, in order of the keys, bytewise:
//
//	┌────────────────────┬─────────┬────────────┬─────┬──────────────┬───────┐
//	│ type u8: 1 set,    │ LSN     │ key bytes  │ key │ value bytes  │ value │
//	│ 2 removed          │ uvarint │ uvarint    │     │ uvarint      │       │
//	└────────────────────┴─────────┴────────────┴─────┴──────────────┴───────┘
const (
	rowSet     = 1
	rowRemoved = 2

	maxRowHead = 1 + 3*maxUvarint // what a row takes besides key and value
)

func appendRow(dst []byte, r Row) []byte {
	typ := byte(rowSet)
	if r.Removed {
		typ = rowRemoved
	}
	dst = append(dst, typ)
	dst = bin.AppendUvarint(dst, uint64(r.LSN))
	dst = bin.AppendBytes(dst, r.Key)
	return bin.AppendBytes(dst, r.Value)
}

// decodeRow decodes the row at the front of p, whose slices it refers to, and
// returns its length. The error matches bin.ErrShort if p ends within the row.
func decodeRow(p []byte) (Row, int, error) {
	d := bin.NewDecoder(p)
	typ := d.U8()
	r := Row{LSN: base.LSN(d.Uvarint()), Removed: typ == rowRemoved}
	r.Key = d.Bytes(MaxKeyBytes)
	r.Value = d.Bytes(MaxValueBytes)
	switch {
	case len(p) > 0 && typ != rowSet && typ != rowRemoved:
		return Row{}, 0, fmt.Errorf("row type %d", typ)
	case d.Err() != nil:
		return Row{}, 0, d.Err()
	}
	return r, len(p) - d.Len(), nil
}

// A StreamRow is a row and the stream that it belongs to.
type StreamRow struct {
	Stream base.StreamID
	Row
}

// Rows yields the rows of st, which must be of this segment, by ascending keys,
// verified. A row's slices are valid until the next one. It stops after an error,
// a CorruptionError if the rows are damaged.
func (s *Segment) Rows(st Stream) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if err := s.checkRows(st); err != nil {
			yield(Row{}, err)
			return
		}
		end := st.rows.pos + st.rows.n
		r := rowReader{s: s, next: st.rows.pos, end: end}
		r.each(end, yield)
	}
}

// checkRows returns ErrRange unless st is of this segment.
func (s *Segment) checkRows(st Stream) error {
	if st.Extent.Segment != s.lay.id || !within(st.rows.pos, st.rows.n, s.lay.rows) {
		return fmt.Errorf("segment %s: rows of a stream that is not of this segment: %w", s.content.name, ErrRange)
	}
	return nil
}

// AllRows yields the rows of all streams, by ascending ids and keys, verified, with
// a few large reads: what a start reads. Slices and errors are as for Rows.
func (s *Segment) AllRows() iter.Seq2[StreamRow, error] {
	return func(yield func(StreamRow, error) bool) {
		r := rowReader{s: s, end: s.lay.rows}
		for i := range s.Len() {
			id := s.table[i].id
			if !r.each(s.table[i+1].rowsPos, func(row Row, err error) bool {
				return yield(StreamRow{id, row}, err)
			}) {
				return
			}
		}
	}
}

// rowReader reads rows from a part of the rows region, one after the other.
type rowReader struct {
	s    *Segment
	buf  []byte // read and not yet decoded
	next int64  // position in the region after buf
	end  int64  // of the part to read
}

// each yields the rows up to a position in the region. It returns false after an
// error or when yield wants no more.
func (r *rowReader) each(end int64, yield func(Row, error) bool) bool {
	for {
		pos := r.next - int64(len(r.buf))
		if pos == end {
			return true
		}
		if len(r.buf) == 0 && r.next < r.end {
			if err := r.fill(); err != nil {
				yield(Row{}, err)
				return false
			}
		}
		row, n, err := decodeRow(r.buf[:min(int64(len(r.buf)), end-pos)])
		switch {
		case err == nil:
			r.buf = r.buf[n:]
		case errors.Is(err, bin.ErrShort) && r.next < end:
			if err = r.fill(); err == nil {
				continue
			}
		default:
			err = &base.CorruptionError{Path: r.s.content.name, Offset: r.s.content.rows.pos + pos, Detail: "row: " + err.Error()}
		}
		if !yield(row, err) || err != nil {
			return false
		}
	}
}

// fill reads on to the end of a block, so that a pass over the region reads each
// block once and in one piece.
func (r *rowReader) fill() error {
	_, _, to := r.s.content.rows.block(r.next)
	n := min(to, r.end) - r.next
	whole := make([]byte, 0, len(r.buf)+int(n))
	whole = append(whole, r.buf...)
	whole, err := r.s.content.read(context.Background(), whole, r.s.content.rows, r.next, int(n))
	if err != nil {
		return err
	}
	r.buf = whole
	r.next += n
	return nil
}
