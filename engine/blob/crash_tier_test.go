package blob

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// tierUser is a user with an object store, of which it keeps the list of dead objects:
// those may be deleted from then on.
type tierUser struct {
	*user
	shelf     *shelf
	dead      map[uint64]bool // on the list
	saved     map[uint64]bool // acknowledged by Saved and not forgotten
	forgotten map[uint64]bool // acknowledged by Forget
	pending   []Pending
}

func newTierUser(mem *vfstest.MemFS, rng *rand.Rand) *tierUser {
	return &tierUser{
		user: newUser(mem, rng), shelf: newShelf(),
		dead: map[uint64]bool{}, saved: map[uint64]bool{}, forgotten: map[uint64]bool{},
	}
}

// tierCut is a cut with the object store as it is once all that is dead is deleted.
type tierCut struct {
	cut
	shelf            *shelf
	saved, forgotten map[uint64]bool
}

func (u *tierUser) cutNow(op vfstest.Op, rng *rand.Rand) tierCut {
	c := tierCut{cut: u.user.cutNow(op, rng), shelf: u.shelf.without(u.dead), saved: maps.Clone(u.saved), forgotten: maps.Clone(u.forgotten)}
	return c
}

func (h *shelf) without(dead map[uint64]bool) *shelf {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &shelf{objects: maps.Clone(h.objects), next: h.next}
	for n := range dead {
		delete(c.objects, n)
	}
	return c
}

func (u *tierUser) refsAtStart() map[Digest]int {
	refs := maps.Clone(u.refs)
	for d := range u.released {
		refs[d] += 0
	}
	return refs
}

func (u *tierUser) open() (err error) {
	u.pending = nil
	u.s, err = Open(u.mem, testDir, u.refsAtStart(), u.shelf.remote, quiet)
	return err
}

// step does one thing at random. It is told whether files may be damaged.
func (u *tierUser) step(damage bool) error {
	u.now += 10
	switch u.rng.IntN(10) {
	default:
		return u.user.step()
	case 0, 1:
		u.pending = append(u.pending, u.s.Unsaved(1+u.rng.IntN(3), nil)...)
		return u.copyOne()
	case 2:
		return u.copyOne()
	case 3:
		_, err := u.s.Evict(u.rng.Int64N(200_000))
		return err
	case 4:
		return u.bury()
	case 5:
		if damage {
			u.spoil()
		}
	}
	return nil
}

// copyOne ends one copy, or gives it up.
func (u *tierUser) copyOne() error {
	if len(u.pending) == 0 {
		return nil
	}
	p := u.pending[0]
	u.pending = u.pending[1:]
	b, err := fileOf(u.s, p)
	if err != nil || u.rng.IntN(4) == 0 {
		u.s.GiveUp(p)
		if damaged(err) {
			return nil
		}
		return err
	}
	n := u.shelf.put(b)
	if err := u.s.Saved(p, n); err != nil {
		u.s.GiveUp(p)
		return err
	}
	u.saved[n] = true
	return nil
}

func damaged(err error) bool { return damage(err) && !errors.Is(err, syscall.EIO) }

// bury puts orphans on the list of the dead, deletes some and has others forgotten.
func (u *tierUser) bury() error {
	var gone []Object
	for _, o := range u.s.Orphaned() {
		if e := u.s.blobs[o.Digest]; e != nil && e.object.Number == o.Number {
			return fmt.Errorf("object %d is an orphan and not", o.Number)
		}
		if u.rng.IntN(3) > 0 {
			u.dead[o.Number] = true
		}
		if u.dead[o.Number] && u.rng.IntN(2) == 0 {
			gone = append(gone, o)
		}
	}
	for n := range u.dead {
		if u.rng.IntN(3) == 0 {
			u.shelf.remove(n)
		}
	}
	for _, o := range gone {
		delete(u.saved, o.Number)
	}
	err := u.s.Forget(gone)
	for _, o := range gone {
		u.forgotten[o.Number] = err == nil
	}
	return err
}

// spoil damages the file of a blob that has an object.
func (u *tierUser) spoil() {
	for d := range u.refs {
		e := u.s.blobs[d]
		if e.file == fileAbsent || e.doubted || e.saving || u.shelf.objects[e.object.Number] == nil {
			continue
		}
		at := u.rng.Int64N(e.size)
		if err := u.mem.Corrupt(u.s.path(d), at, func(b []byte) { b[0] ^= 1 }); err != nil {
			panic(err)
		}
		return
	}
}

