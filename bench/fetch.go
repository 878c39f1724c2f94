package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// fetched is one GET and what came of it.
type fetched struct {
	*conn
	reply response
	bytes int64  // of the body
	sum   uint32 // CRC-32 of the body
	done  bool
	err   error
}

// fetch sends each request on a connection of its own, all at once, and reads the
// answers to their ends. Anything but a 200 is an error. The time is that from the
// first request to the end of the last answer; connecting is not in it.
func fetch(s *server, requests ...request) ([]*fetched, time.Duration, error) {
	l, err := newLoop()
	if err != nil {
		return nil, 0, err
	}
	defer l.close()
	all := make([]*fetched, len(requests))
	for i := range all {
		all[i] = new(fetched)
		if all[i].conn, err = l.dial(s.addr, all[i]); err != nil {
			return nil, 0, err
		}
	}
	began := now()
	for i, f := range all {
		if err := f.send(requests[i].bytes); err != nil {
			return nil, 0, err
		}
	}
	deadline := began + int64(10*time.Minute)
	for _, f := range all {
		for !f.done && f.err == nil {
			if err := l.poll(maxWait); err != nil {
				return nil, 0, err
			}
			if now() > deadline {
				return nil, 0, fmt.Errorf("%s: an answer without end", s.name)
			}
		}
		if f.err != nil {
			return nil, 0, fmt.Errorf("%s: a read was cut after %d bytes: %w", s.name, f.bytes, f.err)
		}
	}
	return all, time.Duration(now() - began), nil
}

func (f *fetched) received(b []byte) error {
	for len(b) > 0 {
		n, body, done, err := f.reply.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		f.bytes += int64(len(body))
		f.sum = crc32.Update(f.sum, crc32.IEEETable, body)
		if !done {
			continue
		}
		if f.reply.status != 200 {
			return fmt.Errorf("status %d", f.reply.status)
		}
		if len(b) > 0 {
			return errors.New("bytes behind a reply")
		}
		f.done = true
	}
	return nil
}

// lost ends a fetch that has not ended; later it means nothing.
func (f *fetched) lost(err error) {
	if !f.done {
		f.err = err
	}
}
