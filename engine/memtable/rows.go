package memtable

import (
	"bytes"
	"iter"
	"slices"

	"github.com/snakream/snakream/internal/base"
)

const (
	fewRows  = 8  // rows up to which looking at each is the fastest way
	rowBytes = 72 // estimate of what a row but the first takes besides its key and value
	spare    = 8  // bytes, at least, by which a value may grow in place: it is mostly numbers
)

// Row is one row of state, the newest of its key in this generation.
type Row struct {
	Key     []byte
	LSN     base.LSN
	Value   []byte
	Removed bool
}

// row is a Row as it is kept.
type row struct {
	buf     []byte // the key, then the value; of the table's slabs
	lsn     base.LSN
	key     uint32 // length
	removed bool
}

// Rows yields the rows by ascending key. Only when nobody writes any more; the slices
// are the table's.
func (e *Entry) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		slices.SortFunc(e.rows, func(a, b row) int { return bytes.Compare(a.buf[:a.key], b.buf[:b.key]) })
		for i := range e.rows {
			r := &e.rows[i]
			if !yield(Row{Key: r.buf[:r.key], LSN: r.lsn, Value: r.buf[r.key:], Removed: r.removed}) {
				return
			}
		}
	}
}

// SetRow sets a row; value and key are copied. A row that is there keeps its
// memory, so that the row of a busy stream's state allocates nothing.
func (e *Entry) SetRow(key []byte, lsn base.LSN, value []byte, removed bool) {
	r := e.row(key)
	if r == nil {
		r = e.addRow(key)
	}
	r.lsn, r.removed = lsn, removed
	if n := len(key) + len(value); n > cap(r.buf) {
		r.buf = e.table.rowMemory(max(n, 2*cap(r.buf)))
		copy(r.buf, key)
	}
	r.buf = append(r.buf[:len(key)], value...)
}

func (e *Entry) addRow(key []byte) *row {
	if e.byKey != nil {
		e.byKey[string(key)] = len(e.rows)
	}
	if len(e.rows) > 0 { // the first one's place is in the entry
		e.table.bytes += rowBytes
	}
	e.rows = append(e.rows, row{key: uint32(len(key))})
	return &e.rows[len(e.rows)-1]
}

// rowMemory returns room for n bytes of a row and a little more.
func (t *Table) rowMemory(n int) []byte {
	n = (n + spare + 7) &^ 7
	t.bytes += int64(n)
	if n > maxChunk {
		return make([]byte, n)
	}
	return t.chunk(n)
}

// row finds a row: by looking at each while they are few, by a map beyond that.
func (e *Entry) row(key []byte) *row {
	if e.byKey == nil && len(e.rows) > fewRows {
		e.byKey = make(map[string]int, 2*len(e.rows))
		for i := range e.rows {
			r := &e.rows[i]
			e.byKey[string(r.buf[:r.key])] = i
		}
	}
	if e.byKey != nil {
		if i, ok := e.byKey[string(key)]; ok {
			return &e.rows[i]
		}
		return nil
	}
	for i := range e.rows {
		if r := &e.rows[i]; string(r.buf[:r.key]) == string(key) {
			return r
		}
	}
	return nil
}

// Bury drops every row but a tombstone under key. The bytes stay readable for
// views that are older than the stream's end, and are not flushed.
func (e *Entry) Bury(key []byte, lsn base.LSN) {
	e.dead = true
	e.byKey = nil
	e.rows = e.inline.row[:0]
	e.SetRow(key, lsn, nil, true)
}
