package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

var update = flag.Bool("update", false, "write golden files that are not there; they never change")

// golden returns a file of testdata; with -update it is made of b if it is missing.
func golden(t testing.TB, name string, b []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, b, 0o644))
	}
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// future is a journal of the next version.
func future(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint32(b[8:], journalVersion+1)
	binary.LittleEndian.PutUint64(b[16:], bin.Sum(b[:16]))
	return b
}

func contentOf(t testing.TB, mem *vfstest.MemFS, path string) []byte {
	t.Helper()
	f, err := mem.Open(path)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(b, 0)
		must(t, err)
	}
	return b
}

func put(t testing.TB, mem *vfstest.MemFS, path string, b []byte) {
	t.Helper()
	must(t, mem.MkdirAll(filepath.Dir(path)))
	f, err := mem.Create(path)
	must(t, err)
	_, err = f.WriteAt(b, 0)
	must(t, err)
	must(t, f.Close())
}

// Bytes that earlier versions wrote: a failure means that data directories that exist
// can no longer be read.
func TestGolden(t *testing.T) {
	one, two := content("golden", 70_000), content("other", 10)
	mem, s := newStore(t)
	mustUpload(t, s, one)
	mustUpload(t, s, two)
	path := s.path(digest(one))
	must(t, s.Close())
	journal := contentOf(t, mem, testDir+"/JOURNAL")
	blob := contentOf(t, mem, path)

	if want := golden(t, "journal-v1", journal); !bytes.Equal(journal, want) {
		t.Error("the encoding of the journal has changed")
	}
	if want := golden(t, "blob-v1", blob); !bytes.Equal(blob, want) {
		t.Error("the encoding of a blob has changed")
	}
	next := golden(t, "journal-v2", future(journal))
	want := map[Digest]bool{digest(one): true, digest(two): true}
	if got, _, err := decodeJournal("j", golden(t, "journal-v1", nil)); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}

	old := vfstest.New()
	put(t, old, testDir+"/JOURNAL", golden(t, "journal-v1", nil))
	put(t, old, path, golden(t, "blob-v1", nil))
	s = open(t, old, map[Digest]int{digest(one): 1})
	expect(t, s, one)
	must(t, s.Close())

	newer := vfstest.New()
	put(t, newer, testDir+"/JOURNAL", next)
	_, err := Open(newer, testDir, nil, nil, quiet)
	if v, ok := errors.AsType[*base.VersionError](err); !ok || v.Version != 2 || v.Newest != 1 {
		t.Errorf("a journal of a newer version: %v", err)
	}
	if again := Check(newer, testDir); again == nil || again.Error() != err.Error() {
		t.Errorf("Check says %v", again)
	}
}

func TestJournalDamage(t *testing.T) {
	mem, s := newStore(t)
	mustUpload(t, s, content("x", 10))
	must(t, s.Close())
	path := testDir + "/JOURNAL"
	whole := contentOf(t, mem, path)
	for at := range journalHeader {
		b := bytes.Clone(whole)
		b[at] ^= 1
		_, _, err := decodeJournal(path, b)
		_, corrupt := errors.AsType[*base.CorruptionError](err)
		_, version := errors.AsType[*base.VersionError](err)
		if !corrupt && !version {
			t.Errorf("damaged at %d: %v", at, err)
		}
	}
	for n := range journalHeader {
		if _, _, err := decodeJournal(path, whole[:n]); err == nil {
			t.Errorf("%d bytes were accepted", n)
		}
	}
	for at := journalHeader; at < journalHeader+journalEntry; at++ {
		b := bytes.Clone(whole)
		b[at] ^= 1
		if got, _, err := decodeJournal(path, b); err != nil || len(got) != 0 {
			t.Errorf("damaged at %d: %v, %v", at, got, err)
		}
	}
	for n := journalHeader; n < journalHeader+journalEntry; n++ {
		if got, _, err := decodeJournal(path, whole[:n]); err != nil || len(got) != 0 {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
	must(t, mem.Remove(path))
	if c, ok := errors.AsType[*base.CorruptionError](Check(mem, testDir)); !ok || c.Path != path {
		t.Errorf("missing: %v", c)
	}
}

// The journal is bounded by what it has to say, not by what has been uploaded.
func TestJournalIsTrimmed(t *testing.T) {
	mem, s := newStore(t)
	var kept []Digest
	for i := range 3 {
		kept = append(kept, mustUpload(t, s, content(fmt.Sprint("kept ", i), 10)))
	}
	must(t, s.Unpin(kept[2], 1<<40)) // idle, but not for long enough
	for i := 0; s.journal.end < trimJournal; i++ {
		var d Digest
		binary.LittleEndian.PutUint64(d[:], uint64(i))
		must(t, s.journal.add(d))
		if i%100 == 0 {
			must(t, s.journal.sync())
		}
	}
	if _, err := s.Collect(100); err != nil {
		t.Fatal(err)
	}
	if s.journal.end != journalHeader+int64(len(kept))*journalEntry {
		t.Errorf("the journal has %d bytes", s.journal.end)
	}
	later := mustUpload(t, s, content("later", 10))
	must(t, s.Sync())
	must(t, s.Close())
	named, _, err := readJournal(mem.CrashClone(nil), testDir)
	must(t, err)
	want := map[Digest]bool{later: true}
	for _, d := range kept {
		want[d] = true
	}
	if !maps.Equal(named, want) {
		t.Errorf("it names %v", named)
	}
	s = open(t, mem, map[Digest]int{kept[0]: 1, kept[1]: 1})
	expectFiles(t, mem, 2)
	must(t, s.Close())
}

// FuzzJournal: what is read is what would have been written, as far as it goes.
func FuzzJournal(f *testing.F) {
	mem := vfstest.New()
	must(f, Create(mem, testDir))
	s := open(f, mem, nil)
	mustUpload(f, s, content("a", 10))
	mustUpload(f, s, content("b", 10))
	must(f, s.Close())
	b := contentOf(f, mem, testDir+"/JOURNAL")
	f.Add(b[:journalHeader+2*journalEntry])
	f.Add(b[:journalHeader])
	f.Add(b[:journalHeader+journalEntry+7])
	f.Add(future(b))
	f.Fuzz(func(t *testing.T, b []byte) {
		named, end, err := decodeJournal("j", b)
		if err != nil {
			if named != nil {
				t.Fatal("an error, and digests")
			}
			return
		}
		if int(end) > len(b) || len(named) > int(end-journalHeader)/journalEntry {
			t.Fatalf("%d digests in %d of %d bytes", len(named), end, len(b))
		}
		for d := range named {
			if !bytes.Contains(b, appendEntries(nil, []Digest{d})) {
				t.Fatalf("%s is not in the journal", d)
			}
		}
	})
}
