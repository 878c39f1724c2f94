package protocol

import "bytes"

// MaxAttrs bounds the attributes of a stream, in bytes as they are sent.
const MaxAttrs = 16 << 10

// ParseAttrs checks the body of a PUT of attributes and appends it, compact, to dst.
// An empty object becomes nothing, since it is the same as having none. What is wrong
// with it becomes op.BodyFault; the result is then of no use.
func (op *Operation) ParseAttrs(dst, body []byte) []byte {
	if len(body) > MaxAttrs {
		op.BodyFault = op.bodySlot.set(codeBodyTooLarge, "", "Attributes have at most 16 KiB.")
		op.BodyFault.Limit = MaxAttrs
		return dst
	}
	attrs, code, err := compactAttrs(dst, body)
	if err != nil {
		op.BodyFault = op.bodySlot.set(code, "", err.Detail)
		op.BodyFault.Position = err.Position
	}
	return attrs
}

// parseAttrsField reads Stream-Attrs.
func (op *Operation) parseAttrsField(value []byte) {
	name := headerNames[headerAttrs]
	if len(value) > MaxAttrs {
		op.fault(codeInvalidAttrs, name, "Attributes have at most 16 KiB.")
		op.faultSlot.Limit = MaxAttrs
		return
	}
	at := len(op.scratch)
	grown, _, err := compactAttrs(op.scratch, value)
	if err != nil {
		op.fault(codeInvalidAttrs, name, err.Detail)
		return
	}
	op.scratch = grown
	op.Attrs, op.HasAttrs = grown[at:], true
}

// compactAttrs appends attributes without insignificant white space. After an error,
// whose code it returns, dst comes back as it was.
func compactAttrs(dst, text []byte) (attrs []byte, code string, err *JSONError) {
	s := attrsScanner{splitter: splitter{body: text, dst: dst, base: len(dst), maxDepth: MaxNesting}, code: codeInvalidJSON}
	if !s.checkText() || !s.object() {
		return dst, s.code, &JSONError{Position: int64(s.i), Detail: s.detail}
	}
	if bytes.Equal(s.dst[len(dst):], []byte("{}")) {
		return dst, "", nil
	}
	return s.dst, "", nil
}

// attrsScanner is a splitter that knows the members of attributes.
type attrsScanner struct {
	splitter
	code            string // of the fault
	title, metadata bool   // seen
}

// wrong reports a fault that is not one of JSON.
func (s *attrsScanner) wrong(detail string) bool {
	s.code = codeInvalidAttrs
	return s.fail(detail)
}

// object passes over the whole text.
func (s *attrsScanner) object() bool {
	s.space()
	s.run = s.i
	if s.peek() != '{' {
		if !s.value() {
			return false
		}
		s.i = s.run
		return s.wrong("Attributes are a JSON object.")
	}
	s.i++
	s.skip()
	if s.peek() != '}' && !s.members() {
		return false
	}
	s.i++
	s.flush()
	if s.space(); s.i < len(s.body) {
		return s.fail("There is something behind the JSON value.")
	}
	return true
}

// members passes over the members, up to the closing brace.
func (s *attrsScanner) members() bool {
	for {
		if !s.member() {
			return false
		}
		s.skip()
		switch s.peek() {
		case '}':
			return true
		case ',':
			s.i++
			s.skip()
		default:
			return s.fail("There is no comma or closing brace behind a member of an object.")
		}
	}
}

// member passes over one member.
func (s *attrsScanner) member() bool {
	at := s.i
	if !s.key() {
		return false
	}
	value := s.i
	if !s.splitter.value() {
		return false
	}
	end, first := s.i, s.body[value]
	s.i = at
	var seen *bool
	switch name := s.body[at:]; {
	case bytes.HasPrefix(name, []byte(`"title"`)):
		if seen = &s.title; first != '"' {
			return s.wrong("The title is a string.")
		}
	case bytes.HasPrefix(name, []byte(`"metadata"`)):
		if seen = &s.metadata; first != '{' {
			return s.wrong("The metadata is an object.")
		}
	default:
		return s.wrong("Attributes are title and metadata; anything else goes into metadata.")
	}
	if *seen {
		return s.wrong("This member is there twice.")
	}
	*seen = true
	s.i = end
	return true
}

// Attrs renders the attributes of a stream, "" for none; its status is 200. contentType
// is the stream's.
func (r *Renderer) Attrs(dst []byte, incarnation uint64, contentType, attrs string) (fields, body []byte) {
	at := len(dst)
	dst = appendNumber(r.appendJSONFields(dst), "Stream-Incarnation", incarnation)
	if IsJSON(contentType) {
		dst = append(dst, recordsExtension...)
	}
	end := len(dst)
	if attrs == "" {
		attrs = "{}"
	}
	dst = append(dst, attrs...)
	return dst[at:end], dst[end:]
}
