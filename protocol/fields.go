package protocol

import (
	"bytes"

	"github.com/snakream/snakream/internal/base"
)

// equalFold compares b with lower, which is in lower case, without regard to the
// case of ASCII letters.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c != lower[i] && toLower(c) != lower[i] {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// trim removes the optional white space of RFC 9110 around a value.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// parseFields reads the headers that op.Kind knows.
func (op *Operation) parseFields(fields []base.Field) {
	known, seen := headersOf[op.Kind], headerSet(0)
	for i := range fields {
		h := headerOf(fields[i].Name)
		if known&(1<<h) == 0 || h == headerNone {
			continue
		}
		if seen&^lists&(1<<h) != 0 {
			if h == headerContentType && op.Kind == KindAppend {
				op.badType = true // of no interest without a body
			} else {
				op.fault(codeRepeatedHeader, headerNames[h], "This header may appear only once.")
			}
			continue
		}
		seen |= 1 << h
		op.parseField(h, trim(fields[i].Value))
	}
	if op.Kind == KindAppendBatch {
		return
	}
	const producer = 1<<headerProducerID | 1<<headerProducerEpoch | 1<<headerProducerSeq
	if got := seen & producer; got == producer {
		op.Producer.Set = true
	} else if got != 0 {
		op.fault(codeProducerIncomplete, "", "Producer-Id, Producer-Epoch and Producer-Seq come together or not at all.")
	}
	if op.HasTTL && op.HasExpiresAt {
		op.fault(codeTTLAndExpiresAt, "Stream-TTL", "Stream-TTL and Stream-Expires-At exclude each other.")
	}
	if seen&(1<<headerForkedFrom) == 0 && seen&(1<<headerForkOffset|1<<headerForkSubOffset) != 0 {
		op.fault(codeForkHeaders, "Stream-Forked-From", "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From.")
	}
}

// parseField reads one header; value has no surrounding space.
func (op *Operation) parseField(h header, value []byte) {
	if op.Kind == KindAppendBatch && notInBatch&(1<<h) != 0 {
		if h != headerStreamClosed || equalFold(value, "true") {
			op.fault(codeHeaderNotAllowed, headerNames[h], "A batch is many appends, and this header is about one: send that one by itself.")
		}
		return
	}
	switch h {
	case headerHost:
		op.Host = value
	case headerAccept:
		op.accept.add(value)
	case headerContentType:
		op.parseContentType(value)
	case headerContentEncoding:
		op.badCoding = op.badCoding || len(value) > 0 && !equalFold(value, "identity")
	case headerStreamClosed:
		op.Closed = equalFold(value, "true")
	case headerStreamTTL:
		if op.TTL, op.HasTTL = parseTTL(value); !op.HasTTL {
			op.fault(codeInvalidHeader, headerNames[h], "A TTL is a number of seconds from 0 to 3153600000, in decimal digits without leading zeros.")
		}
	case headerStreamExpiresAt:
		if op.ExpiresAt, op.HasExpiresAt = parseTime(value); !op.HasExpiresAt {
			op.fault(codeInvalidHeader, headerNames[h], "This is not an RFC 3339 timestamp, such as 2026-01-31T12:00:00Z.")
		}
	case headerStreamSeq:
		op.StreamSeq, op.HasStreamSeq = value, op.identifier(h, value)
	case headerStreamIncarnation:
		if op.Incarnation, op.HasIncarnation = parseInteger(value); !op.HasIncarnation {
			op.faultInteger(h)
		}
	case headerProducerID:
		op.Producer.ID = value
		op.identifier(h, value)
	case headerProducerEpoch, headerProducerSeq:
		n, ok := parseInteger(value)
		if !ok {
			op.faultInteger(h)
		} else if h == headerProducerEpoch {
			op.Producer.Epoch = n
		} else {
			op.Producer.Seq = n
		}
	case headerIfNoneMatch:
		if op.IfNoneMatch == nil {
			op.IfNoneMatch = op.tags[:0]
		}
		op.IfNoneMatch = append(op.IfNoneMatch, value)
	case headerIfMatch:
		op.parseIfMatch(value)
	case headerRecordMatch:
		if op.RecordMatch, op.HasRecordMatch = parseInteger(value); !op.HasRecordMatch {
			op.faultInteger(h)
		}
	case headerAttrs:
		op.parseAttrsField(value)
	case headerSnapshotRetain, headerSnapshotDigest, headerRange, headerIfRange:
		op.parseSnapshotField(h, value)
	case headerLastEventID:
		op.Read.LastEventID = true
		op.lastEventID = value
	case headerForkedFrom, headerForkOffset, headerForkSubOffset:
		op.parseFork(h, value)
	case headerRequestHeaders:
		if op.RequestHeaders == nil {
			op.RequestHeaders = value
		} else {
			op.RequestHeaders = bytes.Join([][]byte{op.RequestHeaders, value}, []byte(","))
		}
	}
}

