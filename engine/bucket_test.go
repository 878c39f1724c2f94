package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/invariants"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// inBucket is the create of a stream as /ds asks for it, or as /v1 does.
func inBucket(bucket, name string, bucketed bool) core.Event {
	ev := createEvent(name)
	ev.Bucket, ev.Bucketed = bucket, bucketed
	return ev
}

func (r *rig) createBucket(name string) core.Answer {
	r.Helper()
	return r.try("", core.Event{Op: core.OpCreate, Bucket: name, TTL: -1})
}

func (r *rig) mustDeleteBucket(name string, want core.Code) {
	r.Helper()
	a, err := r.DeleteBucket(name)
	if err != nil || a.Code != want {
		r.Fatalf("delete of bucket %s: %d instead of %d: %v", name, a.Code, want, err)
	}
}

// expectBucket compares what is known of a bucket; -1 streams: there is none.
func (r *rig) expectBucket(name string, streams int64) engine.BucketInfo {
	r.Helper()
	info, ok := r.Bucket([]byte(name))
	switch {
	case ok != (streams >= 0):
		r.Fatalf("bucket %s: there %t", name, ok)
	case ok && info.Streams != streams:
		r.Fatalf("bucket %s has %d streams instead of %d", name, info.Streams, streams)
	}
	return info
}

func (r *rig) removeFrom(bucket, name string) core.Code {
	r.Helper()
	op := &engine.Op{Stream: r.Lookup([]byte(bucket), []byte(name)), Event: core.Event{Op: core.OpDelete}}
	if err := r.Do(op); err != nil {
		r.Fatal(err)
	}
	return op.Answer.Code
}

func TestBuckets(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, tiny(shards))
			r.expectBucket("jobs", -1)
			r.mustDeleteBucket("jobs", core.BucketNotFound)
			r.must("", inBucket("jobs", "a", true), core.BucketNotFound)
			if a := r.createBucket("jobs"); a.Code != core.Created {
				t.Fatal(a.Code)
			}
			first := r.expectBucket("jobs", 0)
			if a := r.createBucket("jobs"); a.Code != core.Exists || a.Stream != first.ID {
				t.Fatalf("a second create: %+v", a)
			}
			for i := range 20 {
				r.must("", inBucket("jobs", fmt.Sprint("s", i), i%2 == 0), core.Created)
			}
			r.expectBucket("jobs", 20)
			r.mustDeleteBucket("jobs", core.BucketNotEmpty)
			r.must("", inBucket("jobs", "s1", true), core.Exists)
			r.must("", inBucket("jobs", "more", true), core.Created) // it is open again
			r.reopen()
			r.expectBucket("jobs", 21)
			r.mustDeleteBucket("jobs", core.BucketNotEmpty)
			for i := range 20 {
				if c := r.removeFrom("jobs", fmt.Sprint("s", i)); c != core.Deleted {
					t.Fatal(c)
				}
			}
			r.expectBucket("jobs", 1)
			r.removeFrom("jobs", "more")
			r.mustDeleteBucket("jobs", core.Deleted)
			r.expectBucket("jobs", -1)
			r.must("", inBucket("jobs", "a", true), core.BucketNotFound)
			r.reopen()
			r.expectBucket("jobs", -1)
			if r.createBucket("jobs"); r.expectBucket("jobs", 0).ID == first.ID {
				t.Error("another bucket of the same name has the same id")
			}
			for i := range 20 {
				if st := r.Lookup([]byte("jobs"), fmt.Appendf(nil, "s%d", i)); st != nil && st.View() != nil {
					t.Errorf("stream %d is back", i)
				}
			}
			r.close()
		})
	}
}

// On /v1 a bucket is made by its first stream, and only by one that is made.
func TestImplicitBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		for code, edit := range map[core.Code]func(*core.Event){
			core.HeaderFault:        func(ev *core.Event) { ev.HeaderFault = true },
			core.BodyFault:          func(ev *core.Event) { ev.BodyFault = true },
			core.NotFound:           func(ev *core.Event) { ev.HasIncarnation, ev.Incarnation = true, 7 },
			core.PreconditionFailed: func(ev *core.Event) { ev.IfMatch = []core.Match{{Any: true}} },
		} {
			ev := inBucket("implicit", "a", false)
			edit(&ev)
			r.must("", ev, code)
			r.expectBucket("implicit", -1)
		}
		r.must("", inBucket("implicit", "a", false), core.Created)
		id := r.expectBucket("implicit", 1).ID
		r.must("", inBucket("implicit", "b", true), core.Created)
		r.removeFrom("implicit", "a")
		r.removeFrom("implicit", "b")
		if r.expectBucket("implicit", 0).ID != id { // it stays until it is deleted
			t.Error("another bucket")
		}
		r.mustDeleteBucket("implicit", core.Deleted)
		r.must("", inBucket("implicit", "a", false), core.Created)
		if r.expectBucket("implicit", 1).ID == id {
			t.Error("the old bucket is back")
		}
		// Many at once make one bucket.
		var wg sync.WaitGroup
		var made atomic.Int64
		for i := range 50 {
			wg.Go(func() {
				op := &engine.Op{Event: inBucket("many", fmt.Sprint(i), false)}
				if err := r.Do(op); err != nil || op.Answer.Code != core.Created {
					t.Errorf("%d: %v", op.Answer.Code, err)
				}
				made.Add(1)
			})
		}
		wg.Wait()
		r.expectBucket("many", made.Load())
		// A name whose first part is no bucket is in none.
		ev := inBucket("No Bucket", "a", false)
		ev.Loose = true
		r.must("", ev, core.Created)
		r.expectBucket("No Bucket", -1)
		r.reopen()
		r.expectBucket("many", 50)
		r.expectBucket("No Bucket", -1)
		r.close()
	})
}

