//go:build e2e

package openapi

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/protocol"
)

// These tests hold the document against the protocol package, so that neither gets
// something that the other lacks. What the package does not export they find by asking
// it, or in its source.

// TestKinds checks that every kind of operation is documented.
func TestKinds(t *testing.T) {
	d := load(t)
	documented := map[protocol.Kind]bool{}
	for _, id := range d.ids() {
		op := d.operations[id]
		documented[op.parse(t, "", nil).Kind] = true
	}
	for kind, name := range kinds(t) {
		if !documented[kind] {
			t.Errorf("%s is not documented", name)
		}
	}
}

// kinds returns the names of the kinds of operation, out of the source.
func kinds(t *testing.T) map[protocol.Kind]string {
	t.Helper()
	names := map[protocol.Kind]string{}
	next := protocol.Kind(1)
	for _, decl := range parseFile(t, "operation.go").Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || len(group.Specs) == 0 {
			continue
		}
		first := group.Specs[0].(*ast.ValueSpec)
		if typ, ok := first.Type.(*ast.Ident); !ok || typ.Name != "Kind" {
			continue
		}
		for _, spec := range group.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				names[next] = name.Name
				next++
			}
		}
	}
	if names[protocol.KindCreate] != "KindCreate" || names[protocol.KindAppendBatch] != "KindAppendBatch" || len(names) < 19 {
		t.Fatalf("the kinds are not where they were: %v", names)
	}
	return names
}

func parseFile(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "protocol", name), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// parse gives a request of op to the protocol, with the examples of its required
// parameters.
func (op *operation) parse(t *testing.T, query string, fields []base.Field) *protocol.Operation {
	t.Helper()
	path := op.path
	for _, p := range op.parameters() {
		switch {
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", example(p), 1)
		case p.In == "query" && p.Required && query == "":
			query = p.Name + "=" + example(p)
		}
	}
	parsed := new(protocol.Operation)
	r := &protocol.Request{Method: []byte(op.method), Path: []byte(path), Query: []byte(query), Fields: fields, BodyLength: -1}
	if p := protocol.Parse(r, parsed); p != nil {
		t.Fatalf("%s %s: %v", op.method, path, p)
	}
	return parsed
}

// example returns the example of a parameter, the first by name when it has several.
func example(p *openapi3.Parameter) string {
	v := p.Example
	if v == nil {
		var names []string
		for name := range p.Examples {
			names = append(names, name)
		}
		slices.Sort(names)
		v = p.Examples[names[0]].Value.Value
	}
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// aside are request headers that OpenAPI has no parameters for, that belong to HTTP
// itself, or that no operation looks at.
var aside = []string{"Accept", "Authorization", "Content-Type"}

// TestParameters checks of each operation that it reads the headers and the query
// parameters that it is documented with, and no other. What it reads may not come
// twice; so it is sent twice.
func TestParameters(t *testing.T) {
	d := load(t)
	headers := requestHeaders(t, d)
	queries := queryNames(t)
	for _, id := range d.ids() {
		op := d.operations[id]
		if op.method == http.MethodOptions {
			continue
		}
		for name, value := range headers {
			reads, has := op.readsHeader(t, name, value), op.parameter("header", name) != nil
			if reads != has {
				t.Errorf("%s: the protocol reads %s: %v; the document has it: %v", id, name, reads, has)
			}
		}
		for name, value := range queries {
			if value == "" {
				t.Errorf("no operation is documented with the query parameter %s", name)
				continue
			}
			pair := name + "=" + value
			fault := op.parse(t, pair+"&"+pair, nil).Fault
			reads, has := fault != nil && fault.Code == "repeated_parameter" && fault.Field == name, op.parameter("query", name) != nil
			if reads != has {
				t.Errorf("%s: the protocol reads %s: %v; the document has it: %v", id, name, reads, has)
			}
		}
	}
	for _, id := range d.ids() {
		for _, p := range d.operations[id].parameters() {
			if _, ok := queries[p.Name]; p.In == "query" && !ok {
				t.Errorf("%s: the protocol knows no query parameter %s", id, p.Name)
			}
		}
	}
}

func (op *operation) readsHeader(t *testing.T, name, value string) bool {
	t.Helper()
	twice := func(value string) *protocol.Operation {
		f := base.Field{Name: []byte(name), Value: []byte(value)}
		return op.parse(t, "", []base.Field{f, f})
	}
	switch name { // these two may come in several lines
	case "If-Match":
		return twice(value).HasIfMatch
	case "If-None-Match":
		return len(twice(value).IfNoneMatch) > 0
	}
	fault := twice(value).Fault
	return fault != nil && fault.Code == "repeated_header" && strings.EqualFold(fault.Field, name)
}

// requestHeaders returns the request headers that a preflight allows and those that
// are documented, each with a valid value.
func requestHeaders(t *testing.T, d *document) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, id := range d.ids() {
		for _, p := range d.operations[id].parameters() {
			if p.In == "header" && p.Name != "Access-Control-Request-Headers" {
				all[http.CanonicalHeaderKey(p.Name)] = example(p)
			}
		}
	}
	fields := protocol.NewRenderer(protocol.Settings{}).Options(nil, new(protocol.Operation))
	for _, name := range listed(t, fields, "Access-Control-Allow-Headers") {
		if key := http.CanonicalHeaderKey(name); all[key] == "" && !slices.Contains(aside, name) {
			t.Errorf("no operation is documented with the request header %s", name)
		}
	}
	return all
}

// queryNames returns the names of all query parameters, each with a valid value, ""
// when the document has none.
func queryNames(t *testing.T) map[string]string {
	t.Helper()
	d, all := load(t), map[string]string{}
	ast.Inspect(parseFile(t, "query.go"), func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		if !ok {
			return true
		}
		if f.Name.Name != "paramOf" {
			return false
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CaseClause); ok {
				for _, x := range c.List {
					name, err := strconv.Unquote(x.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					all[name] = ""
				}
			}
			return true
		})
		return false
	})
	if len(all) == 0 {
		t.Fatal("the query parameters are not where they were")
	}
	for _, id := range d.ids() {
		for _, p := range d.operations[id].parameters() {
			if p.In == "query" {
				all[p.Name] = example(p)
			}
		}
	}
	return all
}

// TestExposed checks that what scripts may read of an answer is what is documented.
func TestExposed(t *testing.T) {
	d := load(t)
	documented := map[string]bool{}
	for _, id := range d.ids() {
		for _, r := range d.operations[id].Responses.Map() {
			for name := range r.Value.Headers {
				documented[name] = true
			}
		}
	}
	fields := protocol.NewRenderer(protocol.Settings{}).Options(nil, new(protocol.Operation))
	exposed := listed(t, fields, "Access-Control-Expose-Headers")
	for _, name := range exposed {
		if !documented[name] {
			t.Errorf("%s is exposed and not documented", name)
		}
	}
	for name := range documented {
		ours := strings.HasPrefix(name, "Stream-") || strings.HasPrefix(name, "Producer-")
		if ours && !slices.Contains(exposed, name) {
			t.Errorf("%s is documented and not exposed", name)
		}
	}
}

// listed returns the elements of a header that is a list, out of header lines.
func listed(t *testing.T, fields []byte, name string) []string {
	t.Helper()
	for line := range strings.Lines(string(fields)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.Split(strings.TrimSpace(value), ", ")
		}
	}
	t.Fatalf("no %s in %q", name, fields)
	return nil
}
