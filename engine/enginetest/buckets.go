package enginetest

import (
	"fmt"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
)

// bucketNames returns the names of the buckets that come and go; streams elsewhere are
// in b, which is made with the first of them and stays.
func bucketNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("bucket-%d", i))
	}
	return names
}

// addBuckets adds the buckets and the names in them.
func (w *World) addBuckets() {
	for _, bucket := range bucketNames(w.cfg.Buckets) {
		w.add(&stream{bucket: bucket, states: w.nothing()})
		for i := range 2 {
			w.add(&stream{bucket: bucket, name: fmt.Sprint("t", i), states: w.nothing()})
		}
	}
}

// add adds a place.
func (w *World) add(st *stream) {
	if st.name == "" {
		w.buckets = append(w.buckets, st)
	} else {
		w.streams = append(w.streams, st)
	}
}

// places returns streams and buckets.
func (w *World) places() []*stream {
	return append(w.streams[:len(w.streams):len(w.streams)], w.buckets...)
}

// hasBucket reports whether a bucket is there, by the newest states. Under the lock.
func (w *World) hasBucket(name string) bool {
	for _, st := range w.buckets {
		if st.bucket == name {
			return st.last().usable()
		}
	}
	return true
}

// bucketStep makes a bucket, or deletes one.
func (w *World) bucketStep() {
	st := w.buckets[w.rng.IntN(len(w.buckets))]
	if w.rng.IntN(2) == 0 {
		w.createBucket(st)
		return
	}
	w.settle()
	for _, in := range w.streams {
		w.expire(in)
	}
	w.settle()
	w.deleteBucket(st)
}

func (w *World) createBucket(st *stream) {
	w.wait() // a stream's create needs no mailbox to find that there is none
	ev := core.Event{Op: core.OpCreate, Bucket: st.bucket, TTL: -1}
	w.submit(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		if s.usable() {
			return s.answer(core.Exists), s
		}
		next := create(&ev, s.era, now)
		return stored(core.Answer{Code: core.Created}, &state{inc: next.inc}, next, &ev), next
	})
	w.wait()
}

// deleteBucket deletes a bucket while nothing else is under way.
func (w *World) deleteBucket(st *stream) {
	w.mu.Lock()
	last := st.last()
	want := core.Answer{Code: core.BucketNotFound}
	if last.usable() {
		want = last.answer(core.Deleted)
		for _, in := range w.streams {
			if s := in.last(); in.bucket == st.bucket && s.inc != nil && (!s.ended || w.held(s.inc)) {
				want = core.Answer{Code: core.BucketNotEmpty, Stream: last.inc.id}
			}
		}
	}
	if want.Code == core.Deleted {
		st.states = append(st.states, last.end())
	}
	at := len(st.states) - 1
	w.mu.Unlock()
	got, err := w.e.DeleteBucket(st.bucket)
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := differ(&want, &got); err != nil || diff != "" {
		w.failed(fmt.Errorf("delete of bucket %s: %s: %w", st.bucket, diff, err))
	}
	st.durable = max(st.durable, at)
}
