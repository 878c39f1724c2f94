package cold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/tiering"
)

const kib = 1 << 10

// fakeStore holds every object there could be: its bytes follow from key and offset.
type fakeStore struct {
	tiering.Store // what is not here is not called

	// before, if set, may delay a Get or fail it.
	before func(ctx context.Context, key string, off int64) error

	mu   sync.Mutex
	gets []string // "key@offset", as they began
}

func (s *fakeStore) Get(ctx context.Context, key string, p []byte, off int64) error {
	s.mu.Lock()
	s.gets = append(s.gets, fmt.Sprintf("%s@%d", key, off))
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, key, off); err != nil {
			return err
		}
	}
	copy(p, content(key, off, len(p)))
	return nil
}

func (s *fakeStore) String() string { return "fake" }

// count returns the number of GETs so far.
func (s *fakeStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gets)
}

// since returns the GETs after the first n.
func (s *fakeStore) since(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.gets[n:], " ")
}

// slow is a before that takes d.
func slow(d time.Duration) func(context.Context, string, int64) error {
	return func(ctx context.Context, _ string, _ int64) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// until is a before that waits for the channel, or for ctx.
func until(gate <-chan struct{}) func(context.Context, string, int64) error {
	return func(ctx context.Context, _ string, _ int64) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// content returns n bytes of the object key from off on.
func content(key string, off int64, n int) []byte {
	seed := int64(len(key))
	for _, b := range []byte(key) {
		seed = seed*31 + int64(b)
	}
	p := make([]byte, n)
	for i := range p {
		x := (off + int64(i)) + seed
		p[i] = byte(x ^ x>>8 ^ x>>16)
	}
	return p
}

// open returns a cache that is closed at the end of the test, and checked then.
func open(t *testing.T, s *fakeStore, o Options) *Cache {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := New(s, o)
	t.Cleanup(func() {
		check(t, c)
		c.Close()
		if st := c.Stats(); st.InFlight != 0 {
			t.Errorf("%d GETs are left after Close", st.InFlight)
		}
	})
	return c
}

// check fails the test unless the cache's accounts are right.
func check(t *testing.T, c *Cache) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	memory, aheads := int64(len(c.spare))*c.o.PieceBytes, 0
	for key, e := range c.entries {
		if len(e.pieces) == 0 && len(e.runs) == 0 && e.readers == 0 {
			t.Errorf("an entry of nothing is left of %s", key)
		}
		for i, p := range e.pieces {
			memory += int64(len(p.buf))
			if p.ahead != nil {
				aheads++
			}
			if !p.attached || p.in == nil && (p.state != fetching || p.wants == 0) {
				t.Errorf("piece %d of %s is lost: %+v", i, key, p)
			}
		}
	}
	// Pieces that are only in the hands of readers, or of cancelled GETs, come on top.
	if c.memory > c.o.Bytes || memory > c.memory || c.running == 0 && c.pinned.n == 0 && memory != c.memory {
		t.Errorf("%d bytes of memory, %d of them found, at most %d", c.memory, memory, c.o.Bytes)
	}
	if aheads != c.aheads || aheads > c.maxAhead {
		t.Errorf("%d pieces ahead, %d counted, at most %d", aheads, c.aheads, c.maxAhead)
	}
}

// mustRead reads n bytes and compares them.
func mustRead(t *testing.T, o *Object, off int64, n int) {
	t.Helper()
	p := make([]byte, n)
	m, err := o.ReadContext(t.Context(), p, off)
	if want := content(o.key, off, n); err != nil || !bytes.Equal(p[:m], want) {
		t.Fatalf("read of [%d, +%d): %d bytes, %v, equal: %v", off, n, m, err, bytes.Equal(p[:m], want))
	}
}

func TestReadAt(t *testing.T) {
	const size = 10*kib + 7
	s := &fakeStore{}
	o := open(t, s, Options{PieceBytes: kib, Bytes: 16 * kib}).Object("a", size)
	for _, tt := range []struct {
		off  int64
		n    int
		want int
		err  error
	}{
		{0, 0, 0, nil},
		{0, 1, 1, nil},
		{1023, 2, 2, nil},
		{0, size, size, nil},
		{5, size, size - 5, io.EOF},
		{size - 1, 1, 1, nil},
		{size - 1, 2, 1, io.EOF},
		{size, 1, 0, io.EOF},
		{1 << 60, 1, 0, io.EOF},
	} {
		p := make([]byte, tt.n)
		n, err := o.ReadAt(p, tt.off)
		if n != tt.want || err != tt.err || !bytes.Equal(p[:n], content("a", tt.off, n)) {
			t.Errorf("[%d, +%d): %d, %v", tt.off, tt.n, n, err)
		}
	}
	if _, err := o.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
		t.Errorf("negative offset: %v", err)
	}
	if n := s.count(); n != 11 {
		t.Errorf("%d GETs for 11 pieces", n)
	}
	if o.Size() != size {
		t.Errorf("size %d", o.Size())
	}
}

