package server

import (
	"log/slog"
	"time"
)

// Config sets up a Server. It does not change after New. The zero value of a field
// means its default.
type Config struct {
	PublicURL       string // what Location begins with; default: http and the request's Host
	CORSOrigin      string // default "*"
	CacheVisibility string // "public" or "private", for Cache-Control of reads; default "public"

	MaxBodyBytes         int64 // largest body of a PUT or POST; default 32 MiB
	MaxSnapshotBytes     int64 // largest snapshot; default 128 MiB
	MaxInflightBodyBytes int64 // sum of the large bodies being received; default 256 MiB
	MaxHeaderBytes       int64 // largest request head; default 32 KiB
	MaxConnections       int   // default: the limit of open files − 500
	NoRing               bool  // answers are not sent together by io_uring, even where the kernel has it
	Pollers              int   // event loops; default: one for each two cores
	DefaultReadBytes     int64 // page of a read without max_bytes; default: to the tail
	MaxReadBytes         int64 // max_bytes, and the messages of a bootstrap, are capped by it; default 64 MiB

	LongPollTimeout time.Duration // default 20 s
	NoLongPollWait  bool          // a long-poll without a timeout of its own does not wait at all
	SSEHeartbeat    time.Duration // silence after which a comment is sent; default 15 s
	SSEMaxDuration  time.Duration // age at which an event stream ends, ± 10 %; default 60 s
	IdleTimeout     time.Duration // between two requests; default 2 min

	Logger *slog.Logger // default slog.Default
}

// withDefaults returns a copy in which every field has a value.
func (c Config) withDefaults() Config {
	setDefault(&c.MaxBodyBytes, 32<<20)
	setDefault(&c.MaxSnapshotBytes, 128<<20)
	setDefault(&c.MaxInflightBodyBytes, 256<<20)
	setDefault(&c.MaxHeaderBytes, 32<<10)
	setDefault(&c.MaxReadBytes, 64<<20)
	setDefault(&c.Pollers, defaultPollers())
	setDefault(&c.LongPollTimeout, 20*time.Second)
	setDefault(&c.SSEHeartbeat, 15*time.Second)
	setDefault(&c.SSEMaxDuration, 60*time.Second)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	if c.NoLongPollWait {
		c.LongPollTimeout = 0
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
