//go:build e2e

package openapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/snakream/snakream/test/openapi/internal/daemon"
)

// driver sends requests to the binary and validates them, and the answers, against
// the document.
type driver struct {
	*testing.T
	*document
	daemon *daemon.Daemon
	client *http.Client
	driven map[string]bool // "operationId status", and "operationId status code" of a refusal
}

func newDriver(t *testing.T, flags ...string) *driver {
	t.Helper()
	binary, err := daemon.Binary(root)
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(binary, t.TempDir(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &driver{T: t, document: load(t), daemon: d, driven: map[string]bool{}, client: &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// on makes d report to a subtest.
func (d *driver) on(t *testing.T) *driver {
	sub := *d
	sub.T = t
	return &sub
}

// request is one request to an operation.
type request struct {
	id     string            // operationId
	path   map[string]string // parameters, decoded
	query  string
	header http.Header
	body   string
	// against says that the document does not allow the request: not one of its
	// parameters, or not that value, or not that body.
	against bool
}

// to makes a request. The names and values of path parameters follow the operationId.
func to(id string, path ...string) request {
	r := request{id: id, path: map[string]string{}, header: http.Header{}}
	for i := 0; i < len(path); i += 2 {
		r.path[path[i]] = path[i+1]
	}
	return r
}

func (r request) ask(query string) request {
	r.query = query
	return r
}

func (r request) with(headers ...string) request {
	r.header = r.header.Clone()
	for i := 0; i < len(headers); i += 2 {
		r.header.Add(headers[i], headers[i+1])
	}
	return r
}

func (r request) send(contentType, body string) request {
	r.body = body
	if contentType == "" {
		return r
	}
	return r.with("Content-Type", contentType)
}

// bad marks a request that the document does not allow.
func (r request) bad() request {
	r.against = true
	return r
}

// answer is what came back.
type answer struct {
	*driver
	status int
	header http.Header
	body   string
}

// get returns a header that must be there.
func (a *answer) get(name string) string {
	a.Helper()
	v := a.header.Get(name)
	if v == "" {
		a.Fatalf("no %s in %v", name, a.header)
	}
	return v
}

// want sends r and ends the test unless the answer has that status and is as it is
// documented. Of a GET it sends the HEAD too, when that is the same operation without
// a body.
func (d *driver) want(status int, r request) *answer {
	d.Helper()
	op := d.operations[r.id]
	if op == nil {
		d.Fatalf("there is no operation %s", r.id)
	}
	a := d.exchange(op, r, status)
	head := op.item.Head
	if op.method == http.MethodGet && head != nil && !strings.HasPrefix(head.OperationID, "getStreamMetadata") {
		twin := r
		twin.id = head.OperationID
		if status == http.StatusPartialContent || status == http.StatusRequestedRangeNotSatisfiable {
			status = http.StatusOK // a range is for GET alone
		}
		d.exchange(d.operations[twin.id], twin, status)
	}
	return a
}

// refused sends r, which must be refused with that code.
func (d *driver) refused(status int, code string, r request) *answer {
	d.Helper()
	a := d.want(status, r)
	if d.operations[r.id].method == http.MethodHead {
		return a
	}
	var problem struct{ Code string }
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
		d.Fatalf("%s: %v in %q", r.id, err, a.body)
	}
	if problem.Code != code {
		d.Fatalf("%s %s: the code is %q, not %q: %s", r.id, r.query, problem.Code, code, a.body)
	}
	d.driven[fmt.Sprint(r.id, " ", status, " ", code)] = true
	return a
}

func (d *driver) exchange(op *operation, r request, status int) *answer {
	d.Helper()
	req := d.build(op, r)
	d.checkRequest(op, r, req)
	resp, err := d.client.Do(req)
	if err != nil {
		d.Fatalf("%s: %v", op.OperationID, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.Fatalf("%s: %v", op.OperationID, err)
	}
	a := &answer{d, resp.StatusCode, resp.Header, string(body)}
	if resp.StatusCode != status {
		d.Fatalf("%s %s %v: the status is %d, not %d: %s", op.OperationID, req.URL, r.header, resp.StatusCode, status, body)
	}
	d.driven[fmt.Sprint(op.OperationID, " ", status)] = true
	d.checkAnswer(op, r, a)
	return a
}

// build makes the HTTP request.
func (d *driver) build(op *operation, r request) *http.Request {
	d.Helper()
	raw, plain := op.path, op.path
	for name, value := range r.path {
		segments := strings.Split(value, "/")
		for i, s := range segments {
			segments[i] = url.PathEscape(s)
		}
		escaped := strings.Join(segments, "/")
		if name != "path" {
			escaped = url.PathEscape(value)
		}
		raw = strings.Replace(raw, "{"+name+"}", escaped, 1)
		plain = strings.Replace(plain, "{"+name+"}", value, 1)
	}
	req, err := http.NewRequestWithContext(d.Context(), op.method, "http://"+d.daemon.Listen, strings.NewReader(r.body))
	if err != nil {
		d.Fatal(err)
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = plain, raw, r.query
	req.Header = r.header.Clone()
	return req
}

// route is what the validator knows of op.
func (d *driver) route(op *operation, of *openapi3.Operation) *routers.Route {
	return &routers.Route{Spec: d.document.T, Path: op.path, PathItem: op.item, Method: op.method, Operation: of}
}

// checkRequest sees to it that the document allows r, or does not when it says so.
func (d *driver) checkRequest(op *operation, r request, req *http.Request) {
	d.Helper()
	clone := req.Clone(d.Context())
	clone.Body = io.NopCloser(strings.NewReader(r.body))
	err := d.undocumented(op, r)
	if err == nil {
		err = openapi3filter.ValidateRequest(d.Context(), &openapi3filter.RequestValidationInput{
			Request: clone, PathParams: r.path, QueryParams: clone.URL.Query(), Route: d.route(op, op.Operation),
			Options: &openapi3filter.Options{SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: true},
		})
	}
	switch {
	case r.against && err == nil:
		d.Fatalf("%s: the document allows %v ? %v %q", op.OperationID, r.header, r.query, r.body)
	case !r.against && err != nil:
		d.Fatalf("%s: the document does not allow the request: %v", op.OperationID, err)
	}
}

// undocumented finds headers and query parameters that op is not documented with.
func (d *driver) undocumented(op *operation, r request) error {
	for name, lines := range r.header {
		switch name {
		case "If-Match", "If-None-Match", "Accept", "Content-Type", "Content-Encoding", "Access-Control-Request-Method":
		default:
			if len(lines) > 1 {
				return fmt.Errorf("%s is there %d times", name, len(lines))
			}
		}
		switch name {
		case "Accept", "Content-Type", "Access-Control-Request-Method":
		default:
			if op.parameter("header", name) == nil {
				return fmt.Errorf("there is no header %s", name)
			}
		}
	}
	values, err := url.ParseQuery(r.query)
	for name, v := range values {
		if op.parameter("query", name) == nil {
			return fmt.Errorf("there is no parameter %s", name)
		}
		if len(v) > 1 {
			return fmt.Errorf("%s is there %d times", name, len(v))
		}
	}
	return err
}

// framing are the headers of every HTTP message. What Content-Type may be, the content
// of a response says.
var framing = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Transfer-Encoding"}

// checkAnswer validates status, headers and body.
func (d *driver) checkAnswer(op *operation, r request, a *answer) {
	d.Helper()
	where := fmt.Sprintf("%s → %d", op.OperationID, a.status)
	documented := op.Responses.Status(a.status)
	if documented == nil {
		documented = op.Responses.Default()
	}
	common := d.common()
	for name := range a.header {
		if slices.Contains(framing, name) || common[name] != nil {
			continue
		}
		if !slices.ContainsFunc(names(documented.Value.Headers), func(n string) bool { return strings.EqualFold(n, name) }) {
			d.Errorf("%s: the header %s is not documented", where, name)
		}
	}
	// The validator passes over HEAD and redirects, and knows no headers that every
	// response has: so it gets an operation with one response, to a GET.
	response := *documented.Value
	response.Headers = openapi3.Headers{}
	for _, set := range []openapi3.Headers{common, documented.Value.Headers} {
		for name, h := range set {
			response.Headers[name] = h
		}
	}
	single := *op.Operation
	single.Responses = openapi3.NewResponses(openapi3.WithStatus(http.StatusOK, &openapi3.ResponseRef{Value: &response}))
	head := op.method == http.MethodHead || a.body == "" && len(response.Content) == 0
	err := openapi3filter.ValidateResponse(d.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: http.MethodGet}, Route: d.route(op, &single),
		},
		Status: http.StatusOK, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)),
		Options: &openapi3filter.Options{ExcludeResponseBody: head},
	})
	if err != nil {
		d.Errorf("%s: %v\n%v\n%s", where, err, a.header, a.body)
	}
	d.checkBody(where, op, a)
}

