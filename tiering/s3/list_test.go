package s3

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/snakream/snakream/test/faults"
	"github.com/snakream/snakream/tiering"
)

// page is an answer to a listing, as a provider would write it.
func page(encoding, next string, keys ...string) faults.Fault {
	body := `<?xml version="1.0"?><ListBucketResult><Name>b</Name>`
	if encoding != "" {
		body += "<EncodingType>" + encoding + "</EncodingType>"
	}
	if next != "" {
		body += "<IsTruncated>true</IsTruncated>"
		if next != "none" {
			body += "<NextContinuationToken>" + next + "</NextContinuationToken>"
		}
	}
	for _, key := range keys {
		body += "<Contents><Key>" + key + "</Key><Size>7</Size></Contents>"
	}
	return faults.AnswerText(http.StatusOK, "application/xml", body+"</ListBucketResult>")
}

// TestListAnswers has what providers answer to a listing.
func TestListAnswers(t *testing.T) {
	const p = "some/where/"
	for _, c := range []struct {
		name  string
		pages []faults.Fault
		want  []string
		fails bool
	}{
		{"plain", []faults.Fault{page("", "", p+"a b+c%25")}, []string{"a b+c%25"}, false},
		{"encoded", []faults.Fault{page("url", "", p+"a+b%2Bc%2525%0A%01")}, []string{"a b+c%25\n\x01"}, false},
		{"encoded slash", []faults.Fault{page("url", "", "some%2Fwhere%2Fx%2Fy")}, []string{"x/y"}, false},
		{"badly encoded", []faults.Fault{page("url", "", p+"%zz")}, nil, true},
		{"pages", []faults.Fault{page("", "1", p+"a"), page("", "2", p+"b"), page("", "", p+"c")}, []string{"a", "b", "c"}, false},
		{"empty page in between", []faults.Fault{page("", "1", p+"a"), page("", "2"), page("", "", p+"c")}, []string{"a", "c"}, false},
		{"folder marker", []faults.Fault{page("", "", p, p+"a")}, []string{"a"}, false},
		{"more, but no token", []faults.Fault{page("", "none", p+"a")}, nil, true},
		{"the same token again", []faults.Fault{page("", "1", p+"a"), page("", "1", p+"b")}, []string{"a"}, true},
		{"out of order", []faults.Fault{page("", "", p+"b", p+"a")}, []string{"b"}, true},
		{"the same page again", []faults.Fault{page("", "1", p+"a"), page("", "2", p+"a")}, []string{"a"}, true},
		{"not below the prefix", []faults.Fault{page("", "", "some/when")}, nil, true},
		{"a page is refused first", []faults.Fault{page("", "1", p+"a"), slowDown, page("", "", p+"b")}, []string{"a", "b"}, false},
		{"a page is cut first", []faults.Fault{page("", "1", p+"a"), faults.CutUpload(0), page("", "", p+"b")}, []string{"a", "b"}, false},
		{"a page is always refused", []faults.Fault{page("", "1", p+"a"), internal}, []string{"a"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.proxy.Set(faults.Sequence(faults.Any, c.pages...))
			var got []string
			var failed error
			for info, err := range r.List(t.Context(), "") {
				if failed != nil {
					t.Fatal("the listing goes on after an error")
				}
				if failed = err; err == nil {
					got = append(got, info.Key)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("listed %q, not %q", got, c.want)
			}
			if c.fails {
				temporary(t, "list", failed)
			} else if failed != nil {
				t.Error(failed)
			}
		})
	}
}

// TestListCut breaks the answer off in its middle.
func TestListCut(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.put(fmt.Sprintf("k%02d", i), nil)
	}
	for _, f := range []faults.Fault{faults.CutDownload(500), faults.ShortDownload(500)} {
		r.proxy.Set(faults.First(1, gets, f))
		n := 0
		for _, err := range r.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
				break
			}
			n++
		}
		if n != 20 {
			t.Errorf("listed %d objects of 20", n)
		}
	}
}

// TestRangeAnswers has what providers answer to a ranged GET.
func TestRangeAnswers(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name  string
		fault faults.Fault
	}{
		{"ignores the range", faults.AnswerText(http.StatusOK, "", "0123456789")},
		{"empty", faults.AnswerText(http.StatusOK, "", "")},
		{"says nothing of the range", faults.AnswerText(http.StatusPartialContent, "", "2345")},
	} {
		r.proxy.Set(faults.Always(faults.Any, c.fault))
		temporary(t, c.name, r.Get(t.Context(), "k", make([]byte, 4), 2))
	}
	// From the begin on a whole object serves as well.
	r.proxy.Set(faults.Always(faults.Any, faults.AnswerText(http.StatusOK, "", "0123456789")))
	got := make([]byte, 4)
	if err := r.Get(t.Context(), "k", got, 0); err != nil || string(got) != "0123" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string][2]int64{
		"bytes 0-0/1":                         {0, 0},
		"bytes 10-19/1000":                    {10, 19},
		"bytes 10-19/*":                       {10, 19},
		"bytes 0-9223372036854775807/*":       {0, 9223372036854775807},
		"":                                    {-1},
		"bytes */1000":                        {-1},
		"bytes 19-10/1000":                    {-1},
		"bytes -1-10/1000":                    {-1},
		"bytes 0-9223372036854775808/1":       {-1},
		"bytes 0-99999999999999999999999999/": {-1},
		"items 0-1/2":                         {-1},
	} {
		first, last, ok := parseRange(text)
		if ok != (want[0] >= 0) || ok && (first != want[0] || last != want[1]) {
			t.Errorf("%q: %d, %d, %v", text, first, last, ok)
		}
	}
}

// FuzzParseRange holds the reader of ranges to what it promises.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-0/1", "bytes 10-19/*", "bytes 19-10/1000", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if first, last, ok := parseRange(text); ok && (first < 0 || last < first) {
			t.Errorf("%q: %d, %d", text, first, last)
		}
	})
}

// TestNoMultipart sees to it that nothing is begun that could be abandoned
// (field report 137).
func TestNoMultipart(t *testing.T) {
	r := newRig(t)
	if err := r.Put(t.Context(), "k", tiering.BytesBody(noise(20<<20))); err != nil {
		t.Fatal(err)
	}
	if n := len(r.proxy.Seen()); n != 1 || r.count(http.MethodPut) != 1 {
		t.Errorf("%d requests for one put", n)
	}
}