// A thousand readers of one range cost one GET.
func TestCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &fakeStore{before: until(gate)}
		c := open(t, s, Options{})
		var readers sync.WaitGroup
		for range 1000 {
			readers.Go(func() { mustRead(t, c.Object("a", 1<<30), 5<<20, 64*kib) })
		}
		synctest.Wait()
		close(gate)
		readers.Wait()
		if n := s.count(); n != 1 {
			t.Errorf("%d GETs", n)
		}
		if st := c.Stats(); st.Misses != 1 || st.Coalesced != 999 || st.Fetches != 1 || st.BytesFetched != 1<<20 || st.BytesHeld != 1<<20 {
			t.Errorf("%+v", st)
		}
		mustRead(t, c.Object("a", 1<<30), 5<<20+100, 64*kib)
		if st := c.Stats(); st.Hits != 1 || s.count() != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// The pieces of one read are fetched several at a time.
func TestParallelPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{before: slow(100 * time.Millisecond)}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 64 * kib, Parallel: 8})
		begin := time.Now()
		mustRead(t, c.Object("a", 1<<30), 0, 80*kib)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("80 pieces, 8 at a time, 100 ms each: %v", took)
		}
	})
}

// What readers got is theirs: changing it changes nothing in the cache.
func TestReadsCopy(t *testing.T) {
	c := open(t, &fakeStore{}, Options{})
	o := c.Object("a", 1<<20)
	p := make([]byte, 100)
	if _, err := o.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	clear(p)
	mustRead(t, o, 0, 100)
}

