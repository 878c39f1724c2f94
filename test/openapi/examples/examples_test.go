//go:build e2e

// Package examples executes the examples of the documentation: what a reader can copy
// into a shell, in the order of the page, against a fresh server.
//
// A fenced block with the info string "sh example" is run by bash. When the next block
// has the info string "text output", it is what the example must print: an ellipsis
// stands for anything within a line, and by itself on a line for any number of lines.
// The address of the documentation, 127.0.0.1:4437, is replaced by the server's own.
package examples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/test/openapi/internal/daemon"
)

const (
	root     = "../../.." // the daemon's module, seen from here
	address  = "127.0.0.1:4437"
	ellipsis = "…"
	patience = time.Minute // for all examples of a page
)

// manual are the pages of which every shell block is an example. In others only the
// marked ones are: they also show how to build the program.
var manual = regexp.MustCompile(`^docs/(index|quickstart|concepts|operations/[a-z-]+)\.md$`)

// example is one block and what it should print.
type example struct {
	line         int // of its fence
	script, want string
	checked      bool // there is a want
}

// block is any fenced block.
type block struct {
	line       int
	info, text string
}

// pages returns the Markdown files of the documentation, from the module's root.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks finds the fenced blocks of a page.
func blocks(text string) (all []block) {
	const fence = "```"
	var open *block
	n := 0
	for line := range strings.Lines(text) {
		n++
		info, isFence := strings.CutPrefix(line, fence)
		switch {
		case isFence && open == nil:
			open = &block{line: n, info: strings.TrimSpace(info)}
		case isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	return all
}

// examples finds the examples of a page.
func examples(t *testing.T, page string) (all []example) {
	t.Helper()
	bs := blocks(read(t, page))
	for i, b := range bs {
		switch b.info {
		case "sh example":
			e := example{line: b.line, script: b.text}
			if i+1 < len(bs) && bs[i+1].info == "text output" {
				e.want, e.checked = bs[i+1].text, true
			}
			all = append(all, e)
		case "text output":
			if i == 0 || bs[i-1].info != "sh example" {
				t.Errorf("%s:%d: an output without an example", page, b.line)
			}
		case "sh", "bash", "shell":
			if manual.MatchString(page) {
				t.Errorf("%s:%d: a shell block that nobody executes", page, b.line)
			}
		}
	}
	return all
}

func TestExamples(t *testing.T) {
	binary, err := daemon.Binary(root)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range pages(t) {
		es := examples(t, page)
		if count += len(es); len(es) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			d, err := daemon.Start(binary, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Stop(); err != nil {
					t.Error(err)
				}
			})
			run(t, d, page, es)
		})
	}
	if count == 0 {
		t.Fatal("no examples")
	}
}

// run executes the examples of a page in one shell, and compares what they print.
func run(t *testing.T, d *daemon.Daemon, page string, es []example) {
	dir := t.TempDir()
	var all strings.Builder
	for i, e := range es {
		script := strings.ReplaceAll(e.script, address, d.Listen)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf(".script%d", i)), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, ". ./.script%d >.out%d 2>&1 </dev/null; echo $? >.code%d\n", i, i, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--norc", "-c", all.String())
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", page, err, out)
	}
	// What is left in the background has had its time.
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
	for i, e := range es {
		file := func(kind string) string {
			b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf(".%s%d", kind, i)))
			if err != nil {
				t.Fatalf("%s:%d did not come to its end: %v", page, e.line, err)
			}
			return string(b)
		}
		got := strings.ReplaceAll(file("out"), d.Listen, address)
		if code := strings.TrimSpace(file("code")); code != "0" {
			t.Errorf("%s:%d ended with %s:\n%s", page, e.line, code, got)
		}
		if e.checked && !matches(lines(got), lines(e.want)) {
			t.Errorf("%s:%d printed\n%s\nand is written to print\n%s", page, e.line, got, e.want)
		}
	}
}

// lines splits text into lines without the white space at their ends; empty ones at
// the end of text don't count.
func lines(text string) []string {
	all := strings.Split(text, "\n")
	for i := range all {
		all[i] = strings.TrimRight(all[i], " \t\r")
	}
	for len(all) > 0 && all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// matches compares lines with a pattern.
func matches(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == ellipsis {
		return slices.ContainsFunc(suffixes(got), func(rest []string) bool { return matches(rest, want[1:]) })
	}
	return len(got) > 0 && matchesLine(got[0], want[0]) && matches(got[1:], want[1:])
}

// suffixes returns every end of all, itself and the empty one included.
func suffixes(all []string) (ends [][]string) {
	for i := range len(all) + 1 {
		ends = append(ends, all[i:])
	}
	return ends
}

func matchesLine(got, want string) bool {
	parts := strings.Split(want, ellipsis)
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// link is a Markdown link to a file of ours.
var link = regexp.MustCompile(`\]\(([^)#: ]*)(#[^)]*)?\)`)

// TestLinks checks that the links between the pages lead somewhere, and that every
// page of the manual can be reached from the table of contents.
func TestLinks(t *testing.T) {
	reached := map[string]bool{}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), m[1]))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s leads to %s: %v", page, m[1], err)
				continue
			}
			if page == "docs/index.md" {
				reached[target] = true
			}
			if m[2] != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(read(t, target)), m[2][1:]) {
				t.Errorf("%s leads to %s, where there is no %s", page, target, m[2])
			}
		}
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && page != "docs/index.md" && !reached[page] {
			t.Errorf("docs/index.md does not lead to %s", page)
		}
	}
}

// anchors returns the names of the headings of a page, as they are made on the web,
// and the names that it gives itself.
func anchors(text string) (all []string) {
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := strings.ToLower(strings.TrimSpace(title))
			name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
			all = append(all, strings.ReplaceAll(name, " ", "-"))
		}
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]*)">`).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
