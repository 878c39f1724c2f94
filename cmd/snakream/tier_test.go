package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/dir"
)

// exec runs a command line, and fails the test unless it ends with that exit code.
func exec(t *testing.T, want int, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(args, nil, &o, &e); code != want {
		t.Fatalf("%q: exit code %d, want %d\n%s%s", args, code, want, &o, &e)
	}
	return o.String(), e.String()
}

// says fails the test unless each word is in a text.
// lost makes a tier as a lost machine leaves it: with a stream s/s that holds "kept".
func lost(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "tier")
	store, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e, err := engine.Open(t.TempDir(), engine.Options{
		Shards: 1, Tier: store, TierFlushInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	do := func(ev core.Event) {
		t.Helper()
		ev.Bucket, ev.Name, ev.Loose = "kept", "s", true
		o := &engine.Op{Event: ev}
		if err := e.Do(o); err != nil || !o.Answer.Code.OK() {
			t.Fatalf("%v, %v", o.Answer.Code, err)
		}
	}
	do(core.Event{Op: core.OpCreate, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1, HasBody: true, Body: []byte("kept"), Ends: []uint32{4}})
	for end := time.Now().Add(10 * time.Second); ; {
		if st, _ := e.TierStatus(); st.RemoteSegments > 0 && st.PendingSegments == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing came to the tier")
		}
		<-time.After(10 * time.Millisecond)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestRestore(t *testing.T) {
	root, data := lost(t), filepath.Join(t.TempDir(), "new")
	args := func(more ...string) []string {
		return append([]string{"restore", "--tier=dir", "--tier-dir", root, "--data-dir", data}, more...)
	}
	out, _ := exec(t, exitOK, args("--dry-run")...)
	says(t, out, "directory "+root, "1 segment", "Nothing has been changed")
	if _, err := os.Stat(data); err == nil {
		t.Error("a dry run has made the directory")
	}
	out, _ = exec(t, exitOK, args("--json")...)
	var report struct {
		engine.RestoreReport
		Restored bool
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Restored || report.History != 2 || report.Streams != 1 {
		t.Errorf("%v: %s", err, out)
	}
	_, errs := exec(t, exitData, args()...)
	says(t, errs, "not empty")

	store, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e, err := engine.Open(data, engine.Options{Tier: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	v := e.Lookup([]byte("kept"), []byte("s")).View()
	var st engine.Step
	if err := e.Read(v, 0, v.Next, 100, &st); err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	if got, err := st.Append(t.Context(), nil); err != nil || string(got) != "kept" {
		t.Errorf("the stream holds %q, %v", got, err)
	}
}

func TestRestoreOfWhatIsNotThere(t *testing.T) {
	empty, data := t.TempDir(), filepath.Join(t.TempDir(), "new")
	_, errs := exec(t, exitUsage, "restore", "--tier=dir", "--tier-dir", empty, "--data-dir", data)
	says(t, errs, "nothing has been kept there")
	_, errs = exec(t, exitUsage, "restore", "--data-dir", data)
	says(t, errs, "tier is off")
	_, errs = exec(t, exitUsage, "restore", "--tier=dir", "--dryrun")
	says(t, errs, "--dryrun", "tier-dir is missing")
	_, errs = exec(t, exitUsage, "restore", "--tier=dir", "--tier-dir", filepath.Join(empty, "a", "b"), "--data-dir", data)
	says(t, errs, "no such file")

	root := lost(t)
	segments, err := filepath.Glob(filepath.Join(root, "segments", "*", "*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	if err := os.Remove(segments[0]); err != nil {
		t.Fatal(err)
	}
	out, errs := exec(t, exitFailure, "restore", "--tier=dir", "--tier-dir", root, "--data-dir", data)
	says(t, out, "1 object", tiering.SegmentPrefix)
	says(t, errs, "objects are missing")
}

func TestDoctor(t *testing.T) {
	out, _ := exec(t, exitOK, "doctor", "--tier=dir", "--tier-dir", t.TempDir())
	says(t, out, "put of other bytes is refused", "compare-and-set", "All checks passed")
	_, errs := exec(t, exitUsage, "doctor")
	says(t, errs, "tier is off")

	sdk(t)
	out, _ = exec(t, exitFailure, "doctor", "--tier=s3", "--s3-bucket=b", "--s3-endpoint", denying(t))
	says(t, out, "s3://b/", "FAILED", "InvalidAccessKeyId", "1 of 1 checks failed")
}

// denying is an S3 provider that knows nobody.
func denying(t *testing.T) (endpoint string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>InvalidAccessKeyId</Code><Message>nobody has this key</Message></Error>")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A store that can't be used is told of at the start, with the reason and what to change.
func TestServeRefusesBadTier(t *testing.T) {
	sdk(t)
	serveWith := func(want int, args ...string) string {
		t.Helper()
		_, errs := exec(t, want, append([]string{"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data")}, args...)...)
		return errs
	}
	s3 := []string{"--tier=s3", "--s3-bucket=b", "--s3-endpoint"}
	says(t, serveWith(exitUsage, append(s3, denying(t))...), "InvalidAccessKeyId", "check or renew the credentials")
	says(t, serveWith(exitUsage, append(s3, "http://127.0.0.1:1")...), "check the endpoint")
	says(t, serveWith(exitUsage, "--tier=dir", "--tier-dir", lost(t)), "belongs to another node", "snakream restore")
	missing := filepath.Join(t.TempDir(), "not", "mounted")
	says(t, serveWith(exitUsage, "--tier=dir", "--tier-dir", missing), "no such file")

	// A directory whose data is in a tier can't do without.
	root, data := lost(t), filepath.Join(t.TempDir(), "data")
	exec(t, exitOK, "restore", "--tier=dir", "--tier-dir", root, "--data-dir", data)
	says(t, serveWith(exitUsage, "--data-dir", data), "no tier is configured")
}

func TestTierStatus(t *testing.T) {
	st := engine.TierStatus{
		Store: "s3://b/", Connected: true, Epoch: 7, Committed: time.Now().Add(-time.Minute), LocalBytes: 3 << 30, LocalBudget: 4 << 30,
		Segments: 12, RemoteSegments: 10, EvictedSegments: 4, PendingSegments: 2, PendingBytes: 1 << 20, ExposedBytes: 3 << 20, ExposedSeconds: 6.3, DeadObjects: 1,
	}
	answer := func(w http.ResponseWriter) { _ = json.NewEncoder(w).Encode(st) }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tier" {
			t.Errorf("asked for %s", r.URL)
		}
		answer(w)
	}))
	defer s.Close()
	status := func(want int, more ...string) (out, errs string) {
		t.Helper()
		return exec(t, want, append([]string{"tier", "status", "--admin", s.URL}, more...)...)
	}
	out, _ := status(exitOK)
	says(t, out, "s3://b/", "connected, epoch 7", "1m0s ago", "3.0 GiB of 4.0 GiB", "10 are in the tier", "2 segments, 1.0 MiB", "3.0 MiB, for 6.3s", "1 object")
	out, _ = status(exitOK, "--json")
	var got engine.TierStatus
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.ExposedBytes != st.ExposedBytes {
		t.Errorf("%v: %s", err, out)
	}
	st.Connected, st.LocalBudget, st.Foreign = false, 0, 2
	out, _ = status(exitOK)
	says(t, out, "NOT CONNECTED", "without a limit", "2 objects under the prefix")
	st.Fenced = true
	out, _ = status(exitOK)
	says(t, out, "FENCED")

	answer = func(w http.ResponseWriter) { http.Error(w, "no tier is configured", http.StatusNotFound) }
	_, errs := status(exitFailure)
	says(t, errs, "404", "no tier is configured")
	answer = func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }
	_, errs = status(exitFailure)
	says(t, errs, "not the answer of a Snakream")
	s.Close()
	status(exitFailure)

	for _, args := range [][]string{{"tier"}, {"tier", "list"}, {"tier", "status", "x"}, {"tier", "status", "--admin=ftp://x"}, {"tier", "status", "--nonsense"}} {
		exec(t, exitUsage, args...)
	}
	for _, args := range [][]string{{"tier", "--help"}, {"tier", "status", "--help"}, {"restore", "--help"}, {"doctor", "--help"}} {
		if out, _ := exec(t, exitOK, args...); !strings.Contains(out, "Usage:") {
			t.Errorf("%q prints %q", args, out)
		}
	}
}

func TestByteCounts(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 30: "1.0 GiB", 5 << 60: "5.0 EiB", 1<<63 - 1: "8.0 EiB"} {
		if got := byteCount(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// What is left of a tier that is damaged is a failure, not a fault of the settings.
func TestExitCodesOfTiers(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("%w: x: %w", engine.ErrTier, tiering.ErrDenied), exitUsage},
		{fmt.Errorf("%w: x: %w", engine.ErrTier, &base.CorruptionError{Path: "mirror"}), exitFailure},
		{fmt.Errorf("%w: timeout", engine.ErrTier), exitFailure},
		{fmt.Errorf("%w: x: %w", engine.ErrTier, mirror.ErrTaken), exitUsage},
		{fmt.Errorf("%w: x: %w: %w", engine.ErrTier, mirror.ErrTaken, mirror.ErrCopy), exitData},
		{fmt.Errorf("x: %w", engine.ErrNeedsTier), exitUsage},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.err, got, test.want)
		}
	}
}
