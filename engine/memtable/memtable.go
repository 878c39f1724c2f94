// Package memtable keeps what the log holds and no segment does: the newest
// bytes, message ends and rows of each stream, for one generation.
//
// One goroutine writes, any number read at the same time. Readers bound what they
// look at by a published end offset and record ordinal, so that they only see
// what was written before those were published; payload never moves.
package memtable

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
)

const (
	stripes    = 64
	firstChunk = 256      // bytes of a stream's first chunk, at least
	maxChunk   = 64 << 10 // bytes of a chunk, unless a larger body was adopted
	blockLen   = 128      // entries that are allocated together
	entryBytes = 288      // estimate of what an entry takes, with its places in a map and in Entries
)

// Table is one generation. Entry and the writing methods of an Entry belong to
// one goroutine; Find and the reading methods are for all.
type Table struct {
	pool    *Pool
	slab    []byte // rest of the slab that chunks and rows are cut from
	slabs   [][]byte
	entries []Entry // rest of the last of blocks
	blocks  [][]Entry
	count   int // of entries
	bytes   int64
	stripes [stripes]stripe
}

type stripe struct {
	mu sync.RWMutex
	m  map[base.StreamID]*Entry
}

// New returns an empty table whose memory comes from pool.
func New(pool *Pool) *Table {
	t := &Table{pool: pool}
	pool.maps(&t.stripes)
	return t
}

// Bytes estimates the memory that the table takes. Writer only.
func (t *Table) Bytes() int64 { return t.bytes }

// Entry returns the entry of a stream, making it if need be. Writer only.
func (t *Table) Entry(id base.StreamID, kind uint8) *Entry {
	s := &t.stripes[uint64(id)%stripes]
	if e := s.m[id]; e != nil { // only the writer changes the map
		return e
	}
	e := t.newEntry(id, kind)
	s.mu.Lock()
	s.m[id] = e
	s.mu.Unlock()
	return e
}

// newEntry cuts an entry out of the current block.
func (t *Table) newEntry(id base.StreamID, kind uint8) *Entry {
	if len(t.entries) == 0 {
		t.entries = t.pool.block()
		t.blocks = append(t.blocks, t.entries)
	}
	e := &t.entries[0]
	t.entries = t.entries[1:]
	t.count++
	t.bytes += entryBytes
	e.table, e.id, e.kind = t, id, kind
	e.rows = e.inline.row[:0]
	return e
}

// Find returns the entry of a stream, or nil.
func (t *Table) Find(id base.StreamID) *Entry {
	s := &t.stripes[uint64(id)%stripes]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.m[id]
}

// Entries returns all entries by ascending id. Only when nobody writes any more.
func (t *Table) Entries() []*Entry {
	type place struct { // to be sorted without a look at the entries
		id base.StreamID
		e  *Entry
	}
	places := make([]place, 0, t.count)
	for i := range t.stripes {
		for id, e := range t.stripes[i].m {
			places = append(places, place{id, e})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.id, b.id) })
	all := make([]*Entry, len(places))
	for i := range places {
		all[i] = places[i].e
	}
	return all
}

// Release gives the table's memory back to the pool. Nobody may read it any more, not
// even an entry or a run.
func (t *Table) Release() {
	if invariants.Enabled { // whoever reads on gets nonsense, not what was there
		for _, b := range t.slabs {
			for i := range b {
				b[i] = 0xdd
			}
		}
	}
	for _, b := range t.blocks {
		clear(b) // what they refer to is not to stay with the pool
	}
	for i := range t.stripes {
		clear(t.stripes[i].m)
	}
	t.pool.put(t)
	t.slabs, t.slab, t.blocks, t.entries = nil, nil, nil, nil
}

// chunk cuts n bytes out of the current slab.
func (t *Table) chunk(n int) []byte {
	if n > len(t.slab) {
		t.slab = t.pool.get()
		t.slabs = append(t.slabs, t.slab)
	}
	c := t.slab[:n:n]
	t.slab = t.slab[n:]
	return c
}

