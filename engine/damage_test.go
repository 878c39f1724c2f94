package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// full makes a directory of three shards with segments, a log of many batches and a
// manifest of many edits in each, and with what a crash leaves behind: remains of a
// torn batch, spares, unfinished segments. It returns what the streams hold.
func full(t *testing.T) (*rig, map[string]string) {
	t.Helper()
	o := tiny(3)
	o.SegmentMaxBytes = 4 << 20
	r := newRig(t, o)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprint("s", i))
		r.create(names[i])
	}
	want := r.fill(names, 15)
	r.opts.MemtableBytes, r.opts.WALMaxBytes = 4<<20, 4<<20 // from here on nothing is flushed
	r.reopen()
	for i := range 120 {
		name := names[i%len(names)]
		body := fmt.Sprintf("<late %d %s>", i, strings.Repeat("z", 50))
		r.append(name, body)
		want[name] += body
	}
	synctest.Wait() // the next files of the logs are there
	r.close()
	for n := range 3 {
		for path, b := range map[string][]byte{
			"tmp/0000009999.seg":   []byte("unfinished"),
			"wal/9999999999.spare": bytes.Repeat([]byte{7}, 4096),
		} {
			write(t, r.fs, filepath.Join("data", fmt.Sprintf("shard-%02d", n), path), b)
		}
	}
	return r, want
}

func write(t *testing.T, fs *vfstest.MemFS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refused opens the directory, which has to fail because of the file, without
// changing anything.
func (r *rig) refused(fs *vfstest.MemFS, path string) error {
	r.Helper()
	was := files(r, fs, "data")
	o := r.options()
	o.FS = fs
	e, err := engine.Open("data", o)
	if err == nil {
		r.Errorf("%s is damaged, and the directory opens", path)
		_ = e.Close()
		return nil
	}
	if !strings.Contains(err.Error(), filepath.Base(path)) {
		r.Errorf("the error does not name %s: %v", path, err)
	}
	if probed := engine.Probe("data", o, nil); probed == nil {
		r.Errorf("Open refuses, and Probe does not: %v", err)
	}
	unchanged(r, was, files(r, fs, "data"))
	return err
}

// Damage to what everything rests on: refuse, name the file, touch nothing.
func TestDamageThatRefusesToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, want := full(t)
		for _, d := range []struct {
			name, file string
			at         func(b []byte) int // where to flip a bit
		}{
			{"identity", "data/SNAKREAM", func([]byte) int { return 16 }},
			{"identity magic", "data/SNAKREAM", func([]byte) int { return 0 }},
			{"current", "data/shard-01/CURRENT", func(b []byte) int { return len(b) / 2 }},
			{"manifest header", "data/shard-01/MANIFEST-*", func([]byte) int { return 20 }},
			{"manifest edit", "data/shard-01/MANIFEST-*", func([]byte) int { return 4096*2 + 20 }},
			{"log header", "data/shard-02/wal/*.wal", func([]byte) int { return 30 }},
			{"log batch", "data/shard-02/wal/*.wal", func([]byte) int { return 4096*2 + 20 }},
			{"log body", "data/shard-02/wal/*.wal", func([]byte) int { return 4096*2 + 90 }},
			{"segment header", "data/shard-00/seg/*.seg", func([]byte) int { return 9 }},
			{"segment trailer", "data/shard-00/seg/*.seg", func(b []byte) int { return len(b) - 5 }},
			{"segment footer", "data/shard-00/seg/*.seg", footer},
		} {
			fs := r.fs.Clone()
			path := lastBusy(t, fs, d.file)
			b := files(t, fs, "data")[path]
			if err := fs.Corrupt(path, int64(d.at(b)), func(b []byte) { b[0] ^= 0x10 }); err != nil {
				t.Fatal(err)
			}
			err := r.refused(fs, path)
			if c := corruption(err); c == nil {
				t.Errorf("%s: %v", d.name, err)
			}
			if err := fs.Corrupt(path, int64(d.at(b)), func(b []byte) { b[0] ^= 0x10 }); err != nil {
				t.Fatal(err)
			}
			healed := r.on(fs)
			for name, w := range want {
				healed.expect(name, w)
			}
			healed.close()
		}
	})
}

