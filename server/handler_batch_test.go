package server

import (
	"encoding/binary"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// frames puts the payloads of a batch into its frames.
func frames(payloads ...string) string {
	var b []byte
	for _, p := range payloads {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	return string(b)
}

type batchResult struct {
	Status           int
	StreamOffset     string `json:"stream_offset"`
	StreamNextOffset string `json:"stream_next_offset"`
	StreamClosed     bool   `json:"stream_closed"`
	RecordNext       int    `json:"stream_record_next"`
	Code             string
	Position         *int64
}

func (n *node) batch(s, contentType string, payloads ...string) (results []batchResult) {
	n.t.Helper()
	a := n.want(200, "POST", s+"/append-batch", frames(payloads...), "Content-Type", contentType)
	if err := stdjson.Unmarshal([]byte(a.body), &results); err != nil || len(results) != len(payloads) {
		n.t.Fatalf("%d payloads: %v in %s", len(payloads), err, a.body)
	}
	return results
}

func TestAppendBatch(t *testing.T) {
	n := newNode(t, nil).on("batches")
	s := n.create(text)
	large := strings.Repeat("L", 100_000)
	for i, r := range n.batch(s, text, "a", "bc", large, "d") {
		at := []int{0, 1, 3, 100_003, 100_004}
		if r.Status != 204 || r.StreamOffset != offset(at[i]) || r.StreamNextOffset != offset(at[i+1]) || r.RecordNext != i+1 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if a := n.want(200, "GET", s, ""); a.body != "abc"+large+"d" {
		t.Errorf("%d bytes", len(a.body))
	}
	for _, bad := range []string{"", "\x00", "\x00\x00\x00\x02a", frames("a", ""), frames("a") + "\x00\x00", frames(make([]string, 513)...), "\xff\xff\xff\xffabc"} {
		n.want(400, "POST", s+"/append-batch", bad, "Content-Type", text)
	}
	if r := n.batch(s, text, make512()...); r[511].StreamNextOffset != offset(100_004+512) {
		t.Errorf("%+v", r[511])
	}
	tail := offset(100_004 + 512)
	for _, header := range [][2]string{
		{"Producer-Id", "p"}, {"Stream-Seq", "1"}, {"If-Match", "*"}, {"If-None-Match", "*"}, {"Stream-Record-Match", "1"}, {"Stream-Closed", "true"},
	} {
		n.refused(400, "header_not_allowed", "POST", s+"/append-batch", frames("x"), "Content-Type", text, header[0], header[1])
	}
	n.refused(400, "missing_content_type", "POST", s+"/append-batch", frames("x"))
	n.refused(404, "stream_not_found", "POST", "none/append-batch", frames("x"), "Content-Type", text)
	n.refused(412, "incarnation_mismatch", "POST", s+"/append-batch", frames("x"), "Content-Type", text, "Stream-Incarnation", "1")
	for _, r := range n.batch(s, json, "1", "2") {
		if r.Status != 409 || r.Code != "content_type_mismatch" {
			t.Errorf("%+v", r)
		}
	}
	n.want(204, "POST", s, "", "Stream-Closed", "true")
	for _, r := range n.batch(s, text, "x") {
		if r.Status != 409 || r.Code != "closed" || r.StreamNextOffset != tail || !r.StreamClosed {
			t.Errorf("%+v", r)
		}
	}
	if got := n.want(200, "HEAD", s, "").header.Get("Stream-Next-Offset"); got != tail {
		t.Errorf("the tail is %s, was %s", got, tail)
	}
}

func make512() []string {
	all := make([]string, 512)
	for i := range all {
		all[i] = "x"
	}
	return all
}

func TestAppendBatchOfJSON(t *testing.T) {
	n := newNode(t, nil).on("batches")
	s := n.create(json)
	large := `"` + strings.Repeat("L", 100_000) + `"`
	r := n.batch(s, json, "1", "[2, 3]", "{", "[]", large, ` {"a" : 4} `)
	for i, want := range []int{204, 204, 400, 400, 204, 204} {
		if r[i].Status != want {
			t.Errorf("%d: %+v", i, r[i])
		}
	}
	if r[2].Code != "invalid_json" || r[2].Position == nil || r[3].Code != "empty_array" || r[5].RecordNext != 5 {
		t.Errorf("%+v", r)
	}
	if a := n.want(200, "GET", s, ""); a.body != `[1,2,3,`+large+`,{"a":4}]` {
		t.Errorf("%.100s", a.body)
	}
}

// The appends of a batch keep their order among the batches of others.
func TestBatchesKeepTheirOrder(t *testing.T) {
	n := newNode(t, nil).on("batches")
	s := n.create(text)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for b := range 10 {
				var all []string
				for i := range 20 {
					all = append(all, fmt.Sprintf("%d %03d\n", w, b*20+i))
				}
				n.batch(s, text, all...)
			}
		})
	}
	wg.Wait()
	next := map[int]int{}
	for line := range strings.Lines(n.want(200, "GET", s, "").body) {
		var w, i int
		if _, err := fmt.Sscanf(line, "%d %d", &w, &i); err != nil || next[w] != i {
			t.Fatalf("%q after %d of that writer", line, next[w])
		}
		next[w]++
	}
	if len(next) != 4 || next[0] != 200 {
		t.Errorf("%v", next)
	}
}
