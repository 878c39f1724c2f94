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
)

// In these tests time is that of a bubble: it stands still while anything goes on.

func withTTL(name string, seconds int64) core.Event {
	ev := createEvent(name)
	ev.TTL = seconds
	return ev
}

// read lets a read count, and reports whether the stream was there.
func (r *rig) read(name string) bool {
	r.Helper()
	for range 3 {
		st := r.stream(name)
		if st == nil {
			return false
		}
		v := st.View()
		if v == nil || v.Deleted {
			return false
		}
		switch st.Renew(v) {
		case engine.Renewed:
			return true
		case engine.MustTouch:
			r.must(name, core.Event{Op: core.OpTouch, Stream: v.ID}, core.Deleted)
			return true
		case engine.MustExpire:
			r.must(name, core.Event{Op: core.OpExpire, Stream: v.ID}, core.Deleted)
		}
	}
	r.Fatal("the stream neither lives nor ends")
	return false
}

// alive says whether a HEAD would find the stream.
func (r *rig) alive(name string) bool {
	st := r.stream(name)
	if st == nil {
		return false
	}
	v := st.View()
	return v != nil && !v.Deleted && st.Alive(v)
}

func (r *rig) wantAlive(name string, want bool) {
	r.Helper()
	if got := r.alive(name); got != want {
		r.Errorf("%s: alive is %t, want %t", name, got, want)
	}
}

const moment = 10 * time.Millisecond

// Reads and accepted writes give a stream its whole window again; a look at it and
// refused requests don't. When it is over the stream goes by itself.
func TestWhatRenews(t *testing.T) {
	producer := appendEvent("x")
	producer.Producer.ID, producer.Producer.Set = []byte("p"), true
	gap := producer
	gap.Producer.Seq = 7
	wrong := appendEvent("x")
	wrong.MediaType = []byte("text/html")
	closing := core.Event{Op: core.OpAppend, Close: true}
	other := withTTL("s", 11)
	for _, c := range []struct {
		name   string
		before []core.Event
		use    func(r *rig)
		renews bool
	}{
		{"read", nil, func(r *rig) { r.read("s") }, true},
		{"append", nil, func(r *rig) { r.append("s", "x") }, true},
		{"close", nil, func(r *rig) { r.must("s", closing, core.Closed) }, true},
		{"close again", []core.Event{closing}, func(r *rig) { r.must("s", closing, core.Closed) }, true},
		{"repeat", []core.Event{producer}, func(r *rig) { r.must("s", producer, core.Duplicate) }, true},
		{"the same create", nil, func(r *rig) { r.must("s", withTTL("s", 10), core.Exists) }, true},
		{"head", nil, func(r *rig) { r.wantAlive("s", true) }, false},
		{"another type", nil, func(r *rig) { r.must("s", wrong, core.ContentTypeMismatch) }, false},
		{"gap", nil, func(r *rig) { r.must("s", gap, core.SequenceGap) }, false},
		{"closed", []core.Event{closing}, func(r *rig) { r.must("s", appendEvent("x"), core.StreamClosed) }, false},
		{"another create", nil, func(r *rig) { r.must("s", other, core.ConfigMismatch) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tiny(1))
				r.must("s", withTTL("s", 10), core.Created)
				for _, ev := range c.before {
					r.try("s", ev)
				}
				later(8 * time.Second)
				c.use(r)
				later(2*time.Second - moment)
				r.wantAlive("s", true)
				later(2 * moment)
				r.wantAlive("s", c.renews)
				if c.renews {
					later(8*time.Second - 2*moment)
					r.wantAlive("s", true)
					later(2 * moment)
				}
				if r.view("s") != nil {
					t.Error("the stream stays without anybody asking for it")
				}
				r.must("s", withTTL("s", 10), core.Created) // the name is free
				r.close()
			})
		})
	}
}

