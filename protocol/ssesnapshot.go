package protocol

import (
	"encoding/base64"
	"unicode/utf8"
)

// SnapshotEvent writes the event that an event stream of a bootstrap begins with: the
// snapshot's bytes as its data, its offset as its id.
//
//	event: snapshot
//	data:…
//	id: 00000000000000000012
//
// A snapshot that is text/* or application/json goes as it is, a line of data for each
// of its lines, by the rules that AppendSSEData has for text: line ends come out as LF,
// and what is not UTF-8 as U+FFFD. Any other goes as one line of standard base64 with
// padding. Renderer.BootstrapEvents tells in header lines which of the two it is.
//
// The bytes may come in pieces that end anywhere, so that a snapshot of any size goes
// out with flat memory. The zero value is ready for Begin.
type SnapshotEvent struct {
	text  bool
	start bool    // of text: nothing of the line has gone out yet
	cr    bool    // of text: a line ended with CR, whose LF may still come
	held  [3]byte // the beginning of a code point, or of three bytes for base64
	n     int     // bytes in held
}

// Begin appends what comes before the first byte of a snapshot of that type.
func (e *SnapshotEvent) Begin(dst []byte, contentType string) []byte {
	*e = SnapshotEvent{text: snapshotIsText(contentType), start: true}
	return append(dst, "event: snapshot\ndata:"...)
}

func snapshotIsText(contentType string) bool { return EncodingOf(contentType) != EncodeBase64 }

// Append appends the next piece.
func (e *SnapshotEvent) Append(dst, piece []byte) []byte {
	if e.text {
		return e.appendText(dst, piece)
	}
	if e.n > 0 {
		took := copy(e.held[e.n:], piece)
		piece = piece[took:]
		if e.n += took; e.n < len(e.held) {
			return dst
		}
		dst = base64.StdEncoding.AppendEncode(dst, e.held[:])
	}
	whole := len(piece) - len(piece)%len(e.held)
	e.n = copy(e.held[:], piece[whole:])
	return base64.StdEncoding.AppendEncode(dst, piece[:whole])
}

// End appends what comes behind the last byte of a snapshot at that offset.
func (e *SnapshotEvent) End(dst []byte, offset uint64) []byte {
	switch {
	case e.n > 0 && e.text:
		dst = utf8.AppendRune(dst, utf8.RuneError)
	case e.n > 0:
		dst = base64.StdEncoding.AppendEncode(dst, e.held[:e.n])
	}
	return appendID(append(dst, '\n'), offset)
}

func (e *SnapshotEvent) appendText(dst, piece []byte) []byte {
	for e.n > 0 && len(piece) > 0 {
		var buf [utf8.UTFMax]byte
		candidate := append(append(buf[:0], e.held[:e.n]...), piece[0])
		r, size := utf8.DecodeRune(candidate)
		switch {
		case partialRune(candidate) == len(candidate):
			e.held[e.n] = piece[0]
			e.n++
			piece = piece[1:]
			continue
		case size == len(candidate):
			piece = piece[1:]
		default:
			r = utf8.RuneError // what was held goes no further
		}
		e.n, e.start, e.cr = 0, false, false
		dst = utf8.AppendRune(dst, r)
	}
	whole := UTF8Cut(piece)
	e.n = copy(e.held[e.n:], piece[whole:]) + e.n
	return e.appendWhole(dst, piece[:whole])
}

// appendWhole appends text that ends with a whole code point.
func (e *SnapshotEvent) appendWhole(dst, text []byte) []byte {
	if len(text) == 0 {
		return dst
	}
	if e.cr && text[0] == '\n' {
		text = text[1:]
	}
	e.cr = false
	for {
		end, skip := lineEnd(text)
		if line := text[:end]; len(line) > 0 {
			if e.start && line[0] == ' ' {
				dst = append(dst, ' ')
			}
			e.start = false
			dst = appendValid(dst, line)
		}
		if skip == 0 {
			return dst
		}
		e.cr = text[end+skip-1] == '\r'
		e.start = true
		dst = append(dst, "\ndata:"...)
		if text = text[end+skip:]; len(text) > 0 {
			e.cr = false
		}
	}
}

// BootstrapEvents renders the head of the event stream of a bootstrap; its status is
// 200. contentType is the stream's and s its snapshot, which an event stream that is
// resumed does not send.
func (r *Renderer) BootstrapEvents(dst []byte, incarnation uint64, contentType string, s *Snapshot, resumed bool) (fields []byte) {
	at := len(dst)
	dst = appendBootstrapSnapshot(r.appendEvents(dst, incarnation, contentType), s)
	if s.Set && !resumed {
		dst = append(append(append(dst, "Stream-Snapshot-Content-Type: "...), s.ContentType...), crlf...)
		if !snapshotIsText(s.ContentType) {
			dst = append(dst, "Stream-SSE-Snapshot-Encoding: base64\r\n"...)
		}
	}
	return dst[at:]
}
