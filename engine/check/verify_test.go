package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func TestVerifyClean(t *testing.T) {
	s := newSite(t, 2, 30)
	sum, all := s.verify()
	if !sum.Clean() || len(all) > 0 {
		t.Errorf("a clean directory: %v", all)
	}
	if sum.Shards != 2 || sum.Streams != 12 || sum.Segments < 2 || sum.Blobs != 1 || sum.Records < 30 {
		t.Errorf("%+v", *sum)
	}
	s.holds(s.want)
}

// Each kind of damage is found where it is, and said to mean what it means.
func TestVerifyFinds(t *testing.T) {
	whole := newSite(t, 2, 40)
	seg := whole.match("data/shard-00/seg/*.seg")[0]
	tail := func(path string, back int) int64 { return int64(len(whole.files()[path]) - back) }
	log, logAt := whole.find("data/shard-0?/wal/*.wal", "<late 3 ")
	for _, c := range []struct {
		name   string
		damage func(s *site) (path string)
		want   Severity
		means  string
	}{
		{"identity", func(s *site) string { s.flip("data/SNAKREAM", 20); return "data/SNAKREAM" }, Stops, refuses},
		{"current", func(s *site) string { s.flip("data/shard-01/CURRENT", 20); return "data/shard-01/CURRENT" }, Stops, refuses},
		{"manifest", func(s *site) string {
			path := s.match("data/shard-01/MANIFEST-*")[0]
			s.flip(path, 4100)
			return path
		}, Stops, refuses},
		{"log", func(s *site) string { s.flip(log, logAt); return log }, Stops, "is sound up to byte"},
		{"missing log", func(s *site) string { s.remove(log); return "data/shard-0" }, Stops, refuses},
		{"segment header", func(s *site) string { s.flip(seg, 9); return seg }, Stops, refuses},
		{"segment trailer", func(s *site) string { s.flip(seg, tail(seg, 5)); return seg }, Stops, refuses},
		{"segment footer", func(s *site) string { s.flip(seg, tail(seg, 130)); return seg }, Stops, refuses},
		{"segment rows", func(s *site) string {
			path, at := s.find("data/shard-0?/seg/*.seg", "text/plain")
			s.flip(path, at)
			return path
		}, Stops, refuses},
		{"missing segment", func(s *site) string { s.remove(seg); return seg }, Stops, refuses},
		{"segment payload", func(s *site) string { s.flip(seg, 4096+10); return seg }, Hurts, "of stream b/s"},
		{"blob", func(s *site) string {
			path := blob.Path("data/blobs", s.digest)
			s.flip(path, 70_000)
			return path
		}, Hurts, "b/s0 at offset 0"},
		{"missing blob", func(s *site) string {
			path := blob.Path("data/blobs", s.digest)
			s.remove(path)
			return path
		}, Hurts, "b/s0 at offset 0"},
		{"journal", func(s *site) string { s.flip("data/blobs/JOURNAL", 3); return "data/blobs/JOURNAL" }, Stops, refuses},
		{"missing journal", func(s *site) string { s.remove("data/blobs/JOURNAL"); return "data/blobs/JOURNAL" }, Stops, refuses},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := whole.twin()
			s.TB = t
			path := c.damage(s)
			sum, all := s.verify()
			bad := damaged(all)
			if len(bad) == 0 || sum.Clean() {
				t.Fatalf("nothing was found: %v", all)
			}
			for _, f := range bad {
				if f.Severity != c.want || !strings.HasPrefix(f.Path, path) || !strings.Contains(f.Means, c.means) {
					t.Errorf("%v", f)
				}
			}
		})
	}
}

