package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
)

// directory makes a data directory with n appends, each in a batch of its own.
func directory(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	e, err := engine.Open(dir, engine.Options{WALFileBytes: 1 << 20, MinFreeDisk: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	do := func(ev core.Event) {
		t.Helper()
		o := &engine.Op{Event: ev, Stream: e.Lookup([]byte("b"), []byte("s"))}
		if err := e.Do(o); err != nil || !o.Answer.Code.OK() {
			t.Fatalf("answered %d, %v", o.Answer.Code, err)
		}
	}
	do(core.Event{Op: core.OpCreate, Bucket: "b", Name: "s", ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1})
	for i := range n {
		body := fmt.Sprintf("<append %d>", i)
		do(core.Event{Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte(body), Ends: []uint32{uint32(len(body))}})
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// contents returns all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// spoil changes a byte of the first file that holds a text.
func spoil(t *testing.T, dir, text string) {
	t.Helper()
	for path, b := range contents(t, dir) {
		if i := strings.Index(b, text); i >= 0 {
			if err := os.WriteFile(path, []byte(b[:i]+"?"+b[i+1:]), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no file holds %q", text)
}

// runs executes a command line.
func runs(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := run(args, nil, &out, &out); code != want {
		t.Fatalf("%q: exit %d instead of %d\n%s", args, code, want, out.String())
	}
	return out.String()
}

func says(t *testing.T, out string, all ...string) {
	t.Helper()
	for _, s := range all {
		if !strings.Contains(out, s) {
			t.Errorf("nobody says %q:\n%s", s, out)
		}
	}
}

func TestVerifyAndRepair(t *testing.T) {
	dir := directory(t, 20)
	was := contents(t, dir)
	same := func() {
		t.Helper()
		is := contents(t, dir)
		for path, b := range was {
			if is[path] != b {
				t.Errorf("%s has changed", path)
			}
		}
		if len(is) != len(was) {
			t.Errorf("%d files instead of %d", len(is), len(was))
		}
	}
	says(t, runs(t, exitOK, "verify", "--data-dir", dir), "1 streams", "0 findings that refuse a start")
	says(t, runs(t, exitOK, "repair", "--data-dir", dir), "nothing to repair")
	says(t, runs(t, exitOK, "repair", "--apply", "--data-dir", dir), "nothing to repair")
	same()

	spoil(t, dir, "<append 7>")
	was = contents(t, dir)
	says(t, runs(t, exitData, "verify", "--data-dir", dir), "REFUSED: "+dir, ".wal: byte ", "snakream repair")
	says(t, runs(t, exitData, "repair", "--data-dir", dir), "b/s: offsets [70, 210) are gone", "Nothing was changed")
	same()
	says(t, runs(t, exitOK, "repair", "--data-dir", dir, "--apply"), "b/s: offsets [70, 210) are gone", "new history", "Done.")
	says(t, runs(t, exitOK, "verify", "--data-dir", dir), "note: "+filepath.Join(dir, "quarantine"), "0 findings that refuse a start")
	e, err := engine.Open(dir, engine.Options{MinFreeDisk: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if v := e.Lookup([]byte("b"), []byte("s")).View(); v.Next != 70 || e.History() != 2 {
		t.Errorf("the stream ends at %d, in history %d", v.Next, e.History())
	}
	says(t, runs(t, exitFailure, "verify", "--data-dir", dir), "stop that first")
	says(t, runs(t, exitFailure, "repair", "--apply", "--data-dir", dir), "stop that first")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	spoil(t, dir, "SNAKREAM")
	was = contents(t, dir)
	says(t, runs(t, exitData, "repair", "--apply", "--data-dir", dir), "it cannot be repaired", "Nothing was changed")
	same()
}

func TestVerifyUsage(t *testing.T) {
	says(t, runs(t, exitUsage, "verify", "--data-dir", filepath.Join(t.TempDir(), "nowhere")), "is it there?")
	says(t, runs(t, exitUsage, "repair", "--aply"), "unknown flag --aply")
	says(t, runs(t, exitUsage, "verify", "there"), "unexpected argument")
	says(t, runs(t, exitOK, "repair", "--help"), "snakream repair [--apply] [flags]", "--data-dir")
	says(t, runs(t, exitData, "verify", "--data-dir", t.TempDir()), "not a Snakream data directory")
}
