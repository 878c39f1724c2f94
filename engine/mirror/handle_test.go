package mirror

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// node returns the identity of a data directory.
func node(n byte) Identity {
	return Identity{Node: [16]byte{n}, History: 1, Shards: 2, Seed: uint64(n), Created: 1_700_000_000_000}
}

var errLost = errors.New("connection reset")

// faults makes a store lose answers, or refuse, for some of the next calls.
type faults struct {
	mu   sync.Mutex
	next map[string][]bool // by operation: whether the call fails
}

func (f *faults) plan(op string, calls ...bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = map[string][]bool{}
	}
	f.next[op] = calls
}

func (f *faults) hook(op, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.next[op]
	if len(calls) == 0 {
		return nil
	}
	f.next[op] = calls[1:]
	if calls[0] {
		return fmt.Errorf("%s: %w", op, errLost)
	}
	return nil
}

// claimed claims as somebody new who knows who has the mirror.
func claimed(t *testing.T, store *tiertest.Memory, id Identity) (*Handle, State) {
	t.Helper()
	var known []Writer
	if b := store.Bytes(tiering.MirrorKey); b != nil {
		s, err := Decode("m", b)
		must(t, err)
		known = append(known, s.Writer)
	}
	h, s, err := Claim(t.Context(), store, id, newWriter(t), known, 1)
	must(t, err)
	return h, s
}

func newWriter(t *testing.T) Writer {
	t.Helper()
	w, err := NewWriter()
	must(t, err)
	return w
}

// inStore returns what the mirror says now.
func inStore(t *testing.T, store tiering.Store) State {
	t.Helper()
	s, _, err := Load(t.Context(), store)
	must(t, err)
	return s
}

