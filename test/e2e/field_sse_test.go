//go:build e2e

package e2e

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Only CR, LF and CR LF end a line; what Unicode calls a separator is text.
func TestField70Separators(t *testing.T) {
	f := onShared(t, &ordinary)
	const text = "a\u0085b\u2028c\u2029d\u000be\u000cf\u001cg\u00a0h\ufeff"
	s := f.create(plain)
	f.text(s, text)
	e := f.events(s, "offset=-1")
	if ev := e.next(); ev.data != text || ev.lines != 1 {
		t.Errorf("text: %+v", ev)
	}
	j := f.create(jsonType)
	message := `"` + strings.NewReplacer("\u000b", "", "\u000c", "", "\u001c", "").Replace(text) + `"`
	f.post(j, message)
	e = f.events(j, "offset=-1")
	if ev := e.next(); ev.data != "["+message+"]" || ev.lines != 1 {
		t.Errorf("JSON: %+v", ev)
	}
}

// Events of text end between two characters. The beginning of one waits for its rest, and
// the control event says that it is still to come.
func TestField71CharactersStayWhole(t *testing.T) {
	f := onShared(t, &ordinary)
	dangling := f.create(plain)
	waits := f.events(dangling, "offset=-1")
	waits.control()
	f.text(dangling, "b\xf0\x9f")
	since := time.Now()

	s := f.create(plain)
	e := f.events(s, "offset=-1")
	if c := e.control(); !c.UpToDate {
		t.Errorf("%+v", c)
	}
	f.text(s, "a\xe4\xbd")
	data, c := e.data()
	if data != "a" || c.UpToDate || c.Next != fmt.Sprintf("%020d", 1) {
		t.Errorf("half a character has come: %q, %+v", data, c)
	}
	again := f.events(s, "offset="+c.Next) // between the two halves
	f.text(s, "\xa0")
	for _, e := range []*events{e, again, f.events(s, "offset="+c.Next)} {
		if data, c := e.data(); data != "你" || !c.UpToDate {
			t.Errorf("the rest has come: %q, %+v", data, c)
		}
	}
	// Byte by byte, four scripts.
	const text = "zß水😀"
	for i := range len(text) {
		f.text(s, text[i:i+1])
	}
	var got strings.Builder
	for got.Len() < len(text) {
		data, _ := e.data()
		got.WriteString(data)
	}
	if got.String() != text {
		t.Errorf("byte by byte: %q", got.String())
	}
	// A close leaves nothing to wait for, and the bytes are there to be read.
	f.want(http.StatusNoContent, "POST", s, "c\xf0\x9f", "Content-Type", plain, "Stream-Closed", "true")
	data, c = e.data()
	if data != "c\ufffd" || !c.Closed || !c.UpToDate {
		t.Errorf("closed in the middle of a character: %q, %+v", data, c)
	}
	e.finish()
	f.holds(s, "a你"+text+"c\xf0\x9f")
	// What is no UTF-8 at all is replaced piece by piece, and waits for nothing.
	bad := f.create(plain)
	f.text(bad, "x\xff\xc0\xafy\xed\xa0\x80z")
	if data, _ := f.events(bad, "offset=-1").data(); data != strings.ToValidUTF8("x\xff", "\ufffd")+"\ufffd\ufffdy\ufffd\ufffd\ufffdz" {
		t.Errorf("invalid: %q", data)
	}

	// The first stream's half a character is let go after five seconds, which have to
	// pass.
	data, c = waits.data()
	if data != "b" || c.UpToDate {
		t.Errorf("%q, %+v", data, c)
	}
	data, c = waits.data()
	if took := time.Since(since); data != "\ufffd" || !c.UpToDate || took < 4500*time.Millisecond || took > 12*time.Second {
		t.Errorf("after %v: %q, %+v", took, data, c)
	}
	f.text(dangling, "end")
	if data, _ := waits.data(); data != "end" {
		t.Errorf("after that: %q", data)
	}
	f.holds(dangling, "b\xf0\x9fend")
}

