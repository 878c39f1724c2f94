// Package daemontest is what the tests share that run the binary: where it comes from,
// the addresses and the environment that it gets, and when it is ready.
package daemontest

import (
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
	"sync"
	"testing"
	"time"
)

// Main runs the tests of a package, as its TestMain, and returns the exit code. It sets
// program to the absolute path of the binary: the one that E2E_BINARY names, or one that
// it builds for the time of the tests. root is the module's directory.
func Main(m *testing.M, root string, program *string) int {
	dir, err := os.MkdirTemp("", "snakream-test")
	if err == nil {
		defer os.RemoveAll(dir)
		*program, err = binary(root, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func binary(root, dir string) (string, error) {
	if named := os.Getenv("E2E_BINARY"); named != "" {
		return filepath.Abs(named)
	}
	path := filepath.Join(dir, "snakream")
	build := exec.Command("go", "build", "-o", path, "./cmd/snakream")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return path, nil
}

// given are the ports that FreeAddress has returned.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreeAddress finds a loopback port that nobody listens on. It lies below the range
// from which the kernel takes ports for outgoing connections: otherwise one of those
// could take it while the server is down. It returns each port once, and does not even
// try one again: its server may be about to listen, or down between two runs.
func FreeAddress(t testing.TB) string {
	t.Helper()
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if given.ports[port] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			given.ports[port] = true
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// Environ is the environment without settings of the server: those come from flags.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAKREAM_") })
}

// AwaitReady waits until the server with this admin address is ready. The test ends when
// that takes too long, or the process ends before; said returns what it has logged.
func AwaitReady(t testing.TB, admin string, within time.Duration, ended <-chan struct{}, said func() string) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get("http://" + admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ended:
			t.Fatalf("the server ended before it was ready\n%s", said())
		case <-deadline:
			t.Fatalf("the server is not ready after %v\n%s", within, said())
		case <-tick.C:
		}
	}
}

// Tail is the end of a file, for messages.
func Tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-n), io.SeekStart)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
