//go:build e2e

// Package openapi holds the OpenAPI document against the binary: every operation that
// is documented is driven, each request and each answer is validated, and what the
// protocol package knows but the document does not is an error.
//
// It is a module of its own, since it needs an OpenAPI library that the daemon does
// not.
package openapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/yaml"

	"github.com/snakream/snakream/protocol"
)

const (
	root       = "../.." // the daemon's module, seen from here
	source     = root + "/docs/openapi.yaml"
	served     = root + "/server/openapi.json"
	pagePrefix = "https://github.com/snakream/snakream/blob/main/"
)

var update = flag.Bool("update", false, "write "+served+" anew from "+source)

// operation is one documented operation.
type operation struct {
	*openapi3.Operation
	method, path string
	item         *openapi3.PathItem
}

// document is docs/openapi.yaml.
type document struct {
	*openapi3.T
	operations map[string]*operation // by operationId
}

func load(t *testing.T) *document {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !doc.IsOpenAPI31OrLater() {
		t.Fatalf("the document is OpenAPI %s", doc.OpenAPI)
	}
	d := &document{T: doc, operations: map[string]*operation{}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if d.operations[op.OperationID] != nil {
				t.Errorf("operationId %s is there twice", op.OperationID)
			}
			d.operations[op.OperationID] = &operation{op, method, path, item}
		}
	}
	return d
}

// ids returns the ids of all operations, sorted.
func (d *document) ids() []string { return slices.Sorted(maps.Keys(d.operations)) }

// parameters returns the parameters of op, those of its path included.
func (op *operation) parameters() (all []*openapi3.Parameter) {
	for _, list := range []openapi3.Parameters{op.item.Parameters, op.Parameters} {
		for _, p := range list {
			all = append(all, p.Value)
		}
	}
	return all
}

// parameter finds a parameter of op; nil when there is none.
func (op *operation) parameter(in, name string) *openapi3.Parameter {
	for _, p := range op.parameters() {
		if p.In == in && strings.EqualFold(p.Name, name) {
			return p
		}
	}
	return nil
}

// TestServedForm checks that the server's JSON is the document, to the byte.
func TestServedForm(t *testing.T) {
	load(t)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	form, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, form); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(served, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(served)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not the JSON form of %s: write it anew with go test -tags e2e -run TestServedForm -update", served, source)
	}
}

// TestPages checks that each operation leads to its page, and that the pages know no
// problem codes but those of the protocol, each at its own status.
func TestPages(t *testing.T) {
	d := load(t)
	for _, id := range d.ids() {
		docs := d.operations[id].ExternalDocs
		if docs == nil {
			t.Errorf("%s has no externalDocs", id)
			continue
		}
		page, ok := strings.CutPrefix(docs.URL, pagePrefix)
		if !ok {
			t.Errorf("%s has its page at %s", id, docs.URL)
		}
		if _, err := os.Stat(filepath.Join(root, page)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	pages, err := filepath.Glob(root + "/docs/operations/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, filepath.Base(page), string(text))
	}
}

var (
	refusal  = regexp.MustCompile(`^\| ([45][0-9, ]*) \| (.*) \|$`) // a row about answers that refuse
	longName = regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`")
)

// checkRows checks the codes in the rows of a page that are about refusals.
func checkRows(t *testing.T, page, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		row := refusal.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		for _, name := range longName.FindAllStringSubmatch(row[2], -1) {
			if !slices.ContainsFunc(protocol.Codes(), func(c protocol.CodeInfo) bool {
				return c.Code == name[1] && strings.Contains(row[1], strconv.Itoa(c.Status))
			}) {
				t.Errorf("%s: there is no code %s with status %s", page, name[1], row[1])
			}
		}
	}
}

// TestCodes checks that the document knows every problem code of the protocol, at its
// own status, and no other.
func TestCodes(t *testing.T) {
	d := load(t)
	documented := map[string]bool{} // "status code"
	elsewhere := map[string]bool{}  // the codes of default responses
	for _, id := range d.ids() {
		for status, response := range d.operations[id].Responses.Map() {
			for _, code := range codesOf(response.Value) {
				if status == "default" {
					elsewhere[code] = true
				} else {
					documented[status+" "+code] = true
				}
			}
		}
	}
	known := map[string]bool{}
	for _, c := range protocol.Codes() {
		known[c.Code] = true
		key := fmt.Sprint(c.Status, " ", c.Code)
		if !documented[key] && !elsewhere[c.Code] {
			t.Errorf("%s (%d) is nowhere in the document", c.Code, c.Status)
		}
		delete(documented, key)
	}
	for key := range documented {
		t.Errorf("the document has %s, which the protocol has not at that status", key)
	}
	for code := range elsewhere {
		if !known[code] {
			t.Errorf("the document has %s, which the protocol has not", code)
		}
	}
}

// codesOf returns the problem codes that a response may have; none when it is not a
// problem.
func codesOf(r *openapi3.Response) (codes []string) {
	media := r.Content["application/problem+json"]
	if media == nil {
		return nil
	}
	var collect func(s *openapi3.SchemaRef)
	collect = func(s *openapi3.SchemaRef) {
		if s == nil || s.Value == nil {
			return
		}
		if code := s.Value.Properties["code"]; code != nil {
			for _, v := range code.Value.Enum {
				codes = append(codes, v.(string))
			}
		}
		for _, part := range s.Value.AllOf {
			collect(part)
		}
	}
	collect(media.Schema)
	return codes
}
