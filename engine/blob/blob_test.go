package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const testDir = "data/blobs"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newStore makes an empty store on a file system in memory.
func newStore(t testing.TB) (*vfstest.MemFS, *Store) {
	t.Helper()
	mem := vfstest.New()
	must(t, Create(mem, testDir))
	return mem, open(t, mem, nil)
}

func open(t testing.TB, mem vfs.FS, refs map[Digest]int) *Store {
	t.Helper()
	s, err := Open(mem, testDir, refs, nil, quiet)
	must(t, err)
	return s
}

// content makes bytes that are recognised by their seed.
func content(seed string, size int) []byte {
	return bytes.Repeat([]byte(seed+" "), size/(len(seed)+1)+1)[:size]
}

func digest(b []byte) Digest { return sha256.Sum256(b) }

// upload writes a blob in pieces of several sizes.
func upload(s *Store, b []byte) (Digest, error) {
	w, err := s.Create(int64(len(b)))
	if err != nil {
		return Digest{}, err
	}
	for i, rest := 1, b; len(rest) > 0; i++ {
		n := min(len(rest), i*7000)
		if _, err := w.Write(rest[:n]); err != nil {
			w.Abort()
			return Digest{}, err
		}
		rest = rest[n:]
	}
	return w.Commit()
}

func mustUpload(t testing.TB, s *Store, b []byte) Digest {
	t.Helper()
	d, err := upload(s, b)
	must(t, err)
	if d != digest(b) {
		t.Fatalf("the digest is %s", d)
	}
	return d
}

// read returns all of a blob.
func read(s *Store, d Digest) ([]byte, error) {
	b, err := s.Open(d)
	if err != nil {
		return nil, err
	}
	defer b.Release()
	return b.Append(context.Background(), nil, 0, int(b.Size()))
}

func expect(t testing.TB, s *Store, want []byte) {
	t.Helper()
	got, err := read(s, digest(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes instead of %d: %v", len(got), len(want), err)
	}
}

// blobFiles returns the names of the files of blobs, and whether uploads are left.
func blobFiles(t testing.TB, mem vfs.FS) (names []string, uploads int) {
	t.Helper()
	subs, err := mem.List(testDir)
	must(t, err)
	for _, sub := range subs {
		files, err := mem.List(filepath.Join(testDir, sub))
		if err != nil {
			continue // no directory
		}
		if sub == tmpName {
			uploads = len(files)
			continue
		}
		names = append(names, files...)
	}
	return names, uploads
}

func expectFiles(t testing.TB, mem vfs.FS, want int) {
	t.Helper()
	if names, uploads := blobFiles(t, mem); len(names) != want || uploads > 0 {
		t.Fatalf("%d blobs on disk instead of %d, and %d uploads", len(names), want, uploads)
	}
}

func TestUploadAndRead(t *testing.T) {
	mem, s := newStore(t)
	refs := map[Digest]int{}
	var all [][]byte
	for _, size := range []int{0, 1, 4096, 65535, 65536, 65537, 1 << 20} {
		b := content(fmt.Sprint("size ", size), size)
		all = append(all, b)
		refs[mustUpload(t, s, b)]++
		expect(t, s, b)
	}
	must(t, s.Close())
	s = open(t, mem, refs)
	for _, b := range all {
		expect(t, s, b)
	}
	big := all[len(all)-1]
	b, err := s.Open(digest(big))
	must(t, err)
	for _, r := range []struct{ pos, n int }{{0, 1}, {65530, 10}, {1<<20 - 1, 1}, {5, 300_000}, {1 << 20, 0}} {
		got, err := b.Append(t.Context(), []byte("before"), int64(r.pos), r.n)
		if err != nil || string(got) != "before"+string(big[r.pos:r.pos+r.n]) {
			t.Errorf("%d bytes at %d: %d, %v", r.n, r.pos, len(got), err)
		}
		must(t, b.Verify(t.Context(), int64(r.pos), int64(r.n)))
	}
	if _, err := b.Append(t.Context(), nil, 1<<20, 1); err == nil {
		t.Error("a byte behind the end")
	}
	b.Release()
	must(t, s.Close())
	expectFiles(t, mem, len(all))
}

// A file on a real disk can be sent from its descriptor.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	must(t, Create(vfs.OS, dir))
	s, err := Open(vfs.OS, dir, nil, nil, quiet)
	must(t, err)
	want := content("on disk", 100_000)
	d := mustUpload(t, s, want)
	b, err := s.Open(d)
	must(t, err)
	must(t, b.Verify(t.Context(), 70_000, 100))
	fd, at, ok := b.File(70_000)
	if !ok || fd == 0 {
		t.Fatal("no descriptor")
	}
	got := make([]byte, 100)
	if _, err := b.local.file.ReadAt(got, at); err != nil || !bytes.Equal(got, want[70_000:70_100]) {
		t.Fatalf("%q at %d: %v", got, at, err)
	}
	b.Release()
	must(t, s.Close())
}

