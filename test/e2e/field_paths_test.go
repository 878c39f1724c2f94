//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A path that is not clean is refused: whoever follows a redirect loses the body.
func TestField1NoRedirects(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	f.text(s, "before")
	bucket, name, _ := strings.Cut(s, "/")
	for _, target := range []string{
		"/v1/stream/" + bucket + "//" + name,
		"/v1/stream//" + s,
		"/v1//stream/" + s,
		"//v1/stream/" + s,
		"/v1/stream/" + bucket + "/./" + name,
		"/v1/stream/./" + s,
		"/v1/stream/x/../" + s,
		"/v1/stream/" + bucket + "/x/../" + name,
		"/v1/stream/" + s + "/",
		"/v1/stream/" + s + "/.",
		"/v1/stream/" + s + "/..",
		"/v1/./stream/" + s,
		"/ds/" + bucket + "//" + name,
		"/ds//" + s,
		"/ds/./" + s,
		"/ds/" + bucket + "/" + name + "/",
		"/%761/stream/" + s, // an encoded route word is none
		"/v1/%73tream/" + s,
		"/%64s/" + s,
		"/V1/stream/" + s,
	} {
		for _, method := range []string{"POST", "PUT", "GET", "HEAD", "DELETE"} {
			w := f.dial()
			body := ""
			if method == "POST" || method == "PUT" {
				body = "lost"
			}
			w.head(method, target, "Content-Type: text/plain", fmt.Sprintf("Content-Length: %d", len(body)))
			w.send("%s", body)
			if r := w.answer(0, method); r.status != http.StatusBadRequest && r.status != http.StatusNotFound {
				t.Errorf("%s %s: %v", method, target, r)
			}
			w.conn.Close()
		}
	}
	f.holds(s, "before")
	f.want(http.StatusNotFound, "HEAD", bucket+"/x", "")
}

// Segments are split before they are decoded, so that no two names become one; and a
// name in Location leads back to its stream.
func TestField2EncodedNames(t *testing.T) {
	f := onShared(t, &ordinary)
	b := f.name()
	for _, slash := range []string{"%2F", "%2f", "%2F%2f"} {
		f.want(http.StatusBadRequest, "PUT", b+"/a"+slash+"b", "1")
	}
	f.want(http.StatusCreated, "PUT", b+"/a/b", "2")
	f.holds(b+"/a/b", "2")

	// Each line is one name in all its spellings; no two lines are the same name.
	spellings := [][]string{
		{"a%20b"},
		{"a+b", "a%2Bb", "a%2bb"},
		{"a%25b"},
		{"a%2520b"},
		{"a%252Fb"},
		{"%C3%A9", "%c3%a9", "%C3%a9"}, // é in one code point
		{"e%CC%81"},                    // and in two
		{"plain", "%70lain", "p%6Cai%6e"},
		{"PLAIN"},
		{"a;b=c,d", "a%3Bb%3Dc%2Cd"},
		{"~%22%3C%3E%5C%5E%60%7B%7C%7D"},
		{"%F0%9F%98%80"},
		{"...", "%2E%2e."},
		{"a:b@c!$&'()*"},
		{"q%3Fx%23y"},
	}
	for i, names := range spellings {
		content := fmt.Sprint("content of ", i)
		created := f.want(http.StatusCreated, "PUT", b+"/"+names[0], content)
		location := created.header.Get("Location")
		path, ok := strings.CutPrefix(location, f.daemon.url()+"/v1/stream/")
		if !ok {
			t.Fatalf("Location: %q", location)
		}
		for _, name := range append(slices.Clone(names), strings.TrimPrefix(path, b+"/")) {
			f.holds(b+"/"+name, content)
			f.want(http.StatusOK, "PUT", b+"/"+name, "")
		}
	}
	for i, names := range spellings {
		f.holds(b+"/"+names[0], fmt.Sprint("content of ", i))
	}

	// The same stream on the other surface: there, %2F is part of the id.
	bucket, id, _ := strings.Cut(b+"/a/b", "/")
	w := f.dial()
	w.head("GET", "/ds/"+bucket+"/"+strings.ReplaceAll(id, "/", "%2F"))
	if r := w.answer(http.StatusOK, "GET"); r.body != "2" {
		t.Errorf("through /ds: %v", r)
	}
	w.head("GET", "/ds/"+bucket+"/"+id)
	w.answer(http.StatusNotFound, "GET")
}

