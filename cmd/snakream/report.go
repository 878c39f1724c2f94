package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// sheet is a report for people: lines of a name and what there is to say.
type sheet struct{ w *tabwriter.Writer }

func newSheet(w io.Writer) sheet { return sheet{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)} }

func (s sheet) linef(name, format string, args ...any) {
	fmt.Fprintf(s.w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// flush writes the lines. Whoever reads them has gone if that fails.
func (s sheet) flush() { _ = s.w.Flush() }

// printJSON writes a report for programs.
func printJSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // whoever reads it has gone if that fails
}

// byteCount is a number of bytes as people read it.
func byteCount(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/unit, "KMGTPE"
	for value >= unit-0.05 && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// things is a number of things, of which one is called so.
func things(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// ago says how long ago a time was.
func ago(t, now time.Time) string {
	return fmt.Sprintf("%s, %v ago", t.UTC().Format(time.RFC3339), max(now.Sub(t), 0).Round(time.Second))
}
