package wal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func TestReleaseRecyclesAndRemoves(t *testing.T) {
	l := newLab(t)
	ends := []Position{l.fill()}
	for range 3 {
		l.batch("first of a file")
		l.work()
		ends = append(ends, l.fill())
	}
	l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal", "0000000004.wal", "0000000005.wal")

	l.log.Release(Position{LSN: ends[0].LSN - 1, Batch: ends[0].Batch - 1})
	l.work()
	l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal", "0000000004.wal", "0000000005.wal")

	l.log.Release(ends[0])
	l.work()
	l.wantNames("0000000001.spare", "0000000002.wal", "0000000003.wal", "0000000004.wal", "0000000005.wal")
	if b := spareBytes(l, 1); slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		t.Error("the spare file is not zero")
	}

	l.log.Release(ends[2]) // there is a spare already
	l.work()
	l.wantNames("0000000001.spare", "0000000004.wal", "0000000005.wal")
	if s := l.log.Stats(); s.Recycled != 1 || s.Removed != 2 || s.Spares != 2 || s.Files != 1 {
		t.Errorf("%+v", s)
	}

	l.batch("takes 5") // and 1 becomes 6
	l.work()
	l.wantNames("0000000004.wal", "0000000005.wal", "0000000006.wal")
	l.reopen(ends[2])
	if len(l.replayed) != 16 {
		t.Errorf("%d records", len(l.replayed))
	}
}

func spareBytes(l *lab, n uint64) (all []byte) {
	l.t.Helper()
	err := l.fs.Corrupt(filePath(labDir, n, suffixSpare), 0, func(b []byte) { all = slices.Clone(b) })
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// A file stays until a batch behind it is durable: a log whose newest file is lost
// must not look like one that has nothing new.
func TestReleaseWaitsForALaterBatch(t *testing.T) {
	l := newLab(t)
	low := l.batch("only")
	l.log.Rotate()
	b := l.stage("in the second file")
	l.log.Release(low)
	l.work()
	l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal")
	l.fs.SetHook(nil)
	if err := l.log.Commit(b); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.log.prep.kick:
	default:
		t.Fatal("the preparer was not told")
	}
	l.work()
	l.wantNames("0000000001.spare", "0000000002.wal", "0000000003.wal")
}

// Whatever is not of the configured size is not kept for reuse.
func TestFileBytesMayChange(t *testing.T) {
	l := newLab(t)
	l.batch("small")
	l.cfg.FileBytes = 2 * MinFileBytes
	l.reopen(Position{})
	l.wantReplayed("1/1/1 small|")
	low := l.batch(strings.Repeat("x", MinFileBytes)) // needs a file of the new size
	l.work()
	l.log.Release(low)
	l.batch("more")
	l.work()
	l.wantNames("0000000002.wal", "0000000003.wal")
	l.cfg.FileBytes = MinFileBytes
	l.reopen(low)
	l.wantReplayed("3/3/1 more|")
	l.batch("and more")
	l.reopen(low)
	l.wantReplayed("3/3/1 more|", "4/4/1 and more|")

	// An empty log is made anew, since the first operation must fit.
	e := newLab(t)
	e.cfg.FileBytes = 4 * MinFileBytes
	e.reopen(Position{})
	e.batch(strings.Repeat("x", int(e.log.MaxRecord())))
	e.reopen(Position{})
	if len(e.replayed) != 1 || e.replayed[0][:6] != "1/1/1 " {
		t.Errorf("replayed %q", e.replayed)
	}
}

