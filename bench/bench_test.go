package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// reply is what a reader made of one answer.
type reply struct {
	status   int
	body     string
	next     string
	upToDate bool
	hangup   bool
}

// readAll feeds a reader the parts one after the other.
func readAll(t *testing.T, r *response, parts ...string) (replies []reply) {
	t.Helper()
	body := ""
	for _, part := range parts {
		for b := []byte(part); len(b) > 0; {
			n, piece, done, err := r.feed(b)
			if err != nil {
				t.Fatalf("feed(%q): %v", b, err)
			}
			if n == 0 {
				t.Fatalf("feed(%q) consumed nothing", b)
			}
			body += string(piece)
			b = b[n:]
			if done {
				replies = append(replies, reply{r.status, body, string(r.next), r.upToDate, r.hangup})
				body = ""
			}
		}
	}
	return replies
}

func TestResponseCutAnywhere(t *testing.T) {
	stream := "HTTP/1.1 100 Continue\r\n\r\n" +
		"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 00000000000000000256\r\n\r\n" +
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nstream-up-to-date: true\r\nConnection: Close\r\n\r\nhello" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n" +
		"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	want := []reply{
		{status: 204, next: "00000000000000000256"},
		{status: 200, body: "hello", upToDate: true, hangup: true},
		{status: 200, body: "abc0123456789"},
		{status: 404},
	}
	for cut := range len(stream) {
		var r response
		if got := readAll(t, &r, stream[:cut], stream[cut:]); !slices.Equal(got, want) {
			t.Fatalf("cut at %d: got %+v", cut, got)
		}
	}
	var r response
	if got := readAll(t, &r, strings.Split(stream, "")...); !slices.Equal(got, want) {
		t.Fatalf("octet by octet: got %+v", got)
	}
}

func TestResponseRefusesNonsense(t *testing.T) {
	for _, s := range []string{
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
	} {
		var r response
		var err error
		for b := []byte(s); len(b) > 0 && err == nil; {
			var n int
			n, _, _, err = r.feed(b)
			b = b[n:]
		}
		if err == nil {
			t.Errorf("accepted %q", s)
		}
	}
}

