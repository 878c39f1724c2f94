//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/internal/daemontest"
)

// The tests called TestTier… run the binary with an object store: a real S3 server, or
// a directory.

const (
	s3Bucket = "streams"
	s3Prefix = "node-1"
	s3Key    = "testkey"
	s3Secret = "the-secret-of-the-tests"
)

// scratch is where a program of the tests is built that no variable names.
var scratch struct {
	sync.Mutex
	dir string
}

// removeScratch is called when all tests have run.
func removeScratch() {
	if scratch.dir != "" {
		_ = os.RemoveAll(scratch.dir)
	}
}

// s3Program is the S3 server: the one that S3TESTD names, or one that is built now.
var s3Program = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("S3TESTD"); named != "" {
		return filepath.Abs(named)
	}
	dir, err := os.MkdirTemp("", "snakream-s3testd-")
	if err != nil {
		return "", err
	}
	scratch.Lock()
	scratch.dir = dir
	scratch.Unlock()
	program := filepath.Join(dir, "s3testd")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join(moduleRoot, "test", "s3testd")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building s3testd: %w\n%s", err, out)
	}
	return program, nil
})

// s3Server is an S3 server of a test's own, with one bucket.
type s3Server struct {
	url string
	dir string // the bucket, as the server has it
}

func newS3(t *testing.T) *s3Server {
	t.Helper()
	program, err := s3Program()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "buckets")
	s := &s3Server{dir: filepath.Join(root, s3Bucket)}
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	var output bytes.Buffer
	cmd := exec.Command(program, "-addr", addr, "-dir", root, "-access", s3Key, "-secret", s3Secret)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	s.url = "http://" + addr
	deadline := time.After(readyTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := http.Get(s.url + "/healthz"); err == nil {
			r.Body.Close()
			return s
		}
		select {
		case <-ended:
			t.Fatalf("s3testd ended: %s", output.String())
		case <-deadline:
			t.Fatal("s3testd is not ready")
		case <-tick.C:
		}
	}
}

// s3Flags are what a server needs to reach the bucket at a URL.
func s3Flags(url string) []string {
	return []string{"--tier", "s3", "--s3-bucket", s3Bucket, "--s3-prefix", s3Prefix, "--s3-endpoint", url, "--s3-region", "us-east-1", "--s3-path-style"}
}

// s3Environ is the environment with the credentials, and without anything that this
// machine tells the AWS SDK.
func s3Environ(key, secret string) []string {
	var env []string
	for _, v := range daemontest.Environ() {
		if !strings.HasPrefix(v, "AWS_") {
			env = append(env, v)
		}
	}
	return append(env, "AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "NO_PROXY=127.0.0.1")
}

// tierRig is a server with an object store.
type tierRig struct {
	*field
	flags   []string // of serve, doctor and restore: where the store is
	objects string   // the folder of the objects
	s3      *s3Server
}

// small are settings with which a little data has a long way: tiny files, and everything
// goes to the tier within a fraction of a second.
var small = []string{
	"--wal-file-bytes", "1MiB", "--max-body-bytes", "512KiB", "--min-free-disk", "16MiB", "--memtable-bytes", "256KiB",
	"--wal-max-bytes", "2MiB", "--segment-max-bytes", "1MiB", "--max-inflight-body-bytes", "64MiB",
	"--tier-flush-interval", "100ms", "--tier-min-bytes", "64KiB", "--cold-cache-bytes", "2MiB",
}

// soonGone has deletions come true within seconds.
var soonGone = []string{"--gc-grace", "100ms", "--erase-within", "1s", "--erase-within-remote", "11m"}

// onS3 runs the test in parallel with others, on a server with a bucket of its own.
func onS3(t *testing.T, flags ...string) *tierRig {
	t.Helper()
	t.Parallel()
	s := newS3(t)
	r := newTierRig(t, s3Flags(s.url), filepath.Join(s.dir, s3Prefix), flags...)
	r.s3 = s
	r.daemon.start(t)
	return r
}

// onDir is onS3 with a directory as the store.
func onDir(t *testing.T, flags ...string) *tierRig {
	t.Helper()
	t.Parallel()
	root := filepath.Join(t.TempDir(), "tier")
	r := newTierRig(t, []string{"--tier", "dir", "--tier-dir", root}, root, flags...)
	r.daemon.start(t)
	return r
}

// onEach runs a test with each kind of store.
func onEach(t *testing.T, flags []string, test func(r *tierRig)) {
	t.Run("s3", func(t *testing.T) { test(onS3(t, flags...)) })
	t.Run("dir", func(t *testing.T) { test(onDir(t, flags...)) })
}

// newTierRig prepares a server that keeps its objects in a folder; start runs it.
func newTierRig(t *testing.T, where []string, objects string, flags ...string) *tierRig {
	t.Helper()
	d := newDaemon(t, with(where, flags)...)
	d.env = s3Environ(s3Key, s3Secret)
	r := &tierRig{field: newField(t, d), flags: where, objects: objects}
	r.patient = true
	return r
}

// other prepares a server with a data directory of its own on the same store.
func (r *tierRig) other() *tierRig {
	r.Helper()
	more := r.daemon.flags[len(r.flags):]
	o := newTierRig(r.T, r.flags, r.objects, more...)
	o.s3 = r.s3
	return o
}

// tierStatus is what a server says of its tier.
type tierStatus struct {
	Connected       bool  `json:"connected"`
	Fenced          bool  `json:"fenced"`
	Epoch           int   `json:"epoch"`
	LocalBytes      int64 `json:"local_bytes"`
	Segments        int   `json:"segments"`
	EvictedSegments int   `json:"evicted_segments"`
	PendingSegments int   `json:"pending_segments"`
	ExposedBytes    int64 `json:"exposed_bytes"`
	DeadObjects     int   `json:"dead_objects"`
	Foreign         int64 `json:"foreign_objects"`
}

func (d *daemon) tier(t *testing.T) (s tierStatus) {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/tier")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET /tier: %d, %v", resp.StatusCode, err)
	}
	return s
}

