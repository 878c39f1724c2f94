package layout_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The bounds of size, in lines. A file or function that outgrows them wants to be
// split, not the bound to be raised.
const (
	maxFileLines     = 600
	maxTestFileLines = 800
	maxFuncLines     = 120
)

// helpers are the packages that exist for tests, so that only they may import
// package testing outside of a _test file.
var helpers = []string{"vfstest", "enginetest", "storetest", "daemontest"}

// pure are the packages that start no goroutine and read no clock: what they do
// follows from what they are given.
var pure = []string{"engine/core", "index", "protocol", "wal/record", "server/http1"}

// unfinished are the words by which a piece of work says that it is not done.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

// undocumented are methods whose meaning is that of the interface they belong to.
var undocumented = []string{"Error", "Unwrap", "String", "Len", "Less", "Swap"}

// source is one Go file.
type source struct {
	path string // from the module root
	dir  string
	test bool
	fset *token.FileSet
	ast  *ast.File
}

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// where is a position as an editor understands it.
func (s *source) where(p token.Pos) string { return fmt.Sprintf("%s:%d", s.path, s.line(p)) }

// sources parses every Go file of the module, whatever its build tags.
func sources(t *testing.T) []*source {
	t.Helper()
	const root = "../.."
	var all []*source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "node_modules" || name == "testdata" || path != root && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, &source{
			path: filepath.ToSlash(rel), dir: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(name, "_test.go"),
			fset: fset, ast: f,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files")
	}
	return all
}

func TestStyle(t *testing.T) {
	all := sources(t)
	checkPackageDocs(t, all)
	for _, s := range all {
		checkSize(t, s)
		checkComments(t, s)
		checkImports(t, s)
		checkCalls(t, s)
		if !s.test {
			checkExported(t, s)
		}
	}
}

// checkPackageDocs sees to it that a package has one doc comment, in one file, which
// begins as go doc expects. Two files may have the same one when build tags choose
// between them.
func checkPackageDocs(t *testing.T, all []*source) {
	docs := map[string]map[string]bool{}
	for _, s := range all {
		if s.test {
			continue
		}
		if docs[s.dir] == nil {
			docs[s.dir] = map[string]bool{}
		}
		if s.ast.Doc == nil {
			continue
		}
		text := s.ast.Doc.Text()
		docs[s.dir][text] = true
		want := "Package " + s.ast.Name.Name + " "
		if s.ast.Name.Name == "main" {
			want = "Command " + filepath.Base(s.dir) + " "
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package doc must begin with %q", s.where(s.ast.Package), want)
		}
	}
	for dir, d := range docs {
		if len(d) != 1 {
			t.Errorf("%s has %d package docs, not one", dir, len(d))
		}
	}
}

func checkSize(t *testing.T, s *source) {
	limit := maxFileLines
	if s.test {
		limit = maxTestFileLines
	}
	if n := s.line(s.ast.FileEnd); n > limit {
		t.Errorf("%s has %d lines, more than %d", s.path, n, limit)
	}
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, more than %d", s.where(f.Pos()), f.Name.Name, n, maxFuncLines)
			}
		}
	}
}

func checkComments(t *testing.T, s *source) {
	for _, g := range s.ast.Comments {
		for _, c := range g.List {
			if w := unfinished.FindString(c.Text); w != "" {
				t.Errorf("%s: %s: do it, or write down why not", s.where(c.Pos()), w)
			}
		}
	}
}

func checkImports(t *testing.T, s *source) {
	if s.test || slices.Contains(helpers, filepath.Base(s.dir)) {
		return
	}
	for _, im := range s.ast.Imports {
		if path := strings.Trim(im.Path.Value, `"`); under(path, "testing") {
			t.Errorf("%s: %s has no place in the program", s.where(im.Pos()), path)
		}
	}
}

// checkCalls looks for what waits by the clock in tests, and for goroutines and
// clocks in packages that are pure.
func checkCalls(t *testing.T, s *source) {
	inTest := s.test || slices.Contains(helpers, filepath.Base(s.dir))
	isPure := !s.test && slices.Contains(pure, s.dir)
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && isName(f.X, "synctest") && f.Sel.Name == "Test" {
				return false // time in there is not the clock's
			}
		case *ast.GoStmt:
			if isPure {
				t.Errorf("%s: %s starts no goroutines", s.where(n.Pos()), s.dir)
			}
		case *ast.SelectorExpr:
			if !isName(n.X, "time") {
				break
			}
			if inTest && n.Sel.Name == "Sleep" {
				t.Errorf("%s: time.Sleep: wait for what you wait for, or use testing/synctest", s.where(n.Pos()))
			}
			if isPure && (n.Sel.Name == "Now" || n.Sel.Name == "Since" || n.Sel.Name == "Until") {
				t.Errorf("%s: %s has no clock", s.where(n.Pos()), s.dir)
			}
		}
		return true
	})
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// checkExported sees to it that every exported name has a comment: its own, that of
// its group, or one at the end of its line.
func checkExported(t *testing.T, s *source) {
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && receiverExported(d) && (d.Recv == nil || !slices.Contains(undocumented, d.Name.Name)) {
				t.Errorf("%s: %s is exported and has no comment", s.where(d.Pos()), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				checkSpec(t, s, d, spec)
			}
		}
	}
}

func checkSpec(t *testing.T, s *source, d *ast.GenDecl, spec ast.Spec) {
	var names []*ast.Ident
	documented := d.Doc != nil
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		names = []*ast.Ident{spec.Name}
		documented = documented || spec.Doc != nil || spec.Comment != nil
	case *ast.ValueSpec:
		names = spec.Names
		documented = documented || spec.Doc != nil || spec.Comment != nil
	}
	for _, name := range names {
		if name.IsExported() && !documented {
			t.Errorf("%s: %s is exported and has no comment", s.where(name.Pos()), name.Name)
		}
	}
}

// receiverExported reports whether a method can be seen from outside at all.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	x := d.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.IsExported()
		default:
			return true
		}
	}
}
