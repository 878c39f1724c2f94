package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// Of many nodes that want a free prefix exactly one gets it.
func TestNodesRace(t *testing.T) {
	for range 20 {
		store := tiertest.NewMemory()
		var mu sync.Mutex
		var wg sync.WaitGroup
		winners := 0
		for i := range byte(8) {
			wg.Go(func() {
				h, s, err := Claim(t.Context(), store, node(i+1), Writer{i + 1}, nil, 1)
				switch {
				case err == nil:
					if err := h.Commit(t.Context(), s); err != nil {
						t.Errorf("the winner: %v", err)
					}
					mu.Lock()
					winners++
					mu.Unlock()
				case !errors.Is(err, ErrTaken):
					t.Errorf("a loser: %v", err)
				}
			})
		}
		wg.Wait()
		if winners != 1 {
			t.Fatalf("%d winners", winners)
		}
	}
}

// Of several restores of one state exactly one gets it.
func TestRestoresRace(t *testing.T) {
	store := tiertest.NewMemory()
	claimed(t, store, node(1))
	old, v, err := Load(t.Context(), store)
	must(t, err)
	errs := make(chan error, 8)
	var wg sync.WaitGroup
	for i := range byte(8) {
		wg.Go(func() {
			_, _, err := TakeOver(t.Context(), store, old, v, Identity{Node: [16]byte{i + 2}}, Writer{i + 2}, 1)
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	winners := 0
	for err := range errs {
		if err == nil {
			winners++
		} else if !errors.Is(err, ErrTaken) {
			t.Errorf("a loser: %v", err)
		}
	}
	if winners != 1 {
		t.Errorf("%d winners", winners)
	}
}

// Two processes on copies of one data directory claim at the very same time: exactly one
// of them gets it. When the other one, for it is a copy of the first as it runs, knows
// the first, it takes over from it, and the first learns that it can't write any more.
func TestHandlesRace(t *testing.T) {
	for i := range 100 {
		store := tiertest.NewMemory()
		_, s := claimed(t, store, node(1))
		all := []Writer{newWriter(t), newWriter(t)}
		var wg sync.WaitGroup
		handles := make([]*Handle, 2)
		errs := make([]error, 2)
		for i := range handles {
			wg.Go(func() {
				handles[i], _, errs[i] = Claim(t.Context(), store, node(1), all[i], []Writer{s.Writer}, 1)
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ErrCopy) {
			t.Fatalf("%v, %v", errs[0], errs[1])
		}
		loser := 0
		if errs[0] == nil {
			loser = 1
		}
		state := inStore(t, store)
		must(t, handles[1-loser].Commit(t.Context(), state))
		if i%2 == 0 {
			continue
		}
		first := state
		wg.Go(func() {
			handles[loser], state, errs[loser] = Claim(t.Context(), store, node(1), all[loser], all, 1)
		})
		for range 3 {
			errs[1-loser] = handles[1-loser].Commit(t.Context(), first)
		}
		wg.Wait()
		must(t, errs[loser])
		must(t, handles[loser].Commit(t.Context(), state))
		if err := handles[1-loser].Commit(t.Context(), first); !errors.Is(err, ErrFenced) {
			t.Fatalf("the first one: %v", err)
		}
	}
}

// lateStore may lose the answer to a Swap, the request, or time: then the Swap happens
// some calls later, when nobody expects it any more. Every content is kept.
type lateStore struct {
	*tiertest.Memory
	rng  *rand.Rand
	late []func()
	log  []State // what the mirror has said, in order
}

func (l *lateStore) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
	l.settle()
	do := func() (tiering.Version, error) {
		v, err := l.Memory.Swap(ctx, key, data, old)
		if err == nil {
			s, err := Decode("m", data)
			if err != nil {
				return "", err
			}
			l.log = append(l.log, s)
		}
		return v, err
	}
	switch l.rng.IntN(6) {
	case 0:
		return "", errLost
	case 1:
		_, err := do()
		return "", errors.Join(err, errLost)
	case 2:
		l.late = append(l.late, func() { do() })
		return "", errLost
	}
	return do()
}

func (l *lateStore) Load(ctx context.Context, key string, max int64) ([]byte, tiering.Version, error) {
	l.settle()
	if l.rng.IntN(8) == 0 {
		return nil, "", errLost
	}
	return l.Memory.Load(ctx, key, max)
}

// settle lets some of what is late happen.
func (l *lateStore) settle() {
	for len(l.late) > 0 && l.rng.IntN(2) == 0 {
		l.late[0]()
		l.late = l.late[1:]
	}
}

// Whatever is lost or late: what Commit calls done was the mirror once, after all that
// it called done before; epochs never go back, nor do they mix; who is fenced is so for
// ever, and only when another has written.
func TestRandomFaults(t *testing.T) {
	for range 300 {
		seed := rand.Uint64()
		l := &lateStore{Memory: tiertest.NewMemory(), rng: rand.New(rand.NewPCG(seed, 0))}
		if err := l.run(t.Context()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// actor is a handle that does not know of the others.
type actor struct {
	h      *Handle
	s      State
	fenced bool
}

func (l *lateStore) run(ctx context.Context) error {
	var actors []*actor
	var known []Writer
	for now := base.Millis(1); now < 60; now++ {
		if len(actors) == 0 || l.rng.IntN(12) == 0 {
			w, err := NewWriter()
			if err != nil {
				return err
			}
			known = append(known, w)
			h, s, err := Claim(ctx, l, node(1), w, known, now)
			switch {
			case err == nil:
				actors = append(actors, &actor{h: h, s: s})
			case !errors.Is(err, errLost):
				return fmt.Errorf("claim: %w", err)
			}
			continue
		}
		a := actors[l.rng.IntN(len(actors))]
		a.s.Written = now
		err := a.h.Commit(ctx, a.s)
		switch {
		case err == nil && a.fenced:
			return fmt.Errorf("a fenced handle of epoch %d committed", a.h.own.Epoch)
		case err == nil:
			if err := l.has(a, now); err != nil {
				return err
			}
		case errors.Is(err, ErrFenced):
			a.fenced = true
			if last := l.log[len(l.log)-1]; last.isOf(&a.h.own) {
				return fmt.Errorf("epoch %d was fenced by itself", last.Epoch)
			}
		case !errors.Is(err, errLost):
			return fmt.Errorf("commit: %w", err)
		}
	}
	return l.ordered()
}

// has looks for what a has just committed: it is the last that the store took.
func (l *lateStore) has(a *actor, now base.Millis) error {
	last := l.log[len(l.log)-1]
	if !last.isOf(&a.h.own) || last.Written != now {
		return fmt.Errorf("epoch %d committed at %d, and the mirror is of epoch %d at %d", a.h.own.Epoch, now, last.Epoch, last.Written)
	}
	return nil
}

func (l *lateStore) ordered() error {
	for i := 1; i < len(l.log); i++ {
		a, b := l.log[i-1], l.log[i]
		if !(b.isOf(&a) && b.Sequence > a.Sequence && b.Written > a.Written) && b.Epoch != a.Epoch+1 {
			return fmt.Errorf("epoch %d, sequence %d is followed by epoch %d, sequence %d", a.Epoch, a.Sequence, b.Epoch, b.Sequence)
		}
	}
	return nil
}
