//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The tests called TestField<n>… keep one field report each from happening here. They
// talk to a server that many of them share, unless they need settings or an end of its
// process of their own.

// field is one such test and the server that it talks to. Its methods that take no
// error path end the test, and so belong to the test's own goroutine.
type field struct {
	*testing.T
	*api
	patient bool // a full disk passes: the server has a budget, and a tier to make room with
}

// sharedDaemon is a server that lives for as long as a test needs it. Tests ask for it
// before they run in parallel, so that it starts once.
type sharedDaemon struct {
	flags []string

	mu    sync.Mutex
	users int
	dir   string
	d     *daemon
}

var (
	// ordinary has the default settings.
	ordinary sharedDaemon
	// brisk ends live reads soon.
	brisk = sharedDaemon{flags: []string{"--long-poll-timeout", "1s", "--sse-max-duration", "3s", "--sse-heartbeat", "500ms"}}
)

func (s *sharedDaemon) enter(t *testing.T) *daemon {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		dir, err := os.MkdirTemp("", "snakream-field-")
		if err != nil {
			t.Fatal(err)
		}
		s.dir = dir
		s.d = &daemon{
			dir: filepath.Join(dir, "data"), log: filepath.Join(dir, "log"),
			listen: freeAddress(t), admin: freeAddress(t), flags: s.flags,
		}
		s.d.start(t)
	}
	s.users++
	t.Cleanup(func() { s.leave(t) })
	return s.d
}

func (s *sharedDaemon) leave(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Failed() {
		t.Logf("end of the server's log:\n%s", tail(s.d.log, 2000))
	}
	if s.users--; s.users > 0 {
		return
	}
	s.d.stop(t)
	checkLog(t, s.d)
	if err := os.RemoveAll(s.dir); err != nil {
		t.Error(err)
	}
}

// checkLog makes sure that a server never had a panic, nor anything else that it calls an
// error.
func checkLog(t *testing.T, d *daemon) {
	t.Helper()
	log, err := os.ReadFile(d.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			t.Errorf("the server's log: %s", line)
		}
	}
}

// onShared runs the test in parallel with others against a shared server.
func onShared(t *testing.T, s *sharedDaemon) *field {
	t.Helper()
	d := s.enter(t)
	t.Parallel()
	return newField(t, d)
}

// onOwn runs the test in parallel with others against a server of its own. Its log is small, so that
// it starts quickly.
func onOwn(t *testing.T, flags ...string) *field {
	t.Helper()
	t.Parallel()
	d := newDaemon(t, append([]string{"--wal-file-bytes", "1MiB", "--max-body-bytes", "512KiB", "--min-free-disk", "16MiB"}, flags...)...)
	d.start(t)
	return newField(t, d)
}

func newField(t *testing.T, d *daemon) *field {
	a := newAPI(d)
	t.Cleanup(a.client.CloseIdleConnections)
	return &field{T: t, api: a}
}

// restart ends the server with SIGKILL and starts it again.
func (f *field) restart() {
	f.Helper()
	f.daemon.kill(f.T)
	f.client.CloseIdleConnections()
	f.daemon.start(f.T)
}

var names atomic.Int64

// name returns a stream path that nobody has used yet.
func (f *field) name() string {
	return fmt.Sprintf("field/%s-%d", strings.ToLower(f.Name()), names.Add(1))
}

// create makes a new stream and returns its path.
func (f *field) create(contentType string, header ...string) string {
	f.Helper()
	s := f.name()
	f.want(http.StatusCreated, "PUT", s, "", append([]string{"Content-Type", contentType}, header...)...)
	return s
}

// want sends a request about a stream and ends the test unless it is answered with the
// status.
func (f *field) want(status int, method, stream, body string, header ...string) answer {
	f.Helper()
	r, err := f.withRoom(status, func() (answer, error) { return f.once(method, stream, body, header) })
	if err == nil && r.status != status {
		err = fmt.Errorf("want %d, got %v", status, r)
	}
	if err != nil {
		f.Fatalf("%s %s %.60q %q: %v", method, stream, body, header, err)
	}
	return r
}

// withRoom does ask, and again as long as the answer is that the disk is full, which
// says that nothing was stored, if that passes and is not what is wanted.
func (f *field) withRoom(status int, ask func() (answer, error)) (answer, error) {
	for until := time.Now().Add(tierPatience); ; pause(f.Context(), 20*time.Millisecond) {
		r, err := ask()
		const full = http.StatusInsufficientStorage
		if err != nil || r.status != full || status == full || !f.patient || time.Now().After(until) {
			return r, err
		}
	}
}

// text appends text to a stream of text/plain.
func (f *field) text(stream, body string) answer {
	f.Helper()
	return f.want(http.StatusNoContent, "POST", stream, body, "Content-Type", plain)
}

