package protocol

import "bytes"

// DefaultContentType is what a PUT without Content-Type makes.
const DefaultContentType = "application/octet-stream"

// maxContentType bounds a content type, in bytes: every stream keeps one.
const maxContentType = 1024

// NormalizeContentType returns a content type as it is stored and sent: type and
// subtype in lower case, parameters as given. It reports false for what is not a
// media type of at most 1024 bytes.
func NormalizeContentType(b []byte) (string, bool) {
	b = trim(b)
	n, ok := scanMediaType(b)
	if !ok || len(b) > maxContentType {
		return "", false
	}
	out, _ := lower(make([]byte, 0, len(b)), b[:n])
	return string(append(out, b[n:]...)), true
}

// SameType reports whether two content types name the same type and subtype;
// parameters and case do not matter.
func SameType[A, B ~string | ~[]byte](a A, b B) bool {
	na, nb := mediaTypeLen(a), mediaTypeLen(b)
	if na != nb {
		return false
	}
	for i := range na {
		if toLower(a[i]) != toLower(b[i]) {
			return false
		}
	}
	return true
}

// IsJSON reports whether streams of that content type are in JSON mode.
func IsJSON[T ~string | ~[]byte](contentType T) bool {
	return SameType(contentType, "application/json")
}

// mediaTypeLen is the length of type and subtype, without parameters.
func mediaTypeLen[T ~string | ~[]byte](v T) int {
	n := 0
	for n < len(v) && v[n] != ';' {
		n++
	}
	for n > 0 && (v[n-1] == ' ' || v[n-1] == '\t') {
		n--
	}
	return n
}

// scanMediaType checks b against the grammar of RFC 9110 §8.3.1 and returns the
// length of type and subtype.
func scanMediaType(b []byte) (n int, ok bool) {
	i := token(b)
	if i == 0 || i == len(b) || b[i] != '/' {
		return 0, false
	}
	sub := token(b[i+1:])
	if sub == 0 {
		return 0, false
	}
	n = i + 1 + sub
	for rest := b[n:]; ; {
		if rest = trim(rest); len(rest) == 0 {
			return n, true
		}
		if rest[0] != ';' {
			return 0, false
		}
		if rest = trim(rest[1:]); len(rest) == 0 || rest[0] == ';' {
			continue // RFC 9110 lets a parameter be absent
		}
		size := parameter(rest)
		if size == 0 {
			return 0, false
		}
		rest = rest[size:]
	}
}

// parameter returns the length of the name=value that b begins with, 0 for none.
func parameter(b []byte) int {
	i := token(b)
	if i == 0 || i == len(b) || b[i] != '=' {
		return 0
	}
	i++
	if v := token(b[i:]); v > 0 {
		return i + v
	}
	if i == len(b) || b[i] != '"' {
		return 0
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
			if i == len(b) || !isText(b[i]) {
				return 0
			}
		case !isText(c):
			return 0
		}
	}
	return 0
}

func isText(c byte) bool { return c == '\t' || ' ' <= c && c < 0x7f }

// token returns the length of the RFC 9110 token that b begins with.
func token(b []byte) int {
	for i, c := range b {
		if !isTokenByte(c) {
			return i
		}
	}
	return len(b)
}

func isTokenByte(c byte) bool { return tokenBytes[c] }

var tokenBytes = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()

// inert are the types whose content no browser runs when somebody opens the URL of
// a stream. Everything else is served with a policy that keeps it from running.
var inert = [...]string{
	"application/json", "application/octet-stream", "application/x-ndjson", "application/ndjson",
	"text/plain", "text/csv", "image/png", "image/jpeg", "image/gif", "image/webp",
}

func isInert(contentType string) bool {
	for _, t := range inert {
		if SameType(contentType, t) {
			return true
		}
	}
	return false
}

// acceptRanks is how an Accept header ranks the two representations of JSON, in
// thousandths. A range that is more specific wins over one that is less.
type acceptRanks struct {
	lines                      int // q of application/x-ndjson, plus one; 0 = not named
	exact, application, either int // the same for application/json, application/* and */*
}

// ndjson reports whether application/x-ndjson ranks above JSON.
func (a *acceptRanks) ndjson() bool {
	json := a.exact
	if json == 0 {
		json = a.application
	}
	if json == 0 {
		json = a.either
	}
	return a.lines > 1 && a.lines > json
}

// add takes in one line of the header. What it can't read it ignores.
func (a *acceptRanks) add(line []byte) {
	for len(line) > 0 {
		var item []byte
		item, line, _ = bytes.Cut(line, []byte{','})
		kind, params, _ := bytes.Cut(trim(item), []byte{';'})
		q := quality(params) + 1
		switch kind = trim(kind); {
		case equalFold(kind, "application/x-ndjson"):
			a.lines = max(a.lines, q)
		case equalFold(kind, "application/json"):
			a.exact = max(a.exact, q)
		case equalFold(kind, "application/*"):
			a.application = max(a.application, q)
		case equalFold(kind, "*/*"):
			a.either = max(a.either, q)
		}
	}
}

// quality reads the q of an Accept item, in thousandths; 1000 when it has none.
func quality(params []byte) int {
	for len(params) > 0 {
		var p []byte
		p, params, _ = bytes.Cut(params, []byte{';'})
		if p = trim(p); len(p) < 3 || toLower(p[0]) != 'q' || p[1] != '=' {
			continue
		}
		if p[2] != '0' {
			return 1000
		}
		q := 0
		for i, unit := 4, 100; i < len(p) && unit > 0 && '0' <= p[i] && p[i] <= '9'; i, unit = i+1, unit/10 {
			q += int(p[i]-'0') * unit
		}
		return q
	}
	return 1000
}
