package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// written is a ledger that began with some entries and got others by several writes.
func written(first []record, writes ...[]record) []byte {
	b := appendLedgerHeader(nil, uint64(len(first)), ledgerVersion)
	for p := range encoded(first, false) {
		b = append(b, p...)
	}
	for _, w := range writes {
		for p := range encoded(w, true) {
			b = append(b, p...)
		}
	}
	return b
}

func decode(b []byte) (objects, error) {
	return decodeLedger("REMOTE", bytes.NewReader(b), int64(len(b)))
}

func object(blob string, n uint64) Object {
	return Object{Digest: digest([]byte(blob)), Number: n, Size: 5000 + int64(n)}
}

// says is what a ledger says, in words.
func (o *objects) says() (out []string) {
	for _, r := range o.live {
		out = append(out, fmt.Sprintf("%d kind %d, %d bytes", r.Number, r.kind, r.Size))
	}
	for n, r := range o.orphans {
		out = append(out, fmt.Sprintf("%d nobody's, %v", n, r.marked))
	}
	slices.Sort(out)
	return out
}

func sampleLedger() []byte {
	return written(
		[]record{{kindSaved, object("a", 1)}, {kindDoubted, object("b", 2)}, {kindOrphaned, object("c", 3)}},
		[]record{{kindSaved, object("b", 4)}, {kindOrphaned, object("b", 2)}},
		[]record{{kindForgotten, object("c", 3)}},
		[]record{{kindSaved, object("d", 5)}},
		[]record{{kindSaved, object("d", 6)}},
	)
}

var sampleSays = []string{
	"1 kind 1, 5001 bytes", "2 nobody's, true", "4 kind 1, 5004 bytes", "5 nobody's, false", "6 kind 1, 5006 bytes",
}

// futureLedger is a ledger of the next version.
func futureLedger(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint32(b[8:], ledgerVersion+1)
	binary.LittleEndian.PutUint64(b[ledgerSumPos:], bin.Sum(b[:ledgerSumPos]))
	return b
}

func TestLedgerGolden(t *testing.T) {
	b := sampleLedger()
	if want := golden(t, "remote-v1", b); !bytes.Equal(b, want) {
		t.Error("the encoding of the ledger has changed")
	}
	got, err := decode(golden(t, "remote-v1", nil))
	if err != nil || !slices.Equal(got.says(), sampleSays) {
		t.Errorf("%v, %v", got.says(), err)
	}
	newer := vfstest.New()
	must(t, Create(newer, testDir))
	put(t, newer, testDir+"/REMOTE", golden(t, "remote-v2", futureLedger(b)))
	_, err = Open(newer, testDir, nil, nil, quiet)
	if v, ok := errors.AsType[*base.VersionError](err); !ok || v.Version != 2 || v.Newest != 1 {
		t.Errorf("a ledger of a newer version: %v", err)
	}
	if again := Check(newer, testDir); again == nil || again.Error() != err.Error() {
		t.Errorf("Check says %v", again)
	}
}

// Only the end of the last write can be torn; whatever else does not verify is damage.
func TestLedgerDamage(t *testing.T) {
	b := sampleLedger()
	entries := (len(b) - ledgerHeader) / ledgerEntry
	for at := range b {
		c := bytes.Clone(b)
		c[at] ^= 1
		got, err := decode(c)
		last := at >= ledgerHeader+(entries-1)*ledgerEntry
		switch {
		case last && (err != nil || len(got.live) != 3 || got.end != int64(len(b)-ledgerEntry)):
			t.Errorf("the last entry is damaged at %d: %v, %v", at, got.says(), err)
		case !last && !isCorrupt(err):
			t.Errorf("damaged at %d: %v, %v", at, got.says(), err)
		}
	}
	for n := range b {
		_, err := decode(b[:n])
		if short := n < ledgerHeader+3*ledgerEntry; short != isCorrupt(err) || !short && err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	// Any block of a write that was not synced may be missing.
	many := make([]record, 200)
	for i := range many {
		many[i] = record{kindSaved, object(fmt.Sprint(i), uint64(i+10))}
	}
	torn := written(nil, many)
	clear(torn[4096:8192])
	if got, err := decode(torn); err != nil || got.end != 4096 || len(got.live) != 63 {
		t.Errorf("a torn write: %d entries, %v", len(got.live), err)
	}
	later := append(torn, written(nil, []record{{kindSaved, object("later", 999)}})[ledgerHeader:]...)
	if _, err := decode(later); !isCorrupt(err) {
		t.Errorf("a write behind one that is not whole: %v", err)
	}
	for _, r := range []record{{0, object("a", 1)}, {kinds, object("a", 1)}, {kindSaved, object("a", 0)}, {kindSaved, Object{Number: 1, Size: -1}}} {
		if _, err := decode(written(nil, []record{r})); !isCorrupt(err) {
			t.Errorf("%v: %v", r, err)
		}
	}
	// A start refuses it, and touches nothing.
	mem := vfstest.New()
	must(t, Create(mem, testDir))
	put(t, mem, testDir+"/REMOTE", later)
	put(t, mem, testDir+"/tmp/upload", nil)
	if _, err := Open(mem, testDir, nil, nil, quiet); !isCorrupt(err) || !isCorrupt(Check(mem, testDir)) {
		t.Error(err)
	}
	if _, err := mem.Stat(testDir + "/tmp/upload"); err != nil {
		t.Error(err)
	}
}

// The ledger is bounded by what it has to say, not by what has happened.
func TestLedgerIsTrimmed(t *testing.T) {
	mem, s, h := newTiered(t)
	kept := content("kept", 10)
	d := mustUpload(t, s, kept)
	gone := content("gone", 10)
	mustUpload(t, s, gone)
	if _, err := mem.Stat(testDir + "/REMOTE"); err == nil {
		t.Error("a ledger without objects")
	}
	save(t, s, h)
	must(t, s.Unpin(digest(gone), 1))
	if _, err := s.Collect(100); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, "collected", s.Orphaned(), s.orphanOf(t, gone))
	for i := uint64(1000); s.ledger.end < trimLedger; i++ {
		s.mu.Lock()
		s.orphans[i] = &orphan{Object: object("x", i), marked: true}
		s.mu.Unlock()
		if i%2000 == 0 {
			must(t, s.Forget(s.Orphaned()[1:]))
		}
	}
	must(t, s.Forget(slices.DeleteFunc(s.Orphaned(), func(o Object) bool { return o.Number < 1000 })))
	if _, err := s.Collect(100); err != nil {
		t.Fatal(err)
	}
	if s.ledger.end != ledgerHeader+int64(1+len(s.orphans))*ledgerEntry {
		t.Errorf("the ledger has %d bytes for %d orphans", s.ledger.end, len(s.orphans))
	}
	mustUpload(t, s, gone)
	save(t, s, h)
	left := numbers(slices.Collect(s.Objects))
	must(t, s.Close())
	mem = mem.CrashClone(nil)
	s = openTiered(t, mem, map[Digest]int{d: 1, digest(gone): 1}, h)
	expectNumbers(t, "trimmed", slices.Collect(s.Objects), left...)
	evictAll(t, s)
	expect(t, s, kept)
	expect(t, s, gone)
	must(t, s.Close())
}

