package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/bin"
)

func sum64(b []byte) []byte { return binary.LittleEndian.AppendUint64(nil, bin.Sum(b)) }

// sumLine is the last line of CURRENT.
func sumLine(text []byte) []byte { return fmt.Appendf(nil, "%016x\n", bin.Sum(text)) }

// A journal that can't be read is made anew, and nothing is removed on its word: the
// blob that it named stays.
func TestRepairJournal(t *testing.T) {
	for name, damage := range map[string]func(s *site){
		"damaged": func(s *site) { s.flip("data/blobs/JOURNAL", 3) },
		"missing": func(s *site) { s.remove("data/blobs/JOURNAL") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1, 5)
			e := s.open(8 << 20)
			w, err := e.Blobs().Create(10)
			if err == nil {
				_, err = w.Write([]byte("an upload whose snapshot was never published"))
			}
			if err != nil {
				t.Fatal(err)
			}
			loose, err := w.Commit()
			if err != nil {
				t.Fatal(err)
			}
			s.close(e)
			damage(s)
			if corrupt(s.refused()) == nil {
				t.Fatal("not refused as damage")
			}
			p := s.repair()
			if p.NewHistory || s.history() != 1 || len(p.Losses) > 0 {
				t.Errorf("%+v", *p)
			}
			s.holds(s.want)
			for _, d := range []blob.Digest{s.digest, loose} {
				if len(s.files()[blob.Path("data/blobs", d)]) == 0 {
					t.Errorf("blob %v is gone", d)
				}
			}
		})
	}
}

// A damaged blob is no reason not to start. It goes to the quarantine, and its snapshot is
// damaged as before.
func TestRepairBlob(t *testing.T) {
	s := newSite(t, 1, 5)
	path := blob.Path("data/blobs", s.digest)
	s.flip(path, 70_000)
	p := s.repair()
	if len(p.Steps) != 1 || len(p.Losses) != 1 || !strings.Contains(p.Losses[0], "b/s0: its snapshot at offset 0") || p.NewHistory {
		t.Errorf("%+v", *p)
	}
	e := s.open(0)
	if b, err := e.Blobs().Open(s.digest); corrupt(err) == nil {
		t.Errorf("the blob can be opened: %v, %v", b, err)
	}
	s.close(e)
	s.holds(s.want)
}

// The contents of a snapshot whose publication is lost would go with the next start. They
// are kept beside the rest of what is lost.
func TestRepairKeepsBlobsOfLostSnapshots(t *testing.T) {
	s := newSite(t, 1, 20)
	e := s.open(8 << 20)
	w, err := e.Blobs().Create(10)
	if err == nil {
		_, err = w.Write([]byte("a snapshot that will be lost"))
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	s.do(e, "s1", core.Event{Op: core.OpSnapshot, Retain: true, Snapshot: &core.Snapshot{Digest: d, Size: 28}}, core.Created)
	for range 3 {
		s.append(e, "s1", "what comes after it")
	}
	s.close(e)
	path, at := s.find("data/shard-00/wal/*.wal", "<late 15 ")
	s.flip(path, at)
	p := s.repair()
	if told := strings.Join(p.Losses, "\n"); !strings.Contains(told, "b/s1: ") || !strings.Contains(told, "1 changes of its snapshots") {
		t.Errorf("%s", told)
	}
	e = s.open(0)
	s.close(e)
	kept := strings.Replace(blob.Path("data/blobs", d), "data", p.Quarantine, 1)
	if len(s.files()[kept]) == 0 || len(s.files()[blob.Path("data/blobs", d)]) > 0 {
		t.Errorf("the snapshot is not in %s", kept)
	}
	if len(s.files()[blob.Path("data/blobs", s.digest)]) == 0 {
		t.Error("a snapshot that is left was taken out")
	}
}

// dropSite makes a directory of one shard with several segments, in which every stream is
// written to again after each flush, so that no row is only in one of them but the first.
func dropSite(t *testing.T) *site {
	s := newSite(t, 1, 0)
	for range 2 {
		e := s.open(0)
		for i := range 36 {
			s.append(e, fmt.Sprint("s", i%12), fmt.Sprintf("<more %d %s>", i, strings.Repeat("m", 1500)))
		}
		s.close(e)
	}
	return s
}

// A segment without which the streams still stand is taken out; its bytes are missing,
// and nobody takes others for them.
func TestRepairSegment(t *testing.T) {
	whole := dropSite(t)
	repaired, kept := 0, 0
	for _, path := range whole.match("data/shard-00/seg/*.seg") {
		for name, damage := range map[string]func(s *site){
			"trailer": func(s *site) { s.flip(path, int64(len(s.files()[path])-5)) },
			"missing": func(s *site) { s.remove(path) },
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				s := whole.twin()
				s.TB = t
				damage(s)
				if corrupt(s.refused()) == nil {
					t.Fatal("not refused as damage")
				}
				was := s.files()
				p, err := Propose(dataDir, s.options(0), now)
				if errors.Is(err, ErrBeyondRepair) { // the streams' only configuration was in it
					kept++
					s.unchanged(was)
					s.beyond("a start would refuse it all the same")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				repaired++
				s.repair()
				if !p.NewHistory || s.history() != 2 {
					t.Errorf("history %d, %+v", s.history(), *p)
				}
				s.holdsSome(p)
			})
		}
	}
	if repaired == 0 || kept == 0 {
		t.Errorf("%d segments could be taken out, %d could not", repaired, kept)
	}
}