// However often a stream is read, only a few touches are written; and whenever the
// machine crashes, the stream lives for its window after the last read, and for a
// granule more at most.
func TestTouchesAreFewAndNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, granule = 80 * time.Second, 10 * time.Second
		r := newRig(t, tiny(1))
		r.must("s", withTTL("s", 80), core.Created)
		synctest.Wait()
		r.fs.StartTrace(vfstest.Datasync)
		for range 120 {
			later(700 * time.Millisecond)
			if !r.read("s") {
				t.Fatal("expired while it was read")
			}
			last := time.Now()
			for _, fs := range []*vfstest.MemFS{r.fs.CrashClone(nil), r.fs.Clone()} {
				after := &rig{TB: t, fs: fs, opts: r.opts}
				after.opts.Now = func() time.Time { return last.Add(ttl - time.Millisecond) }
				after.open()
				after.wantAlive("s", true)
				after.close()
				after.opts.Now = func() time.Time { return last.Add(ttl + granule + time.Millisecond) }
				after.open()
				after.wantAlive("s", false)
				after.close()
			}
		}
		synctest.Wait()
		if n := len(r.fs.Trace()); n < 5 || n > 30 { // 84 s, and one at least every half granule
			t.Errorf("%d writes for 120 reads", n)
		}
		r.close()
	})
}

// A read that would take the stream beyond what a restart knows has to wait for a
// touch, and so does one right behind it.
func TestTouchThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.must("s", withTTL("s", 80), core.Created)
		later(30 * time.Second)
		st, v := r.stream("s"), r.view("s")
		for i := range 2 {
			if got := st.Renew(v); got != engine.MustTouch {
				t.Errorf("read %d: %d", i, got)
			}
		}
		r.must("s", core.Event{Op: core.OpTouch, Stream: v.ID}, core.Deleted)
		if got := st.Renew(r.view("s")); got != engine.Renewed {
			t.Errorf("after the touch: %d", got)
		}
		r.close()
	})
}

// A stream with a parked reader does not expire, whoever asks for it; when the reader
// has left it has its window.
func TestWatchedStreamsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.must("s", withTTL("s", 10), core.Created)
		st := r.stream("s")
		var w engine.Watcher
		st.Watch(&w)
		for range 20 {
			later(7 * time.Second)
			if !r.alive("s") {
				t.Fatal("expired under its reader")
			}
			// A server that took it for expired asks, and is told by the view.
			r.must("s", core.Event{Op: core.OpExpire, Stream: r.view("s").ID}, core.Deleted)
			if !r.alive("s") {
				t.Fatal("expired under its reader")
			}
		}
		st.Unwatch(&w)
		later(11 * time.Second)
		r.wantAlive("s", false)
		r.close()
	})
}

// A deadline that is fixed comes whoever reads, writes or waits, and wakes who waits.
func TestExpiresAtComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		woken := make(chan *engine.Stream, 10)
		o.Wake = func(st *engine.Stream) { woken <- st }
		r := newRig(t, o)
		ev := createEvent("s")
		ev.ExpiresAt = base.Millis(time.Now().Add(10 * time.Second).UnixMilli())
		r.must("s", ev, core.Created)
		st := r.stream("s")
		var w engine.Watcher
		st.Watch(&w)
		for range 9 {
			later(time.Second)
			r.append("s", "x")
			if !r.read("s") {
				t.Fatal("too early")
			}
			st.Woken()
		}
		for len(woken) > 0 {
			<-woken
		}
		later(time.Second + moment)
		if r.view("s") != nil {
			t.Error("the stream is still there")
		}
		if len(woken) != 1 || <-woken != st {
			t.Error("its reader was not woken")
		}
		ev.ExpiresAt = base.Millis(time.Now().Add(-time.Second).UnixMilli())
		r.must("s", ev, core.Created) // in the past: made, and gone at once
		later(moment)
		if r.view("s") != nil {
			t.Error("a stream whose end is in the past stays")
		}
		r.close()
	})
}

// Once an expiry has been decided no read can renew the stream any more; it waits,
// as everybody does until that is durable, and finds nothing.
func TestSealedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.must("s", withTTL("s", 10), core.Created)
		r.append("s", "x")
		v := r.view("s")
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Datasync && strings.Contains(op.Path, "/wal/")
		})
		later(11 * time.Second)
		if r.view("s") == nil {
			t.Fatal("gone before that is durable")
		}
		if got := r.stream("s").Renew(v); got != engine.MustExpire {
			t.Errorf("a read renews a stream that has been given up: %d", got)
		}
		created := r.start("s", withTTL("s", 10))
		synctest.Wait()
		if created() {
			t.Error("the name is free before that is durable")
		}
		slow.letGo()
		synctest.Wait()
		if now := r.view("s"); !created() || now == nil || now.ID == v.ID || now.Next != 0 {
			t.Errorf("after the expiry there is %+v", now)
		}
		// What belonged to the first incarnation does nothing to the second.
		r.must("s", core.Event{Op: core.OpExpire, Stream: v.ID}, core.Deleted)
		r.must("s", core.Event{Op: core.OpTouch, Stream: v.ID}, core.Deleted)
		r.wantAlive("s", true)
		var st engine.Step
		if err := r.Read(v, 0, 1, 10, &st); err != nil && err != engine.ErrStale {
			t.Errorf("the first incarnation's view: %v", err)
		}
		st.Release()
		r.close()
	})
}

