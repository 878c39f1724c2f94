//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// codeRow is one line of the table of problem codes in docs/errors.md.
type codeRow struct {
	code, status, outcome, retry string
}

// codeTable reads that table.
func codeTable(t *testing.T) (rows []codeRow) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		_, code, anchored := strings.Cut(line, "</a>`")
		if !anchored || len(cells) != 7 {
			continue
		}
		code, _, _ = strings.Cut(code, "`")
		rows = append(rows, codeRow{code, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[4]), strings.TrimSpace(cells[5])})
	}
	if len(rows) < 50 {
		t.Fatalf("%d codes in docs/errors.md", len(rows))
	}
	return rows
}

// undriven are the codes that this file does not make the server answer, and why.
var undriven = reasons(map[string][]string{
	"a write that arrives during a stop finds a closed connection; TestField80Shutdown sees it end live reads": {"draining"},
	"needs a disk that fails: test/trace":                     {"unavailable"},
	"would be a fault of the server":                          {"internal"},
	"needs a damaged file: TestField148ErrorsTellNothing":     {"range_damaged"},
	"need an object store: server's TestCold… and TestFenced": {"cold_unavailable", "fenced"},
	"needs a delete that has not ended: the tests of buckets": {"bucket_closing"},
	"belongs to snapshots, which have tests of their own": {
		"offset_trimmed", "record_trimmed", "snapshot_not_found", "snapshot_not_boundary", "snapshot_beyond_tail", "snapshot_below_earliest", "snapshot_stale",
		"snapshot_conflict", "snapshot_too_large", "snapshot_is_current", "digest_mismatch", "range_not_satisfiable",
		"retention_behind", "retention_not_boundary", "retention_above_snapshot",
	},
})

// reasons turns a map of codes by reason around.
func reasons(codes map[string][]string) map[string]string {
	byCode := map[string]string{}
	for reason, list := range codes {
		for _, code := range list {
			byCode[code] = reason
		}
	}
	return byCode
}

// absent is the content of a stream that does not exist.
const absent = "\x00"

// attempt is one request that got a certain code, and what its stream was before it.
type attempt struct {
	r       answer
	stream  string
	content string
	body    string // what the request would have added
}

// outcomes collects attempts on one server.
type outcomes struct {
	*field
	attempts map[string][]attempt // by code
}

// try sends a request about a stream that holds content, and notes what became of it.
func (o *outcomes) try(code, content, method, stream, body string, header ...string) answer {
	o.Helper()
	path, _, _ := strings.Cut(stream, "?")
	if method == "POST" && !hasHeader(header, "Content-Type") {
		header = append(header, "Content-Type", plain)
	}
	r, err := o.once(method, stream, body, header)
	if err != nil {
		o.Errorf("%s: %v", code, err)
		return r
	}
	o.note(code, attempt{r, path, content, body})
	return r
}

// grown tells that a stream holds something else by now.
func (o *outcomes) grown(stream, content string) {
	for _, attempts := range o.attempts {
		for i := range attempts {
			if attempts[i].stream == stream {
				attempts[i].content = content
			}
		}
	}
}

func hasHeader(header []string, name string) bool {
	for i := 0; i < len(header); i += 2 {
		if header[i] == name {
			return true
		}
	}
	return false
}

// tryRaw is try with the octets of the whole request.
func (o *outcomes) tryRaw(code, content, stream, body, octets string) {
	o.Helper()
	w := o.dial()
	w.send("%s", octets)
	r, err := w.try("POST")
	if err != nil {
		o.Errorf("%s: %v", code, err)
		return
	}
	o.note(code, attempt{r, stream, content, body})
}

func (o *outcomes) note(code string, a attempt) {
	o.Helper()
	if got := a.r.code(); got != code {
		o.Errorf("want %s, got %s: %v", code, got, a.r)
		return
	}
	o.attempts[code] = append(o.attempts[code], a)
}

