package check

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// repair proposes, which must change nothing, and applies the same.
func (s *site) repair() *Plan {
	s.Helper()
	was := s.files()
	proposed, err := Propose(dataDir, s.options(0), now)
	if err != nil {
		s.Fatal(err)
	}
	s.unchanged(was)
	p, err := Apply(dataDir, s.options(0), now)
	if err != nil {
		s.Fatal(err)
	}
	if !slices.Equal(p.Steps, proposed.Steps) || !slices.Equal(p.Losses, proposed.Losses) || p.NewHistory != proposed.NewHistory {
		s.Errorf("proposed %+v\ndone %+v", *proposed, *p)
	}
	s.kept(was, p)
	if sum, all := s.verify(); sum.Stops > 0 {
		s.Errorf("after the repair: %v", all)
	}
	return p
}

// kept checks that every byte of a file that was there is in its place or in the
// quarantine. What the repair writes itself are manifests and the journal.
func (s *site) kept(was map[string][]byte, p *Plan) {
	s.Helper()
	is := s.files()
	for path, b := range was {
		rel, err := filepath.Rel(dataDir, path)
		if err != nil {
			s.Fatal(err)
		}
		moved := filepath.Join(p.Quarantine, rel)
		switch {
		case path == "data/SNAKREAM" || path == "data/TIER" || filepath.Base(path) == "LOCK" || filepath.Ext(path) == ".spare":
		case bytes.Equal(is[path], b) || bytes.Equal(is[moved], b):
		case filepath.Base(path) == "CURRENT" || strings.HasPrefix(filepath.Base(path), "MANIFEST-") && bytes.HasPrefix(b, is[moved]) && len(bytes.Trim(b[len(is[moved]):], "\x00")) == 0:
		default:
			s.cutWell(path, b, is, moved)
		}
	}
	if _, ok := is[filepath.Join(p.Quarantine, noteName)]; ok != (len(p.Steps) > 0) {
		s.Errorf("%d steps, and a note: %t", len(p.Steps), ok)
	}
}

// cutWell checks that a file is its beginning, and that the rest is in the quarantine.
func (s *site) cutWell(path string, was []byte, is map[string][]byte, moved string) {
	s.Helper()
	for name, tail := range is {
		at := len(was) - len(tail)
		if !strings.HasPrefix(name, moved+".from-") {
			continue
		}
		fmt.Sscanf(strings.TrimPrefix(name, moved+".from-"), "%d", &at)
		rest := bytes.Clone(was[at:])
		clear(rest[copy(rest, tail):])
		if !bytes.Equal(rest, was[at:]) {
			s.Errorf("%s does not hold what %s was from %d on", name, path, at)
		}
		if got := is[path]; !bytes.Equal(got[:at], was[:at]) || len(bytes.Trim(got[at:], "\x00")) > 0 {
			s.Errorf("%s is not what it was up to %d and zero behind", path, at)
		}
		return
	}
	s.Errorf("%s has changed, and nothing in the quarantine tells what it was", path)
}

func TestRepairOfCleanDirectory(t *testing.T) {
	for _, shards := range []int{1, 3} {
		s := newSite(t, shards, 20)
		was := s.files()
		p := s.repair()
		if len(p.Steps)+len(p.Losses) > 0 || p.NewHistory {
			t.Errorf("%+v", *p)
		}
		s.unchanged(was)
		s.holds(s.want)
	}
}

// The log ends in front of the damage. Everything before it is there, nothing behind it,
// and what is gone is told.
func TestRepairLog(t *testing.T) {
	const n = 60
	whole := newSite(t, 1, n)
	for _, k := range []int{0, 1, 7, 30, n - 3} {
		t.Run(fmt.Sprint("append ", k), func(t *testing.T) {
			s := whole.twin()
			s.TB = t
			path, at := s.find("data/shard-00/wal/*.wal", fmt.Sprintf("<late %d ", k))
			s.flip(path, at)
			if c := corrupt(s.refused()); c == nil {
				t.Fatal("not refused as damage")
			}
			p := s.repair()
			if !p.NewHistory || s.history() != 2 {
				t.Errorf("history %d, %+v", s.history(), *p)
			}
			want := s.without(k)
			s.holds(want)
			s.tells(p, want)
			s.again(want)
		})
	}
}

// tells checks that for each stream that lost something the range is told, but for its
// first record, which may be the damaged one.
func (s *site) tells(p *Plan, left map[string]string) {
	s.Helper()
	for name, w := range left {
		lost := s.want[name][len(w):]
		if strings.Count(lost, "<late") < 2 {
			continue
		}
		line := fmt.Sprintf("b/%s: offsets [%d, %d) are gone", name, len(w), len(s.want[name]))
		if !slices.ContainsFunc(p.Losses, func(l string) bool { return strings.HasPrefix(l, line) }) {
			s.Errorf("nobody says «%s»: %q", line, p.Losses)
		}
	}
}

