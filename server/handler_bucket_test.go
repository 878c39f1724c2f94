package server

import (
	stdjson "encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snakream/snakream/engine"
)

// on returns the node as it is seen through a bucket on /ds, which is made first.
func (n *node) on(bucket string) *node {
	n.t.Helper()
	m := *n
	m.drained = true // n does that
	m.url = "http://" + n.addr + "/ds/"
	m.want(201, "PUT", bucket, "")
	m.url += bucket + "/"
	return &m
}

// root returns the node as it is seen from /ds.
func (n *node) root() *node {
	m := *n
	m.drained = true
	m.url = "http://" + n.addr + "/ds/"
	return &m
}

func (a answer) code() string {
	var p struct{ Code string }
	_ = stdjson.Unmarshal([]byte(a.body), &p)
	return p.Code
}

// refused is want for a refusal, whose code it compares too.
func (n *node) refused(status int, code, method, path, body string, headers ...string) answer {
	n.t.Helper()
	a := n.want(status, method, path, body, headers...)
	if a.code() != code {
		n.t.Fatalf("%s %s %q: %s, want the code %s", method, path, headers, a.body, code)
	}
	return a
}

func TestBuckets(t *testing.T) {
	n := newNode(t, nil)
	ds := n.root()
	for _, bad := range []string{"abc", "ABCD", "a.bcd", "__ab", strings.Repeat("a", 65), "a%20bc"} {
		ds.refused(400, "bad_path", "PUT", bad, "")
	}
	ds.refused(404, "bucket_not_found", "GET", "none", "")
	ds.refused(404, "bucket_not_found", "DELETE", "none", "")
	ds.refused(404, "bucket_not_found", "GET", "none/streams", "")
	for _, m := range []string{"PUT", "GET", "HEAD", "DELETE", "POST"} {
		ds.want(404, m, "none/s", "")
	}
	a := ds.want(201, "PUT", "some", "")
	if got := a.header.Get("Location"); got != ds.url+"some" {
		t.Errorf("Location %q", got)
	}
	if a = ds.refused(409, "bucket_exists", "PUT", "some", ""); a.header.Get("Stream-Incarnation") != "" {
		t.Errorf("a bucket has an incarnation: %v", a.header)
	}
	ds.want(200, "PUT", "some?if-not-exists=true", "")
	ds.want(409, "PUT", "some?if-not-exists=false", "")
	ds.want(400, "PUT", "some?if-not-exists=1", "")
	ds.want(201, "PUT", "another?if-not-exists=true", "")
	ds.want(201, "PUT", "some/s", "x", "Content-Type", text)
	ds.want(201, "PUT", "some/expired", "x", "Stream-TTL", "0")
	var got struct {
		BucketID    string `json:"bucket_id"`
		Streams     int
		CreatedAtMs int64 `json:"created_at_ms"`
	}
	a = ds.want(200, "GET", "some", "")
	if err := stdjson.Unmarshal([]byte(a.body), &got); err != nil || got.BucketID != "some" || got.Streams != 1 || got.CreatedAtMs == 0 {
		t.Errorf("%s: %v", a.body, err)
	}
	ds.want(200, "HEAD", "some", "")
	ds.refused(409, "bucket_not_empty", "DELETE", "some", "")
	ds.want(204, "DELETE", "some/s", "")
	ds.want(204, "DELETE", "some", "")
	ds.want(404, "GET", "some", "")
	ds.refused(404, "bucket_not_found", "PUT", "some/s", "")
	if a = ds.want(405, "POST", "some", ""); !strings.Contains(a.header.Get("Allow"), "DELETE") {
		t.Errorf("405: %v", a.header)
	}
}

// Both surfaces name the same streams, and a bucket that came by v1 is one of /ds.
func TestSurfacesNameTheSame(t *testing.T) {
	n := newNode(t, nil)
	n.want(201, "PUT", "made/x%20y", "1", "Content-Type", text)
	ds := n.root()
	ds.want(200, "GET", "made", "")
	if a := ds.want(200, "GET", "made/x%20y", ""); a.body != "1" {
		t.Errorf("got %q", a.body)
	}
	ds.want(204, "POST", "made/x%20y", "2", "Content-Type", text)
	if a := n.want(200, "GET", "made/x%20y", ""); a.body != "12" {
		t.Errorf("got %q", a.body)
	}
	n.want(201, "PUT", "made/a/b", "deep", "Content-Type", text)
	if a := ds.want(200, "GET", "made/a%2Fb", ""); a.body != "deep" {
		t.Errorf("got %q", a.body)
	}
	ds.want(400, "PUT", "made/c%2Fd", "")
	ds.want(404, "GET", "made/a/b", "")
	n.want(204, "DELETE", "made/a/b", "")
	n.want(204, "DELETE", "made/x%20y", "")
	ds.want(204, "DELETE", "made", "")
	ds.want(404, "GET", "made", "")
	n.want(201, "PUT", "made/again", "")
	ds.want(200, "GET", "made", "")
}