// A failure reaches all who wait, says what it is, and is not kept.
func TestFailedFetchIsNotCached(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		is   []error
		not  []error
	}{
		{"missing", fmt.Errorf("get: %w", tiering.ErrNotFound), []error{tiering.ErrNotFound}, []error{ErrUnavailable}},
		{"short", tiering.ErrShort, []error{tiering.ErrShort}, []error{ErrUnavailable}},
		{"denied", tiering.ErrDenied, []error{ErrUnavailable, tiering.ErrDenied}, nil},
		{"reset", io.ErrUnexpectedEOF, []error{ErrUnavailable, io.ErrUnexpectedEOF}, nil},
		{"deadline of its own", context.DeadlineExceeded, []error{ErrUnavailable}, []error{context.DeadlineExceeded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fail := true
				gate := make(chan struct{})
				s := &fakeStore{}
				s.before = func(context.Context, string, int64) error {
					<-gate
					if fail {
						return tt.err
					}
					return nil
				}
				c := open(t, s, Options{})
				var readers sync.WaitGroup
				for range 3 {
					readers.Go(func() {
						_, err := c.Object("a", 1<<20).ReadAt(make([]byte, 10), 0)
						for _, is := range tt.is {
							if !errors.Is(err, is) {
								t.Errorf("%v is not %v", err, is)
							}
						}
						for _, not := range tt.not {
							if errors.Is(err, not) {
								t.Errorf("%v is %v", err, not)
							}
						}
					})
				}
				synctest.Wait()
				close(gate)
				readers.Wait()
				fail = false
				mustRead(t, c.Object("a", 1<<20), 0, 10)
				if st := c.Stats(); s.count() != 2 || st.Failed != 1 || st.BytesHeld != 1<<20 {
					t.Errorf("%d GETs, %+v", s.count(), st)
				}
			})
		})
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, &fakeStore{before: slow(time.Hour)}, Options{Timeout: 30 * time.Second})
		begin := time.Now()
		_, err := c.Object("a", 1<<20).ReadAt(make([]byte, 10), 0)
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// An outage is two lines in the log, not one for each read.
func TestOutageIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	var fail error
	s := &fakeStore{before: func(context.Context, string, int64) error { return fail }}
	c := open(t, s, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	o := c.Object("a", 1<<20)
	for _, fail = range []error{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, tiering.ErrNotFound, nil, tiering.ErrNotFound} {
		o.ReadAt(make([]byte, 1), 0)
		o.Discard(0, 1)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "answers again") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

func TestDiscard(t *testing.T) {
	s := &fakeStore{}
	c := open(t, s, Options{PieceBytes: kib, Bytes: 8 * kib, ReadAhead: -1})
	o := c.Object("a", 4*kib)
	mustRead(t, o, 0, 4*kib)
	mark := s.count()
	o.Discard(kib, kib+1)
	o.Discard(0, 0)
	c.Object("b", 4*kib).Discard(0, 4*kib)
	mustRead(t, o, 0, 4*kib)
	if got := s.since(mark); got != "a@1024 a@2048" && got != "a@2048 a@1024" {
		t.Errorf("GETs after Discard: %s", got)
	}
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &fakeStore{}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 8 * kib})
		mustRead(t, c.Object("b", kib), 0, kib)
		mustRead(t, c.Object("a", 4*kib), 0, 2*kib)
		s.before = until(gate)
		done := make(chan struct{})
		go func() {
			mustRead(t, c.Object("a", 4*kib), 3*kib, kib)
			close(done)
		}()
		synctest.Wait()
		c.Forget("a")
		c.Forget("nothing")
		close(gate)
		<-done
		if st := c.Stats(); st.BytesHeld != kib || st.Cancelled != 0 {
			t.Errorf("%+v", st)
		}
		if e := c.entries["a"]; e != nil {
			t.Errorf("left of a: %+v", e)
		}
	})
}

// The size belongs to the key: an Object of another size does not get its pieces.
func TestOtherSize(t *testing.T) {
	c := open(t, &fakeStore{}, Options{PieceBytes: kib, Bytes: 8 * kib})
	mustRead(t, c.Object("a", kib+1), 0, kib+1)
	mustRead(t, c.Object("a", 2*kib), 0, 2*kib)
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{before: slow(time.Hour)}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 4 * kib, Parallel: 2, Timeout: 2 * time.Hour})
		var readers sync.WaitGroup
		for i := range int64(5) {
			readers.Go(func() {
				if _, err := c.Object("a", 1<<20).ReadAt(make([]byte, 20*kib), i*10*kib); !errors.Is(err, ErrUnavailable) {
					t.Errorf("read while the cache is closed: %v", err)
				}
			})
		}
		synctest.Wait()
		c.Close()
		readers.Wait()
		c.Close()
		if _, err := c.Object("a", 1<<20).ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrUnavailable) {
			t.Errorf("read after Close: %v", err)
		}
		if n := s.count(); n != 2 {
			t.Errorf("%d GETs", n)
		}
	})
}

func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if o.Bytes != 64<<20 || o.PieceBytes != 1<<20 || o.Parallel != 8 || o.ReadAhead != 8 || o.Timeout != 30*time.Second || o.Logger == nil {
		t.Errorf("%+v", o)
	}
	o = Options{Bytes: 100, PieceBytes: 1000, Parallel: -1, ReadAhead: -1}.withDefaults()
	if o.Bytes != 100 || o.PieceBytes != 100 || o.Parallel != 8 || o.ReadAhead != 0 {
		t.Errorf("%+v", o)
	}
}
