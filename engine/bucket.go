package engine

import (
	"errors"
	"math"
	"sync"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
)

// A bucket is a head like any other: the stream with the empty name in it, in the
// shard of that key. Its id is the bucket's epoch. To delete one, every shard is asked
// first to refuse creates in that epoch and to count what is there; only when all say
// nothing, the bucket's own record goes. A crash in between leaves the bucket as it
// was, since refusing is nothing that anybody records (design §2, «What spans shards»).

// BucketInfo is what is known of a bucket.
type BucketInfo struct {
	ID      base.StreamID
	Created base.Millis
	Streams int64 // live ones; those that only forks keep are not counted, see Overdue
}

// Bucket returns what is known of a bucket, or false when there is none.
func (e *Engine) Bucket(name []byte) (BucketInfo, bool) {
	st := e.Lookup(name, nil)
	if st == nil {
		return BucketInfo{}, false
	}
	v := st.View()
	if v == nil {
		return BucketInfo{}, false
	}
	info := BucketInfo{ID: v.ID, Created: v.Created}
	for _, s := range e.shards {
		info.Streams += s.live.of(string(name))
	}
	return info, true
}

// hasBucket reports whether there is a bucket, as far as is published.
func (e *Engine) hasBucket(name string) bool {
	var buf [256]byte
	key := appendKey(buf[:0], name, "")
	st := e.shardOf(key).names.find(key)
	return st != nil && st.View() != nil
}

// liveCounts counts the live streams of each bucket in a shard, as published.
type liveCounts struct {
	mu sync.Mutex
	m  map[string]int64 // never 0
}

func (c *liveCounts) add(bucket string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]int64{}
	}
	if n += c.m[bucket]; n == 0 {
		delete(c.m, bucket)
	} else {
		c.m[bucket] = n
	}
}

func (c *liveCounts) of(bucket string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[bucket]
}

// replaced counts the change from one published view of a place to the next.
func (s *shard) replaced(st *Stream, old, view *View) {
	if delta := live(view) - live(old); delta != 0 {
		if bucket, name := st.Name(); name != "" {
			s.live.add(bucket, delta)
		}
	}
}

func live(v *View) int64 {
	if v == nil || v.Deleted {
		return 0
	}
	return 1
}

// submitInBucket takes a create whose bucket is not there yet. Unless it has to be,
// the bucket is made first, as a chain on a goroutine of its own.
func (e *Engine) submitInBucket(o *Op) error {
	if o.Event.Bucketed {
		o.Answer = core.Answer{Code: core.BucketNotFound}
		o.Done(o)
		return nil
	}
	if o.refusedAnywhere() {
		o.Done(o)
		return nil
	}
	bucket := o.Event.Bucket
	if !e.forks.start(func() {
		make := &Op{Event: core.Event{Op: core.OpCreate, Bucket: bucket, TTL: -1}}
		err := e.createOp(make)
		if err == nil && make.Answer.Code.OK() {
			err = e.submitCreate(o)
		} else if err == nil {
			o.Answer = core.Answer{Code: make.Answer.Code}
			o.Done(o)
		}
		if err != nil && e.Err() == nil {
			o.Answer = core.Answer{Code: notTaken(err)}
			o.Done(o)
		}
	}) {
		return ErrClosed
	}
	return nil
}

// notTaken says what an operation answers which no shard took.
func notTaken(err error) core.Code {
	if errors.Is(err, ErrClosed) {
		return core.ShuttingDown
	}
	return core.Overloaded
}

// refusedAnywhere answers a create that no bucket would take: none is made for it.
func (o *Op) refusedAnywhere() bool {
	ev := &o.Event
	return !core.Decide(nil, ev, &core.Env{Settings: &core.Settings{}, NewID: 1}, &o.rec, &o.Answer) && o.Answer.Code != core.NeedsSource
}

// submitCreate submits a create whose bucket is there, as far as one can see.
func (e *Engine) submitCreate(o *Op) error {
	if f := o.Event.Fork; f != nil && f.Resolved == nil {
		return e.submitFork(o)
	}
	var buf [256]byte
	return e.shardOf(appendKey(buf[:0], o.Event.Bucket, o.Event.Name)).submit(o)
}

