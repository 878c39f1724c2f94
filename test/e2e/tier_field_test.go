//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/snakream/snakream/test/faults"
)

// coldObjects finds the objects that hold the cold streams: those that old reads ask for.
func (r *coldRig) coldObjects() (paths []string) {
	r.Helper()
	r.cool()
	r.proxy.Set(nil)
	if failed := r.readAll(); len(failed) > 0 {
		r.Fatal(failed)
	}
	for path := range r.asked() {
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	if len(paths) < 2 {
		r.Fatalf("old data is in %v", paths)
	}
	return paths
}

// asked returns the objects that were read since the proxy's rule was set.
func (r *coldRig) asked() map[string]bool {
	found := map[string]bool{}
	for _, seen := range r.proxy.Seen() {
		if seen.Method == http.MethodGet && (strings.Contains(seen.Path, "/segments/") || strings.Contains(seen.Path, "/blobs/")) {
			found[filepath.Join(filepath.Dir(r.s3.dir), filepath.FromSlash(seen.Path))] = true
		}
	}
	return found
}

// An object that is missing, short or of other bytes is never read as a hole: reads
// fail, others go on, and it is told of. When it is put right, all heals by itself.
func TestField136MissingOrShortObject(t *testing.T) {
	r := onProxy(t)
	r.chill()
	for _, c := range []struct {
		what   string
		damage func(path string, whole []byte) error
	}{
		{"missing", func(path string, _ []byte) error { return os.Rename(path, path+"~") }},
		{"half of it", func(path string, whole []byte) error { return os.Truncate(path, int64(len(whole)/2)) }},
		{"other bytes", func(path string, whole []byte) error { return rewrite(path, []byte(strings.Repeat("x", len(whole)))) }},
	} {
		needed := 0
		for _, path := range r.coldObjects() {
			whole, err := os.ReadFile(path)
			if err == nil {
				err = c.damage(path, whole)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.cool()
			damaged := r.daemon.metric(t, "snakream_damaged_reads_total")
			failed := r.readAll()
			if r.asked()[path] { // else a merge has put another in its place meanwhile
				needed++
				if len(failed) == 0 {
					t.Errorf("%s: all reads went well without %s", c.what, path)
				}
				if r.daemon.metric(t, "snakream_damaged_reads_total") == damaged {
					t.Errorf("%s: nothing has counted it", c.what)
				}
			}
			r.stays(2)
			if c.what == "missing" {
				err = os.Rename(path+"~", path)
			} else {
				err = rewrite(path, whole)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.heals()
		}
		if needed == 0 { // of a snapshot there is no merge
			t.Errorf("%s: nothing that was damaged was read", c.what)
		}
	}
}

// rewrite changes what a file holds, and nothing else of it: the S3 server keeps more.
func rewrite(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err != nil {
		return err
	}
	return f.Close()
}

// Whatever lies under the prefix, a start, reads and collection go well with it. What is
// left of our own uploads is cleared away, what is anybody else's is not touched. (Uploads
// in parts are never begun: TestField143StrictStore.)
func TestField137JunkUnderThePrefix(t *testing.T) {
	onEach(t, with(small, soonGone), func(r *tierRig) {
		s := r.create(plain)
		r.text(s, numbered(0, 3000))
		r.protected()
		r.daemon.stop(r.T)
		foreign := map[string]string{
			"segments/00/0000000001.tmp": "junk", "segments/00/empty": "", "notes.txt": "mine", "blobs/a\nb": "newline", "segments/zz/x": "x",
		}
		half := "segments/00/0000000099.000000000900" // as a put leaves it that was cut before anything named it
		for name, body := range foreign {
			r.junk(name, body)
		}
		r.junk(half, "half a segment")
		r.daemon.start(r.T)
		r.holds(s, numbered(0, 3000))
		r.eventually(tierPatience, "our own half object is gone", func() bool { return !exists(r.objects, half) })
		r.text(s, numbered(3000, 4000))
		gone := r.create(plain)
		r.text(gone, numbered(0, 5000))
		r.protected()
		r.want(http.StatusNoContent, "DELETE", gone, "")
		r.eventually(tierPatience, "what was deleted is gone", func() bool { return total(r.T, r.objects) < 8000*lineSize })
		for name, body := range foreign {
			if b, err := os.ReadFile(filepath.Join(r.objects, name)); err != nil || string(b) != body {
				r.Errorf("%q holds %q, %v", name, b, err)
			}
		}
		if n := r.daemon.tier(r.T).Foreign; n < 3 {
			r.Errorf("%d foreign objects are reported", n)
		}
		r.daemon.kill(r.T)
		o := r.restore()
		o.daemon.start(r.T)
		o.holds(s, numbered(0, 4000))
	})
}

// junk puts an object past the server.
func (r *tierRig) junk(name, body string) {
	r.Helper()
	path := filepath.Join(r.objects, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o666); err != nil {
		r.Fatal(err)
	}
}

func exists(root, name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// Readers at the place where data is being moved see no difference.
func TestField139ReadersAtTheBoundary(t *testing.T) {
	onEach(t, with(small, []string{"--local-disk-budget", "512KiB", "--cold-cache-bytes", "1MiB"}), func(r *tierRig) {
		s := r.create(plain)
		const step, steps, readers = 1000, 200, 4
		var written atomic.Int64 // lines
		r.together(readers+1, func(i int) error {
			if i == readers {
				for n := range steps {
					if err := r.store1(s, numbered(n*step, (n+1)*step)); err != nil {
						written.Store(-1)
						return err
					}
					written.Store(int64((n + 1) * step))
				}
				written.Store(-1)
				return nil
			}
			for k := i; ; k += 7 {
				n := int(written.Load())
				if n < 0 {
					return nil
				}
				if n == 0 {
					continue
				}
				from := k * 1237 % n
				a, err := r.once("GET", fmt.Sprintf("%s?max_bytes=%d&offset=%d", s, 50*lineSize, from*lineSize), "", nil)
				if err != nil {
					return err
				}
				lines := len(a.body) / lineSize
				if a.status != http.StatusOK || lines == 0 || a.body != numbered(from, from+lines) {
					return fmt.Errorf("from line %d of %d on: %v", from, n, a)
				}
			}
		})
		r.protected()
		r.eventually(tierPatience, "something is in the store only", func() bool { return r.daemon.tier(r.T).EvictedSegments > 0 })
		r.holds(s, numbered(0, step*steps))
	})
}

// store1 appends text, for use by any goroutine.
func (r *tierRig) store1(stream, body string) error {
	a, err := r.withRoom(http.StatusNoContent, func() (answer, error) { return r.once("POST", stream, body, []string{"Content-Type", plain}) })
	if err == nil && a.status != http.StatusNoContent {
		err = fmt.Errorf("%v", a)
	}
	return err
}

// The second try of an upload has the whole body. (The calls of the store one by one:
// tiering/s3.)
func TestField142SecondTry(t *testing.T) {
	r := onProxy(t, "--local-disk-budget", "0")
	s := r.create(plain)
	put := isObject(http.MethodPut)
	tries := map[string]int{}
	r.proxy.Set(func(q *http.Request) faults.Fault {
		if !put(q) {
			return nil
		}
		tries[q.URL.Path]++ // rules are asked one at a time
		if tries[q.URL.Path] == 1 {
			return faults.Answer(500, "InternalError")
		}
		return nil
	})
	r.text(s, numbered(0, 10_000))
	r.wantAbout(http.StatusNoContent, "PUT", s, "/snapshot/200000", imageAt(2000, imageSize), "Stream-Snapshot-Retain", "true")
	r.protected()
	again := 0
	for _, seen := range r.proxy.Seen() {
		if seen.Method == http.MethodPut && !strings.HasSuffix(seen.Path, "/mirror") {
			again++
		}
	}
	if again < 4 {
		t.Errorf("%d tries", again)
	}
	r.daemon.kill(t)
	o := r.restore()
	o.daemon.start(t)
	o.holds(s, numbered(0, 10_000))
	if got := o.wantAbout(http.StatusOK, "GET", s, "/snapshot/200000", ""); got.body != imageAt(2000, imageSize) {
		t.Error("the snapshot is another")
	}
}

// A store that knows nothing of trailers, chunked signatures and uploads in parts sees
// none: all that a server does goes well there.
func TestField143StrictStore(t *testing.T) {
	r := onProxy(t, soonGone...)
	var refused atomic.Int64
	strict := func(q *http.Request) faults.Fault {
		h := q.Header
		if strings.Contains(h.Get("Content-Encoding"), "aws-chunked") || h.Get("X-Amz-Trailer") != "" || q.ContentLength < 0 ||
			strings.Contains(h.Get("X-Amz-Content-Sha256"), "STREAMING") || q.Method == http.MethodPost || q.URL.Query().Has("uploads") {
			refused.Add(1)
			return faults.Answer(501, "NotImplemented")
		}
		return nil
	}
	r.proxy.Set(strict)
	for i := range 3 {
		s := r.create(plain)
		for n := range 4 {
			if err := r.store1(s, numbered(n*10_000, (n+1)*10_000)); err != nil {
				t.Fatal(err)
			}
		}
		r.protected()
		r.holds(s, numbered(0, 40_000))
		if i > 0 {
			r.want(http.StatusNoContent, "DELETE", s, "")
		}
	}
	r.eventually(tierPatience, "what was deleted is gone", func() bool { return total(t, r.objects) < 60_000*lineSize })
	r.run(0, with([]string{"doctor"}, r.flags)...)
	if n := refused.Load(); n > 0 {
		t.Errorf("%d requests that such a store would refuse", n)
	}
}

// A store with more objects than a page of a list has: a restore finds all of them, and
// collection takes only what nobody needs. (Pages of exactly 1,000: tiering/s3.)
func TestField145ManyObjects(t *testing.T) {
	r := onS3(t, with(small, soonGone, []string{"--max-inflight-body-bytes", "64MiB"})...)
	const many = 1100
	name := func(i int) string { return "many/s" + strconv.Itoa(i) }
	image := func(i int) string { return "the image of " + strconv.Itoa(i) }
	r.want(http.StatusCreated, "PUT", name(0), "x", "Content-Type", plain)
	r.each(many, func(i int) error {
		if _, err := r.once("PUT", name(i), "x", []string{"Content-Type", plain}); err != nil {
			return err
		}
		a, err := r.about("PUT", name(i), "/snapshot/1", image(i), "Content-Type", plain)
		if err == nil && a.status != http.StatusNoContent {
			err = fmt.Errorf("%v", a)
		}
		return err
	})
	r.protected()
	r.each(many/10, func(i int) error { // makes the tier collect
		_, err := r.expect(http.StatusNoContent, "DELETE", name(10*i), "")
		return err
	})
	blobs := func() (n int) {
		for path := range sizes(t, r.objects) {
			if strings.Contains(path, "/blobs/") {
				n++
			}
		}
		return n
	}
	r.eventually(tierPatience, "the deleted snapshots are gone", func() bool { return blobs() == many-many/10 })
	r.protected()
	r.restart() // which looks for what earlier runs have left
	r.protected()
	r.daemon.kill(t)
	o := r.restore()
	o.daemon.start(t)
	o.protected()
	o.each(many, func(i int) error {
		b, err := o.bootstrap(name(i))
		if i%10 == 0 {
			if err == nil {
				err = fmt.Errorf("%s is back", name(i))
			} else {
				err = nil
			}
		} else if err == nil && b.snapshot != image(i) {
			err = fmt.Errorf("%s has the image %q", name(i), b.snapshot)
		}
		return err
	})
	if n := blobs(); n != many-many/10 {
		t.Errorf("%d snapshots are left in the bucket", n)
	}
}

// Uploads that fail for long, with a budget in force and a restart in between, cost
// nothing that was acknowledged: what is not in the store yet never makes room.
func TestField146FailingUploadsAndTheBudget(t *testing.T) {
	r := onProxy(t)
	r.want(http.StatusCreated, "PUT", hotStream, "", "Content-Type", plain)
	r.stays(1)
	r.protected()
	r.proxy.Set(faults.Always(isObject(http.MethodPut), faults.Answer(503, "SlowDown")))
	r.fill()
	taken := r.lines
	if taken*lineSize < 500<<10 {
		t.Errorf("%d lines filled a budget of 768 KiB", taken)
	}
	for range 2 {
		r.restart()
		r.holds(hotStream, numbered(0, taken))
		r.fill()
		taken = r.lines
	}
	stored := 0
	for path := range sizes(t, r.objects) {
		if strings.Contains(path, "/segments/") {
			stored++
		}
	}
	if s := r.daemon.tier(t); s.EvictedSegments > stored {
		t.Errorf("%d segments are in the store, and %+v", stored, s)
	}
	r.proxy.Set(nil)
	r.stays(2) // waits for room
	r.protected()
	r.holds(hotStream, numbered(0, r.lines))
	r.restart()
	r.holds(hotStream, numbered(0, r.lines))
}

// What was deleted, trimmed or replaced is gone from every file and every object within
// the time that the settings name.
func TestTierErases(t *testing.T) {
	onEach(t, with(small, soonGone, []string{"--local-disk-budget", "1MiB"}), func(r *tierRig) {
		const marker = "this must not be found again "
		secret := strings.Repeat(marker, 4000)
		const kept, deleted, trimmed = "erase/kept", "erase/deleted", "erase/trimmed"
		for _, s := range []string{kept, deleted, trimmed} { // so that they share segments
			r.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)
			r.text(s, numbered(0, 500))
		}
		r.text(deleted, secret)
		r.text(trimmed, secret)
		at := 500*lineSize + len(secret)
		r.wantAbout(http.StatusNoContent, "PUT", trimmed, "/snapshot/"+itoa(at), secret, "Stream-Snapshot-Retain", "true")
		r.text(trimmed, "kept.")
		r.text(kept, "kept.")
		r.protected()
		// A look may miss what a merge moves meanwhile.
		r.eventually(tierPatience, "the data is on the disk and in the store", func() bool { return r.onDisk(marker) && inObjects(r, marker) })
		r.want(http.StatusNoContent, "DELETE", deleted, "")
		r.wantAbout(http.StatusNoContent, "PUT", trimmed, "/snapshot/"+itoa(at+5), "nothing in it")
		// A snapshot that was replaced stays readable for five minutes; a deletion ends that.
		r.wantAbout(http.StatusNoContent, "DELETE", trimmed, "/snapshot/"+itoa(at), "")
		r.eventually(tierPatience, "the data is gone from the disk and from the store", func() bool { return !r.onDisk(marker) && !inObjects(r, marker) })
		r.holds(kept, numbered(0, 500)+"kept.")
		b, err := r.bootstrap(trimmed)
		if err != nil || b.snapshot != "nothing in it" || b.at != at+5 {
			r.Errorf("%v, %v", b, err)
		}
		r.protected()
		r.daemon.kill(r.T)
		o := r.restore()
		o.daemon.start(r.T)
		o.holds(kept, numbered(0, 500)+"kept.")
		o.want(http.StatusNotFound, "HEAD", deleted, "")
	})
}

func inObjects(r *tierRig, marker string) bool {
	for body := range maps.Values(contents(r.T, r.objects)) {
		if strings.Contains(body, marker) {
			return true
		}
	}
	return false
}
