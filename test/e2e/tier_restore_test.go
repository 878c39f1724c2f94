//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/faults"
)

func itoa(n int) string { return strconv.Itoa(n) }

// The stream of the tests of clients, as both surfaces name it.
const (
	sharedStream = "clients/s"
	onV1         = "/v1/stream/" + sharedStream
	onDs         = "/ds/" + sharedStream
)

// A client that saw bytes which a restore lacks is told so by whatever it does next; one
// that saw only what has survived goes on.
func TestTierRestoreAndClients(t *testing.T) {
	r := onProxy(t)
	r.want(http.StatusCreated, "PUT", sharedStream, "", "Content-Type", plain)
	r.want(http.StatusCreated, "PUT", "clients/other", "", "Content-Type", plain)
	first := r.produce(http.StatusOK, sharedStream, "inherited.", "p", 0, 0)
	was := r.want(http.StatusOK, "HEAD", sharedStream, "").header.Get("Stream-Incarnation")
	inherited := first.header.Get("Stream-Next-Offset")
	r.protected()

	// What is written now, and read by clients, never gets to the store.
	r.proxy.Set(faults.Always(faults.Any, faults.Answer(503, "SlowDown")))
	lost := r.produce(http.StatusOK, sharedStream, "lost.", "p", 0, 1).header.Get("Stream-Next-Offset")
	r.holds(sharedStream, "inherited.lost.")
	r.want(http.StatusCreated, "PUT", "clients/lost", "never seen again", "Content-Type", plain)
	r.daemon.kill(t)
	r.proxy.Set(nil)
	o := r.restore()
	o.daemon.start(t)

	type client struct {
		what   string
		method string
		query  string
		header []string
		status int
		code   string
	}
	knows := []string{"Stream-Incarnation", was}
	refused := func(clients []client) {
		t.Helper()
		for _, c := range clients {
			for _, path := range []string{onV1, onDs} {
				body := ""
				if c.method == "POST" {
					body = "more."
				}
				a, err := o.send(c.method, path+c.query, body, with(c.header, []string{"Content-Type", plain})...)
				if err != nil || a.status != c.status || a.code() != c.code && c.method != "HEAD" {
					t.Errorf("%s, %s: want %d %s, got %v, %v", path, c.what, c.status, c.code, a, err)
				}
				if c.status == http.StatusPreconditionFailed {
					o.has(a, "Stream-Previous-Incarnation", was, "Stream-Inherited-Offset", inherited)
				}
			}
		}
	}
	pinned := func(method, query string) client {
		return client{method + query + " with the incarnation", method, query, knows, 412, "incarnation_mismatch"}
	}
	refused([]client{
		{"the next page", "GET", "?offset=" + lost, nil, 400, "offset_beyond_tail"},
		{"a long-poll", "GET", "?live=long-poll&offset=" + lost, nil, 400, "offset_beyond_tail"},
		{"an event stream", "GET", "?live=sse&offset=" + lost, nil, 400, "offset_beyond_tail"},
		{"an event stream that EventSource opens again", "GET", "?live=sse&offset=-1", []string{"Last-Event-ID", lost}, 400, "offset_beyond_tail"},
		pinned("GET", "?offset="+lost), pinned("GET", "?live=long-poll&offset="+lost), pinned("GET", "?live=sse&offset="+lost),
		pinned("GET", "?live=long-poll&offset=now"), pinned("HEAD", ""), pinned("POST", ""),
		{"the producer's next write", "POST", "", tuple("p", 0, 2), 403, "history_changed"},
		{"the producer's lost write again", "POST", "", tuple("p", 0, 1), 403, "history_changed"},
		{"a producer that was never heard of", "POST", "", tuple("q", 0, 7), 403, "history_changed"},
	})
	head := o.want(http.StatusOK, "HEAD", sharedStream, "")
	o.has(head, "Stream-Previous-Incarnation", was, "Stream-Inherited-Offset", inherited, "Stream-Next-Offset", inherited)
	is := head.header.Get("Stream-Incarnation")
	o.want(http.StatusNotFound, "HEAD", "clients/lost", "")

	// Nobody gets other bytes for the continuation of what it saw, however long they have become.
	no := o.write1(sharedStream, "p", 0, 2)
	o.has(no, "Producer-Closed-Seq", "0")
	epoch, err := no.number("Producer-Epoch")
	if err != nil {
		t.Fatal(err)
	}
	o.produce(http.StatusOK, sharedStream, "other bytes, and more of them.", "p", epoch+1, 0)
	refused([]client{pinned("GET", "?offset="+lost), pinned("GET", "?live=long-poll&offset="+lost), pinned("GET", "?live=sse&offset="+lost)})

	// Who saw only what has survived goes on, under either incarnation's name for it.
	for _, header := range [][]string{nil, {"Stream-Incarnation", is}} {
		for _, path := range []string{onV1, onDs} {
			a, err := o.send("GET", path+"?offset="+inherited, "", header...)
			if err != nil || a.status != http.StatusOK || a.body != "other bytes, and more of them." {
				t.Errorf("%s: %v, %v", path, a, err)
			}
		}
	}
	o.holds(sharedStream, "inherited.other bytes, and more of them.")
}

// write1 sends one write of a producer, which is answered with a refusal.
func (r *tierRig) write1(stream, id string, epoch, seq int) answer {
	r.Helper()
	a, err := r.write(stream, "x", id, epoch, seq)
	if err != nil {
		r.Fatal(err)
	}
	return a
}