// Power cuts at any operation: a file is only gone when an object is sure to be found
// instead, no object is lost sight of, and what may be deleted is never needed again.
func TestPowerCutsWithObjects(t *testing.T) {
	for range scaled(6) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		u := newTierUser(vfstest.New(), rng)
		must(t, Create(u.mem, testDir))
		must(t, u.open())
		var cuts []tierCut
		u.mem.SetHook(func(op vfstest.Op) error {
			cuts = append(cuts, u.cutNow(op, rng))
			return nil
		})
		damage := seed%2 == 0
		for i := range 80 {
			err := u.step(damage)
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
func (u *tierUser) recover(c tierCut, depth int) error {
	if depth > 0 && u.rng.IntN(3) == 0 {
		n, again := u.rng.IntN(16), c
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
	c.mem, c.released = c.mem.CrashClone(u.rng), nil
	if err := u.look(c); err != nil {
		return fmt.Errorf("the start after the next: %w", err)
	}
	return nil
}

// look opens a store and compares it with what the log says, before and after everything
// that may go has been evicted.
func (u *tierUser) look(c tierCut) error {
	refs := maps.Clone(c.refs)
	for d := range c.released {
		refs[d] += 0
	}
	s, err := Open(c.mem, testDir, refs, c.shelf.remote, quiet)
	if err != nil {
		return err
	}
	if n := s.Orphans(); n > 0 {
		return fmt.Errorf("%d files are not accounted for", n)
	}
	known := map[uint64]bool{}
	for o := range s.Objects {
		known[o.Number] = true
	}
	for n := range c.saved {
		if !known[n] {
			return fmt.Errorf("object %d has been lost sight of", n)
		}
	}
	for n, sure := range c.forgotten {
		if sure && known[n] {
			return fmt.Errorf("object %d has been forgotten, and is known", n)
		}
	}
	for _, o := range s.Orphaned() {
		if e := s.blobs[o.Digest]; e != nil && e.object.Number == o.Number {
			return fmt.Errorf("object %d is an orphan and not", o.Number)
		}
	}
	for range 2 {
		here := 0
		for d := range c.refs {
			got, err := read(s, d)
			if err != nil || string(got) != string(u.contents[d]) {
				return fmt.Errorf("%s is referred to and has %d bytes: %w", d, len(got), err)
			}
			if s.blobs[d].file != fileAbsent {
				here++
			}
		}
		if n := s.count(c.mem); n != here || len(s.blobs) != len(c.refs) {
			return fmt.Errorf("%d files for %d blobs, of which %d are here", n, len(c.refs), here)
		}
		if _, err := s.Evict(1 << 60); err != nil {
			return err
		}
	}
	return s.Close()
}

// Whichever operation fails, with objects too.
func TestEveryFailedOperationWithObjects(t *testing.T) {
	for fail := 0; ; fail += scaled(-1) {
		rng := rand.New(rand.NewPCG(7, 7)) // the same steps each time
		u := newTierUser(vfstest.New(), rng)
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
		for range 50 {
			if err := u.step(false); err != nil && !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s fails: %v", failed, err)
			}
		}
		u.mem.SetHook(nil)
		in := func(names ...string) bool {
			for _, name := range names {
				if failed.Path == testDir+"/"+name {
					return true
				}
			}
			return false
		}
		final := failed.Kind == vfstest.SyncDir || failed.Kind == vfstest.Mkdir || in(journalName, journalTemp, ledgerName, ledgerTemp)
		if err := u.s.Sync(); errors.Is(err, syscall.EIO) != final {
			t.Fatalf("%s failed, and later Sync says: %v", failed, err)
		}
		must(t, u.s.Close())
		if failed.Kind == 0 {
			return
		}
		now := u.cutNow(failed, rng)
		after := now
		after.mem = u.mem.Clone()
		for _, c := range []tierCut{now, after} {
			if err := u.look(c); err != nil {
				t.Fatalf("%s failed: %v", failed, err)
			}
		}
	}
}

// Without space nothing is lost, and everything goes on when there is space again.
func TestNoSpaceWithObjects(t *testing.T) {
	for free := int64(0); free < 400<<10; free += int64(scaled(-4)) << 10 {
		seed := rand.Uint64()
		u := newTierUser(vfstest.New(), rand.New(rand.NewPCG(seed, 0)))
		must(t, Create(u.mem, testDir))
		must(t, u.open())
		must(t, u.publish(content("first", 1000)))
		if seed%2 == 0 {
			u.pending = u.s.Unsaved(1, nil)
			must(t, u.copyOne())
		}
		u.mem.SetFree(free)
		for i := range 60 {
			if err := u.step(false); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatalf("seed %d: free %d, step %d: %v", seed, free, i, err)
			}
		}
		must(t, u.s.Close())
		u.mem.SetFree(0)
		must(t, u.open()) // that takes no space
		u.mem.SetFree(-1)
		// What it goes on with is durable.
		if err := u.look(u.cutNow(vfstest.Op{}, nil)); err != nil {
			t.Fatalf("seed %d: free %d: on a full disk: %v", seed, free, err)
		}
		must(t, u.s.Sync())
		u.released = map[Digest]bool{}
		must(t, u.publish(content("last", 1000)))
		if _, err := u.s.Collect(1 << 40); err != nil {
			t.Fatal(err)
		}
		for _, p := range u.s.Unsaved(100, nil) {
			u.pending = []Pending{p}
			must(t, u.copyOne())
		}
		must(t, u.s.Forget(u.s.Orphaned()))
		if len(u.s.Orphaned()) > 0 {
			t.Fatalf("seed %d: orphans are left", seed)
		}
		must(t, u.s.Close())
		clear(u.saved)
		if err := u.look(u.cutNow(vfstest.Op{}, nil)); err != nil {
			t.Fatalf("seed %d: free %d: %v", seed, free, err)
		}
	}
}

// A failed sync leaves a ledger that reads well and is not on the disk. A start without
// space goes on with it only once it is.
func TestLedgerIsResumed(t *testing.T) {
	mem, s, h := newTiered(t)
	want := content("resumed", 1000)
	d := mustUpload(t, s, want)
	other := mustUpload(t, s, content("other", 1000))
	p := s.Unsaved(2, nil)
	if p[0].Digest != other {
		p[0], p[1] = p[1], p[0]
	}
	b, err := fileOf(s, p[0])
	must(t, err)
	must(t, s.Saved(p[0], h.put(b)))
	b, err = fileOf(s, p[1])
	must(t, err)
	mem.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Datasync {
			return syscall.EIO
		}
		return nil
	})
	if err := s.Saved(p[1], h.put(b)); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	mem.SetHook(nil)
	if err := s.Saved(p[1], 9); !errors.Is(err, syscall.EIO) {
		t.Fatal("that was final", err)
	}
	must(t, s.Close())
	refs := map[Digest]int{d: 1, other: 1}
	mem.SetFree(0)
	s = openTiered(t, mem, refs, h)
	if !s.Has(d) {
		t.Fatal("the entry does not read well")
	}
	evictAll(t, s)
	must(t, mem.SyncDir(filepath.Dir(s.path(d))))
	mem.SetFree(-1)
	must(t, s.Close())
	mem = mem.CrashClone(nil)
	s = openTiered(t, mem, refs, h)
	if _, err := mem.Stat(s.path(d)); err == nil {
		t.Error("it is not evicted")
	}
	expect(t, s, want)
	must(t, s.Close())
}

