package engine

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const (
	writerA = "000102030405060708090a0b0c0d0e0f"
	writerB = "101112131415161718191a1b1c1d1e1f"
)

// The files as they have been written, by version.
var tierFiles = []string{
	"snakream-tier 1\ns3://bucket/prefix\n",
	"snakream-tier 2\ns3://bucket/prefix\nwriter " + writerA + " 42\n",
	"snakream-tier 2\ns3://bucket/prefix\nintent " + writerB + "\n",
	"snakream-tier 2\ns3://bucket/prefix\nwriter " + writerA + " 42\nintent " + writerB + "\n",
}

func TestTierFile(t *testing.T) {
	a, b := mirror.Writer{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9, 10: 10, 11: 11, 12: 12, 13: 13, 14: 14, 15: 15}, mirror.Writer{}
	for i := range b {
		b[i] = a[i] + 16
	}
	const where = "s3://bucket/prefix"
	for i, want := range []tierRecord{
		{where: where, anybody: true},
		{where: where, writer: a, epoch: 42},
		{where: where, intents: []mirror.Writer{b}},
		{where: where, writer: a, epoch: 42, intents: []mirror.Writer{b}},
	} {
		got, err := decodeTierRecord("TIER", []byte(tierFiles[i]))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", tierFiles[i], got, err)
		}
		if enc := string(want.encode()); i > 0 && enc != tierFiles[i] {
			t.Errorf("%+v is written as %q", want, enc)
		}
		if used := i != 2; got.used() != used {
			t.Errorf("%q: used %t", tierFiles[i], got.used())
		}
	}
	for _, bad := range []string{
		"", "snakream-tier", "snakream-tier 1", "snakream-tier 1\n", "snakream-tier 1\n\n", "snakream-tier 0\nx\n", "snakream-tier 01\nx\n", "tier 1\nx\n",
		"snakream-tier 1\ns3://bucket/prefix", "snakream-tier 2\nx\n", "snakream-tier 1\nx\nintent " + writerA + "\n",
		"snakream-tier 2\nx\nwriter " + writerA + "\n", "snakream-tier 2\nx\nwriter " + writerA + " 0\n", "snakream-tier 2\nx\nwriter " + writerA + " 042\n",
		"snakream-tier 2\nx\nintent " + writerA + " 1\n", "snakream-tier 2\nx\nintent " + writerA[2:] + "\n", "snakream-tier 2\nx\nintent " + strings.ToUpper(writerA) + "\n",
		"snakream-tier 2\nx\nintent " + writerA + "\nwriter " + writerB + " 1\n", "snakream-tier 2\nx\nintent " + writerA + "\nintent " + writerA + "\n",
		"snakream-tier 2\nx\nintent " + strings.Repeat("0", 32) + "\n", "snakream-tier 2\nx\nother " + writerA + "\n",
		"snakream-tier 2\n" + strings.Repeat("x", maxTierBytes) + "\nintent " + writerA + "\n",
	} {
		var corrupt *base.CorruptionError
		if got, err := decodeTierRecord("TIER", []byte(bad)); !errors.As(err, &corrupt) {
			t.Errorf("%.80q: %+v, %v", bad, got, err)
		}
	}
	var newer *base.VersionError
	if _, err := decodeTierRecord("TIER", []byte("snakream-tier 3\nwhatever")); !errors.As(err, &newer) || newer.Version != 3 || newer.Newest != 2 {
		t.Errorf("a later version: %v", err)
	}
}

// However many claims don't come to their end, the file stays small and knows whoever has
// the mirror.
func TestTierFileIntents(t *testing.T) {
	fsys := vfstest.New()
	if err := fsys.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	var r tierRecord
	for i := range byte(30) {
		w := mirror.Writer{i + 1}
		for range 2 {
			if err := r.writeTierFile(fsys, "data", r.intend(nil, "here", w)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readTierFile(fsys, "data")
		if err != nil || !reflect.DeepEqual(got, r) || got.used() || got.where != "here" {
			t.Fatalf("%+v, %v", got, err)
		}
		if known := got.known(nil); len(known) != min(int(i)+1, maxIntents) || known[len(known)-1] != w {
			t.Fatalf("after %d: %v", i+1, known)
		}
	}
	old := tierRecord{where: "there", anybody: true}
	m := &mirror.State{Writer: mirror.Writer{7}, Epoch: 9}
	want := tierRecord{where: "there", writer: mirror.Writer{7}, epoch: 9, intents: []mirror.Writer{{8}}}
	if got := old.intend(m, "here", mirror.Writer{8}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := want.intend(m, "here", mirror.Writer{7}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	// Of intents the one that is the mirror now counts, and what was intended after it.
	old = tierRecord{where: "there", writer: mirror.Writer{1}, epoch: 3, intents: []mirror.Writer{{2}, {7}, {5}}}
	want.intents = []mirror.Writer{{5}, {8}}
	if got := old.intend(m, "here", mirror.Writer{8}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func FuzzTierFile(f *testing.F) {
	for _, b := range tierFiles {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeTierRecord("TIER", b)
		if err == nil && !r.anybody && string(r.encode()) != string(b) {
			t.Errorf("%q was read, and is written as %q", b, r.encode())
		}
	})
}
