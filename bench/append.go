package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// appendLoad measures durable appends in a closed loop: each connection sends its
// next append when the last one is acknowledged, to a stream chosen at random.
type appendLoad struct {
	connections, streams int
	payload              int // bytes
	json                 bool
	threads              int
	warmup, duration     time.Duration
}

func (a appendLoad) label() string {
	kind := ""
	if a.json {
		kind = " JSON"
	}
	return fmt.Sprintf("append %d × %d, %d B%s", a.connections, a.streams, a.payload, kind)
}

func (a appendLoad) run(s *server) ([]metric, error) {
	if s.protocol == staticFiles {
		return nil, errNotApplicable
	}
	contentType := binaryType
	if a.json {
		contentType = jsonType
	}
	if err := createStreams(s, a.streams, contentType); err != nil {
		return nil, err
	}
	template := appendRequest(s, contentType, payloadOf(a.payload, contentType))
	from := now() + int64(a.warmup)
	until := from + int64(a.duration)
	pumps := make([]*pump, max(1, min(a.threads, a.connections)))
	errs := make([]error, len(pumps))
	var wg sync.WaitGroup
	for i := range pumps {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		pumps[i] = &pump{
			server: s, template: template, from: from, until: until,
			next: func() (int, bool) { return rng.IntN(a.streams), now() < until },
		}
		conns := a.connections / len(pumps)
		if i < a.connections%len(pumps) {
			conns++
		}
		wg.Go(func() { errs[i] = pumps[i].run(conns) })
	}
	sleepUntil(from)
	before, err := s.cpu()
	if err != nil {
		return nil, err
	}
	sleepUntil(until)
	after, err := s.cpu()
	wg.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	sum := pumps[0]
	for _, p := range pumps[1:] {
		sum.latency.merge(&p.latency)
		sum.accepted += p.accepted
		sum.refused += p.refused
	}
	if sum.accepted == 0 {
		return nil, fmt.Errorf("no append was accepted: %s", sum.refusal)
	}
	rss, err := s.rss()
	return []metric{
		{"rate", "/s", float64(sum.accepted) / a.duration.Seconds()},
		{"p50", "ms", milliseconds(sum.latency.quantile(0.50))},
		{"p99", "ms", milliseconds(sum.latency.quantile(0.99))},
		{"cpu", "µs/append", float64((after - before).Microseconds()) / float64(sum.accepted)},
		{"rss", "MiB", mebibytes(rss)},
		{"refused", "", float64(sum.refused)},
	}, err
}

// sleepUntil waits for a time of now's clock.
func sleepUntil(t int64) { time.Sleep(time.Duration(t - now())) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
