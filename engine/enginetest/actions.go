package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

const (
	textType = "text/plain"
	jsonType = "application/json"
)

// Step does something at random. It may leave operations under way.
func (w *World) Step() error {
	if w.cfg.Buckets > 0 && w.rng.IntN(16) == 0 {
		w.bucketStep()
		return w.Err()
	}
	st := w.streams[w.rng.IntN(len(w.streams))]
	w.mu.Lock()
	s := st.last()
	alone := w.related(s.inc) || s.inc != nil && s.inc.expires()
	w.mu.Unlock()
	if alone {
		// What it finds depends on more than what was asked of this name before.
		w.settle()
		w.expire(st)
	}
	if w.cfg.Snapshots && w.rng.IntN(6) == 0 {
		w.snapshotStep(st)
		return w.Err()
	}
	switch w.rng.IntN(20) {
	default:
		w.appendTo(st)
	case 0, 1, 2:
		w.create(st)
	case 3:
		w.remove(st)
	case 4:
		if w.cfg.Forks {
			w.forkTo(st)
		}
	case 5, 6, 7:
		w.read(st)
	case 8:
		if w.rng.IntN(4) == 0 {
			w.advance()
		}
	case 9:
		w.wait()
	}
	return w.Err()
}

// body makes a body of n messages, none of which there was before.
func (w *World) body(ev *core.Event, n int) {
	ev.HasBody = true
	for range n {
		w.n++
		ev.Body = fmt.Appendf(ev.Body, "<%d:", w.n)
		size := w.rng.IntN(40)
		switch w.rng.IntN(8) {
		case 0:
			size = w.rng.IntN(w.cfg.MaxBody / n)
		case 1, 2:
			size = w.rng.IntN(min(1000, w.cfg.MaxBody/n))
		}
		ev.Body = append(ev.Body, bytes.Repeat([]byte{byte('a' + w.n%26)}, size)...)
		ev.Body = append(ev.Body, '>')
		ev.Ends = append(ev.Ends, uint32(len(ev.Body)))
	}
	if len(ev.Body) > record.InlineBody {
		ev.BodySum, ev.BodyOwned = engine.BodySum(ev.Body), w.rng.IntN(2) == 0
	}
}

// messages says how many messages a body has.
func (w *World) messages(media string) int {
	if media == jsonType {
		return 1 + w.rng.IntN(6)
	}
	return 1
}

// producer adds a tuple: mostly the next one, else a repeat, a gap, or another epoch.
func (w *World) producer(ev *core.Event, s *state) {
	id := string(rune('p' + w.rng.IntN(3)))
	t := record.Producer{ID: []byte(id), Set: true}
	if p, ok := s.producers[id]; ok {
		t.Epoch, t.Seq = p.epoch, p.seq+1
		switch w.rng.IntN(8) {
		case 0:
			t.Seq = p.seq
		case 1:
			t.Seq = uint64(w.rng.Int64N(int64(p.seq) + 1))
		case 2:
			t.Seq = p.seq + 2 + uint64(w.rng.IntN(3))
		case 3:
			t.Epoch, t.Seq = p.epoch+1+uint64(w.rng.IntN(2)), 0
		case 4:
			t.Epoch, t.Seq = p.epoch+1, 1
		case 5:
			if p.epoch > 0 {
				t.Epoch--
			}
		}
	} else if w.rng.IntN(6) == 0 {
		t.Seq = 1
	}
	ev.Producer = t
}

// options adds what any write may carry.
func (w *World) options(ev *core.Event, s *state) {
	switch w.rng.IntN(12) {
	case 0:
		ev.HasSeq, ev.StreamSeq = true, fmt.Appendf(nil, "%08d", w.n)
	case 1:
		ev.HasSeq, ev.StreamSeq = true, []byte("0000")
	case 2:
		ev.HeaderFault = w.rng.IntN(4) == 0
	case 3:
		ev.BodyFault = ev.HasBody && w.rng.IntN(4) == 0
	case 4:
		ev.HasIncarnation, ev.Incarnation = true, 99
		if s.inc != nil && s.inc.id != 0 && w.rng.IntN(2) == 0 {
			ev.Incarnation = core.Incarnation(s.era, s.inc.id)
		}
	}
}

