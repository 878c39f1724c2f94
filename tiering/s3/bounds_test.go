package s3

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowSource takes a while for each read.
type slowSource time.Duration

// ReadAt implements io.ReaderAt.
func (s slowSource) ReadAt(p []byte, _ int64) (int, error) {
	<-time.After(time.Duration(s))
	return len(p), nil
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		s.o.Bucket = "b"
		s.o.attempts, s.o.maxBackoff = 2, time.Second
		s.o.ConnectTimeout, s.o.ResponseTimeout, s.o.MinBytesPerSecond = time.Second, 3*time.Second, 100
		const want = 2*(1+3+1)*time.Second + 7*time.Second // the attempts, and 700 bytes

		start := time.Now()
		ctx, d := s.bounded(t.Context(), 700)
		defer d.stop()
		<-ctx.Done()
		if took := time.Since(start); took != want || !errors.Is(context.Cause(ctx), errTooSlow) {
			t.Errorf("ended after %v, not %v, by %v", took, want, context.Cause(ctx))
		}
		d.putOff(time.Hour) // too late

		// A body that takes an hour to read is waited for.
		start = time.Now()
		ctx, d = s.bounded(t.Context(), 700)
		defer d.stop()
		slow := patientReader{slowSource(time.Second), d}
		for range 3600 {
			if _, err := slow.ReadAt(make([]byte, 1), 0); err != nil || ctx.Err() != nil {
				t.Fatal(err, context.Cause(ctx))
			}
		}
		<-ctx.Done()
		if took := time.Since(start); took != time.Hour+want {
			t.Errorf("ended after %v, not an hour later than %v", took, want)
		}
	})
}
