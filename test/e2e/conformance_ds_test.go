//go:build e2e

package e2e

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// TestConformanceBucketed runs the official suite, which knows the flat surface only, against the
// streams of a bucket: there is one dialect, so nothing that the suite looks at differs on /ds.
func TestConformanceBucketed(t *testing.T) {
	d := newDaemon(t, "--long-poll-timeout", "500ms")
	d.start(t)
	rw := rewriter{bucket: "conf"}
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	bucket := func(status int, method, name string) string {
		t.Helper()
		req, err := http.NewRequest(method, d.url()+"/ds/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s: %s %s, %v", method, name, resp.Status, body, err)
		}
		return string(body)
	}
	bucket(http.StatusCreated, "PUT", rw.bucket)
	front := httptest.NewServer(rw.proxy(d.url()))
	defer front.Close()
	runConformance(t, front.URL)

	// Nothing went past the bucket.
	var held struct{ Streams int }
	if err := json.Unmarshal([]byte(bucket(http.StatusOK, "GET", rw.bucket)), &held); err != nil {
		t.Fatal(err)
	}
	if held.Streams < 100 {
		t.Errorf("the suite left %d streams in the bucket", held.Streams)
	}
	bucket(http.StatusNotFound, "GET", "_default")
	d.stop(t)
}

const flatPrefix = "/v1/stream/"

// rewriter lets clients of the flat surface use the streams of a bucket: their path becomes the
// id, whatever slashes it holds.
type rewriter struct{ bucket string }

func (rw rewriter) prefix() string { return "/ds/" + rw.bucket + "/" }

// inward maps a raw path of the flat surface; others stay as they are.
func (rw rewriter) inward(path string) string {
	if rest, ok := strings.CutPrefix(path, flatPrefix); ok {
		return rw.prefix() + strings.ReplaceAll(rest, "/", "%2F")
	}
	return path
}

// proxy passes everything on at once, so that live reads work.
func (rw rewriter) proxy(to string) http.Handler {
	target, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ErrorLog:      log.New(io.Discard, "", 0), // of clients that leave, as the suite's do
		Rewrite: func(p *httputil.ProxyRequest) {
			out := p.Out
			out.Host = p.In.Host // Location is made of it
			out.URL.Scheme, out.URL.Host = target.Scheme, target.Host
			raw := rw.inward(p.In.URL.EscapedPath())
			if decoded, err := url.PathUnescape(raw); err == nil {
				out.URL.Path, out.URL.RawPath = decoded, raw
			}
			out.URL.RawQuery = p.In.URL.RawQuery // malformed ones too
			for i, path := range out.Header.Values("Stream-Forked-From") {
				out.Header["Stream-Forked-From"][i] = rw.inward(path)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, values := range resp.Header {
				for i, value := range values {
					values[i] = strings.ReplaceAll(value, rw.prefix(), flatPrefix)
				}
			}
			return nil
		},
	}
}