func (w *World) appendTo(st *stream) {
	if w.e.Lookup([]byte(st.bucket), []byte(st.name)) == nil {
		w.wait() // or its create, under way, would not be found
	}
	w.mu.Lock()
	s := *st.last()
	w.mu.Unlock()
	ev := core.Event{Op: core.OpAppend, TTL: -1}
	ev.MediaType = []byte(textType)
	if s.inc != nil {
		ev.MediaType = []byte(s.inc.media)
	}
	switch w.rng.IntN(30) {
	case 0:
		ev.Close, ev.MediaType = true, nil // close only
	case 1:
		ev.Close = true
		w.body(&ev, w.messages(string(ev.MediaType)))
	case 2:
		ev.MediaType = []byte("text/html")
		w.body(&ev, 1)
	default:
		w.body(&ev, w.messages(string(ev.MediaType)))
	}
	if w.rng.IntN(2) == 0 {
		w.producer(&ev, &s)
	}
	w.options(&ev, &s)
	w.conditions(&ev, &s)
	w.submit(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		if a, ok := s.reach(&ev, w.held(s.inc)); !ok {
			return a, s
		}
		return s.append(&ev, now)
	})
}

func (w *World) createEvent(st *stream) core.Event {
	ev := core.Event{Op: core.OpCreate, Bucket: st.bucket, Name: st.name, TTL: -1, Close: w.rng.IntN(20) == 0}
	ev.Bucketed = st.bucket != "b"
	if w.cfg.Snapshots && w.rng.IntN(4) == 0 {
		ev.Attrs = w.attributes()
	}
	ev.ContentType = textType
	if w.rng.IntN(3) == 0 {
		ev.ContentType, ev.JSON = jsonType, true
	}
	ev.MediaType = []byte(ev.ContentType)
	switch w.rng.IntN(10) {
	case 0, 1:
		ev.TTL = []int64{0, 5, 8, 60, 100}[w.rng.IntN(5)]
	case 2:
		w.mu.Lock()
		ev.ExpiresAt = w.now + base.Millis(w.rng.IntN(60_000))
		w.mu.Unlock()
	}
	if w.rng.IntN(2) == 0 {
		w.body(&ev, w.messages(ev.ContentType))
	}
	return ev
}

func (w *World) create(st *stream) {
	ev := w.createEvent(st)
	w.mu.Lock()
	s := *st.last()
	w.mu.Unlock()
	if s.usable() && w.rng.IntN(2) == 0 { // ask for what is there
		ev.ContentType, ev.MediaType, ev.JSON = s.inc.media, []byte(s.inc.media), s.inc.media == jsonType
		ev.TTL, ev.ExpiresAt, ev.Close = s.inc.ttl, s.inc.expiresAt, s.closed
	}
	w.options(&ev, &s)
	w.conditions(&ev, &s)
	w.submit(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		return w.createAnswer(s, &ev, now, func() (core.Answer, *state) {
			if ev.BodyFault {
				return core.Answer{Code: core.BodyFault}, s
			}
			next := create(&ev, s.era, now)
			return stored(core.Answer{Code: core.Created}, &state{inc: next.inc}, next, &ev), next
		})
	})
	w.expireSoon(st, &ev)
}

// createAnswer answers a create up to the point where there is nothing yet.
func (w *World) createAnswer(s *state, ev *core.Event, now base.Millis, fresh func() (core.Answer, *state)) (core.Answer, *state) {
	if s.inc != nil && (!s.ended || w.held(s.inc)) {
		if s.ended {
			return s.answer(core.NameHeldByForks), s
		}
		a, ok := s.reach(ev, false)
		switch {
		case !ok:
			return a, s
		case !s.meets(ev):
			return s.answer(core.PreconditionFailed), s
		case ev.HasRecordMatch && ev.RecordMatch != uint64(s.records):
			return s.answer(core.RecordMismatch), s
		case !s.matches(ev):
			return s.answer(core.ConfigMismatch), s
		}
		return s.answer(core.Exists), s
	}
	switch {
	case ev.Bucketed && !w.hasBucket(ev.Bucket):
		return core.Answer{Code: core.BucketNotFound}, s
	case ev.HasIncarnation:
		return core.Answer{Code: core.NotFound}, s
	case ev.HeaderFault:
		return core.Answer{Code: core.HeaderFault}, s
	case len(ev.IfMatch) > 0:
		return core.Answer{Code: core.PreconditionFailed}, s
	case ev.HasRecordMatch && ev.RecordMatch != 0:
		return core.Answer{Code: core.RecordMismatch}, s
	}
	return fresh()
}

// expireSoon waits when a create may have made a stream whose time is over already.
func (w *World) expireSoon(st *stream, ev *core.Event) {
	if ev.TTL >= 0 || ev.ExpiresAt != 0 || ev.Fork != nil {
		w.wait()
		w.expire(st)
	}
}

