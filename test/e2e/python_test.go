//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// pythonTimeout bounds one run of the Python tests.
const pythonTimeout = 3 * time.Minute

// TestPythonClient runs the tests of test/python, which start servers of their own. A machine
// without Python lets it pass, unless CI_REQUIRE_PYTHON is set.
func TestPythonClient(t *testing.T) {
	python := pythonEnvironment(t)
	if python == "" {
		if os.Getenv("CI_REQUIRE_PYTHON") != "" {
			t.Fatal("CI_REQUIRE_PYTHON is set, and there is no Python 3.10 for the official Python client")
		}
		t.Log("NOT RUN: there is no Python 3.10 for the official Python client")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "unittest", "-v")
	cmd.Dir = filepath.Join("..", "python")
	cmd.Env = append(os.Environ(), "E2E_BINARY="+binary, "PYTHONDONTWRITEBYTECODE=1")
	// Its own group: when it is killed, so are its servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, %v\n%s", err, context.Cause(ctx), said)
	}
	if !regexp.MustCompile(`(?m)^Ran [1-9][0-9]* tests in .*\n\nOK$`).Match(said) {
		t.Errorf("not all tests ran:\n%s", said)
	}
}

// pythonEnvironment returns the path of a Python that has the client, after installing it where that is
// still to be done. It is empty when the machine has no Python that could run it.
func pythonEnvironment(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "python"))
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, ".venv", "bin", "python")
	pins, err := os.Stat(filepath.Join(dir, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	done, err := os.Stat(filepath.Join(dir, ".venv", "installed"))
	if err == nil && !done.ModTime().Before(pins.ModTime()) {
		return python
	}
	system, err := exec.LookPath("python3")
	if err != nil {
		return ""
	}
	const unable = 3 // what install.py exits with
	install := exec.CommandContext(t.Context(), system, filepath.Join(dir, "install.py"))
	out, err := install.CombinedOutput()
	if install.ProcessState != nil && install.ProcessState.ExitCode() == unable {
		t.Logf("%s", out)
		return ""
	}
	if err != nil {
		t.Fatalf("installing the Python client: %v\n%s", err, out)
	}
	return python
}
