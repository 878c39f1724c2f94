package protocol

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxNesting is how deep arrays and objects may lie in one another inside a JSON
// message.
const MaxNesting = 512

// JSONError says what is wrong with a JSON body, and at which byte.
type JSONError struct {
	Position int64
	Detail   string
}

func (e *JSONError) Error() string { return e.Detail }

// SplitJSON checks that body, which is shorter than 4 GiB, is JSON (RFC 8259, UTF-8,
// no byte order mark, nesting of at most maxDepth, at most MaxNesting, inside a
// message) and appends its messages to dst, each followed by one comma. Insignificant
// white space goes; every other byte stays as it is. With flatten, an array is as many
// messages as it has elements, none for an empty one. To bounds it appends, for each
// message, the offset at which it ends, its comma included, counted from the place
// where dst ended. After an error dst and bounds come back as they were.
func SplitJSON(dst []byte, bounds []uint32, body []byte, maxDepth int, flatten bool) (stored []byte, ends []uint32, err *JSONError) {
	s := splitter{body: body, dst: dst, base: len(dst), ends: bounds, maxDepth: min(maxDepth, MaxNesting)}
	ok := s.checkText() && s.split(flatten)
	if !ok {
		return dst, bounds, &JSONError{Position: int64(s.i), Detail: s.detail}
	}
	return s.dst, s.ends, nil
}

// A splitter goes over the body once. It copies in runs: from run to wherever white
// space has to be left out.
type splitter struct {
	body     []byte
	i        int // the next byte to look at, and the position of a fault
	detail   string
	maxDepth int

	dst  []byte
	base int // where dst began
	run  int // the first byte that has not been copied
	ends []uint32

	depth   int
	objects [MaxNesting / 64]uint64 // one bit for each open level: an object, not an array
}

func (s *splitter) fail(detail string) bool {
	s.detail = detail
	return false
}

// checkText checks the encoding of the whole body, so that the rest can take every
// byte from 0x80 up for part of a character.
func (s *splitter) checkText() bool {
	if len(s.body) >= 3 && string(s.body[:3]) == "\ufeff" {
		return s.fail("JSON must not begin with a byte order mark.")
	}
	if utf8.Valid(s.body) {
		return true
	}
	for {
		r, n := utf8.DecodeRune(s.body[s.i:])
		if r == utf8.RuneError && n == 1 {
			return s.fail("JSON must be UTF-8.")
		}
		s.i += n
	}
}

func (s *splitter) split(flatten bool) bool {
	s.space()
	if flatten && s.peek() == '[' {
		s.i++
		if !s.elements() {
			return false
		}
	} else {
		s.run = s.i
		if !s.value() {
			return false
		}
		s.last()
	}
	s.space()
	if s.i < len(s.body) {
		return s.fail("There is something behind the JSON value.")
	}
	return true
}

// elements splits the outer array, behind its bracket. The array's own commas are the
// messages' commas, so that a batch without white space is copied in one run.
func (s *splitter) elements() bool {
	s.space()
	if s.peek() == ']' {
		s.i++
		return true
	}
	for s.run = s.i; ; {
		if !s.value() {
			return false
		}
		s.skip()
		switch s.peek() {
		case ',':
			s.i++
			s.ends = append(s.ends, uint32(len(s.dst)-s.base+s.i-s.run))
			s.skip()
		case ']':
			s.last()
			s.i++
			return true
		default:
			return s.fail("There is no comma or closing bracket behind an element of the array.")
		}
	}
}

// last takes the last message to dst and gives it its comma.
func (s *splitter) last() {
	s.flush()
	s.dst = append(s.dst, ',')
	s.ends = append(s.ends, uint32(len(s.dst)-s.base))
}

// flush copies what has been seen since the last flush.
func (s *splitter) flush() {
	s.dst = append(s.dst, s.body[s.run:s.i]...)
	s.run = s.i
}

