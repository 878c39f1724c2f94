//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of area N of the field reports that need the process: what becomes of a
// data directory that was damaged, is used twice, or comes from another version.

// smallLog has several files after a few hundred appends, and no flush.
var smallLog = []string{
	"--shards", "1",
	"--wal-file-bytes", "256KiB",
	"--wal-max-bytes", "64MiB",
	"--max-body-bytes", "64KiB",
	"--min-free-disk", "16MiB",
}

// exitData is the exit code for a data directory that can't be served.
const exitData = 3

// twin returns a daemon with the same settings and a copy of the data directory. The
// other must not run.
func (d *daemon) twin(t *testing.T) *daemon {
	t.Helper()
	c := newDaemon(t, d.flags...)
	if err := os.CopyFS(c.dir, os.DirFS(d.dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// files returns the digest of every file below dir but the lock, by its path there.
func files(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// refused starts the server, which must refuse its data directory at once, with a
// sentence that has all the words in it, and leave every file as it is.
func (d *daemon) refused(t *testing.T, words ...string) {
	t.Helper()
	before := files(t, d.dir)
	said := d.ends(t, exitData, readyTimeout)
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("the refusal does not say %q:\n%s", w, said)
		}
	}
	unchanged(t, before, files(t, d.dir))
	if t.Failed() {
		t.Logf("it said:\n%s", said)
	}
}

// unchanged compares two results of files.
func unchanged(t *testing.T, before, after map[string][sha256.Size]byte) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		switch now, ok := after[name]; {
		case !ok:
			t.Errorf("%s has disappeared", name)
		case now != before[name]:
			t.Errorf("%s was changed", name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s has appeared", name)
		}
	}
}

// comesUp reports whether a server that was launched gets ready, or ends by itself.
func (d *daemon) comesUp(t *testing.T) bool {
	t.Helper()
	deadline := time.After(readyTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get("http://" + d.admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-d.ended:
			return false
		case <-deadline:
			t.Fatalf("the server neither gets ready nor ends within %v\n%s", readyTimeout, tail(d.log, 4000))
		case <-tick.C:
		}
	}
}

// ends starts the server, which must end by itself within a time and with an exit
// code, and returns what it said.
func (d *daemon) ends(t *testing.T, code int, within time.Duration) string {
	t.Helper()
	past, err := os.ReadFile(d.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	d.launch(t)
	select {
	case <-d.ended:
	case <-time.After(within):
		t.Fatalf("the server has not ended after %v:\n%s", within, tail(d.log, 4000))
	}
	log, err := os.ReadFile(d.log)
	if err != nil {
		t.Fatal(err)
	}
	said := string(log[len(past):])
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("the server ended with %v, not with %d:\n%s", d.cmd.ProcessState, code, said)
	}
	return said
}

// edit changes a file of the data directory in place.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// holding returns the files that match pattern, below the data directory, and have a
// text in them, and where it is.
func (d *daemon) holding(t *testing.T, pattern, text string) map[string]int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(d.dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, []byte(text)); at >= 0 {
			found[p] = at
		}
	}
	return found
}

// place returns the only file that holding finds, and where the text is in it.
func (d *daemon) place(t *testing.T, pattern, text string) (string, int) {
	t.Helper()
	found := d.holding(t, pattern, text)
	if len(found) != 1 {
		t.Fatalf("%q is in %d files of %s", text, len(found), pattern)
	}
	for path, at := range found {
		return path, at
	}
	return "", 0
}

// entry is the n-th append of a stream in these tests: unique, and of the given size.
func entry(stream string, n, size int) string {
	head := fmt.Sprintf("[%s/%d]", stream, n)
	return head + strings.Repeat(string(rune('a'+n%26)), size-len(head))
}

// fill makes a stream with so many entries, one append each, and returns its content.
func (d *daemon) fill(t *testing.T, stream string, entries, size int) string {
	t.Helper()
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	if _, err := a.expect(http.StatusCreated, "PUT", stream, "", "Content-Type", plain); err != nil {
		t.Fatal(err)
	}
	var content strings.Builder
	for n := range entries {
		e := entry(stream, n, size)
		if _, err := a.expect(http.StatusNoContent, "POST", stream, e, "Content-Type", plain); err != nil {
			t.Fatal(err)
		}
		content.WriteString(e)
	}
	return content.String()
}