// page is the body of a list.
type page struct {
	BucketID    string `json:"bucket_id"`
	Prefix      string
	StreamCount int `json:"stream_count"`
	Streams     []struct {
		StreamID      string `json:"stream_id"`
		Status        string
		ContentType   string `json:"content_type"`
		TailOffset    int64  `json:"tail_offset"`
		NextOffset    string `json:"next_offset"`
		CreatedAtMs   int64  `json:"created_at_ms"`
		LastWriteAtMs int64  `json:"last_write_at_ms"`
	}
	NextCursor *string `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
}

func (n *node) list(query string) (p page) {
	n.t.Helper()
	a := n.want(200, "GET", "streams"+query, "")
	if err := stdjson.Unmarshal([]byte(a.body), &p); err != nil {
		n.t.Fatalf("%v in %s", err, a.body)
	}
	return p
}

func TestListing(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.Shards = 3 }).on("listed")
	if p := n.list(""); p.BucketID != "listed" || p.Streams == nil || p.StreamCount != 0 || p.NextCursor != nil || p.HasMore {
		t.Errorf("empty: %+v", p)
	}
	var ids []string
	for i := range 25 {
		id := fmt.Sprintf("s%d", i)
		ids = append(ids, id)
		n.want(201, "PUT", id, "12345", "Content-Type", text)
	}
	for _, id := range []string{"é", `q"uote`, "z%"} {
		ids = append(ids, id)
		n.want(201, "PUT", url.PathEscape(id), "", "Content-Type", json)
	}
	n.want(204, "POST", "s7", "", "Stream-Closed", "true")
	n.want(201, "PUT", "gone", "", "Stream-TTL", "0")
	n.want(201, "PUT", "dropped", "")
	n.want(204, "DELETE", "dropped", "")
	slices.Sort(ids)
	for _, limit := range []int{1, 3, 7, 1000} {
		var got []string
		after := ""
		for more := true; more; {
			p := n.list(fmt.Sprintf("?limit=%d&after=%s", limit, url.QueryEscape(after)))
			if p.StreamCount != len(p.Streams) || len(p.Streams) > limit || p.NextCursor == nil {
				t.Fatalf("%+v", p)
			}
			for _, s := range p.Streams {
				got = append(got, s.StreamID)
				if s.CreatedAtMs == 0 || s.LastWriteAtMs < s.CreatedAtMs || s.NextOffset != fmt.Sprintf("%020d", s.TailOffset) {
					t.Errorf("%+v", s)
				}
				if (s.StreamID == "s7") != (s.Status == "closed") || s.Status != "closed" && s.Status != "open" {
					t.Errorf("%+v", s)
				}
			}
			after, more = *p.NextCursor, p.HasMore
		}
		if !slices.Equal(got, ids) {
			t.Errorf("limit %d: %q, want %q", limit, got, ids)
		}
	}
	if p := n.list("?prefix=s1&limit=3"); p.Prefix != "s1" || len(p.Streams) != 3 || p.Streams[0].StreamID != "s1" || *p.NextCursor != "s11" || !p.HasMore {
		t.Errorf("prefix: %+v", p)
	}
	if p := n.list("?prefix=s1&after=s2"); len(p.Streams) != 0 || p.NextCursor != nil {
		t.Errorf("after the prefix: %+v", p)
	}
	if p := n.list("?prefix=s1&after=a"); len(p.Streams) != 11 {
		t.Errorf("before the prefix: %+v", p)
	}
	for _, bad := range []string{"?limit=0", "?limit=1001", "?limit=", "?limit=x", "?limit=1&limit=1", "?prefix=%ff"} {
		n.want(400, "GET", "streams"+bad, "")
	}
	n.want(200, "HEAD", "streams", "")
}

// A page that is too long for one buffer goes out in pieces.
func TestLongListing(t *testing.T) {
	n := newNode(t, nil).on("long")
	long := strings.Repeat("x", 100)
	for i := range 700 {
		n.want(201, "PUT", fmt.Sprintf("%s%03d", long, i), "")
	}
	p := n.list("")
	if p.StreamCount != 700 || p.HasMore {
		t.Errorf("%d streams, more %v", p.StreamCount, p.HasMore)
	}
	if p = n.list("?limit=699"); p.StreamCount != 699 || !p.HasMore || *p.NextCursor != long+"698" {
		t.Errorf("%d streams, more %v, cursor %v", p.StreamCount, p.HasMore, p.NextCursor)
	}
}

// Streams are made while their bucket is deleted and made again: whatever is decided,
// no stream is left in a bucket that is not there, and none of an earlier bucket is
// seen in the next (field report 115).
func TestField115DeletingABucketRacesWithStreams(t *testing.T) {
	n := newNode(t, func(_ *Config, o *engine.Options) { o.Shards = 2 })
	ds := n.root()
	for round := range 30 {
		ds.want(201, "PUT", "race", "")
		var wg sync.WaitGroup
		made := make(chan string, 20)
		for i := range cap(made) {
			wg.Go(func() {
				id := fmt.Sprintf("s%d-%d", round, i)
				switch a := ds.do("PUT", "race/"+id, "old", "Content-Type", text); a.status {
				case 201:
					made <- id
				case 404, 503:
				default:
					t.Errorf("PUT of a stream: %d %s", a.status, a.body)
				}
			})
		}
		deleted := ds.do("DELETE", "race", "")
		wg.Wait()
		close(made)
		switch deleted.status {
		case 204:
			if len(made) > 0 {
				t.Fatalf("%d streams were made in a bucket that was empty", len(made))
			}
			for id := range made {
				ds.want(404, "GET", "race/"+id, "")
			}
		case 409:
			for id := range made {
				ds.want(204, "DELETE", "race/"+id, "")
			}
			ds.want(204, "DELETE", "race", "")
		default:
			t.Fatalf("DELETE of the bucket: %d %s", deleted.status, deleted.body)
		}
		ds.want(404, "GET", "race/streams", "")
		ds.want(201, "PUT", "race", "")
		if a := ds.want(200, "GET", "race/streams", ""); !strings.Contains(a.body, `"stream_count":0`) {
			t.Fatalf("a new bucket has streams: %s", a.body)
		}
		ds.want(204, "DELETE", "race", "")
	}
}