// bucketState tells Decide of the bucket that a stream is to be made in.
func (s *shard) bucketState(ev *core.Event) core.Bucket {
	if ev.Name == "" || ev.Loose {
		return core.BucketOpen
	}
	var buf [256]byte
	key := appendKey(buf[:0], ev.Bucket, "")
	st := s.e.shardOf(key).names.find(key)
	if st == nil {
		return core.BucketAbsent
	}
	v := st.View()
	switch {
	case v == nil:
		return core.BucketAbsent
	case s.freezes[v.ID] > 0:
		return core.BucketFrozen
	}
	return core.BucketOpen
}

// DeleteBucket deletes a bucket that holds no stream: core.Deleted, BucketNotFound,
// BucketNotEmpty, or BucketClosing when somebody else is about it. It waits for the
// disk: not on a poller.
func (e *Engine) DeleteBucket(name string) (core.Answer, error) {
	st := e.Lookup([]byte(name), nil)
	if st == nil {
		return core.Answer{Code: core.BucketNotFound}, nil
	}
	v := st.View()
	if v == nil {
		return core.Answer{Code: core.BucketNotFound}, nil
	}
	frozen := 0
	defer func() {
		for _, s := range e.shards[:frozen] {
			s.ask(core.Event{Op: core.OpThaw, Stream: v.ID})
		}
	}()
	for _, s := range e.shards {
		present, err := e.freeze(s, v)
		if err != nil {
			return core.Answer{}, err
		}
		frozen++
		if present > 0 {
			return core.Answer{Code: core.BucketNotEmpty, Stream: v.ID}, nil
		}
	}
	o := &Op{Event: core.Event{Op: core.OpDelete, Stream: v.ID}}
	if err := e.doAt(st.shard, o); err != nil {
		return core.Answer{}, err
	}
	if o.Answer.Code == core.NotFound {
		o.Answer.Code = core.BucketNotFound
	}
	return o.Answer, nil
}

// freeze has a shard refuse creates in a bucket and returns how many streams of it are
// there, once no more of them end because their time has come.
func (e *Engine) freeze(s *shard, bucket *View) (present int64, err error) {
	for before := int64(math.MaxInt64); ; before = present {
		o := &Op{Event: core.Event{Op: core.OpFreeze, Stream: bucket.ID, Bucket: bucket.Bucket}}
		if err := e.doAt(s, o); err != nil {
			return 0, err
		}
		if present = o.Answer.Present; present == 0 || present >= before {
			return present, nil
		}
		s.ask(core.Event{Op: core.OpThaw, Stream: bucket.ID})
	}
}

// freezeExpiries bounds the streams that one event ends because their time has come.
const freezeExpiries = 64

// freezeBucket refuses creates in a bucket from now on and answers how many streams of it
// the shard holds, those that only forks keep included. One whose deadline has passed
// ends first.
func (s *shard) freezeBucket(o *Op) {
	ev := &o.Event
	s.freezes[ev.Stream]++
	o.Answer = core.Answer{Code: core.Deleted}
	if s.present[ev.Bucket] == 0 {
		return
	}
	due := 0
	stem := ev.Bucket + "\x00"
	var expired []*Stream
	s.names.order.ascend(stem+"\x00", func(st *Stream) bool {
		if len(st.key) <= len(stem) || st.key[:len(stem)] != stem {
			return false
		}
		h := st.head
		switch {
		case h == nil:
			return true
		case h.Deleted || !h.Expires() || st.inc.deadline.Load() > int64(s.now):
			return false // there is one that stays
		}
		expired = append(expired, st)
		due++
		return due < freezeExpiries
	})
	if s.cur.log != nil {
		for _, st := range expired {
			s.tryExpire(st)
		}
	}
	o.Answer.Present = s.present[ev.Bucket]
}

// thawBucket takes one freeze back.
func (s *shard) thawBucket(id base.StreamID) {
	if s.freezes[id]--; s.freezes[id] <= 0 {
		delete(s.freezes, id)
	}
}
