//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// How often the server of the tier's crash test is killed, and after how many of those
// its machine is lost, too: another goes on with what the store has.
const (
	tierCrashRounds = 12
	tierLossEvery   = 4
)

// tierWriter is the only writer of a stream of numbered lines, so that its content says
// what is missing. Now and then it publishes a snapshot, which trims the stream.
type tierWriter struct {
	rng       *rand.Rand
	name      string
	acked     int // lines
	open      int // lines of an append that was not answered
	published int // lines before the newest snapshot that was answered
	trying    int // lines before the one that was not; 0 for none
	safe      durable
}

// durable is what has to be there: lines, and those before the newest snapshot.
type durable struct{ lines, published int }

func (w *tierWriter) step(r *tierRig) error {
	if w.trying == 0 && w.acked > w.published && w.rng.IntN(40) == 0 {
		return w.publish(r)
	}
	w.open = 1 + w.rng.IntN(300)
	a, err := r.do("POST", w.name, numbered(w.acked, w.acked+w.open), "Content-Type", plain)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusInsufficientStorage:
		w.open = 0
		pause(r.Context(), 10*time.Millisecond)
		return nil
	case a.status != http.StatusNoContent:
		return fmt.Errorf("append: %v", a)
	}
	w.acked, w.open = w.acked+w.open, 0
	return nil
}

func (w *tierWriter) publish(r *tierRig) error {
	w.trying = w.acked
	at := w.trying * lineSize
	a, err := r.about("PUT", w.name, "/snapshot/"+strconv.Itoa(at), imageAt(at, 50_000), "Content-Type", plain)
	switch {
	case err != nil && r.condemned.Load():
		return errDown
	case err != nil:
		return err
	case a.status == http.StatusNoContent:
		w.published = w.trying
	case a.status != http.StatusInsufficientStorage && a.status != http.StatusServiceUnavailable:
		return fmt.Errorf("publish: %v", a)
	}
	w.trying = 0
	return nil
}

// settle compares what the server has with what the writer knows, and takes it for that
// from now on. least is what there has to be; after a loss that is less than what was
// acknowledged.
func (w *tierWriter) settle(r *tierRig, least durable) error {
	b, err := r.bootstrap(w.name)
	if err != nil {
		return err
	}
	lines, rest := b.next/lineSize, b.next%lineSize
	if rest != 0 || lines < least.lines || lines > w.acked+w.open {
		return fmt.Errorf("%d bytes, where at least %d lines are safe, %d acknowledged and %d tried", b.next, least.lines, w.acked, w.open)
	}
	from := max(b.at, 0)
	if from%lineSize != 0 || from/lineSize > max(w.published, w.trying) || from/lineSize < least.published {
		return fmt.Errorf("a snapshot at line %d, safe %d, published %d, tried %d", from/lineSize, least.published, w.published, w.trying)
	}
	if b.at >= 0 && b.snapshot != imageAt(b.at, 50_000) {
		return fmt.Errorf("the snapshot at %d is damaged", b.at)
	}
	w.acked, w.open, w.published, w.trying = lines, 0, from/lineSize, 0
	return sameBytes(strings.Join(b.messages, ""), numbered(from/lineSize, lines))
}

// Whenever the process is killed, nothing is lost that was acknowledged, whatever the
// tier was about to do. And what the store has is at any time a copy of before: of every
// stream a beginning, with all that was there when the tier said that it has everything.
func TestTierCrash(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("E2E_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	flags := with(small, soonGone, []string{"--shards", "2", "--memtable-bytes", "128KiB", "--local-disk-budget", "2MiB", "--cold-cache-bytes", "1MiB"})
	onEach(t, flags, func(r *tierRig) {
		r.Logf("E2E_SEED=%d", seed)
		rng := rand.New(rand.NewPCG(seed, uint64(len(r.flags))))
		var writers []*tierWriter
		for i := range 6 {
			w := &tierWriter{rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), name: "crash/s" + strconv.Itoa(i)}
			r.want(http.StatusCreated, "PUT", w.name, "", "Content-Type", plain)
			writers = append(writers, w)
		}
		r.protected()
		for round := range tierCrashRounds {
			for _, w := range writers {
				w.safe = durable{}
			}
			if rng.IntN(2) == 0 { // of these a loss takes nothing
				r.protected()
				for _, w := range writers {
					w.safe = durable{w.acked, w.published}
				}
			}
			life := time.Duration(20+rng.IntN(1200)) * time.Millisecond
			r.writeUntilKilled(writers, life)
			lost := round%tierLossEvery == tierLossEvery-1
			if lost {
				r = r.restore()
			}
			for rng.IntN(3) == 0 { // the server may also be killed while it recovers
				r.daemon.launch(r.T)
				pause(r.Context(), time.Duration(rng.IntN(60))*time.Millisecond)
				r.daemon.kill(r.T)
			}
			r.revive()
			r.daemon.start(r.T)
			r.together(len(writers), func(i int) error {
				w := writers[i]
				least := durable{w.acked, w.published}
				if lost {
					least = w.safe
				}
				if err := w.settle(r, least); err != nil {
					return fmt.Errorf("seed %d, round %d, killed after %v, lost %v: %s: %w", seed, round, life, lost, w.name, err)
				}
				return nil
			})
		}
		r.protected()
		r.daemon.stop(r.T)
		checkLog(r.T, r.daemon)
	})
}

// writeUntilKilled has the writers work for a while and then kills the server.
func (r *tierRig) writeUntilKilled(writers []*tierWriter, life time.Duration) {
	r.Helper()
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() {
			for {
				err := w.step(r)
				if err != nil {
					if err != errDown {
						r.Errorf("%s: %v", w.name, err)
					}
					return
				}
			}
		})
	}
	pause(r.Context(), life)
	r.condemn()
	r.daemon.kill(r.T)
	wg.Wait()
	if r.Failed() {
		r.FailNow()
	}
}
