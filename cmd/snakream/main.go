// Command snakream is the Snakream daemon: durable, replayable streams over plain
// HTTP, kept in one data directory.
package main

import (
	"fmt"
	"io"
	"os"
)

// Exit codes (api §6).
const (
	exitOK      = 0
	exitFailure = 1 // at run time
	exitUsage   = 2 // bad usage or configuration
	exitData    = 3 // a data directory that is damaged, foreign, newer or locked
)

const usage = `Durable, replayable streams over HTTP.

Usage:
  snakream serve [flags]            run the server
  snakream verify [flags]           read a data directory and say what is damaged
  snakream repair [--apply] [flags] make a data directory whole that a start refuses
  snakream version                  print the version

«verify» and «repair» take the flags of «serve», of which --data-dir is the one they
need, and change nothing unless «repair» is told to by --apply.

«snakream serve --help» lists every setting. Each one is also an environment
variable (SNAKREAM_ and its name in upper case, with underscores) and a key of the
TOML file that --config names. Flags beat the environment, which beats the file.
`

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(args, environ []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch args[0] {
	case "serve":
		return serve(args[1:], environ, stdout, stderr)
	case "verify":
		return verify(args[1:], environ, stdout, stderr)
	case "repair":
		return repair(args[1:], environ, stdout, stderr)
	case "version", "--version":
		return version(args[1:], stdout, stderr)
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	fmt.Fprintf(stderr, "snakream: unknown command %q\n\n%s", args[0], usage)
	return exitUsage
}
