package server

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// damage flips a byte in the middle of the blob that holds a snapshot.
func (n *node) damage(digest string, at int64) {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(n.dir, "blobs", digest[:2], digest), os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		n.t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		n.t.Fatal(err)
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
