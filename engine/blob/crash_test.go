package blob

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// user is what an engine does with a store: it keeps references in a log, of which it
// gives up what it has told the store about.
type user struct {
	s        *Store
	mem      *vfstest.MemFS
	rng      *rand.Rand
	contents map[Digest][]byte
	refs     map[Digest]int  // as the log and its rows have them
	released map[Digest]bool // dropped by a record that the log still has
	now      base.Millis
}

// cut is a disk after a power cut, with what the log says then.
type cut struct {
	mem            *vfstest.MemFS
	op             vfstest.Op // it came before
	refs, released map[Digest]int
}

func (u *user) open() error {
	refs := maps.Clone(u.refs)
	for d := range u.released {
		refs[d] += 0
	}
	var err error
	u.s, err = Open(u.mem, testDir, refs, nil, quiet)
	return err
}

// step does one thing at random.
func (u *user) step() error {
	u.now += 10
	switch u.rng.IntN(8) {
	default:
		return u.publish(content(fmt.Sprint("c", u.rng.IntN(6)), 10+u.rng.IntN(2)*100_000))
	case 3, 4:
		return u.drop()
	case 5:
		// The log gives up what is durable in the journal.
		before := maps.Clone(u.released)
		if err := u.s.Sync(); err != nil {
			return err
		}
		for d := range before {
			delete(u.released, d)
		}
	case 6:
		_, err := u.s.Collect(u.now)
		return err
	case 7:
		for d := range u.refs {
			_, err := read(u.s, d)
			return err
		}
	}
	return nil
}

// publish uploads and, mostly, writes a record that refers to the blob.
func (u *user) publish(b []byte) error {
	d, err := upload(u.s, b)
	if err != nil {
		return err
	}
	u.contents[d] = b
	if u.rng.IntN(5) > 0 {
		u.s.Pin(d)
		u.refs[d]++
	}
	return u.s.Unpin(d, u.now)
}

// drop writes a record that gives a reference up.
func (u *user) drop() error {
	for d := range u.refs {
		if u.refs[d]--; u.refs[d] == 0 {
			delete(u.refs, d)
			u.released[d] = true
		}
		return u.s.Unpin(d, u.now)
	}
	return nil
}

func newUser(mem *vfstest.MemFS, rng *rand.Rand) *user {
	return &user{
		mem: mem, rng: rng, contents: map[Digest][]byte{}, refs: map[Digest]int{}, released: map[Digest]bool{},
	}
}

// cutNow returns what a power cut leaves now.
func (u *user) cutNow(op vfstest.Op, rng *rand.Rand) cut {
	c := cut{mem: u.mem.CrashClone(rng), op: op, refs: maps.Clone(u.refs), released: map[Digest]int{}}
	for d := range u.released {
		c.released[d] = 0
	}
	return c
}

// scaled makes a number of rounds smaller, or a step, which is negative, larger, where
// all takes longer.
func scaled(n int) int {
	slow := invariants.Enabled || testing.Short()
	switch {
	case n < 0 && slow:
		return -n * 6
	case n < 0:
		return -n
	case slow:
		return (n + 5) / 6
	}
	return n
}

// A power cut before any operation of the disk loses no blob that the log refers to,
// and leaves none that it doesn't: after the next start they are gone for good.
func TestPowerCuts(t *testing.T) {
	for range scaled(6) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		u := newUser(vfstest.New(), rng)
		must(t, Create(u.mem, testDir))
		must(t, u.open())
		var cuts []cut
		hook := func(op vfstest.Op) error {
			cuts = append(cuts, u.cutNow(op, rng))
			return nil
		}
		u.mem.SetHook(hook)
		for i := range 60 {
			err := u.step()
			if err == nil && i%20 == 19 {
				err = u.s.Close()
				if err == nil {
					err = u.open()
				}
			}
			if err != nil {
				t.Fatalf("seed %d: step %d: %v", seed, i, err)
			}
			cuts = append(cuts, u.cutNow(vfstest.Op{}, nil))
		}
		u.mem.SetHook(nil)
		must(t, u.s.Close())
		for i, c := range cuts {
			if err := u.recover(c, 3); err != nil {
				t.Fatalf("seed %d: cut %d of %d, before %q: %v", seed, i, len(cuts), c.op, err)
			}
		}
	}
}

// recover starts on what a cut has left, perhaps cut again on the way.
func (u *user) recover(c cut, depth int) error {
	if depth > 0 && u.rng.IntN(3) == 0 {
		n, again := u.rng.IntN(12), c
		again.mem = nil
		c.mem.SetHook(func(op vfstest.Op) error {
			if n--; n == 0 {
				again.mem, again.op = c.mem.CrashClone(u.rng), op
			}
			return nil
		})
		err := u.look(c)
		c.mem.SetHook(nil)
		if err != nil || again.mem == nil {
			return err
		}
		return u.recover(again, depth-1)
	}
	if err := u.look(c); err != nil {
		return err
	}
	// By now the log has given up its old records.
	c.mem, c.released = c.mem.CrashClone(u.rng), nil
	if err := u.look(c); err != nil {
		return fmt.Errorf("the start after the next: %w", err)
	}
	return nil
}

