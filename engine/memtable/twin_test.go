package memtable

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/base"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: by the clock")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-seed=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// naive is an entry without any cleverness.
type naive struct {
	start base.Offset
	first uint64
	bytes []byte
	ends  []base.Offset
	rows  map[string]Row
	dead  bool
}

func (n *naive) end() base.Offset { return n.start + base.Offset(len(n.bytes)) }

func (n *naive) locate(off base.Offset) (uint64, bool) {
	begin := n.start
	for i, end := range n.ends {
		if off < end {
			return n.first + uint64(i), off == begin
		}
		begin = end
	}
	return n.first + uint64(len(n.ends)), true
}

func (n *naive) floor(limit base.Offset) base.Offset {
	best := n.start
	for _, end := range n.ends {
		if end <= limit {
			best = end
		}
	}
	return best
}

// A table holds what its naive twin does, after every step and at the end.
func TestTwin(t *testing.T) {
	rng := newRand(t)
	for range 20 {
		twin := map[base.StreamID]*naive{}
		tab := newTable()
		for range 300 {
			id := base.StreamID(1 + rng.IntN(5)*63)
			n, e := twin[id], tab.Entry(id, 0)
			if n == nil {
				n = &naive{start: base.Offset(rng.Uint64N(1 << 40)), first: rng.Uint64N(1 << 40), rows: map[string]Row{}}
				twin[id] = n
			}
			switch k := rng.IntN(30); {
			case n.dead:
			case k == 0 && rng.IntN(5) == 0:
				e.Bury([]byte("s"), 99)
				n.dead, n.rows = true, map[string]Row{"s": {Key: []byte("s"), LSN: 99, Removed: true}}
			case k < 8:
				r := Row{Key: fmt.Appendf(nil, "k%d", rng.IntN(2*fewRows)), LSN: base.LSN(rng.Uint64N(90)), Value: randomBytes(rng, 20), Removed: rng.IntN(4) == 0}
				e.SetRow(r.Key, r.LSN, r.Value, r.Removed)
				n.rows[string(r.Key)] = r
			default:
				n.append(rng, e)
			}
			if r := e.Run(); r != nil {
				n.check(t, rng, r)
			}
		}
		checkAll(t, twin, tab)
	}
}