// maxIdentifier bounds a Producer-Id and a Stream-Seq, in bytes: both are state
// that the stream keeps.
const maxIdentifier = 1024

// identifier checks a value that we keep and compare but never look into.
func (op *Operation) identifier(h header, value []byte) bool {
	switch {
	case len(value) == 0:
		op.fault(codeInvalidHeader, headerNames[h], "This header must not be empty.")
	case len(value) > maxIdentifier:
		op.fault(codeInvalidHeader, headerNames[h], "This header is longer than 1024 bytes.")
		op.faultSlot.Limit = maxIdentifier
	default:
		return true
	}
	return false
}

func (op *Operation) faultInteger(h header) {
	op.fault(codeInvalidHeader, headerNames[h], "This header is a number from 0 to 9007199254740991, in decimal digits without leading zeros.")
}

func (op *Operation) faultType() {
	op.fault(codeInvalidContentType, "Content-Type", "This is not a media type, such as application/json.")
}

func (op *Operation) parseContentType(value []byte) {
	if len(value) == 0 {
		return // as good as absent
	}
	n, ok := scanMediaType(value)
	if !ok || len(value) > maxContentType {
		op.badType = true
		if op.Kind == KindCreate || op.Kind == KindSnapshotPut {
			op.faultType()
		}
		return
	}
	op.ContentType, op.HasContentType = value, true
	op.MediaType = value[:n]
	for _, c := range op.MediaType {
		if c != toLower(c) {
			op.MediaType, op.scratch = lower(op.scratch, op.MediaType)
			break
		}
	}
}

// lower appends b in lower case to scratch and returns it both as a part and as
// the whole.
func lower(scratch, b []byte) (part, whole []byte) {
	at := len(scratch)
	for _, c := range b {
		scratch = append(scratch, toLower(c))
	}
	return scratch[at:], scratch
}

func (op *Operation) parseFork(h header, value []byte) {
	f := &op.Fork
	switch h {
	case headerForkedFrom:
		f.Set = true
		var rt route
		bad := rt.parse(value)
		switch {
		case !isRawPath(value):
			bad = badPath("")
		case bad.code == "" && rt.resource != resourceStream:
			bad = noRoute
		case bad.code == "":
			f.Bucket, f.Stream, op.scratch, bad = identity(&rt, op.scratch)
		}
		switch {
		case bad.code == codeUnknownRoute && len(value) > 0 && value[0] == '/':
			op.fault(codeForkSourceNotFound, headerNames[h], "This path names no stream.")
		case bad.code != "":
			op.fault(codeInvalidHeader, headerNames[h], "This is not the path of a stream on this server.")
		}
	case headerForkOffset:
		s, off, ok := ParseOffset(value)
		if !ok {
			op.fault(codeInvalidOffset, headerNames[h], "This is not an offset that the server has handed out.")
		}
		// "now" is the source's tail, which is what an absent header means.
		f.Offset, f.HasOffset = off, s != StartNow
	case headerForkSubOffset:
		n, ok := parseDecimal(value, 1<<63)
		if !ok {
			op.fault(codeInvalidHeader, headerNames[h], "A sub-offset is a number of messages or bytes, in decimal digits without leading zeros.")
		}
		f.Sub, f.HasSub = n, n != 0
	}
}

// parseInteger reads a number below 2^53, the way JavaScript can hold it.
func parseInteger(b []byte) (uint64, bool) { return parseDecimal(b, 1<<53) }

// parseDecimal reads a number below limit: decimal digits only, without leading
// zeros.
func parseDecimal(b []byte, limit uint64) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if n >= limit {
		return 0, false
	}
	return n, true
}

// maxTTL is a hundred years, in seconds.
const maxTTL = 3_153_600_000

func parseTTL(b []byte) (int64, bool) {
	n, ok := parseDecimal(b, maxTTL+1)
	return int64(n), ok
}
