package core

import (
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// A fault is one row of the order of checks, as something that can be wrong with an
// append.
type fault struct {
	name string
	code Code
	make func(*Head, *Event, *Env)
}

func producer(id string, epoch, seq uint64) record.Producer {
	return record.Producer{ID: []byte(id), Epoch: epoch, Seq: seq, Set: true}
}

// appendFaults are the rows of api §3, «Order of checks on append», in order.
var appendFaults = []fault{
	{"soft-deleted", Gone, func(h *Head, _ *Event, _ *Env) { h.Deleted = true }},
	{"another incarnation", IncarnationMismatch, func(_ *Head, ev *Event, _ *Env) { ev.Incarnation, ev.HasIncarnation = 1, true }},
	{"headers", HeaderFault, func(_ *Head, ev *Event, _ *Env) { ev.HeaderFault = true }},
	{"a producer without an id", HeaderFault, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("", 0, 0) }},
	{"stale epoch, and a restore", HistoryChanged, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("lost", 1, 9) }},
	{"a repeat, but for a restore", HistoryChanged, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("lost", 2, 1) }},
	{"the next one, but for a restore", HistoryChanged, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("lost", 2, 2) }},
	{"unknown producer not at 0, after a restore", HistoryChanged, func(h *Head, ev *Event, _ *Env) { h.Previous, ev.Producer = 1, producer("new", 0, 1) }},
	{"stale epoch", StaleEpoch, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("p", 1, 9) }},
	{"closed", StreamClosed, func(h *Head, _ *Event, _ *Env) { h.Closed = true }},
	{"new epoch not at 0", EpochNeedsSeqZero, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("p", 3, 1) }},
	{"gap", SequenceGap, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("p", 2, 7) }},
	{"unknown producer not at 0", SequenceGap, func(h *Head, ev *Event, _ *Env) { h.Previous, ev.Producer = 0, producer("new", 0, 1) }},
	{"duplicate", Duplicate, func(_ *Head, ev *Event, _ *Env) { ev.Producer = producer("p", 2, 5) }},
	{"If-Match", PreconditionFailed, func(_ *Head, ev *Event, _ *Env) { ev.IfMatch = []Match{{}, {Incarnation: Incarnation(3, 9), Next: 9}} }},
	{"Stream-Record-Match", RecordMismatch, func(_ *Head, ev *Event, _ *Env) { ev.RecordMatch, ev.HasRecordMatch = 4, true }},
	{"content type", ContentTypeMismatch, func(_ *Head, ev *Event, _ *Env) { ev.MediaType = []byte("text/html") }},
	{"Stream-Seq", StreamSeqRegression, func(_ *Head, ev *Event, _ *Env) { ev.StreamSeq, ev.HasSeq = []byte("m"), true }},
	{"body", BodyFault, func(_ *Head, ev *Event, _ *Env) { ev.BodyFault = true }},
	{"state full", StateFull, func(_ *Head, ev *Event, env *Env) { ev.Producer, env.State = producer("new", 0, 0), 1<<40 }},
	{"too many producers", TooManyProducers, func(_ *Head, ev *Event, env *Env) { ev.Producer, env.MaxProducers = producer("new", 0, 0), 1 }},
	{"disk full", DiskFull, func(_ *Head, _ *Event, env *Env) { env.DiskFull = true }},
}

// appendWith decides an append with the given faults. A later one in the list
// gives way where two touch the same field.
func appendWith(faults ...fault) Code {
	h := Restore(9, &record.Config{MediaType: "text/plain", TTL: -1}, record.State{
		Past: record.Past{History: 3, Previous: 1, Inherited: 5}, Next: 10, NextRecord: 3, HasSeq: true, Seq: "m",
	})
	h.AddProducer("p", &record.ProducerState{Epoch: 2, Seq: 5, Start: 5, End: 10, StartRecord: 2, EndRecord: 3, History: 3})
	h.AddProducer("lost", &record.ProducerState{Epoch: 2, Seq: 1, End: 5, EndRecord: 2, History: 1})
	ev := &Event{Op: OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte("x"), Ends: []uint32{1}}
	env := &Env{Settings: &Settings{MaxProducers: 10, MaxState: 1 << 20, History: 3}, Now: 50}
	for i := len(faults) - 1; i >= 0; i-- {
		faults[i].make(h, ev, env)
	}
	var rec record.Record
	var a Answer
	if Decide(h, ev, env, &rec, &a) != (a.Code == Appended) {
		return 0
	}
	return a.Code
}

