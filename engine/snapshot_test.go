package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// upload makes a blob and returns its digest, with a reference.
func (r *rig) upload(body string) blob.Digest {
	r.Helper()
	w, err := r.Blobs().Create(int64(len(body)))
	if err != nil {
		r.Fatal(err)
	}
	if _, err := w.Write([]byte(body)); err != nil {
		r.Fatal(err)
	}
	d, err := w.Commit()
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// tryPublish publishes a snapshot at an offset, as a front does.
func (r *rig) tryPublish(name string, at base.Offset, body string, retain bool) core.Answer {
	r.Helper()
	d := r.upload(body)
	v := r.view(name)
	exact, n, err := r.Boundary(context.Background(), v, at, false)
	if err != nil && !errors.Is(err, engine.ErrStale) {
		r.Fatal(err)
	}
	a := r.try(name, core.Event{
		Op: core.OpSnapshot, Retain: retain, BodyFault: !exact,
		Snapshot: &core.Snapshot{Offset: at, Record: n, Digest: d, Size: int64(len(body)), ContentType: "text/plain"},
	})
	if err := r.Blobs().Unpin(d, base.Millis(time.Now().UnixMilli())); err != nil {
		r.Fatal(err)
	}
	return a
}

func (r *rig) publish(name string, at base.Offset, body string) {
	r.Helper()
	if a := r.tryPublish(name, at, body, false); a.Code != core.Created {
		r.Fatalf("publish at %d of %s answered %d", at, name, a.Code)
	}
}

// snapshots returns the bytes of the snapshots of a stream, the current one first, then
// those that it has replaced, the oldest first.
func (r *rig) snapshots(name string) (all []string) {
	r.Helper()
	r.view(name).Extra.EachSnapshot(func(s *core.Snapshot) {
		b, err := r.Blobs().Open(s.Digest)
		if err != nil {
			r.Fatalf("snapshot at %d of %s: %v", s.Offset, name, err)
		}
		defer b.Release()
		body, err := b.Append(context.Background(), nil, 0, int(b.Size()))
		if err != nil || int64(len(body)) != s.Size {
			r.Fatalf("snapshot at %d of %s: %d bytes: %v", s.Offset, name, len(body), err)
		}
		all = append(all, string(body))
	})
	return all
}

func (r *rig) expectSnapshots(name string, want ...string) {
	r.Helper()
	if got := r.snapshots(name); fmt.Sprint(got) != fmt.Sprint(want) {
		r.Fatalf("%s has snapshots %q instead of %q", name, got, want)
	}
}

// blobPaths returns the paths of the blobs on disk.
func (r *rig) blobPaths() (all []string) {
	r.Helper()
	subs, err := r.fs.List("data/blobs")
	if err != nil {
		r.Fatal(err)
	}
	for _, sub := range subs {
		names, err := r.fs.List(filepath.Join("data/blobs", sub))
		if err != nil || len(sub) != 2 {
			continue
		}
		for _, n := range names {
			all = append(all, filepath.Join("data/blobs", sub, n))
		}
	}
	return all
}

// blobFiles returns how many blobs there are on disk.
func (r *rig) blobFiles() int { return len(r.blobPaths()) }

// stored returns about how many bytes segments hold besides what each has at least.
func (r *rig) stored() int64 {
	s := r.Stats()
	return s.SegmentBytes - s.Segments*4200
}

// everywhere runs a check now, after flushes and merges, and after restarts.
func (r *rig) everywhere(check func()) {
	r.Helper()
	check()
	r.reopen()
	check()
	r.churn()
	check()
	r.reopen()
	r.churn()
	check()
}

// churn has everything flushed and merged that there is.
func (r *rig) churn() {
	r.Helper()
	if r.view("churn") == nil {
		r.create("churn")
	}
	before := r.flushed()
	for r.flushed() < before+9 {
		r.append("churn", strings.Repeat("c", 2000))
	}
	later(time.Minute)
}

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("a")
		for _, m := range []string{"one", "two", "three", "four"} {
			r.append("a", m)
		}
		before := r.view("a")
		r.publish("a", 6, "state after two")
		r.everywhere(func() {
			t.Helper()
			r.expect("a", "threefour")
			r.expectSnapshots("a", "state after two")
			v := r.view("a")
			if v.First != 6 || v.FirstRecord != 2 || v.Next != 15 || v.NextRecord != 4 {
				t.Fatalf("the stream is [%d, %d), messages [%d, %d)", v.First, v.Next, v.FirstRecord, v.NextRecord)
			}
			var st engine.Step
			defer st.Release()
			for off := range base.Offset(6) {
				if err := r.Read(v, off, 15, 100, &st); !errors.Is(err, engine.ErrStale) {
					t.Errorf("a read from %d: %v", off, err)
				}
				if _, _, err := r.Boundary(t.Context(), v, off, false); !errors.Is(err, engine.ErrStale) {
					t.Errorf("boundary %d: %v", off, err)
				}
			}
			for off, want := range map[base.Offset]uint64{6: 2, 11: 3, 15: 4} {
				if exact, n, err := r.Boundary(t.Context(), v, off, false); !exact || n != want || err != nil {
					t.Errorf("boundary %d: %t, %d, %v", off, exact, n, err)
				}
				if at, err := r.RecordOffset(t.Context(), v, want, false); at != off || err != nil {
					t.Errorf("message %d: %d, %v", want, at, err)
				}
			}
			if _, err := r.RecordOffset(t.Context(), v, 1, false); !errors.Is(err, engine.ErrStale) {
				t.Errorf("a message that is trimmed: %v", err)
			}
			if end, err := r.Fit(t.Context(), v, 6, 7, false); end != 11 || err != nil {
				t.Errorf("fit: %d, %v", end, err)
			}
		})
		// A view from before reads on until the bytes are gone, and then knows why.
		var st engine.Step
		err := r.Read(before, 0, 15, 100, &st)
		if got, _ := st.Append(t.Context(), nil); err != nil && !errors.Is(err, engine.ErrStale) || err == nil && string(got) != "onetwothreefour" {
			t.Errorf("a view from before: %q, %v", got, err)
		}
		st.Release()
		r.append("a", "five")
		if a := r.tryPublish("a", 3, "late", false); a.Code != core.SnapshotTrimmed || a.First != 6 || a.Snapshot.Offset != 6 {
			t.Errorf("a snapshot below the earliest offset: %+v", a)
		}
		if a := r.tryPublish("a", 8, "inside", false); a.Code != core.BodyFault {
			t.Errorf("a snapshot inside a message: %+v", a)
		}
		if a := r.tryPublish("a", 6, "other bytes", false); a.Code != core.SnapshotConflict || a.Snapshot.Digest != r.view("a").Snapshot().Digest {
			t.Errorf("other bytes: %+v", a)
		}
		if a := r.tryPublish("a", 6, "state after two", false); a.Code != core.Exists {
			t.Errorf("the same again: %+v", a)
		}
		later(3 * time.Second)
		if n := r.blobFiles(); n != 1 {
			t.Errorf("%d blobs are left of one snapshot and what was refused", n)
		}
		r.close()
	})
}

