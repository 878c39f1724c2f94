package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/check"
)

// verify reads a data directory and says what is damaged.
func verify(args, environ []string, stdout, stderr io.Writer) int {
	c, code := inspected("verify", args, environ, stdout, stderr)
	if c == nil {
		return code
	}
	sum, err := check.Verify(c.DataDir, c.Engine, func(f check.Finding) { fmt.Fprintln(stdout, f) })
	if err != nil {
		return notInspected(c, err, stderr)
	}
	fmt.Fprintf(stdout, "%s: %v\n", c.DataDir, sum)
	if sum.Stops > 0 {
		fmt.Fprintln(stdout, "«snakream repair» says what can be done.")
	}
	if !sum.Clean() {
		return exitData
	}
	return exitOK
}

// repair says how a data directory can be made whole and, with --apply, does it.
func repair(args, environ []string, stdout, stderr io.Writer) int {
	const flag = "--apply"
	apply := slices.Contains(args, flag)
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == flag })
	c, code := inspected("repair [--apply]", args, environ, stdout, stderr)
	if c == nil {
		return code
	}
	do := check.Propose
	if apply {
		do = check.Apply
	}
	p, err := do(c.DataDir, c.Engine, time.Now())
	switch {
	case errors.Is(err, check.ErrBeyondRepair):
		fmt.Fprintf(stderr, "snakream: %s: %v\nNothing was changed.\n", c.DataDir, err)
		return exitData
	case err != nil:
		return notInspected(c, err, stderr)
	}
	tell(stdout, p, apply)
	if !apply && (len(p.Steps) > 0 || p.Unfinished) {
		return exitData
	}
	return exitOK
}

// tell prints a plan.
func tell(w io.Writer, p *check.Plan, applied bool) {
	if p.Unfinished {
		fmt.Fprintln(w, "An earlier repair has not come to its end.")
	}
	if len(p.Steps) > 0 {
		fmt.Fprintln(w, "What is to be done:")
		list(w, p.Steps)
		fmt.Fprintln(w, "What is lost by the damage, as far as can be known:")
		list(w, p.Losses)
	} else {
		fmt.Fprintln(w, "There is nothing to repair.")
		if len(p.Losses) > 0 {
			fmt.Fprintln(w, "What is damaged, and does not keep a server from starting:")
			list(w, p.Losses)
		}
	}
	if p.NewHistory {
		fmt.Fprintln(w, "The directory begins a new history: every stream's incarnation changes.")
	}
	switch {
	case applied && (len(p.Steps) > 0 || p.Unfinished):
		fmt.Fprintf(w, "Done. What was taken out is in %s.\n", p.Quarantine)
	case !applied && (len(p.Steps) > 0 || p.Unfinished):
		fmt.Fprintln(w, "Nothing was changed. «snakream repair --apply» does it. A copy of the directory first does no harm.")
	}
}

func list(w io.Writer, lines []string) {
	if len(lines) == 0 {
		lines = []string{"nothing"}
	}
	for _, l := range lines {
		fmt.Fprintf(w, "  * %s\n", l)
	}
}

// inspected reads the settings of a command that looks at a data directory. The result
// is nil when the command has come to its end, with the code.
func inspected(name string, args, environ []string, stdout, stderr io.Writer) (*config, int) {
	cmd := command{
		usage: "Takes the settings of «snakream serve».\n\nUsage:\n  snakream " + name + " [flags]",
		check: func(c *config) []string {
			c.derive()
			return c.checkTier()
		},
	}
	c, code, ok := cmd.configure(args, environ, stdout, stderr)
	if !ok {
		return nil, code
	}
	c.Engine.Logger = newLogger(c, stderr)
	store, err := c.Tier.open(context.Background())
	if err != nil {
		fmt.Fprintf(stderr, "snakream: %v\n", err)
		return nil, exitUsage
	}
	c.Engine.Tier = store
	return c, exitOK
}

// notInspected says why a directory could not be looked at.
func notInspected(c *config, err error, stderr io.Writer) int {
	fmt.Fprintf(stderr, "snakream: %v\n", err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(stderr, "snakream: --data-dir %s: is it there?\n", c.DataDir)
		return exitUsage
	case errors.Is(err, engine.ErrLocked):
		fmt.Fprintln(stderr, "snakream: a server has it open: stop that first")
		return exitFailure
	case errors.Is(err, engine.ErrForeign):
		return exitData
	}
	return exitFailure
}