// Streams whose deadline has just passed are not counted, whether their timers have fired, and
// whether their end is on its way to the disk.
func TestOverdueStreamsAreNotCounted(t *testing.T) {
	for _, n := range []int{1, 1500} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, tiny(3))
			end := time.Now().Add(time.Minute)
			for i := range n {
				ev := inBucket("jobs", fmt.Sprint("s", i), false)
				ev.ExpiresAt = base.Millis(end.UnixMilli())
				r.must("", ev, core.Created)
			}
			r.must("", inBucket("jobs", "stays", false), core.Created)
			r.reopen()
			<-time.After(time.Until(end) - time.Millisecond)
			r.ExpireOverdue()
			r.expectBucket("jobs", int64(n)+1)
			if r.Overdue() {
				t.Error("streams are due before their time")
			}
			<-time.After(time.Millisecond)
			if !r.Overdue() {
				t.Error("nothing is due")
			}
			r.ExpireOverdue()
			r.expectBucket("jobs", 1)
			if r.Overdue() {
				t.Error("there is something due yet")
			}

			ev := inBucket("jobs", "slow", false)
			ev.TTL = 1
			r.must("", ev, core.Created)
			slow := newStall(r.fs, func(op vfstest.Op) bool { return op.Kind == vfstest.Datasync })
			later(2 * time.Second) // its end is decided, and not durable
			if !r.Overdue() {
				t.Error("a stream is counted, and nothing is due")
			}
			var counted atomic.Int64
			counted.Store(-1)
			go func() {
				r.ExpireOverdue()
				info, _ := r.Bucket([]byte("jobs"))
				counted.Store(info.Streams)
			}()
			later(time.Second)
			if counted.Load() != -1 {
				t.Error("the end of a stream was not waited for")
			}
			slow.letGo()
			synctest.Wait()
			if got := counted.Load(); got != 1 {
				t.Errorf("%d streams instead of 1", got)
			}
			r.close()
			r.ExpireOverdue() // no harm
		})
	}
}

// An expired stream does not count; one that only forks keep does.
func TestDeleteBucketWithExpiredAndKept(t *testing.T) {
	for _, n := range []int{1, 500} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, tiny(3))
			for i := range n {
				ev := inBucket("jobs", fmt.Sprint("s", i), false)
				ev.TTL = 60
				r.must("", ev, core.Created)
			}
			r.mustDeleteBucket("jobs", core.BucketNotEmpty)
			<-time.After(60*time.Second - time.Millisecond)
			r.mustDeleteBucket("jobs", core.BucketNotEmpty)
			<-time.After(time.Millisecond) // they are due, and no timer has fired yet
			r.mustDeleteBucket("jobs", core.Deleted)
			r.expectBucket("jobs", -1)
			r.close()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		r.must("", inBucket("jobs", "source", false), core.Created)
		ev := createEvent("fork")
		ev.Fork = &core.ForkSpec{Bucket: "jobs", Name: "source", InheritLife: true}
		r.must("", ev, core.Created)
		r.removeFrom("jobs", "source")
		r.expectBucket("jobs", 0) // nothing live, …
		r.mustDeleteBucket("jobs", core.BucketNotEmpty)
		r.reopen()
		r.expectBucket("jobs", 0)
		r.mustDeleteBucket("jobs", core.BucketNotEmpty)
		r.remove("fork")
		r.mustDeleteBucket("jobs", core.Deleted)
		r.close()
	})
}

