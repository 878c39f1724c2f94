//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// event is one Server-Sent Event as a browser would see it.
type event struct {
	name, data, id string
	lines          int // of data
}

// control is what a control event says.
type control struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor"`
	UpToDate bool   `json:"upToDate"`
	Closed   bool   `json:"streamClosed"`
}

// control decodes the data of a control event.
func (e event) control() (c control, err error) {
	if e.name != "control" {
		return c, fmt.Errorf("want a control event, got %+v", e)
	}
	d := json.NewDecoder(strings.NewReader(e.data))
	d.DisallowUnknownFields()
	return c, d.Decode(&c)
}

// eventReader reads an event stream by the rules of the HTML standard.
type eventReader struct {
	in       *bufio.Reader
	id       string
	comments int
}

// read returns the next event; io.EOF when the stream has ended between two events.
func (e *eventReader) read() (event, error) {
	var ev event
	var data []string
	for {
		line, err := e.in.ReadString('\n')
		if err == io.EOF && line == "" && ev.name == "" && data == nil {
			return ev, io.EOF
		}
		if err != nil {
			return ev, fmt.Errorf("in the middle of an event: %w", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			if data == nil {
				ev = event{}
				continue
			}
			ev.data, ev.lines, ev.id = strings.Join(data, "\n"), len(data), e.id
			return ev, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			e.comments++
		case "event":
			ev.name = value
		case "data":
			data = append(data, value)
		case "id":
			e.id = value
		default:
			return ev, fmt.Errorf("unknown field in %q", line)
		}
		if strings.Contains(line, "\r") {
			return ev, fmt.Errorf("a CR in %q", line)
		}
	}
}

// events is an open event stream.
type events struct {
	*wire
	eventReader
	header http.Header
}

// events opens an event stream. query begins with offset=.
func (f *field) events(stream, query string, fields ...string) *events {
	f.Helper()
	e, err := f.tryEvents(stream, query, fields...)
	if err != nil {
		f.Fatal(err)
	}
	return e
}

func (f *field) tryEvents(stream, query string, fields ...string) (*events, error) {
	w := f.dial()
	w.head("GET", target(stream)+"?"+query+"&live=sse", fields...)
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(resp.Body)
		return nil, errors.Join(err, fmt.Errorf("SSE of %s?%s: %d %s", stream, query, resp.StatusCode, b))
	}
	return &events{w, eventReader{in: bufio.NewReader(resp.Body)}, resp.Header}, nil
}

// try waits for the next event.
func (e *events) try(within time.Duration) (event, error) {
	e.conn.SetDeadline(time.Now().Add(within))
	return e.read()
}

// next returns the next event and ends the test when there is none.
func (e *events) next() event {
	e.f.Helper()
	ev, err := e.try(wirePatience)
	if err != nil {
		e.f.Fatalf("waiting for an event: %v", err)
	}
	return ev
}

// data returns the next data event and the control behind it.
func (e *events) data() (string, control) {
	e.f.Helper()
	ev := e.next()
	if ev.name != "data" {
		e.f.Fatalf("want data, got %+v", ev)
	}
	c := e.control()
	if ev.id != c.Next {
		e.f.Fatalf("data with id %s and a control that says %s", ev.id, c.Next)
	}
	return ev.data, c
}

// control returns the next event, which must be a control.
func (e *events) control() control {
	e.f.Helper()
	ev := e.next()
	c, err := ev.control()
	if err != nil {
		e.f.Fatal(err)
	}
	if ev.id != c.Next {
		e.f.Fatalf("a control with id %s that says %s", ev.id, c.Next)
	}
	return c
}

// toTail collects data until a control says that there is no more.
func (e *events) toTail() (data []string, last control) {
	e.f.Helper()
	for {
		ev := e.next()
		if ev.name == "data" {
			data = append(data, ev.data)
			continue
		}
		c, err := ev.control()
		if err != nil {
			e.f.Fatal(err)
		}
		if c.UpToDate {
			return data, c
		}
	}
}

// finish makes sure that the stream ends here, as it should.
func (e *events) finish() {
	e.f.Helper()
	if ev, err := e.try(wirePatience); err != io.EOF {
		e.f.Fatalf("want the end of the event stream, got %+v, %v", ev, err)
	}
}
