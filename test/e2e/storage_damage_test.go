//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// flip damages one byte.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	edit(t, path, func(b []byte) []byte {
		b[at] ^= 0x20
		return b
	})
}

// A damaged record with good ones behind it can't be the torn end of the log, so
// nothing may be cut off there.
func TestField121InteriorCorruption(t *testing.T) {
	t.Parallel()
	const logs = "shard-00/wal/*.wal"
	d := newDaemon(t, smallLog...)
	d.start(t)
	const entries, size = 300, 1000
	contents := map[string]string{"a": d.fill(t, "a", entries, size), "b": d.fill(t, "b", 10, size)}
	d.kill(t)
	sealed, _ := d.place(t, logs, entry("a", 0, size))
	if newest, _ := d.place(t, logs, entry("b", 9, size)); newest == sealed {
		t.Fatal("all records are in one file")
	}
	lastOfFile := 0 // the last record of the sealed file
	for n := range entries {
		if path, _ := d.place(t, logs, entry("a", n, size)); path == sealed {
			lastOfFile = n
		}
	}
	for _, n := range []int{0, lastOfFile / 2, lastOfFile} {
		t.Run(fmt.Sprintf("record %d of a sealed file", n), func(t *testing.T) {
			c := d.twin(t)
			path, at := c.place(t, logs, entry("a", n, size))
			flip(t, path, at+size/2)
			c.refused(t, path)
			flip(t, path, at+size/2)
			c.start(t)
			c.has(t, contents)
			c.stop(t)
		})
	}
	t.Run("header of a sealed file", func(t *testing.T) {
		c := d.twin(t)
		path, _ := c.place(t, logs, entry("a", 0, size))
		flip(t, path, 24)
		c.refused(t, path)
	})
	t.Run("a missing file", func(t *testing.T) {
		c := d.twin(t)
		path, _ := c.place(t, logs, entry("a", lastOfFile+1, size))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		c.refused(t, "shard-00/wal")
	})
	t.Run("a missing directory", func(t *testing.T) {
		c := d.twin(t)
		if err := os.RemoveAll(filepath.Join(c.dir, "shard-00/wal")); err != nil {
			t.Fatal(err)
		}
		c.refused(t, "shard-00/wal")
	})
	t.Run("segments", field121Segments)
}

// A segment's payload is another matter: only the readers of the damaged range get an
// error.
func field121Segments(t *testing.T) {
	const segments = "shard-00/seg/*.seg"
	d := newDaemon(t, append(slices.Clone(smallLog), "--memtable-bytes", "1MiB")...)
	d.start(t)
	const size, damaged = 1000, 150 // of 300 entries in one run, over five blocks
	contents := map[string]string{"a": d.fill(t, "a", 300, size)}
	for i := 0; d.metric(t, "snakream_flushes_total") == 0; i++ {
		if i == 40 {
			t.Fatal("no flush after 4 MB")
		}
		name := "other" + strconv.Itoa(i)
		contents[name] = d.fill(t, name, 100, size)
	}
	d.stop(t)
	sound := d.twin(t)
	path, at := d.place(t, segments, entry("a", damaged, size))
	flip(t, path, at+size/2)
	digest := files(t, d.dir)[relative(t, d.dir, path)]
	d.start(t)
	field121Served(t, d, contents, damaged*size)
	if n := d.metric(t, "snakream_damaged_reads_total"); n == 0 {
		t.Error("no metric counts the damage")
	}

	// Merges don't wash the damage away.
	for i := 0; d.metric(t, "snakream_merges_total")+d.metric(t, "snakream_merge_failures_total") == 0; i++ {
		if i == 200 {
			t.Fatal("no merge was tried after 20 MB")
		}
		name := "later" + strconv.Itoa(i)
		contents[name] = d.fill(t, name, 100, size)
	}
	d.stop(t)
	if now := files(t, d.dir)[relative(t, d.dir, path)]; now != digest {
		t.Errorf("%s has disappeared or was changed", path)
	}
	d.start(t)
	field121Served(t, d, contents, damaged*size)
	if log, err := os.ReadFile(d.log); err != nil || !strings.Contains(string(log), filepath.Base(path)) {
		t.Errorf("the log does not name %s (%v)", path, err)
	}
	d.stop(t)

	for name, at := range map[string]func([]byte) int{
		"header":  func([]byte) int { return 9 },
		"rows":    func(b []byte) int { return bytes.LastIndex(b, []byte(plain)) },
		"footer":  func(b []byte) int { return len(b) - 97 },
		"trailer": func(b []byte) int { return len(b) - 60 },
	} {
		t.Run(name, func(t *testing.T) {
			c := sound.twin(t)
			path, _ := c.place(t, segments, entry("a", damaged, size))
			edit(t, path, func(b []byte) []byte {
				b[at(b)] ^= 1
				return b
			})
			c.refused(t, path)
		})
	}
	t.Run("a missing file", func(t *testing.T) {
		c := sound.twin(t)
		path, _ := c.place(t, segments, entry("a", damaged, size))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		c.refused(t, path)
	})
}

func relative(t *testing.T, dir, path string) string {
	t.Helper()
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}

