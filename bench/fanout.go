package main

import (
	"errors"
	"fmt"
	"time"
)

// fanoutLoad measures delivery to live readers: events come at an even pace, whatever
// the server does, and the latency of each delivery runs from just before its POST is
// written to the moment when the reader has parsed it.
type fanoutLoad struct {
	mode             string
	readers, streams int
	rate             int // events a second, over all streams
	payload          int
	warmup, duration time.Duration
}

// writeConns is how many connections carry the events.
const writeConns = 16

// grace is how long a run waits for what is still missing at its end.
const grace = 5 * time.Second

func (f fanoutLoad) label() string {
	return fmt.Sprintf("fan-out %s %d × %d, %d/s", f.mode, f.readers, f.streams, f.rate)
}

func (f fanoutLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	if err := createStreams(s, f.streams, textType); err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	defer l.close()
	var latency histogram
	from, delivered := int64(0), 0
	c := &crowd{server: s, mode: f.mode, loop: l, arrived: func(t int64) {
		if t >= from {
			latency.add(now() - t)
			delivered++
		}
	}}
	w, err := newWriter(s, l, f.payload, writeConns)
	if err != nil {
		return nil, err
	}
	if err := gather(c, f.readers, f.streams); err != nil {
		return nil, err
	}

	start := now()
	from = start + int64(f.warmup)
	until := from + int64(f.duration)
	gap := int64(time.Second) / int64(f.rate)
	expected := 0
	var before time.Duration
	for i, due := 0, start; due < until; i, due = i+1, due+gap {
		if before == 0 && due >= from {
			if before, err = s.cpu(); err != nil {
				return nil, err
			}
		}
		if err := pollUntil(c, w, due); err != nil {
			return nil, err
		}
		stream := i % f.streams
		if now() >= from {
			expected += f.readers / f.streams
			if stream < f.readers%f.streams {
				expected++
			}
		}
		if err := w.append(stream); err != nil {
			return nil, err
		}
	}
	for deadline := now() + int64(grace); (delivered < expected || w.unacked > 0) && now() < deadline; {
		if err := pollUntil(c, w, now()+int64(time.Millisecond)); err != nil {
			return nil, err
		}
	}
	after, err := s.cpu()
	if err != nil {
		return nil, err
	}
	if delivered != expected {
		return nil, fmt.Errorf("%d deliveries of %d", delivered, expected)
	}
	rss, err := s.rss()
	return []metric{
		{"p50", "ms", milliseconds(latency.quantile(0.50))},
		{"p99", "ms", milliseconds(latency.quantile(0.99))},
		{"max", "ms", milliseconds(time.Duration(latency.max))},
		{"cpu", "µs/delivery", float64((after - before).Microseconds()) / float64(delivered)},
		{"rss", "MiB", mebibytes(rss)},
	}, err
}

// gather opens the readers and waits until the server has them all.
func gather(c *crowd, readers, streams int) error {
	if err := c.join(readers, streams); err != nil {
		return err
	}
	deadline := now() + int64(time.Minute)
	for c.ready < readers && c.err == nil && now() < deadline {
		if err := c.loop.poll(maxWait); err != nil {
			return err
		}
	}
	if c.err == nil && c.ready < readers {
		return fmt.Errorf("only %d of %d readers are connected", c.ready, readers)
	}
	// A parked long-poll gives no sign: allow for the last requests to arrive.
	return pollUntil(c, nil, now()+int64(500*time.Millisecond))
}

// pollUntil handles what arrives until a time of now's clock.
func pollUntil(c *crowd, w *writer, t int64) error {
	for {
		if err := c.loop.poll(time.Duration(max(t-now(), 0))); err != nil {
			return err
		}
		if err := c.err; err != nil {
			return err
		}
		if w != nil && w.err != nil {
			return w.err
		}
		if now() >= t {
			return nil
		}
	}
}

// parkLoad measures what waiting readers cost, and how fast all of them wake.
type parkLoad struct {
	mode             string
	readers, streams int
	settle, idle     time.Duration // before memory is read; over which idle CPU is measured
}

func (p parkLoad) label() string {
	return fmt.Sprintf("park %d %s × %d", p.readers, p.mode, p.streams)
}

func (p parkLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	if err := createStreams(s, p.streams, textType); err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	defer l.close()
	awake := 0
	c := &crowd{server: s, mode: p.mode, loop: l, arrived: func(int64) { awake++ }}
	w, err := newWriter(s, l, 64, writeConns)
	if err != nil {
		return nil, err
	}
	if err := pollUntil(c, w, now()+int64(p.settle)); err != nil {
		return nil, err
	}
	base, err := s.rss()
	if err != nil {
		return nil, err
	}
	if err := gather(c, p.readers, p.streams); err != nil {
		return nil, err
	}
	if err := pollUntil(c, w, now()+int64(p.settle)); err != nil {
		return nil, err
	}
	parked, err := s.rss()
	if err != nil {
		return nil, err
	}
	polls, ended := c.polls, c.ended
	before, err := s.cpu()
	if err != nil {
		return nil, err
	}
	if err := pollUntil(c, w, now()+int64(p.idle)); err != nil {
		return nil, err
	}
	after, err := s.cpu()
	if err != nil {
		return nil, err
	}
	began := now()
	for i := range p.streams {
		if err := w.append(i); err != nil {
			return nil, err
		}
	}
	for deadline := began + int64(time.Minute); awake < p.readers && now() < deadline; {
		if err := errors.Join(c.loop.poll(maxWait), c.err, w.err); err != nil {
			return nil, err
		}
	}
	woke := time.Duration(now() - began)
	if awake != p.readers {
		return nil, fmt.Errorf("%d of %d readers woke", awake, p.readers)
	}
	return []metric{
		{"rss", "KiB/reader", float64(parked-base) / 1024 / float64(p.readers)},
		{"idle", "% of a core", 100 * float64(after-before) / float64(p.idle)},
		{"wake", "ms", milliseconds(woke)},
		{"renewed", "", float64(c.polls - polls + c.ended - ended)},
	}, nil
}
