package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scripts in testdata")

// TestScripts runs the transcripts in testdata. A line at the margin is a command,
// the indented lines below it are what it led to; # begins a comment. Each script
// starts with an empty world at 1000 ms. With -rewrite the answers are written anew:
// read the diff.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { runScript(t, path) })
	}
}

func runScript(t *testing.T, path string) {
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	var out, want strings.Builder
	number, at, command, got := 0, 0, "", ""
	finish := func() {
		if want.String() != got && !*rewrite {
			t.Errorf("%s:%d: %s\ngot:\n%swant:\n%s", path, at, command, got, want.String())
		}
		want.Reset()
		got = ""
	}
	for line := range strings.Lines(string(script)) {
		number++
		if strings.HasPrefix(line, "\t") {
			want.WriteString(line)
			continue
		}
		finish()
		out.WriteString(line)
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at, command = number, line
		answer, err := w.run(line)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", path, number, line, err)
		}
		for l := range strings.Lines(answer) {
			got += "\t" + l
		}
		out.WriteString(got)
	}
	finish()
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run carries out one command and returns its answer, in lines.
func (w *world) run(line string) (string, error) {
	args, err := parseArgs(line)
	if err != nil {
		return "", err
	}
	answer, err := w.dispatch(args)
	if err == nil {
		err = args.unused()
	}
	return answer, err
}

// arguments are the words of a command: its verb, what it is about, then key=value
// or a bare key.
type arguments struct {
	verb, object string
	values       map[string]string
	used         map[string]bool
}

func (a *arguments) get(key string) (string, bool) {
	v, ok := a.values[key]
	a.used[key] = true
	return v, ok
}

// word returns the i-th word of the command where it is not a key=value.
func (a *arguments) word(i int) string {
	for k, v := range a.values {
		if v == "" && !a.used[k] && i == 2 {
			a.used[k] = true
			return k
		}
	}
	return ""
}

func (a *arguments) has(key string) bool { _, ok := a.get(key); return ok }

func (a *arguments) unused() error {
	for k := range a.values {
		if !a.used[k] {
			return fmt.Errorf("%s does not take %q", a.verb, k)
		}
	}
	return nil
}