// Trimmed bytes give their space back, by and by, and what stays keeps its places.
func TestTrimmedSpaceComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(2)
		o.EraseWithin = time.Minute
		r := newRig(t, o)
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			r.create(name)
		}
		want := r.fill(names, 12)
		later(time.Minute)
		full := r.stored()
		for _, name := range names[:3] {
			v := r.view(name)
			at, err := r.RecordOffset(t.Context(), v, v.NextRecord-3, false)
			if err != nil {
				t.Fatal(err)
			}
			r.publish(name, at, "state of "+name)
			want[name] = want[name][at:]
		}
		r.everywhere(func() {
			t.Helper()
			later(2 * time.Minute)
			for _, name := range names {
				r.expect(name, want[name])
				v := r.view(name)
				for i := range uint64(4) { // the last messages are where they were
					at, err := r.RecordOffset(t.Context(), v, v.NextRecord-i, false)
					if err != nil {
						t.Fatal(err)
					}
					exact, n, err := r.Boundary(t.Context(), v, at, false)
					if !exact || n != v.NextRecord-i || err != nil {
						t.Fatalf("message %d of %s is at %d, where %d is: %v", v.NextRecord-i, name, at, n, err)
					}
				}
			}
		})
		r.remove("churn")
		later(5 * time.Minute)
		if now := r.stored(); now > full/2 {
			t.Errorf("segments had %d bytes and have %d", full, now)
		}
		for path, b := range files(t, r.fs, "data/shard-00/seg") {
			if bytes.Contains(b, []byte("<0 ")) {
				t.Errorf("the first message is still in %s", path)
			}
		}
		r.close()
	})
}

