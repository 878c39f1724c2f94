package cold

import (
	"context"
	"testing"

	"github.com/snakream/snakream/tiering"
)

// instant is a store whose GETs cost what copying costs.
type instant struct {
	tiering.Store
	data []byte
}

func (s instant) Get(_ context.Context, _ string, p []byte, off int64) error {
	copy(p, s.data[off%(1<<20):])
	return nil
}

// A sequential reader of 1 MiB a call, of bytes that are not held.
func BenchmarkSequential(b *testing.B) {
	c := New(instant{data: make([]byte, 2<<20)}, Options{})
	defer c.Close()
	o := c.Object("a", 1<<50)
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(p)))
	var off int64
	for b.Loop() {
		if _, err := o.ReadAt(p, off); err != nil {
			b.Fatal(err)
		}
		off += int64(len(p))
	}
}

// Many readers of blocks that are held.
func BenchmarkHeldBlock(b *testing.B) {
	c := New(instant{data: make([]byte, 2<<20)}, Options{})
	defer c.Close()
	o := c.Object("a", 32<<20)
	b.SetBytes(64 << 10)
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, 64<<10)
		for i := int64(0); pb.Next(); i += 7919 {
			if _, err := o.ReadAt(p, i*(64<<10)%(31<<20)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
