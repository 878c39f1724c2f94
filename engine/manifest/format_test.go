package manifest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenEdits are what the golden manifest says, all fields in use.
var goldenEdits = []Edit{
	{ReserveSegments: 64, ReserveStreams: 4096},
	{
		Low: &Position{LSN: 1000, Batch: 90},
		Add: []Segment{
			{ID: 1, Size: 1 << 20, Kind: 1, MinStream: 1, MaxStream: 900},
			{ID: 2, Size: 1 << 33, Kind: 2, Level: 3, MinStream: 5, MaxStream: 1 << 60, DeadSince: 1_700_000_000_000, Object: 77},
		},
	},
	{Remove: []base.SegmentID{1}, Add: []Segment{{ID: 2, Size: 1 << 33, MaxStream: 9, Object: 77, Evicted: true}}},
}

// goldenFiles returns the files of the golden manifest in a version.
func goldenFiles(log, current uint32) map[string][]byte {
	data := bytes.Clone(encodeHeader(firstNumber, firstNumber, log))
	var empty State
	data = append(data, encodeFrame(appendEdit(nil, empty.snapshot()), firstNumber, firstNumber)...)
	for i, e := range goldenEdits {
		data = append(data, encodeFrame(appendEdit(nil, &e), firstNumber, firstNumber+1+uint64(i))...)
	}
	return map[string][]byte{logName(firstNumber): data, currentName: encodeCurrent(firstNumber, current)}
}

func TestGolden(t *testing.T) {
	for dir, files := range map[string]map[string][]byte{
		"v1":         goldenFiles(1, 1),
		"v2":         goldenFiles(2, 1),
		"v2-current": goldenFiles(1, 2),
	} {
		dir = filepath.Join("testdata", dir)
		for name, want := range files {
			path := filepath.Join(dir, name)
			if *update {
				must(t, os.MkdirAll(dir, 0o755))
				must(t, os.WriteFile(path, want, 0o644))
			}
			got, err := os.ReadFile(path)
			must(t, err)
			if !bytes.Equal(got, want) {
				t.Errorf("%s is not what is written now", path)
			}
		}
	}
	_, m := created(t)
	for _, e := range goldenEdits {
		must(t, m.Apply(e))
	}
	if _, s := reopened(t, golden(t, "testdata/v1")); !equal(s, m.State()) {
		t.Errorf("the golden manifest says %+v", s)
	}
}

func TestFutureVersion(t *testing.T) {
	for _, dir := range []string{"v2", "v2-current"} {
		mem := golden(t, filepath.Join("testdata", dir))
		mem.StartTrace()
		_, _, err := Open(mem, testDir)
		var version *base.VersionError
		if !errors.As(err, &version) || version.Version != formatVersion+1 || version.Newest != formatVersion || isCorruption(err) {
			t.Errorf("%s: %v", dir, err)
		}
		if trace := mem.Trace(); len(trace) > 0 {
			t.Errorf("%s: it was touched: %q", dir, trace)
		}
	}
}

func TestLogNames(t *testing.T) {
	for name, want := range map[string]uint64{
		"MANIFEST-000001": 1, "MANIFEST-999999": 999_999, "MANIFEST-1000000": 1_000_000,
		"MANIFEST-000000": 0, "MANIFEST-1": 0, "MANIFEST-0000001": 0, "MANIFEST-+00001": 0, "MANIFEST-": 0, "CURRENT": 0, "MANIFEST-99999999999999999999": 0,
	} {
		got, err := parseLogName(name)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
}

func FuzzEdit(f *testing.F) {
	for _, e := range goldenEdits {
		f.Add(appendEdit(nil, &e))
	}
	f.Add([]byte{0, 0, 0, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEdit(b)
		if err != nil {
			return
		}
		if !bytes.Equal(appendEdit(nil, &e), b) {
			t.Fatalf("accepted, but it is not how %+v is written", e)
		}
		s := State{Segments: map[base.SegmentID]Segment{}}
		if s.check(&e) != nil {
			return
		}
		s.apply(&e)
		again, err := decodeEdit(appendEdit(nil, s.snapshot()))
		twin := State{Segments: map[base.SegmentID]Segment{}}
		if err == nil {
			err = twin.check(&again)
		}
		if err != nil {
			t.Fatalf("the state %+v cannot be read: %v", s, err)
		}
		if twin.apply(&again); !equal(s, twin) {
			t.Fatalf("the state %+v is read as %+v", s, twin)
		}
	})
}

func FuzzCurrent(f *testing.F) {
	f.Add(encodeCurrent(7, 1)[:36])
	f.Add(encodeCurrent(1<<63, 2)[:40])
	f.Fuzz(func(t *testing.T, text []byte) {
		// The checksum would keep the fuzzer out.
		b := appendSumLine(bytes.Clone(text), bin.Sum(text))
		number, err := decodeCurrent(b, currentName)
		if err == nil && !bytes.Equal(encodeCurrent(number, formatVersion), b) {
			t.Fatal("accepted, but it is not how it is written")
		}
	})
}

// A whole file, its header's checksum mended, is read as a prefix of edits or refused.
func FuzzLog(f *testing.F) {
	data := goldenFiles(1, 1)[logName(1)]
	f.Add(data[blockBytes : 3*blockBytes])
	f.Add(data[blockBytes:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b)/blockBytes*blockBytes]
		l := log{number: firstNumber}
		state, err := l.replay(append(encodeHeader(firstNumber, firstNumber, formatVersion), b...), "log")
		switch {
		case err != nil && !isCorruption(err):
			t.Fatal(err)
		case err == nil && (l.end > int64(len(b))+blockBytes || l.dirty < l.end || l.seq <= firstNumber || state.Segments == nil):
			t.Fatalf("%+v", l)
		}
	})
}

// Frames of any contents come back from a frame, and nothing else does.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("payload"), uint64(1), uint64(2), uint16(3))
	f.Add(make([]byte, 2*blockBytes), uint64(7), uint64(9), uint16(8191))
	f.Fuzz(func(t *testing.T, payload []byte, number, seq uint64, flip uint16) {
		b := encodeFrame(payload, number, seq)
		got, s, ok := decodeFrame(b, number)
		if !ok || s != seq || !bytes.Equal(got, payload) || len(b)%blockBytes != 0 {
			t.Fatal("it does not come back")
		}
		if _, _, ok := decodeFrame(b, number+1); ok {
			t.Fatal("it comes back in another file")
		}
		at := int(flip) % (frameBytes + len(payload))
		b[at] ^= 1
		if _, _, ok := decodeFrame(b, number); ok {
			t.Fatalf("it comes back with byte %d flipped", at)
		}
	})
}
