package memtable

import (
	"fmt"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

// A generation of this size is replaced, as the engine does.
const generation = 64 << 20

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ streams, size int }{{1, 256}, {1, 4096}, {1000, 256}, {100_000, 256}} {
		b.Run(fmt.Sprintf("streams=%d/size=%d", c.streams, c.size), func(b *testing.B) {
			var p Pool
			body := make([]byte, c.size)
			ends, key, value := one(body), []byte("s"), make([]byte, 30)
			tab := New(&p)
			offs := make([]base.Offset, c.streams)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if tab.Bytes() > generation {
					tab.Release()
					tab = New(&p)
					clear(offs)
				}
				k := i % c.streams
				e := tab.Entry(base.StreamID(k+1), 0)
				e.Append(offs[k], uint64(offs[k])/uint64(c.size), body, ends, false)
				e.SetRow(key, base.LSN(i+1), value, false)
				offs[k] += base.Offset(c.size)
			}
		})
	}
}

func BenchmarkSetRow(b *testing.B) {
	for _, n := range []int{1, fewRows, 100, 4096} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			e := newTable().Entry(1, 0)
			keys := make([][]byte, n)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "producer %d", i)
			}
			value := make([]byte, 30)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.SetRow(keys[i%n], base.LSN(i), value, false)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	tab := newTable()
	e := tab.Entry(1, 0)
	body := make([]byte, 256)
	const writes = 100_000
	for i := range writes {
		e.Append(base.Offset(i*256), uint64(i), body, one(body), false)
	}
	b.Run("slices", func(b *testing.B) {
		var buf [][]byte
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			from := base.Offset(i * 7919 % (writes - 40) * 256)
			buf = tab.Find(1).Run().Slices(buf[:0], from, from+10_000)
		}
	})
	b.Run("locate", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			tab.Find(1).Run().Locate(base.Offset(i*7919%(writes*256)), writes)
		}
	})
}
