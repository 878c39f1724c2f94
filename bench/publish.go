package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// publishLoad measures what appends notice of snapshots that are published one after
// the other in the same shard, and the memory that publishing takes.
type publishLoad struct {
	snapshot         int // bytes
	streams          int // that are appended to
	payload          int // of an append, bytes
	gap              time.Duration
	warmup, duration time.Duration // duration: of each of the two phases
}

// The streams of this scenario: the snapshots' own, and behind it those of the appends.
const (
	published  = 0
	firstPaced = 1
)

// oneShard sees to it that all streams are of the same shard.
var oneShard = list{"snakream=--shards=1"}

func (p publishLoad) label() string {
	return fmt.Sprintf("publish %d MiB, an append every %v", p.snapshot>>20, p.gap)
}

func (p publishLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	// One for the appends, which hold theirs while they wait.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.NumCPU(), 3)))
	if err := createStreams(s, firstPaced+p.streams, binaryType); err != nil {
		return nil, err
	}
	// Random, and each snapshot differs: the same bytes would be stored only once.
	body := make([]byte, max(p.snapshot, 8))
	rand.NewChaCha8([32]byte{4}).Read(body)
	load := func(d time.Duration) (*paced, error) {
		l := &paced{server: s, streams: p.streams, payload: p.payload, gap: p.gap}
		return l, l.run(d)
	}
	// A small snapshot makes the server's code for it resident.
	if err := publish(s, body[:8], 0); err != nil {
		return nil, err
	}
	if _, err := load(p.warmup); err != nil {
		return nil, err
	}
	quiet, err := load(p.duration)
	if err != nil {
		return nil, err
	}

	memory, err := watchMemory(s.pid)
	if err != nil {
		return nil, err
	}
	began := now()
	stop := make(chan struct{})
	done := make(chan error, 1)
	n := 0
	go func() { // ends with the snapshot during which stop is closed
		for {
			n++
			if err := publish(s, body, uint64(n)); err != nil {
				done <- err
				return
			}
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	busy, err := load(p.duration)
	close(stop)
	err = errors.Join(err, <-done)
	took := time.Duration(now() - began)
	growth, err2 := memory.growth()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	before, during := quiet.latency.quantile(0.99), busy.latency.quantile(0.99)
	return []metric{
		{"p99", "ms", milliseconds(during)},
		{"quiet p99", "ms", milliseconds(before)},
		{"ratio", "", float64(during) / float64(before)},
		{"p50", "ms", milliseconds(busy.latency.quantile(0.50))},
		{"quiet p50", "ms", milliseconds(quiet.latency.quantile(0.50))},
		{"growth", "MiB", mebibytes(growth)},
		{"snapshots", "MiB/s", mebibytes(int64(n)*int64(len(body))) / took.Seconds()},
		{"number", "", float64(n)},
	}, nil
}

// publish makes body, of which the beginning becomes the number, the snapshot of all
// that its stream holds after one more append.
func publish(s *server, body []byte, number uint64) error {
	binary.BigEndian.PutUint64(body, number)
	head, _, err := call("POST", s.v1(published), binaryType, []byte("x"))
	if err != nil {
		return err
	}
	if _, _, err := call("PUT", s.ds(published)+"/snapshot/"+head.Get("Stream-Next-Offset"), binaryType, body); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
}
