package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snakream/snakream/test/faults"
	"github.com/snakream/snakream/tiering"
)

var (
	puts     = faults.Method(http.MethodPut)
	gets     = faults.Method(http.MethodGet)
	slowDown = faults.Answer(http.StatusServiceUnavailable, "SlowDown")
	internal = faults.Answer(http.StatusInternalServerError, "InternalError")
)

// TestUploadRetries has what a second attempt overcomes. The object must be whole
// afterwards: the body is sent from its beginning again (field report 142).
func TestUploadRetries(t *testing.T) {
	data := noise(3<<20 + 123)
	for _, c := range []struct {
		name  string
		fault faults.Fault
	}{
		{"500", internal},
		{"503 SlowDown", slowDown},
		{"502 of a proxy", faults.AnswerText(http.StatusBadGateway, "text/html", "<html>Bad Gateway</html>")},
		{"429", faults.Answer(http.StatusTooManyRequests, "TooManyRequests")},
		{"400 RequestTimeout", faults.Answer(http.StatusBadRequest, "RequestTimeout")},
		{"409", faults.Answer(http.StatusConflict, "ConditionalRequestConflict")},
		{"cut before the body", faults.CutUpload(0)},
		{"cut in the middle", faults.CutUpload(1 << 20)},
		{"answer lost", faults.Lose()},
		{"500 though it was done", faults.LoseAnd(http.StatusInternalServerError, "InternalError")},
		{"503 though it was done", faults.LoseAnd(http.StatusServiceUnavailable, "SlowDown")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			for _, n := range []int{1, 2} {
				r.proxy.Set(faults.First(n, puts, c.fault))
				key := strings.Repeat("k", n)
				if err := r.Put(t.Context(), key, tiering.BytesBody(data)); err != nil {
					t.Fatalf("%d times: %v", n, err)
				}
				if got := r.count(http.MethodPut); got != n+1 {
					t.Errorf("%d times: %d requests", n, got)
				}
				r.expect(key, data)
			}
			r.proxy.Set(faults.First(1, puts, c.fault))
			v, err := r.Swap(t.Context(), "mirror", []byte("first"), "")
			if err != nil {
				t.Fatal(err)
			}
			r.proxy.Set(faults.First(1, puts, c.fault))
			if v, err = r.Swap(t.Context(), "mirror", []byte("second"), v); err != nil {
				t.Fatal(err)
			}
			r.expect("mirror", []byte("second"))
			if _, err := r.Swap(t.Context(), "mirror", []byte("third"), v); err != nil {
				t.Errorf("the version isn't the object's: %v", err)
			}
		})
	}
}

// TestUploadFails has what no attempt overcomes: nothing is there afterwards, and the
// next call, without the fault, succeeds (field report 137).
func TestUploadFails(t *testing.T) {
	r := newRig(t)
	data := noise(1 << 20)
	for _, f := range []faults.Fault{internal, slowDown, faults.CutUpload(0), faults.CutUpload(100_000), faults.Answer(http.StatusBadRequest, "BadDigest")} {
		r.proxy.Set(faults.Always(puts, f))
		temporary(t, "put", r.Put(t.Context(), "k", tiering.BytesBody(data)))
		_, err := r.Swap(t.Context(), "mirror", data, "")
		temporary(t, "swap", err)
		r.expect("k", nil)
		for info, err := range r.List(t.Context(), "") {
			t.Error("listed", info, err)
		}
	}
	r.put("k", data)
	r.expect("k", data)
}

// TestOutcomeUnknown loses the answer and then also the look-up of what came of it.
// Neither may be reported as somebody else's success.
func TestOutcomeUnknown(t *testing.T) {
	r := newRig(t)
	lost := func(req *http.Request) faults.Fault {
		if req.Method == http.MethodPut {
			return faults.Lose()
		}
		return internal
	}
	data := noise(1000)
	r.proxy.Set(lost)
	temporary(t, "put", r.Put(t.Context(), "k", tiering.BytesBody(data)))
	r.put("k", data) // it is there, and the same
	r.proxy.Set(lost)
	_, err := r.Swap(t.Context(), "mirror", data, "")
	temporary(t, "swap", err)
	r.expect("mirror", data)
}

