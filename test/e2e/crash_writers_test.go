//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// lonelyWriter is the only writer of a stream and sends no producer headers.
type lonelyWriter struct {
	api   *api
	rng   *rand.Rand
	name  string
	n     int
	acked string // the whole stream
	open  string // sent, not answered
}

func (w *lonelyWriter) String() string { return w.name }

func (w *lonelyWriter) setup() error {
	_, err := w.api.expect(http.StatusCreated, "PUT", w.name, "", "Content-Type", plain)
	return err
}

func (w *lonelyWriter) step() error {
	w.open = line(w.name, w.n, w.rng)
	w.n++
	r, err := w.api.expect(http.StatusNoContent, "POST", w.name, w.open, "Content-Type", plain)
	if err != nil {
		return err
	}
	at, err := r.receipt(len(w.open))
	if err == nil && at != len(w.acked) {
		err = fmt.Errorf("put at %d, behind %d bytes", at, len(w.acked))
	}
	w.acked, w.open = w.acked+w.open, ""
	return err
}

func (w *lonelyWriter) settle() error {
	got, err := w.api.content(w.name)
	if err != nil {
		return err
	}
	if w.open != "" && got == w.acked+w.open {
		w.acked = got
	}
	w.open = ""
	return sameBytes(got, w.acked)
}

// crowdedStream is a stream that several actors write.
type crowdedStream struct {
	api  *api
	name string
	once sync.Once
}

func (s *crowdedStream) setup() (err error) {
	s.once.Do(func() {
		_, err = s.api.expect(http.StatusCreated, "PUT", s.name, "", "Content-Type", plain)
	})
	return err
}

// crowdedWriter is one of several writers without producer headers.
type crowdedWriter struct {
	stream *crowdedStream
	rng    *rand.Rand
	id, n  int
	acked  []placed
	open   string
}

func (w *crowdedWriter) String() string { return fmt.Sprintf("%s-%d", w.stream.name, w.id) }
func (w *crowdedWriter) setup() error   { return w.stream.setup() }

func (w *crowdedWriter) step() error {
	w.open = line(w.String(), w.n, w.rng)
	w.n++
	r, err := w.stream.api.expect(http.StatusNoContent, "POST", w.stream.name, w.open, "Content-Type", plain)
	if err != nil {
		return err
	}
	at, err := r.receipt(len(w.open))
	w.acked, w.open = append(w.acked, placed{at, w.open}), ""
	return err
}

func (w *crowdedWriter) settle() error {
	content, err := w.stream.api.content(w.stream.name)
	if err != nil {
		return err
	}
	got, err := linesOf(w.String(), content)
	if err != nil {
		return err
	}
	if n := len(w.acked); w.open != "" && len(got) == n+1 && got[n].text == w.open {
		w.acked = append(w.acked, got[n])
	}
	w.open = ""
	return sameLines(got, w.acked)
}

func sameLines(got, want []placed) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("line %d: %.60q at %d, but %.60q at %d was acknowledged",
				i, got[i].text, got[i].at, want[i].text, want[i].at)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d lines instead of %d", len(got), len(want))
	}
	return nil
}

// producerTuple is what makes a producer's append unique.
type producerTuple struct{ epoch, seq int }

func (t producerTuple) headers(id string) []string {
	return []string{"Producer-Id", id, "Producer-Epoch", strconv.Itoa(t.epoch), "Producer-Seq", strconv.Itoa(t.seq)}
}

// producer is one of several idempotent producers of a stream. After a crash it sends
// its open append again, and goes on.
type producer struct {
	stream *crowdedStream
	rng    *rand.Rand
	id, n  int
	next   producerTuple
	last   producerTuple // of the newest acknowledged append
	acked  []placed
	open   string
}

func (p *producer) String() string { return fmt.Sprintf("%s-%d", p.stream.name, p.id) }
func (p *producer) setup() error   { return p.stream.setup() }