// again goes on writing after a repair, and restarts.
func (s *site) again(left map[string]string) {
	s.Helper()
	s.want = left
	e := s.open(0)
	for i := range 60 {
		s.append(e, fmt.Sprint("s", i%12), fmt.Sprintf("<after %d %s>", i, strings.Repeat("w", 1500)))
	}
	s.do(e, "", create("new"), core.Created)
	s.append(e, "new", "body")
	s.close(e)
	s.holds(s.want)
}

// Files of the log that are missing, or whose header is damaged.
func TestRepairLogFiles(t *testing.T) {
	whole := newSite(t, 1, 60)
	firstOf := func(s *site, path string) int { // the first append that is in the file or behind it
		for i := range s.late {
			if p, _ := s.find("data/shard-00/wal/*.wal", fmt.Sprintf("<late %d ", i)); p >= path {
				return i
			}
		}
		t.Fatalf("nothing is behind %s", path)
		return 0
	}
	middle, _ := whole.find("data/shard-00/wal/*.wal", "<late 30 ")
	for name, damage := range map[string]func(s *site){
		"header":  func(s *site) { s.flip(middle, 20) },
		"missing": func(s *site) { s.remove(middle) },
	} {
		t.Run(name, func(t *testing.T) {
			s := whole.twin()
			s.TB = t
			first := firstOf(s, middle)
			damage(s)
			if corrupt(s.refused()) == nil {
				t.Fatal("not refused as damage")
			}
			p := s.repair()
			want := s.without(first)
			s.holds(want)
			if !p.NewHistory || s.history() != 2 {
				t.Errorf("%+v", *p)
			}
			s.again(want)
		})
	}
	t.Run("all", func(t *testing.T) {
		s := whole.twin()
		s.TB = t
		state, err := manifest.Read(s.fs, "data/shard-00")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range s.match("data/shard-00/wal/*.wal") {
			s.remove(path)
		}
		if corrupt(s.refused()) == nil {
			t.Fatal("not refused as damage")
		}
		p := s.repair()
		if !p.NewHistory || !strings.Contains(strings.Join(p.Losses, "\n"), fmt.Sprintf("its log ends at LSN %d", state.Low.LSN)) {
			t.Errorf("%+v", *p)
		}
		e := s.open(0)
		for name, w := range s.want { // what is in segments is there
			if good, next, err := s.content(e, name); err != nil || good != next || next > len(w) || next == 0 {
				t.Errorf("%s: %d good bytes of %d: %v", name, good, next, err)
			} else {
				s.want[name] = w[:next]
			}
		}
		s.close(e)
		s.again(s.want)
	})
}

// A power cut anywhere in a repair: no start takes the directory for whole, and the next
// repair comes to the same end.
func TestRepairInterrupted(t *testing.T) {
	whole := newSite(t, 1, 40)
	path, at := whole.find("data/shard-00/wal/*.wal", "<late 9 ")
	whole.flip(path, at)
	want := whole.without(9)
	broken := errors.New("power cut")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for step := 1; ; step++ {
		s := whole.twin()
		s.fs.SetHook(failAt(step, broken))
		_, err := Apply(dataDir, s.options(0), now)
		s.fs.SetHook(nil)
		if err == nil {
			if step < 20 {
				t.Errorf("a repair is %d changes", step-1)
			}
			s.holds(want)
			return
		}
		if !errors.Is(err, broken) {
			t.Fatalf("change %d: %v", step, err)
		}
		s.fs = s.fs.CrashClone(rng)
		if e, err := engine.Open(dataDir, s.options(0)); err == nil {
			if s.history() != 2 { // the last rename was made, and only its sync is missing
				t.Fatalf("change %d: the directory opens in the middle", step)
			}
			s.close(e)
		} else if corrupt(err) == nil && !errors.Is(err, engine.ErrIncomplete) {
			t.Fatalf("change %d: a start says %v", step, err)
		}
		if _, err := Apply(dataDir, s.options(0), now.Add(1)); err != nil {
			t.Fatalf("change %d: the second repair: %v", step, err)
		}
		if s.history() != 2 {
			t.Errorf("change %d: history %d", step, s.history())
		}
		s.holds(want)
	}
}

// failAt makes the nth change and all later ones fail.
func failAt(n int, err error) func(vfstest.Op) error {
	count := 0
	return func(op vfstest.Op) error {
		switch op.Kind {
		case vfstest.Create, vfstest.Write, vfstest.Datasync, vfstest.Rename, vfstest.SyncDir, vfstest.Remove, vfstest.Mkdir:
			if count++; count >= n {
				return err
			}
		}
		return nil
	}
}

