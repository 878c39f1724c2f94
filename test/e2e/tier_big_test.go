//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What the test of much data is about, and the bounds that must hold. The sum of all
// that may be in memory with these settings is about 150 MiB: two memtables of 16 MiB for
// each of two shards, 32 MiB of the cold cache, bodies, pages of readers, 10,000 heads, and
// what the collector lets go late. The 2 GiB are eight times the bound.
const (
	bigBytes     = 2 << 30
	bigStreams   = 10_000
	bigRounds    = 3
	bigChunk     = bigBytes/bigStreams/bigRounds + 1 // of an append
	bigBudget    = 256 << 20
	bigMemory    = 256 << 20
	bigWorkers   = 16
	bigSnapshots = 50 // every so manieth stream has a snapshot, before its last append
)

// noise is what the streams hold: each begins at another place in it, so that nothing
// that was written has to be kept.
var noise = sync.OnceValue(func() string {
	b := make([]byte, noisePeriod)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b) + string(b[:1<<20])
})

const noisePeriod = 4 << 20

// noiseAt returns n bytes of a stream's content, at most 1 MiB, from an offset on.
func noiseAt(stream, offset, n int) string {
	at := (stream*7919 + offset) % noisePeriod
	return noise()[at : at+n]
}

func bigName(i int) string { return "big/s" + strconv.Itoa(i) }