// A restart knows a deadline from the log and from segments, and acts on it.
func TestDeadlinesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.must("s", withTTL("s", 80), core.Created)
		r.must("old", withTTL("old", 10), core.Created)
		r.create("filler")
		r.fill([]string{"filler"}, 4)
		r.close()
		later(30 * time.Second) // down
		r.open()
		synctest.Wait()
		r.wantAlive("old", false)
		later(50*time.Second - moment)
		r.wantAlive("s", true)
		later(10*time.Second + 2*moment)
		if r.view("s") != nil {
			t.Error("the stream lives for longer than its window and a granule")
		}
		r.reopen()
		if r.view("s") != nil || r.view("old") != nil {
			t.Error("what has expired is back")
		}
		r.close()
	})
}

// Very many deadlines at once are taken in portions, between which others are served.
func TestManyDeadlinesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.WALFileBytes, o.WALMaxBytes, o.MemtableBytes = 1<<20, 4<<20, 4<<20
		r := newRig(t, o)
		r.create("other")
		const n = 3000
		for i := range n {
			name := fmt.Sprint("s", i)
			r.must(name, withTTL(name, 60), core.Created)
		}
		slow := newStall(r.fs, func(op vfstest.Op) bool {
			return op.Kind == vfstest.Datasync && strings.Contains(op.Path, "/wal/")
		})
		later(2 * time.Minute) // the first portion is with the disk
		done := r.start("other", appendEvent("x"))
		left := r.Stats().Streams
		slow.letGo()
		later(time.Minute)
		if !done() {
			t.Error("the append was never answered")
		}
		if left < n/2 {
			t.Errorf("one turn has taken %d streams away", n-left)
		}
		if got := r.Stats().Streams; got > 2 { // the bucket has one of its own
			t.Errorf("%d streams are left", got-2)
		}
		r.close()
	})
}

// An expired stream that forks need is gone for everybody but them.
func TestExpiryOfSourcesAndForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		r.must("src", withTTL("src", 10), core.Created)
		r.append("src", "inherited")
		fork := createEvent("fork")
		fork.TTL = 100
		fork.Fork = &core.ForkSpec{Bucket: "b", Name: "src"}
		r.must("fork", fork, core.Created)
		heir := createEvent("heir")
		heir.Fork = &core.ForkSpec{Bucket: "b", Name: "src", InheritLife: true, InheritType: true}
		r.must("heir", heir, core.Created)
		if v := r.view("heir"); v.TTL != 10 || v.ContentType != "text/plain" {
			t.Errorf("inherits %+v", v.Fixed)
		}
		later(11 * time.Second)
		if v := r.view("src"); v == nil || !v.Deleted {
			t.Fatalf("the source is %+v", v)
		}
		r.must("src", appendEvent("x"), core.Gone)
		r.must("src", createEvent("src"), core.NameHeldByForks)
		r.expect("fork", "inherited")
		if r.view("heir") != nil {
			t.Error("the heir lives for longer than its source's window")
		}
		later(100 * time.Second)
		if r.view("fork") != nil || r.view("src") != nil {
			t.Error("the source outlives its last fork")
		}
		r.create("src")
		r.close()
	})
}

// The wall clock may be set: nothing expires early for it, and everything in the end.
func TestClockThatJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		o := tiny(1)
		o.Now = func() time.Time { return time.Now().Add(offset) }
		r := newRig(t, o)
		r.must("s", withTTL("s", 60), core.Created)
		later(30 * time.Second)
		offset = -time.Hour
		r.append("s", "x")
		r.wantAlive("s", true)
		later(59 * time.Second)
		r.wantAlive("s", true)
		later(2 * time.Hour)
		r.wantAlive("s", false)
		if r.view("s") != nil {
			t.Error("never expires")
		}
		r.close()
	})
}