// has checks that streams have exactly their contents.
func (d *daemon) has(t *testing.T, contents map[string]string) {
	t.Helper()
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	for stream, want := range contents {
		got, err := a.content(stream)
		if err == nil {
			err = sameBytes(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", stream, err)
		}
	}
}

// goesOn checks that a stream has its content, takes another append, and has both
// after a restart.
func (d *daemon) goesOn(t *testing.T, stream, content string) {
	t.Helper()
	d.has(t, map[string]string{stream: content})
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	r, err := a.expect(http.StatusNoContent, "POST", stream, "and more", "Content-Type", plain)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := r.receipt(len("and more")); err != nil || at != len(content) {
		t.Errorf("the next append was put at %d behind %d bytes, %v", at, len(content), err)
	}
	d.kill(t)
	d.start(t)
	d.has(t, map[string]string{stream: content + "and more"})
	d.stop(t)
}

func TestField118ZeroTail(t *testing.T) {
	t.Parallel()
	const logs = "shard-00/wal/*.wal"
	d := newDaemon(t, smallLog...)
	d.start(t)
	const entries = 20
	content := d.fill(t, "s", entries, 1000)
	d.kill(t)
	last := entry("s", entries-1, 1000)

	for _, n := range []int{4 << 10, 4 << 20} {
		t.Run(fmt.Sprintf("%d zeros behind the log", n), func(t *testing.T) {
			c := d.twin(t)
			for path := range c.holding(t, logs, "SNKRWAL") {
				edit(t, path, func(b []byte) []byte { return append(b, make([]byte, n)...) })
			}
			c.start(t)
			c.goesOn(t, "s", content)
		})
	}
	t.Run("the last record lost its end", func(t *testing.T) {
		c := d.twin(t)
		path, at := c.place(t, logs, last)
		edit(t, path, func(b []byte) []byte {
			clear(b[at+len(last)-512 : at+len(last)])
			return b
		})
		c.start(t)
		c.goesOn(t, "s", strings.TrimSuffix(content, last))
	})
	t.Run("the last record lost everything", func(t *testing.T) {
		c := d.twin(t)
		path, at := c.place(t, logs, last)
		edit(t, path, func(b []byte) []byte {
			clear(b[at&^4095 : at+len(last)])
			return b
		})
		c.start(t)
		c.goesOn(t, "s", strings.TrimSuffix(content, last))
	})
	t.Run("a record before the last lost its end", func(t *testing.T) {
		c := d.twin(t)
		other := entry("s", entries-2, 1000)
		path, at := c.place(t, logs, other)
		edit(t, path, func(b []byte) []byte {
			clear(b[at+len(other)-512 : at+len(other)])
			return b
		})
		c.refused(t, path)
	})
	t.Run("files that were never finished", func(t *testing.T) {
		c := d.twin(t)
		for name, size := range map[string]int{"0000000098.spare": 0, "0000000099.spare": 256 << 10} {
			path := filepath.Join(c.dir, "shard-00/wal", name)
			if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.start(t)
		c.goesOn(t, "s", content)
	})
	t.Run("zeros behind a segment", func(t *testing.T) {
		c := d.twin(t)
		c.flags = append(slices.Clone(c.flags), "--memtable-bytes", "64KiB")
		c.start(t)
		more := c.fill(t, "more", 100, 1000)
		c.stop(t)
		for path := range c.holding(t, "shard-00/seg/*.seg", "SNKRSEG") {
			edit(t, path, func(b []byte) []byte { return append(b, make([]byte, 4<<10)...) })
			c.refused(t, path) // its end, which says what is in it, is not there
			edit(t, path, func(b []byte) []byte { return b[:len(b)-4<<10] })
		}
		c.start(t)
		c.has(t, map[string]string{"s": content, "more": more})
		c.stop(t)
	})
}

func TestField119ManyWALFiles(t *testing.T) {
	t.Parallel()
	const streams, rounds, writers = 1000, 10, 16
	d := newDaemon(t, smallLog...)
	d.start(t)
	a := newAPI(d)
	contents := make([]string, streams)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range rounds {
				for i := w; i < streams; i += writers {
					name := fmt.Sprintf("many/%d", i)
					method, status := "POST", http.StatusNoContent
					if n == 0 {
						method, status = "PUT", http.StatusCreated
					}
					e := entry(name, n, 250)
					if _, err := a.expect(status, method, name, e, "Content-Type", plain); err != nil {
						t.Error(err)
						return
					}
					contents[i] += e
				}
			}
		})
	}
	wg.Wait()
	rotations, flushes := d.metric(t, "snakream_wal_rotations_total"), d.metric(t, "snakream_flushes_total")
	d.kill(t)
	a.client.CloseIdleConnections()
	if rotations < 10 || flushes > 0 {
		t.Errorf("%v rotations and %v flushes: that is not a log of many files", rotations, flushes)
	}
	seed := rand.Uint64()
	t.Logf("%v log files, seed %d", rotations+1, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5 { // killed while it recovers, or just after
		d.launch(t)
		pause(t.Context(), time.Duration(rng.IntN(80))*time.Millisecond)
		d.kill(t)
	}
	d.start(t)
	if n := d.metric(t, "snakream_recovery_records"); n < streams*rounds {
		t.Errorf("%v records were replayed, of %d", n, streams*rounds)
	}
	want := map[string]string{}
	for i, c := range contents {
		want[fmt.Sprintf("many/%d", i)] = c
	}
	d.has(t, want)
	d.stop(t)
}