// Trimming a source takes nothing from its forks, through flushes, merges and restarts,
// until the last of them has gone.
func TestForksKeepWhatTheyInherit(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			o := tiny(shards)
			o.EraseWithin = time.Minute
			r := newRig(t, o)
			r.create("source")
			want := r.fill([]string{"source"}, 3)["source"]
			half := r.boundaryNear("source", len(want)/2)
			r.publish("source", r.boundaryNear("source", 2000), "early")
			first := r.view("source").First
			r.fork("fork", "source", half)
			r.publish("source", r.boundaryNear("source", len(want)*3/4), "late")
			r.fork("grandchild", "fork", half)
			trimmed := r.view("source").First
			inherited := want[first:half]
			r.everywhere(func() {
				t.Helper()
				later(2 * time.Minute)
				r.expect("fork", inherited)
				r.expect("grandchild", inherited)
				r.expect("source", want[trimmed:])
				r.expectSnapshots("fork", "early")
				r.expectSnapshots("grandchild", "early")
			})
			r.append("fork", "own")
			r.remove("source")
			r.everywhere(func() { r.expect("fork", inherited+"own") })
			r.remove("fork")
			r.everywhere(func() { r.expect("grandchild", inherited) })
			r.remove("grandchild")
			r.remove("churn")
			later(5 * time.Minute)
			if n := r.stored(); n > 3000 {
				t.Errorf("segments have %d bytes", n)
			}
			if n := r.blobFiles(); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
			r.close()
		})
	}
}

// When only a newer part of what was trimmed has been erased, a fork and a restart later
// merges still know that the older part isn't needed either.
func TestMergeAfterPartialErase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.EraseWithin = 1000 * time.Hour // only segments that are mostly dead are written anew
		r := newRig(t, o)
		r.create("other")
		r.create("s")
		flush := func(name string) {
			for before := r.flushed(); r.flushed() == before; {
				r.append(name, strings.Repeat(name, 500))
				synctest.Wait()
			}
		}
		r.append("s", "a little")
		flush("other")
		flush("s")
		flush("other")
		before := r.stored()
		r.publish("s", r.view("s").Next, "state")
		later(130 * time.Hour) // the keeper looks now and then
		if now := r.stored(); now > before-8000 || now < before-8100 {
			t.Fatalf("segments had %d bytes and have %d: not just the middle one was written anew", before, now)
		}
		r.append("s", "what stays")
		end := r.view("s").Next
		r.fork("f", "s", end)
		r.everywhere(func() {
			t.Helper()
			r.expect("s", "what stays")
			r.expect("f", "what stays")
			if n := r.metric("snakream_merge_failures_total"); n > 0 {
				t.Errorf("%d merges failed", n)
			}
		})
		if r.metric("snakream_merges_total") == 0 {
			t.Error("nothing was merged")
		}
		r.close()
	})
}

// boundaryNear returns where the message begins that a byte is in.
func (r *rig) boundaryNear(name string, off int) base.Offset {
	r.Helper()
	v := r.view(name)
	_, n, err := r.Boundary(context.Background(), v, base.Offset(off), false)
	if err != nil {
		r.Fatal(err)
	}
	at, err := r.RecordOffset(context.Background(), v, n, false)
	if err != nil {
		r.Fatal(err)
	}
	return at
}

