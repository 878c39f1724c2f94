package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/tiering"
)

// restoreFlags are what a restore is told beside the settings.
type restoreFlags struct {
	engine.RestoreOptions
	json bool
}

// restore makes a data directory of what a lost machine has left in its tier.
func restore(args, environ []string, stdout, stderr io.Writer) int {
	var f restoreFlags
	cmd := command{
		usage: "Makes the empty or missing directory --data-dir of what the tier holds, and takes the tier over from\nthe node whose it was. Takes the settings of «snakream serve».\n\nUsage:\n  snakream restore [flags] --data-dir DIR",
		shown: ofTier,
		own: func(fs *pflag.FlagSet) {
			fs.BoolVar(&f.DryRun, "dry-run", false, "look everything up and report, but change nothing")
			fs.BoolVar(&f.AllowMissing, "allow-missing", false, "restore though snapshots are missing; reading those fails")
			fs.BoolVar(&f.json, "json", false, "report in JSON")
		},
		check: (*config).checkData,
	}
	c, code, ok := cmd.configure(args, environ, stdout, stderr)
	if !ok {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c.Engine.Logger = newLogger(c, stderr)
	var report engine.RestoreReport
	store, err := c.Tier.open(ctx)
	if err == nil {
		err = ping(ctx, store)
	}
	began := time.Now()
	if err == nil {
		c.Engine.Tier = store
		report, err = engine.Restore(ctx, c.DataDir, c.Engine, f.RestoreOptions)
	}
	if f.json {
		printJSON(stdout, restoreJSON{RestoreReport: report, Restored: err == nil && !f.DryRun, Error: errorText(err)})
	} else if report.Node != "" {
		printRestore(stdout, c, &f, store, &report, err)
	}
	if err != nil {
		fmt.Fprintf(stderr, "snakream: %v\n", err)
		if errors.Is(err, tiering.ErrNotFound) {
			fmt.Fprintln(stderr, "snakream: nothing has been kept there; check the bucket and the prefix, or the directory")
		}
		return restoreExitCode(err)
	}
	c.Engine.Logger.Debug("restored", "seconds", time.Since(began).Seconds())
	return exitOK
}

// restoreJSON is the report for programs.
type restoreJSON struct {
	engine.RestoreReport
	Restored bool   `json:"restored"`
	Error    string `json:"error,omitempty"`
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// restoreExitCode tells what kind of failure a restore ended with. Losing a race against
// another restore is one of the moment.
func restoreExitCode(err error) int {
	switch {
	case errors.Is(err, engine.ErrForeign), errors.Is(err, engine.ErrLocked):
		return exitData
	case errors.Is(err, engine.ErrMissing):
		return exitFailure
	case errors.Is(err, tiering.ErrNotFound), tiering.Permanent(err):
		return exitUsage
	}
	return exitFailure
}

// printRestore writes the report for people.
func printRestore(w io.Writer, c *config, f *restoreFlags, store tiering.Store, r *engine.RestoreReport, err error) {
	s := newSheet(w)
	s.linef("from", "%v", store)
	s.linef("node", "%s, history %d", r.Node, r.History)
	s.linef("last heard of", "%s", ago(time.UnixMilli(int64(r.Mirrored)), time.Now()))
	s.linef("holds", "%s in %s and %s, %s", byteCount(r.Bytes), things(int64(r.Segments), "segment"), things(r.Snapshots, "snapshot"), things(int64(r.Shards), "shard"))
	if r.Streams > 0 {
		s.linef("streams", "%d", r.Streams)
	}
	if r.LostBytes > 0 || r.LostStreams > 0 {
		s.linef("lost", "%s of %s, which the node had and the tier had not when it was last heard of", byteCount(r.LostBytes), things(r.LostStreams, "stream"))
	} else {
		s.linef("lost", "nothing that the node had when it was last heard of")
	}
	s.linef("", "what was written to it after that is lost, too, and nobody knows how much it was")
	s.linef("missing", "%s", things(int64(len(r.Missing)), "object"))
	for _, key := range slices.Sorted(slices.Values(r.Missing)) {
		s.linef("", "%s", key)
	}
	s.flush()
	switch {
	case err != nil:
	case f.DryRun:
		fmt.Fprintln(w, "\nNothing has been changed.")
	default:
		fmt.Fprintf(w, "\nRestored into %s. Serve it with the same settings; the node whose it was is shut out.\n", c.DataDir)
	}
}
