package protocol

import "strconv"

// RecordQuery is what a read asks for in ordinals of records instead of offsets.
type RecordQuery struct {
	Set      bool
	Start    Start  // StartAt, StartNow or StartTail
	N        uint64 // with StartAt an ordinal, below 2^53; with StartTail a number of records, at least 1
	Max      int64  // the most records of one answer, at least 1; 0 when not given
	Envelope bool   // each record with its ordinal; for JSON streams only
}

// Records are ordinals of a stream's records. A record is a message of JSON, and
// otherwise an append.
type Records struct {
	Set      bool
	First    uint64 // of the earliest that is still there
	Next     uint64 // behind the last one of the stream, of the write, or of the answer
	HasStart bool
	Start    uint64 // of the first one of the write, or of the answer
}

const (
	recordsExtension = "Stream-Extensions: json-record-coordinates-v1\r\n"

	// The media types of records with their ordinals: a line each, or an event each.
	envelopeLines = "application/vnd.durable-stream-records+ndjson"
	envelopeEvent = "application/vnd.durable-stream-record+json"

	// representationRecords names the envelope in entity tags.
	representationRecords = "records"
)

// parseRecordParam reads one of the parameters that count in records.
func (op *Operation) parseRecordParam(p param, field string, value []byte) {
	q, ok := &op.Read.Records, true
	switch p {
	case paramRecord:
		op.parseRecord(field, value)
		return
	case paramTailRecords:
		var n int64
		if n, ok = saturating(value); !ok {
			op.fault(codeInvalidParameter, field, "This is a number of records.")
			return
		}
		if q.Set {
			op.faultExclusive(field)
			return
		}
		q.Set, q.Start, q.N = true, StartTail, uint64(n)
		if n == 0 {
			q.Start = StartNow
		}
	case paramMaxRecords:
		if q.Max, ok = saturating(value); !ok || q.Max == 0 {
			op.fault(codeInvalidParameter, field, "This is a number of records, at least 1.")
		}
	case paramRecordView:
		if q.Envelope = string(value) == "envelope"; !q.Envelope {
			op.fault(codeInvalidParameter, field, "The one view of records is envelope.")
		}
	}
}

// parseRecord reads record=N, and record=now of a read.
func (op *Operation) parseRecord(field string, value []byte) {
	n, ok := parseInteger(value)
	if op.Kind != KindRead {
		if !ok {
			op.fault(codeInvalidParameter, field, "This is the ordinal of a record, in decimal digits without leading zeros.")
		}
		if op.At.Set {
			op.faultExclusive(field)
		}
		op.At = Position{Set: true, ByRecord: true, Record: n}
		return
	}
	q := &op.Read.Records
	switch now := string(value) == "now"; {
	case q.Set:
		op.faultExclusive(field)
	case now:
		q.Set, q.Start = true, StartNow
	case ok:
		q.Set, q.Start, q.N = true, StartAt, n
	default:
		op.fault(codeInvalidParameter, field, "This is now, or the ordinal of a record in decimal digits without leading zeros.")
	}
}

func (op *Operation) faultExclusive(field string) {
	op.fault(codeExclusiveParameters, field, "Say where to begin in one way: by offset, by record or by tail_records; and page by offset with max_bytes, by record with max_records.")
}

// finishRecords checks that the ways of saying where to begin were not mixed.
func (op *Operation) finishRecords() {
	r := &op.Read
	switch q := &r.Records; {
	case q.Set && (r.Given || r.MaxBytes != 0):
		op.faultExclusive("record")
	case !q.Set && q.Max != 0:
		op.fault(codeInvalidParameter, "max_records", "This goes with record or tail_records.")
	case !q.Set && q.Envelope:
		op.fault(codeInvalidParameter, "record_view", "This goes with record or tail_records.")
	}
}

// now reports whether a read begins wherever the tail is.
func (r *Read) now() bool {
	if r.Records.Set {
		return r.Records.Start == StartNow
	}
	return r.Start == StartNow
}

// appendRecords appends the header lines of a stream's records. contentType is the
// stream's.
func appendRecords(dst []byte, contentType string, n *Records) []byte {
	if IsJSON(contentType) {
		dst = append(dst, recordsExtension...)
	}
	if !n.Set {
		return dst
	}
	dst = appendNumber(dst, "Stream-Record-First", n.First)
	if n.HasStart {
		dst = appendNumber(dst, "Stream-Record-Start", n.Start)
	}
	return appendNumber(dst, "Stream-Record-Next", n.Next)
}

// Envelope turns a stored range of whole JSON messages into lines of
// {"record":n,"value":…}. The range may come in pieces that end anywhere. Next is the
// ordinal of the next message; it is to be set before the first piece.
type Envelope struct {
	Next  uint64
	lines Lines
	open  bool // inside a message
}

const (
	envelopeHead   = `{"record":`
	envelopeMiddle = `,"value":`
	envelopeTail   = "}\n"
)

// Append appends the next piece to dst, which must not be its memory.
func (e *Envelope) Append(dst, stored []byte) []byte {
	for len(stored) > 0 {
		if !e.open {
			e.open = true
			dst = strconv.AppendUint(append(dst, envelopeHead...), e.Next, 10)
			dst = append(dst, envelopeMiddle...)
		}
		n := e.lines.message(stored)
		if n == 0 {
			return append(dst, stored...)
		}
		dst = append(append(dst, stored[:n-1]...), envelopeTail...)
		stored = stored[n:]
		e.open = false
		e.Next++
	}
	return dst
}

// EnvelopeSize returns the length of what Append makes of a range of that many
// stored bytes that holds the messages [first, next).
func EnvelopeSize(stored int64, first, next uint64) int64 {
	const around = len(envelopeHead) + len(envelopeMiddle) + len(envelopeTail) - 1 // a stored message has a comma
	size := stored + int64(next-first)*int64(around)
	digits, limit := int64(1), uint64(10) // ordinals below limit have so many digits
	for first < next {
		end := next
		if digits < offsetDigits {
			end = min(end, limit)
		}
		if end > first {
			size += int64(end-first) * digits
			first = end
		}
		digits++
		limit *= 10
	}
	return size
}

// AppendSSERecords appends one data event with an envelope for each message of a
// stored range of whole messages that begins at the offset start with the record
// first.
func AppendSSERecords(dst, stored []byte, start, first uint64) []byte {
	var lines Lines
	for n := lines.message(stored); n > 0; n = lines.message(stored) {
		dst = strconv.AppendUint(append(dst, "event: data\ndata:"+envelopeHead...), first, 10)
		dst = append(append(dst, envelopeMiddle...), stored[:n-1]...)
		start += uint64(n)
		dst = appendID(append(dst, envelopeTail...), start)
		stored, first = stored[n:], first+1
	}
	return dst
}

// RecordEvents renders the head of an event stream whose data events
// AppendSSERecords makes; its status is 200.
func (r *Renderer) RecordEvents(dst []byte, incarnation uint64) (fields []byte) {
	at := len(dst)
	return append(r.appendEventStream(dst, incarnation, envelopeEvent), recordsExtension...)[at:]
}
