package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// listingLoad measures pages of the listing of a large bucket, one after the other on
// one connection.
type listingLoad struct {
	streams  int
	limit    int // of a page
	requests int // of each kind
}

// prefixDigits is how many digits of a stream's name are in the prefix of a page: 1,000
// streams have it.
const prefixDigits = digitCount - 3

// moreStates is for a million streams what the default limit is too small for.
var moreStates = list{"snakream=--max-state-bytes=4GiB"}

func (l listingLoad) label() string {
	return fmt.Sprintf("listing %d of %d streams", l.limit, l.streams)
}

func (l listingLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	if err := createStreams(s, l.streams, binaryType); err != nil {
		return nil, err
	}
	list := defaultBucket + "streams?limit=" + fmt.Sprint(l.limit)
	first := requestFor(s, "GET", list, "", "", nil)
	first.width = 0
	prefix := requestFor(s, "GET", list+"&prefix="+namePrefix+fmt.Sprintf("%0*d", prefixDigits, 0), "", "", nil)
	prefix.digits += digitCount - prefixDigits
	prefix.width = prefixDigits
	behind := requestFor(s, "GET", list+"&after="+streamName(0), "", "", nil)

	var metrics []metric
	for _, kind := range []struct {
		name    string
		request request
		among   int // values that the digits of the request may have
		page    func(i int) int
	}{
		{"first", first, 1, func(int) int { return min(l.limit, l.streams) }},
		{"prefix", prefix, (l.streams + 999) / 1000, func(i int) int { return min(l.limit, 1000, l.streams-1000*i) }},
		{"after", behind, l.streams, func(i int) int { return min(l.limit, l.streams-1-i) }},
	} {
		rng := rand.New(rand.NewPCG(5, 1))
		left := l.requests
		p := &pump{
			server: s, strict: true, template: kind.request,
			next: func() (int, bool) { left--; return rng.IntN(kind.among), left >= 0 },
		}
		p.check = func(i int, body []byte) error {
			// Another process may have made streams before, on a server that we didn't start.
			if n := bytes.Count(body, []byte(`"stream_id"`)); n != kind.page(i) && s.cmd != nil {
				return fmt.Errorf("a page of %d streams, not %d", n, kind.page(i))
			}
			return nil
		}
		if err := p.run(1); err != nil {
			return nil, fmt.Errorf("the page %q: %w", kind.name, err)
		}
		metrics = append(metrics,
			metric{kind.name + " p50", "ms", milliseconds(p.latency.quantile(0.50))},
			metric{kind.name + " p99", "ms", milliseconds(p.latency.quantile(0.99))})
	}
	rss, err := s.rss()
	return append(metrics, metric{"rss", "MiB", mebibytes(rss)}), err
}
