package server

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// brittle is an object store whose gets a test can refuse or hold up.
type brittle struct {
	*tiertest.Memory

	mu   sync.Mutex
	left int           // gets that are answered; -1: all
	hold chan struct{} // gets wait until it is closed; nil: they don't
	held int           // gets that wait for that
	gone int           // gets that did, and were given up
}

var errDown = errors.New("down for a test")

// Get implements tiering.Store.
func (b *brittle) Get(ctx context.Context, key string, p []byte, off int64) error {
	b.mu.Lock()
	down, hold := b.left == 0, b.hold
	if b.left > 0 {
		b.left--
	}
	if hold != nil {
		b.held++
	}
	b.mu.Unlock()
	switch {
	case hold != nil:
		select {
		case <-hold:
		case <-ctx.Done():
		}
		b.mu.Lock()
		b.held--
		if ctx.Err() != nil {
			b.gone++
		}
		b.mu.Unlock()
	case down:
		return errDown
	}
	return b.Memory.Get(ctx, key, p, off)
}

// stalled returns how many gets are held up, and how many were until they were given up.
func (b *brittle) stalled() (held, gone int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.gone
}

// answer lets so many gets through, -1 for all, and refuses the rest.
func (b *brittle) answer(gets int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = gets
}

// stall holds all gets up, until release is called.
func (b *brittle) stall() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold := make(chan struct{})
	b.hold = hold
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hold = nil
		close(hold)
	})
}

// tiered is a node that moves old data to a brittle store.
type tiered struct {
	*node
	store  *brittle
	flush  time.Duration // after which data goes to files, and on to the store
	change func(*engine.Options)
}

const diskBudget = 1 << 30 // what may stay on the local disk

const (
	byBytes = time.Hour              // so that a segment has several messages of fill, on any machine
	byTime  = 100 * time.Millisecond // so that everything is in the store soon
)

func newTiered(t *testing.T) *tiered {
	return newTieredWith(t, func(*engine.Options) {})
}

func newTieredWith(t *testing.T, change func(*engine.Options)) *tiered {
	t.Helper()
	n := &tiered{store: &brittle{Memory: tiertest.NewMemory(), left: -1}, flush: byBytes, change: change}
	n.node = newNode(t, n.options)
	return n
}

// options are those of the node.
func (n *tiered) options(_ *Config, o *engine.Options) {
	o.Tier, o.TierFlushInterval, o.LocalDiskBudget = n.store, n.flush, diskBudget
	o.MemtableBytes, o.ColdCacheBytes = 256<<10, 1<<20
	n.change(o)
}

// until waits for something that the tier does in the background.
func (n *tiered) until(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if ok() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	n.t.Fatalf("not within %v: %s", patience, what)
}

// part is some bytes of a stream, other ones for each i.
func part(i, size int) string { return strings.Repeat(fmt.Sprintf("%07d.", i), size/8) }

// fill makes a stream of a content type that has some MiB, and returns what it holds.
func (n *tiered) fill(contentType string, mib int) (s, content string) {
	n.t.Helper()
	s = n.create(contentType)
	var all strings.Builder
	for i := range mib * 32 { // several to a segment: of a single one nothing has to be looked up
		p := part(i, 32<<10)
		if contentType == json {
			p = `"` + p + `"`
		}
		n.append(s, contentType, p)
		all.WriteString(p)
	}
	return s, all.String()
}

// place is where the bytes of a stream are, all of them.
type place uint8

const (
	several place = iota // not all in one place
	inMemory
	inFiles
	inStore
)

// place looks where the bytes of a stream are.
func (n *tiered) place(s string) place {
	v := n.view(s)
	var st engine.Step
	defer st.Release()
	found := map[place]bool{}
	for at := base.Offset(0); at < v.Next; at = st.End() {
		if err := n.engine.Read(v, at, v.Next, 1<<20, &st); err != nil {
			return several
		}
		for i := range st.Pieces() {
			p := &st.Pieces()[i]
			_, _, _, inFile := p.File()
			switch {
			case p.Mem != nil:
				found[inMemory] = true
			case inFile:
				found[inFiles] = true
			default:
				found[inStore] = true
			}
		}
	}
	if len(found) != 1 {
		return several
	}
	return slices.Collect(maps.Keys(found))[0]
}

