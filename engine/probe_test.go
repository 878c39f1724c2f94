package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/segment"
)

// probe runs Probe, which must change nothing, and returns what it found by name.
func (r *rig) probe() (map[string]*engine.Found, error) {
	r.Helper()
	all := map[string]*engine.Found{}
	r.fs.StartTrace()
	err := engine.Probe("data", r.options(), func(f *engine.Found) { all[f.Name] = f })
	if trace := r.fs.Trace(); len(trace) > 0 {
		r.Errorf("Probe changed something: %q", trace)
	}
	return all, err
}

// Probe finds every stream as a start brings it back.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, want := full(t)
		all, err := r.probe()
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			f := all[name]
			if f == nil || f.Bucket != "b" || int(f.Next) != len(w) || f.First != 0 || f.Deleted || f.Orphan || len(f.Missing) > 0 {
				t.Errorf("%s: %+v, want %d bytes", name, f, len(w))
			}
		}
		r.open()
		for name := range want {
			if id := r.view(name).ID; id != all[name].ID {
				t.Errorf("%s has the id %d, Probe said %d", name, id, all[name].ID)
			}
		}
		r.close()
	})
}

// What no file holds is told to the byte, of forks that inherit it as well.
func TestProbeFindsWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		for attempt := range 50 { // until no merge has made one segment of what a stream has
			if r.forgetSome(fmt.Sprintf("src%d", attempt)) {
				return
			}
			r.open()
		}
		t.Error("no stream was in three segments")
	})
}

// forgetSome makes a stream and forks of it, closes the engine, takes a segment of the
// stream away, and looks whether Probe misses it. It is false when there were too few.
func (r *rig) forgetSome(src string) bool {
	r.Helper()
	r.create(src)
	want := r.fill([]string{src}, 3)[src]
	mid := base.Offset(len(want) / 2)
	fork, second := src+"fork", src+"forkfork"
	for _, ev := range []struct {
		name, of string
		at       base.Offset
	}{{fork, src, mid}, {second, fork, mid - 100}} {
		c := createEvent(ev.name)
		c.Fork = &core.ForkSpec{Bucket: "b", Name: ev.of, InheritType: true, HasOffset: true, Offset: ev.at}
		c.ContentType, c.MediaType = "", nil
		r.must("", c, core.Created)
		r.append(ev.name, "its own")
	}
	id := r.view(src).ID
	r.close()
	all, err := r.probe()
	if err != nil || len(all[src].Missing) > 0 || int(all[src].Next) != len(want) {
		r.Fatalf("%+v, %v", all[src], err)
	}
	gone, ok := r.forgetMiddle(id, mid-100)
	if !ok {
		return false
	}
	if all, err = r.probe(); err != nil {
		r.Fatal(err)
	}
	for name, end := range map[string]base.Offset{src: gone.End, fork: min(gone.End, mid), second: min(gone.End, mid-100)} {
		if m := all[name].Missing; !slices.Equal(m, []engine.Missing{{Start: gone.Start, End: end}}) {
			r.Errorf("%s: %v, want [%d, %d)", name, m, gone.Start, end)
		}
	}
	return true
}

// forgetMiddle takes a segment out of the manifest that has neither the first nor the
// last bytes of a stream, and some before limit, and returns what it had of it. It is false
// when there is none.
func (r *rig) forgetMiddle(id base.StreamID, limit base.Offset) (base.Extent, bool) {
	r.Helper()
	dir := fmt.Sprintf("data/shard-%02d", id.Shard(3))
	m, state, err := manifest.Open(r.fs, dir)
	if err != nil {
		r.Fatal(err)
	}
	var runs []base.Extent
	for seg := range state.Segments {
		path := fmt.Sprintf("%s/seg/%010d.seg", dir, uint64(seg))
		f, err := r.fs.Open(path)
		if err != nil {
			r.Fatal(err)
		}
		src, err := segment.FileSource(f)
		if err != nil {
			r.Fatal(err)
		}
		s, err := segment.Open(src, path, seg)
		if err != nil {
			r.Fatal(err)
		}
		if st, ok := s.Find(id); ok && st.Extent.End > st.Extent.Start {
			runs = append(runs, st.Extent)
		}
		if err := f.Close(); err != nil {
			r.Fatal(err)
		}
	}
	slices.SortFunc(runs, func(a, b base.Extent) int { return cmp.Compare(a.Start, b.Start) })
	if len(runs) < 3 || runs[1].Start >= limit {
		if err := m.Close(); err != nil {
			r.Fatal(err)
		}
		return base.Extent{}, false
	}
	if err := errors.Join(m.Apply(manifest.Edit{Remove: []base.SegmentID{runs[1].Segment}}), m.Close()); err != nil {
		r.Fatal(err)
	}
	return runs[1], true
}

// A repair that was begun keeps every start out until it has ended, and decides the
// history number once.
func TestRepairHistory(t *testing.T) {
	r := newRig(t, tiny(2))
	r.create("a")
	first := r.Incarnation(r.view("a").ID)
	r.close()
	for i, step := range []struct {
		anew bool
		want uint16
	}{{false, 1}, {true, 2}, {false, 2}, {true, 3}} {
		if err := engine.BeginRepair(r.fs, "data", step.anew); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Open("data", r.options()); !errors.Is(err, engine.ErrIncomplete) {
			t.Errorf("%d: a start in the middle of a repair: %v", i, err)
		}
		if err := engine.BeginRepair(r.fs, "data", false); err != nil { // as after a crash
			t.Fatal(err)
		}
		if on, err := engine.RepairUnfinished(r.fs, "data"); err != nil || !on {
			t.Errorf("%d: unfinished: %t, %v", i, on, err)
		}
		if err := engine.EndRepair(r.fs, "data"); err != nil {
			t.Fatal(err)
		}
		if id, err := engine.ReadIdentity(r.fs, "data"); err != nil || id.History != step.want || id.Shards != 2 {
			t.Errorf("%d: %+v, %v", i, id, err)
		}
		r.open()
		if now := r.Incarnation(r.view("a").ID); (now == first) != (step.want == 1) {
			t.Errorf("%d: the incarnation was %d and is %d", i, first, now)
		}
		r.close()
	}
	if err := engine.EndRepair(r.fs, "data"); err == nil {
		t.Error("a repair that was not begun has ended")
	}
	if err := engine.BeginRepair(vfstest.New(), "data", true); err == nil {
		t.Error("a repair of nothing")
	}
}

// There is a last history number.
func TestRepairHistoriesEnd(t *testing.T) {
	r := newRig(t, tiny(1))
	r.close()
	for range 4094 {
		if err := errors.Join(engine.BeginRepair(r.fs, "data", true), engine.EndRepair(r.fs, "data")); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.BeginRepair(r.fs, "data", true); !errors.Is(err, engine.ErrHistories) {
		t.Errorf("history 4096: %v", err)
	}
	r.open()
	r.close()
}