func (w *World) remove(st *stream) {
	if w.e.Lookup([]byte(st.bucket), []byte(st.name)) == nil {
		w.wait()
	}
	ev := core.Event{Op: core.OpDelete, TTL: -1}
	w.mu.Lock()
	s := *st.last()
	w.mu.Unlock()
	w.options(&ev, &s)
	w.submit(st, &engine.Op{Event: ev}, func(s *state, _ base.Millis) (core.Answer, *state) {
		if a, ok := s.reach(&ev, w.held(s.inc)); !ok {
			return a, s
		}
		return s.answer(core.Deleted), s.end()
	})
	if s.inc != nil && (s.inc.parent != nil || w.cfg.Forks) {
		w.settle()
	}
}

// forkTo makes st a fork of another stream, or tries to.
func (w *World) forkTo(st *stream) {
	src := w.streams[w.rng.IntN(len(w.streams))]
	w.settle()
	w.expire(st)
	w.expire(src)
	ev := w.createEvent(st)
	ev.Fork = &core.ForkSpec{Bucket: src.bucket, Name: src.name}
	f := ev.Fork
	if ev.TTL < 0 && ev.ExpiresAt == 0 {
		f.InheritLife = true
	}
	if w.rng.IntN(2) == 0 {
		f.InheritType = true
		ev.ContentType, ev.MediaType, ev.JSON = "", nil, false
	}
	w.mu.Lock()
	s, from := *st.last(), *src.last()
	w.mu.Unlock()
	if w.rng.IntN(4) > 0 && from.inc != nil {
		f.HasOffset, f.Offset = true, base.Offset(w.rng.IntN(from.next+2))
		if w.rng.IntN(2) == 0 && from.records > 0 {
			f.Offset = base.Offset(from.inc.ends[w.rng.IntN(from.records)])
		}
		if w.rng.IntN(2) == 0 {
			f.Sub = uint64(w.rng.IntN(8))
		}
	}
	if ev.HasBody {
		ev.Body, ev.Ends, ev.HasBody = nil, nil, false
		w.body(&ev, 1)
	}
	if s.usable() && s.inc.fork != nil && w.rng.IntN(2) == 0 { // the same again
		spec := *s.inc.fork
		ev.Fork, ev.TTL, ev.ExpiresAt, ev.Close = &spec, s.inc.ttl, s.inc.expiresAt, s.closed
		if spec.InheritLife {
			ev.TTL, ev.ExpiresAt = -1, 0
		}
		spec.InheritType, ev.ContentType, ev.MediaType, ev.JSON = true, "", nil, false
	}
	w.submit(st, &engine.Op{Event: ev}, func(s *state, now base.Millis) (core.Answer, *state) {
		return w.createAnswer(s, &ev, now, func() (core.Answer, *state) {
			from := src.last()
			code, next := from.resolve(&ev, w.held(from.inc), now)
			if code != core.Created {
				return from.refusesFork(code), s
			}
			before := &state{inc: next.inc, next: next.inc.forkAt, records: next.records - len(ev.Ends)}
			a := core.Answer{Code: core.Created}
			next.tell(&a)
			return stored(a, before, next, &ev), next
		})
	})
	w.expireSoon(st, &ev)
}

// advance lets time pass.
func (w *World) advance() {
	w.settle()
	for _, st := range w.streams { // what reads have asked for is recorded by now
		w.barrier(st)
	}
	w.mu.Lock()
	w.now += base.Millis(1 + w.rng.IntN(20_000))
	w.mu.Unlock()
	for _, st := range w.streams {
		w.expire(st)
	}
	w.settle()
}

// expire has the engine notice that the name's stream is over, if it is, and the
// twin too. After a restart only the engine knows, within bounds.
func (w *World) expire(st *stream) {
	w.mu.Lock()
	s := st.last()
	over := s.usable() && s.inc.expires() && s.deadline <= w.now
	maybe := over && w.now < s.deadline+s.slack
	w.mu.Unlock()
	if !over {
		return
	}
	place := w.e.Lookup([]byte(st.bucket), []byte(st.name))
	if place != nil {
		v := place.View()
		if v != nil && v.ID == s.inc.id && !v.Deleted && place.Alive(v) {
			if !maybe {
				w.fail(fmt.Errorf("%s lives too long: ttl %d, deadline %d + %d, now %d", st.name, s.inc.ttl, s.deadline, s.slack, w.now))
			}
			return
		}
	}
	w.mu.Lock()
	st.states = append(st.states, s.end())
	w.mu.Unlock()
	if place != nil {
		w.do(&engine.Op{Stream: place, Event: core.Event{Op: core.OpExpire, Stream: s.inc.id}})
	}
	w.mu.Lock()
	st.durable = len(st.states) - 1
	w.mu.Unlock()
	w.settle()
}

