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
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/internal/daemontest"
)

// binary is the absolute path of the program under test.
var binary string

// moduleRoot is the module's directory, seen from this package.
const moduleRoot = "../.."

func TestMain(m *testing.M) {
	code := daemontest.Main(m, moduleRoot, &binary)
	removeScratch()
	os.Exit(code)
}

// daemon is one data directory with its addresses, and the process that serves it
// while there is one. The addresses stay the same over restarts, so that clients can
// resume.
type daemon struct {
	dir           string
	listen, admin string
	flags         []string
	env           []string // nil: daemontest.Environ
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

// freeAddress finds a loopback port that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	return daemontest.FreeAddress(t)
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
	if d.cmd.Env = d.env; d.env == nil {
		d.cmd.Env = daemontest.Environ()
	}
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
	daemontest.AwaitReady(t, d.admin, readyTimeout, d.ended, func() string { return tail(d.log, 4000) })
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
func tail(path string, n int64) string { return daemontest.Tail(path, n) }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
