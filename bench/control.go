package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// What prepares a scenario and looks at its server goes by net/http: it is not measured.

// defaultBucket is where /ds finds the streams of /v1/stream/NAME.
const defaultBucket = "/ds/_default/"

// call makes a request and returns the answer's fields and body. Anything but a 2xx is
// a *statusError.
func call(method, url, contentType string, body []byte) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, nil, &statusError{method + " " + url, resp.StatusCode, string(answer[:min(len(answer), 300)])}
	}
	return resp.Header, answer, nil
}

// statusError is an answer that is no success.
type statusError struct {
	request string
	status  int
	body    string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.request, e.status, e.body)
}

// v1 and ds are the URLs of a stream.
func (s *server) v1(i int) string { return "http://" + s.addr + "/v1/stream/" + streamName(i) }
func (s *server) ds(i int) string { return "http://" + s.addr + defaultBucket + streamName(i) }

// fillStream appends size random bytes to a stream and returns their CRC-32. A seed
// makes the same bytes on every server.
func fillStream(s *server, stream int, size int64, seed byte) (uint32, error) {
	rng := rand.NewChaCha8([32]byte{seed})
	var sum uint32
	part := make([]byte, fillBytes)
	for size > 0 {
		b := part[:min(int64(len(part)), size)]
		rng.Read(b)
		if _, _, err := call("POST", s.v1(stream), binaryType, b); err != nil {
			return 0, fmt.Errorf("filling a stream: %w", err)
		}
		sum = crc32.Update(sum, crc32.IEEETable, b)
		size -= int64(len(b))
	}
	return sum, nil
}

// tierStatus is what a server with a tier says about it.
type tierStatus struct {
	Connected       bool  `json:"connected"`
	LocalBytes      int64 `json:"local_bytes"`
	Segments        int   `json:"segments"`
	EvictedSegments int   `json:"evicted_segments"`
	PendingSegments int   `json:"pending_segments"`
	ExposedBytes    int64 `json:"exposed_bytes"`
}

// tier asks what is where; nil when the server has no tier.
func (s *server) tier() (*tierStatus, error) {
	if s.admin == "" {
		return nil, nil
	}
	_, body, err := call("GET", "http://"+s.admin+"/tier", "", nil)
	if e, ok := errors.AsType[*statusError](err); ok && e.status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st tierStatus
	return &st, json.Unmarshal(body, &st)
}

// The wait for a tier. What it says is as old as its last round, so that a state counts
// only once it has lasted.
const (
	tierTick   = 250 * time.Millisecond
	tierSteady = 6 * time.Second
)

// awaitTier waits until what the tier says has been as wanted for tierSteady.
func (s *server) awaitTier(what string, patience time.Duration, wanted func(*tierStatus) bool) (*tierStatus, error) {
	tick := time.NewTicker(tierTick)
	defer tick.Stop()
	began := now()
	since := began
	for {
		st, err := s.tier()
		if err != nil {
			return nil, err
		}
		if st == nil {
			return nil, fmt.Errorf("%s has no tier", s.name)
		}
		if !wanted(st) {
			since = now()
		} else if now()-since >= int64(tierSteady) {
			return st, nil
		}
		if now()-began > int64(patience) {
			return nil, fmt.Errorf("%s: not %s after %v: %+v", s.name, what, patience, *st)
		}
		<-tick.C
	}
}

// protected says that nothing is on the local disk alone.
func protected(st *tierStatus) bool {
	return st.Connected && st.ExposedBytes == 0 && st.PendingSegments == 0
}

// counter reads one metric of the server without labels, 0 when it has none of that name.
func (s *server) counter(name string) (float64, error) {
	if s.admin == "" {
		return 0, nil
	}
	_, body, err := call("GET", "http://"+s.admin+"/metrics", "", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			var f float64
			_, err := fmt.Sscan(v, &f)
			return f, err
		}
	}
	return 0, nil
}
