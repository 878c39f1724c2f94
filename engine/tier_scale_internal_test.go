package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

func BenchmarkTierRound(b *testing.B) {
	e, err := Open("data", Options{FS: vfstest.New(), Shards: 1, MinFreeDisk: 1, Tier: tiertest.NewMemory(), TierFlushInterval: time.Hour, GCGrace: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for _, c := range []struct{ segs, dead int }{{100_000, 0}, {0, 1_000_000}, {0, 100_000}} {
		b.Run(fmt.Sprintf("segs=%d,dead=%d", c.segs, c.dead), func(b *testing.B) {
			t := e.tier
			s := &t.shards[0]
			s.live = map[base.SegmentID]manifest.Segment{}
			for i := range c.segs {
				m := manifest.Segment{ID: base.SegmentID(i + 1), Size: 1 << 20, Kind: 1, MinStream: 1, MaxStream: 100, Run: uint64(i + 1), Object: uint64(i + 1)}
				s.live[m.ID] = m
			}
			s.low.LSN = base.LSN(c.segs)
			s.inMirror = s.live
			t.dead = map[string]bool{}
			t.state.Shard = []mirror.Shard{{Segments: sorted(s.live)}}
			for i := range c.dead {
				t.state.Dead = append(t.state.Dead, mirror.Dead{Key: tiering.BlobKey([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, uint64(i+1)), Since: t.e.now() - base.Millis(i%3600_000)})
			}
			t.buried(t.state.Dead)
			for b.Loop() {
				next, _ := t.propose()
				if t.differs(&next) {
					b.Fatal("differs")
				}
			}
		})
	}
}
