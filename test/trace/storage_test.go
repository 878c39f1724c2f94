//go:build e2e

package trace

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	logDir     = "data/shard-00/wal"
	segmentDir = "data/shard-00/seg"
	tmpDir     = "data/shard-00/tmp"
	manifest   = "data/shard-00/MANIFEST-"
)

// isLog reports whether p is a file of the log.
func isLog(p string) bool { return path.Dir(p) == logDir && path.Ext(p) == ".wal" }

// TestNewDirectoryIsDurable looks at the making of a data directory: the identity,
// which says that the rest is there, gets its name last.
func TestNewDirectoryIsDurable(t *testing.T) {
	p := launch(t)
	c := p.dial(t)
	if _, _, err := c.do(request{"PUT", "first", "", text(), 201}); err != nil {
		t.Fatal(err)
	}
	events := p.since(t, 0)
	named := find(events, 0, func(e event) bool { return e.call == "rename" && e.to == "data/SNAKREAM" })
	answered := find(events, 0, func(e event) bool { return e.output() && e.path == c.addr })
	if named == nil || answered == nil {
		t.Fatalf("no rename to SNAKREAM, or no answer:\n%s", around(events, p.now()))
	}
	for _, e := range events {
		if e.begin >= named.begin {
			break
		}
		var err error
		switch {
		case path.Base(e.path) == "LOCK":
		case e.changes():
			err = syncedBefore(events, e, named.begin)
		case e.call == "create" || e.call == "mkdirat":
			err = namedBefore(events, e, e.path, named.begin)
		case e.call == "rename":
			err = namedBefore(events, e, e.to, named.begin)
		}
		if err != nil {
			t.Errorf("the identity was given its name although %v:\n%s", err, around(events, e.begin, named.begin))
		}
	}
	if err := namedBefore(events, *named, named.to, answered.begin); err != nil {
		t.Errorf("the first answer left although %v:\n%s", err, around(events, named.begin, answered.begin))
	}
}

// find returns the first event that begins after a position and satisfies ok.
func find(events []event, after int, ok func(event) bool) *event {
	for i := range events {
		if events[i].begin > after && ok(events[i]) {
			return &events[i]
		}
	}
	return nil
}

// namedBefore reports why the entry of name, which e made, was not durable at a
// position: e has to succeed, and then a sync of the directory.
func namedBefore(events []event, e event, name string, position int) error {
	if e.end == 0 || e.end > position || e.result < 0 {
		return fmt.Errorf("a name was not given: %v", e)
	}
	dir := path.Dir(name)
	if s := find(events, e.end, func(s event) bool { return s.synced(dir) }); s == nil || s.end >= position {
		return fmt.Errorf("%s was not synced after %v", dir, e)
	}
	return nil
}

// tinyLimits make the log rotate, the memtable flush and the segments merge all the time.
var tinyLimits = []string{
	"--wal-file-bytes", "256KiB",
	"--wal-max-bytes", "512KiB",
	"--memtable-bytes", "64KiB",
	"--segment-max-bytes", "256KiB",
	"--max-body-bytes", "64KiB",
}

// sent is an append that has been acknowledged.
type sent struct {
	marker string
	client string
	from   int // a position after which its answer is the client's first output
}

// TestRotationFlushAndMerge lets the storage work until every kind of its file changes
// has happened several times, and then looks at the order of calls: no byte that was
// acknowledged is ever without a durable place.
func TestRotationFlushAndMerge(t *testing.T) {
	p := launch(t, tinyLimits...)
	acked := p.churn(t)
	p.stop(t)
	events := p.since(t, 0)
	h := newHistory(events)
	t.Logf("%d events, %d appends, %d log files begun, %d left, %d segments made, %d removed",
		len(events), len(acked), h.count(logBegun), h.count(logLeft), h.count(segmentMade), h.count(segmentGone))
	for _, a := range acked {
		h.check(t, h.answered(a))
	}
	for i := range events {
		e := &events[i]
		if e.call == "rename" {
			h.check(t, h.renamed(e))
		}
		switch {
		case logBegun(e):
			h.check(t, h.begun(e))
		case logLeft(e):
			h.check(t, h.left(e))
		case segmentMade(e):
			h.check(t, h.made(e))
		case segmentGone(e):
			h.check(t, h.gone(e))
		}
		if t.Failed() {
			return // what follows from it is no news
		}
	}
}

// churn appends with a few clients until the trace has enough of everything.
func (p *process) churn(t *testing.T) []sent {
	t.Helper()
	streams := []string{"a", "b", "c", "d"}
	clients := len(streams)
	var wg sync.WaitGroup
	var enough atomic.Bool
	acked := make([][]sent, clients)
	errs := make([]error, clients)
	for i := range clients {
		c := p.dial(t)
		wg.Go(func() { acked[i], errs[i] = p.appendMany(c, streams[i], &enough) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v\n%s", err, p.said())
	}
	if !enough.Load() {
		t.Errorf("%d appends did not make the storage do everything often enough", clients*mostAppends)
	}
	return slices.Concat(acked...)
}

// mostAppends bounds what one client appends. A few hundred do.
const mostAppends = 2000

// appendMany makes a stream and appends to it until there is enough.
func (p *process) appendMany(c *client, stream string, enough *atomic.Bool) ([]sent, error) {
	if _, _, err := c.do(request{"PUT", stream, "", text(), 201}); err != nil {
		return nil, err
	}
	var acked []sent
	for n := range mostAppends {
		if enough.Load() {
			break
		}
		name := fmt.Sprintf("<<%s-%d>>", stream, n)
		from := p.now()
		body := name + strings.Repeat("x", 100+n*37%6000)
		if _, _, err := c.do(request{"POST", stream, body, text(), 204}); err != nil {
			return nil, err
		}
		acked = append(acked, sent{name, c.addr, from})
		if n%16 == 0 && p.busyEnough() {
			enough.Store(true)
		}
	}
	return acked, nil
}

// busyEnough reports whether the trace has each kind of change a few times.
func (p *process) busyEnough() bool {
	events, err := p.list(0)
	h := &history{events: events}
	for _, kind := range []func(*event) bool{logBegun, logLeft, segmentMade, segmentGone} {
		if h.count(kind) < 5 {
			return false
		}
	}
	return err == nil
}

// A marker is what a body can be found by, wherever it is stored.
var marker = regexp.MustCompile(`<<[a-z]+[-0-9]*>>`)

// markersIn returns the markers in b.
func markersIn(b []byte) []string {
	var all []string
	for _, m := range marker.FindAll(b, -1) {
		all = append(all, string(m))
	}
	return all
}
