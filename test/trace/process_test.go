//go:build e2e

package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/internal/daemontest"
)

// program is the absolute path of the program under test.
var program string

func TestMain(m *testing.M) { os.Exit(daemontest.Main(m, "../..", &program)) }

// patience bounds every wait. Generous, since the machine may be busy.
const patience = 30 * time.Second

// process is a traced server with a data directory of its own, data below the
// tracer's root.
type process struct {
	*tracer
	listen, admin string
	log           string
}

// launch starts a server on an empty directory and waits until it is ready.
func launch(t *testing.T, flags ...string) *process {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return launchIn(t, root, flags...)
}

// launchIn starts a server on the data directory below root.
func launchIn(t *testing.T, root string, flags ...string) *process {
	t.Helper()
	var err error
	p := &process{listen: daemontest.FreeAddress(t), admin: daemontest.FreeAddress(t), log: filepath.Join(root, "log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	argv := append([]string{program, "serve", "--listen", p.listen, "--admin-listen", p.admin,
		"--data-dir", filepath.Join(root, "data"), "--shards", "1"}, flags...)
	if p.tracer, err = startTraced(root, argv, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	daemontest.AwaitReady(t, p.admin, patience, p.done, p.said)
	return p
}

// said is what the process has logged.
func (p *process) said() string { return daemontest.Tail(p.log, 1<<20) }

// kill ends the process, if it still runs, and waits until it is gone.
func (p *process) kill(t *testing.T) {
	select {
	case <-p.done:
		return
	default:
	}
	syscall.Kill(p.pid, syscall.SIGKILL) // an error means that it has just ended
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("the server survived SIGKILL for %v", patience)
	}
}

// stop ends the process by SIGTERM; it must exit with 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t)
}

// awaitEnd waits until the process, which was sent SIGTERM, has ended with 0.
func (p *process) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the server runs on %v after SIGTERM", patience)
	}
	if !p.exit.Exited() || p.exit.ExitStatus() != 0 {
		t.Fatalf("after SIGTERM the server ended with %#x\n%s", p.exit, p.said())
	}
}

// since returns the events that began after a position.
func (p *process) since(t *testing.T, position int) []event {
	t.Helper()
	events, err := p.list(position)
	if err != nil {
		t.Fatalf("the trace is not complete: %v", err)
	}
	return events
}

// await waits until an event that began after a position satisfies ok.
func (p *process) await(t *testing.T, position int, what string, ok func(event) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		events := p.since(t, position)
		for _, e := range events {
			if ok(e) {
				return
			}
		}
		select {
		case <-changed:
		case <-p.done:
			t.Fatalf("the server ended before %s\n%s", what, p.said())
		case <-deadline:
			t.Fatalf("%s did not happen within %v:\n%v", what, patience, around(events, p.now()))
		}
	}
}

// client is one connection, whose address the trace knows.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	addr string
	host string
}

func (p *process) dial(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp4", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn: conn, in: bufio.NewReader(conn), addr: conn.LocalAddr().String(), host: p.listen}
}

// request is what a client sends, and the status that it must get.
type request struct {
	method, stream, body string
	header               []string
	status               int
}

func (r request) String() string {
	return fmt.Sprintf("%s %s with %d bytes, %v", r.method, r.stream, len(r.body), r.header)
}

// send sends a request without waiting for its answer.
func (c *client) send(r request) error {
	req, err := http.NewRequest(r.method, "http://"+c.host+"/v1/stream/"+r.stream, strings.NewReader(r.body))
	if err != nil {
		return err
	}
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Set(r.header[i], r.header[i+1])
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		return err
	}
	_, err = c.conn.Write(b.Bytes())
	return err
}

// receive reads the answer to r; its status must be the one that r wants.
func (c *client) receive(r request) (header http.Header, body string, err error) {
	req := &http.Request{Method: r.method}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return nil, "", fmt.Errorf("%v: %w", r, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != r.status {
		err = fmt.Errorf("want %d, got %d %v %.200q", r.status, resp.StatusCode, resp.Header, b)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%v: %w", r, err)
	}
	return resp.Header, string(b), nil
}

// do sends a request and reads its answer.
func (c *client) do(r request) (header http.Header, body string, err error) {
	if err := c.send(r); err != nil {
		return nil, "", fmt.Errorf("%v: %w", r, err)
	}
	return c.receive(r)
}