// stays makes sure that each stream is what the outcomes of the attempts on it allow.
func (o *outcomes) stays(table map[string]codeRow) {
	o.Helper()
	for code, attempts := range o.attempts {
		for _, a := range attempts {
			if a.stream == "" {
				continue
			}
			r, err := o.once("GET", a.stream, "", nil)
			if err != nil {
				o.Fatal(err)
			}
			content := r.body
			switch r.status {
			case http.StatusNotFound, http.StatusGone:
				content = absent
			case http.StatusOK:
			default:
				o.Fatalf("%s: %v", code, r)
			}
			asBefore := content == a.content
			switch outcome := table[code].outcome; outcome {
			case "refused", "–", "repeat":
				if !asBefore {
					o.Errorf("%s is %s, and the stream was %.80q and is %.80q", code, outcome, a.content, content)
				}
				if outcome == "repeat" && strings.Count(content, a.body) != 1 {
					o.Errorf("%s is a repeat, and %q is %d times in the stream", code, a.body, strings.Count(content, a.body))
				}
			case "unknown":
				if !asBefore && content != a.content+a.body {
					o.Errorf("%s is unknown, and the stream was %.80q and is %.80q", code, a.content, content)
				}
			default:
				o.Errorf("%s: docs/errors.md calls its outcome %q", code, outcome)
			}
		}
	}
}

// formed makes sure that the answers are those that docs/errors.md describes.
func (o *outcomes) formed(table map[string]codeRow) {
	o.Helper()
	for code, attempts := range o.attempts {
		row := table[code]
		for _, a := range attempts {
			r := a.r
			retry, wait := "", strings.Fields(row.retry)
			if len(wait) == 2 {
				retry = wait[0]
			}
			o.has(r, "Content-Type", "application/problem+json", "Cache-Control", "no-store", "X-Content-Type-Options", "nosniff",
				"Access-Control-Allow-Origin", "*", "Retry-After", retry)
			if strconv.Itoa(r.status) != row.status || !strings.Contains(r.body, `"status":`+row.status+",") {
				o.Errorf("%s: status %d, the table says %s: %s", code, r.status, row.status, r.body)
			}
			for _, member := range []string{`"type":"http`, "#" + code + `"`, `"title":"`, `"detail":"`} {
				if !strings.Contains(r.body, member) {
					o.Errorf("%s: no %s in %s", code, member, r.body)
				}
			}
			// A 4xx refuses, 408 and closed_duplicate excepted, and so do our 429, 503 and
			// 507: the status and the code alone tell it.
			refuses := r.status/100 == 4 && r.status != http.StatusRequestTimeout && code != "closed_duplicate" || r.status == 503 || r.status == 507
			if row.outcome != "–" && refuses != (row.outcome == "refused") {
				o.Errorf("%s has the status %d and is %s", code, r.status, row.outcome)
			}
		}
	}
}

// Every code of docs/errors.md is driven, and the stream looked at afterwards: what is
// called refused is not stored, then or later or after a crash, what is called a repeat
// is stored once.
func TestOutcomesOfRefusals(t *testing.T) {
	t.Parallel()
	table := map[string]codeRow{}
	for _, row := range codeTable(t) {
		table[row.code] = row
	}
	// One half of a body is sent first: it takes ten seconds until it is given up.
	var servers []*outcomes
	server := func(flags ...string) *outcomes {
		d := newDaemon(t, append([]string{"--wal-file-bytes", "2MiB", "--min-free-disk", "16MiB"}, flags...)...)
		d.start(t)
		o := &outcomes{newField(t, d), map[string][]attempt{}}
		servers = append(servers, o)
		return o
	}
	small := server("--max-body-bytes", "64KiB", "--max-producers-per-stream", "1", "--max-header-bytes", "16KiB")
	late, lateStream := small.dial(), small.create(plain)
	late.head("POST", target(lateStream), "Content-Type: text/plain", "Content-Length: 100")
	late.send("half a body")

	small.driveTransport()
	small.drivePaths()
	small.driveHeaders()
	small.driveReads()
	small.driveAppends()
	small.driveProducers()
	small.driveCreates()
	small.driveExtensions()
	server("--max-state-bytes", "1MiB", "--max-body-bytes", "64KiB").driveStateFull()
	server("--max-body-bytes", "1MiB", "--max-inflight-body-bytes", "1MiB").driveOverloaded()
	server("--max-body-bytes", "64KiB").driveDiskFull()
	server("--max-body-bytes", "64KiB").driveHistory()

	r, err := late.try("POST")
	if err != nil {
		t.Error(err)
	}
	small.note("request_timeout", attempt{r, lateStream, "", "half a body"})

	driven := map[string]bool{}
	for _, o := range servers {
		o.formed(table)
		o.stays(table)
		o.restart()
		o.stays(table)
		for code := range o.attempts {
			driven[code] = true
		}
	}
	for code := range table {
		if reason, not := undriven[code]; driven[code] == not {
			t.Errorf("%s is driven: %v; declared as not: %q", code, driven[code], reason)
		}
	}
}