// TestConflictIsLookedUp meets what another has written, with and without faults.
func TestConflictIsLookedUp(t *testing.T) {
	r := newRig(t)
	r.put("k", []byte("theirs"))
	theirs, err := r.Swap(t.Context(), "mirror", []byte("theirs"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []faults.Rule{nil, faults.First(1, puts, faults.Lose()), faults.First(1, puts, internal), faults.Always(puts, faults.CutUpload(0))} {
		r.proxy.Set(rule)
		if err := r.Put(t.Context(), "k", tiering.BytesBody([]byte("our's"))); !errors.Is(err, tiering.ErrExists) {
			t.Errorf("put: %v", err)
		}
		r.proxy.Set(rule)
		if _, err := r.Swap(t.Context(), "mirror", []byte("ours, which is longer"), ""); !errors.Is(err, tiering.ErrConflict) {
			t.Errorf("swap: %v", err)
		}
		r.proxy.Set(rule)
		if _, err := r.Swap(t.Context(), "mirror", []byte("ours"), `"another version"`); !errors.Is(err, tiering.ErrConflict) {
			t.Errorf("swap: %v", err)
		}
	}
	r.expect("k", []byte("theirs"))
	r.proxy.Set(faults.Always(puts, faults.CutUpload(0)))
	_, err = r.Swap(t.Context(), "mirror", []byte("ours"), theirs)
	temporary(t, "swap of the version that is there still", err)
	r.expect("mirror", []byte("theirs"))
}

// TestDownloads has what a further attempt overcomes, and what goes on where the first
// one broke off.
func TestDownloads(t *testing.T) {
	data := noise(1 << 20)
	const off, size = 1000, 1 << 19
	begin := func(t *testing.T) *rig {
		t.Parallel()
		r := newRig(t, func(o *Options) { o.StallTimeout = 500 * time.Millisecond })
		r.put("k", data)
		return r
	}
	for _, c := range []struct {
		name  string
		fault faults.Fault
	}{
		{"500", internal},
		{"503", slowDown},
		{"cut before the head", faults.CutUpload(0)},
		{"cut at the body's begin", faults.CutDownload(0)},
		{"cut in the middle", faults.CutDownload(300_000)},
		{"cut before the last byte", faults.CutDownload(size - 1)},
		{"stalled", faults.StallDownload(70_000)},
		{"short, and looks whole", faults.ShortDownload(1234)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := begin(t)
			for _, n := range []int{1, 2} {
				got := make([]byte, size)
				r.proxy.Set(faults.First(n, gets, c.fault))
				if err := r.Get(t.Context(), "k", got, off); err != nil {
					t.Errorf("get, %d times: %v", n, err)
				} else if !bytes.Equal(got, data[off:off+size]) {
					t.Errorf("get, %d times: other bytes", n)
				}
			}
			// It gets further at each attempt, and perhaps to the end.
			r.proxy.Set(faults.Always(gets, c.fault))
			got := make([]byte, size*7/4)
			if err := r.Get(t.Context(), "k", got, 0); err != nil {
				temporary(t, "get, always", err)
			} else if !bytes.Equal(got, data[:len(got)]) {
				t.Error("get, always: other bytes")
			}
		})
	}
	for _, c := range []struct {
		name  string
		fault faults.Fault
	}{
		{"cut", faults.CutDownload(1000)},
		{"stalled", faults.StallDownload(1000)},
		{"wrong byte", faults.FlipBit(77)},
	} {
		t.Run("load "+c.name, func(t *testing.T) {
			r := begin(t)
			r.proxy.Set(faults.First(2, gets, c.fault))
			got, _, err := r.Load(t.Context(), "k", 1<<20)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%v, or other bytes", err)
			}
			r.proxy.Set(faults.Always(gets, c.fault))
			_, _, err = r.Load(t.Context(), "k", 1<<20)
			temporary(t, "always", err)
		})
	}
}

