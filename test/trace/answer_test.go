//go:build e2e

package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

const plain = "text/plain"

// text returns the headers of a request with a body of that type.
func text(more ...string) []string { return append([]string{"Content-Type", plain}, more...) }

// step is a write, and what others see of its stream before it is durable.
type step struct {
	name   string
	write  request
	before request // its body is what the answer's body must be
	// follow is sent by somebody else while the write is not durable. Its answer is
	// decided on the write's outcome and so has to wait for it as well.
	follow *request
}

// steps are done in this order by one client.
func steps() []step {
	large := strings.Repeat("0123456789abcdef", 12<<10) + "<<large>>" // beyond what a batch copies
	producer := text("Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0")
	get := func(stream string, status int, body string) request {
		return request{"GET", stream + "?offset=-1", body, nil, status}
	}
	return []step{
		{"create", request{"PUT", "made", "", text(), 201}, get("made", 404, ""),
			&request{"PUT", "made", "", text(), 200}},
		{"create with a body", request{"PUT", "filled", "<<filled>>", text(), 201}, get("filled", 404, ""), nil},
		{"create closed", request{"PUT", "shut", "<<shut>>", text("Stream-Closed", "true"), 201}, get("shut", 404, ""),
			&request{"POST", "filled", "<<also>>", text(), 204}},
		{"append", request{"POST", "made", "<<first>>", text(), 204}, get("made", 200, ""),
			&request{"POST", "made", "<<second>>", text(), 204}},
		{"large append", request{"POST", "made", large, text(), 204}, get("made", 200, "<<first>><<second>>"), nil},
		{"append of a producer", request{"POST", "filled", "<<produced>>", producer, 200}, get("filled", 200, "<<filled>><<also>>"),
			&request{"POST", "filled", "<<produced>>", producer, 204}},
		{"create of JSON", request{"PUT", "json", "[1]", []string{"Content-Type", "application/json"}, 201}, get("json", 404, ""), nil},
		{"append of JSON", request{"POST", "json", `["<<json>>",2]`, []string{"Content-Type", "application/json"}, 204},
			get("json", 200, "[1]"), nil},
		{"fork", request{"PUT", "fork", "", []string{"Stream-Forked-From", "/v1/stream/filled"}, 201}, get("fork", 404, ""), nil},
		{"append and close", request{"POST", "filled", "<<last>>", text("Stream-Closed", "true"), 204},
			get("filled", 200, "<<filled>><<also>><<produced>>"),
			&request{"POST", "filled", "<<refused>>", text(), 409}},
		{"close", request{"POST", "json", "", []string{"Stream-Closed", "true"}, 204}, get("json", 200, `[1,"<<json>>",2]`),
			&request{"POST", "json", "3", []string{"Content-Type", "application/json"}, 409}},
		{"delete", request{"DELETE", "json", "", nil, 204}, get("json", 200, `[1,"<<json>>",2]`),
			&request{"DELETE", "json", "", nil, 404}},
		{"create after delete", request{"PUT", "json", "", text(), 201}, get("json", 404, ""), nil},
		{"delete of a source", request{"DELETE", "filled", "", nil, 204},
			get("filled", 200, "<<filled>><<also>><<produced>><<last>>"),
			&request{"PUT", "filled", "", text(), 409}},
	}
}

// TestAnswersFollowTheSync stops the disk before each sync, makes sure that the server
// lives, and that nothing of the answer leaves until the sync has returned; then it
// looks at the whole order of calls.
func TestAnswersFollowTheSync(t *testing.T) {
	p := launch(t)
	writer, other, reader := p.dial(t), p.dial(t), p.dial(t)
	canary := request{"PUT", "canary", "", text(), 201}
	if _, _, err := reader.do(canary); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) { p.step(t, s, writer, other, reader) })
		if t.Failed() {
			t.Logf("the server's log:\n%s", p.said())
			return
		}
	}
	p.stop(t)
}