// checkBody checks what the validator cannot see in a body.
func (d *driver) checkBody(where string, op *operation, a *answer) {
	d.Helper()
	if op.method == http.MethodHead {
		if a.body != "" {
			d.Errorf("%s: a HEAD has the body %q", where, a.body)
		}
		return
	}
	switch mediaType, _, _ := strings.Cut(a.header.Get("Content-Type"), ";"); mediaType {
	case "application/problem+json":
		var problem struct{ Status int }
		if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != a.status {
			d.Errorf("%s: the problem has the status %d, %v", where, problem.Status, err)
		}
	case "text/event-stream":
		for _, e := range events(a.body) {
			switch e.name {
			case "control":
				d.conforms(where, "ControlEvent", e.data)
			case "end":
				d.conforms(where, "Problem", e.data)
			}
		}
	case "application/vnd.durable-stream-records+ndjson":
		for line := range strings.Lines(a.body) {
			d.conforms(where, "Envelope", line)
		}
	}
}

// conforms validates a JSON text against a schema of the document.
func (d *driver) conforms(where, schema, text string) {
	d.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		d.Errorf("%s: %v in %q", where, err, text)
		return
	}
	if err := d.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		d.Errorf("%s: %v in %q", where, err, text)
	}
}

// event is one Server-Sent Event.
type event struct{ name, data, id string }

// events parses an event stream.
func events(text string) (all []event) {
	for block := range strings.SplitSeq(text, "\n\n") {
		var e event
		var data []string
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				e.name = value
			case "data":
				data = append(data, value)
			case "id":
				e.id = value
			}
		}
		if e.data = strings.Join(data, "\n"); e.name != "" {
			all = append(all, e)
		}
	}
	return all
}

// common returns the headers that every answer has.
func (d *driver) common() openapi3.Headers {
	d.Helper()
	list, ok := d.Extensions["x-common-headers"].([]any)
	if !ok || len(list) == 0 {
		d.Fatal("no x-common-headers")
	}
	headers := openapi3.Headers{}
	for _, name := range list {
		headers[name.(string)] = d.Components.Headers[name.(string)]
	}
	return headers
}

func names[V any](m map[string]V) (all []string) {
	for name := range m {
		all = append(all, name)
	}
	return all
}
