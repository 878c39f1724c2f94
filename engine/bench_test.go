package engine_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
)

// BenchmarkAppend keeps a number of appends of 256 bytes under way, each on the
// stream that the last one was not on.
func BenchmarkAppend(b *testing.B) {
	for _, shape := range []struct{ under, streams int }{{1, 1}, {64, 1}, {64, 1000}, {256, 1000}, {256, 100000}} {
		b.Run(fmt.Sprintf("underway=%d/streams=%d", shape.under, shape.streams), func(b *testing.B) {
			e, err := engine.Open(b.TempDir(), engine.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			streams := make([]*engine.Stream, shape.streams)
			for i := range streams {
				name := fmt.Sprint("stream-", i)
				if i%500 == 0 || shape.streams < 10000 {
					create(b, e, name)
				} else {
					op := &engine.Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}}
					op.Done = func(*engine.Op) {}
					if err := e.Submit(op); err != nil {
						b.Fatal(err)
					}
				}
			}
			create(b, e, "last")
			for i := range streams {
				streams[i] = e.Lookup([]byte("b"), fmt.Append(nil, "stream-", i))
			}
			body, ends, media := make([]byte, 256), []uint32{256}, []byte("text/plain")
			done := make(chan *engine.Op, shape.under)
			for range shape.under {
				op := &engine.Op{Event: core.Event{Op: core.OpAppend, MediaType: media, HasBody: true, Body: body, Ends: ends}}
				op.Done = func(o *engine.Op) { done <- o }
				done <- op
			}
			b.ReportAllocs()
			b.SetBytes(256)
			i := 0
			for b.Loop() {
				op := <-done
				op.Stream = streams[i%len(streams)]
				i++
				if err := e.Submit(op); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