// TestWrongBytes shows where they are found: a range can't be checked here, but it is
// not called short or missing either.
func TestWrongBytes(t *testing.T) {
	r := newRig(t)
	data := noise(10_000)
	r.put("k", data)
	r.proxy.Set(faults.Always(gets, faults.FlipBit(5)))
	got := make([]byte, 100)
	if err := r.Get(t.Context(), "k", got, 200); err != nil {
		t.Fatal(err)
	}
	got[5] ^= 1
	if !bytes.Equal(got, data[200:300]) {
		t.Error("more than the one bit is wrong")
	}
}

// TestDamagedObjects has objects that are gone, or shorter than they were
// (field report 136): always an error of the right kind, and whole again when they are.
func TestDamagedObjects(t *testing.T) {
	r := newRig(t)
	data := noise(10_000)
	r.put("k", data)
	get := func(off, end int64) error { return r.Get(t.Context(), "k", make([]byte, end-off), off) }
	if err := get(0, 10_000); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(r.file("k"), 5000); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int64{{0, 10_000}, {4999, 5001}, {5000, 5001}, {9000, 10_000}} {
		if err := get(c[0], c[1]); !errors.Is(err, tiering.ErrShort) {
			t.Errorf("[%d, %d) of 5000: %v", c[0], c[1], err)
		}
	}
	if err := get(0, 5000); err != nil {
		t.Error(err)
	}
	if info, err := r.Stat(t.Context(), "k"); err != nil || info.Size != 5000 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := os.Remove(r.file("k")); err != nil {
		t.Fatal(err)
	}
	if err := get(0, 1); !errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("404 after 200: %v", err)
	}
	if _, err := r.Stat(t.Context(), "k"); !errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("stat: %v", err)
	}
	r.put("k", data)
	r.expect("k", data)
}

// TestMissingIsConfirmed has answers of 404 that aren't about the object.
func TestMissingIsConfirmed(t *testing.T) {
	r := newRig(t)
	r.put("k", []byte("data"))
	page := faults.AnswerText(http.StatusNotFound, "text/html", "<html>no such page</html>")
	r.proxy.Set(faults.Always(faults.Any, page))
	_, err := r.Stat(t.Context(), "k")
	temporary(t, "stat by a proxy that knows nothing", err)
	temporary(t, "get", r.Get(t.Context(), "k", make([]byte, 4), 0))
	_, _, err = r.Load(t.Context(), "k", 100)
	temporary(t, "load", err)

	r.proxy.Set(faults.Always(faults.Method(http.MethodHead), page))
	if info, err := r.Stat(t.Context(), "k"); err == nil || errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("stat of what a GET finds: %+v, %v", info, err)
	}
	r.proxy.Set(faults.Always(faults.Any, faults.Answer(http.StatusNotFound, "NoSuchBucket")))
	for name, err := range calls(t.Context(), r) {
		if !errors.Is(err, tiering.ErrConfig) {
			t.Errorf("%s without a bucket: %v", name, err)
		}
	}
}

// TestRefusals has what is refused to every call until somebody changes something.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	r.put("there", []byte("data"))
	for _, c := range []struct {
		status int
		code   string
		kind   error
	}{
		{http.StatusBadRequest, "ExpiredToken", tiering.ErrDenied},
		{http.StatusForbidden, "InvalidAccessKeyId", tiering.ErrDenied},
		{http.StatusForbidden, "AccessDenied", tiering.ErrDenied},
		{http.StatusForbidden, "RequestTimeTooSkewed", tiering.ErrConfig},
		{http.StatusMovedPermanently, "PermanentRedirect", tiering.ErrConfig},
	} {
		r.proxy.Set(faults.Always(faults.Any, faults.Answer(c.status, c.code)))
		for name, err := range calls(t.Context(), r) {
			if !errors.Is(err, c.kind) || !tiering.Permanent(err) {
				t.Errorf("%s: %s: %v, not %v", c.code, name, err, c.kind)
			}
			harmless(t, name, err)
		}
		if n := len(r.proxy.Seen()); n > 30 {
			t.Errorf("%s: %d requests for 8 calls", c.code, n)
		}
	}
	r.proxy.Set(nil)
	for name, err := range calls(t.Context(), r) {
		if err != nil {
			t.Errorf("%s, when all is well again: %v", name, err)
		}
	}
}

