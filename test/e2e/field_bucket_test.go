//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// bucketCall sends a request about a bucket.
func (f *field) bucketCall(method, bucket string) (answer, error) {
	return f.about(method, bucket, "", "")
}

// A bucket is deleted or has streams, never both, and one of the same name begins empty.
func TestField115BucketDeletedAndMadeAgain(t *testing.T) {
	f := onOwn(t, "--shards", "3")
	const bucket = "phoenix"
	deleted, kept := 0, 0
	for round := range 60 {
		if r, err := f.bucketCall("PUT", bucket); err != nil || r.status != http.StatusCreated {
			t.Fatalf("round %d: %v, %v", round, r, err)
		}
		var gone atomic.Bool
		made := make([]bool, 6)
		f.together(len(made)+1, func(i int) error {
			if i == len(made) {
				r, err := f.bucketCall("DELETE", bucket)
				if err == nil && r.status != http.StatusNoContent && r.code() != "bucket_not_empty" {
					err = fmt.Errorf("deleting the bucket: %v", r)
				}
				gone.Store(r.status == http.StatusNoContent)
				return err
			}
			for {
				r, err := f.about("PUT", bucket, fmt.Sprintf("/s%d", i), fmt.Sprintf("round %d", round), "Content-Type", plain)
				if err != nil {
					return err
				}
				switch r.status {
				case http.StatusServiceUnavailable: // while it is being decided
					pause(f.Context(), time.Millisecond)
					continue
				case http.StatusCreated:
					made[i] = true
				case http.StatusNotFound:
				default:
					return fmt.Errorf("creating a stream: %v", r)
				}
				return nil
			}
		})
		if round%15 == 14 {
			f.restart()
		}
		for i, there := range made {
			switch r, err := f.about("GET", bucket, fmt.Sprintf("/s%d", i), ""); {
			case err != nil:
				t.Fatal(err)
			case there && gone.Load():
				t.Fatalf("round %d: the bucket was deleted, and stream %d made in it", round, i)
			case there && (r.status != http.StatusOK || r.body != fmt.Sprintf("round %d", round)):
				t.Fatalf("round %d: stream %d: %v", round, i, r)
			case !there && r.status != http.StatusNotFound:
				t.Fatalf("round %d: stream %d was refused and is there: %v", round, i, r)
			}
			if there {
				kept++
				f.wantAbout(http.StatusNoContent, "DELETE", bucket, fmt.Sprintf("/s%d", i), "")
			}
		}
		if gone.Load() {
			deleted++
		} else {
			f.wantAbout(http.StatusNoContent, "DELETE", bucket, "", "")
		}
		f.wantAbout(http.StatusNotFound, "GET", bucket, "", "")
		f.wantAbout(http.StatusNotFound, "PUT", bucket, "/late", "")
	}
	t.Logf("%d times the bucket was deleted first, %d streams came before", deleted, kept)
	if deleted == 0 || kept == 0 {
		t.Errorf("%d times the bucket was deleted first, %d streams came before; the race was none", deleted, kept)
	}
	f.wantAbout(http.StatusCreated, "PUT", bucket, "", "")
	if r := f.wantAbout(http.StatusOK, "GET", bucket, "/streams", ""); !strings.Contains(r.body, `"streams":[]`) {
		t.Errorf("the new bucket has %s", r.body)
	}
}

// What is still to be done about a stream that is gone never happens to the one that has its name.
func TestField116OldWorkSparesTheNewStream(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB", "--erase-within", "1s")
	const marker, state = "the new stream's marker", "a state that both have"
	// Deadlines, attributes, snapshots and trims of the old ones are pending when the new ones come.
	const streams = 300
	at := make([]string, streams)
	for i := range at {
		at[i] = f.name()
	}
	f.together(10, func(worker int) error {
		for i := worker; i < streams; i += 10 {
			if err := f.replace(at[i], i, marker, state); err != nil {
				return fmt.Errorf("stream %d: %w", i, err)
			}
		}
		return nil
	})
	check := func(when string) {
		t.Helper()
		for i, s := range at {
			if r := f.want(http.StatusOK, "GET", s, ""); r.body != marker {
				t.Fatalf("%s: stream %d holds %q", when, i, r.body)
			}
			f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-TTL", "", "Stream-Earliest-Offset", "")
			if r := f.wantAbout(http.StatusOK, "GET", s, "/attrs", ""); r.body != "{}" {
				t.Fatalf("%s: stream %d has the attributes %s", when, i, r.body)
			}
			want := http.StatusNotFound
			if i%2 == 0 {
				want = http.StatusOK
			}
			if r := f.wantAbout(want, "GET", s, "/snapshot", ""); want == http.StatusOK && r.body != state {
				t.Fatalf("%s: stream %d has the snapshot %q", when, i, r.body)
			}
		}
	}
	check("at once")
	f.restart()
	check("after a crash")
	f.let(time.Now().Add(2500 * time.Millisecond)) // the old deadlines, and the time to erase
	check("after the old deadlines")
	f.restart()
	check("after a second crash")
}

// replace makes a stream, deletes it with all that can hang on one, and makes another of its name.
func (f *field) replace(s string, i int, marker, state string) error {
	do := func(status int, method, below, body string, header ...string) error {
		r, err := f.about(method, s, below, body, header...)
		if err == nil && r.status != status {
			err = fmt.Errorf("%s %s: %v", method, below, r)
		}
		return err
	}
	if r, err := f.once("PUT", s, strings.Repeat("old ", 100), []string{"Content-Type", plain, "Stream-TTL", "2", "Stream-Attrs", `{"title":"old"}`}); err != nil || r.status != http.StatusCreated {
		return fmt.Errorf("the old one: %v, %w", r, err)
	}
	for _, step := range []func() error{
		func() error { return do(204, "POST", "", "more", "Content-Type", plain) },
		func() error { return do(204, "PUT", "/snapshot/400", state) },
		func() error { return do(204, "DELETE", "", "") },
		func() error { return do(201, "PUT", "", "", "Content-Type", plain) },
		func() error { return do(204, "POST", "", marker, "Content-Type", plain) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if i%2 == 1 {
		return nil
	}
	return do(204, "PUT", "/snapshot/0", state)
}
