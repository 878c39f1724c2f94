package engine

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// engineStats are counters of the whole engine.
type engineStats struct {
	damaged atomic.Int64 // reads and merges that met damage

	batchOps      prometheus.Histogram
	syncSeconds   prometheus.Histogram
	commitSeconds prometheus.Histogram
}

// shardStats are counters of one shard.
type shardStats struct {
	appends, bytes             atomic.Int64
	refused, wakes             atomic.Int64
	flushes, flushFailures     atomic.Int64
	merges, mergeFailures      atomic.Int64
	flushSeconds, mergeSeconds seconds
	replayed, torn             uint64
}

// seconds sums durations.
type seconds struct{ ns atomic.Int64 }

func (s *seconds) observe(d time.Duration) { s.ns.Add(int64(d)) }

func (s *seconds) value() float64 { return time.Duration(s.ns.Load()).Seconds() }

func (t *engineStats) init() {
	t.batchOps = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "snakream_commit_batch_records", Help: "Records that one sync of the log made durable.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 13),
	})
	t.syncSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "snakream_wal_sync_seconds", Help: "Time to write and sync one batch.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
	})
	t.commitSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "snakream_commit_seconds", Help: "Time from the mailbox until a batch is durable and visible, of the batch's first operation.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
	})
}

// committed counts a batch whose write began at the given time.
func (t *engineStats) committed(b *batch, begin time.Time) {
	now := time.Now()
	t.batchOps.Observe(float64(b.log.Len()))
	t.syncSeconds.Observe(now.Sub(begin).Seconds())
	if len(b.ops) > 0 && !b.since.IsZero() {
		t.commitSeconds.Observe(now.Sub(b.since).Seconds())
	}
}

// Stats is a snapshot of what the engine does and holds.
type Stats struct {
	Streams       int64
	MailboxOps    int64
	MemtableBytes int64
	SegmentBytes  int64
	Segments      int64
	IndexEntries  int64
	StateBytes    int64
	WALBytes      int64
	Recovery      time.Duration
	Replayed      uint64 // records of the log at the start
	Torn          uint64 // records at its end that were not whole
}

// gauges are what a shard's turn last knew, for scrapes.
type gauges struct {
	streams, memtable, state, pinned atomic.Int64
	frozen                           atomic.Int64 // bytes of frozen memtables, those included of whose segments the tier does not know yet
	deadLog, deadSegments            atomic.Int64 // since when they hold bytes of streams that have gone; 0: they don't
}

// note leaves the turn's figures for scrapes.
func (s *shard) note() {
	g := &s.gauges
	g.streams.Store(int64(s.streams))
	g.memtable.Store(s.active.Bytes())
	g.state.Store(s.stateBytes)
	g.pinned.Store(s.walBytes)
	g.deadLog.Store(int64(s.deadSince))
}

// unflushed returns the bytes that are in memtables, and so in the log, alone. Those of a
// memtable that has just been flushed are among them until the tier counts its segments.
func (g *gauges) unflushed() int64 { return g.memtable.Load() + g.frozen.Load() }

// Stats returns what the engine does and holds now.
func (e *Engine) Stats() Stats {
	t := Stats{Recovery: e.recovery}
	for _, s := range e.shards {
		t.Streams += s.gauges.streams.Load()
		t.MemtableBytes += s.gauges.memtable.Load()
		t.StateBytes += s.gauges.state.Load()
		t.WALBytes += s.gauges.pinned.Load()
		t.Replayed += s.stats.replayed
		t.Torn += s.stats.torn
		s.mu.Lock()
		t.MailboxOps += int64(len(s.box))
		s.mu.Unlock()
		rs := s.acquire()
		if rs == nil {
			continue
		}
		t.Segments += int64(len(rs.segs))
		t.IndexEntries += int64(rs.tree.Len())
		for _, r := range rs.segs {
			t.SegmentBytes += r.seg.Size()
		}
		rs.release()
	}
	return t
}

// collector gives the engine's figures to Prometheus at each scrape.
type collector struct{ e *Engine }

// metric is one figure: its name without the prefix, what it says, its value.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	value      float64
}

// Describe sends nothing: the collector is unchecked, its figures are in Collect.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the present figures.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	e := c.e
	e.stats.batchOps.Collect(ch)
	e.stats.syncSeconds.Collect(ch)
	e.stats.commitSeconds.Collect(ch)
	for _, m := range e.metrics() {
		desc := prometheus.NewDesc("snakream_"+m.name, m.help, nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, m.kind, m.value)
	}
}

func (e *Engine) metrics() []metric {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	sum := func(f func(*shard) float64) (v float64) {
		for _, s := range e.shards {
			v += f(s)
		}
		return v
	}
	count := func(f func(*shardStats) *atomic.Int64) float64 {
		return sum(func(s *shard) float64 { return float64(f(&s.stats).Load()) })
	}
	oldest := time.Duration(0)
	for _, s := range e.shards {
		oldest = max(oldest, time.Duration(s.deadAge())*time.Millisecond)
	}
	st := e.Stats()
	return append(e.tier.metrics(), []metric{
		{"appends_total", "Writes with data that became durable.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.appends })},
		{"append_bytes_total", "Bytes of stored data that became durable.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.bytes })},
		{"streams", "Streams, the deleted ones that forks keep included.", gauge, float64(st.Streams)},
		{"mailbox_operations", "Operations that wait for their shard's turn.", gauge, float64(st.MailboxOps)},
		{"mailbox_refused_total", "Operations refused because too many waited.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.refused })},
		{"memtable_bytes", "Memory of the active memtables.", gauge, float64(st.MemtableBytes)},
		{"state_bytes", "Memory of stream and producer state, estimated.", gauge, float64(st.StateBytes)},
		{"segment_bytes", "Size of the live segments.", gauge, float64(st.SegmentBytes)},
		{"segments", "Live segments.", gauge, float64(st.Segments)},
		{"index_entries", "Runs in the offset index.", gauge, float64(st.IndexEntries)},
		{"wal_active_bytes", "Log that the active memtables pin.", gauge, float64(st.WALBytes)},
		{"wal_rotations_total", "Log files begun.", counter, sum(func(s *shard) float64 { return float64(s.log.Stats().Rotations) })},
		{"flushes_total", "Memtables written to segments.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.flushes })},
		{"flush_failures_total", "Flushes that failed and were tried again.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.flushFailures })},
		{"flush_seconds_total", "Time spent in flushes.", counter, sum(func(s *shard) float64 { return s.stats.flushSeconds.value() })},
		{"merges_total", "Merges of segments.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.merges })},
		{"merge_failures_total", "Merges that failed.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.mergeFailures })},
		{"merge_seconds_total", "Time spent in merges.", counter, sum(func(s *shard) float64 { return s.stats.mergeSeconds.value() })},
		{"erase_age_seconds", "For how long the oldest byte has been dead that has not been erased, as far as is known.", gauge, oldest.Seconds()},
		{"wakes_total", "Changes told to live readers' streams.", counter, count(func(s *shardStats) *atomic.Int64 { return &s.wakes })},
		{"damaged_total", "Reads and merges that met damaged or missing bytes.", counter, float64(e.stats.damaged.Load())},
		{"recovery_seconds", "Time that the last start took to recover.", gauge, st.Recovery.Seconds()},
		{"recovery_records", "Records of the log that the last start replayed.", gauge, float64(st.Replayed)},
		{"recovery_torn_records", "Records at the end of the log that the last start found incomplete.", gauge, float64(st.Torn)},
		{"disk_full", "1 while writes are refused for want of disk space.", gauge, boolValue(e.DiskFull())},
	}...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
