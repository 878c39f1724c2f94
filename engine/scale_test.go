package engine

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// crowd is an engine of many streams that lie in segments. The test is its host.
type crowd struct {
	testing.TB
	e *Engine
	n int
}

func newCrowd(t testing.TB, n int) *crowd {
	t.Helper()
	o := smallOptions(vfstest.New())
	o.WALFileBytes, o.WALMaxBytes, o.MemtableBytes, o.SegmentMaxBytes = 16<<20, 1<<30, 1<<30, 1<<30
	o.Ring = func(int) {}
	c := &crowd{TB: t, n: n}
	var err error
	if c.e, err = Open("data", o); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; {
		for end := min(i+5000, n); i < end; i++ {
			ev := core.Event{Op: core.OpCreate, Bucket: "bucket", Name: fmt.Sprint("s", i), ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}
			ev.HasBody, ev.Body, ev.Ends = true, []byte("hello"), []uint32{5}
			c.submit(&Op{Event: ev})
		}
		c.turns()
	}
	c.flush()
	return c
}

func (c *crowd) submit(o *Op) {
	c.Helper()
	o.Done = func(o *Op) {
		if !o.Answer.Code.OK() {
			c.Errorf("answered %d", o.Answer.Code)
		}
	}
	if err := c.e.Submit(o); err != nil {
		c.Fatal(err)
	}
}

// turns lets the shard do all that there is to do.
func (c *crowd) turns() {
	s := c.e.shards[0]
	for {
		synctest.Wait()
		s.mu.Lock()
		idle := !s.rung && len(s.box) == 0 && s.done == nil
		s.mu.Unlock()
		if idle {
			return
		}
		c.e.Turn(0)
	}
}

// write appends to k streams, far apart.
func (c *crowd) write(k int) {
	for i := range k {
		name := fmt.Sprint("s", i*(c.n/k))
		c.submit(appendOpTo(c.e, "bucket", name, []byte("more")))
	}
	c.turns()
}

func appendOpTo(e *Engine, bucket, name string, body []byte) *Op {
	o := appendOp(e, name, body)
	o.Stream = e.Lookup([]byte(bucket), []byte(name))
	return o
}

// flush has everything written to segments.
func (c *crowd) flush() {
	s := c.e.shards[0]
	before := s.stats.flushes.Load()
	if !s.freeze() {
		c.Fatal("not frozen")
	}
	for s.stats.flushes.Load() == before {
		synctest.Wait()
		c.turns()
	}
}

func (c *crowd) close() {
	c.Helper()
	if err := c.e.Close(); err != nil {
		c.Fatal(err)
	}
}

// spent returns the bytes that f allocates: what copies or visits every stream can't
// do without many.
func spent(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Neither a commit nor a flush costs anything for streams that it is not about: a
// flush of ten streams among very many enters ten runs into the index, and allocates
// about as much as it does among a thousand.
func TestNothingCostsForEachStream(t *testing.T) {
	many := 200_000
	if invariants.Enabled || testing.Short() {
		many = 20_000
	}
	const few = 1000
	var commit, flush [2]uint64
	for i, n := range []int{few, many} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, n)
			defer c.close()
			runs := c.e.Stats().IndexEntries
			if runs < int64(n) {
				t.Fatalf("%d runs for %d streams", runs, n)
			}
			c.write(10) // the first of each kind may allocate what stays
			c.flush()
			commit[i] = spent(func() { c.write(10) })
			flush[i] = spent(c.flush)
			if got := c.e.Stats().IndexEntries - runs; got != 20 {
				t.Errorf("two flushes of ten streams have made %d runs of their own", got)
			}
		})
	}
	t.Logf("among %d and %d streams: %d and %d bytes for a commit, %d and %d for a flush", few, many, commit[0], commit[1], flush[0], flush[1])
	if commit[1] > 2*commit[0]+64<<10 {
		t.Error("a commit costs more where there are more streams")
	}
	if flush[1] > 2*flush[0]+256<<10 {
		t.Error("a flush costs more where there are more streams")
	}
}

// However often streams are written to, the index holds a few runs of each: merges
// keep it at O(streams × levels).
func TestIndexStaysSmall(t *testing.T) {
	n, rounds := 5000, 40
	if invariants.Enabled || testing.Short() {
		n = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, n)
		defer c.close()
		for range rounds {
			c.write(n)
			c.flush()
		}
		st := c.e.Stats()
		if levels := int64(4); st.IndexEntries > int64(n)*(mergeWidth-1)*levels {
			t.Errorf("%d runs of %d streams after %d flushes", st.IndexEntries, n, rounds)
		}
		t.Logf("%d flushes of %d streams: %d runs in %d segments, %d merges", rounds, n, st.IndexEntries, st.Segments, c.e.shards[0].stats.merges.Load())
	})
}
