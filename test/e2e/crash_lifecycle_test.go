//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// life is what a stream is to its readers.
type life struct {
	exists, closed bool
	content        string
}

func (l life) String() string {
	return fmt.Sprintf("{exists %v, closed %v, %d bytes: %.40q}", l.exists, l.closed, len(l.content), l.content)
}

// lifecycle creates, fills, closes and deletes one name over and over. Each operation
// is one record, so after a crash its stream is as it was before or after the open
// operation, never between.
type lifecycle struct {
	api         *api
	rng         *rand.Rand
	name        string
	n           int
	is          life
	open        *life  // what the open operation makes of it
	incarnation string // of the stream that exists
	former      string // of the one before
}

func (l *lifecycle) String() string { return l.name }
func (l *lifecycle) setup() error   { return nil }

func (l *lifecycle) step() error {
	text := line(l.name, l.n, l.rng)
	l.n++
	switch dice := l.rng.IntN(10); {
	case !l.is.exists && dice == 0:
		return l.change(life{exists: true}, http.StatusCreated, "PUT", "")
	case !l.is.exists && dice == 1:
		return l.change(life{true, true, text}, http.StatusCreated, "PUT", text, "Stream-Closed", "true")
	case !l.is.exists:
		return l.change(life{true, false, text}, http.StatusCreated, "PUT", text)
	case dice == 0 || (l.is.closed && dice < 5):
		return l.change(life{}, http.StatusNoContent, "DELETE", "")
	case l.is.closed:
		_, err := l.api.expect(http.StatusConflict, "POST", l.name, text, "Content-Type", plain)
		return err
	case dice == 1:
		return l.change(life{true, true, l.is.content}, http.StatusNoContent, "POST", "", "Stream-Closed", "true")
	case dice == 2:
		return l.change(life{true, true, l.is.content + text}, http.StatusNoContent, "POST", text, "Stream-Closed", "true")
	}
	return l.change(life{true, false, l.is.content + text}, http.StatusNoContent, "POST", text)
}

// change does an operation that makes the stream what next says.
func (l *lifecycle) change(next life, status int, method, body string, header ...string) error {
	l.open = &next
	r, err := l.api.expect(status, method, l.name, body, append(header, "Content-Type", plain)...)
	if err != nil {
		return err
	}
	return l.become(next, r.header.Get("Stream-Incarnation"))
}

// become takes over what the stream is now. Another stream of the same name must have
// another incarnation, and the same stream the same.
func (l *lifecycle) become(next life, incarnation string) error {
	was := l.is
	l.is, l.open = next, nil
	if !next.exists {
		if was.exists {
			l.former = l.incarnation
		}
		return nil
	}
	if incarnation == "" || incarnation == l.former {
		return fmt.Errorf("incarnation %q after %q", incarnation, l.former)
	}
	if was.exists && incarnation != l.incarnation {
		return fmt.Errorf("incarnation %q was %q", incarnation, l.incarnation)
	}
	l.incarnation = incarnation
	return nil
}

func (l *lifecycle) settle() error {
	r, err := l.api.do("GET", l.name+"?offset=-1", "")
	if err != nil {
		return err
	}
	found := life{true, r.header.Get("Stream-Closed") == "true", r.body}
	switch r.status {
	case http.StatusOK:
	case http.StatusNotFound:
		found = life{}
	default:
		return fmt.Errorf("reading: %v", r)
	}
	if found == l.is || (l.open != nil && found == *l.open) {
		return l.become(found, r.header.Get("Stream-Incarnation"))
	}
	return fmt.Errorf("found %v; acknowledged %v, open %v", found, l.is, l.open)
}

// family is a source and its fork. A source that is deleted while it has a fork is
// gone (410) until the fork ends.
type family struct {
	source, sourceGone   bool
	fork                 bool
	sourceText, forkText string
}

func (f family) String() string {
	return fmt.Sprintf("{source %v, gone %v, %d bytes; fork %v, %d bytes}",
		f.source, f.sourceGone, len(f.sourceText), f.fork, len(f.forkText))
}

