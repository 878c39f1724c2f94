package wal

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// inspected runs Inspect, which must change nothing, and prints what it finds.
func (l *lab) inspected() ([]string, Info, error) {
	l.t.Helper()
	var got []string
	l.fs.StartTrace()
	info, err := Inspect(l.fs, labDir, func(i Item) error {
		line := fmt.Sprintf("%s %d+%d", i.Path[len(labDir)+1:], i.Offset, i.Bytes)
		switch {
		case i.Type == 0:
			line += " header"
		case i.Behind:
			line += fmt.Sprintf(" behind %d/%d", i.LSN, i.Batch)
		default:
			line += " " + show(i.Record)
		}
		got = append(got, line)
		return nil
	})
	if trace := l.fs.Trace(); len(trace) > 0 {
		l.t.Errorf("Inspect changed something: %q", trace)
	}
	return got, info, err
}

func TestInspect(t *testing.T) {
	l := newLab(t)
	l.batch("one", "two|body")
	l.log.Rotate()
	low := l.batch("three")
	l.work()
	l.batch("four")
	got, info, err := l.inspected()
	want := []string{
		"0000000001.wal 0+4096 header", "0000000002.wal 0+4096 header", "0000000003.wal 0+4096 header",
		"0000000001.wal 4096+59 1/1/1 one|", "0000000001.wal 4155+63 2/1/1 two|body",
		"0000000002.wal 4096+61 3/2/1 three|", "0000000002.wal 8192+60 4/3/1 four|",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if info.Files != 3 || info.Records != 4 || info.Batches != 3 || info.TornRecords != 0 || info.End != at(4, 3) {
		t.Errorf("%+v", info)
	}

	// A log whose beginning has been released.
	l.log.Release(low)
	l.work()
	if got, _, err := l.inspected(); err != nil || len(got) != 4 {
		t.Errorf("got %q, %v", got, err)
	}

	// A torn batch, and the same as damage once a later batch is there.
	l.batch("five", "six", "seven")
	l.damage(2, 3*block+RecordBytes(4, 0)+recordHeaderBytes, flip)
	got, info, err = l.inspected()
	want = []string{"0000000002.wal 12288+60 5/4/1 five|", "0000000002.wal 12348+59 behind 6/4", "0000000002.wal 12407+61 behind 7/4"}
	if err != nil || !slices.Equal(got[4:], want) || info.TornRecords != 2 {
		t.Errorf("got %q, %+v, %v", got[4:], info, err)
	}
	l.batch("eight")
	if _, _, err := l.inspected(); err == nil {
		t.Error("damage before a later batch was not noticed")
	}
}

func TestInspectStops(t *testing.T) {
	l := torn(t)
	l.damage(1, 4*block, wipe)
	enough := errors.New("enough")
	for stop := range 6 { // headers, records and what is behind
		n := 0
		_, err := Inspect(l.fs, labDir, func(Item) error {
			if n++; n > stop {
				return enough
			}
			return nil
		})
		if err != enough || n != stop+1 {
			t.Errorf("stop %d: %v after %d items", stop, err, n)
		}
	}
	if _, err := Inspect(vfstest.New(), "/nowhere", nil); err == nil {
		t.Error("a missing directory was inspected")
	}
}

// A log of which only an empty file is left holds nothing, as far as Inspect knows.
func TestInspectEmpty(t *testing.T) {
	l := newLab(t)
	got, info, err := l.inspected()
	if err != nil || len(got) != 2 || info.Records != 0 || info.End != (Position{}) {
		t.Errorf("got %q, %+v, %v", got, info, err)
	}
	if err := l.fs.Remove(filePath(labDir, 1, suffixLog)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := l.inspected(); err != nil || len(got) != 1 {
		t.Errorf("got %q, %v", got, err)
	}
}
