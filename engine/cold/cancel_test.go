package cold

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// readInto starts a read and returns what it will end with.
func readInto(ctx context.Context, o *Object, off int64, n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := o.ReadContext(ctx, make([]byte, n), off)
		done <- err
	}()
	return done
}

// A GET that nobody waits for any more is cancelled, and its memory comes back.
func TestAbandonedFetchIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan string, 10)
		s := &fakeStore{}
		s.before = func(ctx context.Context, key string, _ int64) error {
			<-ctx.Done()
			cancelled <- key
			return ctx.Err()
		}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 8 * kib, Parallel: 2})
		ctx, cancel := context.WithCancel(t.Context())
		done := readInto(ctx, c.Object("a", 1<<20), 0, 4*kib)
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("the read ended with %v", err)
		}
		synctest.Wait()
		if len(cancelled) != 2 || s.count() != 2 {
			t.Errorf("%d of %d GETs cancelled: those in the queue are not to begin", len(cancelled), s.count())
		}
		if st := c.Stats(); st.Cancelled != 2 || st.Failed != 0 || st.BytesHeld != 0 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
		check(t, c)
	})
}

// One reader's cancellation is not another's: neither of one that waits already, nor
// of one that comes while the cancelled GET has not returned yet.
func TestCancellationIsOfOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		c := open(t, s, Options{})
		o := c.Object("a", 1<<20)

		s.before = slow(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := readInto(ctx, o, 0, 10), readInto(t.Context(), o, 0, 10)
		synctest.Wait()
		cancel()
		if err := <-leaves; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		if err := <-stays; err != nil || s.count() != 1 {
			t.Errorf("who stayed got %v after %d GETs", err, s.count())
		}

		o.Discard(0, 10)
		gate := make(chan struct{})
		s.before = func(ctx context.Context, _ string, _ int64) error {
			if s.count() == 2 {
				<-ctx.Done()
				<-gate // it is slow to notice
				return ctx.Err()
			}
			return nil
		}
		ctx, cancel = context.WithCancel(t.Context())
		leaves = readInto(ctx, o, 0, 10)
		synctest.Wait()
		cancel()
		<-leaves
		comes := readInto(t.Context(), o, 0, 10)
		if err := <-comes; err != nil || s.count() != 3 {
			t.Errorf("who came after got %v after %d GETs", err, s.count())
		}
		close(gate)
	})
}

// A context that has ended before reads nothing, not even what is held.
func TestEndedContext(t *testing.T) {
	c := open(t, &fakeStore{}, Options{})
	o := c.Object("a", 1<<20)
	mustRead(t, o, 0, 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := o.ReadContext(ctx, make([]byte, 10), 0); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// steps reads n pieces one after the other, each with a call.
func steps(t *testing.T, o *Object, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		mustRead(t, o, int64(i)*o.c.o.PieceBytes, int(o.c.o.PieceBytes))
	}
}

// A sequential reader finds its next pieces there: it reads as fast as all GETs at
// once give bytes, though it asks for one piece at a time.
func TestReadAheadKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces, parallel, each = 512, 8, 100 * time.Millisecond
		s := &fakeStore{before: slow(each)}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 64 * kib, Parallel: parallel})
		begin := time.Now()
		steps(t, c.Object("a", pieces*kib), 0, pieces)
		if took, best := time.Since(begin), pieces/parallel*each; took > best*115/100 {
			t.Errorf("took %v, the GETs alone %v", took, best)
		}
		if n := s.count(); n != pieces {
			t.Errorf("%d GETs for %d pieces", n, pieces)
		}
	})
}

// Steps that overlap at a block, or come in small parts, are sequential too.
func TestReadAheadOfUnevenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		c := open(t, s, Options{PieceBytes: 16 * kib, Bytes: 256 * kib, Parallel: 8})
		o := c.Object("a", 1<<20)
		for off := int64(100); off < 100*kib; off += 3 * kib {
			mustRead(t, o, off-off%kib, 4*kib)
			synctest.Wait()
		}
		if st := c.Stats(); st.Ahead < 6 || st.Misses > 4 {
			t.Errorf("%+v", st)
		}
	})
}

// Reads here and there, and a short run of them, fetch nothing ahead.
func TestNoReadAheadOfOthers(t *testing.T) {
	s := &fakeStore{}
	c := open(t, s, Options{PieceBytes: 16 * kib, Bytes: 256 * kib})
	o := c.Object("a", 1<<30)
	for i := range int64(100) {
		mustRead(t, o, i*7919*kib%(1<<29), 2*kib)
	}
	for i := range int64(4) {
		mustRead(t, o, 1<<29+i*2*kib, 2*kib)
	}
	if st := c.Stats(); st.Ahead != 0 {
		t.Errorf("%+v", st)
	}
}

