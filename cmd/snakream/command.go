package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
)

// command is a command that takes the settings of serve, so that one environment, one
// file, and one list of flags will do for all of them.
type command struct {
	usage string                 // what its help begins with
	shown func(name string) bool // the settings that its help lists; nil: all
	own   func(*pflag.FlagSet)   // adds the flags that are no settings; may be nil
	check func(*config) []string // what is wrong between settings that are each in order
}

// configure reads the settings. ok is false when that is all there is to do: code is
// then the exit code.
func (cmd *command) configure(args, environ []string, stdout, stderr io.Writer) (c *config, code int, ok bool) {
	c, bad, err := cmd.load(args, environ, stdout)
	if errors.Is(err, errHelp) {
		return nil, exitOK, false
	}
	if len(bad) > 0 {
		faults(bad).print(stderr)
		return nil, exitUsage, false
	}
	return c, 0, true
}

// print lists faults, one a line.
func (f faults) print(w io.Writer) {
	for _, fault := range f {
		fmt.Fprintf(w, "snakream: %s\n", fault)
	}
}

// ofTier reports whether a setting is of interest to the commands about the tier.
func ofTier(name string) bool {
	if name == "data-dir" || name == "config" || name == "log-level" {
		return true
	}
	return slices.ContainsFunc(tier(new(config)), func(s setting) bool { return s.name == name })
}

// checkData reports what is wrong with the settings for a command that is about the
// tier and serves nothing.
func (c *config) checkData() []string {
	c.derive()
	bad := faults(c.checkStorage())
	if c.Tier.Kind == tierOff {
		bad.addf("tier is off: set it to dir or s3")
	}
	return bad
}
