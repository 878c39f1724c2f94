package server

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// ask sends a GET to the admin listener.
func (a *Admin) ask(path string) (status int, body string) {
	w := httptest.NewRecorder()
	a.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestReadinessFollowsThePhases(t *testing.T) {
	n := newNode(t, nil)
	a := NewAdmin(n.server)
	expect := func(path string, status int, word string) {
		t.Helper()
		if got, body := a.ask(path); got != status || !strings.Contains(body, word) {
			t.Errorf("%s: %d %q, want %d %q", path, got, body, status, word)
		}
	}
	n.server.phase.Store(phaseRecovering)
	expect("/readyz", 503, "recovering")
	n.server.phase.Store(phaseServing)
	expect("/readyz", 200, "ok")
	n.drain(patience)
	expect("/readyz", 503, "draining")
	expect("/healthz", 200, "ok")
}

// Metrics count by route and status and never by what a client chose (field report
// 152).
func TestField152MetricsHaveNoNames(t *testing.T) {
	n := newNode(t, nil)
	a := NewAdmin(n.server)
	s := n.create(text)
	n.append(s, text, "x")
	n.want(404, "GET", "a-name-that-nobody-knows", "")
	status, body := a.ask("/metrics")
	if status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	for _, line := range []string{
		`snakream_http_requests_total{route="append",status="204"} 1`,
		`snakream_http_requests_total{route="create",status="201"} 1`,
		`snakream_http_requests_total{route="read",status="404"} 1`,
		`snakream_live_readers{mode="sse"} 0`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(body, "nobody-knows") {
		t.Error("a stream's name is in the metrics")
	}
}
