package wal

import (
	"os"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// The order of what reaches the disk, as text. A file keeps in the trace the name
// under which it was opened: what was prepared as .spare is written as .spare.
func TestTrace(t *testing.T) {
	const golden = "testdata/trace.txt"
	l := labOn(t, vfstest.New())
	var out strings.Builder
	section := func(title string, f func()) {
		l.fs.StartTrace()
		f()
		out.WriteString("# " + title + "\n")
		for _, line := range l.fs.Trace() {
			out.WriteString(line + "\n")
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	section("create: the file is durable, then its name, before Create returns", func() { must(Create(l.cfg)) })
	section("open an empty log", func() { must(l.open(Position{})) })
	section("prepare the next file", l.work)
	var low Position
	section("commit two batches: each one write and one sync", func() {
		l.batch("a", "b", "c")
		low = l.batch(strings.Repeat("x", block))
	})
	l.log.Rotate()
	section("commit the first batch of the next file, which needs no directory sync any more", func() { l.batch("d") })
	section("prepare another", l.work)
	l.log.Release(low)
	section("take back the first file: it leaves the log durably before it is overwritten", l.work)
	l.log.Rotate()
	l.batch("e")
	section("prepare the next from it: only a header is missing", l.work)
	l.batch("f", strings.Repeat("g", 2*block))
	l.damage(l.log.turn.cur.number, 2*block+RecordBytes(1, 0), flip)
	must(l.log.Close())
	section("recover: the last batch again, zeros behind it, sync; then the file ahead becomes a spare", func() { must(l.open(low)) })
	l.wantReplayed("5/3/1 d|", "6/4/1 e|", "7/5/1 f|")
	section("and gets a new header", l.work)

	if *update {
		must(os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(err)
	if out.String() != string(want) {
		t.Errorf("the trace differs from %s:\n%s", golden, out.String())
	}
}
