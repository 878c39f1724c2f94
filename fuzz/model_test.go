package fuzz

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/enginetest"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// tape is a source of randomness that the fuzzer writes: its bytes decide what
// happens, and a generator goes on when they are used up.
type tape struct {
	data []byte
	rest *rand.PCG
}

func (t *tape) Uint64() uint64 {
	if len(t.data) < 8 {
		return t.rest.Uint64()
	}
	v := binary.LittleEndian.Uint64(t.data)
	t.data = t.data[8:]
	return v
}

const steps = 60

// FuzzModel does what the input says to an engine and to a map of byte slices, with
// restarts and power cuts in between. They have to agree throughout.
func FuzzModel(f *testing.F) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		in := make([]byte, 8*16*seed)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		f.Add(uint8(seed), in)
	}
	f.Fuzz(func(t *testing.T, shape uint8, in []byte) {
		rng := rand.New(&tape{data: in, rest: rand.NewPCG(uint64(len(in)), 1)})
		w, err := enginetest.New(enginetest.Config{
			Options: engine.Options{
				Shards: 1 + int(shape%3), WALFileBytes: 64 << 10, WALMaxBytes: 128 << 10, MemtableBytes: 12 << 10,
				SegmentMaxBytes: 64 << 10, MaxBodyBytes: 4 << 10, MinFreeDisk: 1,
			},
			Streams: 6, MaxBody: 1200, Forks: shape%2 == 0, Snapshots: true, Buckets: 1,
		}, vfstest.New(), rng)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			if err := w.Step(); err != nil {
				t.Fatal(err)
			}
			next := w.Restart
			if i%40 == 20 {
				next = w.Crash
			}
			if i%20 != 0 {
				continue
			}
			if w, err = next(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
