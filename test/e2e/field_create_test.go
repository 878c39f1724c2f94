//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// An expired stream is no stream: its name makes a new one, whatever its configuration.
func TestField17PutOnExpired(t *testing.T) {
	f := onShared(t, &ordinary)
	s, race := f.name(), f.name()
	for _, name := range []string{s, race} {
		f.want(http.StatusCreated, "PUT", name, "", "Content-Type", plain, "Stream-TTL", "1")
	}
	f.want(http.StatusOK, "POST", s, "old", with(tuple("p", 7, 0), []string{"Content-Type", plain, "Stream-Seq", "z"})...)
	f.want(http.StatusConflict, "PUT", s, "", "Content-Type", "application/json") // does not renew

	// Fifty clients want the name at the moment when it becomes free. Each waits, as
	// real ones do, while the old stream is in the way.
	var made, found atomic.Int64
	f.together(50, func(int) error {
		for deadline := time.Now().Add(wirePatience); ; {
			r, err := f.once("PUT", race, `["x"]`, []string{"Content-Type", "application/json"})
			switch {
			case err != nil:
				return err
			case r.status == http.StatusCreated:
				made.Add(1)
				return nil
			case r.status == http.StatusOK:
				found.Add(1)
				return nil
			case r.status != http.StatusConflict || time.Now().After(deadline):
				return fmt.Errorf("%v", r)
			}
		}
	})
	if made.Load() != 1 || found.Load() != 49 {
		t.Errorf("%d clients made the stream and %d found it", made.Load(), found.Load())
	}
	f.holds(race, `["x"]`)

	// HEAD does not renew, so it can be used to wait for the end.
	f.eventually(wirePatience, "the stream has expired", func() bool {
		r, err := f.once("HEAD", s, "", nil)
		return err == nil && r.status == http.StatusNotFound
	})
	r := f.want(http.StatusCreated, "PUT", s, "", "Content-Type", "application/json")
	f.has(r, "Stream-Next-Offset", "00000000000000000000", "Content-Type", "application/json")
	f.holds(s, "[]")
	f.want(http.StatusOK, "POST", s, "1", with(tuple("p", 0, 0), []string{"Content-Type", "application/json", "Stream-Seq", "a"})...)
}

// PUT [] makes an empty stream, POST [] appends nothing and is refused.
func TestField19EmptyArrays(t *testing.T) {
	f := onShared(t, &ordinary)
	const json = "application/json"
	bare := f.want(http.StatusCreated, "PUT", f.name(), "", "Content-Type", json).header.Get("Stream-Next-Offset")
	for _, body := range []string{"[]", " [ \n ] ", "[\t]\r\n"} {
		s := f.name()
		f.has(f.want(http.StatusCreated, "PUT", s, body, "Content-Type", json), "Stream-Next-Offset", bare)
		f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Next-Offset", bare)
		if r := f.want(http.StatusBadRequest, "POST", s, body, "Content-Type", json); r.code() != "empty_array" {
			t.Errorf("POST %q: %v", body, r)
		}
		f.holds(s, "[]")
		f.want(http.StatusNoContent, "POST", s, "[[]]", "Content-Type", json)
		f.holds(s, "[[]]")
	}
	for body, content := range map[string]string{"[[]]": "[[]]", "[[],[]]": "[[],[]]", "[{}]": "[{}]", "{}": "[{}]", `""`: `[""]`, "0": "[0]"} {
		s := f.name()
		f.want(http.StatusCreated, "PUT", s, body, "Content-Type", json)
		f.holds(s, content)
	}
}

// Location is the URL that the client used.
func TestField20Location(t *testing.T) {
	f := onShared(t, &ordinary)
	for _, host := range []string{"streams.example:8443", "[::1]:80", "10.0.0.1"} {
		for _, suffix := range []string{"", "a%20b", "%25", "x/y", "%C3%A9"} {
			name := f.name() + suffix
			w := f.dial()
			w.send("%s", "PUT "+target(name)+" HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: ftp\r\nForwarded: host=evil.example\r\n\r\n")
			f.has(w.answer(http.StatusCreated, "PUT"), "Location", "http://"+host+target(name))
			w.conn.Close()
		}
	}
	// An absolute target names the host that counts.
	name := f.name()
	w := f.dial()
	w.send("%s", "PUT http://absolute.example"+target(name)+" HTTP/1.1\r\nHost: other.example\r\n\r\n")
	f.has(w.answer(http.StatusCreated, "PUT"), "Location", "http://absolute.example"+target(name))
	f.has(f.want(http.StatusOK, "PUT", name, ""), "Stream-Next-Offset", "00000000000000000000")
}

