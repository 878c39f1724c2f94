//go:build e2e

package trace

import (
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestStopBetweenAnswerAndTurn stops the server when a write has been answered by the
// thread that synced it, and the shard has still to be told. The turn that tells it has
// to come, though no connection is left.
func TestStopBetweenAnswerAndTurn(t *testing.T) {
	p := launch(t)
	c := p.dial(t)
	answered := false
	g := p.hold(func(e event) bool {
		answered = answered || e.output() && e.path == c.addr
		return answered && e.call == "write" && e.path == eventfd
	})
	defer g.open()
	if _, _, err := c.do(request{"PUT", "last", "", text(), 201}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.reached:
	case <-time.After(patience):
		t.Fatalf("no shard was told of the answer within %v:\n%s", patience, around(p.since(t, 0), p.now()))
	}
	if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c.in); err != nil || len(b) > 0 {
		t.Errorf("the idle connection got %q, %v", b, err)
	}
	from := p.now()
	c.conn.Close()
	p.await(t, from, "closing the connection", func(e event) bool { return e.call == "close" && e.path == c.addr && e.end != 0 })
	for range 10 { // now it stops, as far as it can
		resp, err := http.Get("http://" + p.admin + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	g.open()
	p.awaitEnd(t)
}
