package wal

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// torn is a log of two complete batches (in blocks 1 and 2 of file 1) and one whose
// Commit was cut off: records 4 to 8 lie in blocks 3 to 5, each about half a block.
func torn(t *testing.T) *lab {
	l := newLab(t)
	l.batch("one", "two")
	l.batch("three")
	long := func(c string) string { return strings.Repeat(c, block/2) }
	l.batch(long("4"), long("5"), long("6"), long("7"), long("8"))
	return l
}

// What the blocks of one unsynced batch may look like, in any subset and any state.
func TestTornTail(t *testing.T) {
	const r4 = 3 * block
	size := RecordBytes(block/2, 0)
	for _, c := range []struct {
		name string
		edit func(l *lab)
		kept int // records
		torn uint64
	}{
		{"nothing lost", func(l *lab) {}, 8, 0},
		{"all lost", func(l *lab) { l.damage(1, r4, func(b []byte) { clear(b[:3*block]) }) }, 3, 0},
		{"first block lost", func(l *lab) { l.damage(1, r4, wipe) }, 3, 0},
		{"second block lost", func(l *lab) { l.damage(1, r4+block, wipe) }, 4, 1},
		{"third block lost", func(l *lab) { l.damage(1, r4+2*block, wipe) }, 6, 1},
		{"first and third lost", func(l *lab) { l.damage(1, r4, wipe); l.damage(1, r4+2*block, wipe) }, 3, 0},
		{"header damaged", func(l *lab) { l.damage(1, r4+2*size, flip) }, 5, 0},
		{"payload damaged", func(l *lab) { l.damage(1, r4+2*size+recordHeaderBytes, flip) }, 5, 3},
		{"padding damaged", func(l *lab) { l.damage(1, r4+5*size+9, flip) }, 8, 0},
		{"garbage behind", func(l *lab) { l.damage(1, r4+3*block, func(b []byte) { copy(b, "garbage") }) }, 8, 0},
		{"garbage at the very end", func(l *lab) { l.damage(1, MinFileBytes-1, flip) }, 8, 0},
		{"garbage in the next file", func(l *lab) { l.damage(2, headerBytes+5, flip) }, 8, 0},
	} {
		l := torn(t)
		c.edit(l)
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
		for round := range 3 { // a second start finds the same, and nothing torn
			l.mustOpen(Position{})
			wantTorn := c.torn
			if round > 0 {
				wantTorn = 0
			}
			if len(l.replayed) != c.kept || l.info.TornRecords != wantTorn {
				t.Errorf("%s, start %d: %d records, %d torn; want %d, %d", c.name, round,
					len(l.replayed), l.info.TornRecords, c.kept, wantTorn)
			}
			if (c.torn > 0) != (len(l.logged) > 0) {
				t.Errorf("%s: logged %q", c.name, l.logged)
			}
			l.wantZeroBehindEnd()
			if err := l.log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l.mustOpen(Position{})
		if next := l.batch("next"); next.LSN != base.LSN(c.kept)+1 {
			t.Errorf("%s: the log goes on at %v", c.name, next)
		}
		l.reopen(Position{})
		if len(l.replayed) != c.kept+1 || !strings.HasSuffix(l.replayed[c.kept], " next|") {
			t.Errorf("%s: replayed %q after another batch", c.name, l.replayed)
		}
	}
}

func (l *lab) wantZeroBehindEnd() {
	l.t.Helper()
	b := l.bytes(l.log.turn.cur.number)
	if i := slices.IndexFunc(b[l.log.turn.off:], func(c byte) bool { return c != 0 }); i >= 0 {
		l.t.Errorf("byte %d behind the end is not zero", i)
	}
}

// A kept prefix ends its batch. If the batch after it is torn in turn, that is no
// sign of damage, even when a record of it happens to begin at a boundary.
func TestTornAfterTorn(t *testing.T) {
	l := torn(t)
	l.damage(1, 3*block+block, wipe) // keeps record 4
	l.reopen(Position{})
	aligned := strings.Repeat("a", block-recordHeaderBytes)
	l.batch(aligned, aligned, "c")
	l.damage(1, 4*block, wipe)
	l.reopen(Position{})
	if len(l.replayed) != 4 || l.info.TornRecords != 2 {
		t.Errorf("%d records, %d torn", len(l.replayed), l.info.TornRecords)
	}
	// Whereas a batch whose predecessor lost its end is one.
	l.batch(aligned, "b")
	l.batch(aligned, aligned)
	l.damage(1, 5*block, wipe)
	l.wantCorrupt(Position{}, filePath(labDir, 1, suffixLog), 5*block)
}

// wantCorrupt opens the log, which must be refused and left as it is.
func (l *lab) wantCorrupt(low Position, path string, off int64) {
	l.t.Helper()
	if l.log != nil {
		if err := l.log.Close(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.fs.StartTrace()
	err := l.open(low)
	ce, ok := errors.AsType[*base.CorruptionError](err)
	if !ok || ce.Path != path || ce.Offset != off {
		l.t.Errorf("got %v, want a corruption of %s at %d", err, path, off)
	}
	if trace := l.fs.Trace(); len(trace) > 0 {
		l.t.Errorf("the log was touched: %q", trace)
	}
	l.log = nil
}

// Damage in front of a later batch is never taken for the end.
func TestDamageInTheMiddle(t *testing.T) {
	first, second := filePath(labDir, 1, suffixLog), filePath(labDir, 2, suffixLog)
	for _, c := range []struct {
		name string
		edit func(l *lab)
		path string
		off  int64
	}{
		{"first batch's header", func(l *lab) { l.damage(1, block, flip) }, first, block},
		{"first batch's payload", func(l *lab) { l.damage(1, block+recordHeaderBytes, flip) }, first, block},
		{"first batch's second record", func(l *lab) { l.damage(1, block+RecordBytes(3, 0), flip) }, first, block + RecordBytes(3, 0)},
		{"a middle batch zeroed", func(l *lab) { l.damage(1, 2*block, wipe) }, first, 2 * block},
		{"many batches zeroed", func(l *lab) { l.damage(1, 2*block, func(b []byte) { clear(b[:10*block]) }) }, first, 2 * block},
		{"all of the first file", func(l *lab) { l.damage(1, block, func(b []byte) { clear(b) }) }, first, block},
		{"the first file's last batch", func(l *lab) { l.damage(1, 15*block, wipe) }, first, 15 * block},
		{"the second file's first batch", func(l *lab) { l.damage(2, block, wipe) }, second, block},
		{"the second file's last but one", func(l *lab) { l.damage(2, 2*block, wipe) }, second, 2 * block},
		{"the salt", func(l *lab) { l.damage(1, 24, flip) }, first, fileHeaderSum},
		{"the spare file's header", func(l *lab) { l.damage(3, 24, flip) }, filePath(labDir, 3, suffixLog), fileHeaderSum},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.batch("one", "two")
			l.fill()
			l.batch("16")
			l.work()
			l.batch("17")
			l.batch("18")
			c.edit(l)
			l.t = t
			l.wantCorrupt(Position{}, c.path, c.off)
			if _, err := Inspect(l.fs, labDir, func(Item) error { return nil }); !errors.As(err, new(*base.CorruptionError)) {
				t.Errorf("Inspect: %v", err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	built := func(t *testing.T) *lab { // files 1, 2, 3 with batches and 4 without
		l := newLab(t)
		for range 2 {
			l.fill()
			l.batch("first of a file")
			l.work()
		}
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
		l.log = nil
		return l
	}
	drop := func(l *lab, numbers ...uint64) {
		for _, n := range numbers {
			if err := l.fs.Remove(filePath(labDir, n, suffixLog)); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := func(n uint64) string { return filePath(labDir, n, suffixLog) }

	l := built(t)
	drop(l, 1)
	l.wantCorrupt(Position{}, path(2), headerBytes)
	l.wantCorrupt(at(14, 14), path(2), headerBytes)
	l.mustOpen(at(15, 15)) // all of file 1 is in segments
	if len(l.replayed) != 16 {
		t.Errorf("%d records", len(l.replayed))
	}

	l = built(t)
	drop(l, 2)
	l.wantCorrupt(Position{}, path(2), 0)
	l.wantCorrupt(at(15, 15), path(2), 0)

	l = built(t)
	drop(l, 3)
	l.wantCorrupt(Position{}, path(3), 0)

	l = built(t)
	drop(l, 1, 2, 3)
	l.wantCorrupt(Position{}, path(4), headerBytes)
	l.wantCorrupt(at(31, 31), path(4), headerBytes)

	l = built(t)
	drop(l, 1, 2, 3, 4)
	l.wantCorrupt(at(31, 31), labDir, 0)
	if err := l.fs.Remove(labDir); err != nil {
		t.Fatal(err)
	}
	l.wantCorrupt(at(31, 31), labDir, 0)

	l = built(t) // the rename of a file that was prepared ahead may be lost
	drop(l, 4)
	l.mustOpen(Position{})
	if len(l.replayed) != 31 {
		t.Errorf("%d records", len(l.replayed))
	}
}

// Files that are misnamed, cut or not ours.
func TestForeignFiles(t *testing.T) {
	l := newLab(t)
	l.batch("a")
	for _, name := range []string{"/notes.txt", "/1.wal", "/0000000007.wal.bak"} {
		if _, err := l.fs.Create(labDir + name); err != nil {
			t.Fatal(err)
		}
	}
	l.reopen(Position{})
	l.wantReplayed("1/1/1 a|")

	if err := l.fs.Rename(filePath(labDir, 2, suffixLog), filePath(labDir, 3, suffixLog)); err != nil {
		t.Fatal(err)
	}
	l.wantCorrupt(Position{}, filePath(labDir, 3, suffixLog), 16)

	for _, size := range []int64{0, 100, block, MinFileBytes - block} {
		l = newLab(t)
		l.batch("a")
		f, err := l.fs.OpenAppend(filePath(labDir, 1, suffixLog))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		l.wantCorrupt(Position{}, filePath(labDir, 1, suffixLog), size)
	}

	// A file that has grown ends where its header says.
	l = newLab(t)
	l.batch("a")
	f, err := l.fs.OpenAppend(filePath(labDir, 1, suffixLog))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(MinFileBytes + block); err != nil {
		t.Fatal(err)
	}
	l.reopen(Position{})
	l.wantReplayed("1/1/1 a|")
}

// Neither what a file held before nor what a payload holds is taken for a record.
func TestImitations(t *testing.T) {
	l := newLab(t)
	low := l.fill()
	old := l.bytes(1)
	l.batch("a") // file 2
	l.log.Release(low)
	l.work()
	l.log.Rotate()
	l.batch("b") // file 3
	l.work()
	l.log.Rotate()
	l.batch("c") // file 4, which was file 1
	l.work()
	cur := l.log.turn.cur

	// Old records lie behind the end, as if nobody had zeroed the file, and a whole
	// file is the payload of a record, at a boundary.
	l.damage(cur.number, 2*block, func(b []byte) { copy(b, old[2*block:]) })
	l.reopen(low)
	l.wantReplayed("16/16/1 a|", "17/17/1 b|", "18/18/1 c|")
	if l.info.TornRecords != 0 {
		t.Errorf("%d old records were counted", l.info.TornRecords)
	}
	l.wantZeroBehindEnd()

	// The same records with the right file number, batch and LSN, but another salt.
	forged := make([]byte, 2*block)
	h := recordHeader{file: cur.number, pos: at(19, 19), payloadSum: payloadSum(nil, 0, 0), typ: 1}
	h.encode(forged, cur.salt+1)
	h.pos = at(30, 30)
	h.encode(forged[block:], cur.salt+1)
	l.damage(cur.number, 2*block, func(b []byte) { copy(b, forged) })
	l.reopen(low)
	if len(l.replayed) != 3 {
		t.Errorf("replayed %q", l.replayed)
	}
	l.batch(strings.Repeat("p", block-recordHeaderBytes) + string(forged))
	l.damage(cur.number, 2*block, flip) // now the payload lies behind the end
	l.reopen(low)
	if len(l.replayed) != 3 || l.info.TornRecords != 0 {
		t.Errorf("replayed %q, torn %d", l.replayed, l.info.TornRecords)
	}
}

// A log that ends below low-water begins anew above it, whenever that is cut off.
func TestLowAboveTheEnd(t *testing.T) {
	low := at(100, 50)
	for cut := 0; ; cut++ {
		l := newLab(t)
		l.fill()
		l.batch("16")
		l.work()
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
		left := cutAfter(l, cut, func() error { return l.open(low) })
		again := labOn(t, left)
		again.mustOpen(low)
		if len(again.replayed) != 0 || again.info.End != low {
			t.Fatalf("cut %d: replayed %q, end %v", cut, again.replayed, again.info.End)
		}
		if got := again.batch("above"); got != at(101, 51) {
			t.Fatalf("cut %d: goes on at %v", cut, got)
		}
		again.reopen(low)
		again.wantReplayed("101/51/1 above|")
		if left == l.fs {
			return // nothing was cut
		}
	}
}

var errCut = errors.New("the power was cut")

// cutAfter runs f, cuts the power after n changes of the disk, and returns what
// that leaves: all that was written, or the file system of l itself if f came to
// its end before.
func cutAfter(l *lab, n int, f func() error) *vfstest.MemFS {
	l.t.Helper()
	left := l.fs
	l.fs.SetHook(func(op vfstest.Op) error {
		switch op.Kind {
		case vfstest.Read, vfstest.Open, vfstest.List, vfstest.Stat:
			return nil
		}
		if n--; n < 0 {
			if left == l.fs {
				left = l.fs.Clone()
			}
			return errCut
		}
		return nil
	})
	err := f()
	l.fs.SetHook(nil)
	if (left != l.fs) != errors.Is(err, errCut) {
		l.t.Fatalf("cut off: %v", err)
	}
	return left
}

// The error of a callback comes back before anything has been written.
func TestReplayErrorTouchesNothing(t *testing.T) {
	l := torn(t)
	l.damage(1, 4*block, wipe)
	if err := l.log.Close(); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	l.fs.StartTrace()
	_, info, err := open(l.cfg, Position{}, func(r Record) error {
		if r.LSN == 3 {
			return refused
		}
		return nil
	})
	if err != refused || info.Records != 3 || len(l.fs.Trace()) > 0 {
		t.Errorf("%v, %+v, trace %q", err, info, l.fs.Trace())
	}
}

// A low-water that lies within a batch, or between other batches than it says, is
// of another log.
func TestLowWaterContradicts(t *testing.T) {
	for _, low := range []Position{at(1, 1), at(2, 2), at(3, 1)} {
		l := torn(t)
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.open(low); !errors.As(err, new(*base.CorruptionError)) {
			t.Errorf("%v: %v", low, err)
		}
	}
}

func TestReadErrorIsNoEnd(t *testing.T) {
	l := torn(t)
	if err := l.log.Close(); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("medium error")
	l.fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.Read && op.Len > headerBytes {
			return broken
		}
		return nil
	})
	l.fs.StartTrace()
	if err := l.open(Position{}); !errors.Is(err, broken) || len(l.fs.Trace()) > 0 {
		t.Errorf("%v, trace %q", err, l.fs.Trace())
	}
}

func TestCreate(t *testing.T) {
	var l *lab
	for cut := 0; ; cut++ { // again after each way to be cut off
		fs := vfstest.New()
		c := labOn(t, fs)
		left := cutAfter(c, cut, func() error { return Create(c.cfg) })
		again := labOn(t, left)
		if err := Create(again.cfg); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		again.mustOpen(Position{})
		if len(again.replayed) > 0 || again.batch("a") != at(1, 1) {
			t.Fatalf("cut %d: replayed %q", cut, again.replayed)
		}
		if left == fs {
			l = again
			break
		}
	}
	if err := Create(l.cfg); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over an existing log: %v", err)
	}
	l.reopen(Position{})
	l.wantReplayed("1/1/1 a|")

	for _, bad := range []Config{{}, {FS: l.fs, Dir: "d", FileBytes: 100}, {FS: l.fs, Dir: "d", FileBytes: MaxFileBytes + block},
		{FS: l.fs, Dir: "d", FileBytes: MinFileBytes + 1}, {FS: l.fs, Dir: "d", Spares: -1}} {
		if err := Create(bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
		if _, _, err := Open(bad, Position{}, nil); err == nil {
			t.Errorf("opened %+v", bad)
		}
	}
}

func TestSaltsDiffer(t *testing.T) {
	if a, b := randomSalt(), randomSalt(); a == b {
		t.Errorf("%x twice", a)
	}
	l := newLab(t)
	if bytes.Equal(l.bytes(1)[24:32], l.bytes(2)[24:32]) {
		t.Error("two files have the same salt")
	}
}