func TestFirstClaim(t *testing.T) {
	store := tiertest.NewMemory()
	if _, _, err := Load(t.Context(), store); !errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("no mirror: %v", err)
	}
	h, s := claimed(t, store, node(1))
	if s.Epoch != 1 || s.identity() != node(1) || s.Written != 1 || s.Objects != 1 || len(s.Shard) != 2 || s.Sequence != 1 || s.Writer == (Writer{}) {
		t.Errorf("%+v", s)
	}
	if got := inStore(t, store); !reflect.DeepEqual(got, s) {
		t.Errorf("the store has %+v, not %+v", got, s)
	}
	must(t, h.Check(t.Context()))
	for _, bad := range []Identity{{History: 1}, {Shards: 1}, {History: 1, Shards: -1}} {
		if _, _, err := Claim(t.Context(), tiertest.NewMemory(), bad, Writer{1}, nil, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestCommit(t *testing.T) {
	store := tiertest.NewMemory()
	h, s := claimed(t, store, node(1))
	s.Objects, s.Written = 100, 2
	s.Shard[1] = Shard{NextSegment: 5, Segments: []manifest.Segment{{ID: 3, Object: 99}}}
	s.Dead = []Dead{{Key: tiering.SegmentKey(0, 1, 50), Since: 2}}
	sent := s
	// Who wrote it is the handle's to say.
	sent.Node, sent.Epoch, sent.Writer, sent.History, sent.Seed = [16]byte{9}, 77, Writer{}, 9, 9
	must(t, h.Commit(t.Context(), sent))
	s.Sequence = 2
	if got := inStore(t, store); !reflect.DeepEqual(got, s) {
		t.Errorf("the store has %+v, not %+v", got, s)
	}
	s.Objects = 99
	if err := h.Commit(t.Context(), s); !errors.Is(err, ErrInvalid) {
		t.Errorf("object numbers go back: %v", err)
	}
	s.Objects, s.Shard = 100, s.Shard[:1]
	if err := h.Commit(t.Context(), s); !errors.Is(err, ErrInvalid) {
		t.Errorf("a shard is missing: %v", err)
	}
	if got := inStore(t, store); got.Sequence != 2 {
		t.Errorf("a refused state was written: %+v", got)
	}
}

// A node that comes back takes the next epoch and finds what it had written; the handle
// that it had before commits nothing any more.
func TestClaimAgain(t *testing.T) {
	store := tiertest.NewMemory()
	paused, s := claimed(t, store, node(1))
	s.Objects = 500
	must(t, paused.Commit(t.Context(), s))
	h, s := claimed(t, store, node(1))
	if s.Epoch != 2 || s.Objects != 500 || s.Sequence != 1 {
		t.Errorf("%+v", s)
	}
	before := inStore(t, store)
	for range 2 {
		if err := paused.Commit(t.Context(), s); !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "epoch 2") {
			t.Errorf("the paused handle: %v", err)
		}
	}
	if err := paused.Check(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("the paused handle: %v", err)
	}
	if n := store.Counts()["swap"]; n != 4 {
		t.Errorf("%d swaps: a fenced handle asks no more", n)
	}
	if got := inStore(t, store); !reflect.DeepEqual(got, before) {
		t.Errorf("it wrote %+v", got)
	}
	must(t, h.Check(t.Context()))
	must(t, h.Commit(t.Context(), s))
}

// Check alone notices that another has taken over, and Commit then does not even try.
func TestCheckFences(t *testing.T) {
	store := tiertest.NewMemory()
	h, s := claimed(t, store, node(1))
	claimed(t, store, node(1))
	if err := h.Check(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("%v", err)
	}
	n := store.Counts()["swap"]
	if err := h.Commit(t.Context(), s); !errors.Is(err, ErrFenced) || store.Counts()["swap"] != n {
		t.Errorf("%v", err)
	}
}

func TestTaken(t *testing.T) {
	restored := node(1)
	restored.Node, restored.History = [16]byte{7}, 2
	for name, tt := range map[string]struct {
		has  Identity
		want Identity
		says string
	}{
		"another node":      {node(1), node(2), "Give this node another prefix"},
		"restored since":    {restored, node(1), "restored elsewhere"},
		"another directory": {node(1), Identity{Node: [16]byte{1}, History: 1, Shards: 3, Seed: 9}, "another data directory"},
	} {
		store := tiertest.NewMemory()
		claimed(t, store, tt.has)
		before := inStore(t, store)
		_, _, err := Claim(t.Context(), store, tt.want, newWriter(t), []Writer{before.Writer}, 5)
		if !errors.Is(err, ErrTaken) || errors.Is(err, ErrCopy) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), fmt.Sprintf("%x", tt.has.Node)) {
			t.Errorf("%s: %v", name, err)
		}
		if got := inStore(t, store); !reflect.DeepEqual(got, before) || store.Counts()["swap"] != 1 {
			t.Errorf("%s: it was touched: %+v", name, got)
		}
	}
}

// Of copies of a data directory each knows only who it was itself: the one that was
// started has the prefix, and no other takes it, whoever of them starts again.
func TestCopies(t *testing.T) {
	store := tiertest.NewMemory()
	_, s := claimed(t, store, node(1))
	known := []Writer{s.Writer}
	a, b := newWriter(t), newWriter(t)
	h, _, err := Claim(t.Context(), store, node(1), a, append(known, a), 2)
	must(t, err)
	before := inStore(t, store)
	for range 2 {
		_, _, err := Claim(t.Context(), store, node(1), b, append(known, b), 3)
		if !errors.Is(err, ErrTaken) || !errors.Is(err, ErrCopy) || !strings.Contains(err.Error(), "put this one aside") {
			t.Errorf("the other copy: %v", err)
		}
	}
	if got := inStore(t, store); !reflect.DeepEqual(got, before) {
		t.Errorf("it wrote %+v", got)
	}
	must(t, h.Check(t.Context()))
	_, _, err = Claim(t.Context(), store, node(1), a, nil, 4)
	must(t, err) // the same run, which has not heard what became of its claim
	// As a copy is repaired, and another has been repaired meanwhile.
	old, v, err := Load(t.Context(), store)
	must(t, err)
	by := Identity{Node: old.Node, Created: old.Created}
	_, _, err = TakeOver(t.Context(), store, old, v, by, a, 5)
	must(t, err)
	if _, _, err := TakeOver(t.Context(), store, old, v, by, b, 5); !errors.Is(err, ErrCopy) {
		t.Errorf("the other copy takes over: %v", err)
	}
}

