package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// recoverLoad measures how long a server that was killed takes until it is ready,
// and checks that what it had acknowledged is there.
type recoverLoad struct {
	streams, appends int
	payload          int
	connections      int
	note             string // what is special about the settings
}

// checkedStreams is how many streams are looked at after the restart.
const checkedStreams = 1000

func (r recoverLoad) label() string {
	l := fmt.Sprintf("recover %d appends × %d", r.appends, r.streams)
	if r.note != "" {
		l += " (" + r.note + ")"
	}
	return l
}

func (r recoverLoad) run(s *server) ([]metric, error) {
	if s.protocol == staticFiles {
		return nil, errNotApplicable
	}
	if err := createStreams(s, r.streams, binaryType); err != nil {
		return nil, err
	}
	sent := 0
	acked := make([]int, r.streams)
	p := &pump{
		server: s, strict: true,
		template: appendRequest(s, binaryType, payloadOf(r.payload, binaryType)),
		next: func() (int, bool) {
			sent++
			return (sent - 1) % r.streams, sent <= r.appends
		},
		acked: func(i int) { acked[i]++ },
	}
	if err := p.run(r.connections); err != nil {
		return nil, fmt.Errorf("filling: %w", err)
	}
	disk := s.diskBytes()
	if err := s.kill(); err != nil {
		return nil, err
	}
	began := now()
	if err := s.start(); err != nil {
		return nil, err
	}
	if err := s.awaitReady(); err != nil {
		return nil, err
	}
	ready := time.Duration(now() - began)
	rss, err := s.rss()
	if err != nil {
		return nil, err
	}
	if s.protocol == durableStreams {
		if err := r.check(s, acked); err != nil {
			return nil, err
		}
	}
	return []metric{
		{"ready", "s", ready.Seconds()},
		{"disk", "MiB", mebibytes(disk)},
		{"rss", "MiB", mebibytes(rss)},
	}, nil
}

// check reads some streams back and compares their length with what was acknowledged.
func (r recoverLoad) check(s *server, acked []int) error {
	return checkSome(s, r.streams, func(i int, body []byte) error {
		if want := bytes.Repeat([]byte{'x'}, acked[i]*r.payload); !bytes.Equal(body, want) {
			return fmt.Errorf("stream %d holds %d bytes after the restart, of %d acknowledged ones", i, len(body), len(want))
		}
		return nil
	})
}

// checkSome reads streams out of the first n and gives each whole one to check.
func checkSome(s *server, n int, check func(i int, body []byte) error) error {
	rng := rand.New(rand.NewPCG(1, 2))
	left := min(checkedStreams, n)
	p := &pump{
		server: s, strict: true,
		template: httpRequest(s, "GET", "?offset=-1", "", nil),
		next:     func() (int, bool) { left--; return rng.IntN(n), left >= 0 },
		check:    check,
	}
	return p.run(16)
}

// idleLoad measures the memory that streams take which nobody uses.
type idleLoad struct {
	streams int
	appends int // to each stream
	payload int
	settle  time.Duration
}

func (i idleLoad) label() string { return "idle " + strconv.Itoa(i.streams) + " streams" }

func (i idleLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	time.Sleep(i.settle)
	base, err := s.rss()
	if err != nil {
		return nil, err
	}
	if err := createStreams(s, i.streams, binaryType); err != nil {
		return nil, err
	}
	sent := 0
	p := &pump{
		server: s, strict: true,
		template: appendRequest(s, binaryType, payloadOf(i.payload, binaryType)),
		next: func() (int, bool) {
			sent++
			return (sent - 1) % i.streams, sent <= i.streams*i.appends
		},
	}
	if err := p.run(createConns); err != nil {
		return nil, fmt.Errorf("filling: %w", err)
	}
	time.Sleep(i.settle)
	rss, err := s.rss()
	before, err2 := s.cpu()
	time.Sleep(i.settle)
	after, err3 := s.cpu()
	return []metric{
		{"rss", "B/stream", float64(rss-base) / float64(i.streams)},
		{"idle", "% of a core", 100 * float64(after-before) / float64(i.settle)},
		{"total", "MiB", mebibytes(rss)},
	}, errors.Join(err, err2, err3)
}