// chill makes the node one that has been restored: all that the streams and snapshots held
// is in the object store alone, and nothing of it in a cache. The store refuses every get.
func (n *tiered) chill(streams ...string) {
	n.t.Helper()
	n.stop()
	n.flush = byTime
	n.node = openNode(n.t, n.dir, n.options)
	n.until("everything is in the store", func() bool {
		warm := tiered{node: n.node}
		cold := tiered{store: &brittle{Memory: n.store.Clone(), left: -1}, flush: byTime, change: n.change}
		var o engine.Options
		cold.options(nil, &o)
		o.Logger = slog.New(slog.DiscardHandler)
		dir := n.t.TempDir()
		if _, err := engine.Restore(n.t.Context(), dir, o, engine.RestoreOptions{}); err != nil {
			return false
		}
		cold.store.answer(0)
		cold.node = openNode(n.t, dir, cold.options)
		for _, s := range streams {
			if cold.view(s) == nil || cold.view(s).Next != warm.view(s).Next || cold.place(s) != inStore {
				cold.stop()
				return false
			}
		}
		n.stop()
		n.node, n.store = cold.node, cold.store
		return true
	})
}

// view returns the view of a stream, whose name may have a bucket in front; nil when it is
// not there.
func (n *tiered) view(s string) *engine.View {
	bucket, name, ok := strings.Cut(s, "/")
	if !ok {
		bucket, name = "_default", s
	}
	if st := n.engine.Lookup([]byte(bucket), []byte(name)); st != nil {
		return st.View()
	}
	return nil
}

// counted fails the test unless so many reads were damaged, and so many ended for want of
// the store.
func (n *tiered) counted(damaged, unavailable uint64) {
	n.t.Helper()
	m := n.server.metrics
	if d, u := m.damaged.Load(), m.unavailable.Load(); d != damaged || u != unavailable {
		n.t.Errorf("%d reads were damaged and %d without the store, want %d and %d", d, u, damaged, unavailable)
	}
}

// While the store can't be asked, whatever needs it is refused for the time being, and
// all else goes on. It is no damage.
func TestColdStoreDown(t *testing.T) {
	t.Parallel()
	n := newTiered(t)
	s, content := n.fill(octets, 1)
	j, _ := n.fill(json, 1)
	b := n.on("cold-one")
	withSnapshot := b.create(octets)
	for i := range 16 {
		b.append(withSnapshot, octets, part(i, 32<<10))
	}
	b.want(204, "PUT", withSnapshot+"/snapshot/00000000000000262144", part(3, 2<<20), "Stream-Snapshot-Retain", "true")
	n.chill(s, j, "cold-one/"+withSnapshot)
	b = n.root()
	b.url += "cold-one/"

	refused := uint64(0)
	down := func(n *node, method, path, body string, headers ...string) {
		t.Helper()
		refused++
		if a := n.refused(503, "cold_unavailable", method, path, body, headers...); a.header.Get("Retry-After") != "5" {
			t.Errorf("%s %s: Retry-After %q", method, path, a.header.Get("Retry-After"))
		}
	}
	down(n.node, "GET", s, "")
	down(n.node, "GET", s+"?offset=-1&live=long-poll", "")
	down(n.node, "GET", s+"?offset=-1&max_bytes=10", "")
	down(n.node, "GET", j+"?offset=-1&max_bytes=300000", "")
	down(n.node, "GET", j+"?record=1&max_records=1", "")
	down(b, "GET", withSnapshot+"/snapshot/00000000000000262144", "")
	down(b, "GET", withSnapshot+"/bootstrap", "")
	down(b, "GET", withSnapshot+"/bootstrap?live=sse", "")
	down(b, "PUT", withSnapshot+"/snapshot/00000000000000300000", "x")
	down(b, "PUT", withSnapshot+"/retention/00000000000000200000", "")
	for _, path := range []string{s + "?offset=-1&live=sse", j + "?record=0&live=sse"} {
		refused++
		e := n.follow(path)
		if got := e.expect("end"); !strings.Contains(got, `"code":"cold_unavailable"`) {
			t.Errorf("%s ended with %s", path, got)
		}
		e.ends()
	}
	fork := fresh()
	for range 2 {
		down(n.node, "PUT", fork, "", "Stream-Forked-From", "/v1/stream/"+s, "Stream-Fork-Offset", "00000000000000000100")
	}
	n.want(404, "HEAD", fork, "")
	n.counted(0, refused)

	n.want(200, "HEAD", s, "")
	n.append(s, octets, "new")
	if a := n.want(200, "GET", s+fmt.Sprintf("?offset=%020d", len(content)), ""); a.body != "new" {
		t.Errorf("the tail is %q", a.body)
	}
	n.store.answer(-1)
	if a := n.want(200, "GET", s, ""); a.body != content+"new" {
		t.Errorf("%d bytes came back, not %d", len(a.body), len(content)+3)
	}
	if a := b.want(200, "GET", withSnapshot+"/snapshot/00000000000000262144", ""); a.body != part(3, 2<<20) {
		t.Errorf("a snapshot of %d bytes came back", len(a.body))
	}
	b.want(409, "PUT", withSnapshot+"/retention/00000000000000300000", "") // nothing has moved
	n.want(201, "PUT", fork, "", "Stream-Forked-From", "/v1/stream/"+s, "Stream-Fork-Offset", "00000000000000000100")
	if a := n.want(200, "GET", fork, ""); a.body != content[:100] {
		t.Errorf("the fork has %d bytes", len(a.body))
	}
	n.counted(0, refused)
}