func (r *rig) tryFork(name, source string, at base.Offset) core.Answer {
	r.Helper()
	ev := createEvent(name)
	ev.Fork = &core.ForkSpec{Bucket: "b", Name: source, Offset: at, HasOffset: true, InheritLife: true}
	return r.try(name, ev)
}

func (r *rig) fork(name, source string, at base.Offset) {
	r.Helper()
	if a := r.tryFork(name, source, at); a.Code != core.Created {
		r.Fatalf("a fork of %s at %d was answered %d", source, at, a.Code)
	}
}

// A fork of a trimmed stream begins where that does, and has a snapshot that covers what
// is missing, for as long as it wants.
func TestForkOfTrimmedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(3)
		o.SnapshotGrace = 10 * time.Second
		r := newRig(t, o)
		r.create("a")
		for _, m := range []string{"one", "two", "three", "four"} {
			r.append("a", m)
		}
		r.publish("a", 3, "after one")
		if a := r.tryFork("low", "a", 0); a.Code != core.SnapshotTrimmed || a.First != 3 || a.Stream != r.view("a").ID {
			t.Errorf("a fork from below the earliest offset: %+v", a)
		}
		if r.stream("low") != nil {
			t.Error("it was made")
		}
		r.fork("f", "a", 11)
		r.publish("a", 15, "after four")
		later(time.Minute) // the first snapshot has had its time
		r.expectSnapshots("a", "after four")
		r.everywhere(func() {
			t.Helper()
			r.expect("f", "twothree")
			r.expectSnapshots("f", "after one")
			if v := r.view("f"); v.First != 3 || v.FirstRecord != 1 || v.NextRecord != 3 {
				t.Errorf("the fork is %+v", v.View)
			}
		})
		// Retention below the snapshot: nothing covers a fork from in between.
		r.create("b")
		for _, m := range []string{"one", "two", "three", "four"} {
			r.append("b", m)
		}
		if a := r.tryPublish("b", 15, "after four", true); a.Code != core.Created {
			t.Fatal(a.Code)
		}
		r.fork("all", "b", 6) // nothing is missing
		r.must("b", core.Event{Op: core.OpTrim, Offset: 3, Ordinal: 1}, core.Appended)
		if a := r.tryFork("hole", "b", 6); a.Code != core.SnapshotTrimmed {
			t.Errorf("a fork that no snapshot covers: %d", a.Code)
		}
		r.fork("end", "b", 15)
		r.expect("end", "twothreefour")
		r.expectSnapshots("end", "after four")
		r.remove("a")
		r.remove("b")
		later(time.Minute)
		r.everywhere(func() {
			t.Helper()
			r.expectSnapshots("f", "after one")
			r.expectSnapshots("end", "after four")
			r.expect("all", "onetwo")
		})
		for _, name := range []string{"f", "end", "all"} {
			r.remove(name)
		}
		later(time.Minute)
		if n := r.blobFiles(); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		r.close()
	})
}

// A snapshot that was replaced can be read for a while; then it goes, row and file, also
// when that while ends in another run.
func TestReplacedSnapshot(t *testing.T) {
	for _, restart := range []string{"never", "before", "after", "both"} {
		synctest.Test(t, func(t *testing.T) {
			o := tiny(1)
			o.SnapshotGrace = 5 * time.Minute
			r := newRig(t, o)
			r.create("a")
			r.append("a", "one")
			r.append("a", "two")
			r.publish("a", 3, "first")
			later(time.Hour)
			r.expectSnapshots("a", "first") // the current one stays
			r.publish("a", 6, "second")
			if restart == "before" || restart == "both" {
				r.reopen()
			}
			later(4 * time.Minute)
			r.expectSnapshots("a", "second", "first")
			r.must("a", core.Event{Op: core.OpDrop, Offset: 6}, core.SnapshotIsCurrent)
			later(time.Minute + 3*time.Second)
			r.expectSnapshots("a", "second")
			if n := r.blobFiles(); n != 1 {
				t.Errorf("restart %s: %d blobs", restart, n)
			}
			if restart == "after" || restart == "both" {
				r.reopen()
			}
			r.must("a", core.Event{Op: core.OpDrop, Offset: 3}, core.SnapshotNotFound)
			r.append("a", "three")
			r.publish("a", 11, "third")
			r.must("a", core.Event{Op: core.OpDrop, Offset: 6}, core.Deleted)
			r.expectSnapshots("a", "third")
			later(3 * time.Second)
			if n := r.blobFiles(); n != 1 {
				t.Errorf("restart %s: %d blobs after a drop by hand", restart, n)
			}
			r.close()
		})
	}
}

