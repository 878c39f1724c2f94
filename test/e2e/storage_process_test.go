//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestField127TwoProcesses(t *testing.T) {
	t.Parallel()
	first := newDaemon(t, smallLog...)
	first.start(t)
	content := first.fill(t, "s", 10, 100)
	before := files(t, first.dir)
	second := newDaemon(t, smallLog...)
	second.dir = first.dir
	if said := second.ends(t, exitData, 5*time.Second); said == "" {
		t.Error("the second process said nothing")
	}
	unchanged(t, before, files(t, first.dir))
	first.has(t, map[string]string{"s": content})

	first.kill(t) // what it leaves does not lock anybody out
	second.start(t)
	second.goesOn(t, "s", content)

	// A lock file by itself means nothing, and neither does its lack.
	if err := os.Remove(filepath.Join(first.dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	first.start(t)
	first.has(t, map[string]string{"s": content + "and more"})
	second.ends(t, exitData, 5*time.Second)
	first.stop(t)
}

// fewFiles is a limit of open files that a descriptor for each stream would exceed.
const fewFiles = 256

// launchLimited starts the process under a limit of open files that it can't raise.
func (d *daemon) launchLimited(t *testing.T, limit int) {
	t.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, limit), binary,
		"serve", "--listen", d.listen, "--admin-listen", d.admin, "--data-dir", d.dir}
	cmd, ended := exec.Command("sh", append(args, d.flags...)...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.cmd, d.ended = cmd, ended
	go func() { // ends with the process
		cmd.Wait()
		log.Close()
		close(ended)
	}()
}

func TestField131FewDescriptors(t *testing.T) {
	t.Parallel()
	const streams, sockets = 5000, 400
	d := newDaemon(t, append(slices.Clone(smallLog), "--memtable-bytes", "256KiB")...)
	d.start(t)
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	name := func(i int) string { return "few/" + strconv.Itoa(i) }
	eachOf(t, streams, func(i int) error {
		_, err := a.expect(http.StatusCreated, "PUT", name(i), entry(name(i), 0, 50), "Content-Type", plain)
		return err
	})
	d.kill(t)
	a.client.CloseIdleConnections()
	const tooFew = 12 // for the log and the segments: none of them may be skipped
	d.launchLimited(t, tooFew)
	if d.comesUp(t) {
		t.Errorf("the server started with %d files", tooFew)
		d.kill(t)
	}
	d.launchLimited(t, fewFiles)
	if !d.comesUp(t) {
		t.Fatalf("the server does not start with %d files: %v\n%s", fewFiles, d.cmd.ProcessState, tail(d.log, 4000))
	}
	eachOf(t, streams, func(i int) error {
		got, err := a.content(name(i))
		if err != nil {
			return err
		}
		return sameBytes(got, entry(name(i), 0, 50))
	})
	a.client.CloseIdleConnections()

	var served, turnedAway atomic.Int64
	conns := make([]net.Conn, sockets)
	for i := range conns {
		conn, err := net.DialTimeout("tcp", d.listen, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	eachOf(t, sockets, func(i int) error {
		conns[i].SetDeadline(time.Now().Add(20 * time.Second))
		_, sent := fmt.Fprintf(conns[i], "GET /v1/stream/%s?offset=-1 HTTP/1.1\r\nHost: x\r\n\r\n", name(i))
		resp, err := http.ReadResponse(bufio.NewReader(conns[i]), nil)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("connection %d hangs", i)
		case err != nil || sent != nil || resp.StatusCode == http.StatusServiceUnavailable:
			turnedAway.Add(1)
		case resp.StatusCode != http.StatusOK:
			return fmt.Errorf("connection %d got %d", i, resp.StatusCode)
		default:
			served.Add(1)
		}
		return nil
	})
	t.Logf("of %d connections %d were served and %d turned away", sockets, served.Load(), turnedAway.Load())
	if served.Load() < fewFiles/4 {
		t.Errorf("of %d connections only %d were served", sockets, served.Load())
	}
	for _, c := range conns {
		c.Close()
	}
	// The server takes note of that by and by.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-tick.C {
		r, err := a.once("POST", name(0), "later", []string{"Content-Type", plain})
		if err == nil && r.status == http.StatusNoContent {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("10 s after the other connections were closed: %v, %v", r, err)
		}
	}
	d.has(t, map[string]string{name(0): entry(name(0), 0, 50) + "later"})
	d.stop(t)
}

// eachOf calls one for 0 to n-1 on a few goroutines. It ends the test if one fails.
func eachOf(t *testing.T, n int, one func(i int) error) {
	t.Helper()
	const workers = 16
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = one(i)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