// What has begun and can't go on is cut, so that nobody takes it for the whole.
func TestColdReadIsCut(t *testing.T) {
	t.Parallel()
	n := newTiered(t)
	s, content := n.fill(octets, 3)
	n.chill(s)
	n.until("it has begun", func() bool { // a merge may be faster than this read
		n.store.answer(1)
		resp, err := n.client.Get(n.url + s)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if resp.StatusCode == 503 {
			return false
		}
		if err == nil || resp.StatusCode != 200 || !strings.HasPrefix(content, string(got)) {
			t.Errorf("%d with %d bytes, ended by %v", resp.StatusCode, len(got), err)
		}
		return true
	})
	if n.server.metrics.damaged.Load() > 0 {
		t.Error("it counts as damage")
	}
}

// An object that is missing, short or of other bytes is damage, not a hole.
func TestColdDamage(t *testing.T) {
	for what, spoil := range map[string]func(*brittle, string){
		"missing": func(b *brittle, key string) { b.Remove(key) },
		"short":   func(b *brittle, key string) { b.Truncate(key, int64(len(b.Bytes(key)))/2) },
		"other bytes": func(b *brittle, key string) {
			for at := int64(4096); at < int64(len(b.Bytes(key)))*9/10; at += 60_000 {
				b.Corrupt(key, at)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newTiered(t)
			s, content := n.fill(octets, 1)
			n.chill(s)
			for _, key := range n.store.Keys() {
				if strings.HasPrefix(key, tiering.SegmentPrefix) {
					spoil(n.store, key)
				}
			}
			n.store.answer(-1)
			if a := n.refused(500, "range_damaged", "GET", s, ""); strings.Contains(a.body, tiering.SegmentPrefix) {
				t.Errorf("the answer names an object: %s", a.body)
			}
			e := n.follow(s + "?offset=-1&live=sse")
			if got := e.expect("end"); !strings.Contains(got, `"code":"range_damaged"`) {
				t.Errorf("the events ended with %s", got)
			}
			n.counted(2, 0)
			n.append(s, octets, "new")
			n.want(200, "GET", s+fmt.Sprintf("?offset=%020d", len(content)), "")
		})
	}
}