// look opens a store and compares it with what the log says.
func (u *user) look(c cut) error {
	refs := maps.Clone(c.refs)
	for d := range c.released {
		refs[d] += 0
	}
	s, err := Open(c.mem, testDir, refs, nil, quiet)
	if err != nil {
		return err
	}
	if n := s.Orphans(); n > 0 {
		return fmt.Errorf("%d files are not accounted for", n)
	}
	for d := range c.refs {
		if got, err := read(s, d); err != nil || string(got) != string(u.contents[d]) {
			return fmt.Errorf("%s is referred to and has %d bytes: %w", d, len(got), err)
		}
	}
	if n := s.count(c.mem); n != len(c.refs) {
		return fmt.Errorf("%d files for %d blobs", n, len(c.refs))
	}
	return s.Close()
}

// count returns how many files there are, uploads too.
func (s *Store) count(mem *vfstest.MemFS) (n int) {
	subs, err := mem.List(testDir)
	if err != nil {
		return -1
	}
	for _, sub := range subs {
		if files, err := mem.List(testDir + "/" + sub); err == nil {
			n += len(files)
		}
	}
	return n
}

// Whichever operation fails, an upload that is acknowledged is there and one that is
// not leaves nothing behind; what fails for good is said again by Sync, and a start
// finds everything in order.
func TestEveryFailedOperation(t *testing.T) {
	for fail := 0; ; fail += scaled(-1) {
		rng := rand.New(rand.NewPCG(3, 3)) // the same steps each time
		u := newUser(vfstest.New(), rng)
		must(t, Create(u.mem, testDir))
		must(t, u.open())
		var failed vfstest.Op
		n := 0
		u.mem.SetHook(func(op vfstest.Op) error {
			if n++; n-1 == fail {
				failed = op
				return syscall.EIO
			}
			return nil
		})
		for range 30 {
			if err := u.step(); err != nil && !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s fails: %v", failed, err)
			}
		}
		u.mem.SetHook(nil)
		final := failed.Kind == vfstest.SyncDir || failed.Kind == vfstest.Mkdir ||
			failed.Path == testDir+"/"+journalName || failed.Path == testDir+"/"+journalTemp
		if err := u.s.Sync(); errors.Is(err, syscall.EIO) != final {
			t.Fatalf("%s failed, and later Sync says: %v", failed, err)
		}
		if _, uploads := blobFiles(t, u.mem); uploads > 0 && failed.Kind != vfstest.Remove {
			t.Fatalf("%s failed, and %d uploads are left", failed, uploads)
		}
		_, err := u.s.Collect(1 << 40)
		if names, _ := blobFiles(t, u.mem); err == nil && len(names) != len(u.refs) {
			t.Fatalf("%s failed, and blobs are left that nobody refers to", failed)
		}
		must(t, u.s.Close())
		if failed.Kind == 0 {
			return
		}
		for _, c := range []cut{u.cutNow(failed, rng), {u.mem.Clone(), failed, u.refs, map[Digest]int{}}} {
			for d := range u.released {
				c.released[d] = 0
			}
			if err := u.look(c); err != nil {
				t.Fatalf("%s failed: %v", failed, err)
			}
		}
	}
}

// Without space uploads are refused, and Sync too; both go on when there is space
// again, and nothing is left over.
func TestNoSpace(t *testing.T) {
	for free := int64(0); free < 400<<10; free += int64(scaled(-4)) << 10 {
		seed := rand.Uint64()
		u := newUser(vfstest.New(), rand.New(rand.NewPCG(seed, 0)))
		must(t, Create(u.mem, testDir))
		must(t, u.open())
		must(t, u.publish(content("first", 1000)))
		u.mem.SetFree(free)
		for i := range 40 {
			if err := u.step(); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatalf("seed %d: free %d, step %d: %v", seed, free, i, err)
			}
		}
		must(t, u.s.Close())
		u.mem.SetFree(0)
		must(t, u.open()) // that takes no space
		u.mem.SetFree(-1)
		must(t, u.s.Sync())
		u.released = map[Digest]bool{}
		must(t, u.publish(content("last", 1000)))
		if _, err := u.s.Collect(1 << 40); err != nil {
			t.Fatal(err)
		}
		if n := u.s.count(u.mem); n != len(u.refs) {
			t.Fatalf("seed %d: free %d: %d files for %d blobs", seed, free, n, len(u.refs))
		}
		must(t, u.s.Close())
		if err := u.look(u.cutNow(vfstest.Op{}, nil)); err != nil {
			t.Fatalf("seed %d: free %d: %v", seed, free, err)
		}
	}
}
