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
  snakream serve [flags]             run the server
  snakream restore [flags]           make a data directory of what a lost one has left in its tier
  snakream tier status [flags]       say what a running server has where
  snakream doctor [flags]            try whether a tier does what is needed of it
  snakream verify [flags]            read a data directory and say what is damaged
  snakream repair [--apply] [flags]  make a data directory whole that a start refuses
  snakream version                   print the version

All but «tier status» and «version» take the flags of «serve». «verify» and «repair»
change nothing unless «repair» is told to by --apply.

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
	case "restore":
		return restore(args[1:], environ, stdout, stderr)
	case "tier":
		return tierCommand(args[1:], stdout, stderr)
	case "doctor":
		return doctor(args[1:], environ, stdout, stderr)
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
