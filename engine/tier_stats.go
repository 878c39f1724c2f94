package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tierStats are the tier's counters, and what it last knew.
type tierStats struct {
	puts, putBytes, deletes, commits, failures atomic.Int64
	evictions, evictedBytes, foreign           atomic.Int64

	mu     sync.Mutex
	status TierStatus
}

// TierStatus says what is where, as the tier knew it a moment ago.
type TierStatus struct {
	Store     string    `json:"store"`
	Connected bool      `json:"connected"` // the mirror is this node's own
	Fenced    bool      `json:"fenced"`
	Epoch     uint64    `json:"epoch"`
	Committed time.Time `json:"mirror_committed_at"` // when the mirror last changed

	LocalBytes      int64 `json:"local_bytes"` // of segments and snapshots on the local disk
	LocalBudget     int64 `json:"local_budget_bytes"`
	Segments        int   `json:"segments"`
	RemoteSegments  int   `json:"remote_segments"` // named by the mirror
	EvictedSegments int   `json:"evicted_segments"`

	PendingSegments int   `json:"pending_segments"` // not in the store yet, or not named by the mirror
	PendingBytes    int64 `json:"pending_bytes"`
	// What a loss of this machine would lose: pending bytes and what is in memtables and
	// the log alone, and for how long the oldest of it has been so.
	ExposedBytes   int64   `json:"exposed_bytes"`
	ExposedSeconds float64 `json:"exposed_seconds"`

	DeadObjects int   `json:"dead_objects"` // waiting for the end of their grace
	Foreign     int64 `json:"foreign_objects"`
}

// TierStatus returns what the tier last knew. ok is false without a tier.
func (e *Engine) TierStatus() (s TierStatus, ok bool) {
	if e.tier == nil {
		return TierStatus{}, false
	}
	t := &e.tier.stats
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.status
	s.Fenced = e.fenced.Load()
	s.ExposedBytes = s.PendingBytes
	for _, sh := range e.shards { // a flush can take long, and the tier waits for it
		s.ExposedBytes += sh.gauges.unflushed()
	}
	if s.ExposedBytes > 0 && s.ExposedSeconds == 0 {
		s.ExposedSeconds = e.opts.TierFlushInterval.Seconds()
	}
	return s, true
}

// note leaves what the tier knows for whoever asks.
func (t *tier) note() {
	s := TierStatus{
		Store: t.store.String(), Connected: t.handle != nil, Epoch: t.state.Epoch, Committed: t.committed,
		LocalBudget: t.e.opts.LocalDiskBudget,
		DeadObjects: len(t.state.Dead), Foreign: t.stats.foreign.Load(),
	}
	s.LocalBytes, _ = t.e.localBytes()
	now := time.Now()
	var oldest time.Time
	for i := range t.shards {
		sh := &t.shards[i]
		for id, m := range sh.live {
			s.Segments++
			if m.Evicted {
				s.EvictedSegments++
			}
			if sh.named(id, sh.inMirror) {
				s.RemoteSegments++
				continue
			}
			s.PendingSegments++
			s.PendingBytes += m.Size
		}
		if at := sh.exposedSince(); !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if !oldest.IsZero() {
		s.ExposedSeconds = (now.Sub(oldest) + t.e.opts.TierFlushInterval).Seconds()
	}
	t.stats.mu.Lock()
	for i := range t.shards {
		sh := &t.shards[i]
		sh.s.gauges.frozen.Add(-sh.seen) // they are pending bytes from now on
		sh.seen = 0
	}
	t.stats.status = s
	t.stats.mu.Unlock()
}

// metrics returns the tier's figures.
func (t *tier) metrics() []metric {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	if t == nil {
		return nil
	}
	n := func(c *atomic.Int64) float64 { return float64(c.Load()) }
	s, _ := t.e.TierStatus()
	c := t.e.cold.Stats()
	return []metric{
		{"tier_puts_total", "Objects put into the object store.", counter, n(&t.stats.puts)},
		{"tier_put_bytes_total", "Bytes put into the object store.", counter, n(&t.stats.putBytes)},
		{"tier_mirror_commits_total", "Changes of the mirror, each a put.", counter, n(&t.stats.commits)},
		{"tier_deletes_total", "Objects deleted from the object store.", counter, n(&t.stats.deletes)},
		{"tier_failures_total", "Operations of the object store that failed and are tried again.", counter, n(&t.stats.failures)},
		{"tier_evictions_total", "Segments of which only the tail stayed local.", counter, n(&t.stats.evictions)},
		{"tier_evicted_bytes_total", "Bytes that left the local disk for the object store.", counter, n(&t.stats.evictedBytes)},
		{"tier_foreign_objects", "Objects under the prefix that are not Snakream's, or of an unknown origin.", gauge, n(&t.stats.foreign)},
		{"tier_connected", "1 while the mirror is this node's own.", gauge, boolValue(s.Connected && !s.Fenced)},
		{"tier_local_bytes", "Bytes of segments and snapshots on the local disk.", gauge, float64(s.LocalBytes)},
		{"tier_pending_segments", "Segments that a restore would not find yet.", gauge, float64(s.PendingSegments)},
		{"tier_exposed_bytes", "Bytes that a loss of this machine would lose, about.", gauge, float64(s.ExposedBytes)},
		{"tier_exposed_seconds", "For how long the oldest of them have been exposed, about.", gauge, s.ExposedSeconds},
		{"tier_dead_objects", "Objects that wait for the end of their grace.", gauge, float64(s.DeadObjects)},
		{"cold_reads_total", "Pieces of objects that were asked for.", counter, float64(c.Hits + c.Misses)},
		{"cold_hits_total", "Pieces that were in the cache.", counter, float64(c.Hits)},
		{"cold_gets_total", "Ranged gets from the object store.", counter, float64(c.Fetches)},
		{"cold_bytes_total", "Bytes got from the object store.", counter, float64(c.BytesFetched)},
	}
}