// What is given up leaves nothing.
func TestAbort(t *testing.T) {
	mem, s := newStore(t)
	w, err := s.Create(1 << 20)
	must(t, err)
	_, err = w.Write(content("x", 5000))
	must(t, err)
	if w.Size() != 5000 || w.Digest() != digest(content("x", 5000)) {
		t.Errorf("%d bytes, %s", w.Size(), w.Digest())
	}
	w.Abort()
	if s.Pin(digest(content("x", 5000))) {
		t.Error("what was given up can be referred to")
	}
	if _, err := s.Open(digest(nil)); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	expectFiles(t, mem, 0)
	must(t, s.Close())
}

// A blob lives as long as anybody refers to it or reads it.
func TestReferences(t *testing.T) {
	mem, s := newStore(t)
	want := content("shared", 10_000)
	d := mustUpload(t, s, want)
	if !s.Pin(d) {
		t.Fatal("it is not there")
	}
	mustUpload(t, s, want) // the same again: a third reference to the one file
	expectFiles(t, mem, 1)
	collect := func(before base.Millis, want int) {
		t.Helper()
		if n, err := s.Collect(before); n != want || err != nil {
			t.Fatalf("%d blobs were removed instead of %d: %v", n, want, err)
		}
	}
	must(t, s.Unpin(d, 10))
	must(t, s.Unpin(d, 20))
	collect(1000, 0)
	must(t, s.Unpin(d, 30))
	collect(30, 0) // not before its time
	expect(t, s, want)
	if !s.Pin(d) {
		t.Fatal("it has gone too early")
	}
	collect(1000, 0)
	must(t, s.Unpin(d, 40))
	b, err := s.Open(d)
	must(t, err)
	collect(1000, 0) // it is being read
	if got, err := b.Append(t.Context(), nil, 0, 10_000); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	b.Release()
	collect(1000, 1)
	collect(1000, 0)
	if s.Pin(d) {
		t.Error("what is gone can be referred to")
	}
	if _, err := s.Open(d); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	must(t, s.Unpin(d, 50)) // nobody's reference
	expectFiles(t, mem, 0)
	mustUpload(t, s, want)
	expect(t, s, want)
	must(t, s.Close())
}

