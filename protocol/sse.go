package protocol

// Encoding is how an event stream carries the bytes of a stream.
type Encoding uint8

// The encodings.
const (
	EncodeText   Encoding = iota + 1 // as they are, UTF-8
	EncodeJSON                       // an array of whole messages
	EncodeBase64                     // standard base64 with padding
)

// EncodingOf returns the encoding that a stream of that content type has.
func EncodingOf(contentType string) Encoding { return 0 }

// Control is the content of a control event. Closed implies UpToDate, and that
// there is no cursor.
type Control struct {
	Next     uint64 // the offset to go on from
	Cursor   uint64
	UpToDate bool
	Closed   bool
}

// Heartbeat is the comment that keeps an idle event stream alive.
const Heartbeat = ":\n\n"

// AppendSSEData appends one data event that carries payload and whose end is at
// the offset next. For JSON the payload is a stored range of whole messages. For
// text it should end at a boundary of UTF8Cut; whatever is not UTF-8 becomes
// U+FFFD.
func AppendSSEData(dst []byte, e Encoding, payload []byte, next uint64) []byte { return dst }

// AppendSSEControl appends a control event.
func AppendSSEControl(dst []byte, c Control) []byte { return dst }

// AppendSSEEnd appends the event that tells why a read ends for another reason than
// closure or rotation.
func AppendSSEEnd(dst []byte, p *Problem) []byte { return dst }

// UTF8Cut returns the length of the longest prefix of b that does not end in the
// middle of a code point. What it leaves out is at most 3 bytes, the beginning of a
// code point whose rest has not come yet.
func UTF8Cut(b []byte) int { return len(b) }