// Names that would leave their place, or that clients can't say again, are refused, and
// none of them becomes a file.
func TestField4NamesThatAreNone(t *testing.T) {
	f := onShared(t, &ordinary)
	parent := filepath.Dir(f.daemon.dir)
	for _, n := range []string{
		"%2e", "%2E%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2f..%2fetc%2fpasswd", "x/%2e%2e/y", "x/%2e", "a%00b", "a%0Ab", "a%0Db", "a%7Fb", "a%C2%85b",
		"%ff", "%C3", "%ED%A0%80", "%C0%AE%C0%AE", "a%", "a%2", "a%zz", strings.Repeat("x", 1025), strings.Repeat("%41", 1025), strings.Repeat("y", 9000),
		"__ds", "__ds/x", "_default/x",
	} {
		for _, surface := range []string{"/v1/stream/field4/", "/v1/stream/", "/ds/field4/"} {
			if strings.HasPrefix(n, "_") && surface != "/v1/stream/" {
				continue // reserved only in front
			}
			w := f.dial()
			w.head("PUT", surface+n, "Content-Type: text/plain", "Content-Length: 1")
			w.send("x")
			switch r := w.answer(0, "PUT"); r.status {
			case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestURITooLong:
			default:
				t.Errorf("PUT %s%.40s: %v", surface, n, r)
			}
			w.conn.Close()
		}
	}
	// A backslash is an ordinary character of a name. None of what is in a name is in a
	// file's.
	f.want(http.StatusCreated, "PUT", f.name()+"..%5c..%5cetc%5cpasswd", "")
	err := filepath.WalkDir(parent, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // the server has just removed it
		}
		if strings.Contains(e.Name(), "passwd") || strings.Contains(e.Name(), "field") && path != parent {
			t.Errorf("a file %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the data directory: %v, %v", entries, err)
	}
}

// What could mean two things is refused, what is unknown is passed over.
func TestField13RepeatedAndEmpty(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	f.text(s, "abc")
	for _, query := range []string{
		"offset=", "offset", "offset=-1&offset=now", "offset=-1&offset=-1", "offset=0&%6Fffset=0", "offset=a,b", "offset=..%2f", "offset=0,1",
		"live=foo&offset=-1", "live=&offset=-1", "live=SSE&offset=-1", "live=sse&live=sse&offset=-1", "live=sse", "live=long-poll",
		"timeout=&offset=-1", "timeout=-1&offset=-1", "timeout=1.5&offset=-1", "timeout=1&timeout_ms=1&offset=-1", "timeout=1e3&offset=-1",
		"max_bytes=", "max_bytes=0", "max_bytes=-5", "max_bytes=1k", "max_bytes=1&max-bytes=1", "max_bytes=1&max_bytes=1",
		"cursor=&offset=-1", "cursor=1&cursor=2&offset=-1&live=long-poll", "offset=%zz",
	} {
		f.want(http.StatusBadRequest, "GET", s+"?"+query, "")
	}
	for _, query := range []string{"offset=-1&utm=1", "utm=1&utm=2&utm=", "%zz=1", "=", "&&offset=-1&", "Offset=", "x=offset="} {
		if r := f.want(http.StatusOK, "GET", s+"?"+query, ""); r.body != "abc" {
			t.Errorf("?%s: %v", query, r)
		}
	}
	for _, twice := range [][]string{
		{"Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0", "Producer-Seq: 5"},
		{"Producer-Id: p", "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"},
		{"Producer-Id: p", "Producer-Epoch: 0", "Producer-Epoch: 1", "Producer-Seq: 0"},
		{"Stream-Closed: true", "Stream-Closed: false"},
		{"Stream-Closed: true", "stream-closed: true"},
		{"Stream-Seq: 1", "Stream-Seq: 2"},
		{"Content-Type: text/html"},
		{"Stream-Incarnation: 1", "Stream-Incarnation: 2"},
	} {
		w := f.dial()
		w.head("POST", target(s), append([]string{"Content-Type: text/plain", "Content-Length: 1"}, twice...)...)
		w.send("x")
		r := w.answer(0, "POST")
		if want := http.StatusBadRequest; r.status != want && (r.status != http.StatusPreconditionFailed || !strings.Contains(twice[0], "Incarnation")) {
			t.Errorf("%q: want %d, got %v", twice, want, r)
		}
		w.conn.Close()
	}
	for _, twice := range [][]string{
		{"Stream-TTL: 5", "Stream-TTL: 6"},
		{"Stream-Expires-At: 2100-01-01T00:00:00Z", "Stream-Expires-At: 2100-01-01T00:00:00Z"},
		{"Content-Type: text/plain", "Content-Type: text/plain"},
		{"Stream-Forked-From: " + target(s), "Stream-Forked-From: " + target(s)},
	} {
		w := f.dial()
		name := f.name()
		w.head("PUT", target(name), twice...)
		w.answer(http.StatusBadRequest, "PUT")
		f.want(http.StatusNotFound, "HEAD", name, "")
	}
	f.holds(s, "abc")
	f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Closed", "")
}

