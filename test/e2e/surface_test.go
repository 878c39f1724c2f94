//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests called TestSurface… are the tables of the API in their order: what is sent to /ds, and
// all that is answered, every header that says something about the stream included.

// row is one request and its answer. In header, answer and content, @8 stands for the offset 8 as the
// server writes it, and $id for the incarnation of the stream that the path names.
type row struct {
	what    string   // in the words of the API
	request string   // a method, and a path below /ds with its query
	header  []string // names and values
	body    string
	status  int
	code    string   // of a problem
	answer  []string // names and values, all that telling selects
	content string   // the body, unless there is a problem
}

// anyValue in an answer stands for a header that is there.
const anyValue = "*"

// telling are the headers that a row names completely.
var telling = regexp.MustCompile(`^(Stream-.*|Producer-.*|Etag|Location|Link|Vary|Cache-Control|Content-Range|Accept-Ranges|Allow|Retry-After|Content-Type)$`)

// always are the headers of every answer.
var always = []string{
	"X-Content-Type-Options", "nosniff",
	"Cross-Origin-Resource-Policy", "cross-origin",
	"Access-Control-Allow-Origin", "*",
}

// surfaceTest sends rows to a server.
type surfaceTest struct {
	*field
	id map[string]string // incarnations by bucket and stream
}

func onSurface(t *testing.T) *surfaceTest {
	return &surfaceTest{onShared(t, &ordinary), map[string]string{}}
}

// run sends the rows one after the other; each needs those before it.
func (s *surfaceTest) run(rows []row) {
	for _, r := range rows {
		s.Run(r.what, func(t *testing.T) {
			method, path, _ := strings.Cut(r.request, " ")
			got := s.send(t, method, path, r)
			stream := streamOf(path)
			if s.id[stream] == "" || got.status == http.StatusCreated {
				s.id[stream] = got.header.Get("Stream-Incarnation")
			}
			s.check(t, r, got, strings.NewReplacer("$id", s.id[stream], "$base", s.daemon.url()))
		})
	}
}

// streamOf cuts a path behind its stream.
func streamOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if segments := strings.Split(path, "/"); len(segments) > 3 {
		return strings.Join(segments[:3], "/")
	}
	return path
}

