package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/snakream/snakream/tiering"
)

// doctor finds out by trying whether the tier does all that is needed of it.
func doctor(args, environ []string, stdout, stderr io.Writer) int {
	cmd := command{
		usage: "Tries whether the tier does all that is needed of it, with objects under check/ that it takes away again.\nTakes the settings of «snakream serve».\n\nUsage:\n  snakream doctor [flags]",
		shown: ofTier,
		check: (*config).checkData,
	}
	c, code, ok := cmd.configure(args, environ, stdout, stderr)
	if !ok {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	store, err := c.Tier.open(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "snakream: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stdout, "%v\n\n", store)
	began := time.Now()
	findings := []tiering.Finding{{Name: "reach it", Err: ping(ctx, store)}}
	findings[0].Took = time.Since(began)
	if findings[0].Err == nil {
		findings = append(findings, tiering.Check(ctx, store)...)
	}
	if printFindings(stdout, findings) > 0 {
		return exitFailure
	}
	return exitOK
}

// printFindings writes a line for each check, and returns how many failed.
func printFindings(w io.Writer, all []tiering.Finding) (failed int) {
	s := newSheet(w)
	for _, f := range all {
		verdict := "ok"
		if f.Err != nil {
			failed++
			verdict = "FAILED: " + f.Err.Error()
		}
		s.linef(f.Name, "%6d ms\t%s", f.Took.Milliseconds(), verdict)
	}
	s.flush()
	if failed > 0 {
		fmt.Fprintf(w, "\n%d of %d checks failed.\n", failed, len(all))
	} else {
		fmt.Fprintln(w, "\nAll checks passed.")
	}
	return failed
}