// One who reads a snapshot finishes, whatever becomes of it meanwhile.
func TestReaderOfSnapshotThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("a")
		body := strings.Repeat("0123456789", 30_000)
		r.publish("a", 0, body)
		b, err := r.Blobs().Open(r.view("a").Snapshot().Digest)
		if err != nil {
			t.Fatal(err)
		}
		r.remove("a")
		later(time.Minute)
		got, err := b.Append(context.Background(), nil, 0, len(body))
		if err != nil || string(got) != body {
			t.Fatalf("%d bytes: %v", len(got), err)
		}
		b.Release()
		later(3 * time.Second)
		if n := r.blobFiles(); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		r.close()
	})
}

// Streams whose snapshots have the same bytes share a file, until the last of them gives
// it up.
func TestSharedSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		names := []string{"a", "b", "c"}
		for _, name := range names {
			r.create(name)
			r.append(name, "x")
			r.publish(name, 1, "the same for all")
		}
		for len(names) > 0 {
			if n := r.blobFiles(); n != 1 {
				t.Fatalf("%d blobs for %d streams", n, len(names))
			}
			r.everywhere(func() {
				t.Helper()
				for _, name := range names {
					r.expectSnapshots(name, "the same for all")
				}
			})
			r.remove(names[0])
			names = names[1:]
			later(3 * time.Second)
		}
		if n := r.blobFiles(); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		r.close()
	})
}

// A restart, or a crash, in every state that a snapshot can be in.
func TestRestartWithSnapshots(t *testing.T) {
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	const one, two = "state one", "state two"
	for _, c := range []struct {
		name  string
		do    func(r *rig)
		holds string
		snaps []string
		blobs int // after a start
	}{
		{"uploaded only", func(r *rig) { r.upload("nobody's") }, "onetwothree", nil, 0},
		{"upload under way", func(r *rig) {
			if w, err := r.Blobs().Create(100); err != nil {
				r.Fatal(err)
			} else if _, err := w.Write([]byte("half")); err != nil {
				r.Fatal(err)
			}
		}, "onetwothree", nil, 0},
		{"published", func(r *rig) { r.publish("a", 3, one) }, "twothree", []string{one}, 1},
		{"retained", func(r *rig) { r.tryPublish("a", 3, one, true) }, "onetwothree", []string{one}, 1},
		{"retained, then trimmed", func(r *rig) {
			r.tryPublish("a", 6, one, true)
			r.must("a", core.Event{Op: core.OpTrim, Offset: 3, Ordinal: 1}, core.Appended)
		}, "twothree", []string{one}, 1},
		{"refused", func(r *rig) { r.tryPublish("a", 1, one, false) }, "onetwothree", nil, 0},
		{"replaced", func(r *rig) { r.publish("a", 3, one); r.publish("a", 6, two) }, "three", []string{two, one}, 2},
		{"replaced and dropped", func(r *rig) {
			r.publish("a", 3, one)
			r.publish("a", 6, two)
			r.must("a", core.Event{Op: core.OpDrop, Offset: 3}, core.Deleted)
		}, "three", []string{two}, 1},
		{"at the tail", func(r *rig) { r.publish("a", 11, one) }, "", []string{one}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := tiny(2)
			o.SnapshotGrace = 1000 * time.Hour
			r := newRig(t, o)
			r.create("a")
			for _, m := range []string{"one", "two", "three"} {
				r.append("a", m)
			}
			c.do(r)
			ends := []*vfstest.MemFS{r.fs.CrashClone(rng), r.fs.CrashClone(nil), r.fs.Clone()}
			if invariants.Enabled {
				ends = ends[:1]
			}
			for _, fs := range ends {
				again := r.on(fs)
				again.everywhere(func() {
					t.Helper()
					again.expect("a", c.holds)
					again.expectSnapshots("a", c.snaps...)
					if n := again.blobFiles(); n != c.blobs || again.Blobs().Orphans() != 0 {
						t.Errorf("%s: %d blobs, %d of them orphans", c.name, n, again.Blobs().Orphans())
					}
				})
				again.append("a", "four")
				again.publish("a", 15, "last")
				again.close()
			}
			r.close()
		})
	}
}