// Damage and a newer format are neither taken for a free prefix nor written over.
func TestUnreadable(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"damaged": func(b []byte) []byte { b[headerBytes] ^= 1; return b },
		"newer":   func(b []byte) []byte { return inVersion(b, 2) },
	} {
		store := tiertest.NewMemory()
		h, s := claimed(t, store, node(1))
		data, v, err := store.Load(t.Context(), tiering.MirrorKey, maxBytes)
		must(t, err)
		data = change(data)
		_, err = store.Swap(t.Context(), tiering.MirrorKey, data, v)
		must(t, err)
		known := func(err error) bool {
			var c *base.CorruptionError
			var v *base.VersionError
			return errors.As(err, &c) && name == "damaged" || errors.As(err, &v) && name == "newer"
		}
		if _, _, err := Claim(t.Context(), store, node(1), Writer{1}, []Writer{s.Writer}, 1); !known(err) {
			t.Errorf("%s: Claim: %v", name, err)
		}
		if err := h.Commit(t.Context(), s); !known(err) {
			t.Errorf("%s: Commit: %v", name, err)
		}
		if err := h.Check(t.Context()); !known(err) {
			t.Errorf("%s: Check: %v", name, err)
		}
		if got := store.Bytes(tiering.MirrorKey); string(got) != string(data) {
			t.Errorf("%s: it was written over", name)
		}
	}
}

// A mirror that somebody deleted is an error, and neither made anew nor a fence.
func TestGone(t *testing.T) {
	store := tiertest.NewMemory()
	h, s := claimed(t, store, node(1))
	store.Remove(tiering.MirrorKey)
	for range 2 {
		if err := h.Commit(t.Context(), s); !errors.Is(err, tiering.ErrNotFound) || errors.Is(err, ErrFenced) {
			t.Errorf("Commit: %v", err)
		}
		if err := h.Check(t.Context()); !errors.Is(err, tiering.ErrNotFound) || errors.Is(err, ErrFenced) {
			t.Errorf("Check: %v", err)
		}
	}
	if keys := store.Keys(); len(keys) != 0 {
		t.Errorf("made: %q", keys)
	}
}

func TestTakeOver(t *testing.T) {
	store := tiertest.NewMemory()
	lost, s := claimed(t, store, node(1))
	s.Objects = 300
	s.Shard[0] = Shard{NextSegment: 9, Segments: []manifest.Segment{{ID: 8, Object: 200}}}
	must(t, lost.Commit(t.Context(), s))
	old, v, err := Load(t.Context(), store)
	must(t, err)

	by := Identity{Node: [16]byte{2}, Created: 55}
	h, s, err := TakeOver(t.Context(), store, old, v, by, newWriter(t), 66)
	must(t, err)
	want := Identity{Node: [16]byte{2}, History: 2, Shards: 2, Seed: 1, Created: 55}
	if s.identity() != want || s.Epoch != 2 || s.Written != 66 || s.Objects != 300 || len(s.Shard[0].Segments) != 1 {
		t.Errorf("%+v", s)
	}
	if err := lost.Commit(t.Context(), old); !errors.Is(err, ErrFenced) {
		t.Errorf("the node that was taken for lost: %v", err)
	}
	if _, _, err := Claim(t.Context(), store, node(1), Writer{1}, []Writer{old.Writer, s.Writer}, 1); !errors.Is(err, ErrTaken) {
		t.Errorf("it starts again: %v", err)
	}
	must(t, h.Commit(t.Context(), s))
	if _, _, err := TakeOver(t.Context(), store, old, v, Identity{Node: [16]byte{3}}, newWriter(t), 1); !errors.Is(err, ErrTaken) {
		t.Errorf("a second restore of the same: %v", err)
	}
	// What was restored starts.
	if _, s := claimed(t, store, want); s.Epoch != 3 {
		t.Errorf("%+v", s)
	}
	old.History = maxHistory
	if _, _, err := TakeOver(t.Context(), store, old, v, by, newWriter(t), 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("no history number is left: %v", err)
	}
}

