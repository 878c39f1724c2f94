package check

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// tieredSite makes a directory most of whose segments are only in an object store, and
// whose log holds n appends. In a bubble.
func tieredSite(t *testing.T, n int) (*site, *tiertest.Memory) {
	t.Helper()
	store := tiertest.NewMemory()
	s := &site{TB: t, fs: vfstest.New(), shards: 1, want: map[string]string{}, tier: store, budget: 256 << 10}
	e := s.open(0)
	for i := range 12 {
		s.do(e, "", create(fmt.Sprint("s", i)), core.Created)
	}
	for i := range 180 {
		s.append(e, fmt.Sprint("s", i%12), fmt.Sprintf("<%d %s>", i, strings.Repeat(string(rune('a'+i%26)), 1500)))
		if i%10 == 9 {
			<-time.After(3 * time.Second) // the uploads keep up, and nothing is refused
		}
	}
	s.snapshot(e)
	<-time.After(30 * time.Second) // uploads and evictions
	synctest.Wait()
	for i := range n {
		l := late{stream: fmt.Sprint("s", i%12), body: fmt.Sprintf("<late %d %s>", i, strings.Repeat("z", 300))}
		s.append(e, l.stream, l.body)
		s.late = append(s.late, l)
	}
	s.close(e)
	s.budget = 0
	if len(s.match("data/shard-00/seg/*.tail")) == 0 {
		t.Fatal("nothing was evicted")
	}
	return s, store
}

// What is only in the object store is no damage, with or without it at hand.
func TestVerifyWithTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tieredSite(t, 10)
		sum, all := s.verify()
		if !sum.Clean() || sum.Evicted == 0 || sum.Streams != 12 {
			t.Errorf("%+v: %v", *sum, all)
		}
		store := s.tier
		s.tier = nil
		sum, all = s.verify()
		if !sum.Clean() || !strings.Contains(fmt.Sprint(all), engine.ErrNeedsTier.Error()) {
			t.Errorf("%+v: %v", *sum, all)
		}
		s.tier = store
		tail := s.match("data/shard-00/seg/*.tail")[0]
		s.flip(tail, int64(len(s.files()[tail])-5))
		if sum, all = s.verify(); sum.Stops != 1 || damaged(all)[0].Path != tail {
			t.Errorf("%v", all)
		}
		s.beyond("the object store has a copy of it")
	})
}

// The mirror in the object store takes part in the new history: the repaired directory
// finds its own there, also when the repair is cut off in between.
func TestRepairWithTier(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint("cut=", cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := tieredSite(t, 20)
				path, at := s.find("data/shard-00/wal/*.wal", "<late 9 ")
				s.flip(path, at)
				was := s.files()
				s.tier = nil
				if _, err := Apply(dataDir, s.options(0), now); !errors.Is(err, engine.ErrNeedsTier) {
					t.Errorf("without the object store: %v", err)
				}
				s.unchanged(was)
				s.tier = store
				if cut {
					broken := errors.New("power cut")
					s.fs.SetHook(func(op vfstest.Op) error {
						if op.Kind == vfstest.Rename && op.To == "data/SNAKREAM" {
							return broken
						}
						return nil
					})
					if _, err := Apply(dataDir, s.options(0), now); !errors.Is(err, broken) {
						t.Fatal(err)
					}
					s.fs.SetHook(nil)
					if _, err := engine.Open(dataDir, s.options(0)); !errors.Is(err, engine.ErrIncomplete) {
						t.Errorf("a start in between: %v", err)
					}
					if _, err := Apply(dataDir, s.options(0), now.Add(time.Second)); err != nil {
						t.Fatal(err)
					}
				} else {
					s.repair()
				}
				if state, _, err := mirror.Load(t.Context(), store); err != nil || state.History != 2 || s.history() != 2 {
					t.Errorf("the mirror has history %d, the directory %d: %v", state.History, s.history(), err)
				}
				want := s.without(9)
				s.holds(want)
				s.again(want)
			})
		})
	}
}

// Somebody else has restored from the store meanwhile: then that one goes on, not this.
func TestRepairOfReplacedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := tieredSite(t, 20)
		other := s.twin()
		other.fs = vfstest.New()
		o := other.options(0)
		o.Shards = 0
		if _, err := engine.Restore(t.Context(), dataDir, o, engine.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		path, at := s.find("data/shard-00/wal/*.wal", "<late 9 ")
		s.flip(path, at)
		if _, err := Apply(dataDir, s.options(0), now); !errors.Is(err, mirror.ErrTaken) {
			t.Errorf("%v", err)
		}
		if _, err := engine.Open(dataDir, s.options(0)); err == nil {
			t.Error("the replaced directory opens")
		}
		if state, _, err := mirror.Load(t.Context(), store); err != nil || state.History != 2 {
			t.Errorf("history %d, %v", state.History, err)
		}
	})
}

// Of copies of a directory one has been started since: a repair of another one does not
// get it the mirror either.
func TestRepairOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := tieredSite(t, 20)
		other := s.twin()
		s.close(s.open(0))
		before := store.Bytes(tiering.MirrorKey)
		path, at := other.find("data/shard-00/wal/*.wal", "<late 9 ")
		other.flip(path, at)
		for range 2 {
			if _, err := Apply(dataDir, other.options(0), now); !errors.Is(err, mirror.ErrTaken) || !errors.Is(err, mirror.ErrCopy) {
				t.Errorf("%v", err)
			}
		}
		if !bytes.Equal(before, store.Bytes(tiering.MirrorKey)) {
			t.Error("the mirror has changed")
		}
		s.close(s.open(0))
	})
}