func TestRedisReplyCutAnywhere(t *testing.T) {
	stream := "$15\r\n1526919030474-0\r\n+PONG\r\n-ERR wrong\r\n$0\r\n\r\n"
	want := []bool{true, true, false, true}
	for cut := range len(stream) {
		var r respReply
		var got []bool
		for _, part := range []string{stream[:cut], stream[cut:]} {
			for b := []byte(part); len(b) > 0; {
				n, _, done, err := r.feed(b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[n:]
				if done {
					got = append(got, r.accepted())
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("cut at %d: got %v", cut, got)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var h, other histogram
	all := make([]int64, 20_000)
	for i := range all {
		all[i] = int64(math.Exp(rng.Float64() * 25))
		if i%2 == 0 {
			h.add(all[i])
		} else {
			other.add(all[i])
		}
	}
	h.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999} {
		got, exact := float64(h.quantile(q)), float64(all[int(q*float64(len(all)))])
		if got < exact || got > exact*(1+1.0/(1<<subBits))+1 {
			t.Errorf("seed %d: quantile %g = %g, exactly %g", seed, q, got, exact)
		}
	}
	if h.quantile(1) != time.Duration(all[len(all)-1]) {
		t.Errorf("seed %d: the largest is %d, not %d", seed, h.quantile(1), all[len(all)-1])
	}
}

func TestStampsCutAnywhere(t *testing.T) {
	a, b := livePayload(40), livePayload(0)
	stamp(a, 0x123456789abcdef)
	stamp(b, 42)
	text := "event: data\ndata:" + string(a) + string(b) + "\nevent: control\ndata:{\"x\":\"@\"}\n\n" + string(b)
	for cut := range len(text) {
		var s stampScanner
		var got []int64
		s.scan([]byte(text[:cut]), func(v int64) { got = append(got, v) })
		s.scan([]byte(text[cut:]), func(v int64) { got = append(got, v) })
		if want := []int64{0x123456789abcdef, 42, 42}; !slices.Equal(got, want) {
			t.Fatalf("cut at %d: got %x", cut, got)
		}
	}
}

func TestRequestAimsAtAStream(t *testing.T) {
	s := &server{spec: spec{addr: "127.0.0.1:1"}}
	r := appendRequest(s, binaryType, []byte("abc"))
	r.aim(1234567)
	if want := "POST /v1/stream/" + streamName(1234567) + " HTTP/1.1\r\n"; !strings.HasPrefix(string(r.bytes), want) {
		t.Errorf("got %q", r.bytes)
	}
	s.protocol = redisStreams
	r = appendRequest(s, binaryType, []byte("abc"))
	r.aim(7)
	name := streamName(7)
	want := fmt.Sprintf("*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nd\r\n$3\r\nabc\r\n", len(name), name)
	if string(r.bytes) != want {
		t.Errorf("got %q", r.bytes)
	}
}

func TestRatiosAreTakenRunByRun(t *testing.T) {
	var c comparison
	for run, pair := range [][2]float64{{10, 5}, {30, 10}, {4, 4}, {9, 0}} {
		for i, name := range []string{"a", "b"} {
			c.results = append(c.results, result{Server: name, Run: run, Metrics: []metric{{"rate", "/s", pair[i]}}})
		}
	}
	c.results = append(c.results, result{Server: "b", Run: 9, Error: "fell over"})
	r, ok := c.ratio("a", "b", "rate")
	if !ok || r != (ratio{2, 1, 3}) {
		t.Errorf("got %+v", r)
	}
	if m := c.median("a", "rate"); m != 9.5 {
		t.Errorf("median %g", m)
	}
	if m := c.median("c", "rate"); !math.IsNaN(m) {
		t.Errorf("median of nothing is %g", m)
	}
}

// memoryServer is a Durable Streams server that does just enough for the scenarios.
type memoryServer struct {
	mu      sync.Mutex
	streams map[string][]byte
	changed chan struct{} // closed and replaced by each append
}

func (m *memoryServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.streams[r.URL.Path]
	switch {
	case r.Method == "PUT":
		m.streams[r.URL.Path] = []byte{}
		w.WriteHeader(201)
	case !ok:
		w.WriteHeader(404)
	case r.Method == "POST":
		m.streams[r.URL.Path] = append(data, body...)
		close(m.changed)
		m.changed = make(chan struct{})
		w.WriteHeader(204)
	default:
		m.read(w, r, len(data))
	}
}

// read answers a GET; the lock is held.
func (m *memoryServer) read(w http.ResponseWriter, r *http.Request, tail int) {
	q := r.URL.Query()
	from := 0
	if q.Get("offset") == "now" {
		from = tail
	} else {
		fmt.Sscan(q.Get("offset"), &from)
		from = max(from, 0)
	}
	sse := q.Get("live") == modeSSE
	if sse {
		w.(http.Flusher).Flush()
	}
	for {
		data := m.streams[r.URL.Path]
		if len(data) > from || q.Get("live") == "" {
			if !sse {
				w.Header().Set("Stream-Next-Offset", fmt.Sprint(len(data)))
				w.Header().Set("Stream-Up-To-Date", "true")
				w.Write(data[from:])
				return
			}
			fmt.Fprintf(w, "event: data\ndata:%s\n\n", data[from:])
			w.(http.Flusher).Flush()
			from = len(data)
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		m.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

// openHandler serves h, until the test ends, as a server to be measured.
func openHandler(t *testing.T, h http.Handler) *server {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	sp, err := parseTarget("mem=" + web.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sp.open("")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScenariosAgainstAServer(t *testing.T) {
	s := openHandler(t, &memoryServer{streams: map[string][]byte{}, changed: make(chan struct{})})
	for _, sc := range []scenario{
		appendLoad{connections: 3, streams: 5, payload: 10, threads: 2, duration: 50 * time.Millisecond},
		catchupLoad{readers: 3, size: 1 << 20, threads: 2, duration: 50 * time.Millisecond},
		fanoutLoad{mode: modeSSE, readers: 7, streams: 3, rate: 200, payload: 30, duration: 100 * time.Millisecond},
		fanoutLoad{mode: modeLongPoll, readers: 7, streams: 3, rate: 200, payload: 30, duration: 100 * time.Millisecond},
		parkLoad{mode: modeSSE, readers: 9, streams: 4, idle: 10 * time.Millisecond},
	} {
		t.Run(sc.label(), func(t *testing.T) {
			namePrefix = fmt.Sprintf("test-%d-", now())
			metrics, err := sc.run(s)
			if err != nil {
				t.Fatal(err)
			}
			if metrics[0].Value < 0 || (metrics[0].Name == "rate" && metrics[0].Value == 0) {
				t.Errorf("measured %+v", metrics)
			}
		})
	}
}

func TestMissingStreamEndsTheRun(t *testing.T) {
	s := openHandler(t, http.NotFoundHandler())
	_, err := appendLoad{connections: 1, streams: 1, payload: 1, duration: time.Millisecond}.run(s)
	if err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("got %v", err)
	}
}
