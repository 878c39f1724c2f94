//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// errDown says that the server was killed before it answered.
var errDown = errors.New("the server is down")

// patience bounds each request, and how long a refusal for overload is retried.
const patience = time.Minute

// api is the HTTP side of the actors.
type api struct {
	daemon    *daemon
	client    *http.Client
	condemned atomic.Bool // the server is about to be killed, or is dead
}

func newAPI(d *daemon) *api {
	return &api{daemon: d, client: &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
}

// condemn makes broken connections an expected end from now on.
func (a *api) condemn() { a.condemned.Store(true) }

// revive is called before the server starts again.
func (a *api) revive() {
	a.client.CloseIdleConnections()
	a.condemned.Store(false)
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string {
	return fmt.Sprintf("%d %v %.300q", a.status, a.header, a.body)
}

// do sends a request about a stream until it is answered otherwise than by a refusal
// for overload, which by the contract has stored nothing.
func (a *api) do(method, stream, body string, header ...string) (answer, error) {
	for deadline := time.Now().Add(patience); ; {
		r, err := a.once(method, stream, body, header)
		if err != nil {
			if a.condemned.Load() {
				return answer{}, errDown
			}
			return answer{}, err
		}
		overload := r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests
		if !overload || time.Now().After(deadline) {
			return r, nil
		}
		if r.header.Get("Retry-After") == "" {
			return r, fmt.Errorf("a refusal for overload without Retry-After: %v", r)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (a *api) once(method, stream, body string, header []string) (answer, error) {
	req, err := http.NewRequest(method, a.daemon.url()+"/v1/stream/"+stream, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// expect is do with the status that must come back.
func (a *api) expect(status int, method, stream, body string, header ...string) (answer, error) {
	r, err := a.do(method, stream, body, header...)
	if err == nil && r.status != status {
		err = fmt.Errorf("%s %s with %d bytes: want %d, got %v", method, stream, len(body), status, r)
	}
	return r, err
}

// content reads a whole stream.
func (a *api) content(stream string) (string, error) {
	r, err := a.expect(http.StatusOK, "GET", stream+"?offset=-1", "")
	return r.body, err
}

// number reads a decimal header.
func (a answer) number(name string) (int, error) {
	n, err := strconv.Atoi(a.header.Get(name))
	if err != nil {
		return 0, fmt.Errorf("header %s: %w in %v", name, err, a)
	}
	return n, nil
}

// receipt checks that an append says where its bytes lie, and returns where they begin.
func (a answer) receipt(size int) (int, error) {
	start, err1 := a.number("Stream-Offset")
	next, err2 := a.number("Stream-Next-Offset")
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	if next != start+size {
		return 0, fmt.Errorf("%d bytes were put at [%d, %d)", size, start, next)
	}
	return start, nil
}

const plain = "text/plain"

// maxBody is the body limit of tinyLimits.
const maxBody = 128 << 10

// filler is text of a random length, now and then a long one.
func filler(rng *rand.Rand) string {
	n := 10 + rng.IntN(400)
	if rng.IntN(30) == 0 {
		n = rng.IntN(90_000)
	}
	return strings.Repeat(string(rune('a'+rng.IntN(26))), n)
}

// line is what writers append: who, which, how long, and the filler.
func line(who string, n int, rng *rand.Rand) string {
	f := filler(rng)
	return fmt.Sprintf("%s %d %d %s\n", who, n, len(f), f)
}

// placed is a line and where it begins.
type placed struct {
	at   int
	text string
}

// linesOf picks the lines of one writer out of a stream and checks the form of all.
func linesOf(who, content string) ([]placed, error) {
	var lines []placed
	at := 0
	for text := range strings.Lines(content) {
		fields := strings.Fields(text)
		if !strings.HasSuffix(text, "\n") || len(fields) != 4 || strconv.Itoa(len(fields[3])) != fields[2] {
			return nil, fmt.Errorf("at %d: not a line that anybody wrote: %.100q", at, text)
		}
		if fields[0] == who {
			lines = append(lines, placed{at, text})
		}
		at += len(text)
	}
	return lines, nil
}

// differ describes where two texts part.
func differ(got, want string) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	return fmt.Sprintf("%d bytes instead of %d, different from byte %d on: got %.60q, want %.60q",
		len(got), len(want), n, got[n:], want[n:])
}

// sameBytes is differ as an error.
func sameBytes(got, want string) error {
	if bytes.Equal([]byte(got), []byte(want)) {
		return nil
	}
	return errors.New(differ(got, want))
}
