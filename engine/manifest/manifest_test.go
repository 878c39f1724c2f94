package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const testDir = "shard-00"

// must ends the test when building what it needs fails.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isCorruption(err error) bool {
	_, ok := errors.AsType[*base.CorruptionError](err)
	return ok
}

// created opens a new manifest on an empty disk.
func created(t testing.TB) (*vfstest.MemFS, *Manifest) {
	t.Helper()
	mem := vfstest.New()
	must(t, Create(mem, testDir))
	m, _ := reopened(t, mem)
	return mem, m
}

func reopened(t testing.TB, fs vfs.FS) (*Manifest, State) {
	t.Helper()
	m, s, err := Open(fs, testDir)
	must(t, err)
	return m, s
}

// randomEdit makes a change that fits the state, now and then one of many blocks.
func randomEdit(rng *rand.Rand, s State) Edit {
	var e Edit
	next := max(s.NextSegment, 1)
	if rng.IntN(3) == 0 {
		e.ReserveSegments = next + base.SegmentID(rng.IntN(300))
		next = e.ReserveSegments
	}
	if rng.IntN(3) == 0 {
		e.ReserveStreams = s.NextStream + rng.Uint64N(1000)
	}
	if rng.IntN(2) == 0 {
		e.Low = &Position{LSN: s.Low.LSN + base.LSN(rng.IntN(100)), Batch: s.Low.Batch + rng.Uint64N(10)}
	}
	ids := make([]base.SegmentID, 0, len(s.Segments))
	for id := range s.Segments {
		ids = append(ids, id)
	}
	slices.Sort(ids) // so that a seed tells all
	for _, id := range ids {
		if rng.IntN(8) == 0 {
			e.Remove = append(e.Remove, id)
		}
	}
	for range rng.IntN([]int{2, 2, 5, 400}[rng.IntN(4)]) {
		id := base.SegmentID(1 + rng.Uint64N(uint64(next)))
		if id >= next || slices.Contains(e.Remove, id) || slices.ContainsFunc(e.Add, func(g Segment) bool { return g.ID == id }) {
			continue
		}
		object := (rng.Uint64() >> 1) * uint64(rng.IntN(2))
		low := base.StreamID(rng.Uint64() >> 1)
		e.Add = append(e.Add, Segment{
			ID: id, Size: rng.Int64(), Kind: uint8(rng.Uint32()), Level: uint8(rng.Uint32()),
			MinStream: low, MaxStream: low + base.StreamID(rng.Uint64()>>1),
			DeadSince: base.Millis(rng.Int64()), Object: object, Evicted: object > 0 && rng.IntN(2) == 0,
		})
	}
	return e
}

// after returns what an edit makes of a state, by the twin of apply: on a copy.
func after(s State, e Edit) State {
	s = s.clone()
	for _, id := range e.Remove {
		delete(s.Segments, id)
	}
	for _, g := range e.Add {
		s.Segments[g.ID] = g
	}
	if e.Low != nil {
		s.Low = *e.Low
	}
	if e.ReserveSegments > 0 {
		s.NextSegment = e.ReserveSegments
	}
	if e.ReserveStreams > 0 {
		s.NextStream = e.ReserveStreams
	}
	return s
}

func equal(a, b State) bool {
	return a.Low == b.Low && a.NextSegment == b.NextSegment && a.NextStream == b.NextStream && maps.Equal(a.Segments, b.Segments)
}

func TestEditsAreThereAfterOpen(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	mem, m := created(t)
	m.roll = 40 << 10
	want := m.State()
	for i := range 300 {
		e := randomEdit(rng, want)
		must(t, m.Apply(e))
		want = after(want, e)
		if !equal(m.State(), want) {
			t.Fatalf("seed %d, edit %d: State differs", seed, i)
		}
		if i%20 != 0 {
			continue
		}
		must(t, m.Close())
		read, err := Read(mem, testDir)
		must(t, err)
		var s State
		m, s = reopened(t, mem)
		m.roll = 40 << 10
		if !equal(s, want) || !equal(read, want) {
			t.Fatalf("seed %d, edit %d: opened state differs", seed, i)
		}
		numbers, err := listLogs(mem, testDir)
		if err != nil || len(numbers) != 1 {
			t.Fatalf("seed %d: files %v, %v", seed, numbers, err)
		}
	}
	if m.log.number < 5 {
		t.Fatalf("seed %d: only %d files in 300 edits", seed, m.log.number)
	}
}

func TestOnTheRealFileSystem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", testDir)
	must(t, Create(vfs.OS, dir))
	m, s, err := Open(vfs.OS, dir)
	must(t, err)
	m.roll = 32 << 10
	rng := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		e := randomEdit(rng, s)
		must(t, m.Apply(e))
		s = after(s, e)
	}
	must(t, m.Close())
	m, got, err := Open(vfs.OS, dir)
	must(t, err)
	if !equal(got, s) {
		t.Fatal("opened state differs")
	}
	must(t, m.Close())
}

func TestStateIsACopy(t *testing.T) {
	_, m := created(t)
	m.State().Segments[1] = Segment{ID: 1}
	if len(m.State().Segments) > 0 {
		t.Fatal("an edit of a copy shows")
	}
}

