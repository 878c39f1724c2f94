package vfstest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const block = vfs.BlockSize

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rng returns the generator of a seed.
func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// blocks returns one block filled with each letter.
func blocks(letters string) []byte {
	var b []byte
	for _, c := range []byte(letters) {
		b = append(b, bytes.Repeat([]byte{c}, block)...)
	}
	return b
}

// summary is blocks backwards: the first byte of each block, '.' for zero, and
// "+n" for n bytes of a last block that is not whole.
func summary(b []byte) string {
	var s strings.Builder
	for ; len(b) >= block; b = b[block:] {
		if !bytes.Equal(b[:block], bytes.Repeat(b[:1], block)) {
			return "mixed"
		}
		s.WriteByte(max(b[0], '.'))
	}
	if len(b) > 0 {
		fmt.Fprintf(&s, "+%d", len(b))
	}
	return s.String()
}

func write(t testing.TB, f vfs.File, at int64, letters string) {
	t.Helper()
	_, err := f.WriteAt(blocks(letters), at*block)
	must(t, err)
}

// newFile makes a file of whole blocks that is durable with its entry.
func newFile(t testing.TB, m *vfstest.MemFS, name, letters string) vfs.File {
	t.Helper()
	f, err := m.Create(name)
	must(t, err)
	write(t, f, 0, letters)
	must(t, f.Datasync())
	must(t, m.SyncDir(filepath.Dir(name)))
	return f
}

func read(t testing.TB, m *vfstest.MemFS, name string) []byte {
	t.Helper()
	f, err := m.Open(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	must(t, f.Close())
	return b
}

// state returns all that a file system holds, as "name=summary" sorted by name.
func state(t testing.TB, m *vfstest.MemFS) string {
	t.Helper()
	var all []string
	var walk func(dir string)
	walk = func(dir string) {
		names, err := m.List(dir)
		must(t, err)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if _, err := m.List(path); err == nil {
				all = append(all, path+"/")
				walk(path)
			} else {
				all = append(all, path+"="+summary(read(t, m, path)))
			}
		}
	}
	walk(".")
	return strings.Join(all, " ")
}

// outcomes returns the states after many power cuts, with their numbers.
func outcomes(t testing.TB, m *vfstest.MemFS) map[string]int {
	t.Helper()
	found := map[string]int{}
	for seed := range uint64(500) {
		found[state(t, m.CrashClone(rng(seed)))]++
	}
	return found
}

// expect compares outcomes with all those there should be.
func expect(t testing.TB, found map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if found[w] == 0 {
			t.Errorf("no power cut left %q", w)
		}
		delete(found, w)
	}
	for f, n := range found {
		t.Errorf("%d power cuts left %q", n, f)
	}
}
