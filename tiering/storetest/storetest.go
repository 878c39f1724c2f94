// Package storetest is the acceptance suite that every implementation of tiering.Store
// passes: what Snakream relies on, and where providers are known to differ.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/tiering"
)

// Loser is a Store whose answers a test can lose.
type Loser interface {
	tiering.Store
	// LoseAnswer lets the next Put, Swap or Delete take effect without its caller
	// getting to know by an answer.
	LoseAnswer()
}

// Run runs the suite. For each of its tests open returns a store that is empty and
// that no other test uses; it may be a Loser. What is opened is closed by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) tiering.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s tiering.Store)
	}{
		{"Get", testGet},
		{"GetShort", testGetShort},
		{"NotFound", testNotFound},
		{"Stat", testStat},
		{"PutAgain", testPutAgain},
		{"PutRefusesOtherBytes", testPutOther},
		{"PutRefusesWrongBody", testPutWrongBody},
		{"PutStreams", testPutStreams},
		{"PutRace", testPutRace},
		{"PutRaceOfOneObject", testPutRaceSame},
		{"Delete", testDelete},
		{"LoadBound", testLoadBound},
		{"Swap", testSwap},
		{"SwapRace", testSwapRace},
		{"SwapCounter", testSwapCounter},
		{"LostAnswers", testLostAnswers},
		{"Cancelled", testCancelled},
		{"ListPages", testListPages},
		{"ListOrder", testListOrder},
		{"ListForeign", testListForeign},
		{"ListStops", testListStops},
		{"Check", testCheck},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			t.Log(s) // a String that shows a secret is seen in review
			c.run(t, bound{Store: s, ctx: ctx})
		})
	}
}

// bound is a store with the context of a test's calls, which ends when the test has
// taken too long.
type bound struct {
	tiering.Store
	ctx context.Context
}

func put(t *testing.T, s tiering.Store, key string, data []byte) {
	t.Helper()
	if err := s.Put(within(s), key, tiering.BytesBody(data)); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

// within is the context of a test's calls.
func within(s tiering.Store) context.Context { return s.(bound).ctx }

// expect checks that a key holds exactly want.
func expect(t *testing.T, s tiering.Store, key string, want []byte) {
	t.Helper()
	got, _, err := s.Load(within(s), key, int64(len(want)))
	if err != nil {
		t.Fatalf("load %q: %v", key, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%q holds %d bytes, not the %d that were put, or others", key, len(got), len(want))
	}
}

// noise is n bytes that don't compress, the same for the same seed.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b) // never fails
	return b
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, not %v", what, err, want)
	}
}

func testGet(t *testing.T, s tiering.Store) {
	const size = 200_000
	data := noise(size, 1)
	put(t, s, "segments/00/0000000001.000000000001", data)
	for _, r := range [][2]int64{{0, size}, {0, 1}, {1, 2}, {size - 1, size}, {65535, 65537}, {100_000, size}, {7, 7}, {0, 0}, {size, size}} {
		got := make([]byte, r[1]-r[0])
		if err := s.Get(within(s), "segments/00/0000000001.000000000001", got, r[0]); err != nil {
			t.Errorf("[%d, %d): %v", r[0], r[1], err)
		} else if !bytes.Equal(got, data[r[0]:r[1]]) {
			t.Errorf("[%d, %d): other bytes than were put", r[0], r[1])
		}
	}
	put(t, s, "empty", nil)
	expect(t, s, "empty", nil)
	if err := s.Get(within(s), "segments/00/0000000001.000000000001", make([]byte, 1), -1); err == nil {
		t.Error("a negative offset was accepted")
	}
}

func testGetShort(t *testing.T, s tiering.Store) {
	put(t, s, "k", noise(1000, 2))
	put(t, s, "empty", nil)
	for _, r := range [][2]int64{{0, 1001}, {999, 1001}, {1000, 1001}, {1001, 1001}, {5000, 6000}, {1 << 40, 1<<40 + 1}} {
		err := s.Get(within(s), "k", make([]byte, r[1]-r[0]), r[0])
		wantIs(t, fmt.Sprintf("[%d, %d) of 1000", r[0], r[1]), err, tiering.ErrShort)
	}
	wantIs(t, "a byte of an empty object", s.Get(within(s), "empty", make([]byte, 1), 0), tiering.ErrShort)
}

func testNotFound(t *testing.T, s tiering.Store) {
	put(t, s, "there/is", []byte("something"))
	for _, key := range []string{"none", "none/at/all", "there", "there/i", "there/is.not"} {
		wantIs(t, "get "+key, s.Get(within(s), key, make([]byte, 4), 0), tiering.ErrNotFound)
		wantIs(t, "get nothing of "+key, s.Get(within(s), key, nil, 0), tiering.ErrNotFound)
		_, err := s.Stat(within(s), key)
		wantIs(t, "stat "+key, err, tiering.ErrNotFound)
		_, _, err = s.Load(within(s), key, 100)
		wantIs(t, "load "+key, err, tiering.ErrNotFound)
	}
}