func (p *producer) step() error {
	if len(p.acked) > 0 && p.rng.IntN(10) == 0 {
		return p.repeat()
	}
	if p.rng.IntN(50) == 0 {
		p.next = producerTuple{epoch: p.next.epoch + 1}
	}
	p.open = line(p.String(), p.n, p.rng)
	p.n++
	return p.send(http.StatusOK)
}

// send sends the open append; one of the statuses must come back.
func (p *producer) send(allowed ...int) error {
	r, err := p.stream.api.do("POST", p.stream.name, p.open,
		append(p.next.headers(p.String()), "Content-Type", plain)...)
	if err != nil {
		return err
	}
	ok := false
	for _, status := range allowed {
		ok = ok || r.status == status
	}
	if !ok {
		return fmt.Errorf("append %v: want %v, got %v", p.next, allowed, r)
	}
	at, err := r.receipt(len(p.open))
	p.acked, p.open = append(p.acked, placed{at, p.open}), ""
	p.last = p.next
	p.next.seq++
	return err
}

// repeat sends the newest acknowledged append again: it must be recognised and get
// its own receipt again.
func (p *producer) repeat() error {
	was := p.acked[len(p.acked)-1]
	r, err := p.stream.api.expect(http.StatusNoContent, "POST", p.stream.name, was.text,
		append(p.last.headers(p.String()), "Content-Type", plain)...)
	if err != nil {
		return err
	}
	at, err := r.receipt(len(was.text))
	if err == nil && at != was.at {
		err = fmt.Errorf("the repeat of %v was put at %d, the first try at %d", p.last, at, was.at)
	}
	return err
}

func (p *producer) settle() error {
	if p.open != "" {
		if err := p.send(http.StatusOK, http.StatusNoContent); err != nil {
			return err
		}
	}
	content, err := p.stream.api.content(p.stream.name)
	if err != nil {
		return err
	}
	got, err := linesOf(p.String(), content)
	if err != nil {
		return err
	}
	return sameLines(got, p.acked)
}

// jsonProducer appends arrays of several messages: an append is there wholly or not
// at all.
type jsonProducer struct {
	api  *api
	rng  *rand.Rand
	name string
	next producerTuple
	n    int    // messages acknowledged
	open int    // messages of the open append
	body string // of the open append
}

func (j *jsonProducer) String() string { return j.name }

func (j *jsonProducer) setup() error {
	_, err := j.api.expect(http.StatusCreated, "PUT", j.name, "", "Content-Type", "application/json")
	return err
}

func (j *jsonProducer) step() error {
	j.open = 1 + j.rng.IntN(5)
	var messages []string
	for i := range j.open {
		messages = append(messages, fmt.Sprintf(`{ "n": %d, "filler": %q }`, j.n+i, filler(j.rng)))
	}
	j.body = "[" + strings.Join(messages, ",\n") + "]"
	if len(j.body) > maxBody {
		j.open = 0
		return nil
	}
	return j.send(http.StatusOK)
}

func (j *jsonProducer) send(allowed ...int) error {
	r, err := j.api.do("POST", j.name, j.body,
		append(j.next.headers(j.name), "Content-Type", "application/json")...)
	if err != nil {
		return err
	}
	for _, status := range allowed {
		if r.status == status {
			j.n, j.open = j.n+j.open, 0
			j.next.seq++
			return nil
		}
	}
	return fmt.Errorf("append %v: want %v, got %v", j.next, allowed, r)
}

func (j *jsonProducer) settle() error {
	if j.open > 0 {
		if err := j.send(http.StatusOK, http.StatusNoContent); err != nil {
			return err
		}
	}
	content, err := j.api.content(j.name)
	if err != nil {
		return err
	}
	var messages []struct{ N int }
	if err := json.Unmarshal([]byte(content), &messages); err != nil {
		return fmt.Errorf("%w in %.100q", err, content)
	}
	for i, m := range messages {
		if m.N != i {
			return fmt.Errorf("message %d is number %d", i, m.N)
		}
	}
	if len(messages) != j.n {
		return errors.New(strconv.Itoa(len(messages)) + " messages instead of " + strconv.Itoa(j.n))
	}
	return nil
}
