package blob

import (
	"fmt"
	"testing"
)

// Copies are asked for in the order in which blobs came, however often one of them can't
// be made, and however many come after it.
func TestUnsavedInOrder(t *testing.T) {
	_, s, shelf := newTiered(t)
	var all []Digest
	upTo := func(n int) {
		for len(all) < n {
			all = append(all, mustUpload(t, s, fmt.Appendf(nil, "blob %d", len(all))))
		}
	}
	next := func(due func(Digest) bool) Pending {
		t.Helper()
		got := s.Unsaved(1, due)
		if len(got) != 1 {
			t.Fatalf("%d blobs are unsaved", len(got))
		}
		return got[0]
	}
	upTo(20)
	for i := range 10 {
		p := next(nil)
		if p.Digest != all[i] {
			t.Fatalf("blob %d did not come in its turn", i)
		}
		s.GiveUp(p)
		upTo(len(all) + 10)
		if p = next(nil); p.Digest != all[i] {
			t.Fatalf("blob %d has lost its place", i)
		}
		if other := next(nil); other.Digest != all[i+1] {
			t.Fatalf("beside blob %d comes another one than the next", i)
		} else {
			s.GiveUp(other)
		}
		if other := next(func(d Digest) bool { return d != all[i+1] }); other.Digest != all[i+2] {
			t.Fatalf("in place of blob %d, which is not due, comes another one than the next", i+1)
		} else {
			s.GiveUp(other)
		}
		b, err := fileOf(s, p)
		must(t, err)
		must(t, s.Saved(p, shelf.put(b)))
	}
}
