package protocol

import (
	"strconv"
	"unicode/utf8"
)

// Problem is an answer that is not a success: the body of RFC 9457 and the header
// lines that go with it.
type Problem struct {
	Status int
	Code   string // stable, one of Codes
	Title  string // the same for every problem of that code
	Detail string // a sentence that a person can act on
	Field  string // the header or parameter at fault, or ""

	Position int64  // byte offset of the fault in the body, or -1
	Limit    int64  // the limit that was exceeded, or 0
	Fields   string // extra header lines, each ending in CR LF

	retry int // seconds for Retry-After, 0 for none
}

// NewProblem makes a problem of a code out of Codes; a code that is not there
// becomes "internal". An empty detail becomes the code's title.
func NewProblem(code, detail string) *Problem { return new(Problem).set(code, "", detail) }

// set makes p a problem of that code.
func (p *Problem) set(code, field, detail string) *Problem {
	c := lookup(code)
	*p = Problem{Status: c.Status, Code: c.Code, Title: c.Title, Detail: detail, Field: field, Position: -1, retry: c.Retry}
	if detail == "" {
		p.Detail = c.Title + "."
	}
	return p
}

// Error makes a Problem usable where an error is wanted.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// typeBase is where a problem's type leads: the table that says what to do.
const typeBase = "https://github.com/snakream/snakream/blob/main/docs/errors.md#"

// AppendJSON appends p as an application/problem+json body.
func (p *Problem) AppendJSON(dst []byte) []byte {
	dst = append(append(dst, `{"type":"`+typeBase...), p.Code...)
	dst = appendJSONString(append(dst, `","title":`...), p.Title)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(p.Status), 10)
	dst = appendJSONString(append(dst, `,"detail":`...), p.Detail)
	dst = appendJSONString(append(dst, `,"code":`...), p.Code)
	if p.Field != "" {
		dst = appendJSONString(append(dst, `,"field":`...), p.Field)
	}
	if p.Position >= 0 {
		dst = strconv.AppendInt(append(dst, `,"position":`...), p.Position, 10)
	}
	if p.Limit > 0 {
		dst = strconv.AppendInt(append(dst, `,"limit":`...), p.Limit, 10)
	}
	return append(dst, '}')
}

// appendJSONString appends s as a JSON string on one line.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c < ' ' || c == 0x7f:
			dst = append(dst, `\u00`...)
			dst = append(dst, upperHex[c>>4], upperHex[c&15])
		default:
			dst = utf8.AppendRune(dst, c)
		}
	}
	return append(dst, '"')
}
