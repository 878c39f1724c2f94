package blob

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

// Everybody does everything at once, with an object store from which what is forgotten is
// deleted: a blob that somebody refers to can always be read.
func TestConcurrentUseWithObjects(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	mem, s, h := newTiered(t)
	var clock atomic.Int64
	now := func() base.Millis { return base.Millis(clock.Add(1)) }
	done := make(chan struct{})
	var users, others sync.WaitGroup
	for i := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Go(func() {
			for range 150 {
				b := content(fmt.Sprint("blob ", rng.IntN(4)), 3000)
				d, err := upload(s, b)
				if err != nil {
					t.Error(err)
					return
				}
				for range rng.IntN(6) {
					got, err := read(s, d)
					for try := 0; errors.Is(err, errGone) && try < 10; try++ { // there is no grace here for who is reading
						got, err = read(s, d)
					}
					if err != nil || !bytes.Equal(got, b) {
						t.Errorf("%d bytes: %v", len(got), err)
					}
					runtime.Gosched()
				}
				if err := s.Unpin(d, now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	always := func(f func(rng *rand.Rand) error) {
		rng := rand.New(rand.NewPCG(seed, rand.Uint64()))
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := f(rng); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	always(func(*rand.Rand) error { _, err := s.Collect(now()); return err })
	always(func(rng *rand.Rand) error { _, err := s.Evict(rng.Int64N(50_000)); return err })
	for range 2 {
		always(func(rng *rand.Rand) error {
			for _, p := range s.Unsaved(2, nil) {
				b, err := fileOf(s, p)
				if err != nil || rng.IntN(4) == 0 {
					s.GiveUp(p)
				} else {
					err = s.Saved(p, h.put(b))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	always(func(rng *rand.Rand) error {
		gone := s.Orphaned()
		for _, o := range gone {
			h.remove(o.Number)
		}
		return s.Forget(gone)
	})
	always(func(rng *rand.Rand) error {
		d := digest(content(fmt.Sprint("blob ", rng.IntN(4)), 3000))
		if s.LocalBytes() < 0 || s.Has(d) && s.Lost(d) {
			return errors.New("the sums do not add up")
		}
		for o := range s.Objects {
			if o.Number == 0 {
				return errors.New("an object without a number")
			}
		}
		if s.Pin(d) {
			return s.Unpin(d, now())
		}
		return nil
	})
	users.Wait()
	close(done)
	others.Wait()
	if _, err := s.Collect(now()); err != nil {
		t.Fatal(err)
	}
	must(t, s.Forget(s.Orphaned()))
	expectFiles(t, mem, 0)
	if len(s.blobs)+len(s.idle)+s.unsaved.Len()+len(s.orphans)+s.lru.Len()+s.saved > 0 || s.local != 0 {
		t.Errorf("%d blobs, %d open, %d unsaved, %d orphans, %d of %d to be evicted, and %d bytes are left",
			len(s.blobs), len(s.idle), s.unsaved.Len(), len(s.orphans), s.lru.Len(), s.saved, s.local)
	}
	must(t, s.Close())
}

// While a file is damaged now and then, and replaced, copied and evicted, nothing gets stuck.
// (What is damaged after it has been verified is read as it is.)
func TestConcurrentHealing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	mem, s, h := newTiered(t)
	want := content("damaged and healed", 3000)
	d := mustUpload(t, s, want)
	var users sync.WaitGroup
	for i := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Go(func() {
			for range 100 {
				switch rng.IntN(4) {
				case 0:
					if _, err := upload(s, want); err != nil {
						t.Error(err)
					}
				case 1:
					_ = mem.Corrupt(s.path(d), 4096+rng.Int64N(3000), func(b []byte) { b[0] ^= 1 }) // if it is here
				case 2:
					for _, p := range s.Unsaved(1, nil) {
						if b, err := fileOf(s, p); err != nil {
							s.GiveUp(p)
						} else if err := s.Saved(p, h.put(b)); err != nil {
							t.Error(err)
						}
					}
					if _, err := s.Evict(1); err != nil {
						t.Error(err)
					}
				default:
					if got, err := read(s, d); err == nil && len(got) != len(want) || err != nil && !isCorrupt(err) {
						t.Errorf("%d bytes: %v", len(got), err)
					}
				}
			}
		})
	}
	users.Wait()
	must(t, s.Close())
	s = openTiered(t, mem, map[Digest]int{d: 1}, h)
	mustUpload(t, s, want)
	expect(t, s, want)
	must(t, s.Close())
}
