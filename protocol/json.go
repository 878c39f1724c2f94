package protocol

// MaxNesting is how deep arrays and objects may lie in one another inside a JSON
// message.
const MaxNesting = 512

// JSONError says what is wrong with a JSON body, and at which byte.
type JSONError struct {
	Position int64
	Detail   string
}

func (e *JSONError) Error() string { return e.Detail }

// SplitJSON checks that body is JSON (RFC 8259, UTF-8, no byte order mark, nesting of
// at most maxDepth inside a message) and appends its messages to dst, each followed by
// one comma. Insignificant white space goes; every other byte stays as it is. With
// flatten, an array is as many messages as it has elements, none for an empty one.
// To bounds it appends, for each message, the offset within stored at which it ends,
// its comma included, counted from the place where dst ended.
func SplitJSON(dst []byte, bounds []uint32, body []byte, maxDepth int, flatten bool) (stored []byte, ends []uint32, err *JSONError) {
	return dst, bounds, nil
}

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
	inside, escaped bool
}

// Append appends the next piece to dst.
func (l *Lines) Append(dst, stored []byte) []byte { return dst }