// TestSecretsAreRedacted has a provider that sends back what it should keep.
func TestSecretsAreRedacted(t *testing.T) {
	const token = "the-session-token"
	t.Setenv("AWS_SESSION_TOKEN", token)
	r := newRig(t)
	echo := "<Error><Code>AccessDenied</Code><Message>" + testSecret + " and " + token + " are wrong</Message></Error>"
	r.proxy.Set(faults.Always(faults.Any, faults.AnswerText(http.StatusForbidden, "application/xml", echo)))
	all := calls(t.Context(), r)
	all["ping"] = r.Ping(t.Context())
	for name, err := range all {
		if err == nil || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: %v", name, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			harmless(t, name, e)
		}
	}
}

// TestLatency has a store that is slow but well.
func TestLatency(t *testing.T) {
	r := newRig(t)
	r.put("there", []byte("data"))
	r.proxy.Set(faults.Always(faults.Any, faults.Delay(1500*time.Millisecond)))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := r.Get(t.Context(), "there", make([]byte, 4), 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		if err := r.Put(t.Context(), "k", tiering.BytesBody([]byte("data"))); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	if n := len(r.proxy.Seen()); n != 5 {
		t.Errorf("%d requests for 5 calls", n)
	}
}

// TestBlackHole has a store that takes connections and says nothing.
func TestBlackHole(t *testing.T) {
	for name, hang := range map[string]faults.Fault{"at once": faults.Hang(), "after the body": faults.HangAfterBody()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) {
				o.attempts, o.ResponseTimeout, o.StallTimeout = 2, 100*time.Millisecond, 100*time.Millisecond
			})
			r.proxy.Set(faults.Always(faults.Any, hang))
			start := time.Now()
			for call, err := range calls(t.Context(), r) {
				temporary(t, call, err)
			}
			temporary(t, "large put", r.Put(t.Context(), "large", tiering.BytesBody(noise(32<<20))))
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("nine calls took %v", took)
			}
		})
	}
}

// TestCancelledMeanwhile ends the context while a call waits for the store.
func TestCancelledMeanwhile(t *testing.T) {
	r := newRig(t)
	r.put("there", []byte("data"))
	arrived := make(chan struct{}, 100)
	r.proxy.Set(func(*http.Request) faults.Fault { arrived <- struct{}{}; return faults.Hang() })
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return r.Put(ctx, "k", tiering.BytesBody(noise(1<<20))) },
		func(ctx context.Context) error { return r.Get(ctx, "there", make([]byte, 4), 0) },
		func(ctx context.Context) error { _, err := r.Stat(ctx, "there"); return err },
		func(ctx context.Context) error { return r.Delete(ctx, "there") },
		func(ctx context.Context) error { _, err := r.Swap(ctx, "mirror", nil, ""); return err },
		func(ctx context.Context) error {
			for _, err := range r.List(ctx, "") {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if err := call(ctx); !errors.Is(err, context.Canceled) || tiering.Permanent(err) {
			t.Error(err)
		}
		cancel()
	}
}

// counting counts the bytes that are read from a body.
type counting struct {
	io.ReaderAt
	n atomic.Int64
}

// ReadAt implements io.ReaderAt.
func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.n.Add(int64(n))
	return n, err
}

// TestBodyIsReadOncePerAttempt sees to it that a bandwidth limit is spent on what is
// sent: the hash for the signature is made once, whatever the attempts.
func TestBodyIsReadOncePerAttempt(t *testing.T) {
	const size = 1 << 20
	r := newRig(t)
	b := tiering.BytesBody(noise(size))
	counter := &counting{ReaderAt: b.R}
	b.R = counter
	r.proxy.Set(faults.First(2, puts, internal))
	if err := r.Put(t.Context(), "k", b); err != nil {
		t.Fatal(err)
	}
	if n := counter.n.Load(); n != 4*size {
		t.Errorf("the body was read %.1f times, not 4: for the hash and 3 attempts", float64(n)/size)
	}
}