// forker forks a stream, writes to both and deletes them in any order.
type forker struct {
	api   *api
	rng   *rand.Rand
	name  string
	n     int
	is    family
	open  *family
	marks []int // offsets of the source at which it may be forked
}

func (f *forker) String() string { return f.name }
func (f *forker) setup() error   { return nil }

func (f *forker) sourceName() string { return f.name + "/source" }
func (f *forker) forkName() string   { return f.name + "/fork" }

func (f *forker) step() error {
	text := line(f.name, f.n, f.rng)
	f.n++
	next := f.is
	dice := f.rng.IntN(10)
	switch {
	case !f.is.source && !f.is.sourceGone && !f.is.fork:
		next.source, next.sourceText = true, text
		f.marks = []int{0, len(text)}
		return f.change(next, http.StatusCreated, "PUT", f.sourceName(), text, "Content-Type", plain)
	case dice == 0 && f.is.fork:
		next.fork, next.forkText, next.sourceGone = false, "", false
		return f.change(next, http.StatusNoContent, "DELETE", f.forkName(), "")
	case dice == 1 && f.is.source:
		next.source, next.sourceText, next.sourceGone = false, "", f.is.fork
		return f.change(next, http.StatusNoContent, "DELETE", f.sourceName(), "")
	case dice < 4 && f.is.source && !f.is.fork:
		at := f.marks[f.rng.IntN(len(f.marks))]
		next.fork, next.forkText = true, f.is.sourceText[:at]
		return f.change(next, http.StatusCreated, "PUT", f.forkName(), "",
			"Stream-Forked-From", "/v1/stream/"+f.sourceName(), "Stream-Fork-Offset", fmt.Sprintf("%020d", at))
	case f.is.fork && (dice < 7 || !f.is.source):
		next.forkText += text
		return f.change(next, http.StatusNoContent, "POST", f.forkName(), text, "Content-Type", plain)
	case f.is.source:
		next.sourceText += text
		err := f.change(next, http.StatusNoContent, "POST", f.sourceName(), text, "Content-Type", plain)
		if err == nil {
			f.marks = append(f.marks, len(f.is.sourceText))
		}
		return err
	}
	return fmt.Errorf("no operation for %v", f.is)
}

func (f *forker) change(next family, status int, method, name, body string, header ...string) error {
	was := f.is
	f.open = &next
	if _, err := f.api.expect(status, method, name, body, header...); err != nil {
		return fmt.Errorf("%v: %w", was, err)
	}
	f.is, f.open = next, nil
	if was.sourceGone && !next.sourceGone {
		return f.awaitFree()
	}
	return nil
}

// awaitFree waits until a source whose last fork has ended is gone for good, which
// the protocol allows to take a moment.
func (f *forker) awaitFree() error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		r, err := f.api.do("GET", f.sourceName(), "")
		if err != nil || r.status == http.StatusNotFound {
			return err
		}
		if r.status != http.StatusGone || time.Now().After(deadline) {
			return fmt.Errorf("a source without forks: %v", r)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (f *forker) settle() error {
	var found family
	r, err := f.api.do("GET", f.forkName()+"?offset=-1", "")
	if err != nil {
		return err
	}
	switch r.status {
	case http.StatusOK:
		found.fork, found.forkText = true, r.body
	case http.StatusNotFound:
	default:
		return fmt.Errorf("reading the fork: %v", r)
	}
	if r, err = f.api.do("GET", f.sourceName()+"?offset=-1", ""); err != nil {
		return err
	}
	switch r.status {
	case http.StatusOK:
		found.source, found.sourceText = true, r.body
	case http.StatusGone:
		found.sourceGone = true
	case http.StatusNotFound:
	default:
		return fmt.Errorf("reading the source: %v", r)
	}
	if found.sourceGone && !found.fork {
		if err := f.awaitFree(); err != nil {
			return err
		}
		found.sourceGone = false
	}
	if found != f.is && (f.open == nil || found != *f.open) {
		return fmt.Errorf("found %v; acknowledged %v, open %v", found, f.is, f.open)
	}
	if found.source && len(found.sourceText) > f.marks[len(f.marks)-1] {
		f.marks = append(f.marks, len(found.sourceText))
	}
	f.is, f.open = found, nil
	return nil
}
