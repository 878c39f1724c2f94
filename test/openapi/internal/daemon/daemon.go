// Package daemon runs the binary with a data directory and addresses of its own, for
// tests that hold what is written about it against what it does.
package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds the start and the end of the process. It is generous, since the
// machine may be busy.
const patience = time.Minute

// Daemon is a running process.
type Daemon struct {
	Listen string // host:port of the API

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended

	mu  sync.Mutex
	log strings.Builder
}

// Binary returns the absolute path of the program: the one that E2E_BINARY names, or
// one that it builds. root is the directory of the daemon's module.
func Binary(root string) (string, error) {
	if named := os.Getenv("E2E_BINARY"); named != "" {
		return filepath.Abs(named)
	}
	binary, err := filepath.Abs(filepath.Join(root, "bin", "snakream"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/snakream")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return binary, nil
}

// Start runs binary with an empty data directory below dir and returns when it
// serves. Stop has to be called in the end.
func Start(binary, dir string, flags ...string) (*Daemon, error) {
	d := &Daemon{ended: make(chan struct{})}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "data"), "--log-format", "json"}
	d.cmd = exec.Command(binary, append(args, flags...)...)
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAKREAM_") })
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	serving := make(chan string, 1)
	go func() { // ends with the process
		defer close(d.ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.note(lines.Text())
			var line struct{ Msg, Listen string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- line.Listen
			}
		}
		d.cmd.Wait() // how it ended is in ProcessState
	}()
	select {
	case d.Listen = <-serving:
		return d, nil
	case <-d.ended:
		return nil, fmt.Errorf("the server ended before it served: %v\n%s", d.cmd.ProcessState, d.Log())
	case <-time.After(patience):
		d.cmd.Process.Kill()
		<-d.ended
		return nil, fmt.Errorf("the server does not serve after %v\n%s", patience, d.Log())
	}
}

func (d *Daemon) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.WriteString(line + "\n")
}

// Log returns what the process has logged so far.
func (d *Daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// Stop ends the process by SIGTERM. It is an error when that takes too long, when the
// exit code is not 0, and when the log has something that it calls an error.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("the server ran on for %v after SIGTERM", patience)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the server ended with %v\n%s", d.cmd.ProcessState, d.Log())
	}
	for line := range strings.Lines(d.Log()) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "panic") {
			return fmt.Errorf("the server's log: %s", line)
		}
	}
	return nil
}
