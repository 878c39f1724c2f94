// Package layout_test keeps the shape of the tree: which package may import
// which, that every package says what it is for, and the rules of style that a
// program can check.
//
// The tables below are policy; a change to them is a design decision, not a fix.
package layout_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// policy holds one line per package: the packages of this module it may import,
// then +path for a module outside the standard library that it may import, and
// !path for a standard package (or tree of packages) that it must not import.
// A line comes with its package: leave out those that do not exist yet.
const policy = `
internal/base:         !os !net !sync !time
internal/bin:          internal/base +github.com/cespare/xxhash/v2 !os !net !sync
internal/invariants:
internal/uring:        +golang.org/x/sys !net !time
internal/vfs:          internal/base +golang.org/x/sys !net
internal/vfs/overlay:  internal/vfs !net
internal/vfs/vfstest:  internal/base internal/vfs !net
protocol:              internal/base !os !net !sync
wal/record:            internal/base internal/bin !os !net !sync !time
wal:                   internal/base internal/bin internal/invariants internal/vfs !net
segment:               internal/base internal/bin internal/invariants internal/vfs !net
index:                 internal/base internal/bin internal/invariants +github.com/google/btree !os !net !sync !time
tiering:               internal/base +golang.org/x/time !os !net
tiering/dir:           tiering !net
tiering/s3:            tiering +github.com/aws
tiering/storetest:     tiering !os !net
tiering/tiertest:      tiering !os !net
engine/core:           index wal/record internal/base internal/invariants !os !net !sync !time
engine/memtable:       internal/base internal/invariants !os !net !time
engine/manifest:       internal/base internal/bin internal/vfs !os !net !time
engine/blob:           internal/base internal/bin internal/vfs segment !os !net !time
engine/cold:           tiering !os !net
engine/mirror:         engine/manifest internal/base internal/bin tiering !os !net !sync
engine/enginetest:     engine engine/blob engine/core engine/mirror wal/record tiering tiering/tiertest internal/base internal/bin internal/vfs internal/vfs/vfstest !net
engine/check:          engine engine/blob engine/manifest segment wal wal/record internal/base internal/vfs internal/vfs/overlay !net
engine:                engine/blob engine/cold engine/core engine/manifest engine/memtable engine/mirror tiering index segment wal wal/record internal/base internal/bin internal/invariants internal/vfs +github.com/google/btree +github.com/prometheus !net
server/http1:          internal/base !os !net !sync
server:                engine engine/blob engine/core protocol server/http1 internal/base internal/uring +github.com/cloudwego +github.com/prometheus +golang.org/x/sys
test/faults:
bench:
bench/s3get:           +github.com/aws
fuzz:
test/internal/daemontest:
cmd/snakream:          engine engine/check engine/mirror tiering tiering/dir tiering/s3 server wal wal/record segment protocol internal/base internal/vfs +github.com/spf13 +github.com/BurntSushi/toml
`

type pkg struct {
	Dir, ImportPath, Name, Doc string
	Imports, GoFiles           []string
}

func TestLayout(t *testing.T) {
	mod := strings.TrimSpace(run(t, "go", "list", "-m"))
	rules := map[string][]string{}
	for line := range strings.Lines(policy) {
		if name, rest, ok := strings.Cut(line, ":"); ok {
			rules[name] = strings.Fields(rest)
		}
	}
	seen := map[string]bool{}
	dec := json.NewDecoder(strings.NewReader(run(t, "go", "list", "-json=Dir,ImportPath,Name,Doc,Imports,GoFiles", "./...")))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) == 0 { // only tests
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, mod), "/")
		rule, ok := rules[rel]
		if !ok {
			t.Errorf("%s is not in the policy: say what it may import", rel)
			continue
		}
		seen[rel] = true
		if p.Doc == "" {
			t.Errorf("%s has no package doc (a blank line before the package clause loses it)", rel)
		}
		for _, im := range p.Imports {
			in, ours := strings.CutPrefix(im, mod+"/")
			switch {
			case ours && !slices.Contains(rule, in):
				t.Errorf("%s must not import %s", rel, in)
			case !ours && strings.Contains(strings.SplitN(im, "/", 2)[0], ".") &&
				!slices.ContainsFunc(rule, func(r string) bool { return strings.HasPrefix(r, "+") && under(im, r[1:]) }):
				t.Errorf("%s must not import the module of %s", rel, im)
			}
		}
		for _, r := range rule {
			bad, ok := strings.CutPrefix(r, "!")
			if i := slices.IndexFunc(p.Imports, func(d string) bool { return ok && under(d, bad) }); i >= 0 {
				t.Errorf("%s must not import %s", rel, p.Imports[i])
			}
		}
	}
	for name := range rules {
		if !seen[name] {
			t.Errorf("policy names %s, which does not exist", name)
		}
	}
}

// under reports whether path is tree or lies in it.
func under(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.." // the module root, seen from internal/layouttest
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
