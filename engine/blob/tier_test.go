package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/segment"
)

// shelf is an object store.
type shelf struct {
	mu      sync.Mutex
	objects map[uint64][]byte
	next    uint64
	down    bool
}

var (
	errGone = errors.New("there is no such object")
	errDown = errors.New("the object store can't be asked")
)

func newShelf() *shelf { return &shelf{objects: map[uint64][]byte{}} }

func (h *shelf) put(b []byte) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.objects[h.next] = b
	return h.next
}

func (h *shelf) remove(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.objects, n)
}

func (h *shelf) remote(o Object) segment.Refetcher { return &shelved{h, o} }

// shelved is an object as it is read.
type shelved struct {
	*shelf
	Object
}

func (o *shelved) Size() int64 { return o.Object.Size }

func (o *shelved) Discard(int64, int64) {}

func (o *shelved) ReadAt(p []byte, off int64) (int, error) {
	return o.ReadContext(context.Background(), p, off)
}

func (o *shelved) ReadContext(_ context.Context, p []byte, off int64) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, ok := o.objects[o.Number]
	switch {
	case o.down:
		return 0, errDown
	case !ok || off > int64(len(b)):
		return 0, errGone
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// newTiered makes an empty store with an object store.
func newTiered(t testing.TB) (*vfstest.MemFS, *Store, *shelf) {
	t.Helper()
	mem := vfstest.New()
	must(t, Create(mem, testDir))
	h := newShelf()
	return mem, openTiered(t, mem, nil, h), h
}

func openTiered(t testing.TB, mem vfs.FS, refs map[Digest]int, h *shelf) *Store {
	t.Helper()
	s, err := Open(mem, testDir, refs, h.remote, quiet)
	must(t, err)
	return s
}

// fileOf returns the bytes of a pending blob's file, once it is verified.
func fileOf(s *Store, p Pending) ([]byte, error) {
	f, seg, err := s.OpenFile(p)
	if err != nil {
		return nil, err
	}
	b := make([]byte, seg.Size())
	_, err = f.ReadAt(b, 0)
	if err == nil {
		err = seg.VerifyAll(context.Background())
	}
	if err == nil && p.Size != seg.Size() {
		err = fmt.Errorf("%d bytes are pending of %d", p.Size, seg.Size())
	}
	return b, errors.Join(err, f.Close())
}

// save makes copies of all that has none and returns how many.
func save(t testing.TB, s *Store, h *shelf) int {
	t.Helper()
	all := s.Unsaved(100, nil)
	for _, p := range all {
		b, err := fileOf(s, p)
		must(t, err)
		must(t, s.Saved(p, h.put(b)))
	}
	return len(all)
}

func numbers(all []Object) (out []uint64) {
	for _, o := range all {
		out = append(out, o.Number)
	}
	slices.Sort(out)
	return out
}

func expectNumbers(t testing.TB, what string, all []Object, want ...uint64) {
	t.Helper()
	if got := numbers(all); !slices.Equal(got, want) {
		t.Fatalf("%s: objects %v instead of %v", what, got, want)
	}
}

// evictAll evicts what may go.
func evictAll(t testing.TB, s *Store) int64 {
	t.Helper()
	freed, err := s.Evict(1 << 60)
	must(t, err)
	return freed
}

func TestSaveEvictAndRead(t *testing.T) {
	mem, s, h := newTiered(t)
	refs := map[Digest]int{}
	var all [][]byte
	for _, size := range []int{0, 1, 65536, 300_000} {
		b := content(fmt.Sprint("size ", size), size)
		all = append(all, b)
		refs[mustUpload(t, s, b)]++
	}
	if s.Has(digest(all[0])) || evictAll(t, s) != 0 {
		t.Fatal("what has no object may go")
	}
	local := s.LocalBytes()
	if n := save(t, s, h); n != len(all) {
		t.Fatalf("%d copies", n)
	}
	if n := save(t, s, h); n != 0 {
		t.Fatalf("%d more copies", n)
	}
	for range 2 {
		if freed := evictAll(t, s); freed != local || s.LocalBytes() != 0 {
			t.Fatalf("%d of %d bytes are freed, and %d are left", freed, local, s.LocalBytes())
		}
		expectFiles(t, mem, 0)
		for _, b := range all {
			if !s.Has(digest(b)) || s.Lost(digest(b)) || !s.Pin(digest(b)) {
				t.Fatal("it is gone")
			}
			must(t, s.Unpin(digest(b), 1))
			expect(t, s, b)
		}
		must(t, s.Close())
		mem = mem.CrashClone(nil) // where the names may be back
		s = openTiered(t, mem, refs, h)
		local = s.LocalBytes()
	}
	evictAll(t, s)
	big := all[len(all)-1]
	b, err := s.Open(digest(big))
	must(t, err)
	if _, _, ok := b.File(0); ok {
		t.Error("a file that has been evicted")
	}
	if err := b.Verify(t.Context(), 0, 10); !errors.Is(err, ErrNotLocal) {
		t.Error(err)
	}
	h.down = true
	if _, err := b.Append(t.Context(), nil, 0, 10); !errors.Is(err, errDown) {
		t.Error(err)
	}
	if _, err := s.Open(digest(all[0])); !errors.Is(err, errDown) {
		t.Error(err)
	}
	h.down = false
	b.Release()
	must(t, s.Close())
	s = open(t, mem, refs) // whoever takes the object store away gets told
	if _, err := s.Open(digest(big)); err == nil || errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	must(t, s.Close())
}

// What was used longest ago goes first, and nothing that somebody reads.
func TestEvictionOrder(t *testing.T) {
	mem, s, h := newTiered(t)
	var all [][]byte
	for i := range 4 {
		all = append(all, content(fmt.Sprint("blob ", i), 10_000))
		mustUpload(t, s, all[i])
	}
	save(t, s, h)
	for _, i := range []int{2, 0, 3, 1} {
		expect(t, s, all[i])
	}
	b, err := s.Open(digest(all[2]))
	must(t, err)
	here := func() (is []int) {
		names, _ := blobFiles(t, mem)
		for i, b := range all {
			if slices.Contains(names, digest(b).String()) {
				is = append(is, i)
			}
		}
		return is
	}
	size := s.LocalBytes() / 4
	for _, want := range [][]int{{1, 2, 3}, {1, 2}, {2}, {2}} {
		freed, err := s.Evict(1)
		if err != nil || freed != 0 && freed != size || !slices.Equal(here(), want) {
			t.Fatalf("%d bytes were freed, %v are left instead of %v: %v", freed, here(), want, err)
		}
	}
	b.Release()
	if freed, err := s.Evict(1); freed != size || err != nil {
		t.Fatal(freed, err)
	}
	must(t, s.Close())
}

// A blob that is being copied stays, and is not given out twice.
func TestPending(t *testing.T) {
	mem, s, h := newTiered(t)
	one, two := content("one", 1000), content("two", 1000)
	d := mustUpload(t, s, one)
	all := s.Unsaved(10, nil)
	if len(all) != 1 || all[0].Digest != d || all[0].Path != s.path(d) || len(s.Unsaved(10, nil)) != 0 {
		t.Fatalf("%v is pending", all)
	}
	must(t, s.Unpin(d, 1))
	if n, err := s.Collect(100); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	b, err := fileOf(s, all[0])
	must(t, err)
	s.GiveUp(all[0])
	if len(s.Unsaved(10, nil)) != 0 {
		t.Fatal("a copy of what nobody refers to")
	}
	if err := s.Saved(all[0], 5); err == nil {
		t.Fatal("a copy that nobody makes")
	}
	if !s.Pin(d) {
		t.Fatal("it is gone")
	}
	all = s.Unsaved(10, nil)
	if len(all) != 1 || s.Saved(all[0], 0) == nil {
		t.Fatalf("%v is pending", all)
	}
	must(t, s.Unpin(d, 1))
	must(t, s.Saved(all[0], h.put(b)))
	if n, err := s.Collect(100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	expectNumbers(t, "collected", s.Orphaned(), 1)
	mustUpload(t, s, one)
	mustUpload(t, s, two)
	if n := len(s.Unsaved(1, nil)); n != 1 {
		t.Fatalf("%d instead of 1", n)
	}
	must(t, s.Close())
	s = open(t, mem, map[Digest]int{d: 1})
	if len(s.Unsaved(10, nil)) != 0 {
		t.Fatal("copies without an object store")
	}
	must(t, s.Close())
}

// An object is an orphan from the removal of its blob until it is forgotten, even if the
// same bytes come back meanwhile.
func TestOrphanedObjects(t *testing.T) {
	mem, s, h := newTiered(t)
	want := content("comes back", 1000)
	d := mustUpload(t, s, want)
	save(t, s, h)
	must(t, s.Forget([]Object{{Digest: d, Number: 1}})) // which is no orphan
	evictAll(t, s)
	must(t, s.Unpin(d, 1))
	expectNumbers(t, "before", s.Orphaned())
	if n, err := s.Collect(100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	expectNumbers(t, "collected", s.Orphaned(), 1)
	h.remove(1) // whoever deletes objects may be fast
	mustUpload(t, s, want)
	for range 2 {
		expectNumbers(t, "again there", s.Orphaned(), 1)
		if s.Has(d) || evictAll(t, s) != 0 {
			t.Fatal("an orphan counts as an object")
		}
		expect(t, s, want)
		must(t, s.Close())
		mem = mem.CrashClone(nil)
		s = openTiered(t, mem, map[Digest]int{d: 1}, h)
	}
	save(t, s, h)
	expectNumbers(t, "saved again", s.Orphaned(), 1)
	expectNumbers(t, "all", slices.Collect(s.Objects), 1, 2)
	must(t, s.Forget([]Object{{Digest: d, Number: 1}, {Digest: d, Number: 2}, {Digest: d, Number: 3}}))
	must(t, s.Forget(nil))
	for range 2 {
		expectNumbers(t, "forgotten", s.Orphaned())
		expectNumbers(t, "all", slices.Collect(s.Objects), 2)
		evictAll(t, s)
		expect(t, s, want)
		must(t, s.Close())
		mem = mem.CrashClone(nil)
		s = openTiered(t, mem, map[Digest]int{d: 1}, h)
	}
	must(t, s.Close())
	s = openTiered(t, mem, nil, h)
	expectNumbers(t, "nothing refers to it at a start", s.Orphaned(), 2)
	for o := range s.Objects {
		if o.Digest != d || o.Size == 0 {
			t.Error(o)
		}
		break
	}
	must(t, s.Close())
}

// A damaged file is not used when there is an object, and is an error when there is none.
func TestDamagedFileAndObject(t *testing.T) {
	for _, saved := range []bool{false, true} {
		mem, s, h := newTiered(t)
		want := content("damaged", 200_000)
		d := mustUpload(t, s, want)
		if saved {
			save(t, s, h)
		}
		path := s.path(d)
		size := s.LocalBytes()
		must(t, s.Close())
		for _, at := range []int64{3, 4096 + 70_000, size - 60} {
			flip := func() { must(t, mem.Corrupt(path, at, func(b []byte) { b[0] ^= 4 })) }
			flip()
			s = openTiered(t, mem, map[Digest]int{d: 1}, h)
			if b, err := s.Open(d); err == nil {
				err := b.Verify(t.Context(), 0, 200_000)
				_, corrupt := errors.AsType[*base.CorruptionError](err)
				if saved != errors.Is(err, ErrNotLocal) || saved == corrupt {
					t.Errorf("saved %v, damaged at %d: %v", saved, at, err)
				}
				b.Release()
			}
			for range 2 {
				got, err := read(s, d)
				_, corrupt := errors.AsType[*base.CorruptionError](err)
				if saved == corrupt || saved && !bytes.Equal(got, want) {
					t.Errorf("saved %v, damaged at %d: %d bytes, %v", saved, at, len(got), err)
				}
			}
			if all := s.Unsaved(1, nil); !saved && at == 3 && (len(all) > 0 || !s.Lost(d)) {
				t.Error("a copy is to be made of what can't be opened")
			}
			must(t, s.Close())
			flip()
		}
	}
}

// What is damaged is healed by an upload of the same bytes, and a new copy made of it.
func TestHealing(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		for _, c := range []struct {
			name  string
			saved bool
			spoil func(mem *vfstest.MemFS, s *Store, h *shelf, path string)
		}{
			{"block", false, func(mem *vfstest.MemFS, _ *Store, _ *shelf, path string) {
				must(t, mem.Corrupt(path, 100_000, func(b []byte) { b[0] ^= 1 }))
			}},
			{"header", false, func(mem *vfstest.MemFS, _ *Store, _ *shelf, path string) {
				must(t, mem.Corrupt(path, 0, func(b []byte) { b[0] ^= 1 }))
			}},
			{"missing", false, func(mem *vfstest.MemFS, _ *Store, _ *shelf, path string) { must(t, mem.Remove(path)) }},
			{"block, with a good object", true, func(mem *vfstest.MemFS, _ *Store, _ *shelf, path string) {
				must(t, mem.Corrupt(path, 100_000, func(b []byte) { b[0] ^= 1 }))
			}},
			{"evicted, and no object", true, func(_ *vfstest.MemFS, s *Store, h *shelf, _ string) {
				evictAll(t, s)
				h.remove(1)
			}},
			{"evicted, and a damaged object", true, func(_ *vfstest.MemFS, s *Store, h *shelf, _ string) {
				evictAll(t, s)
				h.objects[1][100_000] ^= 1
			}},
		} {
			t.Run(fmt.Sprint(c.name, " noticed ", noticed), func(t *testing.T) {
				mem, s, h := newTiered(t)
				want := content("healed", 200_000)
				d := mustUpload(t, s, want)
				if c.saved {
					save(t, s, h)
				}
				if !noticed {
					must(t, s.Close())
					s = openTiered(t, mem, map[Digest]int{d: 1}, h)
				}
				c.spoil(mem, s, h, s.path(d))
				var reader *Blob
				if noticed {
					if b, err := s.Open(d); err == nil {
						_, _ = b.Append(t.Context(), nil, 0, 200_000)
						reader = b
					}
				}
				mustUpload(t, s, want)
				for range 2 {
					h.down = true
					expect(t, s, want)
					b, err := s.Open(d)
					must(t, err)
					must(t, b.Verify(t.Context(), 0, 200_000))
					b.Release()
					h.down = false
					if s.Has(d) != c.saved || s.Lost(d) || evictAll(t, s) != 0 {
						t.Fatal("the old object counts")
					}
					if reader != nil {
						reader.Release()
						reader = nil
					}
					must(t, s.Close())
					mem = mem.CrashClone(nil)
					s = openTiered(t, mem, map[Digest]int{d: 1}, h)
				}
				if n := save(t, s, h); n != 1 {
					t.Fatalf("%d copies of what was healed", n)
				}
				if c.saved {
					expectNumbers(t, "replaced", s.Orphaned(), 1)
				}
				evictAll(t, s)
				expect(t, s, want)
				must(t, s.Close())
			})
		}
	}
}

// A copy of a file that has been replaced while it was made is in doubt.
func TestSavedAfterHealing(t *testing.T) {
	mem, s, h := newTiered(t)
	want := content("late", 200_000)
	d := mustUpload(t, s, want)
	must(t, mem.Corrupt(s.path(d), 100_000, func(b []byte) { b[0] ^= 1 }))
	p := s.Unsaved(1, nil)[0]
	f, seg, err := s.OpenFile(p)
	must(t, err)
	bad := make([]byte, seg.Size())
	_, err = f.ReadAt(bad, 0)
	must(t, err)
	must(t, f.Close())
	mustUpload(t, s, want)
	must(t, s.Saved(p, h.put(bad)))
	for range 2 {
		if evictAll(t, s) != 0 {
			t.Fatal("the only good copy is gone")
		}
		must(t, s.Close())
		mem = mem.CrashClone(nil)
		s = openTiered(t, mem, map[Digest]int{d: 1}, h)
	}
	save(t, s, h)
	expectNumbers(t, "replaced", s.Orphaned(), 1)
	evictAll(t, s)
	expect(t, s, want)
	must(t, s.Close())
}

// A turn that adds a reference does not wait for a file that is being removed or
// replaced; a reader does.
func TestPinDuringEviction(t *testing.T) {
	for _, kind := range []vfstest.Kind{vfstest.Remove, vfstest.Rename} {
		mem, s, h := newTiered(t)
		want := content("held up", 10_000)
		d := mustUpload(t, s, want)
		save(t, s, h)
		if kind == vfstest.Rename {
			evictAll(t, s)
		}
		reached, gate := make(chan struct{}), make(chan struct{})
		var once sync.Once
		mem.SetHook(func(op vfstest.Op) error {
			if op.Kind == kind && (op.Path == s.path(d) || op.To == s.path(d)) {
				once.Do(func() {
					close(reached)
					<-gate
				})
			}
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if kind == vfstest.Rename {
				mustUpload(t, s, want)
			} else if freed, err := s.Evict(1); freed == 0 || err != nil {
				t.Error(freed, err)
			}
		})
		<-reached
		if !s.Pin(d) || s.Unpin(d, 1) != nil || !s.Has(d) || len(s.Unsaved(1, nil)) > 0 || evictAll(t, s) != 0 {
			t.Error("it can't be referred to")
		}
		wg.Go(func() { expect(t, s, want) })
		close(gate)
		wg.Wait()
		must(t, s.Close())
	}
}

// A large file goes piece by piece, once its name is gone: for good if anything may
// refer to the blob.
func TestLargeFilesGoInPieces(t *testing.T) {
	mem, s, h := newTiered(t)
	want := content("large", 10<<20)
	d := mustUpload(t, s, want)
	save(t, s, h)
	kinds := func() (out []string) {
		for _, line := range mem.Trace() {
			out = append(out, line[:strings.IndexByte(line, ' ')])
		}
		return out
	}
	mem.StartTrace(vfstest.Remove, vfstest.SyncDir, vfstest.Truncate)
	evictAll(t, s)
	if got := kinds(); !slices.Equal(got, []string{"remove", "syncdir", "truncate", "truncate"}) {
		t.Errorf("evicted by %v", got)
	}
	expect(t, s, want)
	mustUpload(t, s, want)
	must(t, s.Unpin(d, 1))
	must(t, s.Unpin(d, 1))
	mem.StartTrace(vfstest.Remove, vfstest.SyncDir, vfstest.Truncate)
	if n, err := s.Collect(100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := kinds(); !slices.Equal(got, []string{"remove", "truncate", "truncate", "syncdir"}) {
		t.Errorf("removed by %v", got)
	}
	must(t, s.Close())
}
