package protocol

import (
	"bytes"
	"strconv"
)

// maxTag is room for any tag of ours.
const maxTag = 96

// AppendStateTag appends the entity tag of a stream's state, quotes included.
func AppendStateTag(dst []byte, incarnation, next uint64, closed bool) []byte {
	dst = strconv.AppendUint(append(dst, '"'), incarnation, 10)
	dst = AppendOffset(append(dst, ':'), next)
	return append(appendClosed(dst, closed), '"')
}

// AppendRangeTag appends the entity tag of the range [start, next) of a stream, quotes
// included. representation is "" for the stream's own.
func AppendRangeTag(dst []byte, incarnation, start, next uint64, closed bool, representation string) []byte {
	dst = strconv.AppendUint(append(dst, '"'), incarnation, 10)
	dst = AppendOffset(append(dst, ':'), start)
	dst = AppendOffset(append(dst, ':'), next)
	dst = appendClosed(dst, closed)
	if representation != "" {
		dst = append(append(dst, ':'), representation...)
	}
	return append(dst, '"')
}

func appendClosed(dst []byte, closed bool) []byte {
	if closed {
		dst = append(dst, ":c"...)
	}
	return dst
}

// MatchNone reports whether one of the values of If-None-Match, each a header line
// with a list of entity tags, names tag: by weak comparison, or as "*". From the
// first thing in a line that is no entity tag on, the line is ignored.
func MatchNone(values [][]byte, tag []byte) bool {
	for _, v := range values {
		if string(trim(v)) == "*" {
			return true
		}
		for {
			v = bytes.TrimLeft(v, " \t,")
			v = bytes.TrimPrefix(v, []byte("W/"))
			if len(v) == 0 || v[0] != '"' {
				break
			}
			end := bytes.IndexByte(v[1:], '"') + 2
			if end < 2 {
				break
			}
			if bytes.Equal(v[:end], tag) {
				return true
			}
			if v = bytes.TrimLeft(v[end:], " \t"); len(v) > 0 && v[0] != ',' {
				break
			}
		}
	}
	return false
}
