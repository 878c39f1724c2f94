package server

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
)

// damage flips a byte in the middle of the blob that holds a snapshot.
func (n *node) damage(digest string, at int64) {
	n.t.Helper()
	flip(n.t, filepath.Join(n.dir, "blobs", digest[:2], digest), at)
}

// flip changes a bit of a file.
func flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// A damaged snapshot is never served: what has not begun is answered with 500, what has
// is cut. All else stays up.
func TestDamagedSnapshots(t *testing.T) {
	n := newNode(t, nil).on("damaged")
	const size = 5 << 20
	for _, step := range []struct {
		at    int64
		begun bool
	}{{50_000, false}, {4 << 20, true}} {
		for _, path := range []string{"/snapshot", "/bootstrap", "/bootstrap?live=sse"} {
			s := n.create(octets)
			state := strings.Repeat(s, size/len(s))
			a := n.want(204, "PUT", s+"/snapshot/0", state)
			n.damage(a.header.Get("Stream-Snapshot-Digest"), step.at)
			if !step.begun {
				if a = n.refused(500, "range_damaged", "GET", s+path, ""); strings.Contains(a.body, n.dir) {
					t.Errorf("the answer names a file: %s", a.body)
				}
			} else {
				resp, err := n.client.Get(n.url + s + path)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil || resp.StatusCode != 200 {
					t.Errorf("%s: %d with %d bytes that end well", path, resp.StatusCode, len(b))
				}
			}
			n.want(200, "GET", s, "")
			n.append(s, octets, "x")
		}
	}
	if n.server.metrics.damaged.Load() != 6 {
		t.Errorf("%d damaged reads are counted", n.server.metrics.damaged.Load())
	}
}

// A fork whose beginning cannot be found because the source is damaged there is answered
// as the damage that it is, and not as an overload.
func TestForkOfDamagedSource(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.MemtableBytes = 16 << 10 })
	s := n.create(octets)
	segments := filepath.Join(n.dir, "shard-00", "seg")
	for deadline := time.Now().Add(patience); n.engine.Stats().Segments == 0 && time.Now().Before(deadline); {
		n.append(s, octets, strings.Repeat("x", 1<<10)) // until there is a segment, of a single block
	}
	files, err := os.ReadDir(segments)
	if err != nil || len(files) == 0 {
		t.Fatal("nothing was flushed", err)
	}
	flip(t, filepath.Join(segments, files[0].Name()), 4096+100)
	from := []string{"Stream-Forked-From", "/v1/stream/" + s, "Stream-Fork-Offset", "00000000000000000200"}
	before := n.server.metrics.damaged.Load()
	a := n.refused(500, "range_damaged", "PUT", fresh(), "", from...)
	if strings.Contains(a.body, n.dir) || strings.Contains(a.body, ".seg") {
		t.Errorf("the answer names a file: %s", a.body)
	}
	if n.server.metrics.damaged.Load() != before+1 {
		t.Error("the damage is not counted")
	}
	n.want(201, "PUT", fresh(), "", from[:2]...) // at the tail
}