// Files stay open for the next reader, but not all of them.
func TestOpenFilesAreBounded(t *testing.T) {
	_, s := newStore(t)
	count := func() (n int) {
		for _, e := range s.blobs {
			if e.open != nil {
				n++
			}
		}
		return n
	}
	var all []Digest
	for i := range maxIdle + 50 {
		all = append(all, mustUpload(t, s, content(fmt.Sprint(i), 100)))
	}
	for range 2 {
		for _, d := range all {
			if _, err := read(s, d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := count(); n != maxIdle || len(s.idle) != maxIdle {
		t.Errorf("%d files are open, %d of them idle", n, len(s.idle))
	}
	var held []*Blob
	for _, d := range all {
		b, err := s.Open(d)
		must(t, err)
		held = append(held, b)
	}
	if len(s.idle) != 0 || count() != len(all) {
		t.Errorf("%d are idle that are being read", len(s.idle))
	}
	for i, b := range held {
		if got, err := b.Append(t.Context(), nil, 0, 100); err != nil || !bytes.Equal(got, content(fmt.Sprint(i), 100)) {
			t.Fatal(err)
		}
		b.Release()
	}
	must(t, s.Close())
}

// A damaged block is an error for its range alone; other damage is one for the blob.
func TestDamage(t *testing.T) {
	mem, s := newStore(t)
	want := content("damaged", 200_000)
	d := mustUpload(t, s, want)
	path := s.path(d)
	must(t, s.Close())
	refs := map[Digest]int{d: 1}
	flip := func(at int64) { must(t, mem.Corrupt(path, at, func(b []byte) { b[0] ^= 4 })) }
	isCorruption := func(err error) bool {
		c, ok := errors.AsType[*base.CorruptionError](err)
		return ok && c.Path == path
	}
	f, err := mem.Open(path)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	whole := make([]byte, size)
	_, err = f.ReadAt(whole, 0)
	must(t, err)
	must(t, f.Close())
	at := int64(bytes.Index(whole, want)) + 70_000
	flip(at)
	s = open(t, mem, refs)
	b, err := s.Open(d)
	must(t, err)
	for _, c := range []struct {
		pos, n int
		bad    bool
	}{{0, 65_000, false}, {66_000, 10, true}, {0, 200_000, true}, {135_000, 60_000, false}} {
		got, err := b.Append(t.Context(), nil, int64(c.pos), c.n)
		if c.bad != isCorruption(err) || !c.bad && !bytes.Equal(got, want[c.pos:c.pos+c.n]) {
			t.Errorf("%d bytes at %d: %v", c.n, c.pos, err)
		}
		if err := b.Verify(t.Context(), int64(c.pos), int64(c.n)); c.bad != isCorruption(err) {
			t.Errorf("verify %d bytes at %d: %v", c.n, c.pos, err)
		}
	}
	b.Release()
	must(t, s.Close())
	flip(at)
	for _, at := range []int64{3, size - 3, size - 60} {
		flip(at)
		s = open(t, mem, refs)
		if _, err := s.Open(d); !isCorruption(err) {
			t.Errorf("damaged at %d of %d: %v", at, size, err)
		}
		must(t, s.Close())
		flip(at)
	}
	must(t, mem.Remove(path))
	s = open(t, mem, refs)
	for range 2 {
		if _, err := s.Open(d); !isCorruption(err) {
			t.Errorf("missing: %v", err)
		}
	}
	must(t, s.Close())
}

// Nothing that is not accounted for is ever removed.
func TestOrphans(t *testing.T) {
	mem, s := newStore(t)
	kept := mustUpload(t, s, content("kept", 100))
	stray := mustUpload(t, s, content("stray", 100))
	must(t, s.Close())
	put := func(path string) string {
		path = filepath.Join(testDir, path)
		must(t, mem.MkdirAll(filepath.Dir(path)))
		f, err := mem.Create(path)
		must(t, err)
		must(t, f.Close())
		return path
	}
	name := stray.String()
	must(t, mem.Rename(s.path(stray), s.path(stray)+"x"))
	stays := []string{
		s.path(stray) + "x", put("aa/notes.txt"), put("README"), put("bb"), put("zz/" + name),
		put(strings.ToUpper("ab") + "/" + strings.Repeat("AB", 32)), put("ab/" + strings.Repeat("ab", 32)),
	}
	goes := put("tmp/upload")
	s = open(t, mem, map[Digest]int{kept: 1})
	if n := s.Orphans(); n != int64(len(stays)) {
		t.Errorf("%d orphans instead of %d", n, len(stays))
	}
	for _, path := range stays {
		if _, err := mem.Stat(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := mem.Stat(goes); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", goes, err)
	}
	expect(t, s, content("kept", 100))
	must(t, s.Close())
}
