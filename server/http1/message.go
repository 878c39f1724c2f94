package http1

import (
	"bytes"

	"github.com/snakream/snakream/internal/base"
)

// message is what Parse gathers about the framing while it reads the fields.
type message struct {
	hosts, codings  uint8
	keep, shut      bool // Connection options
	lengthWasListed bool
}

// interpret takes account of a field that frames the message.
func (r *Request) interpret(m *message, f base.Field) error {
	switch len(f.Name) { // sorts out nearly all others
	case len("host"):
		if EqualFold(f.Name, "host") {
			if m.hosts++; m.hosts > 1 || !validHost(f.Value) {
				return errHost
			}
			r.Host = f.Value
		}
	case len("expect"):
		if EqualFold(f.Name, "expect") {
			if !EqualFold(f.Value, "100-continue") {
				return errExpect
			}
			r.Expect = true
		}
	case len("connection"):
		if EqualFold(f.Name, "connection") {
			m.options(f.Value)
		}
	case len("content-length"):
		if EqualFold(f.Name, "content-length") {
			n, ok := parseLength(f.Value)
			if !ok || m.lengthWasListed {
				return errContentLength
			}
			r.ContentLength, m.lengthWasListed = n, true
		}
	case len("transfer-encoding"):
		if EqualFold(f.Name, "transfer-encoding") {
			if m.codings++; m.codings > 1 || len(f.Value) == 0 {
				return errTransferEncoding
			}
			if !EqualFold(f.Value, "chunked") {
				return errCoding
			}
			r.Chunked = true
		}
	}
	return nil
}

// conclude checks what only the whole head shows.
func (r *Request) conclude(m *message, absolute []byte) error {
	old := r.Minor == 0
	switch {
	case r.Chunked && m.lengthWasListed:
		return errLengthAndChunked
	case r.Chunked && old:
		return errTransferEncoding
	case m.hosts == 0 && !old:
		return errHost
	}
	r.Close = m.shut || old && !m.keep
	r.Expect = r.Expect && !old
	if absolute != nil {
		r.Host = absolute
	}
	return nil
}

// options looks for close and keep-alive in a Connection field.
func (m *message) options(v []byte) {
	for more := true; more; {
		var o []byte
		o, v, more = bytes.Cut(v, []byte(","))
		o = trim(o)
		m.shut = m.shut || EqualFold(o, "close")
		m.keep = m.keep || EqualFold(o, "keep-alive")
	}
}

func parseLength(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > maxLength {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func validHost(b []byte) bool {
	for _, c := range b {
		if class[c]&isHost == 0 {
			return false
		}
	}
	return true
}

// EqualFold reports whether b is name, whose letters are in lower case, in any mix of cases.
func EqualFold(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 'a' - 'A'
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// trim takes spaces and tabs off both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b[:len(b):len(b)]
}

// Classes of bytes (RFC 9110 §5.5 and §5.6.2, RFC 3986 §2).
const (
	isToken  = 1 << iota // tchar
	isValue              // in a field value: visible ASCII, space, tab, 0x80 and above
	isTarget             // in a request target: visible ASCII that RFC 3986 allows, and those that browsers send
	isHost               // in a host and port
)

var class = func() (t [256]uint8) {
	const alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	set := func(chars string, bits uint8) {
		for i := range len(chars) {
			t[chars[i]] |= bits
		}
	}
	set(alnum, isToken|isHost)
	set("!#$%&'*+-.^_`|~", isToken)
	set("-._~!$&'()*+,;=:%[]", isHost)
	for c := range t {
		if c >= 0x80 || c > ' ' && c < 0x7f || c == ' ' || c == '\t' {
			t[c] |= isValue
		}
		if c > ' ' && c < 0x7f {
			t[c] |= isTarget
		}
	}
	for _, c := range `#"<>\` {
		t[c] &^= isTarget
	}
	return t
}()
