package main

import (
	"flag"
	"time"
)

// scenarios register their flags and later make the scenario from them.
var scenarios = map[string]func(fs *flag.FlagSet) func(c *common) scenario{
	"append": func(fs *flag.FlagSet) func(*common) scenario {
		connections := fs.Int("connections", 64, "connections, each with one append in flight")
		streams := fs.Int("streams", 1, "streams, chosen at random")
		payload := fs.Int("payload", 256, "bytes of an append")
		json := fs.Bool("json-streams", false, "streams of application/json")
		return func(c *common) scenario {
			return appendLoad{*connections, *streams, *payload, *json, max(c.threads, 1), c.warmup, c.duration}
		}
	},
	"catchup": func(fs *flag.FlagSet) func(*common) scenario {
		readers := fs.Int("readers", 1, "connections that read")
		size := fs.Int("size", 64, "MiB of the stream")
		return func(c *common) scenario {
			if c.threads == 0 {
				c.threads = 2
			}
			return catchupLoad{*readers, *size << 20, c.threads, c.warmup, c.duration}
		}
	},
	"fanout": func(fs *flag.FlagSet) func(*common) scenario {
		mode := fs.String("mode", modeSSE, "sse or long-poll")
		readers := fs.Int("readers", 1000, "live readers")
		streams := fs.Int("streams", 100, "streams")
		rate := fs.Int("rate", 100, "events a second over all streams")
		payload := fs.Int("payload", 256, "bytes of an event")
		return func(c *common) scenario {
			return fanoutLoad{*mode, *readers, *streams, *rate, *payload, c.warmup, c.duration}
		}
	},
	"park": func(fs *flag.FlagSet) func(*common) scenario {
		mode := fs.String("mode", modeSSE, "sse or long-poll")
		readers := fs.Int("readers", 10000, "parked readers")
		streams := fs.Int("streams", 500, "streams")
		settle := fs.Duration("settle", 2*time.Second, "pause before memory is read")
		idle := fs.Duration("idle", 8*time.Second, "how long idle CPU is measured")
		return func(*common) scenario { return parkLoad{*mode, *readers, *streams, *settle, *idle} }
	},
	"recover": func(fs *flag.FlagSet) func(*common) scenario {
		streams := fs.Int("streams", 100_000, "streams")
		appends := fs.Int("appends", 1_000_000, "appends, evenly over the streams")
		payload := fs.Int("payload", 256, "bytes of an append")
		connections := fs.Int("connections", 256, "connections that fill")
		return func(*common) scenario {
			return recoverLoad{streams: *streams, appends: *appends, payload: *payload, connections: *connections}
		}
	},
	"idle": func(fs *flag.FlagSet) func(*common) scenario {
		streams := fs.Int("streams", 100_000, "streams")
		appends := fs.Int("appends", 1, "appends to each")
		payload := fs.Int("payload", 256, "bytes of an append")
		settle := fs.Duration("settle", 5*time.Second, "pause before memory is read")
		return func(*common) scenario { return idleLoad{*streams, *appends, *payload, *settle} }
	},
	"bootstrap": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, us)
		snapshot := fs.Int("snapshot", 64, "MiB of the snapshot")
		updates := fs.Int("updates", 10_000, "appends behind it")
		payload := fs.Int("payload", 100, "bytes of an append")
		return func(c *common) scenario {
			return bootstrapLoad{*snapshot << 20, *updates, *payload, c.duration}
		}
	},
	"publish": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, us)
		snapshot := fs.Int("snapshot", 128, "MiB of a snapshot")
		streams := fs.Int("streams", 1, "streams that are appended to, chosen at random")
		payload := fs.Int("payload", 256, "bytes of an append")
		gap := fs.Duration("gap", time.Millisecond, "time from one append to the next")
		return func(c *common) scenario {
			c.args = append(oneShard, c.args...)
			return publishLoad{*snapshot << 20, *streams, *payload, *gap, c.warmup, c.duration}
		}
	},
	"listing": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, us)
		streams := fs.Int("streams", 1_000_000, "streams in the bucket")
		limit := fs.Int("limit", 1000, "streams of a page")
		requests := fs.Int("requests", 1000, "pages of each kind")
		return func(c *common) scenario {
			c.args = append(moreStates, c.args...)
			return listingLoad{*streams, *limit, *requests}
		}
	},
	"tier": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, tiered+","+us)
		preset(fs, "warmup", tierWarmup.String())
		preset(fs, "duration", tierDuration.String())
		connections := fs.Int("connections", 64, "connections, each with one append in flight")
		streams := fs.Int("streams", 1000, "streams, chosen at random")
		payload := fs.Int("payload", 256, "bytes of an append")
		return func(c *common) scenario {
			return tierLoad{appendLoad{*connections, *streams, *payload, false, max(c.threads, 1), c.warmup, c.duration}}
		}
	},
	"cold": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, tiered)
		size := fs.Int64("size", 1024, "MiB of all streams")
		streams := fs.Int("streams", 1, "streams")
		readers := fs.Int("readers", 1, "readers, each of one of the streams; and GETs of the SDK at once")
		rounds := fs.Int("rounds", 3, "reads by each, taking turns")
		return func(*common) scenario { return coldLoad{*size << 20, *streams, *readers, *rounds} }
	},
	"restore": func(fs *flag.FlagSet) func(*common) scenario {
		alone(fs, tiered)
		preset(fs, "runs", "1")
		streams := fs.Int("streams", 1_000_000, "streams")
		payload := fs.Int("payload", 10<<10, "bytes of each")
		connections := fs.Int("connections", 64, "connections that fill")
		return func(c *common) scenario {
			c.args = append(restoreArgs, c.args...)
			return restoreLoad{*streams, *payload, *connections}
		}
	},
}

// alone makes servers the default of a scenario that others can't do.
func alone(fs *flag.FlagSet, servers string) { preset(fs, "servers", servers) }

// preset gives a flag of all scenarios another default.
func preset(fs *flag.FlagSet, name, value string) {
	f := fs.Lookup(name)
	if err := f.Value.Set(value); err != nil {
		panic(err)
	}
	f.DefValue = value
}
