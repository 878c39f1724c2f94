package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/tiering"
)

// keysOf lists a prefix and checks what belongs to every listing.
func keysOf(t *testing.T, s tiering.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range s.List(within(s), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		if !strings.HasPrefix(info.Key, prefix) {
			t.Errorf("list %q yields %q", prefix, info.Key)
		}
		if n := len(keys); n > 0 && keys[n-1] >= info.Key {
			t.Errorf("list %q yields %q after %q", prefix, info.Key, keys[n-1])
		}
		if info.Size != int64(len(info.Key)) {
			t.Errorf("list %q: %q has %d bytes, not %d", prefix, info.Key, info.Size, len(info.Key))
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// fill puts an object under each key; its content is its key.
func fill(t *testing.T, s tiering.Store, keys []string) {
	t.Helper()
	var wg sync.WaitGroup
	work := make(chan string)
	for range 8 {
		wg.Go(func() {
			for key := range work {
				if err := s.Put(within(s), key, tiering.BytesBody([]byte(key))); err != nil {
					t.Errorf("put %q: %v", key, err)
				}
			}
		})
	}
	for _, key := range keys {
		work <- key
	}
	close(work)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// testListPages lists as many objects as fit one page of a provider, one more, and
// several pages.
func testListPages(t *testing.T, s tiering.Store) {
	if got := keysOf(t, s, ""); len(got) != 0 {
		t.Fatalf("an empty store lists %q", got)
	}
	var all []string
	sizes := map[string]int{"a/": 1000, "b/": 1001, "c/": 499}
	for prefix, n := range sizes {
		for i := range n {
			all = append(all, fmt.Sprintf("%s%06d", prefix, i))
		}
	}
	fill(t, s, all)
	slices.Sort(all)
	if got := keysOf(t, s, ""); !slices.Equal(got, all) {
		t.Errorf("listed %d keys of %d, or others", len(got), len(all))
	}
	for prefix, n := range sizes {
		if got := keysOf(t, s, prefix); len(got) != n {
			t.Errorf("listed %d keys of %d under %q", len(got), n, prefix)
		}
	}
	if got := keysOf(t, s, "b/0005"); len(got) != 100 {
		t.Errorf("listed %d keys of 100 under a prefix that is no folder", len(got))
	}
	if got := keysOf(t, s, "d"); len(got) != 0 {
		t.Errorf("listed %q where nothing is", got)
	}
}

// testListOrder has keys that sort differently when a folder is taken for a name.
func testListOrder(t *testing.T, s tiering.Store) {
	keys := []string{"a-b", "a.b", "a/b", "a/b2", "a/c-d", "a/c/d", "a/c0", "a0", "ab/c", "b"}
	fill(t, s, keys)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/c", "a/c/"} {
		want := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if got := keysOf(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: %q, not %q", prefix, got, want)
		}
	}
}

// testListForeign has keys under our prefix that somebody else made.
func testListForeign(t *testing.T, s tiering.Store) {
	const name = "segments/00/0000000001.000000000001"
	keys := []string{
		name,
		"segments/00/0000000001.000000000002.tmp",
		"segments/00/with\nnewline",
		"segments/00/with space",
		"segments/00/a+b",
		"segments/00/100%25",
		"segments/00/<&>\"'",
		"segments/00/Grüße, 世界",
		"segments/readme.txt",
		"notes",
	}
	fill(t, s, keys)
	slices.Sort(keys)
	if got := keysOf(t, s, ""); !slices.Equal(got, keys) {
		t.Errorf("listed %q, not %q", got, keys)
	}
	for _, key := range keys {
		if info, err := s.Stat(within(s), key); err != nil || info.Size != int64(len(key)) {
			t.Errorf("stat %q: %+v, %v", key, info, err)
		}
		if _, ours := tiering.ParseKey(key); ours != (key == name) {
			t.Errorf("ParseKey(%q) says %v", key, ours)
		}
	}
}

// testListStops leaves a listing early, and takes away what it lists.
func testListStops(t *testing.T, s tiering.Store) {
	fill(t, s, []string{"a", "b", "c"})
	n := 0
	for range s.List(within(s), "") {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d objects before the end", n)
	}
	for info, err := range s.List(within(s), "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(within(s), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	if got := keysOf(t, s, ""); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}
