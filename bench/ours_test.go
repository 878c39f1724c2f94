package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// bucketServer adds to memoryServer what it takes for bootstraps, snapshots and listings.
type bucketServer struct {
	mu        sync.Mutex
	names     map[string]bool
	updates   map[string][][]byte // appends behind the snapshot
	snapshots map[string][]byte
	flat      memoryServer
}

func newBucketServer() *bucketServer {
	return &bucketServer{
		names: map[string]bool{}, updates: map[string][][]byte{}, snapshots: map[string][]byte{},
		flat: memoryServer{streams: map[string][]byte{}, changed: make(chan struct{})},
	}
}

func (b *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if name, ok := strings.CutPrefix(r.URL.Path, "/v1/stream/"); ok {
		b.names[name] = true
		if r.Method == "POST" {
			b.updates[name] = append(b.updates[name], body)
			w.Header().Set("Stream-Next-Offset", "1")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		b.flat.ServeHTTP(w, r)
		return
	}
	name, op, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, defaultBucket), "/")
	switch {
	case name == "streams":
		b.list(w, r)
	case op == "bootstrap":
		b.bootstrap(w, name)
	case op == "snapshot/1":
		b.snapshots[name], b.updates[name] = body, nil
		w.WriteHeader(204)
	default:
		w.WriteHeader(404)
	}
}

func (b *bucketServer) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	for name := range b.names {
		if strings.HasPrefix(name, q.Get("prefix")) && name > q.Get("after") && limit > 0 {
			fmt.Fprintf(w, `{"stream_id":%q}`, name)
			limit--
		}
	}
}

func (b *bucketServer) bootstrap(w http.ResponseWriter, name string) {
	m := multipart.NewWriter(w)
	w.Header().Set("Content-Type", "multipart/mixed; boundary="+m.Boundary())
	for _, part := range append([][]byte{b.snapshots[name]}, b.updates[name]...) {
		p, _ := m.CreatePart(textproto.MIMEHeader{})
		p.Write(part)
	}
	m.Close()
}

func TestOurScenariosAgainstAServer(t *testing.T) {
	for _, sc := range []scenario{
		bootstrapLoad{snapshot: 1 << 20, updates: 50, payload: 10, duration: 50 * time.Millisecond},
		publishLoad{snapshot: 1 << 20, streams: 3, payload: 10, gap: time.Millisecond, duration: 50 * time.Millisecond},
		listingLoad{streams: 2500, limit: 100, requests: 5},
		tierLoad{appendLoad{connections: 2, streams: 2, payload: 10, duration: 20 * time.Millisecond}},
	} {
		t.Run(sc.label(), func(t *testing.T) {
			namePrefix = fmt.Sprintf("test-%d-", now())
			metrics, err := sc.run(openHandler(t, newBucketServer()))
			if err != nil {
				t.Fatal(err)
			}
			if metrics[0].Value <= 0 {
				t.Errorf("measured %+v", metrics)
			}
		})
	}
}

func TestWhatNeedsOurOwnProcessIsNotApplicable(t *testing.T) {
	s := openHandler(t, newBucketServer())
	for _, sc := range []scenario{coldLoad{size: 1, streams: 1, readers: 1, rounds: 1}, restoreLoad{streams: 1, payload: 1, connections: 1}} {
		if _, err := sc.run(s); err != errNotApplicable {
			t.Errorf("%s: %v", sc.label(), err)
		}
	}
}

