//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/test/faults"
)

// coldRig is a server behind whose back a proxy does things to its S3 server, and which
// has data that is nowhere but there.
type coldRig struct {
	*tierRig
	proxy *faults.Proxy
	lines int // of the streams in hot
}

// The streams of a coldRig. The fork has nothing of its own, and each snapshot is larger
// than all that may stay on the local disk, and than the cache of what is fetched.
const (
	coldStream = "cold/s"
	coldFork   = "cold/fork"
	hotStream  = "hot/s"
	warmStream = "warm/s"
	coldLines  = 40_000 // 800 kB
	coldImage  = coldLines / 2 * lineSize
	warmImage  = coldLines * lineSize
	imageSize  = 1 << 20
)

// onProxy runs the test in parallel with others on a server that reaches its bucket
// through a proxy.
func onProxy(t *testing.T, flags ...string) *coldRig {
	t.Helper()
	t.Parallel()
	s := newS3(t)
	proxy, err := faults.New(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := newTierRig(t, s3Flags(proxy.URL), filepath.Join(s.dir, s3Prefix), with(small, []string{"--local-disk-budget", "768KiB", "--cold-cache-bytes", "1MiB"}, flags)...)
	r.s3 = s
	r.daemon.start(t)
	return &coldRig{tierRig: r, proxy: proxy}
}

// chill writes the streams and waits until the old ones have left.
func (r *coldRig) chill() {
	r.Helper()
	for _, s := range []string{coldStream, warmStream, hotStream} {
		r.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)
	}
	const step = 5000
	for n := 0; n < coldLines; n += step {
		r.text(coldStream, numbered(n, n+step))
	}
	r.wantAbout(http.StatusNoContent, "PUT", coldStream, "/snapshot/"+strconv.Itoa(coldImage), imageAt(coldImage, imageSize), "Stream-Snapshot-Retain", "true", "Content-Type", plain)
	r.want(http.StatusCreated, "PUT", coldFork, "", "Stream-Forked-From", target(coldStream))
	for n := 0; n < 2*coldLines; n += step {
		r.text(warmStream, numbered(n, n+step))
	}
	r.wantAbout(http.StatusNoContent, "PUT", warmStream, "/snapshot/"+strconv.Itoa(warmImage), imageAt(warmImage, imageSize), "Stream-Snapshot-Retain", "true", "Content-Type", plain)
	r.protected()
	r.eventually(tierPatience, "old data has left the disk", func() bool { return r.daemon.tier(r.T).LocalBytes < 768<<10 })
	r.cool()
}

// cool makes the server forget what it has fetched of the cold streams: a snapshot of
// another takes all of its cache.
func (r *coldRig) cool() {
	r.Helper()
	r.proxy.Set(nil)
	r.eventually(tierPatience, "other old data is read", func() bool {
		got, err := r.about("GET", warmStream, "/snapshot/"+strconv.Itoa(warmImage), "")
		return err == nil && got.status == http.StatusOK
	})
}

// stays appends to a stream and reads that back, all of which takes no store.
func (r *coldRig) stays(n int) {
	r.Helper()
	for range n {
		r.text(hotStream, numbered(r.lines, r.lines+1))
		got := r.want(http.StatusOK, "GET", hotStream+"?offset="+strconv.Itoa(r.lines*lineSize), "")
		if got.body != numbered(r.lines, r.lines+1) {
			r.Fatalf("line %d is %q", r.lines, got.body)
		}
		r.lines++
	}
}

// surface is a way of reading old data. It returns what came, and whether it was
// presented as all that there is.
type surface struct {
	name string
	want string
	read func(r *coldRig) (got string, whole bool, err error)
}

// surfaces are all ways of reading old data.
func surfaces() []surface {
	all := numbered(0, coldLines)
	return []surface{
		{"catch-up", all, func(r *coldRig) (string, bool, error) { return r.plainly(coldStream + "?offset=-1") }},
		{"pages", all, func(r *coldRig) (string, bool, error) { return r.paged(coldStream) }},
		{"long-poll", all, func(r *coldRig) (string, bool, error) { return r.plainly(coldStream + "?offset=-1&live=long-poll") }},
		{"SSE", all, func(r *coldRig) (string, bool, error) { return r.eventwise(coldStream) }},
		{"fork", all, func(r *coldRig) (string, bool, error) { return r.plainly(coldFork + "?offset=-1") }},
		{"bootstrap", imageAt(coldImage, imageSize) + numbered(coldLines/2, coldLines), func(r *coldRig) (string, bool, error) {
			return r.booted(coldStream)
		}},
		{"snapshot", imageAt(coldImage, imageSize), func(r *coldRig) (string, bool, error) {
			a, err := r.about("GET", coldStream, "/snapshot/"+strconv.Itoa(coldImage), "")
			return answered(a, err)
		}},
	}
}

// errRefused is a read that was refused, as reads are that can't be answered now.
var errRefused = errors.New("refused")

// answered judges an answer: a body that was cut is no whole one, and what is refused
// has to say why.
func answered(a answer, err error) (string, bool, error) {
	switch {
	case err != nil:
		return a.body, false, err // the connection broke
	case a.status == http.StatusOK:
		return a.body, true, nil
	case a.status >= 500 && (a.code() == "cold_unavailable" || a.code() == "range_damaged"):
		return "", false, fmt.Errorf("%w: %d %s", errRefused, a.status, a.code())
	}
	return "", true, fmt.Errorf("%v", a)
}

func (r *coldRig) plainly(path string) (string, bool, error) {
	return answered(r.once("GET", path, "", nil))
}

