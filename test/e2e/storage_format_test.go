//go:build e2e

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	endian "encoding/binary" // binary is the program here
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// testdata/format-1.tar.gz is a data directory of format 1, and testdata/format-1.json
// what its server answered. They are kept for ever: when a format changes, it gets a
// new number, and its directory comes beside this one.
const goldenFormat = "testdata/format-1"

var writeGolden = flag.Bool("write-golden", false,
	"make testdata/format-1 anew, which is right only before the first release that has the format")

// read is a request, and what of its answer has to stay as it is.
type read struct {
	Method string
	Stream string
	Status int
	Header map[string]string
	Body   string
}

// kept are the headers that tell what a stream is.
var kept = []string{
	"Content-Type", "ETag", "Stream-Closed", "Stream-Expires-At", "Stream-Incarnation", "Stream-Next-Offset",
	"Stream-Record-First", "Stream-Record-Next", "Stream-TTL", "Stream-Up-To-Date",
}

// flushing has segments as well as a log after a few hundred kilobytes.
var flushing = append(slices.Clone(smallLog), "--memtable-bytes", "64KiB")

// goldenStreams fills a server with one of everything, a part of it so early that it
// comes to lie in segments, and returns the names.
func goldenStreams(t *testing.T, d *daemon) []string {
	t.Helper()
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	do := func(status int, method, stream, body string, header ...string) {
		t.Helper()
		if _, err := a.expect(status, method, stream, body, header...); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, part := range []string{"old", "new"} {
		name := func(s string) string {
			names = append(names, part+"/"+s)
			return part + "/" + s
		}
		text := []string{"Content-Type", "Text/Plain; charset=utf-8"}
		jsons := []string{"Content-Type", "application/json"}

		plain := name("plain")
		do(201, "PUT", plain, "", text...)
		do(204, "POST", plain, "one", text...)
		do(204, "POST", plain, "two", append(text, "Stream-Seq", "0002")...)
		do(201, "PUT", name("empty"), "")
		do(201, "PUT", name("bytes"), "\x00\xff\x80", "Content-Type", "application/octet-stream")

		array := name("json")
		do(201, "PUT", array, `[1, {"a" : 2}]`, jsons...)
		do(204, "POST", array, `["x",[]]`, jsons...)

		produced := name("produced")
		do(201, "PUT", produced, "", text...)
		for seq := range 3 {
			do(200, "POST", produced, strconv.Itoa(seq), append(text, tupleOf("p", 0, seq)...)...)
		}
		do(200, "POST", produced, "next", append(text, tupleOf("p", 1, 0)...)...)
		do(200, "POST", produced, "other", append(text, tupleOf("q", 7, 0)...)...)

		do(201, "PUT", name("closed"), "all of it", append(text, "Stream-Closed", "true")...)
		shut := name("closed-later")
		do(201, "PUT", shut, "a", text...)
		do(204, "POST", shut, "b", append(text, "Stream-Closed", "true")...)

		do(201, "PUT", name("ttl"), "a", append(text, "Stream-TTL", "3153600000")...)
		do(201, "PUT", name("expires"), "a", append(text, "Stream-Expires-At", "2999-12-31T23:59:59Z")...)

		gone := name("deleted")
		do(201, "PUT", gone, "a", text...)
		do(204, "DELETE", gone, "")
		again := name("made-again")
		do(201, "PUT", again, "a", text...)
		do(204, "DELETE", again, "")
		do(201, "PUT", again, "b", text...)

		fork := name("fork")
		do(201, "PUT", fork, "", "Stream-Forked-From", "/v1/stream/"+plain, "Stream-Fork-Offset", fmt.Sprintf("%020d", 3))
		do(204, "POST", fork, "its own", text...)
		source := name("gone-source")
		do(201, "PUT", source, "inherited", text...)
		do(201, "PUT", name("heir"), "", "Stream-Forked-From", "/v1/stream/"+source)
		do(204, "DELETE", source, "")

		long := name("long")
		do(201, "PUT", long, "", text...)
		for n := range 40 {
			do(204, "POST", long, entry(long, n, 4000), text...)
		}
	}
	return names
}

func tupleOf(id string, epoch, seq int) []string {
	return []string{"Producer-Id", id, "Producer-Epoch", strconv.Itoa(epoch), "Producer-Seq", strconv.Itoa(seq)}
}

// answers makes the reads of every stream.
func answers(t *testing.T, d *daemon, names []string) []read {
	t.Helper()
	a := newAPI(d)
	defer a.client.CloseIdleConnections()
	var all []read
	for _, name := range names {
		for _, r := range []read{{Method: "HEAD", Stream: name}, {Method: "GET", Stream: name + "?offset=-1"}} {
			got, err := a.do(r.Method, r.Stream, "")
			if err != nil {
				t.Fatal(err)
			}
			r.Status, r.Body, r.Header = got.status, brief(got.body), map[string]string{}
			for _, h := range kept {
				if v := got.header.Get(h); v != "" {
					r.Header[h] = v
				}
			}
			if r.Status >= http.StatusBadRequest {
				r.Body = "" // words may get better
			}
			all = append(all, r)
		}
	}
	return all
}

// brief replaces a long or binary body by its digest.
func brief(body string) string {
	if len(body) > 200 || !utf8.ValidString(body) {
		return fmt.Sprintf("%d bytes with SHA-256 %x", len(body), sha256.Sum256([]byte(body)))
	}
	return body
}

// TestField160OldDirectory reads what an older build has written.
func TestField160OldDirectory(t *testing.T) {
	if *writeGolden {
		makeGolden(t)
	}
	d := golden(t)
	var want []read
	b, err := os.ReadFile(goldenFormat + ".json")
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range want {
		if r.Method == "HEAD" {
			names = append(names, r.Stream)
		}
	}
	check := func(when string) {
		t.Helper()
		for i, got := range answers(t, d, names) {
			g, err1 := json.Marshal(got)
			w, err2 := json.Marshal(want[i])
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if string(g) != string(w) {
				t.Errorf("%s:\n got %.600s\nwant %.600s", when, g, w)
			}
		}
	}
	d.start(t)
	check("as it was")

	// What each producer had done is known as well.
	a := newAPI(d)
	for _, part := range []string{"old", "new"} {
		for status, header := range map[int][]string{
			204: tupleOf("q", 7, 0), 403: tupleOf("p", 0, 2), 409: tupleOf("p", 1, 2),
		} {
			_, err := a.expect(status, "POST", part+"/produced", "x", append(header, "Content-Type", plain)...)
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := a.expect(http.StatusConflict, "POST", part+"/plain", "x", "Content-Type", plain, "Stream-Seq", "0002"); err != nil {
			t.Error(err)
		}
	}
	a.client.CloseIdleConnections()

	// It goes on in today's form: with flushes, and with another restart.
	more := map[string]string{}
	for i := range 4 {
		name := "more/" + strconv.Itoa(i)
		more[name] = d.fill(t, name, 40, 2000)
	}
	d.kill(t)
	d.start(t)
	check("after more writes")
	d.has(t, more)
	d.stop(t)
}

// golden unpacks the kept directory for a daemon.
func golden(t *testing.T) *daemon {
	t.Helper()
	d := newDaemon(t, flushing...)
	f, err := os.Open(goldenFormat + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(d.dir, filepath.FromSlash(h.Name))
		err = os.MkdirAll(filepath.Dir(path), 0o700)
		if h.Typeflag == tar.TypeReg && err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// makeGolden makes the kept directory, killed in the middle of its work, and the
// answers of its server after a restart.
func makeGolden(t *testing.T) {
	t.Helper()
	d := newDaemon(t, flushing...)
	d.start(t)
	names := goldenStreams(t, d)
	d.kill(t)
	f, err := os.Create(goldenFormat + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	if err := errors.Join(w.AddFS(os.DirFS(d.dir)), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	c := golden(t)
	c.start(t)
	b, err := json.MarshalIndent(answers(t, c, names), "", " ")
	if err == nil {
		err = os.WriteFile(goldenFormat+".json", append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.stop(t)
}

// TestField160NewerDirectory changes the version of one file of each kind, as a newer
// build would write it: valid in all else.
func TestField160NewerDirectory(t *testing.T) {
	sum := func(b []byte) uint64 { return xxhash.Sum64(b) }
	le := endian.LittleEndian
	// raise puts the next version at byte 8 and the checksum of what is before it at end.
	raise := func(end int) func([]byte) []byte {
		return func(b []byte) []byte {
			le.PutUint32(b[8:], le.Uint32(b[8:])+1)
			le.PutUint64(b[end:], sum(b[:end]))
			return b
		}
	}
	for pattern, change := range map[string]func([]byte) []byte{
		"SNAKREAM":            raise(56),
		"shard-00/MANIFEST-*": raise(4088),
		"shard-00/wal/*.wal":  raise(56),
		"shard-00/seg/*.seg":  raise(4088),
		"shard-00/CURRENT": func(b []byte) []byte {
			b = []byte(strings.Replace(string(b[:len(b)-17]), "current 1\n", "current 2\n", 1))
			return fmt.Appendf(b, "%016x\n", sum(b))
		},
	} {
		t.Run(filepath.Base(pattern), func(t *testing.T) {
			d := golden(t)
			paths, err := filepath.Glob(filepath.Join(d.dir, pattern))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s: %v, %v", pattern, paths, err)
			}
			edit(t, paths[0], change)
			d.refused(t, paths[0], "version 2")
		})
	}
}
