package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/wal/record"
)

// A fork's operation may be submitted again, for the same or for another.
func TestForkTwiceWithOneOp(t *testing.T) {
	r := newRig(t, tiny(3))
	r.create("src")
	r.append("src", "inherited")
	op := &engine.Op{Event: createEvent("fork")}
	op.Event.Fork = &core.ForkSpec{Bucket: "b", Name: "src", InheritType: true}
	op.Event.ContentType, op.Event.MediaType = "", nil
	for _, want := range []core.Code{core.Created, core.Exists} {
		if err := r.Do(op); err != nil || op.Answer.Code != want {
			t.Fatalf("answered %d instead of %d: %v", op.Answer.Code, want, err)
		}
	}
	r.remove("fork")
	if err := r.Do(op); err != nil || op.Answer.Code != core.Created {
		t.Fatalf("after a delete: %d, %v", op.Answer.Code, err)
	}
	op.Event = createEvent("other")
	if err := r.Do(op); err != nil || op.Answer.Code != core.Created {
		t.Fatalf("another stream: %d, %v", op.Answer.Code, err)
	}
	r.expect("fork", "inherited")
	r.expect("other", "")
	r.reopen()
	r.expect("fork", "inherited")
	r.expect("other", "")
	r.close()
}

// Refused forks leave no trace at their source.
func TestRefusedForksHoldNothing(t *testing.T) {
	r := newRig(t, tiny(3))
	r.create("src")
	r.append("src", "0123456789")
	r.create("taken")
	refused := func(want core.Code, change func(*core.Event)) {
		t.Helper()
		for range 5 {
			ev := createEvent("fork")
			ev.Fork = &core.ForkSpec{Bucket: "b", Name: "src"}
			change(&ev)
			r.must("", ev, want)
		}
	}
	refused(core.ForkTypeMismatch, func(ev *core.Event) { ev.MediaType = []byte("text/html") })
	refused(core.ForkOffsetInvalid, func(ev *core.Event) { ev.Fork.HasOffset, ev.Fork.Offset = true, 11 })
	refused(core.ForkOffsetInvalid, func(ev *core.Event) { ev.Fork.HasOffset, ev.Fork.Sub = true, 11 })
	refused(core.ForkSourceNotFound, func(ev *core.Event) { ev.Fork.Name = "nothing" })
	refused(core.ConfigMismatch, func(ev *core.Event) { ev.Name = "taken" })
	refused(core.BodyFault, func(ev *core.Event) { ev.BodyFault = true })
	for range 2 {
		r.remove("src")
		if r.view("src") != nil {
			t.Fatal("a refused fork keeps its source")
		}
		r.create("src")
		r.append("src", "0123456789")
		r.reopen()
	}
	r.close()
}

func forkEvent(name, source string) core.Event {
	ev := createEvent(name)
	ev.Fork = &core.ForkSpec{Bucket: "b", Name: source}
	return ev
}

// Who has deleted the last fork of a deleted stream finds the names of all free that were
// only kept for it, in whatever shards they are.
func TestNamesAreFreeAfterTheLastFork(t *testing.T) {
	r := newRig(t, tiny(3))
	for i := range 50 {
		names := []string{fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i), fmt.Sprint("d", i)}
		r.create(names[0])
		for j, name := range names[1:] {
			r.must("", forkEvent(name, names[j]), core.Created)
		}
		for _, name := range names {
			r.remove(name)
		}
		for _, name := range names {
			r.create(name)
		}
	}
	r.close()
}

// A fork's delete is answered when its source knows. What has been taken is answered before
// a Close, whichever shard is closed first.
func TestDeleteOfAForkWaitsForItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprint("s", i))
			r.create(names[i])
		}
		src, other, shard := r.apart(names)
		r.remove(other) // whose name the fork takes, so that it is in that shard
		r.must("", forkEvent(other, src), core.Created)
		r.remove(src)
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Datasync && strings.Contains(op.Path, fmt.Sprintf("shard-%02d/wal/", shard))
		})
		done := r.start(other, core.Event{Op: core.OpDelete})
		later(time.Minute)
		if done() {
			t.Error("the delete was answered while the source is there")
		}
		if r.view(other) != nil || r.view(src) == nil {
			t.Errorf("the fork is %v, its source %v", r.view(other), r.view(src))
		}
		slow.letGo()
		synctest.Wait()
		if !done() || r.view(src) != nil {
			t.Errorf("answered: %v; the source is %v", done(), r.view(src))
		}
		r.create("root")
		var answered []func() bool
		for i := range 40 {
			r.must("", forkEvent(fmt.Sprint("f", i), "root"), core.Created)
		}
		for i := range 40 {
			answered = append(answered, r.start(fmt.Sprint("f", i), core.Event{Op: core.OpDelete}))
		}
		r.close()
		for i, done := range answered {
			if !done() {
				t.Errorf("delete %d has no answer", i)
			}
		}
	})
}

