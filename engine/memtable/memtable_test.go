package memtable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/snakream/snakream/internal/base"
)

// one is the ends of a single message.
func one(body []byte) []uint32 { return []uint32{uint32(len(body))} }

// contents returns the bytes [from, to) of a run.
func contents(r *Run, from, to base.Offset) []byte { return bytes.Join(r.Slices(nil, from, to), nil) }

func newTable() *Table { return New(new(Pool)) }

func TestEmpty(t *testing.T) {
	tab := newTable()
	if tab.Find(7) != nil || len(tab.Entries()) != 0 {
		t.Error("an empty table has an entry")
	}
	e := tab.Entry(7, 2)
	e.Append(100, 5, nil, nil, false)
	if e.Run() != nil {
		t.Error("an append of nothing made a run")
	}
	if end, n := e.End(); end != 0 || n != 0 {
		t.Errorf("no bytes end at %d, with %d messages", end, n)
	}
	if tab.Find(7) != e || tab.Entry(7, 1) != e || e.ID() != 7 || e.Kind() != 2 || e.Dead() {
		t.Error("the entry is not found as it was made")
	}
}

// Entries come by ascending id, whatever stripe they are in.
func TestEntriesAscend(t *testing.T) {
	tab := newTable()
	for _, id := range []base.StreamID{5, 1 << 60, 64, 1, 128, 65, 2} {
		tab.Entry(id, 0)
	}
	var got []base.StreamID
	for _, e := range tab.Entries() {
		got = append(got, e.ID())
	}
	if want := []base.StreamID{1, 2, 5, 64, 65, 128, 1 << 60}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

// A run begins where the generation's first write does, which may be anywhere.
func TestMessages(t *testing.T) {
	e := newTable().Entry(1, 0)
	e.Append(1000, 50, []byte("aabbb"), []uint32{2, 5}, false)
	e.Append(1005, 52, []byte("c"), []uint32{1}, false)
	r := e.Run()
	if r.Start() != 1000 || r.First() != 50 {
		t.Errorf("begins at byte %d, message %d", r.Start(), r.First())
	}
	if end, n := e.End(); end != 1006 || n != 3 {
		t.Errorf("ends at %d with %d messages", end, n)
	}
	for _, c := range []struct {
		off     base.Offset
		ordinal uint64
		exact   bool
		endOf   base.Offset
		floor   base.Offset
	}{
		{1000, 50, true, 1002, 1000},
		{1001, 50, false, 1002, 1000},
		{1002, 51, true, 1005, 1002},
		{1003, 51, false, 1005, 1002},
		{1004, 51, false, 1005, 1002},
		{1005, 52, true, 1006, 1005},
	} {
		if n, exact := r.Locate(c.off, 3); n != c.ordinal || exact != c.exact {
			t.Errorf("Locate(%d) = %d, %t, want %d, %t", c.off, n, exact, c.ordinal, c.exact)
		}
		if end, ok := r.EndOf(c.off, 3); end != c.endOf || !ok {
			t.Errorf("EndOf(%d) = %d, %t, want %d", c.off, end, ok, c.endOf)
		}
		if end := r.Floor(c.off, 3); end != c.floor {
			t.Errorf("Floor(%d) = %d, want %d", c.off, end, c.floor)
		}
	}
	// What is not published is not seen.
	if _, ok := r.EndOf(1002, 1); ok {
		t.Error("EndOf saw a message beyond the first")
	}
	if end := r.Floor(1006, 1); end != 1002 {
		t.Errorf("Floor saw %d beyond the first message", end)
	}
	var ends []base.Offset
	if err := r.Ends(2, func(x base.Offset) error { ends = append(ends, x); return nil }); err != nil || !slices.Equal(ends, []base.Offset{1002, 1005}) {
		t.Errorf("Ends of two = %d, %v", ends, err)
	}
	stop := errors.New("stop")
	if err := r.Ends(3, func(base.Offset) error { return stop }); err != stop {
		t.Errorf("Ends went on after an error: %v", err)
	}
}

// A large body that is handed over is kept, not copied; others are copied, so that
// their owner may use them again.
func TestOwnedBodies(t *testing.T) {
	for _, c := range []struct {
		size  int
		owned bool
		kept  bool
	}{
		{maxChunk + 1, true, true},
		{maxChunk, true, false},
		{maxChunk + 1, false, false},
		{10, true, false},
		{5 * maxChunk, false, false},
	} {
		t.Run(fmt.Sprintf("size=%d,owned=%t", c.size, c.owned), func(t *testing.T) {
			e := newTable().Entry(1, 0)
			e.Append(0, 0, []byte("before"), []uint32{6}, false)
			body := bytes.Repeat([]byte("x"), c.size)
			e.Append(6, 1, body, one(body), c.owned)
			e.Append(base.Offset(6+c.size), 2, []byte("after"), []uint32{5}, false)
			parts := e.Run().Slices(nil, 6, base.Offset(6+c.size))
			if kept := len(parts) == 1 && &parts[0][0] == &body[0]; kept != c.kept {
				t.Errorf("kept = %t, want %t", kept, c.kept)
			}
			want := "before" + string(body) + "after"
			if !c.kept {
				clear(body)
			}
			if got := contents(e.Run(), 0, base.Offset(len(want))); string(got) != want {
				t.Error("the bytes are not what was appended")
			}
			if n := e.table.Bytes(); n < int64(len(want)) {
				t.Errorf("%d bytes are estimated at %d", len(want), n)
			}
		})
	}
}

// A slice that a reader holds stays as it is: payload never moves.
func TestPayloadNeverMoves(t *testing.T) {
	e := newTable().Entry(1, 0)
	e.Append(0, 0, []byte("first"), []uint32{5}, false)
	early := e.Run()
	held := early.Slices(nil, 0, 5)[0]
	off := base.Offset(5)
	for i := range 10_000 {
		body := fmt.Appendf(nil, "message %d", i)
		e.Append(off, uint64(i+1), body, one(body), false)
		off += base.Offset(len(body))
	}
	now := e.Run().Slices(nil, 0, 5)[0]
	if &held[0] != &now[0] || string(held) != "first" {
		t.Error("the first bytes have moved")
	}
	if got := contents(early, 0, 5); string(got) != "first" {
		t.Errorf("a run that was loaded early shows %q", got)
	}
}

// Slabs go back to the pool and are used again; a pool keeps a bounded number.
func TestPool(t *testing.T) {
	var p Pool
	fill := func(slabs int) *Table {
		tab := New(&p)
		body := make([]byte, maxChunk)
		e := tab.Entry(1, 0)
		for i := range slabs * slabBytes / maxChunk {
			e.Append(base.Offset(i*maxChunk), uint64(i), body, one(body), false)
		}
		return tab
	}
	tab := fill(2)
	slab := &tab.slabs[0][0]
	tab.Release()
	if len(p.free) != 2 {
		t.Errorf("%d slabs came back, not 2", len(p.free))
	}
	again := fill(2)
	if !slices.ContainsFunc(again.slabs, func(b []byte) bool { return &b[0] == slab }) || len(p.free) != 0 {
		t.Error("the slabs were not used again")
	}
	again.Release()
	fill(maxFree + 5).Release()
	if len(p.free) != maxFree {
		t.Errorf("the pool keeps %d slabs, not %d", len(p.free), maxFree)
	}
}

func TestRows(t *testing.T) {
	for _, n := range []int{1, fewRows - 1, fewRows, fewRows + 1, fewRows + 2, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			e := newTable().Entry(1, 0)
			key := func(i int) []byte { return fmt.Appendf(nil, "key %06d", i*7919%n) }
			buf := []byte("a value whose memory is used again")
			for round := range 3 {
				for i := range n {
					copy(buf, fmt.Sprintf("%06d", i))
					k := key(i)
					e.SetRow(k, base.LSN(round*n+i+1), buf[:6+round], round == 1)
					clear(k)
				}
			}
			rows := slices.Collect(e.Rows())
			if len(rows) != n {
				t.Fatalf("%d rows, not %d", len(rows), n)
			}
			for i, r := range rows {
				if i > 0 && bytes.Compare(rows[i-1].Key, r.Key) >= 0 {
					t.Fatalf("rows %q and %q are not in order", rows[i-1].Key, r.Key)
				}
			}
			for i := range n {
				at, ok := slices.BinarySearchFunc(rows, key(i), func(r Row, k []byte) int { return bytes.Compare(r.Key, k) })
				if !ok {
					t.Fatalf("row %q is missing", key(i))
				}
				if r := rows[at]; r.LSN != base.LSN(2*n+i+1) || len(r.Value) != 8 || string(r.Value[:6]) != fmt.Sprintf("%06d", i) || r.Removed {
					t.Fatalf("row %q is not its newest: %+v", r.Key, r)
				}
			}
		})
	}
}

