package tiering

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BytesBody returns the body that sends b.
func BytesBody(b []byte) Body {
	return Body{R: bytes.NewReader(b), Size: int64(len(b)), CRC32C: crc32.Checksum(b, castagnoli)}
}

// Finding is the outcome of one check.
type Finding struct {
	Name string        // what was checked, in a few words
	Took time.Duration // how long the check took
	Err  error         // nil when the store does what it should
}

// The measures of Check.
const (
	checkRacers   = 8
	checkBytes    = 64 << 10
	checkCleanup  = 30 * time.Second
	checkLoadMax  = 1 << 10
	checkKeyChars = 16
)

// Check finds out by trying whether a store does all that Snakream relies on: put,
// conditional put and its races, compare-and-set and its races, ranged get, stat, list,
// delete. It uses objects of its own under CheckPrefix, with a random part, and deletes
// them again, also when ctx has ended. When the very first put fails, the rest is left
// out.
func Check(ctx context.Context, s Store) []Finding {
	c := &checker{store: s, base: CheckPrefix + rand.Text()[:checkKeyChars], data: make([]byte, checkBytes)}
	_, _ = rand.Read(c.data) // never fails
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"put", c.put},
		{"put of the same object again", c.put},
		{"put of other bytes is refused", c.putOther},
		{"one of several puts at once wins", c.putRace},
		{"stat", c.stat},
		{"ranged get", c.get},
		{"get beyond the end is refused", c.getBeyond},
		{"list", c.list},
		{"compare-and-set", c.swap},
		{"one of several sets at once wins", c.swapRace},
		{"delete", c.delete},
	}
	var findings []Finding
	run := func(ctx context.Context, name string, do func(context.Context) error) bool {
		start := time.Now()
		err := do(ctx)
		findings = append(findings, Finding{Name: name, Took: time.Since(start), Err: err})
		return err == nil
	}
	for i, step := range steps {
		if !run(ctx, step.name, step.do) && i == 0 {
			break
		}
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanup)
	defer cancel()
	if ok := run(cleanup, "clean up", c.cleanUp); ok {
		findings = findings[:len(findings)-1] // of interest only when something stays behind
	}
	return findings
}

type checker struct {
	store Store
	base  string // begins all keys
	data  []byte // of the object that most checks use
}

func (c *checker) key(suffix string) string { return c.base + suffix }

// keys are all keys that the checks use.
func (c *checker) keys() []string { return []string{c.key("-a"), c.key("-b"), c.key("-c")} }

func (c *checker) put(ctx context.Context) error {
	return c.store.Put(ctx, c.key("-a"), BytesBody(c.data))
}

func (c *checker) putOther(ctx context.Context) error {
	other := bytes.Clone(c.data)
	other[0] ^= 1
	err := c.store.Put(ctx, c.key("-a"), BytesBody(other))
	if err == nil {
		return fmt.Errorf("%w: the store replaced an object that was there (it ignores If-None-Match)", ErrConfig)
	}
	if !errors.Is(err, ErrExists) {
		return err
	}
	return c.compare(ctx, c.key("-a"), c.data, 0)
}

// race runs try for each racer at once. Exactly one may succeed, and all others must
// fail with lost.
func race(lost error, try func(i int) error) (winner int, err error) {
	results := make([]error, checkRacers)
	done := make(chan struct{})
	for i := range results {
		go func() {
			results[i] = try(i)
			done <- struct{}{}
		}()
	}
	for range results {
		<-done
	}
	winner = -1
	for i, err := range results {
		switch {
		case err == nil && winner >= 0:
			return -1, fmt.Errorf("%w: two of %d writers at once were both told that they won", ErrConfig, checkRacers)
		case err == nil:
			winner = i
		case !errors.Is(err, lost):
			return -1, err
		}
	}
	if winner < 0 {
		return -1, fmt.Errorf("%w: none of %d writers at once won", ErrConfig, checkRacers)
	}
	return winner, nil
}

func (c *checker) putRace(ctx context.Context) error {
	body := func(i int) []byte { return bytes.Repeat([]byte{byte('0' + i)}, 1<<10) }
	key := c.key("-b")
	winner, err := race(ErrExists, func(i int) error { return c.store.Put(ctx, key, BytesBody(body(i))) })
	if err != nil {
		return err
	}
	return c.compare(ctx, key, body(winner), 0)
}