// plainWith makes a stream of text with some content.
func (o *outcomes) plainWith(content string) string {
	o.Helper()
	s := o.create(plain)
	if content != "" {
		o.text(s, content)
	}
	return s
}

func (o *outcomes) driveTransport() {
	s := o.plainWith("before.")
	raw := func(code, line, fields, body string) {
		o.Helper()
		o.tryRaw(code, "before.", s, body, line+"\r\nHost: x\r\nContent-Type: text/plain\r\n"+fields+"\r\n"+body)
	}
	post := "POST " + target(s) + " HTTP/1.1"
	raw("malformed_request", post, "Content-Length: 5\r\nContent-Length: 6\r\n", "after")
	raw("malformed_request", post, "Transfer-Encoding: chunked\r\n", "5\r\nafter\r\nx\r\n\r\n")
	raw("body_too_large", post, "Content-Length: 100000\r\n", strings.Repeat("x", 100_000))
	raw("body_too_large", post, "Transfer-Encoding: chunked\r\n", "186a0\r\n"+strings.Repeat("x", 100_000)+"\r\n0\r\n\r\n")
	raw("target_too_long", "POST "+target(s)+"?"+strings.Repeat("x", 9000)+" HTTP/1.1", "Content-Length: 5\r\n", "after")
	raw("expectation_failed", post, "Content-Length: 5\r\nExpect: miracles\r\n", "after")
	raw("head_too_large", post, "Content-Length: 5\r\nX-Long: "+strings.Repeat("x", 20_000)+"\r\n", "after")
	raw("head_too_large", post, "Content-Length: 5\r\n"+strings.Repeat("X: y\r\n", 200), "after")
	raw("transfer_coding_not_supported", post, "Transfer-Encoding: gzip, chunked\r\n", "5\r\nafter\r\n0\r\n\r\n")
	raw("http_version_not_supported", "POST "+target(s)+" HTTP/2.0", "Content-Length: 5\r\n", "after")
}

func (o *outcomes) drivePaths() {
	s := o.plainWith("before.")
	raw := func(code, method, path string) {
		o.Helper()
		o.tryRaw(code, "before.", s, "after", method+" "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nafter")
	}
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		raw("bad_path", method, strings.Replace(target(s), "/stream/", "/stream//", 1))
		raw("bad_path", method, target(s)+"/..")
		raw("unknown_route", method, "/v2"+target(s))
	}
	raw("method_not_allowed", "PATCH", target(s))
	raw("bucket_not_found", "PUT", "/ds/nobody-made-it/x")
	missing := o.name()
	o.try("stream_not_found", absent, "POST", missing, "x")
	o.try("stream_not_found", absent, "DELETE", missing, "")
	held := o.plainWith("held.")
	o.forkOf(held)
	o.want(http.StatusNoContent, "DELETE", held, "")
	o.try("stream_gone", absent, "POST", held, "x")
	o.try("stream_gone", absent, "DELETE", held, "")
	o.try("name_held_by_forks", absent, "PUT", held, "x")
	o.try("fork_source_gone", absent, "PUT", o.name(), "x", "Stream-Forked-From", target(held))
}

