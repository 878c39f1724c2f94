package tiering

import (
	"context"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// Backoff is how long a loop waits before it tries again. The zero value is ready to
// use. It is for one goroutine.
type Backoff struct {
	Min time.Duration // ceiling of the first wait; 0 means 100 ms
	Max time.Duration // ceiling of all waits; 0 means 30 s

	ceiling time.Duration // of the next wait; 0 before the first
}

// Next returns how long to wait: a random duration above 0 and up to a ceiling that
// doubles at every call, so that many who failed at once don't come back at once.
func (b *Backoff) Next() time.Duration {
	now := b.now()
	b.ceiling = now + min(now, b.highest()-now) // doubled, up to highest, and never overflowing
	return 1 + rand.N(now)
}

// Again is Next, but leaves the ceiling as it is.
func (b *Backoff) Again() time.Duration { return 1 + rand.N(b.now()) }

// now returns the ceiling of the next wait.
func (b *Backoff) now() time.Duration {
	lowest := b.Min
	if lowest <= 0 {
		lowest = 100 * time.Millisecond
	}
	return min(max(b.ceiling, lowest), b.highest())
}

func (b *Backoff) highest() time.Duration {
	if b.Max <= 0 {
		return 30 * time.Second
	}
	return b.Max
}

// Reset begins anew, after a success.
func (b *Backoff) Reset() { b.ceiling = 0 }

// Bounds of the bytes that a Limiter lets through at once.
const (
	minBurst = 32 << 10
	maxBurst = 1 << 20
)

// Limiter is a bandwidth shared by all readers that it made. A nil Limiter is no limit.
// It is safe for concurrent use.
type Limiter struct {
	tokens *rate.Limiter // a token is a byte
}

// NewLimiter returns a limit of bytesPerSecond, or nil when that is 0 or less.
func NewLimiter(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	burst := min(max(bytesPerSecond/8, minBurst), maxBurst)
	return &Limiter{tokens: rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// Reader returns r slowed down to the limit. Its reads fail with the context's error
// when ctx ends first.
func (l *Limiter) Reader(ctx context.Context, r io.ReaderAt) io.ReaderAt {
	if l == nil {
		return r
	}
	return &limitedReader{ctx: ctx, r: r, tokens: l.tokens}
}

// Unlimited returns what r reads from, without the limit of the Limiter that made it:
// for a pass over the bytes that sends nothing, such as hashing them.
func Unlimited(r io.ReaderAt) io.ReaderAt {
	if l, ok := r.(*limitedReader); ok {
		return Unlimited(l.r)
	}
	return r
}

type limitedReader struct {
	ctx    context.Context
	r      io.ReaderAt
	tokens *rate.Limiter
}

// ReadAt implements io.ReaderAt.
func (l *limitedReader) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		chunk := p[done:min(len(p), done+l.tokens.Burst())]
		if err := l.tokens.WaitN(l.ctx, len(chunk)); err != nil {
			return done, err
		}
		n, err := l.r.ReadAt(chunk, off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
