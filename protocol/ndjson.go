package protocol

// A stored range of whole messages is an array between these two, without its last
// byte; an empty range is both of them.
const (
	OpenArray  = "["
	CloseArray = "]"
)

// Lines turns a stored range of whole messages into NDJSON, one message a line. The
// range may come in pieces that end anywhere. The zero value is ready to use.
type Lines struct {
	depth           int
	inside, escaped bool // a string, and behind a backslash in it
}

// Append appends the next piece to dst. The result has as many bytes as stored.
func (l *Lines) Append(dst, stored []byte) []byte {
	at := len(dst)
	dst = append(dst, stored...)
	for {
		n := l.message(stored)
		if n == 0 {
			return dst
		}
		at += n
		dst[at-1] = '\n'
		stored = stored[n:]
	}
}

// message returns the length of the first message in b, its comma included, 0 when
// it goes on behind b. Either way what it has looked at is taken note of.
func (l *Lines) message(b []byte) int {
	for i, c := range b {
		switch {
		case l.escaped:
			l.escaped = false
		case l.inside:
			l.escaped, l.inside = c == '\\', c != '"'
		case c == '"':
			l.inside = true
		case c == '{' || c == '[':
			l.depth++
		case c == '}' || c == ']':
			l.depth--
		case c == ',' && l.depth == 0:
			return i + 1
		}
	}
	return 0
}
