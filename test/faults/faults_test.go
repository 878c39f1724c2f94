package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const text = "0123456789"

// quiet is for how long nothing may come before a client takes it for nothing more.
const quiet = time.Second

// through returns what a request with a body of some bytes comes to under a rule, and
// how often the back end was reached. The client waits for as long as it takes, but if the
// rule hangs: then it gives up some time after so many bytes, or after the proxy has the
// request.
func through(t *testing.T, rule Rule, hangs bool, after int64) (status int, body string, reached int, err error) {
	t.Helper()
	var n atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent, err := io.ReadAll(r.Body); err == nil && string(sent) == text {
			n.Add(1)
		}
		_, _ = io.WriteString(w, text)
	}))
	defer backend.Close()
	p, err := New(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.Set(func(r *http.Request) Fault {
		if hangs && after == 0 {
			time.AfterFunc(quiet, giveUp)
		}
		return rule(r)
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/path", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Do(req)
	if seen := p.Seen(); len(seen) != 1 || seen[0].Method != http.MethodPost || seen[0].Path != "/path" {
		t.Errorf("seen: %+v", seen)
	}
	if err != nil {
		return 0, "", int(n.Load()), err
	}
	defer r.Body.Close()
	var got bytes.Buffer
	if hangs {
		if _, err := io.CopyN(&got, r.Body, after); err != nil {
			return r.StatusCode, got.String(), int(n.Load()), err
		}
		time.AfterFunc(quiet, giveUp)
	}
	_, err = io.Copy(&got, r.Body)
	return r.StatusCode, got.String(), int(n.Load()), err
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   Fault
		status  int    // 0 is any: a reset may overtake what was sent before it
		body    string // or what it begins with, when there is an error
		fails   bool
		reached int
		hangs   bool
	}{
		{"none", nil, 200, text, false, 1, false},
		{"answer", AnswerText(503, "text/plain", "down"), 503, "down", false, 0, false},
		{"delay", Delay(time.Millisecond), 200, text, false, 1, false},
		{"hang", Hang(), 0, "", true, 0, true},
		{"hang after the body", HangAfterBody(), 0, "", true, 0, true},
		{"cut upload", CutUpload(3), 0, "", true, 0, false},
		{"lose", Lose(), 0, "", true, 1, false},
		{"cut download", CutDownload(4), 0, "", true, 1, false},
		{"stall download", StallDownload(4), 200, text[:4], true, 1, true},
		{"short download", ShortDownload(4), 200, text[:4], false, 1, false},
		{"flip a bit", FlipBit(4), 200, "0123556789", false, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, body, reached, err := through(t, Always(Any, c.fault), c.hangs, int64(len(c.body)))
			if (err != nil) != c.fails || reached != c.reached {
				t.Errorf("%v; the back end was reached %d times, not %d", err, reached, c.reached)
			}
			if c.status != 0 && status != c.status || c.fails && !strings.HasPrefix(body, c.body) || !c.fails && body != c.body {
				t.Errorf("%d %q, not %d %q", status, body, c.status, c.body)
			}
		})
	}
	status, body, reached, err := through(t, Always(Any, LoseAnd(500, "InternalError")), false, 0)
	if status != 500 || !strings.Contains(body, "<Code>InternalError</Code>") || err != nil || reached != 1 {
		t.Errorf("%d %q, %v, reached %d times", status, body, err, reached)
	}
}

func TestRules(t *testing.T) {
	kinds := []Fault{Hang(), Lose()}
	put, get := httptest.NewRequest("PUT", "/", nil), httptest.NewRequest("GET", "/", nil)
	marks := func(rule Rule) (got string) {
		for _, r := range []*http.Request{get, put, put, get, put, put} {
			if rule(r) == nil {
				got += "."
			} else {
				got += "!"
			}
		}
		return got
	}
	for want, rule := range map[string]Rule{
		"!!!!!!": Always(Any, kinds[0]),
		".!!.!!": Always(Method("PUT", "POST"), kinds[0]),
		".!!...": First(2, Method("PUT"), kinds[0]),
		"..!.!!": Sequence(Method("PUT"), nil, kinds[0], kinds[1]),
	} {
		if got := marks(rule); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	p, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	p.Set(func(*http.Request) Fault { close(arrived); return Hang() })
	ended := make(chan error)
	go func() {
		r, err := http.Post(p.URL, "text/plain", strings.NewReader(text))
		if err == nil {
			err = errors.Join(errors.New("it was answered"), r.Body.Close())
		} else {
			err = nil
		}
		ended <- err
	}()
	<-arrived
	p.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
