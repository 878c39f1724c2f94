package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func TestReplayInOrder(t *testing.T) {
	l := newLab(t)
	l.batch("a", "b|body")
	low := l.batch("c")
	l.batch("|d", "")
	l.reopen(Position{})
	l.wantReplayed("1/1/1 a|", "2/1/1 b|body", "3/2/1 c|", "4/3/1 |d", "5/3/1 |")
	if l.info.Records != 5 || l.info.Batches != 3 || l.info.End != at(5, 3) || l.info.TornRecords != 0 {
		t.Errorf("info %+v", l.info)
	}
	l.reopen(low)
	l.wantReplayed("4/3/1 |d", "5/3/1 |")
	if got := l.batch("e"); got != at(6, 4) {
		t.Errorf("the log goes on at %v", got)
	}
	l.reopen(low)
	l.wantReplayed("4/3/1 |d", "5/3/1 |", "6/4/1 e|")
}

// bigBodies are lengths around those at which copying, referring and bouncing change.
var bigBodies = []int{referenceBytes - 1, referenceBytes, referenceBytes + 1, block * 20, bounceBytes - 100, bounceBytes, 3<<20 + 5}

func TestLargeBodies(t *testing.T) {
	l := labOn(t, vfstest.New())
	l.cfg.FileBytes = 32 << 20
	if err := Create(l.cfg); err != nil {
		t.Fatal(err)
	}
	l.mustOpen(Position{})
	var want []string
	for round := range 2 {
		b, ok := l.log.Begin(16 << 20)
		if !ok {
			t.Fatal("no room")
		}
		for i, n := range bigBodies {
			body := bytes.Repeat([]byte{byte(i + round + 1)}, n)
			for _, head := range []string{"before", strings.Repeat("h", i*700)} {
				lsn := b.Add(3, []byte(head), body, bin.Sum(body))
				want = append(want, show(Record{Position: at(lsn, uint64(round+1)), Type: 3, Head: []byte(head), Body: body}))
				lsn = b.Add(4, []byte(head), nil, 0)
				want = append(want, show(Record{Position: at(lsn, uint64(round+1)), Type: 4, Head: []byte(head)}))
			}
		}
		if err := l.log.Commit(b); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.refs {
			if r.body != nil {
				t.Error("the batch holds on to a body")
			}
		}
	}
	l.reopen(Position{})
	l.wantReplayed(want...)
}

func TestBufferGrows(t *testing.T) {
	l := labOn(t, vfstest.New())
	l.cfg.FileBytes = 32 << 20
	if err := Create(l.cfg); err != nil {
		t.Fatal(err)
	}
	l.mustOpen(Position{})
	b, ok := l.log.Begin(l.log.MaxBatch())
	if !ok {
		t.Fatal("no room")
	}
	head := bytes.Repeat([]byte("h"), referenceBytes)
	n := 0
	for ; int64(n+1)*RecordBytes(len(head), 0) <= l.log.MaxBatch(); n++ {
		b.Add(1, head, nil, 0)
	}
	if err := l.log.Commit(b); err != nil {
		t.Fatal(err)
	}
	l.reopen(Position{})
	if len(l.replayed) != n {
		t.Errorf("%d records instead of %d", len(l.replayed), n)
	}
	l.batch("next")
}

// A turn may stage one batch while another is being committed.
func TestStageDuringCommit(t *testing.T) {
	l := newLab(t)
	syncing, release := make(chan struct{}), make(chan struct{})
	l.fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Datasync {
			syncing <- struct{}{}
			<-release
		}
		return nil
	})
	done := make(chan error)
	b := l.stage("one", "two")
	for i := range 20 {
		go func() { done <- l.log.Commit(b) }()
		<-syncing
		next := l.stage(fmt.Sprint(i))
		release <- struct{}{}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if b.Len() == 0 || b.Position() == next.Position() {
			t.Fatal("the committed batch has changed")
		}
		b = next
	}
	l.fs.SetHook(nil)
	if err := l.log.Commit(b); err != nil {
		t.Fatal(err)
	}
	l.reopen(Position{})
	if len(l.replayed) != 22 || l.info.Batches != 21 {
		t.Errorf("%d records in %d batches", len(l.replayed), l.info.Batches)
	}
}

func TestEmptyBatchTakesNothing(t *testing.T) {
	l := newLab(t)
	first := l.batch("a")
	l.fs.StartTrace()
	b := l.stage()
	if b.Position() != first || b.Len() != 0 {
		t.Errorf("an empty batch is at %v", b.Position())
	}
	if err := l.log.Commit(b); err != nil || len(l.fs.Trace()) > 0 {
		t.Errorf("it was written: %v, %v", l.fs.Trace(), err)
	}
	if got := l.batch("b"); got != at(2, 2) {
		t.Errorf("the next is at %v", got)
	}
}

func TestRotation(t *testing.T) {
	l := newLab(t)
	l.fill()
	if got := l.batch("in the next"); got.Batch != 16 { // 15 blocks behind the header
		t.Errorf("batch %d", got.Batch)
	}
	l.work()
	l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal")
	l.log.Rotate()
	l.stage() // an empty batch may be dropped, and then the file is new already
	l.batch("in the third")
	l.log.Rotate()
	l.work()
	l.batch("in the fourth")
	l.work()
	l.wantNames("0000000001.wal", "0000000002.wal", "0000000003.wal", "0000000004.wal", "0000000005.wal")
	if s := l.log.Stats(); s.Files != 4 || s.Rotations != 3 || s.PinnedBytes != MinFileBytes+5*block || s.Batches != 18 {
		t.Errorf("%+v", s)
	}
	l.reopen(Position{})
	if len(l.replayed) != 18 {
		t.Errorf("%d records", len(l.replayed))
	}
}

