package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// coldLoad measures catch-up reads of what has left the local disk, against ranged GETs
// of as many bytes out of the same object store by the AWS SDK alone.
type coldLoad struct {
	size    int64 // of all streams, bytes
	streams int
	readers int // at once, each of one stream; and GETs at once of the SDK
	rounds  int
}

// The settings that make a server evict all that it may, and that it has while it is
// read: eviction needs a budget that is smaller than what is there.
var (
	evictAll = []string{"--memtable-bytes=1MiB", "--local-disk-budget=2MiB"}
	coldRead = []string{"--local-disk-budget=128MiB"}
)

// coldPatience bounds the waits for the tier.
const coldPatience = 10 * time.Minute

func (c coldLoad) label() string {
	return fmt.Sprintf("cold %d MiB, %d streams, %d readers", c.size>>20, c.streams, c.readers)
}

func (c coldLoad) run(s *server) ([]metric, error) {
	if s.cmd == nil || s.storePort == "" {
		return nil, errNotApplicable
	}
	if err := createStreams(s, c.streams, binaryType); err != nil {
		return nil, err
	}
	sums := make([]uint32, c.streams)
	for i := range sums {
		var err error
		if sums[i], err = fillStream(s, i, c.size/int64(c.streams), byte(i)); err != nil {
			return nil, err
		}
	}
	if _, err := s.awaitTier("all in the tier", coldPatience, protected); err != nil {
		return nil, err
	}
	given := s.flags
	defer func() { s.flags = given }()
	s.flags = append(append([]string{}, given...), evictAll...)
	if err := s.restart(); err != nil {
		return nil, err
	}
	evicted := func(st *tierStatus) bool {
		return protected(st) && st.LocalBytes <= c.size/50
	}
	st, err := s.awaitTier("evicted", coldPatience, evicted)
	if err != nil {
		return nil, err
	}
	s.flags = append(append([]string{}, given...), coldRead...)

	// Round by round, with the order changing.
	var cold, sdk, growth, gets float64
	for r := range c.rounds {
		for turn := range 2 {
			if (r+turn)%2 == 0 {
				took, grown, asked, err := c.read(s, sums)
				if err != nil {
					return nil, err
				}
				cold += took.Seconds()
				growth = max(growth, mebibytes(grown))
				gets += asked
				continue
			}
			rate, err := c.alone(s)
			if err != nil {
				return nil, err
			}
			sdk += mebibytes(c.bytes()) / rate
		}
	}
	total := mebibytes(c.bytes()) * float64(c.rounds)
	return []metric{
		{"rate", "MiB/s", total / cold},
		{"sdk", "MiB/s", total / sdk},
		{"ratio", "", sdk / cold},
		{"gets", "/MiB", gets / total},
		{"growth", "MiB", growth},
		{"local", "MiB", mebibytes(st.LocalBytes)},
	}, nil
}

// bytes is how many the readers of one round get.
func (c coldLoad) bytes() int64 { return int64(c.readers) * (c.size / int64(c.streams)) }

// read restarts the server, so that its cache is empty, and reads once. It returns how
// long that took, by how much the server's memory grew, and what it asked the store.
func (c coldLoad) read(s *server, sums []uint32) (took time.Duration, growth int64, gets float64, err error) {
	if err := s.restart(); err != nil {
		return 0, 0, 0, err
	}
	requests := make([]request, c.readers)
	for i := range requests {
		requests[i] = httpRequest(s, "GET", "?offset=-1", "", nil)
		requests[i].aim(i % c.streams)
	}
	memory, err := watchMemory(s.pid)
	if err != nil {
		return 0, 0, 0, err
	}
	all, took, err := fetch(s, requests...)
	growth, err2 := memory.growth()
	gets, err3 := s.counter("snakream_cold_gets_total")
	if err := errors.Join(err, err2, err3); err != nil {
		return 0, 0, 0, err
	}
	for i, f := range all {
		if f.sum != sums[i%c.streams] {
			return 0, 0, 0, errors.New("the bytes are not those that were appended")
		}
	}
	return took, growth, gets, nil
}

// alone reads as many bytes by the SDK alone and returns its MiB/s.
func (c coldLoad) alone(s *server) (rate float64, err error) {
	cmd := s.command("get", fmt.Sprintf("-bytes=%d", c.bytes()), fmt.Sprintf("-workers=%d", c.readers))
	cmd.Stdout, cmd.Stderr = nil, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("reading by the SDK alone: %w", err)
	}
	if _, err := fmt.Sscan(string(out), &rate); err != nil || rate <= 0 {
		return 0, fmt.Errorf("reading by the SDK alone: it said %q", out)
	}
	return rate, nil
}
