package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/enginetest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/wal/record"
)

// nextHistory closes the directory and opens it as the restore of itself.
func (r *rig) nextHistory() {
	r.Helper()
	r.close()
	if err := enginetest.NextHistory(r.fs, "data"); err != nil {
		r.Fatal(err)
	}
	r.open()
}

// produce appends as the producer w.
func (r *rig) produce(name, body string, epoch, seq uint64, want core.Code) core.Answer {
	r.Helper()
	ev := appendEvent(body)
	ev.Producer = record.Producer{ID: []byte("w"), Epoch: epoch, Seq: seq, Set: true}
	return r.must(name, ev, want)
}

// inherited fails the test unless a stream says that under a history it was the same
// up to an offset.
func (r *rig) inherited(name string, history uint16, upTo base.Offset) {
	r.Helper()
	v := r.view(name)
	want := core.Inheritance{Incarnation: core.Incarnation(history, v.ID), UpTo: upTo}
	if history == 0 {
		want = core.Inheritance{}
	}
	if got := v.Inheritance(r.History(), 0); got != want {
		r.Fatalf("%s says %+v, want %+v", name, got, want)
	}
}

// What a stream has from before a restore stays known: in the log, in segments, after
// merges and starts, and after much has been written since (api §4a).
func TestHistory(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			r := newRig(t, tiny(shards))
			for _, name := range []string{"written", "idle", "flushed"} {
				r.create(name)
				r.produce(name, "12345", 0, 0, core.Appended)
			}
			others := []string{"x", "y", "z"}
			for _, name := range others {
				r.create(name)
			}
			r.fill(others, int64(2*shards)) // some lie in segments
			r.produce("written", "678", 0, 1, core.Appended)
			old := r.Incarnation(r.view("written").ID)
			r.inherited("written", 0, 0)

			r.nextHistory()
			if r.History() != 2 || r.Incarnation(r.view("written").ID) == old {
				t.Fatalf("history %d, incarnation still %d", r.History(), old)
			}
			r.expect("written", "12345678")
			r.inherited("written", 1, 8)
			r.inherited("idle", 1, 5)
			a := r.produce("written", "678", 0, 1, core.HistoryChanged)
			if a.Epoch != 0 || !a.HasReplaced || a.ReplacedEpoch != 0 || a.ReplacedSeq != 1 {
				t.Errorf("the fence says %+v", a)
			}
			r.produce("written", "9", 1, 0, core.Appended)
			r.create("new")
			r.inherited("new", 0, 0)
			check := func() {
				t.Helper()
				r.inherited("written", 1, 8)
				r.inherited("idle", 1, 5)
				r.inherited("new", 0, 0)
				r.produce("idle", "x", 0, 1, core.HistoryChanged)
				r.produce("written", "9", 1, 0, core.Duplicate)
				r.produce("new", "x", 0, 1, core.SequenceGap)
			}
			check()
			r.reopen()
			check()
			r.fill(append(others, "flushed"), int64(6*shards)) // and more of them, merged
			check()
			r.reopen()
			check()
			r.inherited("flushed", 1, 5)

			r.nextHistory()
			r.inherited("written", 2, 9)
			r.inherited("idle", 2, 5)
			r.inherited("new", 2, 0)
			r.produce("written", "9", 1, 0, core.HistoryChanged)
			r.produce("new", "x", 0, 1, core.HistoryChanged)
			r.produce("new", "x", 0, 0, core.Appended)
			r.reopen()
			r.inherited("new", 2, 0)
			r.inherited("idle", 2, 5)
			r.produce("idle", "x", 1, 0, core.Appended)
			r.inherited("idle", 2, 5)
			r.expect("idle", "12345x")
		})
	}
}

// An identity that is older than the data is not theirs: handing out its
// incarnations again would make one of two streams.
func TestHistoryGoesBack(t *testing.T) {
	for _, flush := range []bool{false, true} {
		r := newRig(t, tiny(1))
		r.create("a")
		r.append("a", "x")
		first := identity(r)
		r.nextHistory()
		r.append("a", "y")
		if flush {
			r.create("b")
			r.fill([]string{"b"}, 8) // the log of the first append has been used again
		}
		r.close()
		second := identity(r)
		identify(t, r, first)
		var corrupt *base.CorruptionError
		if _, err := engine.Open("data", r.options()); !errors.As(err, &corrupt) {
			t.Fatalf("opened at an older history: %v", err)
		}
		identify(t, r, second)
		r.open()
		r.expect("a", "xy")
	}
}

// A history that no number is left for is none.
func TestHistoryEnds(t *testing.T) {
	r := newRig(t, tiny(1))
	r.close()
	id := identity(r)
	for history, ok := range map[uint16]bool{0: false, 1: true, record.MaxHistory: true, record.MaxHistory + 1: false} {
		b := bytes.Clone(id)
		binary.LittleEndian.PutUint16(b[48:], history)
		binary.LittleEndian.PutUint64(b[56:], bin.Sum(b[:56]))
		identify(t, r, b)
		e, err := engine.Open("data", r.options())
		if (err == nil) != ok {
			t.Errorf("history %d: %v", history, err)
		}
		if err == nil {
			if e.History() != history {
				t.Errorf("history %d is read as %d", history, e.History())
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// identity reads the rig's identity.
func identity(r *rig) []byte {
	r.Helper()
	return bytes.Clone(files(r, r.fs, "data")["data/SNAKREAM"])
}

// identify makes the rig's directory another one.
func identify(t *testing.T, r *rig, id []byte) {
	t.Helper()
	if err := r.fs.Remove("data/SNAKREAM"); err != nil {
		t.Fatal(err)
	}
	write(t, r.fs, "data/SNAKREAM", id)
}