// each calls one for every number below n, several at a time, until one fails.
func (f *field) each(n int, one func(i int) error) {
	f.Helper()
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range bigWorkers {
		wg.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := one(i); err != nil {
					f.Errorf("%d: %v", i, err)
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	if f.Failed() {
		f.FailNow()
	}
}

// Eight times as much as the local disk may hold is written, read back to the byte, and
// half of it deleted: memory and local disk stay within bounds, and space comes back in
// both places.
func TestTierMoreThanFits(t *testing.T) {
	r := onS3(t, with(soonGone, []string{
		"--shards", "2", "--local-disk-budget", "256MiB", "--tier-flush-interval", "1s", "--memtable-bytes", "16MiB", "--wal-file-bytes", "16MiB",
		"--wal-max-bytes", "32MiB", "--segment-max-bytes", "64MiB", "--max-body-bytes", "1MiB", "--cold-cache-bytes", "32MiB", "--min-free-disk", "64MiB",
	})...)
	lap := r.stopwatch()
	most := r.watchDisk()
	r.each(bigStreams, func(i int) error {
		_, err := r.expect(http.StatusCreated, "PUT", bigName(i), "", "Content-Type", "application/octet-stream")
		return err
	})
	for round := range bigRounds {
		r.each(bigStreams, func(i int) error {
			if round == bigRounds-1 && i%bigSnapshots == 0 {
				if err := r.publish(i, round*bigChunk); err != nil {
					return err
				}
			}
			return r.store(bigName(i), noiseAt(i, round*bigChunk, bigChunk))
		})
	}
	lap("written")
	r.protected()
	lap("protected")
	// What is in memtables when the budget is used up comes on top, and what merges are
	// making: at most a budget for each shard, as a rule much less.
	peak := most()
	t.Logf("segments and snapshots took %d MiB of the disk at most", peak>>20)
	if peak > 3*bigBudget {
		t.Errorf("segments and snapshots took %d MiB of the disk, with a budget of %d", peak>>20, bigBudget>>20)
	}
	r.eventually(tierPatience, "the local disk has no more than it may", func() bool { return r.localData() <= bigBudget })
	// A look may miss what a merge replaces meanwhile.
	r.eventually(tierPatience, "the bucket has all of it", func() bool { return total(t, r.objects) >= bigBytes })

	r.each(bigStreams, func(i int) error { return r.holdsNoise(i) })
	lap("read")
	r.each(bigStreams/bigSnapshots, func(i int) error { return r.bootstraps(i * bigSnapshots) })
	r.each(bigStreams/2, func(i int) error {
		_, err := r.expect(http.StatusNoContent, "DELETE", bigName(2*i), "")
		return err
	})
	r.eventually(2*tierPatience, "the space of deleted streams has come back in the bucket", func() bool {
		return total(t, r.objects) < bigBytes/2+bigBytes/8
	})
	r.eventually(tierPatience, "the local disk has no more than it may", func() bool { return r.localData() <= bigBudget })
	lap("deleted")
	r.each(bigStreams/2, func(i int) error { return r.holdsNoise(2*i + 1) })
	lap("read again")
	if peak := r.daemon.peakMemory(t); peak > bigMemory {
		t.Errorf("the server had %d MiB in memory", peak>>20)
	}
	r.daemon.stop(t)
	checkLog(t, r.daemon)
}

// stopwatch says with -v how long parts of a test took.
func (r *tierRig) stopwatch() func(what string) {
	began := time.Now()
	return func(what string) {
		r.Helper()
		r.Logf("%s after %v, %d MiB in memory, %d MiB local", what, time.Since(began).Round(time.Millisecond), r.daemon.peakMemory(r.T)>>20, r.localData()>>20)
	}
}

// store appends, and waits as long as there is no room.
func (r *tierRig) store(stream, body string) error {
	for {
		a, err := r.do("POST", stream, body, "Content-Type", "application/octet-stream")
		switch {
		case err != nil || a.status == http.StatusNoContent:
			return err
		case a.status != http.StatusInsufficientStorage:
			return errors.New(a.String())
		}
		pause(r.Context(), 100*time.Millisecond)
	}
}

// publish makes the snapshot of a stream up to an offset, and trims nothing.
func (r *tierRig) publish(i, offset int) error {
	for {
		a, err := r.about("PUT", bigName(i), fmt.Sprint("/snapshot/", offset), noiseAt(i+1, 0, 1<<19), "Stream-Snapshot-Retain", "true")
		switch {
		case err != nil || a.status == http.StatusNoContent:
			return err
		case a.status != http.StatusInsufficientStorage:
			return errors.New(a.String())
		}
		pause(r.Context(), 100*time.Millisecond)
	}
}

func (r *tierRig) holdsNoise(i int) error {
	got, err := r.content(bigName(i))
	if err != nil {
		return err
	}
	return sameBytes(got, noiseAt(i, 0, bigRounds*bigChunk))
}

func (r *tierRig) bootstraps(i int) error {
	b, err := r.bootstrap(bigName(i))
	if err != nil {
		return err
	}
	if at := (bigRounds - 1) * bigChunk; b.at != at || b.snapshot != noiseAt(i+1, 0, 1<<19) || len(b.messages) != 1 || b.messages[0] != noiseAt(i, at, bigChunk) {
		return fmt.Errorf("the bootstrap has a snapshot of %d bytes at %d and %d messages", len(b.snapshot), b.at, len(b.messages))
	}
	return nil
}

func total(t *testing.T, root string) int64 {
	t.Helper()
	return sum(sizes(t, root), func(string) bool { return true })
}

// localData returns the bytes of the data directory without the log, whose size other
// settings bound.
func (r *tierRig) localData() int64 {
	r.Helper()
	return sum(sizes(r.T, r.daemon.dir), func(path string) bool { return !strings.Contains(path, "/wal/") })
}

// watchDisk looks at the local data until most is called, which returns the most that it
// has seen.
func (r *tierRig) watchDisk() (most func() int64) {
	ctx, stop := context.WithCancel(r.Context())
	var peak int64
	ended := make(chan struct{})
	go func() { // ends when most is called, or with the test
		defer close(ended)
		for ctx.Err() == nil {
			peak = max(peak, r.localData())
			pause(ctx, 100*time.Millisecond)
		}
	}()
	r.Cleanup(func() { stop(); <-ended })
	return func() int64 {
		stop()
		<-ended
		return peak
	}
}