func (o *outcomes) driveHeaders() {
	s := o.plainWith("before.")
	post := func(code, body string, header ...string) {
		o.Helper()
		o.try(code, "before.", "POST", s, body, header...)
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		o.try("incarnation_mismatch", "before.", method, s, "x", "Stream-Incarnation", "1", "Content-Type", plain)
	}
	post("precondition_failed", "x", "If-None-Match", "*")
	o.try("precondition_failed", "before.", "PUT", s, "x", "If-None-Match", "*", "Content-Type", plain)
	post("invalid_header", "x", "Stream-Seq", "")
	post("invalid_header", "x", tuple("", 0, 0)...)
	post("invalid_content_type", "x", "Content-Type", "undefined")
	post("missing_content_type", "x", "Content-Type", "")
	post("content_coding_not_supported", "x", "Content-Encoding", "gzip")
	post("empty_body", "")
	post("producer_incomplete", "x", "Producer-Id", "p")
	o.tryRaw("repeated_header", "before.", s, "x", "POST "+target(s)+" HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nStream-Seq: 1\r\nStream-Seq: 2\r\nContent-Length: 1\r\n\r\nx")
	put := func(code string, header ...string) {
		o.Helper()
		o.try(code, absent, "PUT", o.name(), "x", header...)
	}
	put("invalid_header", "Stream-TTL", "1e3")
	put("invalid_header", "Stream-Expires-At", "tomorrow")
	put("invalid_content_type", "Content-Type", "undefined")
	put("content_coding_not_supported", "Content-Encoding", "br")
	put("ttl_and_expires_at", "Stream-TTL", "60", "Stream-Expires-At", "2100-01-01T00:00:00Z")
	put("fork_headers_without_source", "Stream-Fork-Offset", "0")
	put("invalid_offset", "Stream-Forked-From", target(s), "Stream-Fork-Offset", "x")
}

func (o *outcomes) driveReads() {
	s := o.create(jsonType)
	o.post(s, `{"a":1}`)
	get := func(code, query string) {
		o.Helper()
		o.try(code, `[{"a":1}]`, "GET", s+"?"+query, "")
	}
	get("invalid_parameter", "offset=-1&live=x")
	get("invalid_parameter", "max_bytes=0")
	get("repeated_parameter", "offset=0&offset=0")
	get("invalid_offset", "offset=x")
	get("offset_required", "live=sse")
	get("offset_beyond_tail", "offset=1000")
	get("offset_not_boundary", "offset=1")
}

func (o *outcomes) driveAppends() {
	s := o.plainWith("before.")
	o.try("content_type_mismatch", "before.", "POST", s, "x", "Content-Type", "text/html")
	o.want(http.StatusNoContent, "POST", s, "seq.", "Content-Type", plain, "Stream-Seq", "m")
	o.grown(s, "before.seq.")
	o.try("stream_seq_regression", "before.seq.", "POST", s, "x", "Stream-Seq", "m")
	j := o.create(jsonType)
	o.try("invalid_json", "[]", "POST", j, "{", "Content-Type", jsonType)
	o.try("empty_array", "[]", "POST", j, "[]", "Content-Type", jsonType)
	o.try("invalid_json", absent, "PUT", o.name(), "{", "Content-Type", jsonType)
	closed := o.create(plain)
	o.want(http.StatusNoContent, "POST", closed, "end.", "Content-Type", plain, "Stream-Closed", "true")
	o.try("closed", "end.", "POST", closed, "x")
	o.try("closed", "end.", "POST", closed, "x", "Stream-Closed", "true")
	o.try("closed", "end.", "POST", closed, "x", tuple("p", 0, 0)...)
}

func (o *outcomes) driveProducers() {
	s := o.create(plain)
	write := func(code, content, body string, epoch, seq int) {
		o.Helper()
		o.try(code, content, "POST", s, body, tuple("p", epoch, seq)...)
	}
	o.produce(http.StatusOK, s, "first.", "p", 3, 0)
	const all = "first.second.last."
	write("stale_epoch", all, "x", 2, 0)
	write("epoch_needs_seq_zero", all, "x", 4, 1)
	write("sequence_gap", all, "x", 3, 2)
	o.try("too_many_producers", all, "POST", s, "x", tuple("another", 0, 0)...)
	o.produce(http.StatusOK, s, "second.", "p", 3, 1) // a refusal has moved nothing
	o.produce(http.StatusOK, s, "last.", "p", 3, 2, "Stream-Closed", "true")
	write("closed_duplicate", all, "first.", 3, 0)
	write("closed_duplicate", all, "second.", 3, 1)
	write("closed", all, "x", 3, 3)
}