// The report of a restore is about what is in the store, and what isn't.
func TestTierRestoreReport(t *testing.T) {
	onEach(t, small, func(r *tierRig) {
		s := r.create(plain)
		r.text(s, numbered(0, 5000))
		r.protected()
		r.daemon.kill(t)
		r.rest()
		o := r.other()
		args := with([]string{"restore", "--json", "--data-dir", o.daemon.dir}, o.flags)
		before := contents(r.T, r.objects)
		out, _ := o.run(0, with(args, []string{"--dry-run"})...)
		var report struct {
			Segments, Streams, History int
			Bytes                      int64
			Restored                   bool
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Restored || report.Segments == 0 || report.Bytes < 5000*lineSize {
			r.Errorf("%v: %s", err, out)
		}
		if !maps.Equal(before, contents(r.T, r.objects)) {
			r.Error("a dry run has changed something in the store")
		}
		out, _ = o.run(0, args...)
		if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Restored || report.Streams != 1 || report.History != 2 {
			r.Errorf("%v: %s", err, out)
		}
		o.run(3, args...) // it is not empty now
		o.daemon.start(r.T)
		o.holds(s, numbered(0, 5000))
	})
}

// One prefix is one node's. A second one is refused, and one that was replaced while it
// stood still learns that and ends, without having changed anything.
func TestTierTwoNodes(t *testing.T) {
	onEach(t, small, func(r *tierRig) {
		s := r.create(plain)
		r.text(s, numbered(0, 2000))
		r.protected()
		second := r.other()
		said := second.daemon.ends(r.T, 2, readyTimeout)
		for _, word := range []string{"belongs to another node", "snakream restore"} {
			if !strings.Contains(said, word) {
				r.Errorf("the refusal of a second node does not say %q: %s", word, said)
			}
		}

		r.rest() // an upload that had begun would go on after SIGCONT
		if err := r.daemon.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			r.Fatal(err)
		}
		heir := r.restore()
		heir.daemon.start(r.T)
		heir.text(s, "of the heir")
		heir.protected()
		pause(r.Context(), 2*time.Second) // the old node trusts what it knew for less
		heir.daemon.stop(r.T)             // what changes from now on is not its doing
		r.rest()
		before := contents(r.T, r.objects)
		if err := r.daemon.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			r.Fatal(err)
		}
		// It says so for two seconds only: a write that waits for the disk must not take them all.
		quick := api{daemon: r.daemon, client: &http.Client{Transport: r.client.Transport, Timeout: 500 * time.Millisecond}}
		fenced := false
		r.eventually(tierPatience, "the old node has learnt that it was replaced", func() bool {
			a, err := quick.once("POST", s, numbered(0, 200), []string{"Content-Type", plain})
			fenced = fenced || err == nil && a.status == http.StatusServiceUnavailable && a.code() == "fenced"
			select {
			case <-r.daemon.ended:
				return true
			default:
				return false
			}
		})
		if !fenced {
			r.Error("no write was answered with «fenced»")
		}
		if code := r.daemon.cmd.ProcessState.ExitCode(); code != 1 {
			r.Errorf("the old node ended with %d", code)
		}
		after := contents(r.T, r.objects)
		if !maps.Equal(before, after) {
			r.Errorf("the old node has changed the store: %d objects before, then %v", len(before), slices.Sorted(maps.Keys(after)))
		}
		again := r.daemon.ends(r.T, 2, readyTimeout)
		if !strings.Contains(again, "another node") {
			r.Errorf("the start of the old node: %s", again)
		}
		heir.daemon.start(r.T)
		heir.holds(s, numbered(0, 2000)+"of the heir")
	})
}

// What is wrong with the settings of the store is said at the start, with the provider's
// reason and without a secret; doctor says the same.
func TestTierRefusals(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	for _, c := range []struct {
		what          string
		flags         []string
		key, secret   string
		words, doctor []string
	}{
		{"no such bucket", []string{"--s3-bucket", "nobody-has-this"}, s3Key, s3Secret, []string{"NoSuchBucket"}, []string{"FAILED", "NoSuchBucket"}},
		{"an unknown key", nil, "unknown-key", s3Secret, []string{"InvalidAccessKeyId", "credentials"}, []string{"FAILED", "InvalidAccessKeyId"}},
		{"a wrong secret", nil, s3Key, "a-wrong-secret", []string{"SignatureDoesNotMatch", "credentials"}, []string{"FAILED", "SignatureDoesNotMatch"}},
		{"a wrong region", []string{"--s3-region", "eu-central-1"}, s3Key, s3Secret, []string{"region"}, []string{"FAILED", "region"}},
		{"nobody there", []string{"--s3-endpoint", "http://127.0.0.1:1"}, s3Key, s3Secret, []string{"endpoint"}, []string{"FAILED", "endpoint"}},
		{"all in order", nil, s3Key, s3Secret, nil, []string{"All checks passed", "put of other bytes is refused", "list", "delete"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDaemon(t, with(small, s3Flags(server.url), c.flags)...)
			d.env = s3Environ(c.key, c.secret)
			code, said := 0, ""
			if c.words != nil {
				said = d.ends(t, 2, readyTimeout)
				code = 1
			}
			out, errs := runBinary(t, code, d.env, with([]string{"doctor"}, s3Flags(server.url), c.flags)...)
			for text, words := range map[string][]string{said: c.words, out: c.doctor} {
				for _, word := range words {
					if !strings.Contains(text, word) {
						t.Errorf("does not say %q:\n%s", word, text)
					}
				}
			}
			if all := said + out + errs; strings.Contains(all, c.secret) || strings.Contains(all, "Signature=") {
				t.Errorf("shows the secret: %s", all)
			}
		})
	}
	if left := total(t, server.dir); left != 0 {
		t.Errorf("doctor has left %d bytes", left)
	}
}
