package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// edited makes a manifest of an empty first edit and three more, the second of them
// of several blocks, and returns the state after each.
func edited(t testing.TB) (*vfstest.MemFS, []State) {
	t.Helper()
	mem, m := created(t)
	states := []State{m.State()}
	many := Edit{}
	for id := range base.SegmentID(250) {
		many.Add = append(many.Add, Segment{ID: id + 1, Size: 1 << 40, MaxStream: 1 << 50})
	}
	for _, e := range []Edit{{ReserveSegments: 1000, ReserveStreams: 1 << 20}, many, {Low: &Position{77, 7}, Remove: []base.SegmentID{3}}} {
		must(t, m.Apply(e))
		states = append(states, m.State())
	}
	must(t, m.Close())
	return mem, states
}

// Where the edits of edited lie: [begin, end) of header and payload, and the end of
// the blocks.
func frames(t testing.TB, mem *vfstest.MemFS) (data []byte, all [][3]int64) {
	t.Helper()
	f, err := mem.Open(logPath(testDir, 1))
	must(t, err)
	defer f.Close()
	data, err = readAll(f, "")
	must(t, err)
	for at := int64(blockBytes); ; {
		payload, _, ok := decodeFrame(data[at:], 1)
		if !ok {
			return data, all
		}
		n := int64(len(payload))
		all = append(all, [3]int64{at, at + frameBytes + n, at + frameSize(n)})
		at += frameSize(n)
	}
}

func TestEveryFlippedByte(t *testing.T) {
	mem, states := edited(t)
	data, all := frames(t, mem)
	if len(all) != 4 || all[2][2]-all[2][0] < 2*blockBytes {
		t.Fatalf("frames %v", all)
	}
	last := all[3]
	for at := range int64(len(data)) {
		if at >= last[2] && at%61 != 0 { // many zeros, all alike
			continue
		}
		data[at] ^= 0x41
		state, err := (&log{number: 1}).replay(data, "log")
		data[at] ^= 0x41
		inEdit := at < blockBytes
		for _, f := range all[:3] {
			inEdit = inEdit || at >= f[0] && at < f[1]
		}
		switch {
		case inEdit:
			if !isCorruption(err) {
				t.Fatalf("byte %d: %v", at, err)
			}
		case err != nil:
			t.Fatalf("byte %d, which says nothing: %v", at, err)
		case at >= last[0] && at < last[1]: // it looks like an edit that a crash cut off
			if !equal(state, states[2]) {
				t.Fatalf("byte %d: neither all nor all but the last edit", at)
			}
		case !equal(state, states[3]):
			t.Fatalf("byte %d, which says nothing: wrong state", at)
		}
	}
}

// An edit that lost a block, and whatever is behind it, gives way to the next one.
func TestTornLastEdit(t *testing.T) {
	mem, states := edited(t)
	_, all := frames(t, mem)
	path := logPath(testDir, 1)
	// As if the last edit had never been begun, and the one before lost its middle.
	must(t, mem.Corrupt(path, all[3][0], func(b []byte) { clear(b) }))
	must(t, mem.Corrupt(path, all[2][0]+blockBytes, func(b []byte) { clear(b[:blockBytes]) }))
	m, state := reopened(t, mem)
	if !equal(state, states[1]) {
		t.Fatal("the torn edit shows")
	}
	data, left := frames(t, mem)
	if len(left) != 2 || dirtyEnd(data, left[1][2]) != left[1][2] {
		t.Fatalf("frames %v, not zero up to %d", left, dirtyEnd(data, left[1][2]))
	}
	must(t, m.Apply(Edit{ReserveStreams: 1 << 21}))
	if _, s := reopened(t, mem.CrashClone(nil)); s.NextStream != 1<<21 || len(s.Segments) > 0 {
		t.Fatalf("after the next edit: %+v", s)
	}
}

func TestDamageChangesNothing(t *testing.T) {
	damage := func(name string, off int64) func(*testing.T, *vfstest.MemFS) {
		return func(t *testing.T, mem *vfstest.MemFS) {
			must(t, mem.Corrupt(filepath.Join(testDir, name), off, func(b []byte) { b[0]++ }))
		}
	}
	remove := func(name string) func(*testing.T, *vfstest.MemFS) {
		return func(t *testing.T, mem *vfstest.MemFS) { must(t, mem.Remove(filepath.Join(testDir, name))) }
	}
	for name, harm := range map[string]func(*testing.T, *vfstest.MemFS){
		"CURRENT is missing":      remove(currentName),
		"the file is missing":     remove(logName(1)),
		"an edit in the middle":   damage(logName(1), 3*blockBytes+40),
		"the header":              damage(logName(1), 100),
		"the first edit":          damage(logName(1), blockBytes),
		"the name in CURRENT":     damage(currentName, 25),
		"the version in CURRENT":  damage(currentName, int64(len(currentMagic))),
		"the checksum of CURRENT": damage(currentName, 50),
	} {
		t.Run(name, func(t *testing.T) {
			mem, _ := edited(t)
			harm(t, mem)
			mem.StartTrace()
			_, _, err := Open(mem, testDir)
			if !isCorruption(err) {
				t.Error(err)
			}
			if trace := mem.Trace(); len(trace) > 0 {
				t.Errorf("it was touched: %q", trace)
			}
		})
	}
	if _, _, err := Open(vfstest.New(), testDir); err == nil {
		t.Error("a directory that is not there has a manifest")
	}
}

func TestEveryFlipAndTruncationOfCurrent(t *testing.T) {
	b := encodeCurrent(7, formatVersion)
	for at := range b {
		flipped := append([]byte(nil), b...)
		flipped[at] ^= 1
		for _, bad := range [][]byte{flipped, b[:at], append(b[:len(b):len(b)], b[at])} {
			if _, err := decodeCurrent(bad, currentName); !isCorruption(err) {
				t.Fatalf("%q: %v", bad, err)
			}
		}
	}
}

// golden is a directory in testdata as a file system in memory.
func golden(t *testing.T, dir string) *vfstest.MemFS {
	t.Helper()
	mem := vfstest.New()
	must(t, mem.MkdirAll(testDir))
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		f, err := mem.Create(filepath.Join(testDir, e.Name()))
		must(t, err)
		_, err = f.WriteAt(data, 0)
		must(t, errors.Join(err, f.Close()))
	}
	return mem
}
