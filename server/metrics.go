package server

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snakream/snakream/protocol"
)

// route is what requests are counted by. It never holds anything that a client
// chose.
type route uint8

const (
	routeOther route = iota
	routeCreate
	routeAppend
	routeRead
	routeLongPoll
	routeEvents
	routeHead
	routeDelete
	routeOptions
	routeBucket
	routeList
	routePublish
	routeSnapshot
	routeRetention
	routeBootstrap
	routeAttrs
	routeBatch
	routes
)

var routeNames = [routes]string{
	"other", "create", "append", "read", "long-poll", "sse", "head", "delete", "options",
	"bucket", "list", "publish", "snapshot", "retention", "bootstrap", "attrs", "append-batch",
}

// kindRoutes are the routes of the kinds of operation, but for reads.
var kindRoutes = [...]route{
	protocol.KindCreate:         routeCreate,
	protocol.KindAppend:         routeAppend,
	protocol.KindHead:           routeHead,
	protocol.KindDelete:         routeDelete,
	protocol.KindOptions:        routeOptions,
	protocol.KindBucketCreate:   routeBucket,
	protocol.KindBucketGet:      routeBucket,
	protocol.KindBucketDelete:   routeBucket,
	protocol.KindList:           routeList,
	protocol.KindSnapshotPut:    routePublish,
	protocol.KindSnapshotLatest: routeSnapshot,
	protocol.KindSnapshotGet:    routeSnapshot,
	protocol.KindSnapshotDelete: routeSnapshot,
	protocol.KindRetention:      routeRetention,
	protocol.KindBootstrap:      routeBootstrap,
	protocol.KindAttrsGet:       routeAttrs,
	protocol.KindAttrsPut:       routeAttrs,
	protocol.KindAppendBatch:    routeBatch,
	protocol.KindDocument:       routeOther,
}

// routeOf returns the route of an operation.
func routeOf(op *protocol.Operation) route {
	if op.Kind != protocol.KindRead {
		return kindRoutes[op.Kind]
	}
	switch op.Read.Live {
	case protocol.LiveLongPoll:
		return routeLongPoll
	case protocol.LiveSSE:
		return routeEvents
	}
	return routeRead
}

// statuses is one more than the largest status that is counted by itself.
const statuses = 600

// metrics are the counts of the server. Counting is one atomic addition; what
// Prometheus wants is made of them when it asks.
type metrics struct {
	server   *Server
	requests [routes][statuses]atomic.Uint64
	stalls   atomic.Uint64 // frames that a socket did not take whole
	replaced atomic.Uint64 // code points that never came whole
	damaged  atomic.Uint64 // ranges that could not be read

	unavailable atomic.Uint64 // ranges that the object store did not give
}

func newMetrics(s *Server) *metrics { return &metrics{server: s} }

// count counts an answer.
func (m *metrics) count(r route, status int) {
	if status < 0 || status >= statuses {
		status = 0
	}
	m.requests[r][status].Add(1)
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("snakream_"+name, help, labels, nil)
}

var (
	descRequests    = describe("http_requests_total", "Answers, by route and status.", "route", "status")
	descReaders     = describe("live_readers", "Live readers that are parked or catching up, by mode.", "mode")
	descStalls      = describe("live_stalls_total", "Events that a slow reader's socket did not take whole.")
	descUploads     = describe("snapshot_uploads", "Snapshots that are being received.")
	descSlow        = describe("slow_consumers_total", "Connections cut because they took nothing for too long.")
	descReplaced    = describe("live_text_replaced_total", "Unfinished code points sent to event streams as U+FFFD.")
	descDamaged     = describe("damaged_reads_total", "Reads of a range that is damaged.")
	descUnavailable = describe("unavailable_reads_total", "Reads that ended because the object store could not be asked.")
	descConnections = describe("connections", "Open connections.")
	descAccepted    = describe("connections_accepted_total", "Connections accepted.")
	descRefused     = describe("connections_refused_total", "Connections closed at once because there were too many.")
	descMalformed   = describe("http_malformed_total", "Requests refused before they were routed.")
	descReceived    = describe("received_bytes_total", "Bytes read from connections.")
	descSent        = describe("sent_bytes_total", "Bytes written to connections.")
)

// Describe sends the descriptions of everything that Collect collects.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRequests, descReaders, descStalls, descSlow, descReplaced, descDamaged, descUnavailable, descUploads,
		descConnections, descAccepted, descRefused, descMalformed, descReceived, descSent,
	} {
		to <- d
	}
}

// Collect turns the counts into metrics.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for r := range m.requests {
		for status := range m.requests[r] {
			if n := m.requests[r][status].Load(); n > 0 {
				counter(descRequests, n, routeNames[r], strconv.Itoa(status))
			}
		}
	}
	h := m.server.hub
	gauge(descReaders, h.readers[longPoll].Load(), "long-poll")
	gauge(descReaders, h.readers[events].Load(), "sse")
	counter(descStalls, m.stalls.Load())
	counter(descReplaced, m.replaced.Load())
	counter(descDamaged, m.damaged.Load())
	counter(descUnavailable, m.unavailable.Load())
	gauge(descUploads, m.server.uploads.Load())

	t := m.server.transport.Stats()
	gauge(descConnections, t.Connections)
	counter(descSlow, t.SlowConsumer)
	counter(descAccepted, t.Accepted)
	counter(descRefused, t.Refused)
	counter(descMalformed, t.Malformed)
	counter(descReceived, t.BytesIn)
	counter(descSent, t.BytesOut)
}
