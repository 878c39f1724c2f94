package engine_test

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// The power is cut at each step of making a directory, and again at each step of
// making it anew: what is left always opens, and then keeps what it is told.
func TestCrashWhileADirectoryIsMade(t *testing.T) {
	seed := seedOf(t)
	every := 11
	if invariants.Enabled || testing.Short() {
		every = 61
	}
	for _, shards := range []int{1, 3} {
		rng := rand.New(rand.NewPCG(seed, uint64(shards)))
		points, again := 0, 0
		for _, first := range cuts(t, vfstest.New(), shards, rng, 1) {
			points++
			for _, second := range cuts(t, first, shards, rng, every*shards) {
				again++
				openNew(t, second, shards)
			}
		}
		if points < 20 || again < 20 {
			t.Errorf("only %d and %d crashes", points, again)
		}
		t.Logf("%d shards: %d crashes, %d second ones", shards, points, again)
	}
}

// cuts opens a directory and returns what a power cut at each every-th operation on
// the way would leave.
func cuts(t *testing.T, fs *vfstest.MemFS, shards int, rng *rand.Rand, every int) []*vfstest.MemFS {
	t.Helper()
	var mu sync.Mutex
	var all []*vfstest.MemFS
	var opened bool
	var n int
	fs.SetHook(func(vfstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; !opened && n%every == 0 {
			all = append(all, fs.CrashClone(rng))
		}
		return nil
	})
	e, err := engine.Open("data", quietly(fs, shards))
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	opened = true
	mu.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func quietly(fs *vfstest.MemFS, shards int) engine.Options {
	o := tiny(shards)
	o.FS, o.Logger = fs, slog.New(slog.NewTextHandler(io.Discard, nil))
	return o
}

// openNew opens what a crash has left of an empty directory, and uses it.
func openNew(t *testing.T, fs *vfstest.MemFS, shards int) {
	t.Helper()
	e, err := engine.Open("data", quietly(fs, shards))
	if err != nil {
		t.Fatal(err)
	}
	if n := e.Stats().Streams; n != 0 {
		t.Errorf("%d streams in a new directory", n)
	}
	op := &engine.Op{Event: createEvent("a")}
	if err := e.Do(op); err != nil || op.Answer.Code != core.Created {
		t.Errorf("create: %d, %v", op.Answer.Code, err)
	}
	left := fs.CrashClone(nil)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	e, err = engine.Open("data", quietly(left, shards))
	if err != nil {
		t.Fatal(err)
	}
	if e.Lookup([]byte("b"), []byte("a")) == nil {
		t.Error("an acknowledged create is lost")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
