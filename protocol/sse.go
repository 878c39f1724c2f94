package protocol

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// Encoding is how an event stream carries the bytes of a stream.
type Encoding uint8

// The encodings.
const (
	EncodeText   Encoding = iota + 1 // as they are, UTF-8
	EncodeJSON                       // an array of whole messages
	EncodeBase64                     // standard base64 with padding
)

// EncodingOf returns the encoding that a stream of that content type has.
func EncodingOf(contentType string) Encoding {
	const text = "text/"
	switch {
	case IsJSON(contentType):
		return EncodeJSON
	case len(contentType) > len(text) && equalFold([]byte(contentType[:len(text)]), text):
		return EncodeText
	}
	return EncodeBase64
}

// Control is the content of a control event. Closed implies UpToDate, and that
// there is no cursor.
type Control struct {
	Next     uint64 // the offset to go on from
	Cursor   uint64
	UpToDate bool
	Closed   bool
	// HasRecords, of a read by record, adds the ordinals of the stream's earliest
	// record and of the one to go on from.
	HasRecords              bool
	FirstRecord, NextRecord uint64
}

// Heartbeat is the comment that keeps an idle event stream alive.
const Heartbeat = ": heartbeat\n\n"

// AppendSSEData appends one data event that carries payload and whose end is at
// the offset next. For JSON the payload is a stored range of whole messages. For
// text it should end at a boundary of UTF8Cut; whatever is not UTF-8 becomes
// U+FFFD, and every CR, LF or CR LF becomes a line end of the event format, which a
// client reads back as LF.
func AppendSSEData(dst []byte, e Encoding, payload []byte, next uint64) []byte {
	dst = append(dst, "event: data\n"...)
	switch e {
	case EncodeText:
		dst = appendLines(dst, payload)
	case EncodeJSON:
		dst = append(dst, "data:"+OpenArray...)
		if len(payload) > 0 {
			dst = append(dst, payload[:len(payload)-1]...)
		}
		dst = append(dst, CloseArray+"\n"...)
	default:
		dst = append(base64.StdEncoding.AppendEncode(append(dst, "data:"...), payload), '\n')
	}
	return appendID(dst, next)
}

// AppendSSEControl appends a control event.
func AppendSSEControl(dst []byte, c Control) []byte {
	dst = append(dst, "event: control\ndata:{\"streamNextOffset\":\""...)
	dst = append(AppendOffset(dst, c.Next), '"')
	if c.HasRecords {
		dst = strconv.AppendUint(append(dst, `,"streamFirstRecord":`...), c.FirstRecord, 10)
		dst = strconv.AppendUint(append(dst, `,"streamNextRecord":`...), c.NextRecord, 10)
	}
	if !c.Closed {
		dst = append(dst, `,"streamCursor":"`...)
		dst = append(strconv.AppendUint(dst, c.Cursor, 10), '"')
	}
	if c.UpToDate || c.Closed {
		dst = append(dst, `,"upToDate":true`...)
	}
	if c.Closed {
		dst = append(dst, `,"streamClosed":true`...)
	}
	return appendID(append(dst, "}\n"...), c.Next)
}

// AppendSSEEnd appends the event that tells why a read ends for another reason than
// closure or rotation. It has no id: the last control's stays.
func AppendSSEEnd(dst []byte, p *Problem) []byte {
	dst = p.AppendJSON(append(dst, "event: end\ndata:"...))
	return append(dst, "\n\n"...)
}

func appendID(dst []byte, next uint64) []byte {
	return append(AppendOffset(append(dst, "id: "...), next), "\n\n"...)
}

// appendLines appends text as data lines. A parser takes one space after the colon
// away, so a line that begins with one gets another.
func appendLines(dst, text []byte) []byte {
	valid := utf8.Valid(text)
	for {
		end, skip := lineEnd(text)
		line := text[:end]
		dst = append(dst, "data:"...)
		if len(line) > 0 && line[0] == ' ' {
			dst = append(dst, ' ')
		}
		if valid {
			dst = append(dst, line...)
		} else {
			dst = appendValid(dst, line)
		}
		dst = append(dst, '\n')
		if skip == 0 {
			return dst
		}
		text = text[end+skip:]
	}
}

// lineEnd finds the first line end and its length, 0 when there is none.
func lineEnd(b []byte) (at, size int) {
	for i, c := range b {
		switch {
		case c == '\n':
			return i, 1
		case c == '\r' && i+1 < len(b) && b[i+1] == '\n':
			return i, 2
		case c == '\r':
			return i, 1
		}
	}
	return len(b), 0
}

// appendValid appends b with one U+FFFD for each piece that is not UTF-8, cut as the
// WHATWG decoder cuts them.
func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = max(partialRune(b), 1)
		}
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// UTF8Cut returns the length of the longest prefix of b that does not end in the
// middle of a code point. What it leaves out is at most 3 bytes, the beginning of a
// code point whose rest has not come yet.
func UTF8Cut(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-(utf8.UTFMax-1); i-- {
		if utf8.RuneStart(b[i]) {
			if partialRune(b[i:]) == len(b)-i {
				return i
			}
			break
		}
	}
	return len(b)
}

// partialRune returns how many bytes at the start of b, at most 3, are the beginning
// of an encoded code point that does not go on as it should; 0 when b begins with a
// whole one, or with a byte that begins none.
func partialRune(b []byte) int {
	if len(b) == 0 || b[0] < 0xc2 || b[0] > 0xf4 {
		return 0
	}
	size, low, high := 2, byte(0x80), byte(0xbf)
	switch c := b[0]; {
	case c >= 0xf0:
		size = 4
		if c == 0xf0 {
			low = 0x90 // below: overlong
		} else if c == 0xf4 {
			high = 0x8f // above: beyond U+10FFFF
		}
	case c >= 0xe0:
		size = 3
		if c == 0xe0 {
			low = 0xa0 // below: overlong
		} else if c == 0xed {
			high = 0x9f // above: a surrogate
		}
	}
	for n := 1; n < size; n++ {
		if n == len(b) || b[n] < low || b[n] > high {
			return n
		}
		low, high = 0x80, 0xbf
	}
	return 0
}