// holdsSome opens a directory that has lost a segment: what can be read is right, and
// what can't be is told.
func (s *site) holdsSome(p *Plan) {
	s.Helper()
	e := s.open(8 << 20)
	defer s.close(e)
	lost := false
	for name, w := range s.want {
		good, next, err := s.content(e, name)
		if err != nil && corrupt(err) == nil {
			s.Errorf("%s: %v", name, err)
		}
		if good == len(w) {
			continue
		}
		lost = true
		told := slices.ContainsFunc(p.Losses, func(l string) bool { return strings.HasPrefix(l, "b/"+name+": ") })
		if !told {
			s.Errorf("%s: %d of %d bytes, ends at %d, and nobody says so: %q", name, good, len(w), next, p.Losses)
		}
	}
	if !lost {
		s.Error("nothing is lost")
	}
}

// Whatever is damaged: either a start needs no repair, or there is none and nothing is
// touched, or after it every byte that can be read is right.
func TestRepairAnything(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	whole := dropSite(t)
	e := whole.open(8 << 20)
	for i := range 30 {
		l := late{stream: fmt.Sprint("s", i%12), body: fmt.Sprintf("<late %d %s>", i, strings.Repeat("l", 800))}
		whole.append(e, l.stream, l.body)
		whole.late = append(whole.late, l)
	}
	whole.close(e)
	sure := whole.without(len(whole.late) - 2) // what no torn batch can take away
	all := whole.files()
	var paths []string
	for path, b := range all {
		if len(b) > 0 && !strings.HasSuffix(path, ".spare") && !strings.HasSuffix(path, "LOCK") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	opened, repaired, kept := 0, 0, 0
	for range rounds {
		s := whole.twin()
		what := ""
		for range 1 + rng.IntN(2) {
			path := paths[rng.IntN(len(paths))]
			if at := rng.IntN(len(all[path])); rng.IntN(6) > 0 {
				_ = s.fs.Corrupt(path, int64(at), func(b []byte) { b[0] ^= 1 << rng.IntN(8) }) // it may be gone
				what += fmt.Sprintf("%s at %d; ", path, at)
			} else {
				_ = s.fs.Remove(path)
				what += path + " removed; "
			}
		}
		_, before := engine.Open(dataDir, s.twin().options(0))
		was := s.files()
		p, err := Apply(dataDir, s.options(0), now)
		switch {
		case before == nil && err == nil:
			opened++
		case errors.Is(err, ErrBeyondRepair), errors.Is(err, engine.ErrForeign):
			kept++
			s.unchanged(was)
			if before == nil {
				t.Errorf("%s: it opens, and can't be repaired: %v", what, err)
			}
			continue
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		default:
			repaired++
			s.kept(was, p)
		}
		e := s.open(8 << 20)
		shorter := false
		for name := range s.want {
			good, next, err := s.content(e, name)
			shorter = shorter || next < len(sure[name]) && before != nil
			if err != nil && corrupt(err) == nil && next > 0 || err == nil && good != next {
				t.Errorf("%s: %s: %d good bytes up to %d: %v", what, name, good, next, err)
			}
		}
		if shorter && s.history() != 2 {
			t.Errorf("%s: offsets are used again, in the same history", what)
		}
		s.close(e)
	}
	t.Logf("%d needed no repair, %d were repaired, %d could not be", opened, repaired, kept)
}