func (p *process) step(t *testing.T, s step, writer, other, reader *client) {
	from := p.now()
	g := p.hold(func(e event) bool { return e.isSync() && isLog(e.path) })
	defer g.open()
	if err := writer.send(s.write); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.reached:
	case <-p.done:
		t.Fatalf("the server ended:\n%s", p.said())
	case <-time.After(patience):
		t.Fatalf("%v: no sync of the log within %v:\n%s", s.write, patience, around(p.since(t, from), p.now()))
	}
	if s.follow != nil {
		sent := p.now()
		if err := other.send(*s.follow); err != nil {
			t.Fatal(err)
		}
		p.await(t, sent, "reading the second request", func(e event) bool {
			return e.path == other.addr && strings.HasPrefix(e.call, "re") && e.end != 0 && e.result > 0
		})
	}
	for range 3 { // reads go on, and don't see the write
		want := s.before.body
		r := s.before
		r.body = ""
		_, body, err := reader.do(r)
		if err != nil {
			t.Error(err)
		} else if r.status == 200 && body != want {
			t.Errorf("before the sync of %v a reader got %.100q instead of %.100q", s.write, body, want)
		}
	}
	events := p.since(t, from)
	for _, e := range events {
		if e.output() && (e.path == writer.addr || e.path == other.addr) {
			t.Errorf("%v: an answer left while the log's sync had not even begun:\n%s", s.write, around(events, e.begin))
		}
	}
	g.open()
	if _, _, err := writer.receive(s.write); err != nil {
		t.Fatal(err)
	}
	if s.follow != nil {
		if _, _, err := other.receive(*s.follow); err != nil {
			t.Fatal(err)
		}
		p.durableBefore(t, from, other.addr, s.follow.body, false)
	}
	p.durableBefore(t, from, writer.addr, s.write.body, true)
}

// durableBefore checks what began after a position and before the answer to the client
// began: at least one record was written, and every write to the log has taken all of
// its bytes and has then been synced. With own, the body is in one of the writes.
func (p *process) durableBefore(t *testing.T, from int, client, body string, own bool) {
	t.Helper()
	events := p.since(t, from)
	answer := -1
	for i, e := range events {
		if e.output() && e.path == client {
			answer = i
			break
		}
	}
	if answer < 0 {
		t.Fatalf("the trace has no answer to %s:\n%s", client, around(events, p.now()))
	}
	a := events[answer]
	if !bytes.HasPrefix(a.data, []byte("HTTP/1.1 ")) {
		t.Errorf("the answer does not begin with a status line:\n%s", around(events, a.begin))
	}
	var written []byte
	writes := 0
	for _, e := range events[:answer] {
		if e.call != "pwrite64" || !isLog(e.path) {
			continue
		}
		writes++
		written = append(written, e.data...)
		if err := syncedBefore(events, e, a.begin); err != nil {
			t.Errorf("%v:\n%s", err, around(events, e.begin, a.begin))
		}
	}
	if writes == 0 {
		t.Errorf("nothing was written to the log before the answer:\n%s", around(events, a.begin))
	}
	if m := marker.FindString(body); own && !bytes.Contains(written, []byte(m)) {
		t.Errorf("the log was not given %q before the answer:\n%s", m, around(events, a.begin))
	}
}

// syncedBefore reports why a change of a file was not durable at a position: it has to
// return with all of it done, and then a sync of the same file has to begin and return
// without an error.
func syncedBefore(events []event, w event, position int) error {
	switch {
	case w.end == 0 || w.end > position:
		return fmt.Errorf("it had not returned: %v", w)
	case !w.whole():
		return fmt.Errorf("it was not done: %v", w)
	}
	for _, e := range events {
		if e.begin > w.end && e.synced(w.path) && e.end < position {
			return nil
		}
	}
	return fmt.Errorf("it was not synced: %v", w)
}