func (c *checker) stat(ctx context.Context) error {
	info, err := c.store.Stat(ctx, c.key("-a"))
	if err != nil {
		return err
	}
	if want := BytesBody(c.data); info.Size != want.Size || info.HasCRC && info.CRC32C != want.CRC32C {
		return fmt.Errorf("%w: the store says %d bytes, CRC32C %08x, of an object of %d bytes, CRC32C %08x",
			ErrConfig, info.Size, info.CRC32C, want.Size, want.CRC32C)
	}
	if _, err := c.store.Stat(ctx, c.key("-none")); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("stat of an object that is not there: %w", orNil(err))
	}
	return nil
}

func (c *checker) get(ctx context.Context) error {
	size := int64(len(c.data))
	for _, r := range [][2]int64{{0, size}, {0, 1}, {1000, 5000}, {size - 10, size}} {
		if err := c.compare(ctx, c.key("-a"), c.data[r[0]:r[1]], r[0]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) getBeyond(ctx context.Context) error {
	size := int64(len(c.data))
	for _, off := range []int64{size - 50, size, size + 1000} {
		if err := c.store.Get(ctx, c.key("-a"), make([]byte, 100), off); !errors.Is(err, ErrShort) {
			return fmt.Errorf("get of 100 bytes at %d of %d: %w", off, size, orNil(err))
		}
	}
	if err := c.store.Get(ctx, c.key("-none"), make([]byte, 1), 0); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("get of an object that is not there: %w", orNil(err))
	}
	return nil
}

func (c *checker) list(ctx context.Context) error {
	var got []string
	for info, err := range c.store.List(ctx, c.base) {
		if err != nil {
			return err
		}
		got = append(got, info.Key)
	}
	if want := []string{c.key("-a"), c.key("-b")}; !slices.Equal(got, want) {
		return fmt.Errorf("%w: listed %q, not %q", ErrConfig, got, want)
	}
	return nil
}

func (c *checker) swap(ctx context.Context) error {
	key := c.key("-c")
	first, err := c.store.Swap(ctx, key, []byte("first"), "")
	if err != nil {
		return err
	}
	if _, err := c.store.Swap(ctx, key, []byte("other"), ""); !errors.Is(err, ErrConflict) {
		return fmt.Errorf("set of an object that should not be there, but is: %w", orNil(err))
	}
	second, err := c.store.Swap(ctx, key, []byte("second"), first)
	if err != nil {
		return err
	}
	if _, err := c.store.Swap(ctx, key, []byte("third"), first); !errors.Is(err, ErrConflict) {
		return fmt.Errorf("set over an old version (the store ignores If-Match): %w", orNil(err))
	}
	data, v, err := c.store.Load(ctx, key, checkLoadMax)
	if err != nil {
		return err
	}
	if string(data) != "second" || v != second {
		return fmt.Errorf("%w: what was set came back as %q, version %s, not %s", ErrConfig, data, v, second)
	}
	return nil
}

func (c *checker) swapRace(ctx context.Context) error {
	key := c.key("-c")
	_, v, err := c.store.Load(ctx, key, checkLoadMax)
	if err != nil {
		return err
	}
	_, err = race(ErrConflict, func(i int) error {
		_, err := c.store.Swap(ctx, key, fmt.Appendf(nil, "racer %d", i), v)
		return err
	})
	return err
}

func (c *checker) delete(ctx context.Context) error {
	key := c.key("-a")
	for range 2 { // there, and not there
		if err := c.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	if _, err := c.store.Stat(ctx, key); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("stat after the delete: %w", orNil(err))
	}
	return nil
}

func (c *checker) cleanUp(ctx context.Context) error {
	var failed []error
	for _, key := range c.keys() {
		if err := c.store.Delete(ctx, key); err != nil {
			failed = append(failed, fmt.Errorf("%s stays behind: %w", key, err))
		}
	}
	return errors.Join(failed...)
}

// compare reads a range and checks that it is want.
func (c *checker) compare(ctx context.Context, key string, want []byte, off int64) error {
	got := make([]byte, len(want))
	if err := c.store.Get(ctx, key, got, off); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: the range [%d, %d) came back with other bytes", ErrConfig, off, off+int64(len(want)))
	}
	return nil
}

// orNil makes an error of a success that should have been a refusal.
func orNil(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the store said that it succeeded", ErrConfig)
	}
	return err
}