// What is fetched ahead goes on between the steps of its reader, and is given up when
// the reader has gone: when its context ended, and when it did not come back.
func TestReadAheadEndsWithItsReader(t *testing.T) {
	for _, how := range []string{"context", "idle"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{}
				c := open(t, s, Options{PieceBytes: kib, Bytes: 64 * kib, Parallel: 4, Timeout: time.Hour})
				o := c.Object("a", 1<<20)
				steps(t, o, 0, 8)
				synctest.Wait()
				s.before = slow(time.Hour - time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				steps(t, o, 8, 6) // up to what is there already
				synctest.Wait()
				if st := c.Stats(); st.InFlight != 3 || st.Cancelled != 0 {
					t.Fatalf("while the reader is away for a moment: %+v", st)
				}
				mark := s.count()
				if how == "context" {
					done := readInto(ctx, o, 14*kib, 8*kib)
					synctest.Wait()
					cancel()
					<-done
				} else {
					time.Sleep(runIdle - time.Millisecond)
					synctest.Wait()
					if st := c.Stats(); st.Cancelled != 0 {
						t.Errorf("too early: %+v", st)
					}
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if st := c.Stats(); st.InFlight != 0 || c.aheads != 0 || len(c.entries["a"].runs) != 0 {
					t.Errorf("%d ahead, GETs %s, %+v", c.aheads, s.since(mark), st)
				}
			})
		})
	}
}

// Ahead of readers at most half of the memory and all but one of the GETs are used, and
// what readers wait for comes first.
func TestReadAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 16 * kib, Parallel: 4, ReadAhead: 6})
		for _, key := range []string{"a", "b", "c", "d"} {
			steps(t, c.Object(key, 1<<20), 0, 8)
			synctest.Wait()
			check(t, c)
		}
		if c.aheads < 5 { // of 8; what was evicted meanwhile may be asked for again
			t.Errorf("%d pieces ahead", c.aheads)
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			c.Forget(key)
		}
		steps(t, c.Object("e", 1<<20), 0, 8)
		synctest.Wait()
		s.before = slow(time.Second)
		steps(t, c.Object("e", 1<<20), 8, 6) // they are there; more is asked for
		synctest.Wait()
		if n := c.aheadGets.n; n != 3 {
			t.Fatalf("%d GETs ahead", n)
		}
		begin := time.Now()
		mustRead(t, c.Object("f", 1<<20), 0, kib)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("a reader waited %v behind what is fetched ahead", took)
		}
	})
}

// When memory is short, GETs ahead are given up in favour of a reader.
func TestReadAheadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 4 * kib, Parallel: 4, Timeout: time.Hour})
		steps(t, c.Object("a", 1<<20), 0, 2)
		synctest.Wait()
		s.before = func(ctx context.Context, key string, _ int64) error {
			if key == "b" {
				return nil
			}
			return slow(time.Hour-1)(ctx, key, 0)
		}
		steps(t, c.Object("a", 1<<20), 2, 1)
		synctest.Wait()
		if n := c.aheadGets.n; n != 2 {
			t.Fatalf("%d GETs ahead", n)
		}
		begin := time.Now()
		mustRead(t, c.Object("b", 1<<20), 0, 4*kib)
		if st := c.Stats(); time.Since(begin) > 0 {
			t.Errorf("took %v, %+v", time.Since(begin), st)
		}
	})
}

// The one that was used longest ago goes first.
func TestEviction(t *testing.T) {
	s := &fakeStore{}
	c := open(t, s, Options{PieceBytes: kib, Bytes: 3 * kib, ReadAhead: -1})
	for _, key := range []string{"a", "b", "c", "a", "d", "a", "c"} {
		mustRead(t, c.Object(key, kib), 0, kib)
	}
	mark := s.count()
	mustRead(t, c.Object("b", kib), 0, kib)
	mustRead(t, c.Object("c", kib), 0, kib)
	mustRead(t, c.Object("a", kib), 0, kib)
	if got := s.since(0); mark != 4 || got != "a@0 b@0 c@0 d@0 b@0" {
		t.Errorf("GETs: %s", got)
	}
}

// The memory is bounded whatever readers do, and all of them come to an end: with room
// for one piece only, for a few, and of odd sizes.
func TestBound(t *testing.T) {
	for _, o := range []Options{
		{PieceBytes: kib, Bytes: kib},
		{PieceBytes: kib, Bytes: 2*kib + 1},
		{PieceBytes: kib, Bytes: 5 * kib, Parallel: 3},
		{PieceBytes: kib, Bytes: 40 * kib, Parallel: 16, ReadAhead: 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeStore{}
			c := open(t, s, o)
			s.before = func(ctx context.Context, _ string, off int64) error {
				check(t, c)
				return slow(time.Duration(1+off%7)*time.Millisecond)(ctx, "", 0)
			}
			var readers sync.WaitGroup
			for i := range 30 {
				readers.Go(func() {
					o := c.Object(string(rune('a'+i%5)), 40*kib+int64(i%5)*100)
					for j := range int64(6) {
						mustRead(t, o, (int64(i)*777+j*6*kib)%(20*kib), 17*kib)
					}
				})
			}
			readers.Wait()
			if st := c.Stats(); st.BytesHeld > c.o.Bytes {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Two readers that have got what the other one needs room for: one gives up what it is
// not at yet, and fetches it again.
func TestCrossedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{before: slow(time.Millisecond)}
		c := open(t, s, Options{PieceBytes: kib, Bytes: 2 * kib, Parallel: 1})
		var readers sync.WaitGroup
		for i := range int64(20) {
			readers.Go(func() { mustRead(t, c.Object("a", 100*kib), (19-i)*kib/2, 5*kib) })
		}
		readers.Wait()
	})
}
