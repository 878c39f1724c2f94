package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/snakream/snakream/engine"
)

const tierUsage = `Usage:
  snakream tier status [flags]   say what a running server has where
`

// statusTimeout is how long a server may take to say what is where, and statusBytes how
// much.
const (
	statusTimeout = 10 * time.Second
	statusBytes   = 1 << 20
)

// tierCommand runs the commands about the tier of a running server.
func tierCommand(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 0:
		fmt.Fprint(stderr, tierUsage)
		return exitUsage
	case args[0] == "status":
		return tierStatus(args[1:], stdout, stderr)
	case args[0] == "--help" || args[0] == "-h":
		fmt.Fprint(stdout, tierUsage)
		return exitOK
	}
	fmt.Fprintf(stderr, "snakream: unknown command %q\n\n%s", "tier "+args[0], tierUsage)
	return exitUsage
}

// tierStatus asks a server what is where.
func tierStatus(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("tier status", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	admin := fs.String("admin", "http://127.0.0.1:4438", "the server's admin listener")
	asJSON := fs.Bool("json", false, "report in JSON")
	var bad faults
	parseAll(fs, args, &bad, func() {
		fmt.Fprintf(stdout, "Says what a running server has where.\n\nUsage:\n  snakream tier status [flags]\n\nFlags:\n%s", fs.FlagUsages())
	})
	if asked, _ := fs.GetBool("help"); asked {
		return exitOK
	}
	at, err := adminURL(*admin)
	if err != nil {
		bad.addf("--admin: %v", err)
	}
	if len(bad) > 0 {
		bad.print(stderr)
		return exitUsage
	}
	var st engine.TierStatus
	if err := askTier(at, &st); err != nil {
		fmt.Fprintf(stderr, "snakream: %v\n", err)
		return exitFailure
	}
	if *asJSON {
		printJSON(stdout, &st)
	} else {
		printStatus(stdout, &st, time.Now())
	}
	return exitOK
}

// adminURL returns the URL at which a server tells what is where.
func adminURL(admin string) (string, error) {
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	u, err := url.Parse(admin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not a URL such as http://127.0.0.1:4438", admin)
	}
	return strings.TrimSuffix(u.String(), "/") + "/tier", nil
}

func askTier(at string, st *engine.TierStatus) error {
	client := http.Client{Timeout: statusTimeout}
	resp, err := client.Get(at)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, statusBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", at, resp.Status, strings.TrimSpace(string(body[:min(len(body), 200)])))
	}
	if err := json.Unmarshal(body, st); err != nil {
		return fmt.Errorf("%s: not the answer of a Snakream: %w", at, err)
	}
	return nil
}

// printStatus writes the report for people.
func printStatus(w io.Writer, st *engine.TierStatus, now time.Time) {
	state := "connected, epoch " + fmt.Sprint(st.Epoch)
	switch {
	case st.Fenced:
		state = "FENCED: another node has taken its place"
	case !st.Connected:
		state = "NOT CONNECTED: nothing new is protected until it is"
	}
	budget := "without a limit"
	if st.LocalBudget > 0 {
		budget = "of " + byteCount(st.LocalBudget)
	}
	s := newSheet(w)
	s.linef("tier", "%s", st.Store)
	s.linef("state", "%s", state)
	if !st.Committed.IsZero() {
		s.linef("mirror written", "%s", ago(st.Committed, now))
	}
	s.linef("local disk", "%s %s", byteCount(st.LocalBytes), budget)
	s.linef("segments", "%d, of which %d are in the tier, %d of them there alone", st.Segments, st.RemoteSegments, st.EvictedSegments)
	s.linef("pending", "%s, %s", things(int64(st.PendingSegments), "segment"), byteCount(st.PendingBytes))
	s.linef("unprotected", "%s, for %v", byteCount(st.ExposedBytes), time.Duration(st.ExposedSeconds*float64(time.Second)).Round(100*time.Millisecond))
	s.linef("to be deleted", "%s", things(int64(st.DeadObjects), "object"))
	if st.Foreign > 0 {
		s.linef("not ours", "%s under the prefix, left alone", things(st.Foreign, "object"))
	}
	s.flush()
}
