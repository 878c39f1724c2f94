package server

import (
	"strconv"
	"testing"

	"github.com/snakream/snakream/engine/enginetest"
	"github.com/snakream/snakream/internal/vfs"
)

// restored stops a node and starts another on its directory, as a restore leaves one.
func (n *node) restored() *node {
	n.t.Helper()
	n.stop()
	if err := enginetest.NextHistory(vfs.OS, n.dir); err != nil {
		n.t.Fatal(err)
	}
	return openNode(n.t, n.dir, nil)
}

// onSurfaces runs a test for the flat surface and for the one with buckets; of looks
// at a node in that way.
func onSurfaces(t *testing.T, test func(n *node, of func(*node) *node)) {
	t.Run("v1", func(t *testing.T) {
		test(newNode(t, nil), func(n *node) *node { return n })
	})
	t.Run("ds", func(t *testing.T) {
		n := newNode(t, nil)
		n.on("docs")
		test(n, func(n *node) *node {
			m := n.root()
			m.url += "docs/"
			return m
		})
	})
}

// tells fails the test unless an answer has these headers: name, value; "" for none.
func (n *node) tells(a answer, headers ...string) {
	n.t.Helper()
	for i := 0; i < len(headers); i += 2 {
		if got := a.header.Get(headers[i]); got != headers[i+1] {
			n.t.Errorf("%s: %q, want %q, in %d %v", headers[i], got, headers[i+1], a.status, a.header)
		}
	}
}

const (
	incarnation = "Stream-Incarnation"
	previous    = "Stream-Previous-Incarnation"
	inherited   = "Stream-Inherited-Offset"
)

// After a restore a stream is another one, which says what it has from the one before
// (api §4a).
func TestRestoredIncarnation(t *testing.T) {
	onSurfaces(t, func(base *node, of func(*node) *node) {
		n := of(base)
		s := n.create(text)
		tail := n.append(s, text, "0123456789")
		head := n.want(200, "HEAD", s, "")
		n.tells(head, previous, "", inherited, "")
		was, state := head.header.Get(incarnation), head.header.Get("ETag")
		ranged := n.want(200, "GET", s, "").header.Get("ETag")

		base = base.restored()
		n = of(base)
		head = n.want(200, "HEAD", s, "")
		is := head.header.Get(incarnation)
		if is == was {
			n.t.Fatalf("the incarnation is still %s", is)
		}
		n.tells(head, previous, was, inherited, tail)

		for _, c := range []struct{ method, path, body string }{
			{"GET", s, ""}, {"HEAD", s, ""}, {"POST", s, "x"}, {"PUT", s, ""}, {"DELETE", s, ""},
			{"GET", s + "?offset=" + tail, ""}, {"GET", s + "?offset=now&live=long-poll", ""}, {"GET", s + "?offset=now&live=sse", ""},
			{"GET", s + "?offset=99", ""},
		} {
			a := n.want(412, c.method, c.path, c.body, "Content-Type", text, incarnation, was, "Last-Event-ID", tail)
			n.tells(a, incarnation, is, previous, was, inherited, tail)
			if c.method != "HEAD" && a.code() != "incarnation_mismatch" {
				n.t.Errorf("%s %s: %s", c.method, c.path, a.body)
			}
			n.tells(n.want(412, c.method, c.path, c.body, "Content-Type", text, incarnation, "7"), incarnation, is, previous, was)
		}
		if n.url != base.url {
			for _, path := range []string{"/bootstrap", "/bootstrap?live=sse", "/snapshot", "/snapshot/" + tail, "/attrs"} {
				n.tells(n.refused(412, "incarnation_mismatch", "GET", s+path, "", incarnation, was), incarnation, is, previous, was)
			}
			n.refused(412, "incarnation_mismatch", "PUT", s+"/snapshot/"+tail, "x", incarnation, was)
			n.refused(412, "incarnation_mismatch", "PUT", s+"/retention/"+tail, "", incarnation, was)
			n.refused(412, "incarnation_mismatch", "PUT", s+"/attrs", "{}", incarnation, was)
			n.refused(412, "incarnation_mismatch", "POST", s+"/append-batch", "\x00\x00\x00\x01x", "Content-Type", text, incarnation, was)
		}

		// Tags are of one incarnation.
		a := n.refused(412, "precondition_failed", "POST", s, "x", "Content-Type", text, "If-Match", state)
		n.tells(a, "ETag", head.header.Get("ETag"), "Stream-Next-Offset", tail)
		n.refused(412, "precondition_failed", "POST", s, "x", "Content-Type", text, "If-Match", ranged)
		n.refused(412, "precondition_failed", "PUT", s, "", "Content-Type", text, "If-Match", state)
		n.want(200, "GET", s, "", "If-None-Match", ranged)
		n.want(200, "HEAD", s, "", "If-None-Match", state)
		n.tells(n.want(304, "HEAD", s, "", "If-None-Match", head.header.Get("ETag")), previous, was, inherited, tail)
		n.want(204, "POST", s, "abc", "Content-Type", text, "If-Match", head.header.Get("ETag"), incarnation, is)

		// Offsets below the inherited one mean the same, and what came since is behind it.
		if a := n.want(200, "GET", s+"?offset="+tail, "", incarnation, is); a.body != "abc" {
			n.t.Errorf("behind the tail there is %q", a.body)
		}
		n.tells(n.want(200, "HEAD", s, ""), previous, was, inherited, tail)

		// What begins now has no past.
		f := n.create(text)
		n.tells(n.want(200, "HEAD", f, ""), previous, "", inherited, "")
		n.tells(n.want(412, "HEAD", f, "", incarnation, was), previous, "", inherited, "")

		base = base.restored()
		n = of(base)
		n.tells(n.want(200, "HEAD", s, ""), previous, is, inherited, offset(13))
		n.tells(n.want(412, "HEAD", s, "", incarnation, is), previous, is, inherited, offset(13))
		n.tells(n.want(412, "HEAD", s, "", incarnation, was), previous, was, inherited, tail)
		n.tells(n.want(200, "HEAD", f, ""), inherited, offset(0))

		// Of several restores without a write between them it is the last that HEAD tells of.
		newest := n.want(200, "HEAD", s, "").header.Get(incarnation)
		base = base.restored()
		n = of(base)
		n.tells(n.want(200, "HEAD", s, ""), previous, newest, inherited, offset(13))
		n.tells(n.want(412, "HEAD", s, "", incarnation, is), previous, is, inherited, offset(13))
		n.append(s, text, "d")
		n.tells(n.want(200, "HEAD", s, ""), previous, newest, inherited, offset(13))
		n.tells(n.want(412, "HEAD", s, "", incarnation, is), previous, is, inherited, offset(13))
	})
}

