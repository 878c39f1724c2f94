package storetest

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/snakream/snakream/tiering"
)

func testLoadBound(t *testing.T, s tiering.Store) {
	put(t, s, "k", noise(100, 8))
	if _, _, err := s.Load(within(s), "k", 100); err != nil {
		t.Error(err)
	}
	if data, _, err := s.Load(within(s), "k", 99); err == nil {
		t.Errorf("loaded %d bytes, more than the 99 that were allowed", len(data))
	}
}

func testSwap(t *testing.T, s tiering.Store) {
	const key = "mirror"
	swap := func(data string, old tiering.Version) tiering.Version {
		t.Helper()
		v, err := s.Swap(within(s), key, []byte(data), old)
		if err != nil {
			t.Fatalf("swap: %v", err)
		}
		got, loaded, err := s.Load(within(s), key, 8<<20)
		if err != nil || string(got) != data || loaded != v {
			t.Fatalf("after the swap: %v; equal bytes: %v; version %q, not %q", err, string(got) == data, loaded, v)
		}
		return v
	}
	refused := func(data string, old tiering.Version) {
		t.Helper()
		_, err := s.Swap(within(s), key, []byte(data), old)
		wantIs(t, "swap over version "+string(old), err, tiering.ErrConflict)
	}
	first := swap("first", "")
	refused("second", "")
	second := swap("the second", first)
	refused("third", first)
	refused("fourth", "")
	third := swap("third", second)
	if err := s.Delete(within(s), key); err != nil {
		t.Fatal(err)
	}
	refused("fifth", third)
	if _, err := s.Stat(within(s), key); !errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("a refused swap left something behind: %v", err)
	}
	swap(string(noise(5<<20, 9)), "")
}

func testSwapRace(t *testing.T, s tiering.Store) {
	var v tiering.Version
	for round := range 10 {
		versions := make([]tiering.Version, racers)
		data := func(i int) []byte { return []byte("round " + strconv.Itoa(round) + " racer " + strconv.Itoa(i)) }
		winner := onlyOne(t, race(func(i int) (err error) {
			versions[i], err = s.Swap(within(s), "mirror", data(i), v)
			return err
		}), tiering.ErrConflict)
		expect(t, s, "mirror", data(winner))
		v = versions[winner]
	}
}

// testSwapCounter lets several writers count in one object, each with a line of its
// own, so that no two contents are ever equal.
func testSwapCounter(t *testing.T, s tiering.Store) {
	const each = 5
	for i, err := range race(func(i int) error {
		for range each {
			for {
				data, v, err := s.Load(within(s), "count", 1<<20)
				if errors.Is(err, tiering.ErrNotFound) {
					data, v = nil, ""
				} else if err != nil {
					return err
				}
				_, err = s.Swap(within(s), "count", append(data, byte('a'+i)), v)
				if err == nil {
					break
				}
				if !errors.Is(err, tiering.ErrConflict) {
					return err
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	data, _, err := s.Load(within(s), "count", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[byte]int{}
	for _, b := range data {
		counts[b]++
	}
	for i := range racers {
		if n := counts[byte('a'+i)]; n != each {
			t.Errorf("writer %d counted %d times, of which %d are there", i, each, n)
		}
	}
}

// testLostAnswers takes the answer away from calls that took effect. The store may find
// that out and succeed, or say that it doesn't know; it may not say that another won.
func testLostAnswers(t *testing.T, s tiering.Store) {
	loser, ok := s.(bound).Store.(Loser)
	if !ok {
		t.Log("no hook to lose answers")
		return
	}
	unknown := func(what string, err error) {
		t.Helper()
		for _, wrong := range []error{tiering.ErrExists, tiering.ErrConflict, tiering.ErrNotFound} {
			if errors.Is(err, wrong) {
				t.Errorf("%s with a lost answer: %v", what, err)
			}
		}
	}
	data := noise(100_000, 10)
	loser.LoseAnswer()
	if err := s.Put(within(s), "k", tiering.BytesBody(data)); err != nil {
		unknown("put", err)
		put(t, s, "k", data)
	}
	expect(t, s, "k", data)

	var v tiering.Version
	for _, content := range []string{"first", "second"} {
		loser.LoseAnswer()
		now, err := s.Swap(within(s), "mirror", []byte(content), v)
		if err != nil {
			unknown("swap", err)
			if _, now, err = s.Load(within(s), "mirror", 100); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, s, "mirror", []byte(content))
		v = now
	}
	if _, err := s.Swap(within(s), "mirror", []byte("third"), v); err != nil {
		t.Errorf("the version of a swap with a lost answer is not the object's: %v", err)
	}

	loser.LoseAnswer()
	if err := s.Delete(within(s), "k"); err != nil {
		unknown("delete", err)
		if err := s.Delete(within(s), "k"); err != nil {
			t.Error(err)
		}
	}
}

func testCancelled(t *testing.T, s tiering.Store) {
	put(t, s, "k", []byte("there"))
	ctx, cancel := context.WithCancel(within(s))
	cancel()
	wantIs(t, "put", s.Put(ctx, "new", tiering.BytesBody([]byte("x"))), context.Canceled)
	wantIs(t, "get", s.Get(ctx, "k", make([]byte, 1), 0), context.Canceled)
	wantIs(t, "delete", s.Delete(ctx, "k"), context.Canceled)
	_, err := s.Stat(ctx, "k")
	wantIs(t, "stat", err, context.Canceled)
	_, _, err = s.Load(ctx, "k", 100)
	wantIs(t, "load", err, context.Canceled)
	_, err = s.Swap(ctx, "new", []byte("x"), "")
	wantIs(t, "swap", err, context.Canceled)
	err = nil
	for _, e := range s.List(ctx, "") {
		err = e
	}
	wantIs(t, "list", err, context.Canceled)
	expect(t, s, "k", []byte("there"))
	_, err = s.Stat(within(s), "new")
	wantIs(t, "stat of what a cancelled call would have made", err, tiering.ErrNotFound)
}
