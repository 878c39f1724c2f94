package core

import (
	"fmt"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

func BenchmarkAppend(b *testing.B) {
	for _, producers := range []int{0, 1, 4096} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			h := Restore(9, &record.Config{MediaType: "text/plain", TTL: -1}, record.State{})
			for i := range producers {
				h.AddProducer(fmt.Sprint("p", i), &record.ProducerState{})
			}
			ev := &Event{Op: OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: make([]byte, 256), Ends: []uint32{256}}
			ev.Producer.ID, ev.Producer.Set = []byte("p0"), producers > 0
			env := &Env{Settings: &Settings{MaxProducers: 4096, MaxState: 1 << 30}}
			var rec record.Record
			var a Answer
			var eff Effects
			b.ReportAllocs()
			for b.Loop() {
				env.Now++
				ev.Producer.Seq++
				if !Decide(h, ev, env, &rec, &a) {
					b.Fatal(codeNames[a.Code])
				}
				if _, err := Apply(h, &rec, &eff); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A full stream that turns new producers away must not look at each of the others
// every time.
func BenchmarkTooManyProducers(b *testing.B) {
	h := Restore(9, &record.Config{MediaType: "text/plain", TTL: -1}, record.State{})
	for i := range 4096 {
		h.AddProducer(fmt.Sprint("p", i), &record.ProducerState{At: base.Millis(i)})
	}
	ev := &Event{Op: OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: make([]byte, 256), Ends: []uint32{256}}
	ev.Producer = producer("new", 0, 0)
	env := &Env{Settings: &Settings{MaxProducers: 4096, MaxState: 1 << 30, ProducerIdle: 1 << 40}, Now: 5000}
	var rec record.Record
	var a Answer
	for b.Loop() {
		if Decide(h, ev, env, &rec, &a) || a.Code != TooManyProducers {
			b.Fatal(codeNames[a.Code])
		}
	}
}
