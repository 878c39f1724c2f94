package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Streams are named by a prefix and digitCount digits, so that a request for one
// stream becomes that for another by changing digits in place.
const digitCount = 7

// namePrefix keeps the streams of this process apart from those of earlier ones on
// a server that outlives them.
var namePrefix = fmt.Sprintf("bench-%x-%d-", time.Now().Unix(), os.Getpid())

// streamName is the name of stream i.
func streamName(i int) string { return fmt.Sprintf("%s%0*d", namePrefix, digitCount, i) }

// request is the bytes of one request whose stream can be changed.
type request struct {
	bytes  []byte
	digits int // where they begin
	width  int // how many there are
}

// clone gives a connection bytes of its own.
func (r request) clone() request { return request{bytes.Clone(r.bytes), r.digits, r.width} }

// aim makes it a request for stream i.
func (r request) aim(i int) {
	d := r.bytes[r.digits : r.digits+r.width]
	for k := len(d) - 1; k >= 0; k-- {
		d[k] = byte('0' + i%10)
		i /= 10
	}
}

// httpRequest builds a request for a stream. fields are whole header lines.
func httpRequest(s *server, method, query, fields string, body []byte) request {
	return requestFor(s, method, "/v1/stream/"+streamName(0), query, fields, body)
}

// requestFor builds a request whose target is before, which ends in the digits of a
// stream's name, and after.
func requestFor(s *server, method, before, after, fields string, body []byte) request {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s", method, before)
	digits := b.Len() - digitCount
	fmt.Fprintf(&b, "%s HTTP/1.1\r\nHost: %s\r\n%s", after, s.addr, fields)
	if method == "POST" || method == "PUT" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return request{b.Bytes(), digits, digitCount}
}

// appendRequest builds an append of one payload, in the server's protocol.
func appendRequest(s *server, contentType string, payload []byte) request {
	if s.protocol != redisStreams {
		return httpRequest(s, "POST", "", "Content-Type: "+contentType+"\r\n", payload)
	}
	var b bytes.Buffer
	b.WriteString("*5\r\n$4\r\nXADD\r\n")
	name := streamName(0)
	fmt.Fprintf(&b, "$%d\r\n%s", len(name), name)
	digits := b.Len() - digitCount
	fmt.Fprintf(&b, "\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n%s\r\n", len(payload), payload)
	return request{b.Bytes(), digits, digitCount}
}

// newReader is a reader of the server's replies.
func newReader(s *server) replyReader {
	if s.protocol == redisStreams {
		return new(respReply)
	}
	return new(response)
}

// pump sends one kind of request back to back on several connections, each of which
// waits for its reply before it sends the next.
type pump struct {
	server   *server
	template request
	next     func() (stream int, ok bool)        // whose turn it is; !ok: this connection has finished
	acked    func(stream int)                    // may be nil
	prepare  func(request []byte)                // may be nil; edits a request before it is sent
	check    func(stream int, body []byte) error // may be nil; gets the whole body of each success
	strict   bool                                // the first refusal ends the run

	from, until int64 // replies in this window are measured; until 0: all are
	latency     histogram
	accepted    int64 // in the window
	refused     int64 // in all
	refusal     string

	active int // connections with a request in flight
	err    error
}

// pumpConn is one connection of a pump.
type pumpConn struct {
	*conn
	pump    *pump
	request request
	reader  replyReader
	stream  int
	sent    int64
	body    []byte // only for check
}

// run drives conns connections until next has refused each of them, and returns the
// first error. No request is in flight then unless there was an error.
func (p *pump) run(conns int) error {
	l, err := newLoop()
	if err != nil {
		return err
	}
	defer l.close()
	all := make([]*pumpConn, conns)
	for i := range all {
		pc := &pumpConn{pump: p, request: p.template.clone(), reader: newReader(p.server)}
		if pc.conn, err = l.dial(p.server.addr, pc); err != nil {
			return err
		}
		all[i] = pc
	}
	for _, pc := range all {
		if err := pc.fire(); err != nil {
			return err
		}
	}
	deadline := now() + int64(10*time.Minute)
	for p.active > 0 && p.err == nil {
		if err := l.poll(maxWait); err != nil {
			return err
		}
		if now() > deadline {
			return fmt.Errorf("%s: %d requests are still unanswered", p.server.name, p.active)
		}
	}
	return p.err
}

// fire sends the connection's next request, if there is one.
func (pc *pumpConn) fire() error {
	i, ok := pc.pump.next()
	if !ok {
		return nil
	}
	pc.stream = i
	pc.request.aim(i)
	if pc.pump.prepare != nil {
		pc.pump.prepare(pc.request.bytes)
	}
	pc.pump.active++
	pc.sent = now()
	return pc.send(pc.request.bytes)
}

func (pc *pumpConn) received(b []byte) error {
	for len(b) > 0 {
		n, body, done, err := pc.reader.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		if pc.pump.check != nil {
			pc.body = append(pc.body, body...)
		}
		if !done {
			continue
		}
		if len(b) > 0 {
			return errors.New("bytes behind a reply")
		}
		return pc.answered()
	}
	return nil
}

func (pc *pumpConn) answered() error {
	p := pc.pump
	p.active--
	if pc.reader.accepted() {
		t := now()
		if p.until == 0 || (p.from <= t && t < p.until) {
			p.accepted++
			p.latency.add(t - pc.sent)
		}
		if p.check != nil {
			if err := p.check(pc.stream, pc.body); err != nil {
				return err
			}
			pc.body = pc.body[:0]
		}
		if p.acked != nil {
			p.acked(pc.stream)
		}
		return pc.fire()
	}
	p.refused++
	if p.refusal == "" {
		p.refusal = "an error reply"
		if r, ok := pc.reader.(*response); ok {
			p.refusal = "status " + strconv.Itoa(r.status)
		}
	}
	if p.strict {
		return fmt.Errorf("stream %d: %s", pc.stream, p.refusal)
	}
	return pc.fire()
}

func (pc *pumpConn) lost(err error) {
	if pc.pump.err == nil {
		pc.pump.err = fmt.Errorf("%s: a connection ended: %w", pc.pump.server.name, err)
	}
}

// createConns is how many connections create streams.
const createConns = 64

// createStreams makes streams 0 to n-1 of a content type, with an empty body.
func createStreams(s *server, n int, contentType string) error {
	if s.protocol != durableStreams {
		return nil // Redis makes them by itself
	}
	made := 0
	p := &pump{
		server: s, strict: true,
		template: httpRequest(s, "PUT", "", "Content-Type: "+contentType+"\r\n", nil),
		next: func() (int, bool) {
			made++
			return made - 1, made <= n
		},
	}
	if err := p.run(min(createConns, n)); err != nil {
		return fmt.Errorf("creating %d streams: %w", n, err)
	}
	return nil
}

// payloadOf is n bytes that are valid in any content type.
func payloadOf(n int, contentType string) []byte {
	if contentType == jsonType {
		return []byte(`"` + strings.Repeat("x", max(n-2, 0)) + `"`)
	}
	return bytes.Repeat([]byte("x"), n)
}

const (
	jsonType   = "application/json"
	binaryType = "application/octet-stream"
	textType   = "text/plain"
)
