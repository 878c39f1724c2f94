//go:build e2e

// Package e2e drives the binary as its users do: over HTTP, with the official
// conformance suite and client, and with SIGKILL.
//
// It holds tests only, under the build tag e2e, and needs Node beside Go. The binary
// is built first, or is the one that E2E_BINARY names.
package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the absolute path of the program under test.
var binary string

// moduleRoot is the module's directory, seen from this package.
const moduleRoot = "../.."

func TestMain(m *testing.M) {
	if err := findBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func findBinary() (err error) {
	if named := os.Getenv("E2E_BINARY"); named != "" {
		binary, err = filepath.Abs(named)
		return err
	}
	if binary, err = filepath.Abs(filepath.Join(moduleRoot, "bin", "snakream")); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/snakream")
	build.Dir = moduleRoot
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return nil
}

// daemon is one data directory with its addresses, and the process that serves it
// while there is one. The addresses stay the same over restarts, so that clients can
// resume.
type daemon struct {
	dir           string
	listen, admin string
	flags         []string
	cmd           *exec.Cmd
	ended         chan struct{} // closed when the process has ended
	log           string        // of all its processes
}

// How long the process may take. Generous, since the machine may be busy.
const (
	readyTimeout = time.Minute
	stopTimeout  = time.Minute
)

// newDaemon prepares an empty data directory; start runs it.
func newDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{
		dir:    filepath.Join(dir, "data"),
		listen: freeAddress(t), admin: freeAddress(t),
		flags: flags,
		log:   filepath.Join(dir, "log"),
	}
	t.Cleanup(func() {
		d.kill(t)
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", tail(d.log, 4000))
		}
	})
	return d
}

// freeAddress finds a loopback port that nobody listens on. It lies below the range
// from which the kernel takes ports for outgoing connections: otherwise one of those
// could take it while the server is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(20000)))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (d *daemon) url() string { return "http://" + d.listen }

// launch starts the process without waiting until it is ready.
func (d *daemon) launch(t *testing.T, extra ...string) {
	t.Helper()
	args := []string{"serve", "--listen", d.listen, "--admin-listen", d.admin, "--data-dir", d.dir}
	d.cmd = exec.Command(binary, append(append(args, d.flags...), extra...)...)
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAKREAM_") })
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := d.cmd, make(chan struct{})
	d.ended = ended
	go func() { // ends with the process
		cmd.Wait()
		log.Close()
		close(ended)
	}()
}

// start runs the process and waits until it is ready.
func (d *daemon) start(t *testing.T, extra ...string) {
	t.Helper()
	d.launch(t, extra...)
	deadline := time.After(readyTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get("http://" + d.admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-d.ended:
			t.Fatalf("the server ended before it was ready: %v\n%s", d.cmd.ProcessState, tail(d.log, 4000))
		case <-deadline:
			t.Fatalf("the server is not ready after %v\n%s", readyTimeout, tail(d.log, 4000))
		case <-tick.C:
		}
	}
}

// stop ends the process by SIGTERM; it must exit with 0.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-time.After(stopTimeout):
		t.Fatalf("the server runs on %v after SIGTERM", stopTimeout)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("after SIGTERM the server ended with %v\n%s", d.cmd.ProcessState, tail(d.log, 4000))
	}
}

// kill ends the process, if there is one, by SIGKILL and waits until it is gone.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Kill() // an error means that it has ended already
	select {
	case <-d.ended:
	case <-time.After(stopTimeout):
		t.Fatalf("the server survived SIGKILL for %v", stopTimeout)
	}
}

// metric sums a metric of the admin listener over its labels.
func (d *daemon) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var sum float64
	found := false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		value := rest[strings.LastIndexByte(rest, ' ')+1:]
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric line %q: %v", lines.Text(), err)
		}
		sum += v
		found = true
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// tail is the end of a file, for messages.
func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-n), io.SeekStart)
	}
	b, _ := io.ReadAll(f)
	return string(b)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