// Producers are fenced after a restore (api §4a): an official client takes the 403 and
// goes on in the epoch behind Producer-Epoch.
func TestRestoredProducers(t *testing.T) {
	onSurfaces(t, func(base *node, of func(*node) *node) {
		n := of(base)
		s, closed := n.create(text), n.create(text)
		as := func(id string, epoch, seq uint64) []string {
			number := func(n uint64) string { return strconv.FormatUint(n, 10) }
			return []string{"Content-Type", text, "Producer-Id", id, "Producer-Epoch", number(epoch), "Producer-Seq", number(seq)}
		}
		n.want(200, "POST", s, "a", as("p", 2, 0)...)
		n.want(200, "POST", s, "b", as("p", 2, 1)...)
		n.want(200, "POST", closed, "end", append(as("p", 0, 0), "Stream-Closed", "true")...)

		base = base.restored()
		n = of(base)
		for _, seq := range []uint64{0, 1, 2, 9} { // repeats too
			n.tells(n.refused(403, "history_changed", "POST", s, "x", as("p", 2, seq)...),
				"Producer-Epoch", "2", "Producer-Closed-Epoch", "2", "Producer-Closed-Seq", "1", "Producer-Expected-Seq", "")
		}
		n.tells(n.refused(403, "history_changed", "POST", s, "x", as("p", 1, 5)...), "Producer-Epoch", "2", "Producer-Closed-Seq", "1")
		n.tells(n.refused(403, "history_changed", "POST", s, "x", as("p", 5, 5)...), "Producer-Epoch", "5", "Producer-Closed-Epoch", "2")
		n.tells(n.refused(403, "history_changed", "POST", s, "x", as("lost", 4, 7)...), "Producer-Epoch", "4", "Producer-Closed-Epoch", "")
		n.tells(n.refused(403, "history_changed", "POST", closed, "end", append(as("p", 0, 0), "Stream-Closed", "true")...), "Producer-Epoch", "0")
		n.refused(409, "closed", "POST", closed, "end", as("p", 1, 0)...)

		n.tells(n.want(200, "POST", s, "c", as("p", 3, 0)...), "Producer-Closed-Epoch", "2", "Producer-Closed-Seq", "1")
		n.want(204, "POST", s, "c", as("p", 3, 0)...)
		n.want(200, "POST", s, "d", as("lost", 5, 0)...)
		n.refused(409, "sequence_gap", "POST", s, "x", as("lost", 5, 2)...)
		n.refused(403, "stale_epoch", "POST", s, "x", as("p", 2, 2)...)
		n.refused(403, "history_changed", "POST", s, "x", as("other", 0, 1)...)
		n.want(200, "POST", s, "e", as("other", 0, 0)...)
		if a := n.want(200, "GET", s, ""); a.body != "abcde" {
			n.t.Errorf("the stream is %q", a.body)
		}
		f := n.create(text)
		n.refused(409, "sequence_gap", "POST", f, "x", as("p", 2, 2)...)
	})
}