// peek returns the next byte, 0 at the end. A zero byte itself is never JSON.
func (s *splitter) peek() byte {
	if s.i < len(s.body) {
		return s.body[s.i]
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// space passes over white space.
func (s *splitter) space() {
	for s.i < len(s.body) && isSpace(s.body[s.i]) {
		s.i++
	}
}

// skip passes over white space, leaving it out of dst.
func (s *splitter) skip() {
	if s.i == len(s.body) || s.body[s.i] > ' ' {
		return
	}
	s.flush()
	s.space()
	s.run = s.i
}

// value goes over one value of any nesting, without recursion.
func (s *splitter) value() bool {
	for {
		inside, ok := false, false
		switch c := s.peek(); {
		case c == '"':
			ok = s.str()
		case c == '{' || c == '[':
			inside, ok = s.open(c)
		case c == '-' || '0' <= c && c <= '9':
			ok = s.number()
		default:
			ok = s.literal(c)
		}
		if ok && !inside {
			inside, ok = s.after()
		}
		if !ok {
			return false
		}
		if !inside {
			return true
		}
	}
}

// open enters an object or array, up to its first value. An empty one has been left
// again, and inside is false.
func (s *splitter) open(c byte) (inside, ok bool) {
	if s.depth == s.maxDepth {
		return false, s.fail("The JSON is nested too deeply.")
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	s.i++
	s.skip()
	if s.peek() == c+2 { // ] is two behind [ in ASCII, and } behind {
		s.i++
		return false, true
	}
	s.depth++
	if c == '[' {
		s.objects[word] &^= bit
		return true, true
	}
	s.objects[word] |= bit
	return true, s.key()
}

// key passes over the name of a member and its colon, up to the value.
func (s *splitter) key() bool {
	if s.peek() != '"' {
		return s.fail("An object's member begins with a string.")
	}
	if !s.str() {
		return false
	}
	s.skip()
	if s.peek() != ':' {
		return s.fail("There is no colon behind the name of an object's member.")
	}
	s.i++
	s.skip()
	return true
}

// after goes on behind a value: it leaves the levels that end there and reports
// whether another value of this message follows.
func (s *splitter) after() (more, ok bool) {
	for s.depth > 0 {
		s.skip()
		object := s.objects[(s.depth-1)/64]&(1<<((s.depth-1)%64)) != 0
		switch c := s.peek(); {
		case c == ',':
			s.i++
			s.skip()
			return true, !object || s.key()
		case c == '}' && object || c == ']' && !object:
			s.i++
			s.depth--
		case object:
			return false, s.fail("There is no comma or closing brace behind a member of an object.")
		default:
			return false, s.fail("There is no comma or closing bracket behind an element of an array.")
		}
	}
	return false, true
}

// str passes over a string, eight bytes at a time while nothing in them matters.
func (s *splitter) str() bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	b, i := s.body, s.i+1
	for {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			quote, slash := x^('"'*ones), x^('\\'*ones)
			// The lowest high bit that is set belongs to the first quote, backslash
			// or control character; the borrows behind it can mark innocent ones.
			hit := ((x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
			if hit != 0 {
				i += bits.TrailingZeros64(hit) / 8
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		switch s.i = i; {
		case i == len(b):
			return s.fail("A string has no end.")
		case b[i] == '"':
			s.i++
			return true
		case b[i] != '\\':
			return s.fail("A string has a control character that is not escaped.")
		}
		n := escape(b[i:])
		if n == 0 {
			return s.fail("A string has an escape that JSON does not know.")
		}
		i += n
	}
}

// escape returns the length of the escape sequence that b begins with, 0 when it is
// none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 || unhex(b[2])|unhex(b[3])|unhex(b[4])|unhex(b[5]) > 15 {
			return 0
		}
		return 6
	}
	return 0
}

// number passes over a number.
func (s *splitter) number() bool {
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
	} else if !s.digits() {
		return s.fail("A number has no digits.")
	}
	if s.peek() == '.' {
		s.i++
		if !s.digits() {
			return s.fail("A number has no digits behind its point.")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return s.fail("A number has no digits in its exponent.")
		}
	}
	return true
}

func (s *splitter) digits() bool {
	start := s.i
	for s.i < len(s.body) && s.body[s.i]-'0' < 10 {
		s.i++
	}
	return s.i > start
}

func (s *splitter) literal(c byte) bool {
	word := ""
	switch c {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	}
	if rest := s.body[s.i:]; word == "" || len(rest) < len(word) || string(rest[:len(word)]) != word {
		if len(rest) == 0 {
			return s.fail("The JSON ends too early.")
		}
		return s.fail("There is no JSON value here.")
	}
	s.i += len(word)
	return true
}