// orphanOf returns the number of a blob's orphan.
func (s *Store) orphanOf(t testing.TB, b []byte) uint64 {
	for _, o := range s.Orphaned() {
		if o.Digest == digest(b) {
			return o.Number
		}
	}
	t.Fatal("it has no orphan")
	return 0
}

// A restored store has no files, and the last object of each blob.
func TestWriteRemote(t *testing.T) {
	_, s, h := newTiered(t)
	want := content("restored", 100_000)
	d := mustUpload(t, s, want)
	b, err := fileOf(s, s.Unsaved(1, nil)[0])
	must(t, err)
	must(t, s.Close())
	older, newer, nobodys := h.put(nil), h.put(b), h.put(nil)
	mem := vfstest.New()
	must(t, Create(mem, testDir))
	objs := []Object{{d, older, 5}, {d, newer, int64(len(b))}, {digest(nil), nobodys, 5}}
	must(t, WriteRemote(mem, testDir, objs))
	for _, o := range []Object{{d, 0, 5}, {d, 1, -1}} {
		if WriteRemote(vfstest.New(), ".", []Object{o}) == nil {
			t.Error("accepted", o)
		}
	}
	mem = mem.CrashClone(nil)
	for range 2 {
		s = openTiered(t, mem, map[Digest]int{d: 1}, h)
		expect(t, s, want)
		expectNumbers(t, "orphans", s.Orphaned(), older, nobodys)
		must(t, s.Close())
	}
	// The directories that its files would have had are not there either.
	s = openTiered(t, mem, map[Digest]int{d: 1}, h)
	must(t, s.Unpin(d, 1))
	if n, err := s.Collect(100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	mustUpload(t, s, want)
	expect(t, s, want)
	must(t, s.Close())
}

// FuzzLedger: what is read can be written and read again, and no entry comes from nowhere.
func FuzzLedger(f *testing.F) {
	b := sampleLedger()
	f.Add(b)
	f.Add(b[:ledgerHeader+4*ledgerEntry+9])
	f.Add(futureLedger(b))
	f.Add(written(nil))
	f.Add(append(written([]record{{kindSaved, object("a", 1)}}), make([]byte, 200)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode(b)
		if err != nil {
			if got.live != nil {
				t.Fatal("an error, and objects")
			}
			return
		}
		n := (got.end - ledgerHeader) / ledgerEntry
		if got.end > int64(len(b)) || int64(len(got.live)+len(got.orphans)) > n {
			t.Fatalf("%d objects in %d of %d bytes", len(got.live)+len(got.orphans), got.end, len(b))
		}
		var again []record
		for d, r := range got.live {
			if d != r.Digest {
				t.Fatal("a digest of another")
			}
			again = append(again, r)
		}
		for number, o := range got.orphans {
			if number != o.Number {
				t.Fatal("a number of another")
			}
			again = append(again, record{kindOrphaned, o.Object})
		}
		second, err := decode(written(nil, again))
		if err != nil || !maps.Equal(second.live, got.live) || len(second.orphans) != len(got.orphans) {
			t.Fatalf("%v again: %v, %v", got.says(), second.says(), err)
		}
	})
}