func (o *outcomes) driveCreates() {
	s := o.plainWith("before.")
	for _, header := range [][]string{{"Content-Type", "text/html"}, {"Content-Type", plain, "Stream-TTL", "60"}, {"Content-Type", plain, "Stream-Closed", "true"}} {
		o.try("config_mismatch", "before.", "PUT", s, "x", header...)
	}
	fork := func(code, source string, header ...string) {
		o.Helper()
		o.try(code, absent, "PUT", o.name(), "x", append(header, "Stream-Forked-From", target(source))...)
	}
	fork("fork_source_not_found", o.name())
	fork("fork_offset_invalid", s, "Stream-Fork-Offset", "1000")
	fork("fork_offset_invalid", s, "Stream-Fork-Sub-Offset", "1")
	fork("fork_type_mismatch", s, "Content-Type", "text/html")
}

// driveExtensions is for what is not of the base protocol: records, attributes, batches,
// buckets.
func (o *outcomes) driveExtensions() {
	s := o.create(jsonType)
	o.post(s, `{"a":1}`)
	const content = `[{"a":1}]`
	o.try("record_mismatch", content, "POST", s, "1", "Content-Type", jsonType, "Stream-Record-Match", "0")
	o.try("exclusive_parameters", content, "GET", s+"?offset=0&record=0", "")
	o.try("record_beyond_tail", content, "GET", s+"?record=2", "")
	text := o.plainWith("text")
	o.try("record_view_not_json", "text", "GET", text+"?record=0&record_view=envelope", "")
	raw := func(code, method, path, body string, fields ...string) {
		o.Helper()
		o.tryRaw(code, "text", text, body, method+" /ds/"+path+" HTTP/1.1\r\nHost: x\r\n"+lines(fields)+fmt.Sprint("Content-Length: ", len(body))+"\r\n\r\n"+body)
	}
	const frame = "\x00\x00\x00\x01x"
	asText := "Content-Type: text/plain"
	raw("invalid_attrs", "PUT", text+"/attrs", `{"title":1}`, "Content-Type: application/json")
	raw("malformed_frames", "POST", text+"/append-batch", frame+"\x00\x00\x00\x05x", asText)
	raw("malformed_frames", "POST", text+"/append-batch", frame+"\x00\x00\x00\x00", asText)
	for _, field := range []string{"Stream-Seq: 1", "If-Match: *", "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0"} {
		raw("header_not_allowed", "POST", text+"/append-batch", frame, asText, field)
	}
	bucket, _, _ := strings.Cut(text, "/")
	raw("bucket_exists", "PUT", bucket, "")
	raw("bucket_not_empty", "DELETE", bucket, "")
	raw("bucket_not_found", "DELETE", "nobody-made-it", "")
}

// driveStateFull fills the memory for state with streams that have long names.
func (o *outcomes) driveStateFull() {
	s := o.plainWith("before.")
	long := strings.Repeat("n", 800)
	for i := 0; ; i++ {
		name := fmt.Sprintf("state/%s%d", long, i)
		r, err := o.once("PUT", name, "x", []string{"Content-Type", plain})
		if err == nil && r.status == http.StatusCreated && i < 5000 {
			continue
		}
		if err != nil {
			o.Fatal(err)
		}
		o.note("state_full", attempt{r, name, absent, "x"})
		break
	}
	o.try("state_full", "before.", "POST", s, "x", tuple("p", 0, 0)...)
	o.try("state_full", absent, "PUT", o.name(), "x", "Stream-Forked-From", target(s))
	o.text(s, "what adds no state is taken.")
	o.grown(s, "before.what adds no state is taken.")
}