// Whatever answers are lost, a call says truly what became of it, or that it does not
// know, and then the next one finds out.
func TestLostAnswers(t *testing.T) {
	type call func(t *testing.T, store tiering.Store, h *Handle, s State) error
	commit := func(t *testing.T, _ tiering.Store, h *Handle, s State) error { return h.Commit(t.Context(), s) }
	claim := func(t *testing.T, store tiering.Store, h *Handle, _ State) error {
		_, _, err := Claim(t.Context(), store, node(1), Writer{5}, []Writer{h.own.Writer}, 2)
		return err
	}
	takeOver := func(t *testing.T, store tiering.Store, _ *Handle, old State) error {
		_, _, err := TakeOver(t.Context(), store, old, "1", Identity{Node: [16]byte{2}}, Writer{5}, 2)
		return err
	}
	type outcome struct{ err, done bool }
	for name, tt := range map[string]struct {
		after, before, load []bool // of swap and load: whether a call fails after it was done, or before
		want                outcome
	}{
		"the answer":                        {after: []bool{true}, want: outcome{false, true}},
		"the request":                       {before: []bool{true}, want: outcome{true, false}},
		"the answer, and what looks for it": {after: []bool{true}, load: []bool{true}, want: outcome{true, true}},
		"the request, and what looks":       {before: []bool{true}, load: []bool{true}, want: outcome{true, false}},
	} {
		for what, do := range map[string]call{"commit": commit, "claim": claim, "take over": takeOver} {
			var before, after faults
			store := &tiertest.Memory{Before: before.hook, After: after.hook}
			h, s := claimed(t, store, node(1))
			first := store.Bytes(tiering.MirrorKey)
			before.plan("swap", tt.before...)
			after.plan("swap", tt.after...)
			load := tt.load
			if what == "claim" {
				load = append([]bool{false}, load...) // the one that comes first
			}
			before.plan("load", load...)
			err := do(t, store, h, s)
			done := string(first) != string(store.Bytes(tiering.MirrorKey))
			if (outcome{err != nil, done}) != tt.want || err != nil && !errors.Is(err, errLost) {
				t.Errorf("%s of %s is lost: done %v, %v", name, what, done, err)
			}
			if err != nil {
				must(t, do(t, store, h, s))
			}
			err = h.Commit(t.Context(), s)
			if what == "commit" && err != nil || what != "commit" && !errors.Is(err, ErrFenced) {
				t.Errorf("%s of %s is lost: then %v", name, what, err)
			}
		}
	}
	// The first mirror too.
	var after faults
	store := &tiertest.Memory{After: after.hook}
	after.plan("swap", true)
	h, s := claimed(t, store, node(1))
	must(t, h.Commit(t.Context(), s))
	var before faults
	store = &tiertest.Memory{Before: before.hook}
	before.plan("swap", true)
	if _, _, err := Claim(t.Context(), store, node(1), Writer{1}, nil, 1); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
}

func TestCancelled(t *testing.T) {
	store := tiertest.NewMemory()
	h, s := claimed(t, store, node(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Commit(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, _, err := Claim(ctx, store, node(1), Writer{1}, []Writer{s.Writer}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(t, h.Commit(t.Context(), s))
}
