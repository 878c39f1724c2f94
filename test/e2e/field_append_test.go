//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// What fits the limit is stored and can be read back, wherever it lies; what does not is
// refused before anything is written.
func TestField29LargestBody(t *testing.T) {
	const limit = 64 << 10
	f := onOwn(t, "--max-body-bytes", "64KiB", "--wal-file-bytes", "384KiB", "--memtable-bytes", "64KiB")
	type stored struct{ stream, content string }
	var all []stored
	bodies := map[string]func(n int) (body, content string){
		"bytes": func(n int) (string, string) {
			b := strings.Repeat("b", n)
			return b, b
		},
		"one message": func(n int) (string, string) {
			b := `"` + strings.Repeat("m", n-2) + `"`
			return b, "[" + b + "]"
		},
		"many messages": func(n int) (string, string) {
			b := "[" + strings.Repeat("1,", (n-3)/2) + "1" + strings.Repeat(" ", (n+1)%2) + "]"
			return b, strings.ReplaceAll(b, " ", "")
		},
	}
	for name, make := range bodies {
		contentType := "application/json"
		if name == "bytes" {
			contentType = "application/octet-stream"
		}
		for _, n := range []int{limit - 1, limit, limit + 1, 2 * limit} {
			for _, chunked := range []string{"", "chunked"} {
				body, content := make(n)
				if len(body) != n {
					t.Fatalf("%s: %d bytes instead of %d", name, len(body), n)
				}
				post, put := f.create(contentType), f.name()
				for method, stream := range map[string]string{"POST": post, "PUT": put} {
					w := f.dial()
					if chunked == "" {
						w.head(method, target(stream), "Content-Type: "+contentType, fmt.Sprint("Content-Length: ", n))
						w.conn.Write([]byte(body)) // may be refused on the way
					} else {
						w.head(method, target(stream), "Content-Type: "+contentType, "Transfer-Encoding: chunked")
						fmt.Fprintf(w.conn, "%x\r\n%s\r\n0\r\n\r\n", n, body)
					}
					switch r := w.answer(0, method); {
					case n > limit && (r.status != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, fmt.Sprint(limit))):
						t.Errorf("%s of %d bytes, %s %s: %v", name, n, method, chunked, r)
					case n > limit:
					case r.status/100 != 2:
						t.Errorf("%s of %d bytes, %s %s: %v", name, n, method, chunked, r)
					default:
						all = append(all, stored{stream, content})
					}
					w.conn.Close()
				}
				if n > limit {
					f.want(http.StatusNotFound, "HEAD", put, "")
					f.has(f.want(http.StatusOK, "HEAD", post, ""), "Stream-Next-Offset", "00000000000000000000")
				}
			}
		}
	}
	check := func() {
		t.Helper()
		for _, s := range all {
			f.holds(s.stream, s.content)
		}
	}
	check()
	f.restart()
	check()
	f.text(f.create(plain), strings.Repeat("x", limit-1)) // freezes the memtable if it is not yet
	f.eventually(wirePatience, "everything is in segments", func() bool { return f.daemon.metric(t, "snakream_segments") > 0 })
	check()
}

// Whoever appends while the stream is deleted gets an answer, and a true one.
func TestField31AppendDuringDelete(t *testing.T) {
	f := onShared(t, &ordinary)
	for round := range 20 {
		s := f.create(plain)
		var mu sync.Mutex
		got := map[string]int{}
		f.together(26, func(i int) error {
			method, body := "GET", ""
			switch {
			case i < 20:
				method, body = "POST", "x"
			case i == 20:
				method = "DELETE"
			}
			r, err := f.once(method, s, body, []string{"Content-Type", plain})
			if err != nil {
				return fmt.Errorf("round %d: %s: %w", round, method, err)
			}
			mu.Lock()
			got[fmt.Sprint(method, " ", r.status)]++
			mu.Unlock()
			return nil
		})
		if got["POST 204"]+got["POST 404"] != 20 || got["DELETE 204"] != 1 || got["GET 200"]+got["GET 404"] != 5 {
			t.Fatalf("round %d: %v", round, got)
		}
		f.want(http.StatusNotFound, "HEAD", s, "")
		f.want(http.StatusCreated, "PUT", s, "", "Content-Type", plain)
		f.holds(s, "")
	}
}