// field121Served checks what a server gives whose stream a is damaged at an offset:
// everything else.
func field121Served(t *testing.T, d *daemon, contents map[string]string, damaged int) {
	t.Helper()
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	others := maps.Clone(contents)
	delete(others, "a")
	d.has(t, others)

	const block = 64 << 10
	want := contents["a"]
	for _, from := range []int{0, damaged - 2*block, damaged + 2*block} {
		if from < 0 || from >= len(want) {
			continue
		}
		r, err := a.expect(http.StatusOK, "GET", fmt.Sprintf("a?offset=%d&max_bytes=20000", from), "")
		if err != nil {
			t.Error(err)
			continue
		}
		if err := sameBytes(r.body, want[from:min(from+20000, len(want))]); err != nil {
			t.Errorf("the sound bytes of the damaged stream from %d on: %v", from, err)
		}
	}
	for range 2 { // it stays so
		r, err := a.once("GET", fmt.Sprintf("a?offset=%d&max_bytes=20000", damaged-1000), "", nil)
		if err != nil || r.status != http.StatusInternalServerError || !strings.Contains(r.body, `"range_damaged"`) {
			t.Errorf("the damaged range: %v, %v", r, err)
		}
	}
	// A whole read has begun when it comes to the damage. It must not end as if it were complete.
	if r, err := a.once("GET", "a?offset=-1", "", nil); err == nil && r.status < http.StatusInternalServerError {
		t.Errorf("a read over the damage got %d and a proper end after %d bytes", r.status, len(r.body))
	} else if !strings.HasPrefix(want, r.body) && r.status == http.StatusOK {
		t.Error("a read over the damage got other bytes")
	}
	r, err := a.expect(http.StatusNoContent, "POST", "a", "more", "Content-Type", plain)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := r.receipt(len("more")); err != nil || at != len(want) {
		t.Errorf("an append was put at %d behind %d bytes, %v", at, len(want), err)
	}
	contents["a"] = want + "more"
}

// The small files say what the big ones are. Whatever happens to them, the big ones
// stay, and the server doesn't guess.
func TestField122MetadataTorn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, append(slices.Clone(smallLog), "--memtable-bytes", "64KiB")...)
	d.start(t)
	contents := map[string]string{}
	for i := range 4 {
		name := "s" + strconv.Itoa(i)
		contents[name] = d.fill(t, name, 100, 1000)
	}
	d.stop(t)
	manifests, err := filepath.Glob(filepath.Join(d.dir, "shard-00/MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("manifests: %v, %v", manifests, err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.NewChaCha8(sha256.Sum256(strconv.AppendUint(nil, seed, 10)))
	damages := map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"half":    func(b []byte) []byte { return b[:min(usedBytes(b), 8192)/2] }, // of a manifest, what it began with
		"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
		"random":  func(b []byte) []byte { rng.Read(b); return b },
		"flipped": func(b []byte) []byte { b[usedBytes(b)/2&^4095+16] ^= 4; return b }, // a checksum, or what has one
	}
	for _, name := range []string{"SNAKREAM", "shard-00/CURRENT", relative(t, d.dir, manifests[0])} {
		for damage, change := range damages {
			t.Run(name+" "+damage, func(t *testing.T) {
				c := d.twin(t)
				edit(t, filepath.Join(c.dir, name), change)
				c.refused(t, name)
			})
		}
		t.Run(name+" missing", func(t *testing.T) {
			c := d.twin(t)
			path := filepath.Join(c.dir, name)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			c.refused(t, name)
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			c.start(t)
			c.has(t, contents)
			c.stop(t)
		})
	}
}

// A manifest that lost its newest edits looks like one that never had them. What they
// named must not be taken for garbage: it is all there is when the log has moved on.
func TestField122ManifestLostEdits(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, append(slices.Clone(smallLog), "--memtable-bytes", "64KiB")...)
	d.start(t)
	contents := map[string]string{}
	for i := 0; d.metric(t, "snakream_flushes_total") < 3; i++ {
		if i == 100 {
			t.Fatal("no three flushes after 2 MB")
		}
		name := "s" + strconv.Itoa(i)
		contents[name] = d.fill(t, name, 20, 1000)
	}
	d.stop(t)
	manifests, err := filepath.Glob(filepath.Join(d.dir, "shard-00/MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("manifests: %v, %v", manifests, err)
	}
	const block = 4096 // where edits begin; the first two are the header and what the file began with
	whole, err := os.ReadFile(manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	for end := (usedBytes(whole) - 1) &^ (block - 1); end >= 2*block; end -= block {
		t.Run(fmt.Sprintf("from byte %d on", end), func(t *testing.T) {
			c := d.twin(t)
			edit(t, filepath.Join(c.dir, relative(t, d.dir, manifests[0])), func(b []byte) []byte { return b[:end] })
			before := files(t, c.dir)
			c.launch(t)
			if c.comesUp(t) {
				c.has(t, contents)
				return
			}
			if code := c.cmd.ProcessState.ExitCode(); code != exitData {
				t.Errorf("it ended with %v, not with %d:\n%s", c.cmd.ProcessState, exitData, tail(c.log, 4000))
			}
			unchanged(t, before, files(t, c.dir))
		})
	}
}

// usedBytes returns the length of b without the zeros at its end, which a manifest has
// for edits to come.
func usedBytes(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }
