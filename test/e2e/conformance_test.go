//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// What suite 0.3.6 counts: the skipped ones need subscriptions.
const (
	conformancePassed  = 332
	conformanceSkipped = 6
)

// tinyLimits make the log rotate, the memtable flush and the segments merge all the
// time. The body limit leaves room for what the suite appends, and an operation has
// to fit half a log file.
var tinyLimits = []string{
	"--wal-file-bytes", "384KiB",
	"--wal-max-bytes", "768KiB",
	"--memtable-bytes", "64KiB",
	"--segment-max-bytes", "256KiB",
	"--max-body-bytes", "128KiB",
}

func TestConformance(t *testing.T) {
	t.Run("defaults", func(t *testing.T) {
		d := newDaemon(t, "--long-poll-timeout", "500ms")
		d.start(t)
		runConformance(t, d.url())
		d.stop(t)
	})
	t.Run("tiny limits", func(t *testing.T) {
		d := newDaemon(t, append(tinyLimits, "--long-poll-timeout", "500ms")...)
		d.start(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { churn(ctx, t, d) })
		runConformance(t, d.url())
		// The suite's own data is small: go on until the storage has worked.
		busy := []string{"snakream_wal_rotations_total", "snakream_flushes_total", "snakream_merges_total"}
		deadline := time.Now().Add(time.Minute)
		for _, name := range busy {
			for d.metric(t, name) < 100 && time.Now().Before(deadline) {
				pause(ctx, 100*time.Millisecond)
			}
		}
		cancel()
		wg.Wait()
		for _, name := range busy {
			if n := d.metric(t, name); n < 100 {
				t.Errorf("%s = %g, want at least 100", name, n)
			}
		}
		d.stop(t)
	})
	t.Run("3 shards 2 pollers", func(t *testing.T) {
		d := newDaemon(t, "--shards", "3", "--pollers", "2", "--long-poll-timeout", "500ms")
		d.start(t)
		runConformance(t, d.url())
		d.stop(t)
	})
}

func runConformance(t *testing.T, url string) {
	t.Helper()
	r := vitest(t, "conformance", "E2E_URL="+url)
	if r.Passed != conformancePassed || r.Failed != 0 || r.Skipped != conformanceSkipped {
		t.Errorf("%d passed, %d failed, %d skipped; want %d, 0, %d",
			r.Passed, r.Failed, r.Skipped, conformancePassed, conformanceSkipped)
	}
}

// churn keeps the storage busy beside the suite, at a pace that leaves room for it:
// streams of some appends each, which are read back, compared and deleted.
func churn(ctx context.Context, t *testing.T, d *daemon) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(1, 1)) // the same load every time
	for n := 0; ctx.Err() == nil; n++ {
		url := fmt.Sprintf("%s/v1/stream/churn/%d", d.url(), n)
		var want bytes.Buffer
		if _, ok := churnCall(ctx, t, "PUT", url, nil); !ok {
			return
		}
		for range 8 {
			body := []byte(strings.Repeat(string(rune('a'+n%26)), 1+rng.IntN(48<<10)))
			if _, ok := churnCall(ctx, t, "POST", url, body); !ok {
				return
			}
			want.Write(body)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		got, ok := churnCall(ctx, t, "GET", url, nil)
		if !ok {
			return
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("stream %s holds %d bytes, not the %d that were appended", url, len(got), want.Len())
			return
		}
		if _, ok := churnCall(ctx, t, "DELETE", url, nil); !ok {
			return
		}
	}
}

// churnCall makes a request until it is not refused for overload. It is not ok once
// ctx has ended or the test has failed.
func churnCall(ctx context.Context, t *testing.T, method, url string, body []byte) ([]byte, bool) {
	for {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil, false
		}
		req.Header.Set("Content-Type", "text/plain")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			var got []byte
			got, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode < 300 {
				return got, true
			}
			if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
				pause(ctx, 50*time.Millisecond)
				continue
			}
			if err == nil {
				err = fmt.Errorf("%s: %.300s", resp.Status, got)
			}
		}
		if ctx.Err() == nil {
			t.Errorf("%s %s: %v", method, url, err)
		}
		return nil, false
	}
}