// holds makes sure that a stream's content is exactly this.
func (f *field) holds(stream, content string) {
	f.Helper()
	if got := f.want(http.StatusOK, "GET", stream, "").body; got != content {
		f.Fatalf("%s: %s", stream, differ(got, content))
	}
}

// has makes sure that an answer has these header values, an empty one meaning no such
// header.
func (f *field) has(r answer, header ...string) {
	f.Helper()
	for i := 0; i < len(header); i += 2 {
		if got := r.header.Get(header[i]); got != header[i+1] {
			f.Errorf("%s: %q, want %q in a %d: %.200s", header[i], got, header[i+1], r.status, r.body)
		}
	}
}

// code returns the code of a problem body.
func (r answer) code() string {
	_, rest, _ := strings.Cut(r.body, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// tuple is the three headers of a producer's write.
func tuple(id string, epoch, seq int) []string {
	return []string{"Producer-Id", id, "Producer-Epoch", strconv.Itoa(epoch), "Producer-Seq", strconv.Itoa(seq)}
}

// with joins lists of headers.
func with(headers ...[]string) []string {
	var all []string
	for _, h := range headers {
		all = append(all, h...)
	}
	return all
}

// eventually looks again and again until something is so, for at most the given time.
func (f *field) eventually(within time.Duration, what string, so func() bool) {
	f.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		if time.Now().After(deadline) {
			f.Fatalf("after %v still not: %s", within, what)
		}
		<-tick.C
	}
}

// let waits until a moment has come. Lifetimes are counted in whole seconds of the
// server's clock, so tests of them have to let time pass.
func (f *field) let(moment time.Time) { pause(f.Context(), time.Until(moment)) }

// rss returns the resident memory of the server's process, in bytes.
func (d *daemon) rss(t *testing.T) int64 { return d.memory(t, "VmRSS:") }

// peakMemory returns the most memory that the server's process has had, in bytes.
func (d *daemon) peakMemory(t *testing.T) int64 { return d.memory(t, "VmHWM:") }

// memory returns what /proc says of the process under a name, in bytes.
func (d *daemon) memory(t *testing.T, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), name)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// descriptors returns how many files and sockets the server has open.
func (d *daemon) descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// metricsText returns what the admin listener says on /metrics.
func (d *daemon) metricsText(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wirePatience bounds every wait on a raw connection.
const wirePatience = 20 * time.Second

// wire is a connection on which a test writes its octets itself.
type wire struct {
	f    *field
	conn *net.TCPConn
	r    *bufio.Reader
}

// dial opens a connection; it is closed with the test at the latest.
func (f *field) dial() *wire {
	f.Helper()
	var d net.Dialer
	ctx, cancel := context.WithTimeout(f.Context(), wirePatience)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", f.daemon.listen)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(wirePatience))
	return &wire{f, conn.(*net.TCPConn), bufio.NewReader(conn)}
}

// send writes octets.
func (w *wire) send(format string, args ...any) {
	w.f.Helper()
	if _, err := fmt.Fprintf(w.conn, format, args...); err != nil {
		w.f.Fatalf("sending: %v", err)
	}
}

// head writes a request line and fields, with the empty line behind them.
func (w *wire) head(method, target string, fields ...string) {
	w.f.Helper()
	w.send("%s", method+" "+target+" HTTP/1.1\r\nHost: "+w.f.daemon.listen+"\r\n"+lines(fields)+"\r\n")
}

// lines ends each field with CR LF.
func lines(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return strings.Join(fields, "\r\n") + "\r\n"
}

// try reads one answer.
func (w *wire) try(method string) (answer, error) {
	w.conn.SetDeadline(time.Now().Add(wirePatience))
	resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// answer reads one answer and ends the test unless it has the status; 0 takes any.
func (w *wire) answer(status int, method string) answer {
	w.f.Helper()
	r, err := w.try(method)
	if err != nil {
		w.f.Fatalf("reading an answer to %s: %v", method, err)
	}
	if status != 0 && r.status != status {
		w.f.Fatalf("%s: want %d, got %v", method, status, r)
	}
	return r
}

// ended makes sure that the server sends nothing more and closes the connection.
func (w *wire) ended() {
	w.f.Helper()
	w.conn.SetDeadline(time.Now().Add(wirePatience))
	if rest, err := io.ReadAll(w.r); len(rest) > 0 || isTimeout(err) {
		w.f.Fatalf("the connection goes on: %.200q, %v", rest, err)
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// reset closes the connection so that the server gets a reset.
func (w *wire) reset() {
	w.conn.SetLinger(0)
	w.conn.Close()
}

// target is a stream's path as it goes on the wire.
func target(stream string) string { return "/v1/stream/" + stream }

// together runs one function many times at once and collects their errors.
func (f *field) together(n int, one func(i int) error) {
	f.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			errs[i] = one(i)
		})
	}
	close(begin)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			f.Errorf("%d of %d: %v", i, n, err)
		}
	}
	if f.Failed() {
		f.FailNow()
	}
}
