// Package http1 frames HTTP/1.x: an incremental, strict parser of request
// heads, a decoder of chunked bodies, and the lines that a response begins with.
// It works on byte slices only and allocates nothing.
package http1

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/snakream/snakream/internal/base"
)

// MaxFields is the most field lines that a head can have, whatever Limits say.
const MaxFields = 100

const (
	maxMethod = 32 // bytes; the longest registered method has 16
	maxBlank  = 2  // empty lines before a request that are passed over (RFC 9112 §2.2)
	maxLength = 18 // digits of a Content-Length: below 10^18 it can't overflow
)

// Limits bounds a request head. Bytes beyond one are refused as soon as they are seen.
type Limits struct {
	Head   int // bytes of the whole head, from the request line to the empty line
	Target int // bytes of the request target
	Fields int // field lines, at most MaxFields
}

// Request is the parsed head of one request. All its slices alias the bytes that
// were parsed, but for Fields, which lies inside the Request: a Request must not
// be copied. It is not safe for concurrent use.
type Request struct {
	Method        []byte
	Target        []byte // as it was sent
	Path, Query   []byte // of the target, still percent-encoded; Path is "*" for that form
	Host          []byte // of an absolute target, else of the Host field
	Minor         uint8  // 0 or 1, of HTTP/1.x
	Chunked       bool   // the body is chunked
	Close         bool   // the connection ends after this request
	Expect        bool   // 100-continue is expected
	ContentLength int64  // in bytes; -1: there is none
	Fields        []base.Field

	fields [MaxFields]base.Field
}

// ErrIncomplete says that the head goes on beyond the bytes given to Parse.
var ErrIncomplete = errors.New("http1: incomplete head")

// Reset empties the request, so that it keeps no bytes alive.
func (r *Request) Reset() {
	clear(r.Fields)
	r.Method, r.Target, r.Path, r.Query, r.Host = nil, nil, nil, nil, nil
	r.Minor, r.Chunked, r.Close, r.Expect, r.ContentLength = 0, false, false, false, -1
	r.Fields = r.fields[:0]
}

// Get returns the value of the first field called name, which must be in lower case.
func (r *Request) Get(name string) ([]byte, bool) {
	for i := range r.Fields {
		if EqualFold(r.Fields[i].Name, name) {
			return r.Fields[i].Value, true
		}
	}
	return nil, false
}

// Parse parses the head at the beginning of b and returns its length in bytes.
// The error is ErrIncomplete, or an *Error after which the connection has no
// further use: where the next request begins is not known.
func (r *Request) Parse(b []byte, l Limits) (n int, err error) {
	r.Reset()
	i, err := r.parseLine(b, l.Target)
	if err != nil {
		return 0, err
	}
	if err := r.splitTarget(); err != nil {
		return 0, err
	}
	absolute := r.Host
	r.Host = nil
	var m message
	for {
		switch {
		case i > l.Head:
			return 0, errHeadTooLarge
		case i == len(b):
			return 0, ErrIncomplete
		case b[i] == '\r':
			if i+1 == len(b) {
				return 0, ErrIncomplete
			}
			if b[i+1] != '\n' {
				return 0, errBareCR
			}
			if i+2 > l.Head {
				return 0, errHeadTooLarge
			}
			return i + 2, r.conclude(&m, absolute)
		}
		if len(r.Fields) == min(l.Fields, MaxFields) {
			return 0, errTooManyFields
		}
		var f base.Field
		if f, i, err = parseField(b, i, l.Head); err != nil {
			return 0, err
		}
		r.Fields = append(r.Fields, f)
		if err := r.interpret(&m, f); err != nil {
			return 0, err
		}
	}
}