// lastBusy returns the last file that matches, of a log the last that holds three
// batches.
func lastBusy(t *testing.T, fs *vfstest.MemFS, pattern string) string {
	t.Helper()
	all := files(t, fs, "data")
	for _, path := range slices.Backward(find(t, fs, pattern)) {
		if b := all[path]; !strings.HasSuffix(path, ".wal") || len(b) > 4096*4 && !allZero(b[4096*3:4096*4]) {
			return path
		}
	}
	t.Fatalf("no file %s", pattern)
	return ""
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// footer returns a place in the footer of a segment, which is before its trailer.
func footer(b []byte) int { return len(b) - 130 }

// Every bit counts, wherever it is: either the directory does not open, or what it
// says is right, but for ranges that answer with an error.
func TestAnyBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	synctest.Test(t, func(t *testing.T) {
		r, want := full(t)
		all := files(t, r.fs, "data")
		var paths []string
		for path, b := range all {
			if len(b) > 0 && !strings.Contains(path, "/tmp/") && !strings.HasSuffix(path, ".spare") {
				paths = append(paths, path)
			}
		}
		slices.Sort(paths)
		rounds := 300
		if testing.Short() {
			rounds = 30
		}
		for range rounds {
			path := paths[rng.IntN(len(paths))]
			at := rng.IntN(len(all[path]))
			fs := r.fs.Clone()
			if err := fs.Corrupt(path, int64(at), func(b []byte) { b[0] ^= 1 << rng.IntN(8) }); err != nil {
				t.Fatal(err)
			}
			o := r.options()
			o.FS = fs
			e, err := engine.Open("data", o)
			if err != nil {
				if v := (*base.VersionError)(nil); corruption(err) == nil && !errors.As(err, &v) {
					t.Errorf("%s at %d: %v", path, at, err)
				}
				continue
			}
			damaged := &rig{TB: t, fs: fs, opts: r.opts, Engine: e}
			for name, w := range want {
				got, err := damaged.content(name)
				// A tail of the log is all that may be lost: that of a batch that looks as if
				// it had never been synced.
				lost := strings.HasSuffix(path, ".wal") && strings.HasPrefix(w, got)
				if err == nil && got != w && !lost || err != nil && corruption(err) == nil {
					t.Errorf("%s at %d: %s has %d bytes instead of %d: %v", path, at, name, len(got), len(w), err)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// What is missing is not made anew.
func TestMissingFilesRefuseToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := full(t)
		for _, pattern := range []string{
			"data/SNAKREAM", "data/shard-01/CURRENT", "data/shard-01/MANIFEST-*", "data/shard-02/wal/*.wal", "data/shard-00/seg/*.seg",
		} {
			fs := r.fs.Clone()
			path := lastBusy(t, fs, pattern)
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
			named := path
			if strings.HasSuffix(path, ".wal") { // which one it was nobody knows, but where
				named = filepath.Dir(path)
			}
			if err := r.refused(fs, named); corruption(err) == nil && !errors.Is(err, engine.ErrIncomplete) {
				t.Errorf("%s is missing: %v", path, err)
			}
		}
		for _, dir := range []string{"data/shard-01", "data/shard-02/wal", "data/shard-00/seg"} {
			fs := r.fs.Clone()
			if err := fs.Rename(dir, "elsewhere"); err != nil {
				t.Fatal(err)
			}
			if err := r.refused(fs, dir); corruption(err) == nil {
				t.Errorf("%s is missing: %v", dir, err)
			}
		}
	})
}

// A newer program's files are not damaged ones.
func TestNewerFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := full(t)
		for pattern, sum := range map[string]int{ // where the header's checksum is, behind what it covers
			"data/SNAKREAM": 56, "data/shard-01/MANIFEST-*": 4088, "data/shard-02/wal/*.wal": 56, "data/shard-00/seg/*.seg": 4088,
		} {
			fs := r.fs.Clone()
			path := lastBusy(t, fs, pattern)
			err := fs.Corrupt(path, 0, func(b []byte) {
				b[8] = 200
				binary.LittleEndian.PutUint64(b[sum:], bin.Sum(b[:sum]))
			})
			if err != nil {
				t.Fatal(err)
			}
			err = r.refused(fs, path)
			if v := (*base.VersionError)(nil); !errors.As(err, &v) || v.Version != 200 {
				t.Errorf("%s: not reported as a newer version: %v", path, err)
			}
		}
	})
}

