package wal

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

var (
	crashSeed = flag.Uint64("crashseed", 0, "run only this seed of the crash model")
	crashRuns = flag.Int("crashruns", 100, "number of histories of the crash model")
)

// model is what must be in the log, kept beside it, through one history of starts,
// batches and ends of every kind.
type model struct {
	*lab
	rng *rand.Rand

	records  []string // that the log must have, by LSN from 1 on, as show prints them
	ends     []Position
	inflight []string // records of the batch that was being committed when all ended
	low      Position // as a manifest has it, durable
}

// Batches, rotations, releases, power cuts at any operation, kills, failed syncs,
// also while recovering: every committed record is there once and in order, and of
// an uncommitted batch a prefix, which stays what it is from then on.
func TestCrashModel(t *testing.T) {
	first, runs := uint64(1), *crashRuns
	if *crashSeed != 0 {
		first, runs = *crashSeed, 1
	}
	opens, kept, dropped := 0, 0, 0
	for i := range runs {
		seed := first + uint64(i)
		m := &model{lab: labOn(t, vfstest.New()), rng: rand.New(rand.NewPCG(seed, 1))}
		m.cfg.FileBytes = []int64{MinFileBytes, 128 << 10, 512 << 10}[m.rng.IntN(3)]
		m.cfg.Spares = m.rng.IntN(3)
		if err := Create(m.cfg); err != nil {
			t.Fatal(err)
		}
		for range 15 {
			before := len(m.inflight)
			if !m.start() {
				continue
			}
			opens++
			if before > 0 && len(m.replayed) > 0 {
				kept++
			} else if before > 0 {
				dropped++
			}
			m.run()
			if t.Failed() {
				t.Fatalf("seed %d (-crashseed %d)", seed, seed)
			}
		}
	}
	t.Logf("%d starts after an end, %d with a batch in flight", opens, kept+dropped)
}

// start recovers the log, perhaps not to the end, and compares.
func (m *model) start() bool {
	if m.rng.IntN(3) == 0 {
		if m.endDuring(m.rng.IntN(12), func() error { return m.open(m.low) }) {
			return false // nobody has seen anything: what is in flight still is
		}
	} else if err := m.open(m.low); err != nil {
		m.t.Errorf("start: %v", err)
		return false
	}
	m.compare()
	// What has been replayed is durable now, whatever the disk held back before.
	again := &model{lab: labOn(m.t, m.fs.CrashClone(m.rng)), rng: m.rng, records: m.records, low: m.low}
	again.cfg.FileBytes = m.cfg.FileBytes
	if err := again.open(m.low); err != nil {
		m.t.Errorf("start after a power cut right after a start: %v", err)
		return false
	}
	again.compare()
	return true
}

// compare checks what was replayed and takes what was undecided for decided.
func (m *model) compare() {
	must := m.records[m.low.LSN:]
	n := len(must)
	if len(m.replayed) < n || !slices.Equal(m.replayed[:n], must) {
		m.t.Errorf("replayed %q, but committed %q", m.replayed, must)
		return
	}
	rest := m.replayed[n:]
	if len(rest) > len(m.inflight) || !slices.Equal(rest, m.inflight[:len(rest)]) {
		m.t.Errorf("replayed %q above the committed ones, in flight was %q", rest, m.inflight)
	}
	if len(rest) > 0 {
		m.records = append(m.records, rest...)
		m.ends = append(m.ends, m.info.End)
	}
	m.inflight = nil
}

// run uses the log until it ends in one way or another.
func (m *model) run() {
	m.endDuring(m.rng.IntN(60), func() error {
		for range 40 {
			if err := m.step(); err != nil {
				return err
			}
		}
		return m.log.Close()
	})
}

func (m *model) step() error {
	switch m.rng.IntN(10) {
	case 0:
		if len(m.ends) > 0 {
			if p := m.ends[m.rng.IntN(len(m.ends))]; p.LSN > m.low.LSN {
				m.low = p
			}
		}
		m.log.Release(m.low)
		return nil
	case 1:
		if m.rng.IntN(3) == 0 {
			m.log.Rotate()
		}
		return nil
	case 2, 3:
		_, err := m.log.work()
		return err
	default:
		return m.commit()
	}
}

// commit stages a batch of up to half a file and commits it.
func (m *model) commit() error {
	var bodies []string
	var n int64
	for range 1 + m.rng.IntN(6) {
		size := []int{0, 10, 300, block - recordHeaderBytes, 9000, 80_000, 200_000}[m.rng.IntN(7)]
		if n+RecordBytes(0, size) > m.cfg.FileBytes/2 {
			break
		}
		n += RecordBytes(0, size)
		bodies = append(bodies, strings.Repeat(string(rune('a'+m.rng.IntN(26))), size))
	}
	if len(bodies) == 0 {
		return nil
	}
	b, ok := m.log.Begin(n)
	if !ok {
		if _, err := m.log.work(); err != nil {
			return err
		}
		if b, ok = m.log.Begin(n); !ok {
			return fmt.Errorf("no room: %w", m.log.Err())
		}
	}
	for i, body := range bodies {
		head, typ := []byte(body)[:len(body)/2], uint8(1+i)
		rest := []byte(body)[len(head):]
		lsn := b.Add(typ, head, rest, bin.Sum(rest))
		m.inflight = append(m.inflight, show(Record{Position: Position{LSN: lsn, Batch: b.Position().Batch}, Type: typ, Head: head, Body: rest}))
	}
	if err := m.log.Commit(b); err != nil {
		return err
	}
	m.records = append(m.records, m.inflight...)
	m.ends = append(m.ends, b.Position())
	m.inflight = nil
	return nil
}

// endDuring runs f and ends the process, or the machine, after n operations, if f
// takes so many; the model goes on with what that leaves. It reports whether it did.
func (m *model) endDuring(n int, f func() error) bool {
	power := m.rng.IntN(2) == 0
	var left *vfstest.MemFS
	ended := false
	m.fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Read {
			return nil
		}
		if n--; n >= 0 {
			return nil
		}
		if !ended && power {
			left = m.fs.CrashClone(m.rng)
		}
		ended = true
		return errCut // in a sync, also what a disk does that fails it
	})
	err := f()
	m.fs.SetHook(nil)
	if err != nil && !errors.Is(err, errCut) {
		m.t.Errorf("failed: %v", err)
	}
	if !ended {
		return false
	}
	switch {
	case left != nil:
	case m.rng.IntN(4) == 0: // the power goes, too, after the process has ended
		left = m.fs.CrashClone(m.rng)
	default:
		left = m.fs.Clone()
	}
	m.fs, m.cfg.FS = left, left
	return true
}