func testStat(t *testing.T, s tiering.Store) {
	for _, size := range []int{0, 1, 100_000} {
		data := noise(size, 3)
		key := fmt.Sprint("size-", size)
		put(t, s, key, data)
		info, err := s.Stat(within(s), key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != key || info.Size != int64(size) {
			t.Errorf("%+v of %s", info, key)
		}
		if want := tiering.BytesBody(data).CRC32C; info.HasCRC && info.CRC32C != want {
			t.Errorf("%s: CRC %08x, not %08x", key, info.CRC32C, want)
		}
	}
}

func testPutAgain(t *testing.T, s tiering.Store) {
	data := noise(100_000, 4)
	for range 3 {
		put(t, s, "k", data)
	}
	expect(t, s, "k", data)
}

func testPutOther(t *testing.T, s tiering.Store) {
	data := noise(3<<20, 5)
	put(t, s, "k", data)
	other := bytes.Clone(data)
	other[len(other)/2] ^= 1
	for _, b := range [][]byte{other, data[:len(data)-1], nil} {
		wantIs(t, fmt.Sprint("put of other bytes, ", len(b)), s.Put(within(s), "k", tiering.BytesBody(b)), tiering.ErrExists)
	}
	expect(t, s, "k", data)
}

func testPutWrongBody(t *testing.T, s tiering.Store) {
	wrong := tiering.BytesBody(noise(1000, 6))
	wrong.CRC32C ^= 1
	if err := s.Put(within(s), "crc", wrong); err == nil {
		t.Error("a body with another CRC than its own was accepted")
	}
	short := tiering.BytesBody(noise(1000, 6))
	short.Size++
	if err := s.Put(within(s), "short", short); err == nil {
		t.Error("a body that is shorter than it says was accepted")
	}
	for info, err := range s.List(within(s), "") {
		t.Error("after refused puts there is", info, err)
	}
}

// testPutStreams puts an object that exists nowhere but in a function.
func testPutStreams(t *testing.T, s tiering.Store) {
	const size = 24 << 20
	p := pattern{t: t, size: size}
	hash := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	chunk := make([]byte, 1<<16)
	for off := int64(0); off < size; off += int64(len(chunk)) {
		if _, err := p.ReadAt(chunk, off); err != nil {
			t.Fatal(err)
		}
		_, _ = hash.Write(chunk) // never fails
	}
	if err := s.Put(within(s), "large", tiering.Body{R: p, Size: size, CRC32C: hash.Sum32()}); err != nil {
		t.Fatal(err)
	}
	got, want := make([]byte, 1<<16), make([]byte, 1<<16)
	for _, off := range []int64{0, 12345678, size - int64(len(got))} {
		if err := s.Get(within(s), "large", got, off); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ReadAt(want, off); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("other bytes at %d", off)
		}
	}
}

// pattern is a source of size bytes that doesn't like to be read whole.
type pattern struct {
	t    *testing.T
	size int64
}

// ReadAt implements io.ReaderAt.
func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	if len(b) > 2<<20 {
		p.t.Errorf("%d bytes of a body were read at once", len(b))
	}
	for i := range b {
		x := uint64(off) + uint64(i)
		b[i] = byte((x * 0x9e3779b97f4a7c15) >> 56)
	}
	return len(b), nil
}

const racers = 16

// race calls try at once for each racer and returns what came of it.
func race(try func(i int) error) []error {
	results := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			<-start
			results[i] = try(i)
		})
	}
	close(start)
	wg.Wait()
	return results
}

// onlyOne returns the racer without an error, and checks that the others have lost.
func onlyOne(t *testing.T, results []error, lost error) int {
	t.Helper()
	winner := -1
	for i, err := range results {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("racers %d and %d both won", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, lost):
			t.Fatalf("racer %d: %v, not %v", i, err, lost)
		}
	}
	if winner < 0 {
		t.Fatalf("nobody won: %v", results)
	}
	return winner
}

func testPutRace(t *testing.T, s tiering.Store) {
	for round := range 10 {
		key := fmt.Sprint("race/", round)
		body := func(i int) []byte { return noise(10_000, uint64(i)) }
		winner := onlyOne(t, race(func(i int) error { return s.Put(within(s), key, tiering.BytesBody(body(i))) }), tiering.ErrExists)
		expect(t, s, key, body(winner))
	}
}

func testPutRaceSame(t *testing.T, s tiering.Store) {
	data := noise(10_000, 7)
	for i, err := range race(func(int) error { return s.Put(within(s), "k", tiering.BytesBody(data)) }) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	expect(t, s, "k", data)
}

func testDelete(t *testing.T, s tiering.Store) {
	for range 2 { // of a key that never was, and of one that is gone
		if err := s.Delete(within(s), "blobs/k"); err != nil {
			t.Fatal(err)
		}
		put(t, s, "blobs/k", []byte("one"))
		put(t, s, "blobs/l", []byte("two"))
		if err := s.Delete(within(s), "blobs/k"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Stat(within(s), "blobs/k")
		wantIs(t, "stat after delete", err, tiering.ErrNotFound)
		expect(t, s, "blobs/l", []byte("two"))
	}
}

func testCheck(t *testing.T, s tiering.Store) {
	put(t, s, "k", []byte("stays"))
	findings := tiering.Check(within(s), s)
	if len(findings) < 10 {
		t.Errorf("only %d findings", len(findings))
	}
	for _, f := range findings {
		if f.Err != nil {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
	}
	for info, err := range s.List(within(s), "") {
		if err != nil || info.Key != "k" {
			t.Error("afterwards there is", info, err)
		}
	}
}