// A full disk stops the log only when the current file is full, and only for as
// long as it lasts.
func TestNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := labOn(t, vfstest.New())
		ready := make(chan struct{}, 10)
		l.cfg.Ready = func() { ready <- struct{}{} }
		if err := Create(l.cfg); err != nil {
			t.Fatal(err)
		}
		l.fs.SetFree(MinFileBytes / 2)
		log, _, err := Open(l.cfg, Position{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.log = log
		synctest.Wait()
		if !log.NoSpace() {
			t.Error("the next file has been made")
		}
		l.fill() // the current file goes on
		if _, ok := log.Begin(100); ok {
			t.Fatal("Begin found room")
		}
		l.wantNames("0000000001.wal")
		l.fs.SetFree(2 * MinFileBytes)
		<-ready // the timer's attempt
		if log.NoSpace() || log.Err() != nil {
			t.Errorf("no space: %v, %v", log.NoSpace(), log.Err())
		}
		l.batch("goes on")
		synctest.Wait()
		l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal")
		if log.Stats().Waits != 1 || len(ready) > 0 {
			t.Errorf("%+v, %d more rings", log.Stats(), len(ready))
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// The turn hears that the disk is full even if it waits already; and a release
// helps at once.
func TestNoSpaceWhileWaiting(t *testing.T) {
	l := newLab(t)
	rings := 0
	l.log.cfg.Ready = func() { rings++ }
	low := l.fill()
	l.fs.SetFree(0)
	l.batch("takes the second")
	l.fill()
	if _, ok := l.log.Begin(100); ok {
		t.Fatal("Begin found room")
	}
	for range 3 {
		full, err := l.log.work()
		if err != nil || !full || rings != 1 || !l.log.NoSpace() {
			t.Fatalf("full %v, %v, %d rings", full, err, rings)
		}
	}
	if len(l.logged) != 1 || !strings.Contains(l.logged[0], "no space") {
		t.Errorf("logged %q", l.logged)
	}
	l.wantNames("0000000001.wal", "0000000002.wal")
	l.log.Release(low)
	if full, err := l.log.work(); err != nil || full || rings != 2 || l.log.NoSpace() {
		t.Fatalf("full %v, %v, %d rings", full, err, rings)
	}
	l.wantNames("0000000002.wal", "0000000003.wal")
	l.batch("goes on")
}

// Any other error of the preparer ends the log and wakes the turn.
func TestPreparerErrorsAreFinal(t *testing.T) {
	broken := errors.New("input/output error")
	for _, kind := range []vfstest.Kind{vfstest.Create, vfstest.Allocate, vfstest.Open, vfstest.Write,
		vfstest.Datasync, vfstest.Rename, vfstest.SyncDir} {
		synctest.Test(t, func(t *testing.T) {
			l := labOn(t, vfstest.New())
			ready := make(chan struct{}, 1)
			l.cfg.Ready = func() { ready <- struct{}{} }
			if err := Create(l.cfg); err != nil {
				t.Fatal(err)
			}
			log, _, err := Open(l.cfg, Position{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			l.log = log
			synctest.Wait()
			l.fill()
			hold := make(chan struct{})
			l.fs.SetHook(func(op vfstest.Op) error {
				if op.Kind == kind && !strings.HasSuffix(op.Path, "2.wal") {
					<-hold
					return broken
				}
				return nil
			})
			l.stage("first of the second file")
			l.log.turn.off = MinFileBytes // as if it had filled it
			if _, ok := log.Begin(100); ok {
				t.Fatal("Begin found room")
			}
			close(hold)
			<-ready
			if _, ok := log.Begin(100); ok || !errors.Is(log.Err(), broken) {
				t.Errorf("%v: %v", kind, log.Err())
			}
			l.fs.SetHook(nil)
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Close stops the preparer in the middle of a long fill, and the next start clears up.
func TestCloseStopsThePreparer(t *testing.T) {
	l := labOn(t, vfstest.New())
	l.cfg.FileBytes = 4 << 20
	if err := Create(l.cfg); err != nil {
		t.Fatal(err)
	}
	filling, goOn := make(chan struct{}), make(chan struct{})
	l.fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Write && strings.HasSuffix(op.Path, suffixSpare) && op.Off == headerBytes {
			close(filling)
			<-goOn
		}
		return nil
	})
	log, _, err := Open(l.cfg, Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-filling
	close(log.prep.stop) // what Close does first
	close(goOn)
	log.prep.running.Wait()
	if err := log.closeFiles(); err != nil || log.Err() != nil {
		t.Fatal(err, log.Err())
	}
	l.wantNames("0000000001.wal", "0000000002.spare")
	l.fs.SetHook(nil)
	if err := l.open(Position{}); err != nil {
		t.Fatal(err)
	}
	l.wantNames("0000000001.wal")
}