func (s *surfaceTest) send(t *testing.T, method, path string, r row) answer {
	t.Helper()
	req, err := http.NewRequest(method, s.daemon.url()+"/ds"+path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$id", s.id[streamOf(path)])
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Add(r.header[i], offsets(fill.Replace(r.header[i+1])))
	}
	resp, err := s.client.Transport.RoundTrip(req) // a redirect is an answer
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (s *surfaceTest) check(t *testing.T, r row, got answer, fill *strings.Replacer) {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(r.answer); i += 2 {
		want[http.CanonicalHeaderKey(r.answer[i])] = offsets(fill.Replace(r.answer[i+1]))
	}
	if r.code != "" {
		want["Content-Type"], want["Cache-Control"] = "application/problem+json", "no-store"
	}
	if got.status != r.status || got.code() != r.code {
		t.Errorf("%d %s, want %d %s: %.300s", got.status, got.code(), r.status, r.code, got.body)
	}
	for name := range got.header {
		if _, ok := want[name]; !ok && telling.MatchString(name) {
			t.Errorf("has %s: %s", name, got.header[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value := foreseeable(got.header.Get(name))
		if len(got.header[name]) != 1 || (value != want[name] && want[name] != anyValue) {
			t.Errorf("%s: %q, want %q", name, got.header[name], want[name])
		}
	}
	for i := 0; i < len(always); i += 2 {
		if got.header.Get(always[i]) != always[i+1] {
			t.Errorf("%s: %q", always[i], got.header[always[i]])
		}
	}
	if content := offsets(fill.Replace(r.content)); r.code == "" && foreseeable(got.body) != content {
		t.Errorf("the body is %q, want %q", got.body, content)
	}
}

var (
	shortOffset = regexp.MustCompile(`@(\d+)`)
	times       = regexp.MustCompile(`("[a-z_]+_at_ms":)[0-9]+`)
	boundaries  = regexp.MustCompile(`(?m)(^--|boundary=)[0-9a-f]{32}`)
)

// offsets writes each @8 as the server does.
func offsets(s string) string {
	return shortOffset.ReplaceAllStringFunc(s, func(o string) string { return fmt.Sprintf("%020s", o[1:]) })
}

// foreseeable takes out what nobody can foresee.
func foreseeable(s string) string {
	return boundaries.ReplaceAllString(times.ReplaceAllString(s, "${1}0"), "${1}boundary")
}

// digestOf is how a snapshot's bytes are named.
func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// h is a list of header names and values.
func h(header ...string) []string { return header }

// jsonRecords are the headers of a JSON stream that holds the records from first to next.
func jsonRecords(first, next int) []string {
	return with(h("Stream-Extensions", "json-record-coordinates-v1"), records(first, next))
}

// records are the same of other types.
func records(first, next int) []string {
	return h("Stream-Record-First", fmt.Sprint(first), "Stream-Record-Next", fmt.Sprint(next))
}

// recordSpan are the headers of a read of the records from start to next.
func recordSpan(start, next int) []string {
	return with(records(0, next), h("Stream-Record-Start", fmt.Sprint(start)))
}

// appended are the headers of an accepted write of the bytes from start to next and the records from
// record to nextRecord. An empty closed means an open stream.
func appended(closed string, start, next, record, nextRecord int) []string {
	all := with(state(closed, next), records(0, nextRecord), h("Stream-Record-Start", fmt.Sprint(record)))
	if start < next {
		all = with(all, h("Stream-Offset", fmt.Sprintf("@%d", start)))
	}
	return all
}

// state are the headers of every write's answer.
func state(closed string, next int) []string {
	all := h("Stream-Incarnation", "$id", "Stream-Next-Offset", fmt.Sprintf("@%d", next), "ETag", fmt.Sprintf(`"$id:@%d%s"`, next, closed))
	if closed != "" {
		all = with(all, h("Stream-Closed", "true"))
	}
	return all
}

// TestSurfaceBuckets is section 2 of the API.
func TestSurfaceBuckets(t *testing.T) {
	s := onSurface(t)
	jsonAnswer := h("Content-Type", jsonType, "Cache-Control", "no-store")
	item := func(id, status, contentType string, tail int) string {
		return fmt.Sprintf(`{"stream_id":"%s","status":"%s","content_type":"%s","tail_offset":%d,"next_offset":"@%d","created_at_ms":0,"last_write_at_ms":0}`,
			id, status, contentType, tail, tail)
	}
	page := func(prefix, cursor string, more bool, items ...string) string {
		return fmt.Sprintf(`{"bucket_id":"surface-buckets","prefix":"%s","streams":[%s],"stream_count":%d,"next_cursor":%s,"has_more":%t}`,
			prefix, strings.Join(items, ","), len(items), cursor, more)
	}
	first, upper, umlaut := item("a", "open", plain, 0), item("B", "closed", jsonType, 4), item("ä", "open", plain, 3)
	const b = "/surface-buckets"
	s.run([]row{
		{what: "PUT 400 bad id: upper case", request: "PUT /Surface", status: 400, code: "bad_path"},
		{what: "PUT 400 bad id: 3 characters", request: "PUT /abc", status: 400, code: "bad_path"},
		{what: "PUT 400 bad id: 65 characters", request: "PUT /" + strings.Repeat("a", 65), status: 400, code: "bad_path"},
		{what: "PUT 400 bad id: a dot", request: "PUT /a.bcd", status: 400, code: "bad_path"},
		{what: "GET 404", request: "GET " + b, status: 404, code: "bucket_not_found"},
		{what: "DELETE 404", request: "DELETE " + b, status: 404, code: "bucket_not_found"},
		{what: "list 404", request: "GET " + b + "/streams", status: 404, code: "bucket_not_found"},
		{what: "nothing is created implicitly", request: "PUT " + b + "/a", status: 404, code: "bucket_not_found"},
		{what: "PUT 201", request: "PUT " + b, status: 201, answer: h("Location", "$base/ds"+b)},
		{what: "PUT 409 exists", request: "PUT " + b, status: 409, code: "bucket_exists"},
		{what: "PUT 200 when it exists", request: "PUT " + b + "?if-not-exists=true", status: 200},
		{what: "PUT 201 when it does not", request: "PUT /surface-bucket-2?if-not-exists=true", status: 201, answer: h("Location", "$base/ds/surface-bucket-2")},
		{what: "POST 405", request: "POST " + b, status: 405, code: "method_not_allowed", answer: h("Allow", "GET, HEAD, PUT, DELETE, OPTIONS")},
		{what: "GET 200", request: "GET " + b, status: 200, answer: jsonAnswer, content: `{"bucket_id":"surface-buckets","streams":0,"created_at_ms":0}`},
		{what: "list 200, empty", request: "GET " + b + "/streams", status: 200, answer: jsonAnswer, content: page("", "null", false)},
	})
	for path, header := range map[string][]string{
		"/%C3%A4": h("Content-Type", plain), "/a": h("Content-Type", plain), "/B": h("Content-Type", jsonType, "Stream-Closed", "true"),
	} {
		if r := s.send(t, "PUT", b+path, row{header: header, body: map[string]string{"/%C3%A4": "abc", "/B": "[1,2]"}[path]}); r.status != 201 {
			t.Fatal(r)
		}
	}
	s.run([]row{
		{what: "GET 200 counts live streams", request: "GET " + b, status: 200, answer: jsonAnswer, content: `{"bucket_id":"surface-buckets","streams":3,"created_at_ms":0}`},
		{what: "list in byte order", request: "GET " + b + "/streams", status: 200, answer: jsonAnswer, content: page("", `"ä"`, false, upper, first, umlaut)},
		{what: "list with a limit", request: "GET " + b + "/streams?limit=2", status: 200, answer: jsonAnswer, content: page("", `"a"`, true, upper, first)},
		{what: "list after", request: "GET " + b + "/streams?limit=2&after=a", status: 200, answer: jsonAnswer, content: page("", `"ä"`, false, umlaut)},
		{what: "list after the last", request: "GET " + b + "/streams?after=%C3%A4", status: 200, answer: jsonAnswer, content: page("", "null", false)},
		{what: "list with a prefix", request: "GET " + b + "/streams?prefix=a", status: 200, answer: jsonAnswer, content: page("a", `"a"`, false, first)},
		{what: "list with the most", request: "GET " + b + "/streams?limit=1000&prefix=%C3%A4", status: 200, answer: jsonAnswer, content: page("ä", `"ä"`, false, umlaut)},
		{what: "list 400, a prefix that is no UTF-8", request: "GET " + b + "/streams?prefix=%C3", status: 400, code: "invalid_parameter"},
		{what: "list 400, limit 0", request: "GET " + b + "/streams?limit=0", status: 400, code: "invalid_parameter"},
		{what: "list 400, limit 1001", request: "GET " + b + "/streams?limit=1001", status: 400, code: "invalid_parameter"},
		{what: "list 400, an empty limit", request: "GET " + b + "/streams?limit=", status: 400, code: "invalid_parameter"},
		{what: "list 400, a repeated limit", request: "GET " + b + "/streams?limit=1&limit=1", status: 400, code: "repeated_parameter"},
		{what: "DELETE 409", request: "DELETE " + b, status: 409, code: "bucket_not_empty"},
	})
	for _, path := range []string{"/%C3%A4", "/a", "/B"} {
		if r := s.send(t, "DELETE", b+path, row{}); r.status != 204 {
			t.Fatal(r)
		}
	}
	s.run([]row{
		{what: "a stream that has expired", request: "PUT " + b + "/gone", header: h("Stream-TTL", "0"), status: 201, answer: with(
			h("Location", "$base/ds"+b+"/gone", "Content-Type", "application/octet-stream"), appended("", 0, 0, 0, 0))},
		{what: "is not listed", request: "GET " + b + "/streams", status: 200, answer: jsonAnswer, content: page("", "null", false)},
		{what: "nor keeps its bucket: DELETE 204", request: "DELETE " + b, status: 204},
		{what: "GET 404 after it", request: "GET " + b, status: 404, code: "bucket_not_found"},
		{what: "and no stream is left", request: "GET " + b + "/a", status: 404, code: "bucket_not_found"},
	})
}