// tierPatience bounds waits for what the tier does by itself.
const tierPatience = time.Minute

// settled is for how long something must be so that the tier says of itself: it does so
// every now and then.
const settled = 400 * time.Millisecond

// protected waits until the store has everything.
func (r *tierRig) protected() {
	r.Helper()
	var s tierStatus
	defer func() {
		if r.Failed() {
			r.Logf("the tier: %+v", s)
		}
	}()
	since := time.Now()
	r.eventually(tierPatience, "everything is in the tier", func() bool {
		s = r.daemon.tier(r.T)
		if !s.Connected || s.PendingSegments > 0 || s.ExposedBytes > 0 || r.daemon.behind(r.T, s) {
			since = time.Now()
		}
		return time.Since(since) > settled
	})
}

// behind reports whether a status is one of before: the tier notes it when it gets to it,
// which takes long when its store or the disk do.
func (d *daemon) behind(t *testing.T, s tierStatus) bool {
	t.Helper()
	return d.metric(t, "snakream_memtable_bytes") > 0 || int(d.metric(t, "snakream_segments")) != s.Segments
}

// run runs another command of the binary, with the same environment, and returns what it
// said. It ends the test unless the exit code is want.
func (r *tierRig) run(want int, args ...string) (out, errs string) {
	r.Helper()
	return runBinary(r.T, want, r.daemon.env, args...)
}

func runBinary(t *testing.T, want int, env []string, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &o, &e
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if code := cmd.ProcessState.ExitCode(); code != want {
		t.Fatalf("%q: %v, want exit code %d\n%s%s", args, exit, want, &o, &e)
	}
	return o.String(), e.String()
}

// rest waits until nothing changes in the store: an S3 server may still do what another
// has asked for before it was killed.
func (r *tierRig) rest() {
	r.Helper()
	var files map[string]int64
	var mirror string
	since := time.Now()
	r.eventually(tierPatience, "nothing changes in the store", func() bool {
		b, err := os.ReadFile(filepath.Join(r.objects, "mirror")) // all others never change
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Fatal(err)
		}
		if now := sizes(r.T, r.objects); mirror != string(b) || !maps.Equal(files, now) {
			files, mirror, since = now, string(b), time.Now()
		}
		return time.Since(since) > settled
	})
}

// restore makes the data directory of another server out of the store alone.
func (r *tierRig) restore() *tierRig {
	r.Helper()
	r.rest()
	o := r.other()
	o.run(0, with([]string{"restore", "--json", "--data-dir", o.daemon.dir}, o.flags)...)
	return o
}

// sizes returns the sizes of the files below a folder by path. Files may come and go
// meanwhile.
func sizes(t *testing.T, root string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			all[path] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sum returns the sum of the sizes of some files.
func sum(all map[string]int64, which func(path string) bool) (total int64) {
	for path, n := range all {
		if which(path) {
			total += n
		}
	}
	return total
}

// contents returns what the files below a folder hold, by path.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for path := range sizes(t, root) {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(b)
	}
	return all
}

// send sends a request with any path, once.
func (f *field) send(method, path, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(f.Context(), method, f.daemon.url()+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.client.Transport.RoundTrip(req) // a redirect is an answer
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}