// Entry is one stream's part of a generation. Where there are many streams, most
// entries get one write and are flushed: what that takes is in the entry itself.
type Entry struct {
	table *Table
	id    base.StreamID
	run   atomic.Pointer[Run] // nil: no bytes in this generation
	end   base.Offset         // writer: end of the bytes
	used  uint32              // writer: bytes used of the last chunk
	n     uint32              // writer: messages
	kind  uint8
	born  bool // the stream began in this generation
	dead  bool // the stream has gone: only its tombstone is left to flush

	rows  []row          // writer, until nobody writes any more
	byKey map[string]int // index in rows, once there are more than fewRows

	inline struct {
		run    Run // the first, until there is a second chunk or there are more ends
		chunks [1]piece
		ends   [4]uint32
		row    [1]row
	}
}

// ID returns the stream.
func (e *Entry) ID() base.StreamID { return e.id }

// Kind returns the group that the stream is flushed with.
func (e *Entry) Kind() uint8 { return e.kind }

// Begin says that the stream begins in this generation.
func (e *Entry) Begin() { e.born = true }

// Began reports that the stream began in this generation: no other knows it.
func (e *Entry) Began() bool { return e.born }

// Dead reports that the stream has gone and only its rows count.
func (e *Entry) Dead() bool { return e.dead }

// Append adds the bytes of a write, whose first byte has the given offset and
// whose first message the given ordinal. ends are relative to body. With owned,
// body is kept as it is; otherwise it is copied.
func (e *Entry) Append(off base.Offset, ordinal uint64, body []byte, ends []uint32, owned bool) {
	if len(body) == 0 {
		return
	}
	r := e.run.Load()
	first := r == nil
	if first {
		r = e.firstRun(off, ordinal)
	}
	if invariants.Enabled {
		e.checkAppend(off, ordinal, body, ends, r)
	}
	before := uint32(e.end - r.start)
	chunks := r.chunks
	if owned && len(body) > maxChunk {
		chunks = append(chunks, piece{start: e.end, buf: body})
		e.end += base.Offset(len(body))
		e.used = uint32(len(body))
		e.table.bytes += int64(len(body))
	} else {
		chunks = e.copyIn(chunks, body)
	}
	n, all := int(e.n), r.ends
	if n+len(ends) > len(all) {
		all = make([]uint32, max(2*len(r.ends), n+len(ends)))
		copy(all, r.ends[:n])
		e.table.bytes += int64(4 * len(all))
	}
	for i, x := range ends {
		all[n+i] = before + x
	}
	e.n += uint32(len(ends))
	switch {
	case first: // nobody sees it yet
		r.chunks, r.ends = chunks, all
		e.run.Store(r)
	case len(chunks) != len(r.chunks) || len(all) != len(r.ends):
		e.run.Store(&Run{start: r.start, first: r.first, chunks: chunks, ends: all})
	}
}

// firstRun returns the run that is in the entry, empty.
func (e *Entry) firstRun(off base.Offset, ordinal uint64) *Run {
	in := &e.inline
	e.end = off
	in.run = Run{start: off, first: ordinal, chunks: in.chunks[:0], ends: in.ends[:]}
	return &in.run
}

// checkAppend panics unless the write goes on where the last one ended.
func (e *Entry) checkAppend(off base.Offset, ordinal uint64, body []byte, ends []uint32, r *Run) {
	if off != e.end || ordinal != r.first+uint64(e.n) || e.dead {
		panic(fmt.Sprintf("memtable: stream %d gets byte %d, message %d after byte %d, message %d (dead %t)",
			e.id, off, ordinal, e.end, r.first+uint64(e.n), e.dead))
	}
	if len(ends) == 0 || int(ends[len(ends)-1]) != len(body) || !slices.IsSorted(ends) {
		panic(fmt.Sprintf("memtable: stream %d gets %d bytes with messages that end at %d", e.id, len(body), ends))
	}
}

