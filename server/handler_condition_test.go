package server

import (
	"fmt"
	"sync"
	"testing"
)

func TestConditionalWrites(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	tag := n.want(200, "HEAD", s, "").header.Get("ETag")
	write := func(status int, headers ...string) answer {
		t.Helper()
		a := n.want(status, "POST", s, "x", append([]string{"Content-Type", text}, headers...)...)
		if status == 412 && (a.header.Get("ETag") == "" || a.header.Get("Stream-Next-Offset") == "") {
			t.Errorf("412 without the state: %v", a.header)
		}
		return a
	}
	a := write(204, "If-Match", tag)
	if next := a.header.Get("ETag"); next == tag || next == "" {
		t.Errorf("ETag %q after %q", next, tag)
	}
	write(412, "If-Match", tag)
	write(412, "If-Match", "W/"+a.header.Get("ETag")) // If-Match compares strongly
	a = write(204, "If-Match", `"other", `+a.header.Get("ETag"))
	write(204, "If-Match", "*")
	get := n.want(200, "GET", s+"?offset=1", "").header.Get("ETag")
	a = write(204, "If-Match", get) // a range tag's end is a state
	write(412, "If-Match", get)
	write(412, "If-Match", `"not-ours"`)
	write(400, "If-Match", "bare")
	write(412, "If-None-Match", a.header.Get("ETag"))
	write(412, "If-None-Match", "*")
	write(204, "If-None-Match", tag)

	n.refused(412, "precondition_failed", "PUT", s, "", "Content-Type", text, "If-Match", tag)
	n.want(200, "PUT", s, "", "Content-Type", text, "If-Match", "*")
	n.refused(412, "precondition_failed", "PUT", s, "", "Content-Type", json, "If-None-Match", "*")
	n.refused(409, "config_mismatch", "PUT", s, "", "Content-Type", json, "If-Match", "*")
	n.refused(412, "precondition_failed", "PUT", fresh(), "", "Content-Type", text, "If-Match", "*")
	n.refused(404, "stream_not_found", "POST", fresh(), "x", "Content-Type", text, "If-Match", "*")

	// A condition comes before the content type, and behind a producer's repeat and the closure.
	n.want(412, "POST", s, "x", "Content-Type", json, "If-Match", tag)
	p := []string{"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0"}
	tag = n.want(200, "HEAD", s, "").header.Get("ETag")
	write(200, append(p, "If-Match", tag)...)
	write(204, append(p, "If-Match", tag)...)
	write(412, "If-Match", tag, "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "1")
	write(204, append(p, "If-None-Match", "*")...) // a repeat again
	next := []string{"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "1"}
	write(412, append(next, "If-None-Match", "W/"+n.want(200, "HEAD", s, "").header.Get("ETag"))...)
	write(200, append(next, "If-None-Match", tag)...)
	a = n.want(204, "POST", s, "", "Stream-Closed", "true")
	write(409, "If-Match", tag)
	if got := a.header.Get("ETag"); got != n.want(200, "HEAD", s, "").header.Get("ETag") || got[len(got)-3:] != `:c"` {
		t.Errorf("ETag of a closed stream: %s", got)
	}
}

func TestRecordMatch(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	a := n.want(204, "POST", s, "[1,2,3]", "Content-Type", json, "Stream-Record-Match", "0")
	if a.header.Get("Stream-Record-First") != "0" || a.header.Get("Stream-Record-Start") != "0" || a.header.Get("Stream-Record-Next") != "3" ||
		a.header.Get("Stream-Extensions") != "json-record-coordinates-v1" {
		t.Errorf("receipt: %v", a.header)
	}
	a = n.refused(412, "record_mismatch", "POST", s, "4", "Content-Type", json, "Stream-Record-Match", "2")
	if a.header.Get("Stream-Record-Next") != "3" {
		t.Errorf("412: %v", a.header)
	}
	a = n.want(204, "POST", s, "4", "Content-Type", json, "Stream-Record-Match", "3")
	if a.header.Get("Stream-Record-Start") != "3" || a.header.Get("Stream-Record-Next") != "4" {
		t.Errorf("receipt: %v", a.header)
	}
	n.want(400, "POST", s, "4", "Content-Type", json, "Stream-Record-Match", "x")
	a = n.want(200, "HEAD", s, "")
	if a.header.Get("Stream-Record-First") != "0" || a.header.Get("Stream-Record-Next") != "4" {
		t.Errorf("HEAD: %v", a.header)
	}
}

// Of writers that all have read the same state, one wins; the others learn the new one.
func TestCompareAndSwap(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			tag := n.do("HEAD", s, "").header.Get("ETag")
			for done := 0; done < each; {
				a := n.do("POST", s, fmt.Sprintf("%d", i), "Content-Type", text, "If-Match", tag)
				if tag = a.header.Get("ETag"); a.status == 204 {
					done++
				} else if a.status != 412 {
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if a := n.want(200, "GET", s, ""); len(a.body) != writers*each {
		t.Errorf("%d writes were stored, %d acknowledged", len(a.body), writers*each)
	}
}