// A stream's content type is always a media type.
func TestField14ContentTypes(t *testing.T) {
	f := onShared(t, &ordinary)
	put := func(field string) (string, answer) {
		name := f.name()
		w := f.dial()
		defer w.conn.Close()
		w.head("PUT", target(name), field)
		return name, w.answer(0, "PUT")
	}
	for _, bad := range []string{
		"undefined", "null", "text", "text/", "/plain", "text/plain/x", "te xt/plain", "text/plain; charset", "text/plain; =x", "text/plain, text/html",
		`text/plain; a="`, "text/pläin", "a/b; " + strings.Repeat("x=y; ", 500),
	} {
		name, r := put("Content-Type: " + bad)
		if r.status != http.StatusBadRequest || r.code() != "invalid_content_type" {
			t.Errorf("%q: %v", bad, r)
		}
		f.want(http.StatusNotFound, "HEAD", name, "")
	}
	for given, kept := range map[string]string{
		"Content-Type:":                          "application/octet-stream",
		"Content-Type:  \t ":                     "application/octet-stream",
		"X-Nothing: x":                           "application/octet-stream",
		"Content-Type: text/plain":               "text/plain",
		"Content-Type: TEXT/Plain":               "text/plain",
		"Content-Type: text/plain;charset=UTF-8": "text/plain;charset=UTF-8",
		`Content-Type: Text/X; A="b;c"`:          `text/x; A="b;c"`,
	} {
		name, r := put(given)
		if r.status != http.StatusCreated || r.header.Get("Content-Type") != kept {
			t.Errorf("%q: want %q, got %v", given, kept, r)
			continue
		}
		f.has(f.want(http.StatusOK, "HEAD", name, ""), "Content-Type", kept)
		f.want(http.StatusNoContent, "POST", name, "x", "Content-Type", kept)
		f.has(f.want(http.StatusOK, "GET", name, ""), "Content-Type", kept)
	}
	// A line end in a value never gets as far as being stored.
	w := f.dial()
	name := f.name()
	w.send("PUT %s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\nX-Injected: 1\r\n\r\n", target(name))
	w.answer(http.StatusBadRequest, "PUT")
	f.want(http.StatusNotFound, "HEAD", name, "")
}

// A method that a stream has not got is 405, and a preflight is answered.
func TestField16Methods(t *testing.T) {
	f := onShared(t, &ordinary)
	s := f.create(plain)
	for _, method := range []string{"PATCH", "TRACE", "PROPFIND", "LINK", "get", "CONNECT", "QUERY", "PUTX"} {
		w := f.dial()
		w.head(method, target(s), "Content-Length: 0")
		r := w.answer(http.StatusMethodNotAllowed, method)
		for _, allowed := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"} {
			if !strings.Contains(r.header.Get("Allow"), allowed) {
				t.Errorf("%s: Allow: %q", method, r.header.Get("Allow"))
			}
		}
		w.head("HEAD", target(s))
		w.answer(http.StatusOK, "HEAD")
	}
	for _, path := range []string{target(s), target(f.name()), "/", "*", "/anything"} {
		w := f.dial()
		w.head("OPTIONS", path)
		w.answer(http.StatusNoContent, "OPTIONS")
	}
	for _, path := range []string{"/", "/v1/stream", "/v1/stream/", "/v1/streams/x", "/ds", "/ds/x", "/metrics", "/healthz", "/debug/pprof/", "/index.html"} {
		w := f.dial()
		w.head("GET", path)
		if r := w.answer(0, "GET"); r.status != http.StatusNotFound && r.status != http.StatusBadRequest {
			t.Errorf("GET %s: %v", path, r)
		}
	}
}
