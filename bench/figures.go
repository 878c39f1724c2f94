package main

import (
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// figure is one comparison that docs/PERFORMANCE.md shows, with the goals that it
// has to meet.
type figure struct {
	name    string // for -only
	servers string
	args    list // flags of servers that this figure needs
	load    func(c *common) scenario
	goals   []goal
}

// goal is one line of the table.
type goal struct {
	text  string
	value func(f found) (got float64, shown string)
	min   float64 // 0: no lower bound
	max   float64 // 0: no upper bound
}

// found is what the figures so far have measured.
type found map[string]comparison

// against is our value divided by a peer's.
func against(name, peer, metric string) func(found) (float64, string) {
	return of(us, peer, name, metric)
}

// of is a server's value divided by another's.
func of(server, peer, name, metric string) func(found) (float64, string) {
	return func(f found) (float64, string) {
		c := f[name]
		r, ok := c.ratio(server, peer, metric)
		if !ok {
			return math.NaN(), fmt.Sprintf("%s, no run of %s to compare", c.shown(server, metric), peer)
		}
		return r.Median, fmt.Sprintf("%s against %s: ×%.2f (%.2f–%.2f)",
			c.shown(server, metric), c.shown(peer, metric), r.Median, r.Min, r.Max)
	}
}

// beside is one metric of ours divided by another of the same runs. The scenario has
// taken the two by turns and reports their ratio.
func beside(name, metric, other string) func(found) (float64, string) {
	return func(f found) (float64, string) {
		c := f[name]
		r, ok := c.spread(c.first(), "ratio")
		if !ok {
			return math.NaN(), ours(c, metric)
		}
		return r.Median, fmt.Sprintf("%s against %s: ×%.2f (%.2f–%.2f)", ours(c, metric), ours(c, other), r.Median, r.Min, r.Max)
	}
}

// absolute is our own value.
func absolute(name, metric string) func(found) (float64, string) {
	return func(f found) (float64, string) {
		c := f[name]
		return c.median(c.first(), metric), ours(c, metric)
	}
}

// between is our own value in one figure divided by that in another.
func between(name, other, metric string) func(found) (float64, string) {
	return func(f found) (float64, string) {
		a, b := f[name].median(us, metric), f[other].median(us, metric)
		return a / b, fmt.Sprintf("%s against %s: ×%.2f", ours(f[name], metric), ours(f[other], metric), a/b)
	}
}

func ours(c comparison, metric string) string { return c.shown(c.first(), metric) }

// shown is the median of a metric as text.
func (c comparison) shown(server, metric string) string {
	if len(c.values(server, metric)) == 0 {
		return "no run finished: " + c.failure(server)
	}
	return with(number(c.median(server, metric)), c.unit(metric))
}

func with(value, unit string) string { return strings.TrimSpace(value + " " + unit) }

func appends(connections, streams int) func(*common) scenario {
	return func(c *common) scenario {
		return appendLoad{connections, streams, 256, false, max(c.threads, 1), c.warmup, c.duration}
	}
}

func catchup(readers int) func(*common) scenario {
	return func(c *common) scenario {
		return catchupLoad{readers, 64 << 20, 2, c.warmup, c.duration}
	}
}

// longPark keeps parked readers from being renewed while they are measured.
var longPark = list{"snakream=--long-poll-timeout=60s", "electric=--long-poll-timeout-ms", "electric=60000"}

var allFigures = []figure{
	{name: "append 1x1", servers: "snakream,electric,redis", load: appends(1, 1), goals: []goal{
		{text: "1 connection, 1 stream: p50 against Electric", value: against("append 1x1", "electric", "p50"), max: 0.95},
		{text: "the same against Redis", value: against("append 1x1", "redis", "p50")},
	}},
	{name: "append 64x1", servers: "snakream,electric,redis", load: appends(64, 1), goals: []goal{
		{text: "64 connections, 1 stream: appends against Electric", value: against("append 64x1", "electric", "rate"), min: 1.15},
		{text: "the same against Redis", value: against("append 64x1", "redis", "rate")},
	}},
	{name: "append 64x1000", servers: "snakream,electric,redis", load: appends(64, 1000), goals: []goal{
		{text: "64 connections, 1,000 streams: appends against Electric", value: against("append 64x1000", "electric", "rate"), min: 1.5},
		{text: "the same against Redis", value: against("append 64x1000", "redis", "rate")},
		{text: "server CPU of an append", value: against("append 64x1000", "electric", "cpu")},
	}},
	{name: "append 256x1", servers: "snakream,electric,redis", load: appends(256, 1), goals: []goal{
		{text: "256 connections, 1 stream: appends against Electric", value: against("append 256x1", "electric", "rate"), min: 1.3},
		{text: "the same against Redis", value: against("append 256x1", "redis", "rate")},
	}},
	{name: "append 256x1000", servers: "snakream,electric,redis", load: appends(256, 1000), goals: []goal{
		{text: "256 connections, 1,000 streams: appends against Electric", value: against("append 256x1000", "electric", "rate"), min: 1.8},
		{text: "the same against Redis", value: against("append 256x1000", "redis", "rate")},
	}},
	{name: "append 256x100000", servers: "snakream,redis", load: appends(256, 100_000), goals: []goal{
		{text: "256 connections, 100,000 streams: appends against 1,000 streams", value: between("append 256x100000", "append 256x1000", "rate"), min: 0.8},
		{text: "the same against Redis", value: against("append 256x100000", "redis", "rate")},
	}},
	{name: "idle", servers: "snakream", load: func(*common) scenario {
		return idleLoad{streams: 100_000, appends: 1, payload: 256, settle: 5 * time.Second}
	}, goals: []goal{
		{text: "memory of an idle stream, of 100,000", value: absolute("idle", "rss"), max: 1024},
	}},
	{name: "catchup 1", servers: "snakream,electric,nginx", load: catchup(1), goals: []goal{
		{text: "catch-up of 64 MiB, 1 reader, against Electric", value: against("catchup 1", "electric", "rate"), min: 0.8},
	}},
	{name: "catchup 8", servers: "snakream,electric,nginx", load: catchup(8), goals: []goal{
		{text: "the same, 8 readers, against one nginx worker", value: against("catchup 8", "nginx", "rate"), min: 1},
		{text: "growth of memory meanwhile", value: absolute("catchup 8", "growth"), max: 16},
	}},
	{name: "fanout", servers: "snakream,electric", load: func(c *common) scenario {
		return fanoutLoad{modeSSE, 1000, 100, 100, 256, 2 * time.Second, max(c.duration, 10*time.Second)}
	}, goals: []goal{
		{text: "1,000 SSE readers of 100 streams, 100 events/s: p50 against Electric", value: against("fanout", "electric", "p50"), max: 1.5},
		{text: "the same, p99", value: against("fanout", "electric", "p99"), max: 1.5},
	}},
	{name: "park sse", servers: "snakream,electric", args: longPark, load: func(*common) scenario {
		return parkLoad{modeSSE, 10_000, 500, 2 * time.Second, 8 * time.Second}
	}, goals: []goal{
		{text: "10,000 parked SSE readers: memory of each", value: absolute("park sse", "rss"), max: 4},
		{text: "CPU while idle", value: absolute("park sse", "idle"), max: 0.5},
		{text: "time to wake all", value: against("park sse", "electric", "wake")},
	}},
	{name: "park long-poll", servers: "snakream,electric", args: longPark, load: func(*common) scenario {
		return parkLoad{modeLongPoll, 10_000, 500, 2 * time.Second, 8 * time.Second}
	}, goals: []goal{
		{text: "10,000 parked long-polls: memory of each", value: absolute("park long-poll", "rss"), max: 4},
		{text: "CPU while idle", value: absolute("park long-poll", "idle"), max: 0.5},
		{text: "time to wake all", value: against("park long-poll", "electric", "wake")},
	}},
	{name: "recover log", servers: "snakream", args: list{
		"snakream=--memtable-bytes=1GiB", "snakream=--wal-max-bytes=4GiB",
	}, load: recovery("all in the log"), goals: []goal{
		{text: "ready after kill -9 with 1,000,000 appends over 100,000 streams in the log", value: absolute("recover log", "ready"), max: 3},
	}},
	{name: "recover default", servers: "snakream", load: recovery("default limits"), goals: []goal{
		{text: "the same with the default limits", value: absolute("recover default", "ready"), max: 3},
	}},
	{name: "bootstrap", servers: us, load: func(c *common) scenario {
		return bootstrapLoad{64 << 20, 10_000, 100, c.duration}
	}, goals: []goal{
		{text: "bootstrap of 64 MiB and 10,000 updates, against a plain read of as many bytes", value: beside("bootstrap", "rate", "get"), min: 0.7},
		{text: "growth of memory meanwhile", value: absolute("bootstrap", "growth"), max: 16},
	}},
	{name: "publish", servers: us, args: oneShard, load: func(c *common) scenario {
		return publishLoad{128 << 20, 1, 256, time.Millisecond, c.warmup, max(c.duration, 10*time.Second)}
	}, goals: []goal{
		{text: "p99 of an append each ms while 128 MiB snapshots are published, against none", value: beside("publish", "p99", "quiet p99"), max: 2},
		{text: "growth of memory meanwhile", value: absolute("publish", "growth"), max: 16},
	}},
	{name: "listing", servers: us, args: moreStates, load: func(*common) scenario {
		return listingLoad{1_000_000, 1000, 1000}
	}, goals: []goal{
		{text: "first page of a listing, 1,000 of 1,000,000 streams: p99", value: absolute("listing", "first p99"), max: 5},
		{text: "the same, p50", value: absolute("listing", "first p50"), max: 5},
		{text: "page by a prefix: p99", value: absolute("listing", "prefix p99"), max: 5},
		{text: "page behind a cursor: p99", value: absolute("listing", "after p99"), max: 5},
	}},
	{name: "tier", servers: tiered + "," + us, load: func(c *common) scenario {
		return tierLoad{appendLoad{64, 1000, 256, false, max(c.threads, 1), tierWarmup, max(c.duration, tierDuration)}}
	}, goals: []goal{
		{text: "64 connections, 1,000 streams: appends with a tier against none", value: of(tiered, us, "tier", "rate"), min: 0.85},
	}},
	{name: "cold 1", servers: tiered, load: cold(1, 1), goals: []goal{
		{text: "cold catch-up of 1 GiB, 1 reader, against the SDK alone", value: beside("cold 1", "rate", "sdk"), min: 0.7},
	}},
	{name: "cold 8", servers: tiered, load: cold(8, 8), goals: []goal{
		{text: "the same, 8 streams, a reader of each, against 8 at once", value: beside("cold 8", "rate", "sdk"), min: 0.7},
	}},
	{name: "cold shared", servers: tiered, load: cold(1, 8), goals: []goal{
		{text: "the same, 8 readers of one stream", value: beside("cold shared", "rate", "sdk"), min: 0.7},
	}},
	{name: "restore", servers: tiered, args: restoreArgs, load: func(*common) scenario {
		return restoreLoad{1_000_000, 10 << 10, 64}
	}, goals: []goal{
		{text: "ready after a restore of 1,000,000 streams of 10 KiB", value: absolute("restore", "ready"), max: 30},
	}},
}

func cold(streams, readers int) func(*common) scenario {
	return func(*common) scenario { return coldLoad{1 << 30, streams, readers, 3} }
}

func recovery(note string) func(*common) scenario {
	return func(*common) scenario {
		return recoverLoad{streams: 100_000, appends: 1_000_000, payload: 256, connections: 256, note: note}
	}
}

// figures runs all comparisons and writes the table for docs/PERFORMANCE.md.
func figures(c *common, only string) error {
	b, err := c.bench()
	if err != nil {
		return err
	}
	if c.threads > 1 {
		runtime.GOMAXPROCS(max(runtime.NumCPU(), c.threads+1))
	}
	f := found{}
	args := c.args
	for _, fig := range allFigures {
		if !strings.Contains(fig.name, only) {
			continue
		}
		c.args = append(append(list{}, args...), fig.args...)
		specs, err := c.specs(fig.servers)
		if err != nil {
			return err
		}
		f[fig.name] = b.compare(fig.load(c), specs)
	}
	if !c.json {
		writeTable(b.out, f, c.runs)
	}
	for name, c := range f {
		if why := c.failure(c.first()); why != "" {
			return fmt.Errorf("%s: a run failed: %s", name, why)
		}
	}
	return nil
}

// writeTable writes the goals of the figures that were run, in Markdown.
func writeTable(w io.Writer, f found, runs int) {
	fmt.Fprintf(w, "%s, %d cores, %s. Medians of %d runs, servers alternating; in brackets the range of the runs' ratios.\n\n",
		machine(), runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), runs)
	fmt.Fprintln(w, "| figure | measured | goal | |")
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, fig := range allFigures {
		if _, ok := f[fig.name]; !ok {
			continue
		}
		for _, g := range fig.goals {
			got, shown := g.value(f)
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", g.text, shown, g.bound(), g.verdict(got))
		}
	}
}

func (g goal) bound() string {
	switch {
	case g.min != 0:
		return fmt.Sprintf("≥ %g", g.min)
	case g.max != 0:
		return fmt.Sprintf("≤ %g", g.max)
	}
	return ""
}

func (g goal) verdict(got float64) string {
	switch {
	case g.min == 0 && g.max == 0:
		return ""
	case (g.min == 0 || got >= g.min) && (g.max == 0 || got <= g.max): // false for NaN
		return "met"
	}
	return "missed"
}

// machine names the processor and the kernel.
func machine() string {
	cpu, _ := exec.Command("sh", "-c", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1").Output()
	kernel, _ := exec.Command("uname", "-r").Output()
	return fmt.Sprintf("%s, Linux %s", strings.TrimSpace(string(cpu)), strings.TrimSpace(string(kernel)))
}