// A bucket whose delete does not end is open again after a crash, or gone.
func TestDeleteBucketCutOff(t *testing.T) {
	seed := seedOf(t)
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(round)))
			r := newRig(t, tiny(3))
			r.createBucket("jobs")
			r.must("", inBucket("jobs", "a", true), core.Created)
			r.removeFrom("jobs", "a")
			synctest.Wait()
			var cuts []*vfstest.MemFS
			r.fs.SetHook(func(vfstest.Op) error {
				cuts = append(cuts, r.fs.CrashClone(rng))
				return nil
			})
			r.mustDeleteBucket("jobs", core.Deleted)
			r.fs.SetHook(nil)
			cuts = append(cuts, r.fs.CrashClone(nil))
			for i, fs := range cuts {
				again := r.on(fs)
				_, there := again.Bucket([]byte("jobs"))
				if there && i == len(cuts)-1 {
					t.Error("the bucket is back")
				}
				a := again.try("", inBucket("jobs", "b", true))
				if there && a.Code != core.Created || !there && a.Code != core.BucketNotFound {
					t.Errorf("there %t, and a create answers %d", there, a.Code)
				}
				again.close()
			}
			r.close()
		})
	}
}

// raceBuckets lets streams be made in a bucket, on either surface, while it is deleted.
// Whatever the order is: after a delete that was acknowledged no stream of that epoch is
// there, or is ever made, and every create is answered by what it found.
func raceBuckets(t *testing.T, r *rig, rng *rand.Rand, bucket string) (deleted bool) {
	const creators = 4
	epoch := r.createBucket(bucket).Stream
	var wg sync.WaitGroup
	type result struct {
		code core.Code
		id   base.StreamID
	}
	results := make([][]result, creators)
	gap, early := rng.IntN(12), rng.IntN(2) == 0
	started := make(chan struct{}, creators*20)
	var a core.Answer
	var wrong error
	asked, deletion := make(chan struct{}), make(chan struct{})
	del := func() {
		close(asked)
		a, wrong = r.DeleteBucket(bucket)
		close(deletion)
	}
	if early {
		go del()
		<-asked
		for range gap {
			runtime.Gosched()
		}
	}
	for c := range creators {
		bucketed := c%2 == 0
		wg.Go(func() {
			for i := range 3 + c {
				started <- struct{}{}
				op := &engine.Op{Event: inBucket(bucket, fmt.Sprintf("s%d-%d", c, i), bucketed)}
				if err := r.Do(op); err != nil {
					t.Error(err)
					return
				}
				results[c] = append(results[c], result{op.Answer.Code, op.Answer.Stream})
			}
		})
	}
	if !early {
		for range gap {
			<-started
		}
		del()
	}
	<-deletion
	if wrong != nil {
		t.Fatal(wrong)
	}
	gone := a.Code == core.Deleted
	// Nothing of that epoch is made any more.
	if late := r.try("", inBucket(bucket, "late", true)); gone && late.Code == core.Created {
		if info, _ := r.Bucket([]byte(bucket)); info.ID == epoch {
			t.Errorf("a stream was made in a bucket that is deleted")
		}
	}
	wg.Wait()
	info, there := r.Bucket([]byte(bucket))
	made := int64(0)
	for c, all := range results {
		for i, res := range all {
			st := r.Lookup([]byte(bucket), fmt.Appendf(nil, "s%d-%d", c, i))
			alive := st != nil && st.View() != nil
			switch res.code {
			case core.Created:
				made++
				if !alive {
					t.Errorf("a stream that was made is not there")
				}
			case core.BucketNotFound, core.BucketClosing:
				if alive {
					t.Errorf("a stream that was refused is there")
				}
			default:
				t.Errorf("a create was answered %d", res.code)
			}
		}
	}
	if late := r.Lookup([]byte(bucket), []byte("late")); late != nil && late.View() != nil {
		made++
	}
	switch {
	case !gone && a.Code != core.BucketNotEmpty:
		t.Errorf("the delete was answered %d", a.Code)
	case !gone && (!there || info.ID != epoch):
		t.Errorf("a bucket that was not deleted is not there")
	case gone && there && info.ID == epoch:
		t.Errorf("the bucket that was deleted is there")
	case !there && made > 0:
		t.Errorf("%d streams are in no bucket", made)
	case there && info.Streams != made:
		t.Errorf("the bucket counts %d streams, %d are there", info.Streams, made)
	}
	return gone
}