// Of any two faults of an append the one further up in api §3 is answered.
func TestOrderOfChecksOnAppend(t *testing.T) {
	if got := appendWith(); got != Appended {
		t.Fatalf("without a fault the answer is %q", codeNames[got])
	}
	for i, f := range appendFaults {
		if got := appendWith(f); got != f.code {
			t.Errorf("%s: %q, want %q", f.name, codeNames[got], codeNames[f.code])
		}
		for _, g := range appendFaults[i+1:] {
			want := f.code
			if f.code == StreamClosed && g.code == Duplicate {
				want = ClosedDuplicate // the one row whose answer says more when the other is true too
			}
			if got := appendWith(f, g); got != want {
				t.Errorf("%s and %s: %q, want %q", f.name, g.name, codeNames[got], codeNames[want])
			}
		}
	}
}

// What a decoder would refuse never gets into the log.
func TestOutsized(t *testing.T) {
	long := func(n int) string { return string(make([]byte, n+1)) }
	fork := func(f ForkSpec) func(*Event) {
		return func(ev *Event) { f.Resolved = &record.Fork{Source: 1}; ev.Fork = &f }
	}
	for name, edit := range map[string]func(*Event){
		"bucket":       func(ev *Event) { ev.Bucket = long(record.MaxName) },
		"name":         func(ev *Event) { ev.Name = long(record.MaxName) },
		"content type": func(ev *Event) { ev.ContentType = long(record.MaxContentType) },
		"media type":   func(ev *Event) { ev.MediaType = []byte(long(record.MaxContentType)) },
		"Stream-Seq":   func(ev *Event) { ev.StreamSeq, ev.HasSeq = []byte(long(record.MaxStreamSeq)), true },
		"producer":     func(ev *Event) { ev.Producer = producer(long(record.MaxProducerID), 0, 0) },
		"no producer":  func(ev *Event) { ev.Producer = producer("", 0, 0) },
		"fork bucket":  fork(ForkSpec{Bucket: long(record.MaxName)}),
		"fork name":    fork(ForkSpec{Name: long(record.MaxName)}),
		"attributes":   func(ev *Event) { ev.Attrs = []byte(long(record.MaxAttrs)) },
	} {
		ev := &Event{Op: OpCreate, TTL: -1}
		edit(ev)
		var rec record.Record
		var a Answer
		env := &Env{Settings: &Settings{MaxState: 1 << 20}, NewID: 1}
		if Decide(nil, ev, env, &rec, &a) || a.Code != HeaderFault {
			t.Errorf("%s too long: %q, want %q", name, codeNames[a.Code], codeNames[HeaderFault])
		}
	}
}

// A snapshot that could not be read back is refused too.
func TestOutsizedSnapshot(t *testing.T) {
	for name, s := range map[string]record.Snapshot{
		"content type": {ContentType: string(make([]byte, record.MaxContentType+1))},
		"size":         {Size: -1},
	} {
		h := Restore(9, &record.Config{TTL: -1}, record.State{})
		var rec record.Record
		var a Answer
		ev := &Event{Op: OpSnapshot, Snapshot: &s}
		env := &Env{Settings: &Settings{MaxState: 1 << 20}}
		if Decide(h, ev, env, &rec, &a) || a.Code != HeaderFault {
			t.Errorf("impossible %s: %q, want %q", name, codeNames[a.Code], codeNames[HeaderFault])
		}
	}
}

