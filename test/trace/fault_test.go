//go:build e2e

package trace

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A call that fails, once, and what has to have come before it.
type failure struct {
	name  string
	after int // that many calls of the kind succeed first
	match func(event) bool
	lost  bool // what was written last has not reached the disk either
	flags []string
}

func syncOf(match func(string) bool) func(event) bool {
	return func(e event) bool { return e.isSync() && match(e.path) }
}

func exactly(dir string) func(string) bool { return func(p string) bool { return p == dir } }

var failures = []failure{
	{name: "sync of the log", after: 20, match: syncOf(isLog)},
	{name: "sync of the log, and the pages are lost", after: 20, match: syncOf(isLog), lost: true},
	{name: "write of the log", after: 20, match: func(e event) bool { return e.call == "pwrite64" && isLog(e.path) }},
	{name: "sync of the log's directory", match: syncOf(exactly(logDir)), flags: tinyLimits},
	{name: "rename in the log's directory", match: func(e event) bool { return e.call == "rename" && isLog(e.to) }, flags: tinyLimits},
	{name: "sync of the segments' directory", match: syncOf(exactly(segmentDir)), flags: tinyLimits},
	{name: "sync of the manifest", match: syncOf(func(p string) bool { return strings.HasPrefix(p, manifest) }), flags: tinyLimits},
}

// The first sync, or write, of the log, the manifest or a directory that fails ends the
// process: nothing of that batch or a later one is acknowledged, nothing is tried again,
// and the next start says truly what is there.
func TestField124SyncFails(t *testing.T) {
	for _, b := range failures {
		t.Run(b.name, func(t *testing.T) {
			p := launch(t, b.flags...)
			var writers []*writer
			for i := range 4 {
				writers = append(writers, p.writer(t, fmt.Sprint("w", i)))
			}
			failed := make(chan struct{})
			p.inject(b.injections(failed)...)
			var wg sync.WaitGroup
			for _, w := range writers {
				wg.Go(w.run)
			}
			wg.Wait()
			select {
			case <-failed:
			default:
				t.Fatalf("no %s in %d appends each", b.name, mostAppends)
			}
			p.ends(t, 1)
			p.quietAfter(t, b)
			next := launchIn(t, p.root, b.flags...)
			for _, w := range writers {
				w.check(t, next, b)
			}
			next.stop(t)
		})
	}
}

// injections makes one call fail with EIO, and closes a channel then.
func (b *failure) injections(failed chan struct{}) []*injection {
	seen, over := 0, false
	var all []*injection
	if b.lost { // the write before that sync
		all = append(all, &injection{
			matches: func(e event) bool {
				return !over && seen == b.after && e.call == "pwrite64" && isLog(e.path)
			},
			result: func(e event) int64 { return e.n },
		})
	}
	return append(all, &injection{
		matches: func(e event) bool {
			if over || !b.match(e) {
				return false
			}
			seen++
			over = seen > b.after
			return over
		},
		result: func(event) int64 {
			close(failed)
			return -int64(syscall.EIO)
		},
	})
}

// ends waits until the process has ended by itself, with an exit code.
func (p *process) ends(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the server runs on %v after the error\n%s", patience, p.said())
	}
	if !p.exit.Exited() || p.exit.ExitStatus() != code {
		t.Errorf("the server ended with %#x instead of exit code %d\n%s", p.exit, code, p.said())
	}
	if !strings.Contains(p.said(), "input/output error") {
		t.Errorf("the log does not say why:\n%s", p.said())
	}
}

// quietAfter looks whether the call was tried again, which would succeed and prove
// nothing.
func (p *process) quietAfter(t *testing.T, b failure) {
	t.Helper()
	events := p.since(t, 0)
	at := find(events, 0, func(e event) bool { return e.faked != nil && *e.faked < 0 })
	if at == nil {
		t.Fatal("no call has failed")
	}
	again := find(events, at.end, func(e event) bool { return b.match(e) && e.path == at.path })
	if again != nil {
		t.Errorf("%v was made after %v had failed", again, at)
	}
}

// writer appends to a stream of its own as a producer, one after the other.
type writer struct {
	client *client
	stream string
	acked  []string // bodies that were acknowledged
	open   string   // the body of which nobody knows
	err    error    // anything but an answer that says so
}

func (p *process) writer(t *testing.T, stream string) *writer {
	t.Helper()
	w := &writer{client: p.dial(t), stream: stream}
	if _, _, err := w.client.do(request{"PUT", stream, "", text(), 201}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *writer) request(n int, body string, status int) request {
	return request{"POST", w.stream, body, text("Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", fmt.Sprint(n)), status}
}

// run appends until a request is not acknowledged.
func (w *writer) run() {
	for n := range mostAppends {
		body := fmt.Sprintf("<<%s-%d>>", w.stream, n) + strings.Repeat("x", 100+n*37%3000)
		status := w.try(w.request(n, body, 0))
		if status != http.StatusOK {
			w.open = body
			if status != 0 && status < 500 {
				w.err = fmt.Errorf("append %d was answered with %d", n, status)
			}
			return
		}
		w.acked = append(w.acked, body)
	}
}

// try returns the status of the answer, 0 for none.
func (w *writer) try(r request) int {
	if w.client.send(r) != nil {
		return 0
	}
	resp, err := http.ReadResponse(w.client.in, &http.Request{Method: r.method})
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// check compares what the next start has with what was acknowledged: all of that, in
// order, and what nobody knows about wholly or not at all. A repeat of it is answered by
// what is there.
func (w *writer) check(t *testing.T, p *process, b failure) {
	t.Helper()
	if w.err != nil {
		t.Errorf("%s: %v", w.stream, w.err)
	}
	w.client = p.dial(t)
	w.client.in = bufio.NewReader(w.client.conn)
	sure := strings.Join(w.acked, "")
	r := request{"GET", w.stream, "", nil, http.StatusOK}
	_, got, err := w.client.do(r)
	if err != nil || got != sure && got != sure+w.open {
		t.Fatalf("%s: %d bytes, %v; %d were acknowledged in %d appends, %d more are open\n%s",
			w.stream, len(got), err, len(sure), len(w.acked), len(w.open), p.said())
	}
	there := got != sure
	if there && b.lost {
		t.Errorf("%s: the batch is there whose pages were lost", w.stream)
	}
	if w.open == "" {
		return
	}
	status := http.StatusOK
	if there {
		status = http.StatusNoContent
	}
	if _, _, err := w.client.do(w.request(len(w.acked), w.open, status)); err != nil {
		t.Errorf("%s: the repeat: %v", w.stream, err)
	}
	if _, got, err := w.client.do(r); err != nil || got != sure+w.open {
		t.Errorf("%s: after the repeat %d bytes instead of %d: %v", w.stream, len(got), len(sure)+len(w.open), err)
	}
}
