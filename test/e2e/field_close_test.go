//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// Stream-Closed is true in any case of its letters; anything else is as good as absent.
func TestField106ClosedInAnyCase(t *testing.T) {
	f := onShared(t, &ordinary)
	send := func(method, name, value, body string) answer {
		t.Helper()
		w := f.dial()
		defer w.conn.Close()
		w.head(method, target(name), "Content-Type: text/plain", "Stream-Closed: "+value, fmt.Sprint("Content-Length: ", len(body)))
		w.send("%s", body)
		return w.answer(0, method)
	}
	for value, closes := range map[string]bool{
		"true": true, "TRUE": true, "True": true, "tRuE": true, "  true \t": true,
		"false": false, "1": false, "yes": false, "": false, "true, true": false, "truе": false, "\"true\"": false, "true;x": false, "on": false, "0": false,
	} {
		for _, body := range []string{"", "body"} {
			name := f.name()
			r := send("PUT", name, value, body)
			if r.status != http.StatusCreated || (r.header.Get("Stream-Closed") == "true") != closes {
				t.Errorf("PUT %q %q: %v", value, body, r)
			}
			if head := f.want(http.StatusOK, "HEAD", name, ""); (head.header.Get("Stream-Closed") == "true") != closes {
				t.Errorf("PUT %q %q: %v", value, body, head)
			}
			f.holds(name, body)

			name = f.create(plain)
			r = send("POST", name, value, body)
			want := http.StatusNoContent
			if body == "" && !closes {
				want = http.StatusBadRequest
			}
			if r.status != want || (r.header.Get("Stream-Closed") == "true") != closes {
				t.Errorf("POST %q %q: %v", value, body, r)
			}
			if head := f.want(http.StatusOK, "HEAD", name, ""); (head.header.Get("Stream-Closed") == "true") != closes {
				t.Errorf("POST %q %q: %v", value, body, head)
			}
			f.holds(name, body)
		}
	}
}

// A refusal for closure says so, and where the stream ended, whatever else was wrong.
func TestField107ClosedSaysWhere(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, contentType := range []string{plain, jsonType} {
		s := f.create(contentType)
		tail := f.want(http.StatusNoContent, "POST", s, "12345", "Content-Type", contentType, "Stream-Seq", "m").header.Get("Stream-Next-Offset")
		f.has(f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true"), "Stream-Next-Offset", tail, "Stream-Closed", "true")
		for what, r := range map[string]answer{
			"append":       f.want(http.StatusConflict, "POST", s, "1", "Content-Type", contentType),
			"append+close": f.want(http.StatusConflict, "POST", s, "1", "Content-Type", contentType, "Stream-Closed", "true"),
			"other type":   f.want(http.StatusConflict, "POST", s, "1", "Content-Type", "text/html"),
			"old seq":      f.want(http.StatusConflict, "POST", s, "1", "Content-Type", contentType, "Stream-Seq", "a"),
			"no JSON":      f.want(http.StatusConflict, "POST", s, "{", "Content-Type", contentType),
			"producer":     f.want(http.StatusConflict, "POST", s, "1", with(tuple("p", 0, 0), []string{"Content-Type", contentType})...),
			"a gap":        f.want(http.StatusConflict, "POST", s, "1", with(tuple("p", 0, 7), []string{"Content-Type", contentType})...),
		} {
			if r.code() != "closed" {
				t.Errorf("%s: %s", what, r.body)
			}
			f.has(r, "Stream-Closed", "true", "Stream-Next-Offset", tail)
		}
		// Closing it again is no error, and changes nothing.
		for range 3 {
			f.has(f.want(http.StatusNoContent, "POST", s, "", "Stream-Closed", "true"), "Stream-Next-Offset", tail, "Stream-Closed", "true")
		}
		f.has(f.want(http.StatusOK, "GET", s+"?offset="+tail, ""), "Stream-Closed", "true", "Stream-Up-To-Date", "true", "Stream-Next-Offset", tail)
		f.has(f.want(http.StatusOK, "GET", s+"?max_bytes=1&offset=0", ""), "Stream-Closed", map[bool]string{true: "", false: "true"}[contentType == plain])
	}
}

// A close that was acknowledged holds after a crash; a stream that is created closed is
// whole or not there.
func TestField109CloseIsDurable(t *testing.T) {
	f := onOwn(t)
	for round := range 5 {
		only, final, made := f.create(plain), f.create(plain), f.name()
		f.want(http.StatusNoContent, "POST", only, "", "Stream-Closed", "true")
		f.want(http.StatusNoContent, "POST", final, "final", "Content-Type", plain, "Stream-Closed", "true")
		last := f.want(http.StatusCreated, "PUT", made, "all of it", "Content-Type", plain, "Stream-Closed", "true")
		f.has(last, "Stream-Closed", "true", "Stream-Next-Offset", fmt.Sprintf("%020d", 9))

		// One more is on its way when the server is killed.
		open := f.name()
		sent := make(chan int, 1)
		go func() {
			r, err := f.once("PUT", open, "all or nothing", []string{"Content-Type", plain, "Stream-Closed", "true"})
			if err != nil {
				r.status = 0 // its outcome is open
			}
			sent <- r.status
		}()
		status := 0
		if round%2 == 0 {
			status = <-sent
		}
		f.restart()
		for s, content := range map[string]string{only: "", final: "final", made: "all of it"} {
			f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Closed", "true")
			f.has(f.want(http.StatusConflict, "POST", s, "x", "Content-Type", plain), "Stream-Closed", "true")
			f.holds(s, content)
		}
		if round%2 != 0 {
			status = <-sent
		}
		r, err := f.once("HEAD", open, "", nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case r.status == http.StatusOK:
			f.has(r, "Stream-Closed", "true")
			f.holds(open, "all or nothing")
		case status == http.StatusCreated:
			t.Errorf("a stream that was acknowledged is missing: %v", r)
		}
	}
}
