package s3

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// errTooSlow is the cause for which a call of ours ends by itself.
var errTooSlow = errors.New("given up: it took longer than its size explains")

// deadline ends a call that takes too long. It may be put off while the call runs.
type deadline struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
}

// bounded returns a context that ends when a call that transfers size bytes has taken
// as long as all its attempts and the lowest rate allow. stop must be called at the end.
func (s *Store) bounded(ctx context.Context, size int64) (context.Context, *deadline) {
	attempt := s.o.ConnectTimeout + s.o.ResponseTimeout + s.o.maxBackoff
	limit := time.Duration(s.o.attempts)*attempt + time.Duration(float64(size)/float64(s.o.MinBytesPerSecond)*float64(time.Second))
	ctx, cancel := context.WithCancelCause(ctx)
	d := &deadline{cancel: cancel, at: time.Now().Add(limit)}
	d.timer = time.AfterFunc(limit, func() { cancel(errTooSlow) })
	return ctx, d
}

// putOff gives the call that much more time, unless it has ended.
func (d *deadline) putOff(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer.Stop() {
		d.at = d.at.Add(by)
		d.timer.Reset(time.Until(d.at))
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
	d.cancel(nil)
}

// patientReader puts a deadline off by the time that reading takes: a body that comes
// slowly, because of a bandwidth limit or a slow disk, says nothing about the provider.
type patientReader struct {
	r io.ReaderAt
	d *deadline
}

// ReadAt implements io.ReaderAt.
func (p patientReader) ReadAt(b []byte, off int64) (int, error) {
	start := time.Now()
	n, err := p.r.ReadAt(b, off)
	if took := time.Since(start); took > time.Millisecond {
		p.d.putOff(took)
	}
	return n, err
}