// As long as the ledger does not say that an object is an orphan, nobody learns of it: the
// same bytes may come back, and after a crash the object be theirs again.
func TestOrphansAreMarkedFirst(t *testing.T) {
	mem, s, h := newTiered(t)
	want := content("comes back", 1000)
	d := mustUpload(t, s, want)
	save(t, s, h)
	must(t, s.Unpin(d, 1))
	full := func(kind vfstest.Kind) {
		mem.SetHook(func(op vfstest.Op) error {
			if op.Kind == kind && (op.Path == testDir+"/"+ledgerName || op.Path == testDir+"/"+ledgerTemp) {
				return vfs.ErrNoSpace
			}
			return nil
		})
	}
	full(vfstest.Write)
	if n, err := s.Collect(100); n != 1 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(n, err)
	}
	expectNumbers(t, "not marked", s.Orphaned())
	expectNumbers(t, "all", slices.Collect(s.Objects), 1)
	must(t, s.Forget([]Object{{d, 1, 1}}))
	mustUpload(t, s, want)
	if s.Has(d) {
		t.Error("an orphan counts as an object")
	}
	crashed := openTiered(t, mem.CrashClone(nil), map[Digest]int{d: 1}, h)
	if !crashed.Has(d) {
		t.Error("the object has been lost sight of")
	}
	expectNumbers(t, "after a crash", crashed.Orphaned())
	must(t, crashed.Close())
	must(t, s.Close())
	full(vfstest.Create)
	s, err := Open(mem, testDir, nil, h.remote, quiet) // as there is no space, with the present one
	must(t, err)
	expectNumbers(t, "after a start", s.Orphaned())
	mem.SetHook(nil)
	if _, err := s.Collect(100); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, "marked", s.Orphaned(), 1)
	must(t, s.Close())
}

// What a write that failed has left is gone after the next one.
func TestWriteAfterFailedOne(t *testing.T) {
	mem := vfstest.New()
	must(t, mem.MkdirAll(testDir))
	g, err := replaceFile(mem, testDir, "F", "F.tmp", 5, slices.Values([][]byte{[]byte("begin")}))
	must(t, err)
	mem.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Datasync {
			return vfs.ErrNoSpace
		}
		return nil
	})
	for _, s := range []string{"long long long", "longer"} {
		if err := g.write([]byte(s)); !errors.Is(err, vfs.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	mem.SetHook(nil)
	must(t, g.write([]byte("short")))
	must(t, g.write([]byte("and")))
	must(t, g.f.Close())
	if got := contentOf(t, mem.CrashClone(nil), testDir+"/F"); !bytes.Equal(bytes.TrimRight(got, "\x00"), []byte("beginshortand")) {
		t.Errorf("%q", got)
	}
}
