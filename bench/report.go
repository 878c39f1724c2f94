package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// metric is one measured value of a run.
type metric struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit,omitempty"`
	Value float64 `json:"value"`
}

// result is one run of a scenario against one server.
type result struct {
	Scenario string   `json:"scenario"`
	Server   string   `json:"server"`
	Run      int      `json:"run"`
	Metrics  []metric `json:"metrics,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// scenario is one load with its parameters.
type scenario interface {
	label() string
	// run loads a server that is ready and returns the same metrics, in the same
	// order, for every server.
	run(s *server) ([]metric, error)
}

// errNotApplicable says that a server can't do what a scenario asks.
var errNotApplicable = errors.New("not applicable")

// bench runs scenarios and writes down what they measured.
type bench struct {
	out  io.Writer
	json bool
	work string // directory for data directories
	runs int
}

// compare runs a scenario against each server in turn, runs times over, and writes a
// line for each run and a table of medians. The first server is the one that the
// ratios put above the others.
func (b *bench) compare(sc scenario, specs []spec) comparison {
	var c comparison
	for r := range b.runs {
		for i := range specs {
			sp := specs[(i+r)%len(specs)] // nobody is always the first
			res := result{Scenario: sc.label(), Server: sp.name, Run: r + 1}
			metrics, err := b.once(sc, sp)
			if err != nil {
				res.Error = err.Error()
			} else {
				res.Metrics = metrics
			}
			c.results = append(c.results, res)
			b.line(res)
		}
	}
	b.table(sc, specs, c)
	return c
}

// once starts the server if need be, runs the scenario and stops it.
func (b *bench) once(sc scenario, sp spec) (m []metric, err error) {
	s, err := sp.open(b.work)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return sc.run(s)
}

// line writes one run.
func (b *bench) line(r result) {
	if b.json {
		json.NewEncoder(b.out).Encode(r)
		return
	}
	fmt.Fprintf(b.out, "%-28s %-10s run %d ", r.Scenario, r.Server, r.Run)
	for _, m := range r.Metrics {
		fmt.Fprintf(b.out, "  %s %s", m.Name, strings.TrimSpace(number(m.Value)+" "+m.Unit))
	}
	if r.Error != "" {
		fmt.Fprintf(b.out, "  FAILED: %s", r.Error)
	}
	fmt.Fprintln(b.out)
}

// table writes the medians, and for each peer what the first server's value is in
// parts of the peer's.
func (b *bench) table(sc scenario, specs []spec, c comparison) {
	if b.json {
		for _, row := range c.summary(specs) {
			row.Scenario = sc.label()
			json.NewEncoder(b.out).Encode(row)
		}
		return
	}
	fmt.Fprintf(b.out, "\n%s: medians of %d; in brackets %s ÷ the row's server, median and range of the runs' ratios\n",
		sc.label(), b.runs, specs[0].name)
	for _, row := range c.summary(specs) {
		fmt.Fprintf(b.out, "  %-10s", row.Server)
		for _, m := range row.Medians {
			fmt.Fprintf(b.out, "  %s %s", m.Name, strings.TrimSpace(number(m.Value)+" "+m.Unit))
			if m.Ratio != nil {
				fmt.Fprintf(b.out, " (×%.2f, %.2f–%.2f)", m.Ratio.Median, m.Ratio.Min, m.Ratio.Max)
			}
		}
		if len(row.Medians) == 0 {
			fmt.Fprint(b.out, "  –")
		}
		fmt.Fprintln(b.out)
	}
	fmt.Fprintln(b.out)
}

// number shows about three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v), a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// comparison is all runs of one scenario.
type comparison struct {
	results []result
}

// first is the server that the scenario is about.
func (c comparison) first() string {
	if len(c.results) == 0 {
		return ""
	}
	return c.results[0].Server
}

// ratio is the first server's value divided by a peer's, run by run.
type ratio struct {
	Median, Min, Max float64
}

type summaryMetric struct {
	metric
	Ratio *ratio `json:"ratio,omitempty"` // nil for the first server and where the peer has zero
}

// summaryRow is the medians of one server.
type summaryRow struct {
	Scenario string          `json:"scenario"`
	Server   string          `json:"server"`
	Medians  []summaryMetric `json:"medians"`
}

func (c comparison) summary(specs []spec) []summaryRow {
	var rows []summaryRow
	for i, sp := range specs {
		row := summaryRow{Server: sp.name}
		for _, name := range c.names(sp.name) {
			m := summaryMetric{metric: metric{name, c.unit(name), c.median(sp.name, name)}}
			if r, ok := c.ratio(specs[0].name, sp.name, name); ok && i > 0 {
				m.Ratio = &r
			}
			row.Medians = append(row.Medians, m)
		}
		rows = append(rows, row)
	}
	return rows
}

// names lists a server's metrics in their order.
func (c comparison) names(server string) (names []string) {
	for _, r := range c.results {
		if r.Server == server && len(r.Metrics) > 0 {
			for _, m := range r.Metrics {
				names = append(names, m.Name)
			}
			return names
		}
	}
	return nil
}

func (c comparison) unit(name string) string {
	for _, r := range c.results {
		for _, m := range r.Metrics {
			if m.Name == name {
				return m.Unit
			}
		}
	}
	return ""
}

// values are a server's values of a metric by run, without the failed runs.
func (c comparison) values(server, name string) map[int]float64 {
	v := map[int]float64{}
	for _, r := range c.results {
		for _, m := range r.Metrics {
			if r.Server == server && m.Name == name {
				v[r.Run] = m.Value
			}
		}
	}
	return v
}

// failure is why a server's first failed run failed, or empty.
func (c comparison) failure(server string) string {
	for _, r := range c.results {
		if r.Server == server && r.Error != "" {
			return r.Error
		}
	}
	return ""
}

// median is NaN when no run succeeded.
func (c comparison) median(server, name string) float64 {
	var all []float64
	for _, v := range c.values(server, name) {
		all = append(all, v)
	}
	return median(all)
}

// ratio divides a's value by b's in each run that both finished.
func (c comparison) ratio(a, b, name string) (ratio, bool) {
	va, vb := c.values(a, name), c.values(b, name)
	var all []float64
	for run, x := range va {
		if y, ok := vb[run]; ok && y != 0 {
			all = append(all, x/y)
		}
	}
	if len(all) == 0 {
		return ratio{}, false
	}
	return ratio{median(all), slices.Min(all), slices.Max(all)}, true
}

// spread is the median and the range of a metric that is a ratio itself.
func (c comparison) spread(server, name string) (ratio, bool) {
	var all []float64
	for _, v := range c.values(server, name) {
		all = append(all, v)
	}
	if len(all) == 0 {
		return ratio{}, false
	}
	return ratio{median(all), slices.Min(all), slices.Max(all)}, true
}

// median of an even number of values is the mean of the middle two; of none, NaN.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