// A manifest that is gone or damaged while the one before it is still there.
func TestRepairManifest(t *testing.T) {
	s := newSite(t, 1, 10)
	const dir = "data/shard-00"
	first := s.match(dir + "/MANIFEST-*")[0]
	number := uint64(0)
	fmt.Sscanf(filepath.Base(first), "MANIFEST-%d", &number)
	current := s.files()[dir+"/CURRENT"]
	next := fmt.Sprintf("MANIFEST-%06d", number+1)
	text := bytes.Replace(current[:len(current)-17], []byte(filepath.Base(first)), []byte(next), 1)
	for name, damage := range map[string]func(s *site){
		"CURRENT is damaged": func(s *site) { s.flip(dir+"/CURRENT", 20) },
		"CURRENT is missing": func(s *site) { s.remove(dir + "/CURRENT") },
		"CURRENT names a missing file": func(s *site) {
			s.put(dir+"/CURRENT", append(bytes.Clone(text), sumLine(text)...))
		},
		"CURRENT names a damaged file": func(s *site) {
			s.put(dir+"/CURRENT", append(bytes.Clone(text), sumLine(text)...))
			s.put(dir+"/"+next, bytes.Repeat([]byte("?"), 8192))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.twin()
			c.TB = t
			damage(c)
			c.put(dir+"/seg/0000000050.seg", []byte("perhaps the newest"))
			before, err := manifest.Files(c.fs, dir)
			if err != nil {
				t.Fatal(err)
			}
			if corrupt(c.refused()) == nil {
				t.Fatal("not refused as damage")
			}
			p := c.repair()
			if !p.NewHistory || c.history() != 2 {
				t.Errorf("%+v", *p)
			}
			after, err := manifest.Read(c.fs, dir)
			if err != nil || after.NextStream < before[0].State.NextStream+streamMargin || after.NextSegment <= 50 {
				t.Errorf("numbers go on at %d and %d: %v", after.NextStream, after.NextSegment, err)
			}
			c.holds(c.want)
			c.again(c.want)
		})
	}
	t.Run("none is left", func(t *testing.T) {
		c := s.twin()
		c.TB = t
		c.flip(first, 4100)
		c.beyond("nothing else says which segments")
	})
}

// put writes a file anew.
func (s *site) put(path string, b []byte) {
	s.Helper()
	_ = s.fs.Remove(path) // if it is there
	f, err := s.fs.Create(path)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.Fatal(err)
	}
}

// beyond checks that there is no repair, that this is said, and that nothing is touched.
func (s *site) beyond(why string) {
	s.Helper()
	was := s.files()
	for _, try := range []func(string, engine.Options, time.Time) (*Plan, error){Propose, Apply} {
		if _, err := try(dataDir, s.options(0), now); !errors.Is(err, ErrBeyondRepair) || !strings.Contains(err.Error(), why) {
			s.Errorf("%v", err)
		}
	}
	s.unchanged(was)
}

func TestBeyondRepair(t *testing.T) {
	whole := newSite(t, 2, 20)
	for name, damage := range map[string]func(s *site) string{
		"identity": func(s *site) string {
			s.flip("data/SNAKREAM", 20)
			return "the identity says how streams are spread"
		},
		"missing identity": func(s *site) string { s.remove("data/SNAKREAM"); return "the identity says" },
		"all segments": func(s *site) string { // the log goes on with streams that they know
			for _, path := range s.match("data/shard-0?/seg/*.seg") {
				s.flip(path, 9)
			}
			return "a start would refuse it all the same"
		},
		"newer manifest": func(s *site) string {
			path := s.match("data/shard-00/MANIFEST-*")[0]
			b := s.files()[path]
			b[8] = 9
			copy(b[4088:], sum64(b[:4088]))
			s.put(path, b)
			return "format version 9"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := whole.twin()
			s.TB = t
			s.beyond(damage(s))
		})
	}
}

// A fork in another shard than its source: what it inherits must not become other bytes.
func TestRepairLeavesNoOrphans(t *testing.T) {
	s := newSite(t, 2, 0)
	e := s.open(8 << 20)
	shardOf := func(name string) int { return e.Lookup([]byte("b"), []byte(name)).View().ID.Shard(2) }
	for i := range 4 {
		s.append(e, "s1", fmt.Sprintf("<late %d>", i))
	}
	fork := ""
	for i := 0; fork == ""; i++ {
		name := fmt.Sprint("fork", i)
		ev := create(name)
		ev.Fork = &core.ForkSpec{Bucket: "b", Name: "s1", InheritType: true}
		ev.ContentType, ev.MediaType = "", nil
		s.do(e, "", ev, core.Created)
		if shardOf(name) != shardOf("s1") {
			fork = name
		}
	}
	for i := range 4 {
		s.append(e, "s1", fmt.Sprintf("<later %d>", i))
	}
	s.close(e)
	path, at := s.find("data/shard-0?/wal/*.wal", "<late 1>")
	s.flip(path, at)
	s.beyond("b/" + fork)
}