// snapshot publishes a snapshot of a stream at an offset that is n messages from its
// beginning.
func (r *rig) snapshot(name string, at base.Offset, n uint64, retain bool) {
	r.Helper()
	body := fmt.Sprint("all up to ", at)
	up, err := r.Blobs().Create(int64(len(body)))
	if err == nil {
		_, err = up.Write([]byte(body))
	}
	if err != nil {
		r.Fatal(err)
	}
	d, err := up.Commit()
	if err != nil {
		r.Fatal(err)
	}
	s := &record.Snapshot{Offset: at, Record: n, Digest: d, Size: int64(len(body)), ContentType: "text/plain"}
	r.must(name, core.Event{Op: core.OpSnapshot, Snapshot: s, Retain: retain}, core.Created)
	if err := r.Blobs().Unpin(d, 0); err != nil {
		r.Fatal(err)
	}
}

// A fork of a trimmed stream begins with the newest snapshot within what it inherits,
// which its source may have replaced. For the fork it is the current one, and stays
// that.
func TestForkTakesAReplacedSnapshot(t *testing.T) {
	r := newRig(t, tiny(1))
	r.create("src")
	for range 4 {
		r.append("src", "0123456789")
	}
	r.snapshot("src", 10, 1, false)
	r.snapshot("src", 30, 3, true)
	ev := createEvent("fork")
	ev.Fork = &core.ForkSpec{Bucket: "b", Name: "src", HasOffset: true, Offset: 20}
	r.must("fork", ev, core.Created)
	r.create("filler")
	for range 3 {
		v := r.view("fork")
		s := v.Snapshot()
		if s == nil || s.Offset != 10 || s.Replaced != 0 || len(v.Extra.Replaced) != 0 || v.First != 10 || v.Next != 20 {
			t.Errorf("the fork has [%d, %d) and the snapshots %+v, %d replaced", v.First, v.Next, s, len(v.Extra.Replaced))
		}
		if s != nil {
			b, err := r.Blobs().Open(s.Digest)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		r.fill([]string{"filler"}, 4)
		r.reopen()
	}
	r.close()
}

// A fork that would begin where the source is damaged is refused as damaged, and not as
// if it could be tried again. Elsewhere the source is forked as ever.
func TestForkOfDamagedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("src")
		want := r.fill([]string{"src"}, 1)["src"]
		later(time.Second)
		r.close()
		seg := find(t, r.fs, "data/shard-00/seg/*.seg")[0]
		if err := r.fs.Corrupt(seg, 4096+100, func(b []byte) { b[0]++ }); err != nil {
			t.Fatal(err)
		}
		r.open()
		ev := createEvent("fork")
		ev.Fork = &core.ForkSpec{Bucket: "b", Name: "src", InheritType: true, HasOffset: true, Offset: 200}
		ev.ContentType, ev.MediaType = "", nil
		for range 2 {
			r.must("", ev, core.SourceDamaged)
		}
		if r.view("fork") != nil || r.view("src") == nil {
			t.Error("the refused fork is there, or its source is not")
		}
		ev.Fork.Offset = base.Offset(len(want)) // which needs no look at the damaged block
		r.must("", ev, core.Created)
		r.close()
	})
}

// A fork that would begin where the source is only in the object store says so while that
// can't be asked, and nothing of it stays.
func TestForkOfColdSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := distantStore()
		o := tiered(3, store)
		o.LocalDiskBudget = 1 << 20
		o.EvictAbove(1)
		r := newRig(t, o)
		r.create("src")
		want := r.fill([]string{"src"}, 6)["src"]
		later(10 * time.Second)
		away.Store(true)
		r.reopen()
		ev := createEvent("fork")
		ev.Fork = &core.ForkSpec{Bucket: "b", Name: "src", HasOffset: true, Offset: 200}
		for range 2 {
			r.must("", ev, core.SourceUnavailable)
		}
		if r.view("fork") != nil {
			t.Error("the refused fork is there")
		}
		away.Store(false)
		later(time.Minute)
		r.must("", ev, core.Created)
		r.expect("fork", want[:200])
		r.close()
	})
}
