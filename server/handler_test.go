package server

import (
	"strings"
	"testing"
)

func TestCreateAppendReadDelete(t *testing.T) {
	n := newNode(t, nil)
	s := fresh()
	a := n.want(201, "PUT", s, "hello ", "Content-Type", text)
	if got := a.header.Get("Location"); got != n.url+s {
		t.Errorf("Location %q", got)
	}
	if a.header.Get("Stream-Incarnation") == "" || a.header.Get("ETag") == "" {
		t.Errorf("headers %v", a.header)
	}
	a = n.want(204, "POST", s, "world", "Content-Type", text)
	if a.header.Get("Stream-Offset") != "00000000000000000006" || a.header.Get("Stream-Next-Offset") != "00000000000000000011" {
		t.Errorf("receipt %v", a.header)
	}
	a = n.want(200, "GET", s, "")
	if a.body != "hello world" || a.header.Get("Stream-Up-To-Date") != "true" || a.header.Get("Stream-Closed") != "" {
		t.Errorf("got %q, %v", a.body, a.header)
	}
	a = n.want(200, "HEAD", s, "")
	if a.header.Get("Content-Type") != text || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("HEAD %v", a.header)
	}
	n.want(204, "DELETE", s, "")
	for _, m := range []string{"GET", "HEAD", "DELETE"} {
		n.want(404, m, s, "")
	}
	n.want(404, "POST", s, "x", "Content-Type", text)
}

func TestCreateAgain(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	n.want(200, "PUT", s, "whatever", "Content-Type", "Text/Plain; charset=utf-8")
	n.want(409, "PUT", s, "", "Content-Type", json)
	n.want(409, "PUT", s, "", "Content-Type", text, "Stream-Closed", "true")
	if a := n.want(200, "GET", s, ""); a.body != "" {
		t.Errorf("a repeat stored %q", a.body)
	}
	a := n.want(412, "PUT", s, "", "Content-Type", text, "If-None-Match", "*")
	if a.header.Get("Stream-Next-Offset") == "" || a.header.Get("ETag") == "" {
		t.Errorf("412 without the state: %v", a.header)
	}
	n.want(201, "PUT", fresh(), "", "If-None-Match", "*")
	n.want(404, "PUT", fresh(), "", "Stream-Incarnation", "1")
}

func TestIncarnation(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	old := n.append1(s)
	n.want(204, "DELETE", s, "")
	n.want(201, "PUT", s, "", "Content-Type", text)
	for _, m := range []string{"GET", "HEAD", "DELETE", "PUT"} {
		a := n.want(412, m, s, "", "Stream-Incarnation", old)
		if got := a.header.Get("Stream-Incarnation"); got == "" || got == old {
			t.Errorf("%s: incarnation %q, the old one was %q", m, got, old)
		}
	}
	n.want(412, "POST", s, "x", "Content-Type", text, "Stream-Incarnation", old)
}

// append1 appends a byte and returns the stream's incarnation.
func (n *node) append1(s string) string {
	n.t.Helper()
	return n.want(204, "POST", s, "x", "Content-Type", text).header.Get("Stream-Incarnation")
}

func TestOrderOfChecksOnAppend(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	p := func(epoch, seq string) []string {
		return []string{"Content-Type", json, "Producer-Id", "p", "Producer-Epoch", epoch, "Producer-Seq", seq}
	}
	n.want(400, "POST", s, "{", p("0", "0")...)
	n.want(200, "POST", s, "1", p("0", "0")...)
	n.want(204, "POST", s, "{", p("0", "0")...) // a repeat is answered before its body is looked at
	a := n.want(409, "POST", s, "{", p("0", "2")...)
	if a.header.Get("Producer-Expected-Seq") != "1" || a.header.Get("Producer-Received-Seq") != "2" {
		t.Errorf("gap: %v", a.header)
	}
	a = n.want(200, "POST", s, "2", p("3", "0")...)
	if a.header.Get("Producer-Closed-Epoch") != "0" || a.header.Get("Producer-Closed-Seq") != "0" {
		t.Errorf("new epoch: %v", a.header)
	}
	if a = n.want(403, "POST", s, "3", p("0", "1")...); a.header.Get("Producer-Epoch") != "3" {
		t.Errorf("stale epoch: %v", a.header)
	}
	n.want(409, "POST", s, "x", "Content-Type", text)
	n.want(204, "POST", s, "", "Content-Type", text, "Stream-Closed", "TRUE")
	a = n.want(409, "POST", s, "{", "Content-Type", text)
	if a.header.Get("Stream-Closed") != "true" || a.header.Get("Stream-Next-Offset") == "" || !strings.Contains(a.body, `"closed"`) {
		t.Errorf("closed: %v %s", a.header, a.body)
	}
	if a = n.want(409, "POST", s, "2", p("3", "0")...); !strings.Contains(a.body, `"closed_duplicate"`) {
		t.Errorf("repeat after closure: %s", a.body)
	}
}

func TestStreamSeq(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(json)
	for _, step := range []struct {
		seq, body string
		status    int
	}{{"9", "1", 204}, {"10", "1", 409}, {"91", "1", 204}, {"91", "1", 409}, {"z", "{", 400}, {"z", "1", 204}, {"z", "1", 409}} {
		a := n.want(step.status, "POST", s, step.body, "Content-Type", json, "Stream-Seq", step.seq)
		if step.status == 409 && a.header.Get("Stream-Last-Seq") == "" {
			t.Errorf("no Stream-Last-Seq: %v", a.header)
		}
	}
}

func TestProblemsAndPreflight(t *testing.T) {
	n := newNode(t, nil)
	a := n.want(404, "GET", "none", "", "Origin", "https://a.example")
	if a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Access-Control-Allow-Origin") != "*" ||
		a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("404: %v", a.header)
	}
	if a = n.want(405, "PATCH", "x", ""); a.header.Get("Allow") == "" {
		t.Errorf("405: %v", a.header)
	}
	n.want(204, "OPTIONS", "x", "", "Origin", "https://a.example", "Access-Control-Request-Method", "POST")
	n.want(400, "GET", "a//b", "")
}

// What the headers decide is answered before the body is asked for (field report
// 7), and what is refused early keeps the connection usable.
func TestField7HeadersDecideBeforeTheBody(t *testing.T) {
	n := newNode(t, nil)
	s := n.create(text)
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	c := n.dial()
	send := func(path, contentType string, length int) string {
		c.printf("POST /v1/stream/%s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, contentType, length)
		return c.status()
	}
	open := n.create(text)
	for _, step := range []struct {
		path, contentType string
		length            int
		want              string
	}{
		{s, text, 10, "409"}, {"none", text, 10, "404"}, {open, octets, 10, "409"}, {open, text, 2 << 20, "413"}, {open, text, 2, "100"},
	} {
		if got := send(step.path, step.contentType, step.length); got != step.want {
			t.Fatalf("%+v: got %s", step, got)
		}
		if step.want == "413" || c.closed {
			c = n.dial()
		}
	}
	c.printf("ok")
	if got := c.status(); got != "204" {
		t.Errorf("after the body: %s", got)
	}
}