// A stream that has gone leaves its tombstone; its bytes stay for older views.
func TestBury(t *testing.T) {
	tab := newTable()
	e := tab.Entry(1, 0)
	e.Append(0, 0, []byte("hello"), []uint32{5}, false)
	r := e.Run()
	for i := range 3 * fewRows {
		e.SetRow(fmt.Appendf(nil, "k%d", i), 1, []byte("v"), false)
	}
	key := []byte("s")
	e.Bury(key, 9)
	key[0] = 'x'
	rows := slices.Collect(e.Rows())
	if len(rows) != 1 || string(rows[0].Key) != "s" || rows[0].LSN != 9 || !rows[0].Removed || len(rows[0].Value) != 0 || !e.Dead() {
		t.Errorf("left is %+v, dead %t", rows, e.Dead())
	}
	if string(contents(r, 0, 5)) != "hello" || string(contents(e.Run(), 0, 5)) != "hello" {
		t.Error("the bytes are gone")
	}
}

// Rows count by what they hold, also when they grow.
func TestRowsAreCounted(t *testing.T) {
	tab := newTable()
	e := tab.Entry(1, 0)
	before := tab.Bytes()
	e.SetRow([]byte("s"), 1, make([]byte, 10), false)
	small := tab.Bytes()
	e.SetRow([]byte("s"), 2, make([]byte, 8000), false)
	if large := tab.Bytes(); small <= before || large < small+7990 {
		t.Errorf("estimates: %d without a row, %d with a small one, %d with a large one", before, small, large)
	}
	e.SetRow([]byte("s"), 3, make([]byte, 5), false)
	large := tab.Bytes()
	e.SetRow([]byte("s"), 4, make([]byte, 8000), false)
	if tab.Bytes() != large {
		t.Error("memory that a row has already was counted again")
	}
}

