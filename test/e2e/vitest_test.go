//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// vitestTimeout bounds one run of vitest.
const vitestTimeout = 6 * time.Minute

// report is the part of vitest's JSON report that we read.
type report struct {
	Passed  int `json:"numPassedTests"`
	Failed  int `json:"numFailedTests"`
	Skipped int `json:"numPendingTests"`
	Files   []struct {
		Name    string `json:"name"`
		Status  string `json:"status"`
		Message string `json:"message"` // why the file itself failed
		Tests   []struct {
			Name     string   `json:"fullName"`
			Status   string   `json:"status"`
			Messages []string `json:"failureMessages"`
		} `json:"assertionResults"`
	} `json:"testResults"`
}

// vitest runs the tests of a directory below test/ and shows each as a subtest.
func vitest(t *testing.T, dir string, env ...string) report {
	t.Helper()
	dir = filepath.Join("..", dir)
	install(t, dir)
	out := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), vitestTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "node_modules/vitest/vitest.mjs", "run",
		"--no-file-parallelism", "--reporter=json", "--outputFile="+out)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CI=1", "NO_COLOR=1"), env...)
	// Its own group: when it is killed, so are its workers and their servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	said, runErr := cmd.CombinedOutput() // not zero when a test fails: the report says which
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("vitest left no report (%v, %v):\n%s", runErr, context.Cause(ctx), said)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Files {
		for _, test := range f.Tests {
			t.Run(test.Name, func(t *testing.T) {
				switch test.Status {
				case "failed":
					t.Error(strings.Join(test.Messages, "\n"))
				case "passed":
				default:
					t.Log("not run: " + test.Status)
				}
			})
		}
		if f.Status != "passed" && (f.Message != "" || len(f.Tests) == 0) {
			t.Errorf("%s: %s\n%s", filepath.Base(f.Name), f.Message, said)
		}
	}
	return r
}

// install brings the packages that the lock file pins, unless they are there.
func install(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	done, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err == nil && !done.ModTime().Before(lock.ModTime()) {
		return
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in %s: %v\n%s", dir, err, out)
	}
}
