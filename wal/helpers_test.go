package wal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const labDir = "/data/wal"

// lab is a log in memory whose preparer runs only when the test says so.
type lab struct {
	t   *testing.T
	fs  *vfstest.MemFS
	cfg Config
	log *Log

	replayed []string // by the last open: "LSN/batch/type head|body"
	info     Info
	logged   []string
}

// newLab makes an empty log of 64 KiB files and opens it.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := labOn(t, vfstest.New())
	if err := Create(l.cfg); err != nil {
		t.Fatal(err)
	}
	l.mustOpen(Position{})
	return l
}

// labOn is a lab on fs without opening anything.
func labOn(t *testing.T, fs *vfstest.MemFS) *lab {
	l := &lab{t: t, fs: fs}
	salt := uint64(0x5a17)
	l.cfg = Config{
		FS: fs, Dir: labDir, FileBytes: MinFileBytes, Spares: 1,
		Salt: func() uint64 { salt += 0x9e3779b97f4a7c15; return salt },
		Logf: func(f string, a ...any) { l.logged = append(l.logged, fmt.Sprintf(f, a...)) },
	}
	return l
}

// open recovers the log.
func (l *lab) open(low Position) error {
	l.replayed = nil
	var err error
	l.log, l.info, err = open(l.cfg, low, func(r Record) error {
		l.replayed = append(l.replayed, show(r))
		return nil
	})
	return err
}

func (l *lab) mustOpen(low Position) {
	l.t.Helper()
	if err := l.open(low); err != nil {
		l.t.Fatal(err)
	}
	l.work()
}

// reopen closes the log and recovers it.
func (l *lab) reopen(low Position) {
	l.t.Helper()
	if err := l.log.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.mustOpen(low)
}

// work lets the preparer do all there is to do.
func (l *lab) work() {
	l.t.Helper()
	if _, err := l.log.work(); err != nil {
		l.t.Fatal(err)
	}
}

// show prints a record; long payloads by length and sum.
func show(r Record) string {
	short := func(b []byte) string {
		if len(b) > 40 {
			return fmt.Sprintf("%d:%x", len(b), bin.Sum(b))
		}
		return string(b)
	}
	return fmt.Sprintf("%d/%d/%d %s|%s", r.LSN, r.Batch, r.Type, short(r.Head), short(r.Body))
}

// stage begins a batch of records, each "head" or "head|body", without committing.
func (l *lab) stage(records ...string) *Batch {
	l.t.Helper()
	var n int64
	for _, r := range records {
		head, body, _ := strings.Cut(r, "|")
		n += RecordBytes(len(head), len(body))
	}
	b, ok := l.log.Begin(max(n, 1))
	if !ok {
		l.work()
		if b, ok = l.log.Begin(max(n, 1)); !ok {
			l.t.Fatalf("no file is ready: %v", l.log.Err())
		}
	}
	for _, r := range records {
		head, body, _ := strings.Cut(r, "|")
		b.Add(1, []byte(head), []byte(body), bin.Sum([]byte(body)))
	}
	return b
}

// batch commits a batch of records and returns its position.
func (l *lab) batch(records ...string) Position {
	l.t.Helper()
	b := l.stage(records...)
	if err := l.log.Commit(b); err != nil {
		l.t.Fatal(err)
	}
	return b.Position()
}

// fill commits batches of one block each until the current file has no room left.
func (l *lab) fill() Position {
	l.t.Helper()
	for l.log.turn.off < l.log.turn.cur.size {
		if l.log.turn.off+roundUp(l.log.turn.batch.size) == l.log.turn.cur.size {
			break
		}
		l.batch("filler " + fmt.Sprint(l.log.turn.head.LSN+1))
	}
	return l.log.turn.head
}

// bytes returns the contents of file number n of the log.
func (l *lab) bytes(n uint64) []byte {
	l.t.Helper()
	var all []byte
	if err := l.fs.Corrupt(filePath(labDir, n, suffixLog), 0, func(b []byte) { all = bytes.Clone(b) }); err != nil {
		l.t.Fatal(err)
	}
	return all
}

// damage edits file number n of the log at an offset.
func (l *lab) damage(n uint64, off int64, edit func([]byte)) {
	l.t.Helper()
	if err := l.fs.Corrupt(filePath(labDir, n, suffixLog), off, edit); err != nil {
		l.t.Fatal(err)
	}
}

// flip turns over one byte, and wipe makes a block zero.
func flip(b []byte) { b[0] ^= 0xff }
func wipe(b []byte) { clear(b[:block]) }

// names returns what the directory holds.
func (l *lab) names() []string {
	l.t.Helper()
	names, err := l.fs.List(labDir)
	if err != nil {
		l.t.Fatal(err)
	}
	return names
}

// wantReplayed compares what the last open replayed.
func (l *lab) wantReplayed(want ...string) {
	l.t.Helper()
	if !slices.Equal(l.replayed, want) {
		l.t.Fatalf("replayed %q\nwant     %q", l.replayed, want)
	}
}

// wantNames compares what the directory holds.
func (l *lab) wantNames(want ...string) {
	l.t.Helper()
	if got := l.names(); !slices.Equal(got, want) {
		l.t.Fatalf("the directory holds %q, want %q", got, want)
	}
}

func at(lsn base.LSN, batch uint64) Position { return Position{LSN: lsn, Batch: batch} }