// With --public-url, Location begins with that, whatever the client calls the server.
func TestField20PublicURL(t *testing.T) {
	f := onOwn(t, "--public-url", "https://public.example/streams/")
	name := f.name()
	f.has(f.want(http.StatusCreated, "PUT", name, ""), "Location", "https://public.example/streams"+target(name))
}

// A create that the disk has no room for leaves nothing behind, and works when there is
// room again.
func TestField22FailedCreate(t *testing.T) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	margin := min(free/4, 1<<30) // others use the disk meanwhile
	f := onOwn(t, "--min-free-disk", strconv.FormatInt(free-margin, 10))
	kept := f.create(plain)
	f.text(kept, "before.")

	ballast, err := os.Create(filepath.Join(filepath.Dir(f.daemon.dir), "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	if err := syscall.Fallocate(int(ballast.Fd()), 0, 0, 2*margin); err != nil {
		t.Fatal(err)
	}
	full := func() bool { return f.daemon.metric(t, "snakream_disk_full") == 1 }
	f.eventually(wirePatience, "the disk is full", full)
	s := f.name()
	create := []string{"Content-Type", plain, "Stream-TTL", "1000"}
	r := f.want(http.StatusInsufficientStorage, "PUT", s, "body", create...)
	if r.code() != "disk_full" || r.header.Get("Retry-After") == "" {
		t.Errorf("%v", r)
	}
	f.want(http.StatusNotFound, "HEAD", s, "")
	f.want(http.StatusNotFound, "POST", s, "x", "Content-Type", plain)
	write := with(tuple("p", 0, 0), []string{"Content-Type", plain})
	f.want(http.StatusInsufficientStorage, "POST", kept, "one.", write...)
	f.holds(kept, "before.")
	f.want(http.StatusNoContent, "DELETE", f.existing(kept), "") // deletes make room

	if err := ballast.Truncate(0); err != nil {
		t.Fatal(err)
	}
	f.eventually(wirePatience, "the disk has room again", func() bool { return !full() })
	f.want(http.StatusCreated, "PUT", s, "body.", create...)
	f.want(http.StatusOK, "POST", s, "one.", write...)
	f.restart()
	f.holds(s, "body.one.")
	f.want(http.StatusNotFound, "HEAD", kept, "")
}

// existing makes sure that a stream is there and returns its path.
func (f *field) existing(stream string) string {
	f.Helper()
	f.want(http.StatusOK, "HEAD", stream, "")
	return stream
}

