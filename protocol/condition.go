package protocol

import "bytes"

// Match is one entity tag of If-Match or If-None-Match: a state of the stream.
type Match struct {
	Any         bool   // "*": any state at all, and the rest is of no meaning
	Incarnation uint64 // as Stream-Incarnation has it
	Next        uint64 // the offset of the tail
	Closed      bool
}

// Match reports whether a stream that exists is in a state that If-Match asks for.
// Without If-Match every state will do. A stream that doesn't exist matches nothing:
// there the answer is !op.HasIfMatch.
func (op *Operation) Match(incarnation, next uint64, closed bool) bool {
	for _, m := range op.IfMatch {
		if m.Any || m == (Match{Incarnation: incarnation, Next: next, Closed: closed}) {
			return true
		}
	}
	return !op.HasIfMatch
}

// parseIfMatch reads one line of If-Match. A weak tag never matches, nor does one
// that is not of our making; what is no list of entity tags at all is a fault, since
// the client's condition is not known then.
func (op *Operation) parseIfMatch(value []byte) {
	const detail = "If-Match is * or a list of entity tags in double quotes, such as the ETag of an earlier answer."
	if op.IfMatch == nil {
		op.IfMatch = op.matches[:0]
	}
	first := !op.HasIfMatch
	op.HasIfMatch = true
	if string(value) == "*" {
		if !first {
			op.fault(codeInvalidHeader, headerNames[headerIfMatch], detail)
		}
		op.IfMatch = append(op.IfMatch, Match{Any: true})
		return
	}
	any, n := len(op.IfMatch) > 0 && op.IfMatch[0].Any, 0
	for rest := value; ; n++ {
		tag, weak, behind, ok := nextTag(rest)
		if !ok || any {
			op.fault(codeInvalidHeader, headerNames[headerIfMatch], detail)
			return
		}
		if tag == nil {
			break
		}
		if m, ours := parseTag(tag); ours && !weak {
			op.IfMatch = append(op.IfMatch, m)
		}
		rest = behind
	}
	if n == 0 {
		op.fault(codeInvalidHeader, headerNames[headerIfMatch], detail)
	}
}

// AppendNoneMatch appends the states that If-None-Match names, as a PUT or POST must
// not find them: a state tag, weak or not, or "*". It reads lines as MatchNone does;
// tags that are not a state's are passed over.
func (op *Operation) AppendNoneMatch(dst []Match) []Match {
	var buf [maxTag]byte
	for _, v := range op.IfNoneMatch {
		if string(trim(v)) == "*" {
			dst = append(dst, Match{Any: true})
			continue
		}
		for {
			tag, _, rest, ok := nextTag(v)
			if !ok || tag == nil {
				break
			}
			m, ours := parseTag(tag)
			state := AppendStateTag(buf[:0], m.Incarnation, m.Next, m.Closed)
			if ours && string(state[1:len(state)-1]) == string(tag) {
				dst = append(dst, m)
			}
			v = rest
		}
	}
	return dst
}

// nextTag takes the first entity tag, without its quotes, from a list; nil at the
// list's end. It reports false when something else comes first.
func nextTag(list []byte) (tag []byte, weak bool, rest []byte, ok bool) {
	if list = bytes.TrimLeft(list, " \t,"); len(list) == 0 {
		return nil, false, nil, true
	}
	list, weak = bytes.CutPrefix(list, []byte("W/"))
	if len(list) == 0 || list[0] != '"' {
		return nil, false, nil, false
	}
	tag, rest, ok = bytes.Cut(list[1:], []byte{'"'})
	if rest = bytes.TrimLeft(rest, " \t"); len(rest) > 0 && rest[0] != ',' {
		ok = false
	}
	for _, c := range tag {
		ok = ok && c > ' ' && c != 0x7f
	}
	return tag, weak, rest, ok
}

// parseTag reads the state that a state tag or a range tag, without quotes, speaks
// of. Of a range it is the end.
func parseTag(tag []byte) (m Match, ok bool) {
	id, rest, two := bytes.Cut(tag, []byte{':'})
	if m.Incarnation, ok = parseInteger(id); !ok || !two {
		return m, false
	}
	next, rest, more := bytes.Cut(rest, []byte{':'})
	if m.Next, ok = exactOffset(next); !ok {
		return m, false
	}
	if !more {
		return m, true
	}
	if string(rest) == "c" {
		m.Closed = true
		return m, true
	}
	next, rest, more = bytes.Cut(rest, []byte{':'})
	start := m.Next
	if m.Next, ok = exactOffset(next); !ok || start > m.Next {
		return m, false
	}
	if !more {
		return m, true
	}
	part, rest, more := bytes.Cut(rest, []byte{':'})
	if m.Closed = string(part) == "c"; m.Closed {
		if !more {
			return m, true
		}
		part, more = rest, false
	}
	ok = !more && (string(part) == representationNDJSON || string(part) == representationRecords)
	return m, ok
}

// exactOffset reads an offset the way AppendOffset writes it.
func exactOffset(b []byte) (uint64, bool) {
	if len(b) != offsetDigits {
		return 0, false
	}
	return digits(b)
}