// A client that goes away ends the read that waits for the store. Nothing is counted.
func TestColdReaderGoes(t *testing.T) {
	t.Parallel()
	n := newTiered(t)
	s, _ := n.fill(octets, 1)
	n.chill(s)
	release := n.store.stall()
	defer release()
	for _, query := range []string{"", "?offset=-1&live=long-poll", "?offset=-1&live=sse"} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", n.url+s+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		before, _ := n.store.stalled()
		go func() {
			defer close(done)
			if resp, err := n.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		n.until("a get is under way", func() bool { held, _ := n.store.stalled(); return held > before })
		_, gone := n.store.stalled()
		leave()
		n.until("it is given up", func() bool { _, now := n.store.stalled(); return now > gone })
		<-done
	}
	n.parked(0)
	n.counted(0, 0)
}

// Live readers that wait for the store don't hold up those that read the disk.
func TestColdReadersDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	n := newTiered(t)
	s, _ := n.fill(octets, 1)
	n.chill(s)
	near := n.create(text)
	want := part(7, 200<<10)
	n.append(near, text, want)
	n.until("the other stream is in a file", func() bool { return n.place(near) == inFiles })
	release := n.store.stall()
	defer release()
	for range 2 * storeReaders {
		n.follow(s + "?offset=-1&live=sse")
	}
	n.until("some gets are under way", func() bool { held, _ := n.store.stalled(); return held > 0 })
	e := n.follow(near + "?offset=-1&live=sse")
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(e.expect("data"))
		e.expect("control")
	}
	if got.String() != want {
		t.Errorf("%d bytes came, not %d", got.Len(), len(want))
	}
}

// What is where, for operators.
func TestAdminTier(t *testing.T) {
	t.Parallel()
	plain := NewAdmin(newNode(t, nil).server)
	if status, body := plain.ask("/tier"); status != 404 || !strings.Contains(body, "no tier") {
		t.Errorf("without a tier: %d %s", status, body)
	}
	n := newTiered(t)
	s, _ := n.fill(octets, 1)
	n.chill(s)
	n.until("the tier has looked", func() bool { st, _ := n.engine.TierStatus(); return st.EvictedSegments > 0 })
	status, body := NewAdmin(n.server).ask("/tier")
	var st engine.TierStatus
	if err := stdjson.Unmarshal([]byte(body), &st); status != 200 || err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if !st.Connected || st.Fenced || st.Store != "memory" || st.EvictedSegments == 0 || st.LocalBudget != diskBudget {
		t.Errorf("got %+v", st)
	}
	early, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := NewAdmin(early).ask("/tier"); status != 503 || !strings.Contains(body, "recovering") {
		t.Errorf("during recovery: %d %s", status, body)
	}
}

// A node whose place another has taken says so to its writers, and goes on reading until
// its process ends.
func TestFenced(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	n := newTieredWith(t, func(o *engine.Options) {
		o.TierFlushInterval, o.Fatal = byTime, func(err error) { ended <- err }
	})
	n.fails = true
	s := n.create(text)
	n.append(s, text, "mine")
	from, v, err := mirror.Load(t.Context(), n.store)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := mirror.TakeOver(t.Context(), n.store, from, v, mirror.Identity{Node: [16]byte{1}}, mirror.Writer{1}, now()); err != nil {
		t.Fatal(err)
	}
	n.append(s, text, "until it notices")
	admin := NewAdmin(n.server)
	n.until("the node knows that it is fenced", func() bool {
		st, _ := n.engine.TierStatus()
		return st.Fenced
	})
	if a := n.refused(503, "fenced", "POST", s, "x", "Content-Type", text); a.header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	n.refused(503, "fenced", "PUT", fresh(), "")
	n.refused(503, "fenced", "DELETE", s, "")
	if a := n.want(200, "GET", s, ""); a.body != "mineuntil it notices" {
		t.Errorf("the stream is %q", a.body)
	}
	if status, body := admin.ask("/readyz"); status != 503 || !strings.Contains(body, "another node") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if _, body := admin.ask("/tier"); !strings.Contains(body, `"fenced":true`) {
		t.Errorf("/tier: %s", body)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, engine.ErrFenced) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}