// read looks at a stream and reads some of it.
func (w *World) read(st *stream) {
	w.mu.Lock()
	lo := st.durable
	w.mu.Unlock()
	place := w.e.Lookup([]byte(st.bucket), []byte(st.name))
	var v *engine.View
	if place != nil {
		v = place.View()
	}
	w.mu.Lock()
	s, err := w.match(st.states[lo:], v)
	var data []byte
	var ends []int
	now := w.now
	if s != nil && s.inc != nil {
		data, ends = s.inc.data[:s.next], s.inc.ends[:s.records]
	}
	w.mu.Unlock()
	if err != nil {
		w.fail(fmt.Errorf("%s: %w", st.name, err))
		return
	}
	if v == nil || v.Deleted {
		return
	}
	if s.inc.expires() {
		if !w.renew(st, place, v, s, now) {
			return
		}
	}
	err = w.compare(v, data, ends, false)
	if err != nil && !errors.Is(err, engine.ErrStale) {
		w.fail(fmt.Errorf("%s: %w", st.name, err))
	}
}

// renew lets a read count as a use, as a server does. It is false when the stream
// has expired.
func (w *World) renew(st *stream, place *engine.Stream, v *engine.View, s *state, now base.Millis) bool {
	w.mu.Lock()
	s.maybe(now)
	w.mu.Unlock()
	switch place.Renew(v) {
	case engine.MustExpire:
		w.fail(fmt.Errorf("%s has expired unnoticed", st.name))
		return false
	case engine.MustTouch:
		w.do(&engine.Op{Stream: place, Event: core.Event{Op: core.OpTouch, Stream: v.ID}})
	}
	w.mu.Lock()
	s.used(now)
	w.mu.Unlock()
	return true
}

// compare reads a range of v, or all of it, and the places of messages in it.
func (w *World) compare(v *engine.View, data []byte, ends []int, all bool) error {
	first := int(v.First)
	from, to := first, len(data)
	if !all && to > from {
		from += w.rng.IntN(to - from)
		to = from + 1 + w.rng.IntN(to-from)
	}
	got, err := ReadRange(w.e, v, base.Offset(from), base.Offset(to), 1+w.rng.IntN(1<<20))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data[from:to]) {
		at := 0
		for at < min(len(got), to-from) && got[at] == data[from+at] {
			at++
		}
		return fmt.Errorf("bytes [%d, %d): from %d on %.200q instead of %.200q", from, to, from+at, got[at:], data[from+at:to])
	}
	c := incarnation{ends: ends}
	for range 3 {
		off := first + w.rng.IntN(len(data)+1-first)
		exact, rec, err := w.e.Boundary(context.Background(), v, base.Offset(off), false)
		if err != nil {
			return err
		}
		if m, x := c.message(off, len(ends)); x != exact || uint64(m) != rec {
			return fmt.Errorf("offset %d: message %d, begins there %t, instead of %d, %t", off, rec, exact, m, x)
		}
	}
	if err := w.compareTrimmed(v, ends); err != nil || len(ends) == int(v.FirstRecord) {
		return err
	}
	i := int(v.FirstRecord) + w.rng.IntN(len(ends)-int(v.FirstRecord))
	at, size := 0, 1+w.rng.Int64N(2000)
	if i > 0 {
		at = ends[i-1]
	}
	end := ends[i]
	for _, x := range ends[i:] {
		if int64(x-at) <= size {
			end = x
		}
	}
	if fit, err := w.e.Fit(context.Background(), v, base.Offset(at), size, false); err != nil || fit != base.Offset(end) {
		return fmt.Errorf("what fits %d bytes from %d on ends at %d instead of %d: %w", size, at, fit, end, err)
	}
	return nil
}

// ReadRange reads the bytes [from, to) of v, in steps of at most max bytes.
func ReadRange(e *engine.Engine, v *engine.View, from, to base.Offset, max int) ([]byte, error) {
	var all []byte
	var st engine.Step
	defer st.Release()
	for from < to {
		err := e.Read(v, from, to, max, &st)
		if err == nil {
			all, err = st.Append(context.Background(), all)
		}
		if err != nil {
			return nil, err
		}
		from = st.End()
	}
	return all, nil
}
