package main

import (
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/server"
)

// config is everything that can be set, parsed.
type config struct {
	File        string // the TOML file
	Listen      string
	AdminListen string
	DataDir     string
	LogLevel    slog.Level
	LogFormat   string
	Drain       time.Duration
	Server      server.Config
	Engine      engine.Options
	Tier        tierConfig

	given map[string]bool // settings that have a value other than by default
}

// setting is one line of api §8: a flag, an environment variable and a key of the
// file, all of one name.
type setting struct {
	name  string // as in the flag and the file
	value string // default, as a user would write it
	usage string
	set   func(string) error // parses, checks and stores one value
}

// variable returns the setting's name in the environment.
func (s *setting) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// table lists every setting of c.
func table(c *config) []setting {
	var all []setting
	for _, part := range [][]setting{process(c), storage(c), limits(c), live(c), answers(c), tier(c)} {
		all = append(all, part...)
	}
	return all
}

func process(c *config) []setting {
	return []setting{
		{"listen", "127.0.0.1:4437", "address of the HTTP API", address(&c.Listen)},
		{"admin-listen", "127.0.0.1:4438", "address of /metrics, /healthz, /readyz and /debug/pprof", address(&c.AdminListen)},
		{"data-dir", "./data", "directory that holds everything", path(&c.DataDir)},
		{"log-level", "info", "debug, info, warn or error", level(&c.LogLevel)},
		{"log-format", "text", "text or json", oneOf(&c.LogFormat, "text", "json")},
		{"pollers", "0", "event loops; 0 = by cores", count(&c.Server.Pollers, 0, 64)},
		{"io-uring", "true", "send the answers of a batch by one call of io_uring, where the kernel allows it", unless(&c.Server.NoRing)},
		{"idle-timeout", "2m", "how long a connection may be without a request", span(&c.Server.IdleTimeout, time.Second, 24*time.Hour)},
		{"drain-timeout", "8s", "how long a stop waits for requests in flight", span(&c.Drain, 0, time.Hour)},
	}
}

func storage(c *config) []setting {
	e := &c.Engine
	return []setting{
		{"shards", "0", "independent logs; fixed when the directory is created; 0 = by cores", count(&e.Shards, 0, 256)},
		{"wal-file-bytes", "64MiB", "size of one file of the log; an operation fits one", size(&e.WALFileBytes, 1, math.MaxInt64)},
		{"memtable-bytes", "64MiB", "data kept in memory before it is flushed to a segment", size(&e.MemtableBytes, 1, math.MaxInt64)},
		{"wal-max-bytes", "256MiB", "log that a memtable may pin before it is flushed", size(&e.WALMaxBytes, 1, math.MaxInt64)},
		{"segment-max-bytes", "256MiB", "largest segment that a merge makes", size(&e.SegmentMaxBytes, 1, math.MaxInt64)},
		{"max-producers-per-stream", "4096", "idempotent producers that a stream remembers", count(&e.MaxProducers, 1, 1<<20)},
		{"producer-idle-expiry", "168h", "idle time after which a producer may be forgotten to make room; 0 = never", span(&e.ProducerIdle, 0, 10*365*24*time.Hour)},
		{"max-state-bytes", "1GiB", "memory for stream heads, producers and index; 429 beyond", size(&e.MaxStateBytes, 1, math.MaxInt64)},
		{"min-free-disk", "0", "free space below which writes get 507; 0 = two segments, a memtable and two log files a shard", orDefault(&e.MinFreeDisk, size(&e.MinFreeDisk, 1<<20, math.MaxInt64))},
		{"erase-within", "1h", "time within which deleted data is gone from the disk", span(&e.EraseWithin, time.Second, 365*24*time.Hour)},
	}
}

func limits(c *config) []setting {
	s := &c.Server
	return []setting{
		{"max-body-bytes", "32MiB", "largest body of a PUT or POST; 413 beyond", size(&s.MaxBodyBytes, 1, 1<<30)},
		{"max-snapshot-bytes", "128MiB", "largest snapshot; 413 beyond", size(&s.MaxSnapshotBytes, 1, 1<<36)},
		{"max-inflight-body-bytes", "256MiB", "sum of the bodies being received; 503 beyond", size(&s.MaxInflightBodyBytes, 1<<20, math.MaxInt64)},
		{"max-header-bytes", "32KiB", "largest request head; 431 beyond", size(&s.MaxHeaderBytes, 1<<10, 1<<20)},
		{"max-connections", "0", "connections at once; 0 = by the limit of open files", count(&s.MaxConnections, 0, 1<<24)},
		{"default-read-bytes", "0", "page of a read without max_bytes; 0 = to the tail", orDefault(&s.DefaultReadBytes, size(&s.DefaultReadBytes, 1, math.MaxInt64))},
		{"max-read-bytes", "64MiB", "largest max_bytes, and page of a bootstrap's messages; more is taken for this", size(&s.MaxReadBytes, 1, math.MaxInt64)},
	}
}

func live(c *config) []setting {
	s := &c.Server
	return []setting{
		{"long-poll-timeout", "20s", "how long a long-poll waits unless it says so itself", span(&s.LongPollTimeout, 0, time.Minute)},
		{"sse-heartbeat", "15s", "silence after which an event stream gets a comment", span(&s.SSEHeartbeat, 100*time.Millisecond, time.Hour)},
		{"sse-max-duration", "60s", "age at which an event stream ends, more or less a tenth", span(&s.SSEMaxDuration, time.Second, 24*time.Hour)},
	}
}

func answers(c *config) []setting {
	s := &c.Server
	return []setting{
		{"public-url", "", "what Location begins with; empty = http and the request's Host", publicURL(&s.PublicURL)},
		{"cache-visibility", "public", "public or private, for Cache-Control of reads", oneOf(&s.CacheVisibility, "public", "private")},
		{"cors-origin", "*", "Access-Control-Allow-Origin", origin(&s.CORSOrigin)},
	}
}

// validate reports what is wrong between settings that are each in order.
func (c *config) validate() []string {
	var faults []string
	s := &c.Server
	if s.MaxInflightBodyBytes < s.MaxBodyBytes {
		faults = append(faults, "max-inflight-body-bytes must be at least max-body-bytes")
	}
	if s.SSEHeartbeat >= s.SSEMaxDuration {
		faults = append(faults, "sse-heartbeat must be below sse-max-duration")
	}
	if c.Listen == c.AdminListen && !strings.HasSuffix(c.Listen, ":0") {
		faults = append(faults, "listen and admin-listen must differ")
	}
	c.derive()
	faults = append(faults, c.checkStorage()...)
	return append(faults, c.checkMemory()...)
}

// derive fills in what the engine wants to know in its own way.
func (c *config) derive() {
	c.Engine.MaxBodyBytes = c.Server.MaxBodyBytes
	if c.Engine.ProducerIdle == 0 {
		c.Engine.ProducerIdle = -1 // never
	}
	c.Server.NoLongPollWait = c.Server.LongPollTimeout == 0
}
