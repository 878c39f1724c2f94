// Package engine keeps streams: durable appends through a log, reads that never
// wait for writers, and the background work that moves bytes from the log to
// segments. It is a library by itself; the server is one of its hosts.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/wal"
)

// Options configure an Engine. The zero value of a field means its default. They
// must not change after Open.
type Options struct {
	FS vfs.FS // default: the operating system's

	// Shards is the number of shards, fixed when the data directory is made;
	// another value than the directory's is an error. Default: one for each two
	// cores beyond the second, at least one, at most 64.
	Shards int

	WALFileBytes    int64 // size of a log file; default 64 MiB
	MemtableBytes   int64 // a memtable is frozen at this size; default 64 MiB
	WALMaxBytes     int64 // log that a memtable may pin; default 256 MiB
	SegmentMaxBytes int64 // merged segments are split at this size; default 256 MiB

	MaxProducers  int           // per stream; default 4096
	ProducerIdle  time.Duration // after which a producer may be forgotten; default 7 days, negative: never
	MaxStateBytes int64         // heads in memory; default 4 GiB
	MinFreeDisk   int64         // bytes kept free; default: what flush and merge need to finish, in all shards
	MaxBodyBytes  int64         // largest body of one operation; default 32 MiB
	MailboxOps    int           // operations waiting for a shard; default 65,536
	EraseWithin   time.Duration // after which deleted bytes are gone from disk; default 1 h

	SnapshotGrace time.Duration // for which a replaced snapshot stays readable; default 5 min

	// Tier, when set, is the object store that old data is moved to. Its prefix belongs
	// to this data directory alone. The fields up to EraseWithinRemote mean nothing
	// without it.
	Tier              tiering.Store
	TierFlushInterval time.Duration // for which data may be on the local disk alone, before it goes; default 5 s
	TierMinBytes      int64         // a segment of this size goes at once; default 8 MiB
	TierBandwidth     int64         // of puts, in bytes a second; 0: no limit
	LocalDiskBudget   int64         // of segments and snapshots on the local disk, in bytes; 0: no limit
	ColdCacheBytes    int64         // memory for what is read from the store; default 64 MiB
	GCGrace           time.Duration // from an object's last reference to its deletion; default 1 h
	EraseWithinRemote time.Duration // after which deleted bytes are gone from the store; default 24 h

	evictAbove int64 // local bytes: a part of LocalDiskBudget

	Now    func() time.Time // the wall clock; default time.Now
	Logger *slog.Logger     // default slog.Default
	// Registerer, when set, gets the engine's metrics.
	Registerer prometheus.Registerer

	// Ring, when set, is called from any goroutine when a shard wants a turn; the
	// host then calls Engine.Turn, for one shard from one goroutine at a time. It may
	// be called before Open has returned: the host runs that turn afterwards. When
	// nil, the engine runs a goroutine for each shard.
	Ring func(shard int)
	// Wake, when set, is called for a stream with watchers that has changed. It must
	// not block. It is not called again for the stream before Stream.Woken.
	Wake func(*Stream)
	// Idle, when set, is called after a flush that a shard did because it had nothing
	// else to do: a daemon may give memory back to the system.
	Idle func()
	// Fatal, when set, is called once, after the first error of the log, the manifest
	// or a directory: nothing is acknowledged any more. A daemon ends its process.
	Fatal func(error)
}

const (
	minWALFileBytes = wal.MinFileBytes
	maxWALFileBytes = 2 << 30
	maxMemtable     = 1 << 30 // with one more batch: run positions in a memtable are 32 bits
	maxShards       = 64
	minSegmentBytes = 64 << 10 // of segment-max-bytes

	eraseMargin    = 10 * time.Minute // for an object to leave the mirror and the store
	maxObjectBytes = 4 << 30          // S3 takes 5 GiB in one put
)