// An operation of the largest size fits, whatever the current file holds.
func TestLargestRecord(t *testing.T) {
	l := newLab(t)
	head := bytes.Repeat([]byte("x"), int(l.log.MaxRecord()))
	l.batch("small")
	for range 4 {
		l.batch(string(head))
		l.work()
	}
	l.reopen(Position{})
	if len(l.replayed) != 5 {
		t.Errorf("%d records", len(l.replayed))
	}
	whole := l.log.MaxBatch()
	b, ok := l.log.Begin(whole)
	if !ok {
		t.Fatal("no room for a batch of a whole file")
	}
	for range 2 {
		b.Add(1, head[:whole/2-recordHeaderBytes], nil, 0)
	}
	if err := l.log.Commit(b); err != nil {
		t.Fatal(err)
	}
	l.reopen(Position{})
	if len(l.replayed) != 7 {
		t.Errorf("%d records", len(l.replayed))
	}
}

func TestMisusePanics(t *testing.T) {
	for name, f := range map[string]func(l *lab){
		"no bytes":           func(l *lab) { l.log.Begin(0) },
		"more than a file":   func(l *lab) { l.log.Begin(l.log.MaxBatch() + 1) },
		"more than promised": func(l *lab) { b, _ := l.log.Begin(60); b.Add(1, []byte("12345"), nil, 0) },
		"more than a record": func(l *lab) {
			b, _ := l.log.Begin(l.log.MaxBatch())
			b.Add(1, make([]byte, l.log.MaxRecord()+1), nil, 0)
		},
		"type zero":            func(l *lab) { b, _ := l.log.Begin(60); b.Add(0, nil, nil, 0) },
		"added after commit":   func(l *lab) { b := l.stage("a"); _ = l.log.Commit(b); b.Add(1, nil, nil, 0) },
		"committed twice":      func(l *lab) { b := l.stage("a"); _ = l.log.Commit(b); _ = l.log.Commit(b) },
		"three batches staged": func(l *lab) { l.stage("a"); l.stage("b"); l.stage("c") },
	} {
		l := newLab(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(l)
		}()
	}
}

// The first error is final, wherever it comes from, and nothing is tried again.
func TestErrorsAreFinal(t *testing.T) {
	broken := errors.New("input/output error")
	for _, kind := range []vfstest.Kind{vfstest.Write, vfstest.Datasync} {
		l := newLab(t)
		l.batch("good")
		l.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == kind {
				return broken
			}
			return nil
		})
		if err := l.log.Commit(l.stage("bad")); !errors.Is(err, broken) {
			t.Errorf("%v: %v", kind, err)
		}
		l.fs.SetHook(nil)
		l.fs.StartTrace()
		if _, ok := l.log.Begin(100); ok || !errors.Is(l.log.Err(), broken) {
			t.Errorf("%v: Begin goes on after %v", kind, l.log.Err())
		}
		if err := l.log.Commit(l.log.turn.batch); !errors.Is(err, broken) {
			t.Errorf("%v: Commit after the error: %v", kind, err)
		}
		if l.log.Stats().Batches != 1 || len(l.fs.Trace()) > 0 {
			t.Errorf("%v: something was written after the error: %q", kind, l.fs.Trace())
		}
		// The process ends here, the machine stays up; the next one finds what the
		// page cache has, and that has to be made durable before it counts.
		next := labOn(t, l.fs.Clone())
		next.mustOpen(Position{})
		after := labOn(t, next.fs.CrashClone(nil))
		after.mustOpen(Position{})
		if !slices.Equal(next.replayed, after.replayed) {
			t.Errorf("%v: %q was replayed and then %q", kind, next.replayed, after.replayed)
		}
	}
}

func TestClosed(t *testing.T) {
	l := newLab(t)
	b := l.stage("late")
	for range 2 {
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := l.log.Begin(100); ok {
		t.Error("Begin on a closed log")
	}
	if err := l.log.Commit(b); !errors.Is(err, ErrClosed) {
		t.Errorf("Commit on a closed log: %v", err)
	}
}

// nullFile takes everything at once.
type nullFile struct{ vfs.File }

func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Datasync() error                        { return nil }

// The hot path allocates nothing, whatever the file system does.
func TestNoAllocations(t *testing.T) {
	l := labOn(t, vfstest.New())
	l.cfg.FileBytes = 8 << 20
	if err := Create(l.cfg); err != nil {
		t.Fatal(err)
	}
	l.mustOpen(Position{})
	l.log.turn.cur.f = nullFile{l.log.turn.cur.f}
	head, body, large := make([]byte, 40), make([]byte, 256), make([]byte, referenceBytes+1)
	sum, largeSum := bin.Sum(body), bin.Sum(large)
	round := func() {
		b, ok := l.log.Begin(16*RecordBytes(len(head), len(body)) + RecordBytes(0, len(large)))
		if !ok {
			t.Fatal("no room")
		}
		for range 16 {
			b.Add(1, head, body, sum)
		}
		b.Add(2, nil, large, largeSum)
		if err := l.log.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	round() // both batches' lists of references, and the bounce buffer
	round()
	if allocs := testing.AllocsPerRun(50, round); allocs > 0 {
		t.Errorf("%v allocations per batch", allocs)
	}
}