func TestDeleteBucketRacesCreates(t *testing.T) {
	seed := seedOf(t)
	rounds := 300
	if invariants.Enabled {
		rounds = 60
	}
	for _, shards := range []int{1, 3} {
		r := newRig(t, tiny(shards))
		rng := rand.New(rand.NewPCG(seed, uint64(shards)))
		deleted := 0
		for i := range rounds {
			if raceBuckets(t, r, rng, fmt.Sprint("bucket", i)) {
				deleted++
			}
			if t.Failed() {
				t.Fatalf("shards %d, round %d", shards, i)
			}
			if i%50 == 49 {
				r.reopen()
			}
		}
		t.Logf("shards %d: %d of %d were deleted", shards, deleted, rounds)
		// After a restart, and a crash, everything is in a bucket or was never there.
		for _, fs := range []*vfstest.MemFS{r.fs.CrashClone(nil), r.fs.Clone()} {
			again := r.on(fs)
			for i := range rounds {
				bucket := fmt.Sprint("bucket", i)
				info, there := again.Bucket([]byte(bucket))
				page, more := again.List(bucket, "", "", 1000)
				if more || !there && len(page) > 0 || there && info.Streams != int64(len(page)) {
					t.Errorf("bucket %d: there %t, %d streams, %d listed", i, there, info.Streams, len(page))
				}
			}
			again.close()
		}
		r.close()
	}
}

// From the moment that a shard was asked until the delete is durable, it makes nothing in
// the bucket; after that there is no bucket.
func TestCreateDuringDeleteOfBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(3))
		r.createBucket("jobs")
		synctest.Wait()
		gate := make(chan struct{})
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Datasync && strings.HasSuffix(op.Path, ".wal") {
				<-gate
			}
			return nil
		})
		deleted := make(chan core.Code, 1)
		go func() {
			a, err := r.DeleteBucket("jobs")
			if err != nil {
				t.Error(err)
			}
			deleted <- a.Code
		}()
		synctest.Wait() // its record is with the disk
		var mu sync.Mutex
		codes := map[core.Code]int{}
		for i := range 30 {
			op := &engine.Op{Event: inBucket("jobs", fmt.Sprint("s", i), i%2 == 0)}
			op.Done = func(op *engine.Op) {
				mu.Lock()
				defer mu.Unlock()
				codes[op.Answer.Code]++
			}
			if err := r.Submit(op); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		mu.Lock()
		closing := codes[core.BucketClosing]
		if len(codes) != 1 || closing == 0 {
			t.Errorf("while the bucket is being deleted creates are answered %v", codes)
		}
		mu.Unlock()
		close(gate)
		if c := <-deleted; c != core.Deleted {
			t.Errorf("the delete was answered %d", c)
		}
		synctest.Wait()
		mu.Lock()
		if codes[core.Created] > 0 || codes[core.BucketClosing]+codes[core.BucketNotFound] != 30 {
			t.Errorf("afterwards %v", codes)
		}
		mu.Unlock()
		r.fs.SetHook(nil)
		r.expectBucket("jobs", -1)
		r.reopen()
		r.createBucket("jobs")
		r.expectBucket("jobs", 0)
		for i := range 30 { // nothing is frozen any more
			r.must("", inBucket("jobs", fmt.Sprint("s", i), true), core.Created)
		}
		r.close()
	})
}

// Whoever deletes a bucket at the same time as another is told the truth.
func TestTwoDeleteOneBucket(t *testing.T) {
	r := newRig(t, tiny(3))
	for i := range 50 {
		r.createBucket("jobs")
		codes := make([]core.Code, 4)
		var wg sync.WaitGroup
		for c := range codes {
			wg.Go(func() {
				a, err := r.DeleteBucket("jobs")
				if err != nil {
					t.Error(err)
				}
				codes[c] = a.Code
			})
		}
		wg.Wait()
		n := 0
		for _, c := range codes {
			switch c {
			case core.Deleted:
				n++
			case core.BucketNotFound:
			default:
				t.Errorf("answered %d", c)
			}
		}
		if n != 1 {
			t.Fatalf("round %d: %d of 4 deleted it", i, n)
		}
		r.expectBucket("jobs", -1)
	}
	r.createBucket("jobs") // nothing is frozen for ever
	r.must("", inBucket("jobs", "a", true), core.Created)
	r.close()
}

// After the engine has failed nobody is told that a bucket is gone.
func TestDeleteBucketAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.createBucket("jobs")
		synctest.Wait()
		broken := errors.New("broken")
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Datasync && strings.HasSuffix(op.Path, ".wal") {
				return broken
			}
			return nil
		})
		if a, err := r.DeleteBucket("jobs"); !errors.Is(err, engine.ErrFailed) {
			t.Errorf("answered %d, %v", a.Code, err)
		}
		r.fs.SetHook(nil)
		if err := r.Close(); err != nil && !errors.Is(err, broken) {
			t.Error(err)
		}
		r.open()
		a, err := r.DeleteBucket("jobs") // the first attempt may have come to pass, or not
		if err != nil || a.Code != core.Deleted && a.Code != core.BucketNotFound {
			t.Errorf("answered %d, %v", a.Code, err)
		}
		r.expectBucket("jobs", -1)
		r.close()
	})
}