func TestInvalidEdits(t *testing.T) {
	mem, m := created(t)
	must(t, m.Apply(Edit{ReserveSegments: 10, ReserveStreams: 5, Low: &Position{7, 3}, Add: []Segment{{ID: 1}, {ID: 2}}}))
	want := m.State()
	mem.StartTrace()
	for name, e := range map[string]Edit{
		"segment zero":          {Add: []Segment{{ID: 0}}},
		"not reserved":          {Add: []Segment{{ID: 10}}},
		"added twice":           {Add: []Segment{{ID: 3}, {ID: 3}}},
		"removed twice":         {Remove: []base.SegmentID{1, 1}},
		"removed, but unknown":  {Remove: []base.SegmentID{3}},
		"removed and added":     {Remove: []base.SegmentID{1}, Add: []Segment{{ID: 1}}},
		"negative size":         {Add: []Segment{{ID: 3, Size: -1}}},
		"streams the wrong way": {Add: []Segment{{ID: 3, MinStream: 2, MaxStream: 1}}},
		"evicted, only local":   {Add: []Segment{{ID: 3, Evicted: true}}},
		"segments go back":      {ReserveSegments: 9},
		"streams go back":       {ReserveStreams: 4},
		"LSN goes back":         {Low: &Position{6, 3}},
		"batch goes back":       {Low: &Position{7, 2}},
	} {
		if err := m.Apply(e); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !equal(m.State(), want) || len(mem.Trace()) > 0 {
		t.Errorf("an invalid edit left something: %v", mem.Trace())
	}
	must(t, m.Apply(Edit{Remove: []base.SegmentID{1}, Add: []Segment{{ID: 2, Level: 1}, {ID: 9}}}))
	if s := m.State(); len(s.Segments) != 2 || s.Segments[2].Level != 1 {
		t.Errorf("after a valid one: %+v", s)
	}
}

func TestApplyAfterClose(t *testing.T) {
	_, m := created(t)
	must(t, m.Close())
	if err := m.Apply(Edit{ReserveStreams: 1}); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}

// What reaches the disk, and in which order, is the promise.
func TestTrace(t *testing.T) {
	mem := vfstest.New()
	mem.StartTrace()
	trace := func(name string, want ...string) {
		t.Helper()
		for i := range want {
			verb, args, _ := strings.Cut(want[i], " ")
			want[i] = verb + " " + testDir + strings.ReplaceAll(args, "@", testDir)
		}
		if got := mem.Trace(); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		mem.StartTrace()
	}
	must(t, mem.MkdirAll(testDir))
	mem.StartTrace()

	must(t, Create(mem, testDir))
	trace("Create",
		"create /MANIFEST-000001",
		"allocate /MANIFEST-000001 73728",
		"write /MANIFEST-000001 0+4096",
		"write /MANIFEST-000001 4096+4096",
		"datasync /MANIFEST-000001",
		"syncdir ",
		"create /CURRENT.tmp",
		"write /CURRENT.tmp 0+52",
		"datasync /CURRENT.tmp",
		"rename /CURRENT.tmp @/CURRENT",
		"syncdir ",
	)
	m, _ := reopened(t, mem)
	trace("Open",
		"write /MANIFEST-000001 4096+4096",
		"datasync /MANIFEST-000001",
		"create /CURRENT.tmp",
		"write /CURRENT.tmp 0+52",
		"datasync /CURRENT.tmp",
		"rename /CURRENT.tmp @/CURRENT",
		"syncdir ",
	)
	must(t, m.Apply(Edit{ReserveStreams: 9}))
	trace("Apply",
		"write /MANIFEST-000001 8192+4096",
		"datasync /MANIFEST-000001",
	)
	m.roll = 1
	must(t, m.Apply(Edit{ReserveStreams: 10}))
	trace("Apply that replaces the file",
		"write /MANIFEST-000001 12288+4096",
		"datasync /MANIFEST-000001",
		"create /MANIFEST-000002",
		"allocate /MANIFEST-000002 73728",
		"write /MANIFEST-000002 0+4096",
		"write /MANIFEST-000002 4096+4096",
		"datasync /MANIFEST-000002",
		"syncdir ",
		"create /CURRENT.tmp",
		"write /CURRENT.tmp 0+52",
		"datasync /CURRENT.tmp",
		"rename /CURRENT.tmp @/CURRENT",
		"syncdir ",
		"remove /MANIFEST-000001",
	)
}

func TestFullDisk(t *testing.T) {
	mem, m := created(t)
	mem.SetFree(0)
	m.roll = 24 << 10 // a replacement is due and fails many times before the disk is full
	want, n := m.State(), uint64(0)
	for {
		n++
		err := m.Apply(Edit{ReserveStreams: n})
		if errors.Is(err, vfs.ErrNoSpace) {
			break
		}
		must(t, err)
		want.NextStream = n
	}
	if n < 10 {
		t.Fatalf("only %d edits fit what was allocated", n)
	}
	if !equal(m.State(), want) {
		t.Fatal("an edit without room shows")
	}
	numbers, err := listLogs(mem, testDir)
	if err != nil || fmt.Sprint(numbers) != "[1]" {
		t.Fatalf("files %v, %v", numbers, err)
	}
	crashed, s := reopened(t, withFree(mem.CrashClone(nil), 8192))
	if !equal(s, want) {
		t.Fatal("after a crash: state differs")
	}
	must(t, crashed.Close())

	mem.SetFree(-1)
	must(t, m.Apply(Edit{ReserveStreams: n}))
	if m.log.number != 2 {
		t.Errorf("file %d, after space came back", m.log.number)
	}
	must(t, m.Close())
	if _, s := reopened(t, mem); s.NextStream != n {
		t.Errorf("opened with %d, want %d", s.NextStream, n)
	}
}

func withFree(mem *vfstest.MemFS, bytes int64) *vfstest.MemFS {
	mem.SetFree(bytes)
	return mem
}