// Directories that are none of ours, or somebody else's at the moment.
func TestForeignDirectories(t *testing.T) {
	open := func(fs *vfstest.MemFS, shards int) error {
		o := tiny(shards)
		o.FS = fs
		e, err := engine.Open("data", o)
		if err == nil {
			err = e.Close()
		}
		return err
	}
	foreign := vfstest.New()
	if err := foreign.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	write(t, foreign, "data/holiday.jpg", []byte("sun"))
	was := files(t, foreign, "data")
	if err := open(foreign, 1); !errors.Is(err, engine.ErrForeign) || !strings.Contains(err.Error(), "holiday.jpg") {
		t.Errorf("a foreign directory: %v", err)
	}
	unchanged(t, was, files(t, foreign, "data"))

	r := newRig(t, tiny(2))
	r.create("a")
	if err := open(r.fs, 2); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("a directory that is open: %v", err)
	}
	r.append("a", "still mine")
	r.close()
	if err := open(r.fs, 3); !errors.Is(err, engine.ErrShards) {
		t.Errorf("another number of shards: %v", err)
	}
	if err := open(r.fs, 0); err != nil {
		t.Errorf("whatever number of shards there is: %v", err)
	}
	if err := open(r.fs, 65); err == nil {
		t.Error("65 shards")
	}
	incomplete := r.fs.Clone()
	if err := incomplete.Remove("data/SNAKREAM"); err != nil {
		t.Fatal(err)
	}
	was = files(t, incomplete, "data")
	if err := open(incomplete, 2); !errors.Is(err, engine.ErrIncomplete) {
		t.Errorf("shards without an identity: %v", err)
	}
	unchanged(t, was, files(t, incomplete, "data"))
}

// A damaged block of payload: its range answers with an error, all else goes on, its
// bytes are kept, and no merge touches the segment.
func TestDamagedPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tiny(1)
		o.MemtableBytes, o.SegmentMaxBytes = 256<<10, 4<<20
		o.WALFileBytes, o.WALMaxBytes, o.MaxBodyBytes = 256<<10, 1<<20, 100<<10
		r := newRig(t, o)
		names := []string{"a", "b", "c"}
		want := map[string]string{}
		for _, name := range names {
			r.create(name)
			for i := range 4 { // more than a block of 64 KiB each
				body := fmt.Sprintf("<%s %d %s>", name, i, strings.Repeat("y", 30<<10))
				r.append(name, body)
				want[name] += body
			}
		}
		rest := r.fill([]string{"b"}, 1)
		want["b"] = rest["b"]
		later(time.Second)
		r.close()
		path := find(t, r.fs, "data/shard-00/seg/*.seg")[0]
		mid := strings.Index(string(files(t, r.fs, "data")[path]), "<b 2 ")
		if mid < 0 {
			t.Fatal("b is not in the segment")
		}
		if err := r.fs.Corrupt(path, int64(mid)+10, func(b []byte) { b[0]++ }); err != nil {
			t.Fatal(err)
		}
		damaged := files(t, r.fs, "data")[path]
		r.open()
		check := func() {
			t.Helper()
			for _, name := range []string{"a", "c"} {
				r.expect(name, want[name])
			}
			if _, err := r.content("b"); corruption(err) == nil || corruption(err).Path != path {
				t.Errorf("the damaged stream: %v", err)
			}
			tail := len(want["b"]) - 10
			got, err := r.part("b", tail, len(want["b"]))
			if err != nil || got != want["b"][tail:] {
				t.Errorf("what is elsewhere: %q, %v", got, err)
			}
			if got := files(t, r.fs, "data")[path]; !bytes.Equal(got, damaged) {
				t.Error("the damaged segment has changed")
			}
		}
		check()
		for range 10 { // enough for merges of all segments
			for _, name := range names {
				for i := range 9 {
					body := fmt.Sprintf("<%s %d %s>", name, i, strings.Repeat("z", 10<<10))
					r.append(name, body)
					want[name] += body
				}
			}
			later(time.Minute)
		}
		if r.metric("snakream_merge_failures_total") == 0 || r.metric("snakream_merges_total") == 0 || r.metric("snakream_damaged_total") == 0 {
			t.Error("no merge has met the damage, or none went past it")
		}
		check()
		r.reopen()
		check()
		r.close()
	})
}

// part reads the bytes [from, to) of a stream.
func (r *rig) part(name string, from, to int) (string, error) {
	var st engine.Step
	defer st.Release()
	v := r.view(name)
	var all []byte
	for from < to {
		err := r.Read(v, base.Offset(from), base.Offset(to), 1<<20, &st)
		if err == nil {
			all, err = st.Append(context.Background(), all)
		}
		if err != nil {
			return "", err
		}
		from = int(st.End())
	}
	return string(all), nil
}