// parseLine parses the request line and returns where the fields begin.
func (r *Request) parseLine(b []byte, maxTarget int) (int, error) {
	i := 0
	for k := 0; k < maxBlank && len(b)-i >= 2 && b[i] == '\r' && b[i+1] == '\n'; k++ {
		i += 2
	}
	s := i
	for i < len(b) && class[b[i]]&isToken != 0 {
		i++
	}
	switch {
	case i-s > maxMethod:
		return 0, errMethod
	case i == len(b), i == s && i+1 == len(b) && b[i] == '\r':
		return 0, ErrIncomplete
	case i == s || b[i] != ' ':
		return 0, errMethod
	}
	r.Method = b[s:i:i]
	i++
	s = i
	for i < len(b) && class[b[i]]&isTarget != 0 {
		i++
	}
	switch {
	case i-s > maxTarget:
		return 0, errTargetTooLong
	case i == len(b):
		return 0, ErrIncomplete
	case i == s || b[i] != ' ':
		return 0, errTarget
	}
	r.Target = b[s:i:i]
	return r.parseVersion(b, i+1)
}

const versionLine = "HTTP/1.1\r\n"

func (r *Request) parseVersion(b []byte, i int) (int, error) {
	v := b[i:min(len(b), i+len(versionLine))]
	for k, c := range v {
		switch {
		case k == 5 && c >= '0' && c <= '9' && c != '1', k == 7 && c > '1' && c <= '9':
			return 0, errVersion
		case k == 7 && c == '0' || c == versionLine[k]:
		case k >= 8:
			return 0, errLineEnd
		default:
			return 0, errVersionLine
		}
	}
	if len(v) < len(versionLine) {
		return 0, ErrIncomplete
	}
	r.Minor = v[7] - '0'
	return i + len(versionLine), nil
}

// splitTarget sets Path and Query, and Host if the target is absolute.
func (r *Request) splitTarget() error {
	t := r.Target
	switch {
	case t[0] == '/':
	case t[0] == '*':
		if len(t) > 1 || string(r.Method) != "OPTIONS" {
			return errTarget
		}
	default:
		scheme, rest, ok := bytes.Cut(t, []byte("://"))
		if !ok || !EqualFold(scheme, "http") && !EqualFold(scheme, "https") {
			return errTarget // authority-form is for proxies
		}
		j := bytes.IndexAny(rest, "/?")
		if j < 0 {
			j = len(rest)
		}
		if r.Host, t = rest[:j:j], rest[j:]; j == 0 || !validHost(r.Host) {
			return errTarget
		}
	}
	r.Path, r.Query, _ = bytes.Cut(t, []byte("?"))
	if len(r.Path) == 0 {
		r.Path = []byte("/")
	}
	return nil
}

// parseField parses the field line that begins at b[i] and returns where the next one begins.
func parseField(b []byte, i, maxHead int) (f base.Field, next int, err error) {
	s := i
	for i < len(b) && class[b[i]]&isToken != 0 {
		i++
	}
	switch {
	case i == len(b):
		return f, 0, incomplete(b, maxHead)
	case b[i] == ':' && i > s:
	case i == s && (b[i] == ' ' || b[i] == '\t'):
		return f, 0, errFold
	case b[i] == '\n':
		return f, 0, errLineEnd
	default:
		return f, 0, errFieldName
	}
	f.Name = b[s:i:i]
	i++
	end := bytes.IndexByte(b[i:], '\r')
	if end < 0 {
		end = len(b)
	} else {
		end += i
	}
	for _, c := range b[i+plain(b[i:end]) : end] {
		if class[c]&isValue == 0 {
			if c == '\n' {
				return f, 0, errLineEnd
			}
			return f, 0, errFieldValue
		}
	}
	if end+1 >= len(b) {
		return f, 0, incomplete(b, maxHead)
	}
	if b[end+1] != '\n' {
		return f, 0, errBareCR
	}
	f.Value = trim(b[i:end])
	return f, end + 2, nil
}

// plain returns how many bytes at the beginning of b, by eights, are visible ASCII or
// spaces, as all are in most values.
func plain(b []byte) int {
	const each, top = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		// A byte below space borrows, DEL carries, and above it the top bit is set.
		if v := binary.LittleEndian.Uint64(b[n:]); (v|(v+each)|(v-each*' '))&top != 0 {
			break
		}
	}
	return n
}

func incomplete(b []byte, maxHead int) error {
	if len(b) > maxHead {
		return errHeadTooLarge
	}
	return ErrIncomplete
}
