//go:build e2e

package e2e

import (
	endian "encoding/binary" // binary is the program here
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// restored stops the server and starts it as a restore of what it had: with the next
// history in the identity of its directory.
func (f *field) restored() {
	f.Helper()
	f.daemon.stop(f.T)
	f.client.CloseIdleConnections()
	path := filepath.Join(f.daemon.dir, "SNAKREAM")
	id, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	endian.LittleEndian.PutUint16(id[48:], endian.LittleEndian.Uint16(id[48:])+1)
	endian.LittleEndian.PutUint64(id[56:], xxhash.Sum64(id[:56]))
	if err := os.WriteFile(path, id, 0o644); err != nil {
		f.Fatal(err)
	}
	f.daemon.start(f.T)
}

// driveHistory makes producers write on after a restore.
func (o *outcomes) driveHistory() {
	s := o.create(plain)
	o.produce(http.StatusOK, s, "first.", "p", 3, 0)
	o.restored()
	for _, seq := range []int{0, 1, 2} {
		o.try("history_changed", "first.", "POST", s, "x", tuple("p", 3, seq)...)
	}
	o.try("history_changed", "first.", "POST", s, "x", tuple("q", 0, 1)...)
}

// A client that kept an offset and an incarnation over a restore learns up to where
// the bytes are still those that it saw; over a SIGKILL, and another restore.
func TestRestoredStream(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, flushing...)
	d.start(t)
	f := newField(t, d)
	s := f.create(plain)
	f.produce(http.StatusOK, s, "before.", "p", 0, 0)
	last := f.want(http.StatusOK, "HEAD", s, "")
	was, tail := last.header.Get("Stream-Incarnation"), last.header.Get("Stream-Next-Offset")
	inherited := func(incarnation, upTo string) {
		t.Helper()
		f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Previous-Incarnation", incarnation, "Stream-Inherited-Offset", upTo)
	}
	inherited("", "")

	f.restored()
	inherited(was, tail)
	f.has(f.want(http.StatusPreconditionFailed, "GET", s+"?offset="+tail, "", "Stream-Incarnation", was),
		"Stream-Previous-Incarnation", was, "Stream-Inherited-Offset", tail)

	// What the official client does about a 403.
	refusal := f.produce(http.StatusForbidden, s, "lost", "p", 0, 1)
	f.has(refusal, "Producer-Closed-Epoch", "0", "Producer-Closed-Seq", "0")
	epoch, err := strconv.Atoi(refusal.header.Get("Producer-Epoch"))
	if err != nil {
		t.Fatal(err)
	}
	f.produce(http.StatusOK, s, "after.", "p", epoch+1, 0)
	is := f.want(http.StatusOK, "HEAD", s, "").header.Get("Stream-Incarnation")
	f.restart()
	inherited(was, tail)
	f.produce(http.StatusNoContent, s, "after.", "p", epoch+1, 0)

	f.restored()
	inherited(is, "00000000000000000013")
	f.has(f.want(http.StatusPreconditionFailed, "HEAD", s, "", "Stream-Incarnation", was), "Stream-Inherited-Offset", tail)
	if r := f.want(http.StatusOK, "GET", s, ""); r.body != "before.after." {
		t.Errorf("the stream is %q", r.body)
	}
}
