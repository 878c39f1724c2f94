package manifest

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// crash is a disk after a power cut, and the states that it may be in.
type crash struct {
	mem     *vfstest.MemFS
	op      vfstest.Op // the cut came before it
	states  []State
	created bool // Create had returned
}

// A power cut before any operation leaves every edit that Apply returned nil for,
// the one under way wholly or not at all, and a manifest that goes on.
func TestPowerCuts(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, c := range powerCuts(t, rng, 40) {
			checkCrash(t, c, rng, seed, i)
		}
	}
}

// powerCuts runs edits and returns what some crashes leave before each operation.
func powerCuts(t *testing.T, rng *rand.Rand, edits int) (crashes []crash) {
	mem := vfstest.New()
	must(t, mem.MkdirAll(testDir))
	states, isCreated := []State{}, false
	cut := func(op vfstest.Op) error {
		for range 2 {
			crashes = append(crashes, crash{mem.CrashClone(rng), op, states, isCreated})
		}
		return nil
	}
	mem.SetHook(cut)
	must(t, Create(mem, testDir))
	isCreated = true
	m, state := reopened(t, mem)
	m.roll = 30 << 10
	for range edits {
		e := randomEdit(rng, state)
		next := after(state, e)
		states = []State{state, next}
		must(t, m.Apply(e))
		states = []State{next}
		must(t, cut(vfstest.Op{}))
		state = next
		if rng.IntN(10) == 0 {
			must(t, m.Close())
			m, _ = reopened(t, mem)
			m.roll = 30 << 10
		}
	}
	return crashes
}

func checkCrash(t *testing.T, c crash, rng *rand.Rand, seed uint64, i int) {
	t.Helper()
	m, state, err := Open(c.mem, testDir)
	if err != nil && !c.created && isCorruption(err) {
		// No manifest yet: the creation is done again.
		if err := Create(c.mem, testDir); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatalf("seed %d, crash %d before %q: Create again: %v", seed, i, c.op, err)
		}
		m, state, err = Open(c.mem, testDir)
	}
	if err != nil {
		t.Fatalf("seed %d, crash %d before %q: %v", seed, i, c.op, err)
	}
	known := len(c.states) == 0
	for _, s := range c.states {
		known = known || equal(s, state)
	}
	if !known {
		t.Fatalf("seed %d, crash %d before %q: the state is neither that before nor after", seed, i, c.op)
	}
	// What Open has returned is durable, and so is what comes after it.
	if _, again := reopened(t, c.mem.CrashClone(nil)); !equal(again, state) {
		t.Fatalf("seed %d, crash %d before %q: a second crash takes back what Open returned", seed, i, c.op)
	}
	e := randomEdit(rng, state)
	must(t, m.Apply(e))
	if _, again := reopened(t, c.mem.CrashClone(rng)); !equal(again, after(state, e)) {
		t.Fatalf("seed %d, crash %d before %q: the first edit after the start is lost", seed, i, c.op)
	}
}

// Whatever operation fails, Apply fails, for good; the next start finds all that was
// acknowledged and, though a failed sync leaves a page cache that lies, makes what it
// returns durable.
func TestEveryFailedOperation(t *testing.T) {
	errDisk := errors.New("a broken disk")
	for fail := 0; ; fail++ {
		rng := rand.New(rand.NewPCG(7, 7)) // the same edits each time
		mem, m := created(t)
		m.roll = 30 << 10
		var failed vfstest.Op
		n := 0
		mem.SetHook(func(op vfstest.Op) error {
			if n++; n-1 == fail {
				failed = op
				return errDisk
			}
			return nil
		})
		states := []State{m.State()}
		var err error
		for i := 0; i < 30 && err == nil; i++ {
			e := randomEdit(rng, states[0])
			next := after(states[0], e)
			if err = m.Apply(e); err == nil {
				states = []State{next}
			} else {
				states = append(states, next)
			}
		}
		if failed.Kind == 0 {
			must(t, err)
			return // so many operations are not needed
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("%q failed: %v", failed, err)
		}
		mem.SetHook(nil)
		if again := m.Apply(Edit{ReserveStreams: 1 << 60}); again != err {
			t.Fatalf("%q failed: then %v, after %v", failed, again, err)
		}
		must(t, m.Close())
		for name, after := range map[string]*vfstest.MemFS{"restart": mem.Clone(), "power cut": mem.CrashClone(rng)} {
			m, state := reopened(t, after)
			if !equal(state, states[0]) && !equal(state, states[1]) {
				t.Fatalf("%q failed, %s: the state is neither that before nor after", failed, name)
			}
			must(t, m.Apply(Edit{ReserveStreams: state.NextStream + 1}))
			_, again := reopened(t, after.CrashClone(nil))
			state.NextStream++
			if !equal(again, state) {
				t.Fatalf("%q failed, %s: what Open and Apply returned is lost by a power cut", failed, name)
			}
		}
	}
}

// An Open that a power cut ends is begun anew.
func TestPowerCutsDuringOpen(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, c := range powerCuts(t, rng, 10) {
			if !c.created || i%3 != 0 {
				continue
			}
			var cuts []*vfstest.MemFS
			c.mem.SetHook(func(vfstest.Op) error {
				cuts = append(cuts, c.mem.CrashClone(rng))
				return nil
			})
			_, state := reopened(t, c.mem)
			for _, cut := range cuts {
				if _, again := reopened(t, cut); !equal(again, state) {
					t.Fatalf("seed %d, crash %d: the second Open finds another state", seed, i)
				}
			}
		}
	}
}

func TestCreateRefusesWhatIsThere(t *testing.T) {
	mem, m := created(t)
	must(t, m.Apply(Edit{ReserveStreams: 1}))
	if err := Create(mem, testDir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a manifest: %v", err)
	}
	must(t, mem.Remove(filepath.Join(testDir, currentName)))
	if err := Create(mem, testDir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over one whose CURRENT is lost: %v", err)
	}
	m.roll = 1
	must(t, mem.Rename(logPath(testDir, 1), logPath(testDir, 5)))
	if err := Create(mem, testDir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a later file: %v", err)
	}
}
