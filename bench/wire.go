package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// replyReader takes the bytes of one reply apart, however they are cut.
type replyReader interface {
	// feed consumes the first n bytes of b. body, when not empty, is a piece of
	// the reply's body and aliases b. After done the reader is ready for the
	// next reply, but status and headers stay readable until it begins.
	feed(b []byte) (n int, body []byte, done bool, err error)
	// accepted says whether the last reply was a success.
	accepted() bool
}

// maxHead bounds a reply's head.
const maxHead = 64 << 10

type bodyState uint8

const (
	inHead bodyState = iota
	inLength
	inUntilClose
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
)

// response is an incremental reader of HTTP/1.1 responses. It looks only at the
// few fields that the scenarios need.
type response struct {
	status   int
	next     []byte // Stream-Next-Offset
	upToDate bool
	hangup   bool // Connection: close

	noBody bool // set by its owner: the request was a HEAD

	state bodyState
	left  int64  // of the body or chunk
	line  []byte // an unfinished head or chunk line
}

func (r *response) accepted() bool { return r.status >= 200 && r.status < 300 }

func (r *response) feed(b []byte) (n int, body []byte, done bool, err error) {
	switch r.state {
	case inHead:
		return r.feedHead(b)
	case inUntilClose:
		return len(b), b, false, nil
	case inLength, inChunk:
		piece := b[:min(int64(len(b)), r.left)]
		r.left -= int64(len(piece))
		if r.left == 0 {
			if r.state == inLength {
				r.state = inHead
				done = true
			} else {
				r.state = inChunkEnd
			}
		}
		return len(piece), piece, done, nil
	}
	n, line, err := r.feedLine(b)
	if err != nil || line == nil {
		return n, nil, false, err
	}
	switch r.state {
	case inChunkEnd:
		if len(line) != 0 {
			return n, nil, false, errors.New("no line end after a chunk")
		}
		r.state = inChunkSize
	case inChunkSize:
		size, _, _ := bytes.Cut(line, []byte{';'})
		r.left, err = strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 63)
		if err != nil {
			return n, nil, false, fmt.Errorf("chunk size %q: %w", line, err)
		}
		r.state = inChunk
		if r.left == 0 {
			r.state = inTrailer
		}
	case inTrailer:
		if len(line) == 0 {
			r.state = inHead
			done = true
		}
	}
	r.line = r.line[:0]
	return n, nil, done, nil
}

// feedLine collects one line; it is nil until the line is whole.
func (r *response) feedLine(b []byte) (n int, line []byte, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if len(r.line)+len(b) > maxHead {
			return 0, nil, errors.New("a chunk line that does not end")
		}
		r.line = append(r.line, b...)
		return len(b), nil, nil
	}
	line = b[:i]
	if len(r.line) > 0 {
		r.line = append(r.line, line...)
		line = r.line
	}
	if line = bytes.TrimSuffix(line, []byte{'\r'}); line == nil {
		line = []byte{}
	}
	return i + 1, line, nil
}

var headEnd = []byte("\r\n\r\n")

func (r *response) feedHead(b []byte) (n int, body []byte, done bool, err error) {
	head := b
	before := len(r.line)
	if before > 0 { // a head in pieces
		r.line = append(r.line, b...)
		head = r.line
	}
	end := bytes.Index(head, headEnd)
	if end < 0 {
		if len(head) > maxHead {
			return 0, nil, false, errors.New("a head that does not end")
		}
		if before == 0 {
			r.line = append(r.line, b...)
		}
		return len(b), nil, false, nil
	}
	n = end + len(headEnd) - before
	err = r.parseHead(head[:end+2])
	r.line = r.line[:0]
	if err != nil {
		return n, nil, false, err
	}
	switch {
	case r.status < 200: // 100 Continue: the answer is still to come
		r.state = inHead
		return n, nil, false, nil
	case r.noBody || r.status == 204 || r.status == 304:
		r.state, r.left = inHead, 0
		return n, nil, true, nil
	case r.state == inLength && r.left == 0:
		r.state = inHead
		return n, nil, true, nil
	}
	return n, nil, false, nil
}

// parseHead reads the status line and the fields; every line ends in CRLF.
func (r *response) parseHead(h []byte) error {
	if len(h) < 14 || !bytes.HasPrefix(h, []byte("HTTP/1.")) {
		return fmt.Errorf("not a status line: %.40q", h)
	}
	r.status = int(h[9]-'0')*100 + int(h[10]-'0')*10 + int(h[11]-'0')
	r.next, r.upToDate, r.hangup = r.next[:0], false, false
	r.state, r.left = inUntilClose, 0
	h = h[bytes.IndexByte(h, '\n')+1:]
	for len(h) > 0 {
		i := bytes.IndexByte(h, '\n')
		line := h[:i-1]
		h = h[i+1:]
		switch line[0] | 0x20 {
		case 'c':
			if v, ok := field(line, "content-length"); ok {
				n, err := strconv.ParseInt(string(v), 10, 63)
				if err != nil {
					return fmt.Errorf("content-length %q: %w", v, err)
				}
				r.state, r.left = inLength, n
			} else if v, ok := field(line, "connection"); ok && foldEqual(v, "close") {
				r.hangup = true
			}
		case 't':
			if v, ok := field(line, "transfer-encoding"); ok && foldEqual(v, "chunked") {
				r.state = inChunkSize
			}
		case 's':
			if v, ok := field(line, "stream-next-offset"); ok {
				r.next = append(r.next, v...)
			} else if _, ok := field(line, "stream-up-to-date"); ok {
				r.upToDate = true
			}
		}
	}
	return nil
}

// field returns the value of a line whose name is the given lower-case one.
func field(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !foldEqual(line[:len(name)], name) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// foldEqual compares ASCII letters without regard to case; want is in lower case.
func foldEqual(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

// respReply is an incremental reader of the Redis replies that XADD and PING can
// get: simple strings, errors and bulk strings.
type respReply struct {
	line   []byte
	left   int // of a bulk string and its line end; 0: in a line
	failed bool
}

func (r *respReply) accepted() bool { return !r.failed }

func (r *respReply) feed(b []byte) (n int, body []byte, done bool, err error) {
	if r.left > 0 {
		n = min(r.left, len(b))
		r.left -= n
		return n, nil, r.left == 0, nil
	}
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		r.line = append(r.line, b...)
		return len(b), nil, false, nil
	}
	r.line = append(r.line, b[:i]...)
	line := bytes.TrimSuffix(r.line, []byte{'\r'})
	r.line = r.line[:0]
	if len(line) == 0 {
		return i + 1, nil, false, errors.New("an empty reply line")
	}
	switch line[0] {
	case '+', ':':
		r.failed = false
		return i + 1, nil, true, nil
	case '-':
		r.failed = true
		return i + 1, nil, true, nil
	case '$':
		size, err := strconv.Atoi(string(line[1:]))
		if err != nil || size < 0 {
			return i + 1, nil, false, fmt.Errorf("bulk string of length %q", line[1:])
		}
		r.failed, r.left = false, size+2
		return i + 1, nil, false, nil
	}
	return i + 1, nil, false, fmt.Errorf("unexpected reply %.40q", line)
}