func (r *coldRig) paged(stream string) (string, bool, error) {
	var got strings.Builder
	for next := "0"; ; {
		a, err := r.once("GET", stream+"?max_bytes=100000&offset="+next, "", nil)
		if s, ok, err := answered(a, err); err != nil || !ok {
			return got.String() + s, ok, err
		}
		got.WriteString(a.body)
		at, err := a.number("Stream-Next-Offset")
		if err != nil || at != got.Len() {
			return got.String(), true, fmt.Errorf("after %d bytes the next offset is %d, %v", got.Len(), at, err)
		}
		if a.header.Get("Stream-Up-To-Date") == "true" {
			return got.String(), true, nil
		}
		next = strconv.Itoa(at)
	}
}

func (r *coldRig) eventwise(stream string) (string, bool, error) {
	e, err := r.tryEvents(stream, "offset=-1")
	if err != nil {
		if strings.Contains(err.Error(), "cold_unavailable") || strings.Contains(err.Error(), "range_damaged") {
			return "", false, fmt.Errorf("%w: %w", errRefused, err)
		}
		return "", true, err
	}
	defer e.conn.Close()
	var got strings.Builder
	for {
		ev, err := e.try(tierPatience)
		if err != nil {
			return got.String(), false, err
		}
		switch ev.name {
		case "data":
			got.WriteString(ev.data)
		case "end":
			return got.String(), false, fmt.Errorf("%w: %s", errRefused, ev.data)
		default:
			c, err := ev.control()
			if err != nil {
				return got.String(), true, err
			}
			if at, err := strconv.Atoi(c.Next); err != nil || at != got.Len() {
				return got.String(), true, fmt.Errorf("after %d bytes a control says %s", got.Len(), c.Next)
			}
			if c.UpToDate {
				return got.String(), true, nil
			}
		}
	}
}

func (r *coldRig) booted(stream string) (string, bool, error) {
	resp, err := r.bucketed(r.Context(), "GET", stream, "/bootstrap", nil)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(resp.Body)
		return answered(answer{resp.StatusCode, resp.Header, string(b)}, err)
	}
	parts, err := partsOf(resp.Header.Get("Content-Type"), resp.Body)
	if err != nil {
		return "", false, err
	}
	return strings.Join(parts, ""), true, nil
}

// readAll reads old data in every way, and makes sure that nothing is presented as whole
// that isn't, and that nothing comes that was never written. It returns the ways that
// failed.
func (r *coldRig) readAll() (failed []string) {
	r.Helper()
	all := surfaces()
	errs := make([]error, len(all))
	r.together(len(all), func(i int) error {
		s := all[i]
		got, whole, err := s.read(r)
		errs[i] = err
		switch {
		case whole && err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		case whole && got != s.want:
			return fmt.Errorf("%s: taken for whole: %s", s.name, differ(got, s.want))
		case s.name != "bootstrap" && !strings.HasPrefix(s.want, got):
			return fmt.Errorf("%s: before the end: %s", s.name, differ(got, s.want))
		}
		return nil
	})
	for i, err := range errs {
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %.200v", all[i].name, err))
		}
	}
	return failed
}

// heals waits until old data can be read in every way again.
func (r *coldRig) heals() {
	r.Helper()
	r.eventually(tierPatience, "old data is read again", func() bool { return len(r.readAll()) == 0 })
}

// isObject matches requests about segments and snapshots, and not about the mirror.
func isObject(methods ...string) faults.Match {
	return func(r *http.Request) bool {
		return slices.Contains(methods, r.Method) && (strings.Contains(r.URL.Path, "/segments/") || strings.Contains(r.URL.Path, "/blobs/"))
	}
}

// What may happen to a read of old data, and whether it still has to succeed.
func TestTierReadsThroughFaults(t *testing.T) {
	r := onProxy(t)
	r.chill()
	get := isObject(http.MethodGet)
	for _, test := range []struct {
		what  string
		rule  faults.Rule
		fails bool
	}{
		{"nothing", nil, false},
		{"503 SlowDown, now and then", faults.First(4, get, faults.Answer(503, "SlowDown")), false},
		{"connections cut before the answer", faults.First(4, get, faults.Lose()), false},
		{"connections cut in the middle of a body", faults.First(4, get, faults.CutDownload(5000)), false},
		{"seconds until the answer", faults.First(3, get, faults.Delay(2*time.Second)), false},
		{"wrong bytes, once", faults.First(1, get, faults.FlipBit(10_000)), false},
		{"short bodies, once", faults.First(1, get, faults.ShortDownload(3000)), false},
		{"wrong bytes, always", faults.Always(get, faults.FlipBit(10_000)), true},
		{"short bodies, always", faults.Always(get, faults.ShortDownload(3000)), true},
		{"404 for what was there", faults.Always(get, faults.Answer(404, "NoSuchKey")), true},
		// The stream and its snapshot are two objects at least.
		{"404 after a 200", faults.Sequence(get, nil, faults.Answer(404, "NoSuchKey")), true},
		{"expired credentials", faults.Always(faults.Any, faults.Answer(400, "ExpiredToken")), true},
		{"a wrong clock", faults.Always(faults.Any, faults.Answer(403, "RequestTimeTooSkewed")), true},
		{"503 SlowDown, always", faults.Always(faults.Any, faults.Answer(503, "SlowDown")), true},
		{"no connection", faults.Always(faults.Any, faults.CutUpload(0)), true},
	} {
		t.Log(test.what)
		r.cool()
		r.proxy.Set(test.rule)
		failed := r.readAll()
		if test.fails != (len(failed) > 0) {
			t.Errorf("%s: failed: %v", test.what, failed)
		}
		r.stays(3)
		if n := len(r.proxy.Seen()); n == 0 || n > 1000 {
			t.Errorf("%s: %d requests", test.what, n)
		}
		r.proxy.Set(nil)
		r.heals()
	}
	r.protected()
}