func TestBootstrapIsCompared(t *testing.T) {
	b := newBucketServer()
	s := openHandler(t, b)
	load := bootstrapLoad{snapshot: 1000, updates: 3, payload: 10}
	want, err := load.prepare(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := load.check(s, want); err != nil {
		t.Fatal(err)
	}
	name := streamName(bootstrapped)
	b.mu.Lock()
	b.updates[name] = b.updates[name][1:]
	b.mu.Unlock()
	if err := load.check(s, want); err == nil {
		t.Error("an update is missing, and nobody minds")
	}
	b.mu.Lock()
	b.updates[name] = append(b.updates[name], make([]byte, 10))
	b.snapshots[name][0] ^= 1
	b.mu.Unlock()
	if err := load.check(s, want); err == nil {
		t.Error("another snapshot, and nobody minds")
	}
}

// A server that stands still once must be seen in all the appends that were due
// meanwhile, not in one.
func TestPacedCountsFromWhenItWasDue(t *testing.T) {
	const still = 100 * time.Millisecond
	var mu sync.Mutex
	n := 0
	s := openHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == 20 {
			timer := time.NewTimer(still)
			<-timer.C
		}
		w.WriteHeader(204)
	}))
	p := &paced{server: s, streams: 1, payload: 10, gap: time.Millisecond}
	if err := p.run(200 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.latency.count != 200 {
		t.Errorf("%d appends of 200 were measured", p.latency.count)
	}
	if q := p.latency.quantile(0.8); q < still/10 { // half of them were due while it stood still
		t.Errorf("four fifths took at most %v", q)
	}
}

func TestFetchRefusesWhatIsNoAnswer(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "0000001"):
			w.Header().Set("Content-Length", "10")
			w.Write([]byte("half"))
		case strings.HasSuffix(r.URL.Path, "0000002"):
			w.WriteHeader(500)
		default:
			w.Write([]byte("whole"))
		}
	}))
	t.Cleanup(h.Close)
	s := &server{spec: spec{name: "mem", addr: strings.TrimPrefix(h.URL, "http://")}}
	whole := httpRequest(s, "GET", "", "", nil)
	all, _, err := fetch(s, whole, whole)
	if err != nil || len(all) != 2 || all[1].bytes != 5 {
		t.Errorf("two good answers: %+v, %v", all, err)
	}
	for i := range 2 {
		bad := whole.clone()
		bad.aim(i + 1)
		if _, _, err := fetch(s, whole, bad); err == nil {
			t.Errorf("answer %d was taken", i+1)
		}
	}
}

func TestTierIsAwaited(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/metrics" {
			fmt.Fprint(w, "snakream_x_total_more 7\nsnakream_x_total 1.5e+06\n")
			return
		}
		asked++
		json.NewEncoder(w).Encode(map[string]any{"connected": true, "exposed_bytes": 5 - asked})
	}))
	t.Cleanup(h.Close)
	s := &server{admin: strings.TrimPrefix(h.URL, "http://")}
	st, err := s.tier()
	if err != nil || protected(st) || st.ExposedBytes != 4 {
		t.Errorf("got %+v, %v", st, err)
	}
	if _, err := s.awaitTier("done", time.Millisecond, protected); err == nil {
		t.Error("no end to the patience")
	}
	if v, err := s.counter("snakream_x_total"); err != nil || v != 1.5e6 {
		t.Errorf("counter %g, %v", v, err)
	}
	if st, err := new(server).tier(); st != nil || err != nil {
		t.Errorf("without an admin listener: %+v, %v", st, err)
	}
}

func TestMemoryWatchSeesAPeakThatHasGone(t *testing.T) {
	w, err := watchMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !w.exact {
		t.Log("the high-water mark can't be reset here, so nothing is exact")
		close(w.stop)
		<-w.peak
		return
	}
	const size = 64 << 20
	b := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	got, err := w.growth()
	if err != nil || got < size/2 {
		t.Errorf("grew by %d, %v", got, err)
	}
	if b[size/2] != 1 {
		t.Error("unreachable, but keeps the memory in use")
	}
}

func TestEveryGoalNamesItsFigure(t *testing.T) {
	seen := map[string]bool{}
	f := found{}
	for _, fig := range allFigures {
		if seen[fig.name] {
			t.Errorf("two figures %q", fig.name)
		}
		seen[fig.name] = true
		f[fig.name] = comparison{results: []result{{Server: strings.Split(fig.servers, ",")[0], Run: 1, Error: "fell over in " + fig.name}}}
	}
	for _, fig := range allFigures {
		for _, g := range fig.goals {
			got, shown := g.value(f)
			if !math.IsNaN(got) || !strings.Contains(shown, "fell over in "+fig.name) {
				t.Errorf("%s, %s: %g, %s", fig.name, g.text, got, shown)
			}
		}
	}
}