// withDefaults returns a copy in which every field has a value.
func (o Options) withDefaults() Options {
	set := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	set(&o.WALFileBytes, 64<<20)
	set(&o.MemtableBytes, 64<<20)
	set(&o.WALMaxBytes, 256<<20)
	set(&o.SegmentMaxBytes, 256<<20)
	set(&o.MaxStateBytes, 4<<30)
	set(&o.MaxBodyBytes, min(32<<20, (o.WALFileBytes-o.opOverhead())*5/8))
	set(&o.MinFreeDisk, 2*o.SegmentMaxBytes+o.MemtableBytes+2*o.WALFileBytes)
	if o.MaxProducers == 0 {
		o.MaxProducers = 4096
	}
	if o.ProducerIdle == 0 {
		o.ProducerIdle = 7 * 24 * time.Hour
	}
	if o.MailboxOps == 0 {
		o.MailboxOps = 64 << 10
	}
	if o.EraseWithin == 0 {
		o.EraseWithin = time.Hour
	}
	set(&o.TierMinBytes, 8<<20)
	set(&o.ColdCacheBytes, 64<<20)
	if o.Tier == nil {
		o.LocalDiskBudget = 0
	}
	set(&o.evictAbove, o.LocalDiskBudget/4*3)
	if o.Tier != nil && o.LocalDiskBudget > 0 { // what a merge makes is local at first
		o.SegmentMaxBytes = min(o.SegmentMaxBytes, max(o.LocalDiskBudget/8, o.MemtableBytes, minSegmentBytes))
	}
	for p, v := range map[*time.Duration]time.Duration{
		&o.TierFlushInterval: 5 * time.Second, &o.GCGrace: time.Hour, &o.EraseWithinRemote: 24 * time.Hour,
	} {
		if *p == 0 {
			*p = v
		}
	}
	if o.SnapshotGrace == 0 {
		o.SnapshotGrace = 5 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Idle == nil {
		o.Idle = func() {}
	}
	return o
}

// Validate reports everything that is wrong with the options, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	bad := func(on bool, format string, a ...any) {
		if on {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	bad(o.Shards < 0 || o.Shards > maxShards, "shards: %d is not in 0..%d", o.Shards, maxShards)
	bad(o.WALFileBytes < minWALFileBytes || o.WALFileBytes%vfs.BlockSize != 0 || o.WALFileBytes > maxWALFileBytes,
		"wal-file-bytes: %d is not a multiple of %d in %d..%d", o.WALFileBytes, vfs.BlockSize, minWALFileBytes, maxWALFileBytes)
	bad(o.MemtableBytes < 4<<10 || o.MemtableBytes > maxMemtable, "memtable-bytes: %d is not in %d..%d", o.MemtableBytes, 4<<10, maxMemtable)
	bad(o.WALMaxBytes < o.WALFileBytes, "wal-max-bytes: %d is less than wal-file-bytes, %d", o.WALMaxBytes, o.WALFileBytes)
	bad(o.SegmentMaxBytes < minSegmentBytes, "segment-max-bytes: %d is less than %d", o.SegmentMaxBytes, minSegmentBytes)
	bad(o.MaxBodyBytes < 1 || o.MaxBodyBytes > maxMemtable, "max-body-bytes: %d is not in 1..%d", o.MaxBodyBytes, maxMemtable)
	bad(o.MaxBodyBytes+endsBytes(o.MaxBodyBytes/2, o.MaxBodyBytes)+o.opOverhead() > o.WALFileBytes,
		"max-body-bytes: an operation of %d bytes may take half as much again and %d in the log, which does not fit wal-file-bytes, %d",
		o.MaxBodyBytes, o.opOverhead(), o.WALFileBytes)
	bad(o.MaxProducers < 1, "max-producers-per-stream: %d is less than 1", o.MaxProducers)
	bad(o.MaxStateBytes < 1<<20, "max-state-bytes: %d is less than %d", o.MaxStateBytes, 1<<20)
	bad(o.MinFreeDisk < 0, "min-free-disk: %d is negative", o.MinFreeDisk)
	bad(o.MailboxOps < 1, "mailbox: %d is less than 1", o.MailboxOps)
	bad(o.SnapshotGrace < 0, "snapshot-grace: %v is negative", o.SnapshotGrace)
	bad(o.TierFlushInterval < 10*time.Millisecond, "tier-flush-interval: %v is less than 10ms", o.TierFlushInterval)
	bad(o.TierMinBytes < 1, "tier-min-bytes: %d is less than 1", o.TierMinBytes)
	bad(o.TierBandwidth < 0, "tier-bandwidth: %d is negative", o.TierBandwidth)
	bad(o.LocalDiskBudget != 0 && o.LocalDiskBudget < 2*o.MemtableBytes,
		"local-disk-budget: %d is less than two of memtable-bytes, %d", o.LocalDiskBudget, 2*o.MemtableBytes)
	bad(o.ColdCacheBytes < 1<<20, "cold-cache-bytes: %d is less than %d", o.ColdCacheBytes, 1<<20)
	bad(o.GCGrace < 0, "gc-grace: %v is negative", o.GCGrace)
	bad(o.Tier != nil && o.EraseWithin+o.GCGrace+eraseMargin >= o.EraseWithinRemote,
		"erase-within-remote: %v is not more than erase-within, %v, gc-grace, %v, and %v", o.EraseWithinRemote, o.EraseWithin, o.GCGrace, eraseMargin)
	bad(o.Tier != nil && o.SegmentMaxBytes > maxObjectBytes, "segment-max-bytes: %d is more than an object store takes at once, %d", o.SegmentMaxBytes, int64(maxObjectBytes))
	bad(o.EraseWithin < time.Second, "erase-within: %v is less than 1s", o.EraseWithin)
	return errors.Join(errs...)
}

// opOverhead is the room in the log that the largest operation takes besides its
// body and the ends of its messages, which are about half as much as the body where
// each has two bytes, as in JSON: header of the file, names, types, producer id,
// Stream-Seq, and what may share its batch.
func (o *Options) opOverhead() int64 { return 2*vfs.BlockSize + 40<<10 + o.expiryRoom() }

// expiryRoom is the part of each batch that is kept for streams whose deadline has come.
func (o *Options) expiryRoom() int64 { return min(maxExpiryRoom, o.WALFileBytes/8) }

func defaultShards() int { return min(max(runtime.NumCPU()/2, 1), maxShards) }

func idleMillis(d time.Duration) int64 {
	if d < 0 {
		return 0
	}
	return min(d.Milliseconds(), math.MaxInt64)
}