// Wherever a bit turns over: Verify says that a start refuses if and only if it does, and
// where Verify finds nothing every byte can be read.
func TestVerifyAgreesWithOpen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	whole := newSite(t, 2, 40)
	all := whole.files()
	var paths []string
	for path, b := range all {
		if len(b) > 0 && !strings.HasSuffix(path, ".spare") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		s := whole.twin()
		path := paths[rng.IntN(len(paths))]
		at := rng.IntN(len(all[path]))
		s.flip(path, int64(at))
		what := fmt.Sprintf("%s at %d", path, at)
		sum, findings := s.verify()
		e, err := engine.Open(dataDir, s.options(8<<20))
		if (err != nil) != (sum.Stops > 0) {
			t.Fatalf("%s: %v, and a start says %v", what, findings, err)
		}
		if err != nil {
			continue
		}
		hurt := false
		for name, w := range s.want {
			good, next, err := s.content(e, name)
			torn := strings.HasSuffix(path, ".wal") && err == nil && good == next
			if err != nil && corrupt(err) == nil || err == nil && good != len(w) && !torn {
				t.Fatalf("%s: %s: %d of %d bytes, %v", what, name, good, len(w), err)
			}
			hurt = hurt || err != nil
		}
		if hurt && sum.Clean() {
			t.Fatalf("%s: a read fails, and nothing was found: %v", what, findings)
		}
		s.close(e)
	}
}

func TestVerifyNotes(t *testing.T) {
	s := newSite(t, 1, 5)
	for path, b := range map[string]string{
		"data/photo.jpg": "", "data/shard-00/notes": "", "data/shard-00/tmp/0000000077.seg": "x", "data/shard-00/seg/0000099999.seg": "x",
		"data/shard-00/seg/0000000063.seg": "x", "data/shard-00/wal/old.log": "", "data/blobs/ab/cd": "", "data/quarantine/x/y": "deleted",
		"data/blobs/ab/" + "ab" + strings.Repeat("0", 62): "x",
	} {
		if err := s.fs.MkdirAll(path[:strings.LastIndexByte(path, '/')]); err != nil {
			t.Fatal(err)
		}
		f, err := s.fs.Create(path)
		if err == nil {
			_, err = f.WriteAt([]byte(b), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sum, all := s.verify()
	bad := damaged(all)
	if len(bad) != 1 || bad[0].Severity != Hurts || bad[0].Means != "no snapshot refers to it" {
		t.Errorf("%v", bad)
	}
	if sum.Notes != 8 {
		t.Errorf("%d notes: %v", sum.Notes, all)
	}
}

func TestVerifyRefusesToLook(t *testing.T) {
	s := newSite(t, 1, 1)
	e := s.open(0)
	if _, err := Verify(dataDir, s.options(0), nil); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("a directory that is open: %v", err)
	}
	if _, err := Propose(dataDir, s.options(0), now); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("a directory that is open: %v", err)
	}
	s.close(e)
	s.fs = vfstest.New()
	if _, err := Verify(dataDir, s.options(0), nil); err == nil {
		t.Error("a directory that is not there")
	}
	if err := s.fs.MkdirAll("data/photos"); err != nil {
		t.Fatal(err)
	}
	for _, look := range []func() error{
		func() error { _, err := Verify(dataDir, s.options(0), nil); return err },
		func() error { _, err := Apply(dataDir, s.options(0), now); return err },
	} {
		if err := look(); !errors.Is(err, engine.ErrForeign) {
			t.Errorf("a foreign directory: %v", err)
		}
	}
}

// A directory whose lock file is gone is looked at without making another.
func TestVerifyWithoutLock(t *testing.T) {
	s := newSite(t, 1, 1)
	s.remove("data/LOCK")
	if sum, _ := s.verify(); !sum.Clean() {
		t.Errorf("%+v", *sum)
	}
}

// A newer program's file is not called damaged.
func TestVerifyNewerFormat(t *testing.T) {
	err := error(&base.VersionError{Path: "data/x", Version: 9, Newest: 1})
	var got Finding
	v := &verifier{told: map[string]bool{}, say: func(f Finding) { got = f }}
	v.failed(Stops, "data", err, refuses)
	if got.Path != "data/x" || !strings.Contains(got.String(), "REFUSED: data/x: format version 9") {
		t.Errorf("%v", got)
	}
}
