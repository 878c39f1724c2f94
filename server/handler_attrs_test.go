package server

import (
	"strings"
	"testing"
)

func TestAttrs(t *testing.T) {
	n := newNode(t, nil).on("attrs")
	s := fresh()
	n.want(201, "PUT", s, "", "Content-Type", text, "Stream-Attrs", `{ "title": "a b" }`)
	tag := n.want(200, "HEAD", s, "").header.Get("ETag")
	get := func() string {
		t.Helper()
		a := n.want(200, "GET", s+"/attrs", "")
		if a.header.Get("Content-Type") != json || a.header.Get("Stream-Incarnation") == "" {
			t.Errorf("%v", a.header)
		}
		return a.body
	}
	if got := get(); got != `{"title":"a b"}` {
		t.Errorf("got %s", got)
	}
	put := func(status int, code, body string, headers ...string) {
		t.Helper()
		a := n.want(status, "PUT", s+"/attrs", body, headers...)
		if a.code() != code {
			t.Errorf("%.40s: %s", body, a.body)
		}
	}
	put(204, "", `{"metadata":{"k":[1, 2]},"title":"x"}`, "Content-Type", json)
	if got := get(); got != `{"metadata":{"k":[1,2]},"title":"x"}` {
		t.Errorf("got %s", got)
	}
	put(400, "empty_body", "")
	put(400, "invalid_attrs", `[]`)
	put(400, "invalid_attrs", `{"other":1}`)
	put(400, "invalid_attrs", `{"title":1}`)
	put(400, "invalid_attrs", `{"metadata":"x"}`)
	put(400, "invalid_json", `{"title":`)
	put(400, "invalid_content_type", `{}`, "Content-Type", text)
	put(412, "incarnation_mismatch", `{}`, "Stream-Incarnation", "1")
	put(413, "body_too_large", `{"title":"`+strings.Repeat("x", 16<<10)+`"}`)
	put(204, "", `{"title":"`+strings.Repeat("x", 16<<10-12)+`"}`)
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	put(204, "", `{}`)
	if got := get(); got != `{}` {
		t.Errorf("got %s", got)
	}
	if got := n.want(200, "HEAD", s, "").header.Get("ETag"); got != strings.TrimSuffix(tag, `"`)+`:c"` {
		t.Errorf("attributes are in the tag: %s after %s", got, tag)
	}
	n.tells(n.want(200, "GET", s+"/attrs", ""), "Stream-Extensions", "")
	s = n.create(json)
	const extension = "json-record-coordinates-v1"
	n.tells(n.want(200, "GET", s+"/attrs", ""), "Stream-Extensions", extension)
	n.tells(n.want(200, "HEAD", s+"/attrs", ""), "Stream-Extensions", extension)
	n.tells(n.want(204, "PUT", s+"/attrs", "{}"), "Stream-Extensions", extension)
	n.want(404, "GET", "none/attrs", "")
	n.want(404, "PUT", "none/attrs", "{}")
	n.want(400, "PUT", fresh(), "", "Stream-Attrs", "no")
}

func TestField5AttrsTooLargeBeforeTheBody(t *testing.T) {
	n := newNode(t, nil).on("early")
	s := n.create(text)
	c := n.dial()
	c.printf("PUT /ds/early/%s/attrs HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\nExpect: 100-continue\r\n\r\n", s)
	if got := c.status(); got != "413" {
		t.Errorf("got %s", got)
	}
}