// 6,400 appends at once have 6,400 places, and what was acknowledged is what is there.
func TestField23ConcurrentAppends(t *testing.T) {
	f := onOwn(t, "--memtable-bytes", "64KiB", "--shards", "2")
	const writers, each = 64, 100
	s := f.create(plain)
	var mu sync.Mutex
	at := map[int]string{} // what lies where
	f.together(writers, func(w int) error {
		last := -1
		for i := range each {
			body := fmt.Sprintf("writer %d line %d;", w, i)
			r, err := f.once("POST", s, body, []string{"Content-Type", plain})
			if err != nil || r.status != http.StatusNoContent {
				return fmt.Errorf("%v, %v", r, err)
			}
			start, err := r.receipt(len(body))
			if err != nil {
				return err
			}
			if start <= last {
				return fmt.Errorf("line %d lies at %d, the one before at %d", i, start, last)
			}
			last = start
			mu.Lock()
			if other := at[start]; other != "" {
				err = fmt.Errorf("%q and %q have the place %d", other, body, start)
			}
			at[start] = body
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	content := ""
	for len(content) < 1<<20 {
		body, ok := at[len(content)]
		if !ok {
			break
		}
		content += body
	}
	if len(at) != writers*each {
		t.Fatalf("%d places", len(at))
	}
	f.holds(s, content)
	f.restart()
	f.holds(s, content)
}

// A body needs its type; a close without a body has none, whatever its library says.
func TestField25TypeOfAnEmptyBody(t *testing.T) {
	f := onShared(t, &ordinary)
	const form = "application/x-www-form-urlencoded"
	s := f.create(plain)
	for _, field := range []string{"X-None: 1", "Content-Type:", "Content-Type:   "} {
		w := f.dial()
		w.head("POST", target(s), field, "Content-Length: 1")
		w.send("x")
		if r := w.answer(http.StatusBadRequest, "POST"); r.code() != "missing_content_type" {
			t.Errorf("%q: %v", field, r)
		}
	}
	if r := f.want(http.StatusConflict, "POST", s, "x", "Content-Type", form); r.code() != "content_type_mismatch" {
		t.Errorf("%v", r)
	}
	if r := f.want(http.StatusBadRequest, "POST", s, "", "Content-Type", plain); r.code() != "empty_body" {
		t.Errorf("%v", r)
	}
	f.want(http.StatusBadRequest, "POST", s, "", "Content-Type", form)
	for _, attached := range []string{plain, form, "text/plain;charset=UTF-8", "undefined"} {
		for _, fields := range [][]string{{"Content-Length: 0"}, {"Transfer-Encoding: chunked"}, nil} {
			s := f.create("application/json")
			w := f.dial()
			w.head("POST", target(s), append(fields, "Content-Type: "+attached, "Stream-Closed: true")...)
			if len(fields) > 0 && fields[0] != "Content-Length: 0" {
				w.send("0\r\n\r\n")
			}
			f.has(w.answer(http.StatusNoContent, "POST"), "Stream-Closed", "true")
			f.has(f.want(http.StatusOK, "HEAD", s, ""), "Stream-Closed", "true")
		}
	}
	f.holds(s, "")
}

// Type and subtype decide, in any case; parameters don't.
func TestField26TypesAreCompared(t *testing.T) {
	f := onShared(t, &ordinary)
	forms := []string{"application/json", "application/json; charset=utf-8", "Application/JSON", "APPLICATION/JSON;CHARSET=UTF-8;x=y"}
	for _, created := range forms {
		s := f.create(created)
		for _, posted := range forms {
			f.want(http.StatusNoContent, "POST", s, "[1]", "Content-Type", posted)
			f.want(http.StatusOK, "PUT", s, "", "Content-Type", posted)
		}
		f.holds(s, "[1,1,1,1]")
		for _, other := range []string{"application/vnd.api+json", "application/jsonx", "text/json", "application/x-ndjson"} {
			f.want(http.StatusConflict, "POST", s, "[1]", "Content-Type", other)
			f.want(http.StatusConflict, "PUT", s, "", "Content-Type", other)
		}
	}
	for _, other := range []string{"application/vnd.api+json", "application/x-ndjson", "text/json", "application/json-seq"} {
		s := f.create(other)
		f.want(http.StatusNoContent, "POST", s, "[1] no JSON", "Content-Type", other)
		f.holds(s, "[1] no JSON")
	}
}

// Stream-Seq goes by octets, and only what was stored moves it.
func TestField28StreamSeq(t *testing.T) {
	f := onOwn(t)
	s := f.create("application/json")
	post := func(status int, s, seq, body string) answer {
		t.Helper()
		return f.want(status, "POST", s, body, "Content-Type", "application/json", "Stream-Seq", seq)
	}
	for _, step := range []struct {
		seq    string
		status int
		last   string
	}{
		{"9", 204, ""}, {"10", 409, "9"}, {"91", 204, ""}, {"91", 409, "91"}, {"9", 409, "91"}, {"a", 204, ""}, {"B", 409, "a"}, {"a", 409, "a"}, {"a0", 204, ""},
	} {
		r := post(step.status, s, step.seq, "1")
		f.has(r, "Stream-Last-Seq", step.last)
	}
	for body, status := range map[string]int{"{": 400, "[]": 400, "nan": 400} {
		post(status, s, "z", body)
	}
	f.want(http.StatusConflict, "POST", s, "x", "Content-Type", plain, "Stream-Seq", "z")
	f.want(http.StatusConflict, "POST", s, "1", with(tuple("p", 0, 5), []string{"Content-Type", "application/json", "Stream-Seq", "z"})...)
	post(http.StatusNoContent, s, "z", "1")
	fork := f.name()
	f.want(http.StatusCreated, "PUT", fork, "", "Stream-Forked-From", target(s))
	post(http.StatusNoContent, fork, "a", "1")
	f.restart()
	f.has(post(http.StatusConflict, s, "z", "1"), "Stream-Last-Seq", "z")
	post(http.StatusConflict, fork, "a", "1")
	post(http.StatusNoContent, s, "zz", "1")
	f.holds(s, "[1,1,1,1,1,1]")
}
