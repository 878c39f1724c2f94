package engine_test

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
)

// BenchmarkAppendWhilePublishing appends 256 bytes once a millisecond, first with nothing
// beside it and then while snapshots are uploaded that share the disk with the log. It reports how
// long 99 of 100 appends take at most in each case, in µs, and by how much that grows;
// the time of an op is that of an upload.
func BenchmarkAppendWhilePublishing(b *testing.B) {
	const size, piece = 128 << 20, 1 << 20
	e, err := engine.Open(b.TempDir(), engine.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	create(b, e, "stream")
	quiet, busy := make(chan struct{}), make(chan struct{})
	alone, beside := make(chan []time.Duration), make(chan []time.Duration)
	go func() {
		alone <- appendUntil(b, e, quiet)
		beside <- appendUntil(b, e, busy)
	}()
	time.AfterFunc(3*time.Second, func() { close(quiet) })
	idle := <-alone

	content := make([]byte, piece)
	b.SetBytes(size)
	n := byte(0)
	for b.Loop() {
		n++
		content[0] = n // another blob each time
		publish(b, e, content, size/piece)
	}
	close(busy)
	under := <-beside
	p99, p99busy := quantile(idle, 0.99), quantile(under, 0.99)
	b.ReportMetric(float64(p99.Microseconds()), "µs-p99-alone")
	b.ReportMetric(float64(p99busy.Microseconds()), "µs-p99-beside")
	b.ReportMetric(float64(quantile(under, 0.5).Microseconds()), "µs-p50-beside")
	b.ReportMetric(float64(quantile(under, 0.999).Microseconds()), "µs-p999-beside")
	b.ReportMetric(float64(p99busy)/float64(p99), "times")
}

// appendUntil begins an append each millisecond until stop is closed, whether or not the
// ones before are through, and returns how long each took.
func appendUntil(b *testing.B, e *engine.Engine, stop chan struct{}) []time.Duration {
	body, ends, media := make([]byte, 256), []uint32{256}, []byte("text/plain")
	stream := e.Lookup([]byte("b"), []byte("stream"))
	var mu sync.Mutex
	var took []time.Duration
	var under sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			under.Wait()
			return took
		case <-tick.C:
		}
		begun := time.Now()
		op := &engine.Op{Stream: stream, Event: core.Event{Op: core.OpAppend, MediaType: media, HasBody: true, Body: body, Ends: ends}}
		under.Add(1)
		op.Done = func(op *engine.Op) {
			defer under.Done()
			if !op.Answer.Code.OK() {
				b.Errorf("append: %v", op.Answer.Code)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
		}
		if err := e.Submit(op); err != nil {
			under.Done()
			b.Error(err)
		}
	}
}

// publish uploads a blob of so many pieces and drops it.
func publish(b *testing.B, e *engine.Engine, piece []byte, pieces int) {
	w, err := e.Blobs().Create(int64(pieces * len(piece)))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Abort()
	for range pieces {
		if _, err := w.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	d, err := w.Commit()
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Blobs().Unpin(d, base.Millis(time.Now().UnixMilli())); err != nil {
		b.Error(err)
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[int(float64(len(all)-1)*q)]
}