// Reading, publishing and setting attributes are uses of a stream with a time to live;
// the time that a replaced snapshot has is none.
func TestSnapshotsRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.SnapshotGrace = time.Second
		r := newRig(t, o)
		ev := createEvent("a")
		ev.TTL = 10
		r.must("a", ev, core.Created)
		r.append("a", "one")
		r.append("a", "two")
		for _, use := range []func(){
			func() { r.tryPublish("a", 3, "first", true) },
			func() { r.tryPublish("a", 3, "first", true) }, // a repeat, which writes nothing
			func() { r.must("a", core.Event{Op: core.OpTrim, Offset: 3, Ordinal: 1}, core.Appended) },
			func() { r.must("a", core.Event{Op: core.OpTrim, Offset: 3, Ordinal: 1}, core.Exists) },
			func() { r.must("a", core.Event{Op: core.OpAttrs, Attrs: []byte("{}")}, core.Appended) },
			func() { r.tryPublish("a", 6, "second", false) },
		} {
			later(8 * time.Second)
			use()
		}
		later(9 * time.Second)
		r.expectSnapshots("a", "second")
		later(3 * time.Second)
		if r.view("a") != nil {
			t.Error("it lives on though nobody uses it")
		}
		later(3 * time.Second)
		if n := r.blobFiles(); n != 0 {
			t.Errorf("%d blobs are left of a stream that has expired", n)
		}
		r.close()
	})
}

// Damage: a blob is an error for who reads it, the journal keeps the engine from starting.
func TestDamagedBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(2))
		r.create("a")
		r.append("a", "one")
		r.publish("a", 3, strings.Repeat("snapshot ", 1000))
		r.close()
		flip := func(fs *vfstest.MemFS, path string, at int64) {
			if err := fs.Corrupt(path, at, func(b []byte) { b[0] ^= 8 }); err != nil {
				t.Fatal(err)
			}
		}
		journal := r.fs.Clone()
		flip(journal, "data/blobs/JOURNAL", 3)
		if err := r.refused(journal, "data/blobs/JOURNAL"); corruption(err) == nil {
			t.Errorf("a damaged journal: %v", err)
		}
		missing := r.fs.Clone()
		if err := missing.Remove("data/blobs/JOURNAL"); err != nil {
			t.Fatal(err)
		}
		if err := r.refused(missing, "data/blobs/JOURNAL"); corruption(err) == nil {
			t.Errorf("no journal: %v", err)
		}
		path := r.blobPaths()[0]
		for what, spoil := range map[string]func(*vfstest.MemFS){
			"a damaged blob": func(fs *vfstest.MemFS) { flip(fs, path, 5000) },
			"a missing blob": func(fs *vfstest.MemFS) {
				if err := fs.Remove(path); err != nil {
					t.Fatal(err)
				}
			},
		} {
			fs := r.fs.Clone()
			spoil(fs)
			again := r.on(fs)
			b, err := again.Blobs().Open(again.view("a").Snapshot().Digest)
			if err == nil {
				_, err = b.Append(context.Background(), nil, 0, int(b.Size()))
				b.Release()
			}
			if c := corruption(err); c == nil || filepath.Base(c.Path) != filepath.Base(path) {
				t.Errorf("%s: %v", what, err)
			}
			again.append("a", "two")
			again.publish("a", 6, "anew")
			later(10 * time.Minute) // the damaged one goes as any other
			again.expectSnapshots("a", "anew")
			again.close()
		}
	})
}