// Writing to a stream that the generation knows makes no garbage to speak of.
func TestAppendAllocatesNothing(t *testing.T) {
	var p Pool
	warm := New(&p)
	body := make([]byte, 256)
	ends, key, value := one(body), []byte("s"), make([]byte, 30)
	run := func(tab *Table) float64 {
		e := tab.Entry(1, 0)
		off, n := base.Offset(0), uint64(0)
		return testing.AllocsPerRun(20_000, func() {
			e.Append(off, n, body, ends, false)
			e.SetRow(key, base.LSN(n+1), value, false)
			off += 256
			n++
		})
	}
	run(warm)
	warm.Release()
	if n := run(New(&p)); n != 0 {
		t.Errorf("%v allocations an append", n)
	}
}

// Nor does the first write to a stream, once there has been a generation of that size:
// where there are many streams, most writes are.
func TestFirstWritesAllocateNothing(t *testing.T) {
	const streams, most = 10_000, 50
	var p Pool
	body := make([]byte, 256)
	ends, key, value := one(body), []byte("s"), make([]byte, 30)
	n := testing.AllocsPerRun(1, func() { // it runs twice, and only the second one counts
		tab := New(&p)
		for id := range base.StreamID(streams) {
			e := tab.Entry(id+1, 0)
			e.Append(5, 1, body, ends, false)
			e.SetRow(key, 1, value, false)
		}
		tab.Release()
	})
	if n > most {
		t.Errorf("%v allocations for %d streams", n, streams)
	}
}

// What entries take is in the estimate, with a slot of a map that is two thirds full
// and the places that Entries makes.
func TestEntryEstimate(t *testing.T) {
	const slot, places = (8 + 8 + 1) * 3 / 2, 16 + 8
	if n := int(unsafe.Sizeof(Entry{})) + slot + places; n > entryBytes || n < entryBytes-32 {
		t.Errorf("an entry takes %d bytes, not %d", n, entryBytes)
	}
	if n := unsafe.Sizeof(row{}); n > rowBytes {
		t.Errorf("a row takes %d bytes, more than %d", n, rowBytes)
	}
}

// The next table of a pool shows nothing of the one before it, in whose memory it is.
func TestMemoryIsUsedAgainEmpty(t *testing.T) {
	var p Pool
	first := New(&p)
	for id := range base.StreamID(3 * blockLen) {
		e := first.Entry(id+1, 1)
		e.Begin()
		e.Append(7, 3, []byte("abc"), []uint32{1, 2, 3}, false)
		for i := range 2 * fewRows {
			e.SetRow(fmt.Appendf(nil, "key %d", i), 9, []byte("value"), true)
		}
		e.Bury([]byte("s"), 9)
	}
	block := &first.blocks[2][0]
	first.Release()
	tab := New(&p)
	if tab.Bytes() != 0 || tab.Find(1) != nil || len(tab.Entries()) != 0 {
		t.Errorf("a new table has %d bytes, %d entries", tab.Bytes(), len(tab.Entries()))
	}
	e := tab.Entry(2, 0)
	if e != block {
		t.Error("the entry is not in memory that was there")
	}
	if end, n := e.End(); e.ID() != 2 || e.Kind() != 0 || e.Began() || e.Dead() || e.Run() != nil || end != 0 || n != 0 {
		t.Errorf("a new entry is %+v", e)
	}
	if rows := slices.Collect(e.Rows()); len(rows) != 0 {
		t.Errorf("a new entry has the rows %+v", rows)
	}
}

// While nobody writes, most of what the pool keeps goes back to the runtime.
func TestPoolTrim(t *testing.T) {
	var p Pool
	for range idleFree + 3 {
		p.free = append(p.free, make([]byte, slabBytes))
	}
	tab := New(&p)
	tab.Entry(1, 0)
	tab.Release()
	if len(p.blocks) != 1 || len(p.sets) != 1 {
		t.Fatalf("%d blocks of entries and %d sets of maps came back", len(p.blocks), len(p.sets))
	}
	for range 2 {
		p.Trim()
		if len(p.free) != idleFree || len(p.blocks)+len(p.sets) != 0 {
			t.Fatalf("left are %d slabs, not %d, and %d blocks, %d sets of maps", len(p.free), idleFree, len(p.blocks), len(p.sets))
		}
	}
}