// An append to a stream that is busy makes no garbage.
func TestAppendAllocatesNothing(t *testing.T) {
	h := Restore(9, &record.Config{MediaType: "text/plain", TTL: -1}, record.State{})
	ev := &Event{Op: OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte("some bytes"), Ends: []uint32{10}}
	env := &Env{Settings: &Settings{MaxProducers: 10, MaxState: 1 << 20}, Now: 50}
	var rec record.Record
	var a Answer
	var eff Effects
	seq := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		ev.Producer.Seq, ev.Producer.ID, ev.Producer.Set = seq, ev.Body[:4], true
		seq++
		if !Decide(h, ev, env, &rec, &a) {
			t.Fatalf("refused: %q", codeNames[a.Code])
		}
		if _, err := Apply(h, &rec, &eff); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations an append", n)
	}
}

// A record that does not follow from its head is corruption, and is told before
// anything has changed.
func TestApplyRefuses(t *testing.T) {
	write := func(t record.Type, off base.Offset) record.Record {
		return record.Record{Type: t, Stream: 9, Offset: off, Body: []byte("x"), Ends: []uint32{1}, Config: &record.Config{TTL: -1}}
	}
	begins := func(history uint16) record.Record {
		rec := write(record.TypeAppend, 10)
		rec.History = history
		return rec
	}
	head := func(s record.State) *Head {
		s.History = 1
		h := Restore(9, &record.Config{TTL: -1}, s)
		h.AddProducer("p", &record.ProducerState{})
		h.AddPin(4, 1)
		h.AddSnapshot(&record.Snapshot{Offset: 4, Replaced: 3})
		h.AddSnapshot(&record.Snapshot{Offset: 6, Record: 1})
		return h
	}
	bare := Restore(9, &record.Config{TTL: -1}, record.State{Next: 10, NextRecord: 1})
	trimmed := record.State{Next: 10, NextRecord: 3, First: 5, FirstRecord: 1}
	shot := func(off base.Offset, n uint64) record.Record {
		return record.Record{Type: record.TypeSnapshot, Stream: 9, Snapshot: &record.Snapshot{Offset: off, Record: n}}
	}
	at := func(t record.Type, off base.Offset, n uint64) record.Record {
		return record.Record{Type: t, Stream: 9, Offset: off, Ordinal: n}
	}
	emptyFork := write(record.TypeCreate, 6)
	emptyFork.Config = &record.Config{TTL: -1, Fork: &record.Fork{Source: 1, Offset: 6, First: 7}}
	fewRecords := write(record.TypeCreate, 6)
	fewRecords.Config = &record.Config{TTL: -1, Fork: &record.Fork{Source: 1, Offset: 6, Record: 1, FirstRecord: 2}}
	outsideFork := write(record.TypeCreate, 6)
	outsideFork.Config = &record.Config{TTL: -1, Fork: &record.Fork{Source: 1, Offset: 6}}
	outsideFork.Snapshot = &record.Snapshot{Offset: 7}
	open := record.State{Next: 10, NextRecord: 1}
	closed := record.State{Next: 10, NextRecord: 1, Closed: true}
	ended := record.State{Next: 10, NextRecord: 1, Deleted: true}
	fork := write(record.TypeCreate, 5)
	fork.Config = &record.Config{TTL: -1, Fork: &record.Fork{Source: 1, Offset: 6}}
	of := func(t record.Type) record.Record { return record.Record{Type: t, Stream: 9, ForkID: 4} }
	for _, c := range []struct {
		name string
		head *Head
		rec  record.Record
	}{
		{"type 0", head(open), of(0)},
		{"a type of the future", head(open), of(record.TypeAttrs + 1)},
		{"create of what exists", head(open), write(record.TypeCreate, 0)},
		{"create with bytes that begin elsewhere", nil, write(record.TypeCreate, 1)},
		{"create of a fork with bytes that begin elsewhere", nil, fork},
		{"append to nothing", nil, write(record.TypeAppend, 0)},
		{"append with a gap", head(open), write(record.TypeAppend, 11)},
		{"append over what is there", head(open), write(record.TypeAppend, 9)},
		{"append to a closed stream", head(closed), write(record.TypeAppend, 10)},
		{"append to a deleted stream", head(ended), write(record.TypeAppend, 10)},
		{"append in the history that there is already", head(open), begins(1)},
		{"append in an earlier history", Restore(9, &record.Config{}, record.State{Past: record.Past{History: 3}, Next: 10, NextRecord: 1}), begins(2)},
		{"append to another stream", Restore(8, &record.Config{}, open), write(record.TypeAppend, 10)},
		{"delete of nothing", nil, of(record.TypeDelete)},
		{"delete of a deleted stream", head(ended), of(record.TypeDelete)},
		{"touch of a deleted stream", head(ended), of(record.TypeTouch)},
		{"pin of a deleted stream", head(ended), of(record.TypePin)},
		{"pin beyond the tail", head(open), record.Record{Type: record.TypePin, Stream: 9, ForkID: 5, ForkOffset: 11}},
		{"unpin of a fork that has no pin", head(open), record.Record{Type: record.TypeUnpin, Stream: 9, ForkID: 5}},
		{"create of a fork with nothing retained", nil, emptyFork},
		{"create of a fork with fewer messages than are trimmed", nil, fewRecords},
		{"create of a fork with a snapshot beyond it", nil, outsideFork},
		{"snapshot without one", head(open), of(record.TypeSnapshot)},
		{"snapshot of a deleted stream", head(ended), shot(8, 1)},
		{"snapshot beyond the tail", head(open), shot(11, 1)},
		{"snapshot beyond the last message", head(open), shot(8, 2)},
		{"snapshot below the current one", head(open), shot(5, 1)},
		{"snapshot where the current one is", head(open), shot(6, 1)},
		{"snapshot of what is trimmed", Restore(9, &record.Config{}, trimmed), shot(4, 1)},
		{"snapshot of messages that are trimmed", Restore(9, &record.Config{}, trimmed), shot(5, 0)},
		{"trim of a deleted stream", head(ended), at(record.TypeTrim, 5, 1)},
		{"trim without a snapshot", bare, at(record.TypeTrim, 5, 1)},
		{"trim beyond the snapshot", head(open), at(record.TypeTrim, 7, 1)},
		{"trim beyond the last message", head(open), at(record.TypeTrim, 6, 2)},
		{"trim of what is trimmed", head(trimmed), at(record.TypeTrim, 4, 1)},
		{"drop of nothing", head(open), at(record.TypeDrop, 5, 0)},
		{"drop of the current snapshot", head(open), at(record.TypeDrop, 6, 0)},
		{"drop where there never was one", bare, at(record.TypeDrop, 0, 0)},
		{"attributes of a deleted stream", head(ended), of(record.TypeAttrs)},
		{"forget of nobody", head(open), record.Record{Type: record.TypeForget, Stream: 9, Producer: producer("q", 0, 0)}},
	} {
		before := ""
		if c.head != nil {
			before = portrait(c.head)
		}
		var eff Effects
		if _, err := Apply(c.head, &c.rec, &eff); err == nil {
			t.Errorf("%s was applied", c.name)
		} else if c.head != nil && portrait(c.head) != before {
			t.Errorf("%s was refused but changed the head to %s", c.name, portrait(c.head))
		}
	}
}

func TestIncarnationFitsJavaScript(t *testing.T) {
	for _, c := range []struct {
		history uint16
		id      base.StreamID
		want    uint64
	}{
		{0, 1, 1},
		{1, 1<<41 - 1, 1<<42 - 1},
		{4095, 1<<64 - 1, 1<<53 - 1},
		{4096, 5, 5}, // a history is 12 bits
	} {
		if got := Incarnation(c.history, c.id); got != c.want {
			t.Errorf("Incarnation(%d, %d) = %d, want %d", c.history, c.id, got, c.want)
		}
	}
}