// The octets of an event stream, and that no text can pass for a field or an event.
func TestField73WireFormat(t *testing.T) {
	f := onShared(t, &ordinary)
	cursor := func(s string) string { // the only thing that is not known beforehand
		_, rest, _ := strings.Cut(s, `"streamCursor":"`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	for text, wire := range map[string]string{
		"x":                           "data:x\n",
		"  two spaces":                "data:   two spaces\n",
		" ":                           "data:  \n",
		"\ttab":                       "data:\ttab\n",
		":colon":                      "data::colon\n",
		"x\n\n":                       "data:x\ndata:\ndata:\n",
		"\n":                          "data:\ndata:\n",
		"a\r\nb\rc\nd":                "data:a\ndata:b\ndata:c\ndata:d\n",
		"\r\r\n\n":                    "data:\ndata:\ndata:\ndata:\n",
		"event: control\ndata: {}":    "data:event: control\ndata:data: {}\n",
		"\n\nevent: end\ndata:{}\n\n": "data:\ndata:\ndata:event: end\ndata:data:{}\ndata:\ndata:\n",
		"x\n\nid: 7\n":                "data:x\ndata:\ndata:id: 7\ndata:\n",
	} {
		s := f.create(plain)
		f.text(s, text)
		f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
		next := fmt.Sprintf("%020d", len(text))
		want := "event: data\n" + wire + "id: " + next + "\n\n" +
			"event: control\ndata:{\"streamNextOffset\":\"" + next + "\",\"upToDate\":true,\"streamClosed\":true}\nid: " + next + "\n\n"
		if got := f.want(http.StatusOK, "GET", s+"?offset=-1&live=sse", "").body; got != want {
			t.Errorf("%q:\n%q\nwant\n%q", text, got, want)
		}
		ev := f.events(s, "offset=0").next()
		if normal := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text); ev.data != normal {
			t.Errorf("%q: a browser sees %q", text, ev.data)
		}
	}
	s := f.create(plain)
	e := f.events(s, "offset=-1")
	first := e.next()
	if want := `{"streamNextOffset":"00000000000000000000","streamCursor":"` + cursor(first.data) + `","upToDate":true}`; first.data != want || cursor(first.data) == "" {
		t.Errorf("the first event of an empty stream: %+v", first)
	}
	for i := range 20 {
		f.text(s, "line\n")
		data, c := e.data()
		if data != "line\n" || !c.UpToDate || c.Closed || c.Next != fmt.Sprintf("%020d", 5*(i+1)) {
			t.Fatalf("%q, %+v", data, c)
		}
	}
	f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
	if c := e.control(); !c.Closed || !c.UpToDate || c.Cursor != "" {
		t.Errorf("%+v", c)
	}
	e.finish()
	// EventSource goes on by itself: it repeats its URL, and says where it was.
	if data, _ := f.events(s, "offset=now", "Last-Event-ID: "+fmt.Sprintf("%020d", 90)).toTail(); strings.Join(data, "") != "line\nline\n" {
		t.Errorf("Last-Event-ID: %q", data)
	}
}

// Binary streams go in base64, one text an event; control events don't.
func TestField74Base64(t *testing.T) {
	f := onShared(t, &ordinary)
	all := make([]byte, 4097)
	for i := range all {
		all[i] = byte(i)
	}
	for contentType, encoding := range map[string]string{
		"application/octet-stream": "base64", "image/png": "base64", "application/vnd.x+json": "base64", "application/x-ndjson": "base64",
		"application/xml": "base64", "application/jsonx": "base64", "textual/plain": "base64",
		"text/plain": "", "text/html; charset=utf-8": "", "TEXT/x": "", "application/json": "", "Application/JSON; x=y": "",
	} {
		s := f.create(contentType)
		e := f.events(s, "offset=-1")
		if got := e.header.Get("Stream-SSE-Data-Encoding"); got != encoding {
			t.Errorf("%s: %q", contentType, got)
		}
		if got := e.header.Get("Stream-Data-Content-Type"); !strings.EqualFold(got, contentType) {
			t.Errorf("%s: Stream-Data-Content-Type: %q", contentType, got)
		}
		if encoding == "" {
			continue
		}
		e.control()
		for _, size := range []int{1, 2, 3, 4, 5, 6, 7, 256, 4097} {
			f.want(http.StatusNoContent, "POST", s, string(all[:size]), "Content-Type", contentType)
			data, _ := e.data()
			b, err := base64.StdEncoding.DecodeString(data)
			if err != nil || string(b) != string(all[:size]) || len(data)%4 != 0 {
				t.Fatalf("%s, %d bytes: %.60q, %v", contentType, size, data, err)
			}
		}
	}
}

// Proxies are told to leave the stream alone, and nothing says how long it is.
func TestField76Headers(t *testing.T) {
	f := onShared(t, &ordinary)
	e := f.events(f.create(plain), "offset=-1")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Content-Length": "", "Content-Encoding": "", "ETag": "", "X-Content-Type-Options": "nosniff",
		"Access-Control-Allow-Origin": "*", "Cache-Control": "no-cache",
	} {
		if got := e.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	old := f.dial() // HTTP/1.0 has no chunks: the stream ends with the connection
	s := f.create(plain, "Stream-Closed", "true")
	old.send("GET %s?offset=-1&live=sse HTTP/1.0\r\n\r\n", target(s))
	b, err := io.ReadAll(old.r)
	if err != nil || strings.Contains(string(b), "chunked") || !strings.HasSuffix(string(b), "}\nid: 00000000000000000000\n\n") {
		t.Errorf("HTTP/1.0: %q, %v", b, err)
	}
}

// A reader that is cut anywhere and resumes from the last control event has everything
// once.
func TestField161CutAnywhere(t *testing.T) {
	f := onShared(t, &ordinary)
	for contentType, appends := range map[string][]string{
		plain:                      {"one\n", " two é", "\r\n\r\n", "event: data\n", "😀"},
		jsonType:                   {`{"n":1}`, `[2,"three"]`, `[[4]]`, `"5"`},
		"application/octet-stream": {"\x00", "\xff\xfe", "abc", "\n\n\n\n"},
	} {
		s := f.create(contentType)
		live := f.events(s, "offset=-1")
		live.control()
		var whole []string // what a reader has that was there from the beginning
		for _, a := range appends {
			f.want(http.StatusNoContent, "POST", s, a, "Content-Type", contentType)
			data, _ := live.data()
			whole = append(whole, data)
		}
		want, err := decoded(contentType, whole)
		if err != nil {
			t.Fatal(err)
		}
		f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true")
		body := f.want(http.StatusOK, "GET", s+"?offset=-1&live=sse", "").body
		for cut := range len(body) {
			w := f.dial()
			w.head("GET", target(s)+"?offset=-1&live=sse")
			resp, err := http.ReadResponse(w.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			part := make([]byte, cut)
			if _, err := io.ReadFull(resp.Body, part); err != nil {
				t.Fatal(err)
			}
			w.conn.Close()
			parts, next, closed := accepted(string(part))
			if !closed {
				rest, _, end := accepted(f.want(http.StatusOK, "GET", s+"?live=sse&offset="+next, "").body)
				if parts = append(parts, rest...); !end {
					t.Fatalf("cut at %d: no end", cut)
				}
			}
			if got, err := decoded(contentType, parts); err != nil || got != want {
				t.Fatalf("%s cut at %d: %q instead of %q, %v", contentType, cut, got, want, err)
			}
		}
	}
}

// accepted returns the data of those events whose control has come too, and where to go
// on.
func accepted(body string) (data []string, next string, closed bool) {
	next = "-1"
	var waiting []string
	r := eventReader{in: bufio.NewReader(strings.NewReader(body))}
	for {
		ev, err := r.read()
		if err != nil {
			return data, next, closed
		}
		if ev.name == "data" {
			waiting = append(waiting, ev.data)
			continue
		}
		c, err := ev.control()
		if err != nil {
			return data, next, closed
		}
		data, waiting = append(data, waiting...), nil
		next, closed = c.Next, c.Closed
	}
}

// decoded puts the data of events together, whatever their boundaries are.
func decoded(contentType string, data []string) (string, error) {
	switch contentType {
	case plain:
		return strings.Join(data, ""), nil
	case jsonType:
		var all []string
		for _, d := range data {
			messages, err := messagesOf(d)
			if err != nil {
				return "", err
			}
			all = append(all, messages...)
		}
		return strings.Join(all, ","), nil
	}
	var all strings.Builder
	for _, d := range data {
		b, err := base64.StdEncoding.DecodeString(d)
		if err != nil {
			return "", errors.Join(err, fmt.Errorf("%q", d))
		}
		all.Write(b)
	}
	return all.String(), nil
}
