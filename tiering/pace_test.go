package tiering

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for range 2 {
		for i, ceiling := range []time.Duration{10, 20, 40, 80, 100, 100, 100} {
			if got := b.Next(); got <= 0 || got > ceiling*time.Millisecond {
				t.Errorf("wait %d is %v, not up to %v ms", i, got, int64(ceiling))
			}
		}
		b.Reset()
	}
	var sum time.Duration
	for range 1000 {
		sum += b.Next()
	}
	if mean := sum / 1000; mean < 40*time.Millisecond || mean > 60*time.Millisecond {
		t.Errorf("waits under 100 ms are %v on average", mean)
	}
	zero := Backoff{}
	if got := zero.Next(); got <= 0 || got > 100*time.Millisecond {
		t.Errorf("the zero value waits %v at first", got)
	}
	huge := Backoff{Min: 1 << 62, Max: 1<<63 - 1}
	for range 3 {
		if got := huge.Next(); got <= 0 {
			t.Errorf("an overflow: %v", got)
		}
	}
	narrow := Backoff{Min: time.Hour, Max: time.Second}
	for range 3 {
		if got := narrow.Next(); got <= 0 || got > time.Second {
			t.Errorf("%v is above the maximum", got)
		}
	}
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, size = 100_000, 1_000_000
		data := bytes.Repeat([]byte("0123456789"), size/10)
		l := NewLimiter(rate)
		start := time.Now()
		// Two readers share the limit.
		results := make(chan error, 2)
		for half := range int64(2) {
			go func() {
				r := io.NewSectionReader(l.Reader(t.Context(), bytes.NewReader(data)), half*size/2, size/2)
				got, err := io.ReadAll(r)
				if err == nil && !bytes.Equal(got, data[half*size/2:][:size/2]) {
					err = errors.New("other bytes")
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d bytes at %d a second took %v", size, rate, took)
		}
	})
}

func TestLimiterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := NewLimiter(1).Reader(ctx, bytes.NewReader(make([]byte, 1<<20)))
		time.AfterFunc(time.Second, cancel)
		n, err := r.ReadAt(make([]byte, 1<<20), 0)
		if !errors.Is(err, context.Canceled) || n == 1<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

func TestNoLimit(t *testing.T) {
	source := bytes.NewReader([]byte("data"))
	for _, rate := range []int64{0, -1} {
		if r := NewLimiter(rate).Reader(t.Context(), source); r != source {
			t.Errorf("a limit of %d is one", rate)
		}
	}
	limited := NewLimiter(10).Reader(t.Context(), NewLimiter(20).Reader(t.Context(), source))
	if limited == source || Unlimited(limited) != source || Unlimited(source) != source {
		t.Error("what a limited reader reads from isn't found")
	}
	got := make([]byte, 10)
	if n, err := limited.ReadAt(got, 1); n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v, beyond the end", n, err)
	}
}

// Again waits as Next would, as often as it is called.
func TestBackoffAgain(t *testing.T) {
	b := Backoff{Min: time.Second, Max: time.Minute}
	b.Next()
	longest := time.Duration(0)
	for range 1000 {
		d := b.Again()
		if d <= 0 || d > 2*time.Second {
			t.Fatalf("it waits for %v", d)
		}
		longest = max(longest, d)
	}
	if longest < time.Second {
		t.Errorf("it never waits for more than %v", longest)
	}
	if d := b.Next(); d > 2*time.Second {
		t.Errorf("then Next waits for %v", d)
	}
}