// copyIn copies body into the last chunk and as many new ones as it takes.
func (e *Entry) copyIn(chunks []piece, body []byte) []piece {
	for len(body) > 0 {
		k := len(chunks) - 1
		if k < 0 || int(e.used) == len(chunks[k].buf) {
			size := firstChunk
			if k >= 0 {
				size = min(2*len(chunks[k].buf), maxChunk)
			}
			size = min(max(size, len(body)), maxChunk)
			chunks = append(chunks, piece{start: e.end, buf: e.table.chunk(size)})
			e.table.bytes += int64(size)
			e.used = 0
			k++
		}
		c := copy(chunks[k].buf[e.used:], body)
		body = body[c:]
		e.used += uint32(c)
		e.end += base.Offset(c)
	}
	return chunks
}

// Run is the contiguous bytes of a stream in one generation, as they were when it
// was loaded: what has been published by then is in it.
type Run struct {
	start  base.Offset
	first  uint64
	chunks []piece  // ascending
	ends   []uint32 // ends of messages relative to start, longer than what is filled in
}

type piece struct {
	start base.Offset
	buf   []byte
}

// Run returns the stream's bytes, or nil when the generation has none.
func (e *Entry) Run() *Run { return e.run.Load() }

// End returns where the bytes end and how many messages they are. Only when
// nobody writes any more.
func (e *Entry) End() (base.Offset, int) { return e.end, int(e.n) }

// Start returns the offset of the first byte.
func (r *Run) Start() base.Offset { return r.start }

// First returns the ordinal of the first message.
func (r *Run) First() uint64 { return r.first }

// Slices appends the bytes [from, to), which must be published and in the run.
func (r *Run) Slices(dst [][]byte, from, to base.Offset) [][]byte {
	i := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].start > from }) - 1
	for ; from < to; i++ {
		c := r.chunks[i]
		end := min(to, c.start+base.Offset(len(c.buf)))
		if i+1 < len(r.chunks) {
			end = min(end, r.chunks[i+1].start) // a body that was adopted leaves the chunk before it part empty
		}
		b := c.buf[from-c.start : end-c.start]
		dst = append(dst, b)
		from += base.Offset(len(b))
	}
	return dst
}

// Locate returns the ordinal of the message that off lies in, and whether it
// begins there. n is the number of published messages in the run.
func (r *Run) Locate(off base.Offset, n int) (ordinal uint64, exact bool) {
	rel := uint32(off - r.start)
	if rel == 0 {
		return r.first, true
	}
	i := sort.Search(n, func(i int) bool { return r.ends[i] >= rel })
	if i < n && r.ends[i] == rel {
		return r.first + uint64(i) + 1, true
	}
	return r.first + uint64(i), false
}

// Floor returns the largest end of a message at or below limit, or the start of
// the run if there is none. n is the number of published messages in the run.
func (r *Run) Floor(limit base.Offset, n int) base.Offset {
	rel := uint64(limit - r.start)
	i := sort.Search(n, func(i int) bool { return uint64(r.ends[i]) > rel })
	if i == 0 {
		return r.start
	}
	return r.start + base.Offset(r.ends[i-1])
}

// EndOf returns where the message ends that off lies in, or false when it is not
// among the n published ones.
func (r *Run) EndOf(off base.Offset, n int) (base.Offset, bool) {
	rel := uint32(off - r.start)
	i := sort.Search(n, func(i int) bool { return r.ends[i] > rel })
	if i == n {
		return 0, false
	}
	return r.start + base.Offset(r.ends[i]), true
}

// Ends calls yield with the end of each of the first n messages.
func (r *Run) Ends(n int, yield func(base.Offset) error) error {
	for _, x := range r.ends[:n] {
		if err := yield(r.start + base.Offset(x)); err != nil {
			return err
		}
	}
	return nil
}
