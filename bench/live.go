package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// The ways to follow a stream.
const (
	modeSSE      = "sse"
	modeLongPoll = "long-poll"
)

// A live payload begins with stampMark and the time of sending in 16 hexadecimal
// digits; the rest is filler. Neither occurs in anything that servers add. So a
// reader finds the stamps in any framing, and counts each payload however many a
// server puts into one event.
const (
	stampMark   = '@'
	stampDigits = 16
	liveFiller  = '.'
)

// livePayload makes a payload of n bytes whose stamp is still to be set.
func livePayload(n int) []byte {
	b := bytes.Repeat([]byte{liveFiller}, max(n, 1+stampDigits))
	b[0] = stampMark
	stamp(b, 0)
	return b
}

// stamp writes a time into a request that ends in n bytes of live payload.
func stamp(payload []byte, t int64) {
	const hex = "0123456789abcdef"
	for i := stampDigits; i >= 1; i-- {
		payload[i] = hex[t&15]
		t >>= 4
	}
}

// stampScanner finds stamps in pieces of a body. The zero value looks for a mark.
type stampScanner struct {
	digits int // collected + 1; 0: looking for a mark
	value  int64
}

func (s *stampScanner) scan(b []byte, found func(t int64)) {
	for len(b) > 0 {
		if s.digits == 0 {
			i := bytes.IndexByte(b, stampMark)
			if i < 0 {
				return
			}
			b = b[i+1:]
			s.digits, s.value = 1, 0
			continue
		}
		c := b[0]
		b = b[1:]
		d := int64(bytes.IndexByte([]byte("0123456789abcdef"), c))
		if d < 0 {
			s.digits = 0
			continue
		}
		s.value = s.value<<4 | d
		if s.digits++; s.digits > stampDigits {
			s.digits = 0
			found(s.value)
		}
	}
}

// follower is one live reader.
type follower struct {
	*conn
	crowd  *crowd
	stream int
	reply  response
	stamps stampScanner
	parked bool // has been counted as ready
}

// crowd is all live readers of a run, on one loop.
type crowd struct {
	server  *server
	mode    string
	loop    *loop
	arrived func(t int64) // a payload that was sent at t has been parsed
	ready   int           // SSE: heads received; long-poll: requests sent
	polls   int           // long-polls that ended without data
	ended   int           // SSE responses that the server ended, and were begun again
	err     error
}

// join opens n followers, spread evenly over the streams, at the tail.
func (c *crowd) join(n, streams int) error {
	for i := range n {
		f := &follower{crowd: c, stream: i % streams}
		if err := f.connect("now"); err != nil {
			return fmt.Errorf("follower %d of %d: %w", i, n, err)
		}
		if i%64 == 63 { // let the server answer, or its queue of connections runs full
			if err := c.loop.poll(0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *follower) connect(offset string) (err error) {
	if f.conn, err = f.crowd.loop.dial(f.crowd.server.addr, f); err != nil {
		return err
	}
	f.reply = response{}
	return f.ask(offset)
}

func (f *follower) ask(offset string) error {
	accept := ""
	if f.crowd.mode == modeSSE {
		accept = "Accept: text/event-stream\r\n"
	}
	req := httpRequest(f.crowd.server, "GET", "?offset="+offset+"&live="+f.crowd.mode, accept, nil)
	req.aim(f.stream)
	if f.crowd.mode == modeLongPoll {
		f.count()
	}
	return f.send(req.bytes)
}

func (f *follower) count() {
	if !f.parked {
		f.parked = true
		f.crowd.ready++
	}
}

func (f *follower) received(b []byte) error {
	for len(b) > 0 {
		n, body, done, err := f.reply.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		if f.reply.state != inHead || done {
			if s := f.reply.status; s != 200 && s != 204 {
				return fmt.Errorf("status %d", s)
			}
			f.count()
		}
		f.stamps.scan(body, f.crowd.arrived)
		if done {
			if err := f.replied(); err != nil {
				return err
			}
		}
	}
	return nil
}

// replied asks for what follows a finished response.
func (f *follower) replied() error {
	if f.crowd.mode == modeSSE {
		f.crowd.ended++
		return f.ask("now")
	}
	if f.reply.status == 204 {
		f.crowd.polls++
	}
	if len(f.reply.next) == 0 {
		return errors.New("a long-poll answer without Stream-Next-Offset")
	}
	return f.ask(string(f.reply.next))
}

func (f *follower) lost(err error) {
	if f.crowd.err == nil {
		f.crowd.err = fmt.Errorf("%s: follower of stream %d lost: %w", f.crowd.server.name, f.stream, err)
	}
}

// writer sends live payloads, each when it is told to, on connections of its own.
type writer struct {
	server  *server
	loop    *loop
	request request
	payload int // bytes
	idle    []*writeConn
	open    int   // connections
	most    int   // connections at once
	waiting []int // streams whose append waits for a connection
	unacked int
	err     error
}

type writeConn struct {
	*conn
	writer  *writer
	request request
	reply   response
}

// newWriter opens n connections on a loop.
func newWriter(s *server, l *loop, payload, n int) (*writer, error) {
	body := livePayload(payload)
	w := &writer{server: s, loop: l, payload: len(body), request: appendRequest(s, textType, body), most: n}
	for range n {
		if err := w.dial(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *writer) dial() error {
	wc := &writeConn{writer: w, request: w.request.clone()}
	var err error
	if wc.conn, err = w.loop.dial(w.server.addr, wc); err != nil {
		return err
	}
	w.open++
	w.idle = append(w.idle, wc)
	return nil
}

// append sends one payload to a stream, now or when a connection is free.
func (w *writer) append(stream int) error {
	w.unacked++
	if len(w.idle) == 0 && w.open < w.most {
		if err := w.dial(); err != nil {
			return err
		}
	}
	if len(w.idle) == 0 {
		w.waiting = append(w.waiting, stream)
		return nil
	}
	wc := w.idle[len(w.idle)-1]
	w.idle = w.idle[:len(w.idle)-1]
	return wc.fire(stream)
}

func (wc *writeConn) fire(stream int) error {
	wc.request.aim(stream)
	stamp(wc.request.bytes[len(wc.request.bytes)-wc.writer.payload:], now())
	return wc.send(wc.request.bytes)
}

func (wc *writeConn) received(b []byte) error {
	for len(b) > 0 {
		n, _, done, err := wc.reply.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		if !done {
			continue
		}
		if !wc.reply.accepted() {
			return errors.New("append: status " + strconv.Itoa(wc.reply.status))
		}
		w := wc.writer
		w.unacked--
		if len(w.waiting) == 0 {
			w.idle = append(w.idle, wc)
			continue
		}
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		if err := wc.fire(next); err != nil {
			return err
		}
	}
	return nil
}

// lost is an error only in the middle of a request: a server may close a connection
// that has been silent for long, and another takes its place when it is needed.
func (wc *writeConn) lost(err error) {
	wc.writer.open--
	if i := slices.Index(wc.writer.idle, wc); i >= 0 {
		wc.writer.idle = slices.Delete(wc.writer.idle, i, i+1)
		return
	}
	if wc.writer.err == nil {
		wc.writer.err = fmt.Errorf("%s: writer lost: %w", wc.writer.server.name, err)
	}
}