// driveOverloaded has one body that is under way take all the memory for bodies.
func (o *outcomes) driveOverloaded() {
	first, second := o.plainWith("before."), o.plainWith("before.")
	const size = 1 << 20
	w := o.dial()
	w.head("POST", target(first), "Content-Type: text/plain", fmt.Sprint("Content-Length: ", size))
	w.send("%s", strings.Repeat("f", size/2))
	// It may take a moment until the server has seen the first one.
	o.eventually(wirePatience, "a second body is refused", func() bool {
		v := o.dial()
		defer v.conn.Close()
		v.head("POST", target(second), "Content-Type: text/plain", "Expect: 100-continue", fmt.Sprint("Content-Length: ", size))
		r := v.answer(0, "POST")
		if r.status == http.StatusContinue {
			return false // the connection is closed, and nothing stored
		}
		o.note("overloaded", attempt{r, second, "before.", ""})
		return true
	})
	w.send("%s", strings.Repeat("f", size/2))
	w.answer(http.StatusNoContent, "POST")
	o.holds(first, "before."+strings.Repeat("f", size))
}

// driveDiskFull restarts the server with a floor that no disk has.
func (o *outcomes) driveDiskFull() {
	s := o.plainWith("before.")
	gone := o.plainWith("x")
	o.client.CloseIdleConnections()
	o.daemon.stop(o.T)
	o.daemon.start(o.T, "--min-free-disk", strconv.Itoa(1<<60))
	o.try("disk_full", "before.", "POST", s, "x")
	o.try("disk_full", "before.", "POST", s, "x", tuple("p", 0, 0)...)
	o.try("disk_full", "before.", "POST", s, "", "Stream-Closed", "true")
	o.try("disk_full", absent, "PUT", o.name(), "x")
	o.try("disk_full", absent, "PUT", o.name(), "", "Stream-Forked-From", target(s))
	o.want(http.StatusNoContent, "DELETE", gone, "") // makes room
}

// What is no refusal either did it now, or had been done before.
func TestOutcomesOfSuccesses(t *testing.T) {
	f := onOwn(t)
	s := f.name()
	for _, step := range []struct {
		status  int
		method  string
		body    string
		header  []string
		content string
	}{
		{http.StatusCreated, "PUT", "made.", []string{"Content-Type", plain}, "made."},                                   // applied
		{http.StatusOK, "PUT", "made.", []string{"Content-Type", plain}, "made."},                                        // repeat
		{http.StatusOK, "PUT", "another body", []string{"Content-Type", plain}, "made."},                                 // repeat: its body is passed over
		{http.StatusNoContent, "POST", "a.", []string{"Content-Type", plain}, "made.a."},                                 // applied
		{http.StatusNoContent, "POST", "a.", []string{"Content-Type", plain}, "made.a.a."},                               // applied: nobody said that it was one write
		{http.StatusOK, "POST", "p.", tuple("p", 0, 0), "made.a.a.p."},                                                   // applied
		{http.StatusNoContent, "POST", "p.", tuple("p", 0, 0), "made.a.a.p."},                                            // repeat
		{http.StatusNoContent, "POST", "else", tuple("p", 0, 0), "made.a.a.p."},                                          // repeat: the tuple counts
		{http.StatusOK, "POST", "q.", with(tuple("p", 1, 0), []string{"Stream-Closed", "true"}), "made.a.a.p.q."},        // applied
		{http.StatusNoContent, "POST", "q.", with(tuple("p", 1, 0), []string{"Stream-Closed", "true"}), "made.a.a.p.q."}, // repeat
		{http.StatusNoContent, "POST", "", []string{"Stream-Closed", "true"}, "made.a.a.p.q."},                           // closed twice
		{http.StatusNoContent, "DELETE", "", nil, absent},
		{http.StatusNotFound, "DELETE", "", nil, absent},
	} {
		header := step.header
		if step.method == "POST" && !hasHeader(header, "Content-Type") {
			header = append(header, "Content-Type", plain)
		}
		f.want(step.status, step.method, s, step.body, header...)
		f.restart()
		if step.content == absent {
			f.want(http.StatusNotFound, "GET", s, "")
		} else {
			f.holds(s, step.content)
		}
	}
}