func randomBytes(rng *rand.Rand, most int) []byte {
	b := make([]byte, rng.IntN(most+1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// append adds the same random write to both.
func (n *naive) append(rng *rand.Rand, e *Entry) {
	size := 1 << rng.IntN(10)
	if rng.IntN(40) == 0 {
		size = 3 * maxChunk
	}
	body := append(randomBytes(rng, size), 'x')
	var ends []uint32
	for at := 1 + rng.IntN(len(body)); at < len(body) && len(ends) < 5; at += 1 + rng.IntN(len(body)) {
		ends = append(ends, uint32(at))
	}
	ends = append(ends, uint32(len(body)))
	e.Append(n.end(), n.first+uint64(len(n.ends)), body, ends, rng.IntN(2) == 0)
	for _, x := range ends {
		n.ends = append(n.ends, n.end()+base.Offset(x))
	}
	n.bytes = append(n.bytes, body...)
}

// check compares some random places.
func (n *naive) check(t *testing.T, rng *rand.Rand, r *Run) {
	t.Helper()
	if r.Start() != n.start || r.First() != n.first {
		t.Fatalf("the run begins at %d, %d, not %d, %d", r.Start(), r.First(), n.start, n.first)
	}
	from := n.start + base.Offset(rng.IntN(len(n.bytes)))
	to := from + base.Offset(rng.Uint64N(uint64(n.end()-from)+1))
	if got := contents(r, from, to); !bytes.Equal(got, n.bytes[from-n.start:to-n.start]) {
		t.Fatalf("bytes [%d, %d) differ", from, to)
	}
	ordinal, exact := n.locate(from)
	if o, x := r.Locate(from, len(n.ends)); o != ordinal || x != exact {
		t.Fatalf("Locate(%d) = %d, %t, want %d, %t", from, o, x, ordinal, exact)
	}
	if got := r.Floor(from, len(n.ends)); got != n.floor(from) {
		t.Fatalf("Floor(%d) = %d, want %d", from, got, n.floor(from))
	}
	if end, ok := r.EndOf(from, len(n.ends)); !ok || end != n.ends[ordinal-n.first] {
		t.Fatalf("EndOf(%d) = %d, %t, want %d", from, end, ok, n.ends[ordinal-n.first])
	}
}

// checkAll compares everything, as a flush would see it.
func checkAll(t *testing.T, twin map[base.StreamID]*naive, tab *Table) {
	t.Helper()
	ids := slices.Sorted(maps.Keys(twin))
	for i, e := range tab.Entries() {
		n := twin[ids[i]]
		if e.ID() != ids[i] || e.Dead() != n.dead {
			t.Fatalf("entry %d is stream %d (dead %t), want %d (%t)", i, e.ID(), e.Dead(), ids[i], n.dead)
		}
		if r := e.Run(); r != nil {
			end, count := e.End()
			if end != n.end() || count != len(n.ends) || !bytes.Equal(contents(r, n.start, end), n.bytes) {
				t.Fatalf("stream %d differs", e.ID())
			}
			var ends []base.Offset
			if err := r.Ends(count, func(x base.Offset) error { ends = append(ends, x); return nil }); err != nil || !slices.Equal(ends, n.ends) {
				t.Fatalf("messages of stream %d end at %d, not %d", e.ID(), ends, n.ends)
			}
		} else if len(n.bytes) > 0 {
			t.Fatalf("stream %d has lost its bytes", e.ID())
		}
		rows := slices.Collect(e.Rows())
		for i, key := range slices.Sorted(maps.Keys(n.rows)) {
			want := n.rows[key]
			if got := rows[i]; string(got.Key) != key || got.LSN != want.LSN || got.Removed != want.Removed || !bytes.Equal(got.Value, want.Value) {
				t.Fatalf("row %q of stream %d is %+v, want %+v", key, e.ID(), got, want)
			}
		}
		if len(rows) != len(n.rows) {
			t.Fatalf("stream %d has %d rows, not %d", e.ID(), len(rows), len(n.rows))
		}
	}
}

// published is how far readers may look, as a view is in the engine.
type published struct {
	end   base.Offset
	count int
}

// patterned is the byte that belongs at an offset, so that readers need no copy.
func patterned(id base.StreamID, off base.Offset) byte { return byte(uint64(id)*31 + uint64(off)*7>>2) }

// TestReadersWhileWriting has readers look at all that is published while one
// goroutine writes. The race detector has to agree.
func TestReadersWhileWriting(t *testing.T) {
	const streams, writes, readers = 6, 6000, 3
	rng := newRand(t)
	tab := newTable()
	var views [streams]atomic.Pointer[published]
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range readers {
		seed := rng.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-done:
					return
				default:
				}
				k := r.IntN(streams)
				if err := readSome(r, tab, base.StreamID(k+1), views[k].Load()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range writes {
		k := rng.IntN(streams)
		id := base.StreamID(k + 1)
		v := published{}
		if p := views[k].Load(); p != nil {
			v = *p
		}
		size := 1 + rng.IntN(600)
		if rng.IntN(200) == 0 {
			size = maxChunk + rng.IntN(maxChunk)
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = patterned(id, v.end+base.Offset(i))
		}
		ends := one(body)
		if size > 2 {
			ends = []uint32{uint32(size / 2), uint32(size)}
		}
		e := tab.Entry(id, 0)
		e.Append(v.end, uint64(v.count), body, ends, true)
		e.SetRow([]byte("s"), 1, body[:1], false)
		views[k].Store(&published{v.end + base.Offset(size), v.count + len(ends)})
	}
	close(done)
	wg.Wait()
}

// readSome checks a random range and what the messages in it say.
func readSome(r *rand.Rand, tab *Table, id base.StreamID, v *published) error {
	if v == nil {
		return nil
	}
	run := tab.Find(id).Run() // after the view: it must hold what that promises
	from := base.Offset(r.Uint64N(uint64(v.end)))
	to := min(v.end, from+base.Offset(r.IntN(2000)))
	off := from
	for _, b := range run.Slices(nil, from, to) {
		for _, got := range b {
			if want := patterned(id, off); got != want {
				return fmt.Errorf("stream %d, byte %d of %d: %d, want %d", id, off, v.end, got, want)
			}
			off++
		}
	}
	if off != to {
		return fmt.Errorf("stream %d: [%d, %d) ended at %d", id, from, to, off)
	}
	ordinal, exact := run.Locate(from, v.count)
	end, ok := run.EndOf(from, v.count)
	floor := run.Floor(from, v.count)
	if !ok || end <= from || end > v.end || floor > from || (floor == from) != exact || ordinal >= uint64(v.count) {
		return fmt.Errorf("stream %d of %d bytes, %d messages: at %d message %d (exact %t), which ends at %d (%t), floor %d",
			id, v.end, v.count, from, ordinal, exact, end, ok, floor)
	}
	return nil
}
