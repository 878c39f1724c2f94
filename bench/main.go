// Command bench is a load generator that speaks only HTTP, so it measures us and
// others alike, and the scenarios.
//
//	go run ./bench append  -connections 64 -streams 1000
//	go run ./bench catchup -readers 8 -servers snakream,electric,nginx
//	go run ./bench fanout  -mode sse -readers 1000 -streams 100 -rate 100
//	go run ./bench park    -mode long-poll -readers 10000
//	go run ./bench recover -streams 100000 -appends 1000000 -servers snakream
//	go run ./bench idle    -streams 100000 -servers snakream
//	go run ./bench bootstrap -snapshot 64 -updates 10000
//	go run ./bench publish -snapshot 128 -gap 1ms
//	go run ./bench listing -streams 1000000
//	go run ./bench tier    -connections 64 -streams 1000
//	go run ./bench cold    -size 1024 -streams 8 -readers 8
//	go run ./bench restore -streams 1000000 -payload 10240
//	go run ./bench figures
//
// By default the scripts in bench/peers start each server on an empty data directory
// for each run, so nobody profits or suffers from an earlier run; -target names servers
// that run already. The servers take turns, and ratios are taken run by run.
//
// The scenarios from bootstrap on use what only Snakream has, so they compare it with
// itself: bootstraps with plain reads, a quiet server with a busy one, one that has an
// object store with one that has none, or with the AWS SDK alone (bench/s3get). Their
// other defaults are those of the figures.
//
// Beside Durable Streams servers it drives Redis (XADD, for append and recover) and a
// static file server (for catchup). It shares the machine with the server under test,
// so it is one epoll loop with raw system calls and no allocation per request; net/http
// would use more CPU than the servers that it measures.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// list collects a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// common are the flags of all subcommands.
type common struct {
	servers          string
	targets, args    list
	runs             int
	json             bool
	work, peers      string
	warmup, duration time.Duration
	threads          int
}

func (c *common) register(fs *flag.FlagSet) {
	fs.StringVar(&c.servers, "servers", "snakream,electric", "comma-separated `names` of scripts in the peers directory; the ratios put the first above the others")
	fs.Var(&c.targets, "target", "a running server as `name=URL[,pid=N]` instead (http:// or redis://); may be repeated")
	fs.Var(&c.args, "arg", "a flag for a server that is started, as `name=--flag=value`; may be repeated")
	fs.IntVar(&c.runs, "runs", 3, "runs of each server")
	fs.BoolVar(&c.json, "json", false, "write JSON lines")
	fs.StringVar(&c.work, "work", filepath.Join(os.TempDir(), "snakream-bench"), "`directory` for data directories; on the disk that is to be measured")
	fs.StringVar(&c.peers, "peers", "", "`directory` of the scripts (default bench/peers of this module)")
	fs.DurationVar(&c.warmup, "warmup", time.Second, "load before measuring")
	fs.DurationVar(&c.duration, "duration", 4*time.Second, "how long to measure")
	fs.IntVar(&c.threads, "threads", 0, "threads that make the load (default 1; 2 for catchup)")
}

// specs are the servers to compare.
func (c *common) specs(names string) ([]spec, error) {
	var specs []spec
	for _, t := range c.targets {
		sp, err := parseTarget(t)
		if err != nil {
			return nil, err
		}
		specs = append(specs, sp)
	}
	if len(specs) > 0 {
		return specs, nil
	}
	if c.peers == "" {
		root, err := moduleRoot()
		if err != nil {
			return nil, err
		}
		c.peers = filepath.Join(root, "bench", "peers")
	}
	for name := range strings.SplitSeq(names, ",") {
		var flags []string
		for _, a := range c.args {
			if f, ok := strings.CutPrefix(a, name+"="); ok {
				flags = append(flags, f)
			}
		}
		sp, err := scripted(c.peers, name, flags)
		if err != nil {
			return nil, err
		}
		specs = append(specs, sp)
	}
	return specs, nil
}

func (c *common) bench() (*bench, error) {
	if err := os.MkdirAll(c.work, 0o755); err != nil {
		return nil, err
	}
	const tmpfsMagic = 0x01021994
	var st syscall.Statfs_t
	if err := syscall.Statfs(c.work, &st); err == nil && st.Type == tmpfsMagic {
		fmt.Fprintf(os.Stderr, "bench: %s is in memory: an fsync there costs nothing, so durable writes can't be compared; use -work\n", c.work)
	}
	return &bench{out: os.Stdout, json: c.json, work: c.work, runs: c.runs}, nil
}

// moduleRoot is the directory of go.mod, here or above.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod here or above: name the scripts with -peers")
		}
		dir = up
	}
}

const usage = `usage: bench append|catchup|fanout|park|recover|idle|
             bootstrap|publish|listing|tier|cold|restore|figures [flags]
       bench SCENARIO -h shows the flags`

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no scenario\n%s", usage)
	}
	// A loop holds its P while it waits: leave one for the goroutines that sample.
	debug.SetGCPercent(800)
	fs := flag.NewFlagSet("bench "+args[0], flag.ExitOnError)
	var c common
	c.register(fs)
	build, ok := scenarios[args[0]]
	if !ok && args[0] != "figures" {
		return fmt.Errorf("no scenario %q\n%s", args[0], usage)
	}
	if args[0] == "figures" {
		only := fs.String("only", "", "run only the figures whose name contains this `text`")
		fs.Parse(args[1:])
		return figures(&c, *only)
	}
	make := build(fs)
	fs.Parse(args[1:])
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	sc := make(&c)
	specs, err := c.specs(c.servers)
	if err != nil {
		return err
	}
	b, err := c.bench()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(runtime.NumCPU(), c.threads+1))
	res := b.compare(sc, specs)
	for _, r := range res.results {
		if r.Error != "" {
			return fmt.Errorf("%s: %s", r.Server, r.Error)
		}
	}
	return nil
}
