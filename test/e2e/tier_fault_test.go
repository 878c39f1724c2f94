//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/test/faults"
)

// isMirror matches requests about the mirror.
func isMirror(methods ...string) faults.Match {
	method := faults.Method(methods...)
	return func(r *http.Request) bool { return method(r) && strings.HasSuffix(r.URL.Path, "/mirror") }
}

// Whatever happens to what is sent to the store: writes are taken and read as ever, the
// store is not hammered, and once it works again it gets everything, from which alone
// another machine then has all of it.
func TestTierWritesThroughFaults(t *testing.T) {
	r := onProxy(t, "--local-disk-budget", "16MiB")
	r.want(http.StatusCreated, "PUT", hotStream, "", "Content-Type", plain)
	r.stays(10)
	r.protected()
	put, head := isObject(http.MethodPut), isObject(http.MethodHead)
	const lines = 25
	for _, test := range []struct {
		what string
		rule faults.Rule
	}{
		{"503 SlowDown", faults.Always(faults.Any, faults.Answer(503, "SlowDown"))},
		{"uploads cut in the middle", faults.First(8, put, faults.CutUpload(500))},
		{"answers lost", faults.First(8, put, faults.Lose())},
		{"answers of the mirror lost", faults.First(3, isMirror(http.MethodPut), faults.Lose())},
		{"answers of the mirror lost, and another said", faults.First(2, isMirror(http.MethodPut), faults.LoseAnd(500, "InternalError"))},
		{"seconds until the answer", faults.First(4, faults.Any, faults.Delay(2*time.Second))},
		{"404 for what has just been put", faults.First(4, head, faults.AnswerText(404, "application/xml", ""))},
		{"expired credentials", faults.Always(faults.Any, faults.Answer(400, "ExpiredToken"))},
		{"a wrong clock", faults.Always(faults.Any, faults.Answer(403, "RequestTimeTooSkewed"))},
		{"no connection", faults.Always(faults.Any, faults.CutUpload(0))},
		{"no answer", faults.Always(faults.Any, faults.Hang())},
	} {
		r.proxy.Set(test.rule)
		began := time.Now()
		for time.Since(began) < time.Second {
			r.stays(lines)
			pause(t.Context(), 50*time.Millisecond)
		}
		r.eventually(tierPatience, test.what+": the store is asked", func() bool { return len(r.proxy.Seen()) > 0 })
		seen, took := len(r.proxy.Seen()), time.Since(began)
		r.proxy.Set(nil)
		if test.what == "no answer" { // nobody waits for those that hang
			r.restart()
		}
		r.protected()
		if float64(seen) > 200*took.Seconds() {
			t.Errorf("%s: %d requests in %v", test.what, seen, took)
		}
	}
	all := numbered(0, r.lines)
	r.holds(hotStream, all)
	r.restart()
	r.holds(hotStream, all)
	r.protected()
	r.daemon.kill(t)
	o := r.restore()
	o.daemon.start(t)
	o.holds(hotStream, all)
}

// A store that is gone for a while makes writes wait once the budget is used up, and not
// before. All goes on by itself when it is back.
func TestField140StoreGoneForLong(t *testing.T) {
	r := onProxy(t)
	r.chill()
	r.proxy.Set(faults.Always(faults.Any, faults.CutUpload(0)))
	if failed := r.readAll(); len(failed) == 0 {
		t.Error("old data was read")
	}
	r.stays(20)
	refused := r.fill()
	if refused.header.Get("Retry-After") == "" || refused.code() == "" {
		t.Errorf("the refusal: %v", refused)
	}
	// Reads go on, and so do deletions.
	r.want(http.StatusOK, "GET", hotStream+"?offset="+lastLine(r.lines), "")
	r.want(http.StatusNoContent, "DELETE", warmStream, "")
	began, before := time.Now(), len(r.proxy.Seen())
	pause(t.Context(), 2*time.Second)
	n, took := len(r.proxy.Seen())-before, time.Since(began)
	if float64(n) > 100*took.Seconds() {
		t.Errorf("%d requests in %v", n, took)
	}
	r.proxy.Set(nil)
	r.stays(3) // waits for room
	r.protected()
	r.heals()
	r.holds(hotStream, numbered(0, r.lines))
}

func lastLine(lines int) string { return offsets("@" + itoa((lines-1)*lineSize)) }

// fill appends until there is no room, and returns the refusal.
func (r *coldRig) fill() (refused answer) {
	r.Helper()
	r.eventually(tierPatience, "there is no room", func() bool {
		a, err := r.once("POST", hotStream, numbered(r.lines, r.lines+500), []string{"Content-Type", plain})
		if err != nil {
			r.Fatal(err)
		}
		refused = a
		if a.status == http.StatusNoContent {
			r.lines += 500
		}
		return a.status == http.StatusInsufficientStorage
	})
	return refused
}
