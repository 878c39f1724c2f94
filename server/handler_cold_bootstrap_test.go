package server

import (
	"strings"
	"testing"
)

// A bootstrap whose snapshot is in the object store alone is as good as any.
func TestColdBootstrap(t *testing.T) {
	t.Parallel()
	n := newTiered(t)
	b := n.on("cold-boot")
	s := b.create(octets)
	for i := range 16 {
		b.append(s, octets, part(i, 32<<10))
	}
	image := part(3, 2<<20)
	b.want(204, "PUT", s+"/snapshot/00000000000000262144", image, "Stream-Snapshot-Retain", "true")
	n.chill("cold-boot/" + s)
	n.store.answer(-1)
	b = n.root()
	b.url += "cold-boot/"

	boot, err := parseBoot(b.want(200, "GET", s+"/bootstrap", ""))
	if err != nil || boot.snapshot != image || len(boot.messages) != 8 || boot.messages[0] != part(8, 32<<10) {
		t.Errorf("a snapshot of %d bytes and %d messages, %v", len(boot.snapshot), len(boot.messages), err)
	}
	head := b.want(200, "HEAD", s+"/bootstrap", "")
	if got := head.header.Get("Stream-Snapshot-Offset"); !strings.HasSuffix(got, "262144") {
		t.Errorf("the snapshot is at %q", got)
	}
	n.counted(0, 0)
}
