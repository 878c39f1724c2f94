package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// release is set by the linker for a released build.
var release = ""

// version prints what this binary was made from.
func version(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "snakream: version takes no arguments, got %q\n", args)
		return exitUsage
	}
	fmt.Fprintf(stdout, "snakream %s (%s, %s/%s)\n", versionName(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return exitOK
}

// versionName returns the release, else the commit that the binary was built from.
func versionName() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	name, changed := info.Main.Version, ""
	if name != "" && name != "(devel)" {
		return name
	}
	name = "devel"
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			name = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	return name + changed
}
