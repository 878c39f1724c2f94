package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/faults"
	"github.com/snakream/snakream/tiering"
)

const (
	testKey    = "testkey"
	testSecret = "testsecret"
)

// scratch holds the server's program and buckets; it goes when the tests have run.
var scratch string

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if scratch, err = os.MkdirTemp("", "snakream-s3-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	// Nothing of the machine's own configuration has a part in this.
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": testKey, "AWS_SECRET_ACCESS_KEY": testSecret, "AWS_SESSION_TOKEN": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_CA_BUNDLE": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "NO_PROXY": "127.0.0.1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	code = m.Run()
	if stop := stopServer.Load(); stop != nil {
		(*stop)()
	}
	return code, nil
}

// server is the S3 server that all tests share: its URL, and the folder of its buckets.
// It is started by the first test that wants it.
var server = sync.OnceValues(func() (s struct{ url, dir string }, err error) {
	program := os.Getenv("S3TESTD")
	if program == "" {
		program = filepath.Join(scratch, "s3testd")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
		build.Dir = filepath.Join("..", "..", "test", "s3testd")
		if out, err := build.CombinedOutput(); err != nil {
			return s, fmt.Errorf("building s3testd: %w\n%s", err, out)
		}
	}
	s.dir = filepath.Join(scratch, "buckets")
	if err := os.Mkdir(s.dir, 0o777); err != nil {
		return s, err
	}
	for range 5 { // another may take the port first
		if s.url, err = startServer(program, s.dir); err == nil {
			return s, nil
		}
	}
	return s, err
})

var stopServer atomic.Pointer[func()]

func startServer(program, dir string) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	var output bytes.Buffer
	cmd := exec.Command(program, "-addr", addr, "-dir", dir, "-access", testKey, "-secret", testSecret)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() { _ = cmd.Process.Kill(); <-ended }
	stopServer.Store(&stop)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for late := time.After(20 * time.Second); ; {
		select {
		case <-ended:
			return "", fmt.Errorf("s3testd ended: %s", output.String())
		case <-late:
			stop()
			return "", fmt.Errorf("s3testd didn't start: %s", output.String())
		case <-look.C:
		}
		if r, err := http.Get("http://" + addr + "/healthz"); err == nil {
			_ = r.Body.Close()
			return "http://" + addr, nil
		}
	}
}

var buckets atomic.Int64

// newBucket makes a bucket of its own for a test.
func newBucket(t *testing.T) (url, bucket, dir string) {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	bucket = fmt.Sprint("bucket-", buckets.Add(1))
	dir = filepath.Join(s.dir, bucket)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return s.url, bucket, dir
}

// rig is a store behind a proxy that does what the test wants.
type rig struct {
	*Store
	t     *testing.T
	proxy *faults.Proxy
	dir   string // the bucket, as the server has it
}

// newRig returns a rig; change, if any, is asked to change the options first. Waits are
// short, so that tests of many attempts are.
func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	url, bucket, dir := newBucket(t)
	proxy, err := faults.New(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	o := Options{
		Bucket: bucket, Prefix: "some/where", Endpoint: proxy.URL, PathStyle: true,
		attempts: 3, maxBackoff: 20 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	return &rig{Store: open(t, o), t: t, proxy: proxy, dir: dir}
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// LoseAnswer implements storetest.Loser.
func (r *rig) LoseAnswer() {
	r.proxy.Set(faults.First(1, faults.Method(http.MethodPut, http.MethodDelete), faults.Lose()))
}

// file is where the server has an object.
func (r *rig) file(key string) string {
	return filepath.Join(r.dir, filepath.FromSlash(r.o.Prefix+key))
}

// put stores an object without faults.
func (r *rig) put(key string, data []byte) {
	r.t.Helper()
	r.proxy.Set(nil)
	if err := r.Put(r.t.Context(), key, tiering.BytesBody(data)); err != nil {
		r.t.Fatalf("put %q: %v", key, err)
	}
}

// expect checks, without faults, what an object holds; nil is no object.
func (r *rig) expect(key string, want []byte) {
	r.t.Helper()
	r.proxy.Set(nil)
	got, _, err := r.Load(r.t.Context(), key, 1<<30)
	switch {
	case want == nil && !errors.Is(err, tiering.ErrNotFound):
		r.t.Errorf("%q is there, or: %v", key, err)
	case want != nil && err != nil:
		r.t.Errorf("load %q: %v", key, err)
	case !bytes.Equal(got, want):
		r.t.Errorf("%q holds %d bytes, not the %d that were put, or others", key, len(got), len(want))
	}
}

// count returns how many requests with one of the methods the proxy has seen.
func (r *rig) count(methods ...string) int {
	n := 0
	for _, seen := range r.proxy.Seen() {
		if faults.Method(methods...)(&http.Request{Method: seen.Method}) {
			n++
		}
	}
	return n
}

// calls makes each call that a store has, and returns the errors by name.
func calls(ctx context.Context, s tiering.Store) map[string]error {
	all := map[string]error{}
	all["put"] = s.Put(ctx, "of calls", tiering.BytesBody([]byte("data")))
	all["get"] = s.Get(ctx, "there", make([]byte, 1), 0)
	all["get nothing"] = s.Get(ctx, "there", nil, 0)
	_, all["stat"] = s.Stat(ctx, "there")
	all["delete"] = s.Delete(ctx, "of calls")
	for _, err := range s.List(ctx, "") {
		all["list"] = err
	}
	_, _, all["load"] = s.Load(ctx, "there", 100)
	_, all["swap"] = s.Swap(ctx, "mirror", []byte("data"), "")
	return all
}

// temporary checks that a call failed, for a reason that may pass.
func temporary(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
	}
	for _, kind := range []error{tiering.ErrNotFound, tiering.ErrExists, tiering.ErrConflict, tiering.ErrShort, tiering.ErrDenied, tiering.ErrConfig} {
		if errors.Is(err, kind) {
			t.Errorf("%s: %v, which is no temporary error", what, err)
		}
	}
	harmless(t, what, err)
}

// harmless checks that an error says nothing that it shouldn't.
func harmless(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if text := err.Error(); strings.Contains(text, testSecret) || strings.Contains(text, "Signature=") || strings.Contains(text, "\n") {
		t.Errorf("%s: the error shows a secret or has several lines: %q", what, text)
	}
}

// noise is n bytes that don't compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}
