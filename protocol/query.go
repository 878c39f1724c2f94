package protocol

import (
	"bytes"

	"github.com/snakream/snakream/internal/base"
)

// The query parameters that mean something to us. Two spellings of one parameter
// are one: giving both is giving it twice.
type param uint8

const (
	paramNone param = iota
	paramOffset
	paramLive
	paramCursor
	paramTimeout
	paramMaxBytes
	paramRecord
	paramTailRecords
	paramMaxRecords
	paramRecordView
	paramPrefix
	paramAfter
	paramLimit
	paramIfNotExists
)

// A set of parameters, one bit each.
type paramSet uint32

func params(ps ...param) (s paramSet) {
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

// paramsOf says which parameters an operation reads. It ignores the others.
var paramsOf = [...]paramSet{
	KindRead: params(paramOffset, paramLive, paramCursor, paramTimeout, paramMaxBytes,
		paramRecord, paramTailRecords, paramMaxRecords, paramRecordView),
	KindBucketCreate:   params(paramIfNotExists),
	KindList:           params(paramPrefix, paramAfter, paramLimit),
	KindSnapshotPut:    params(paramRecord),
	KindSnapshotGet:    params(paramRecord),
	KindSnapshotDelete: params(paramRecord),
	KindRetention:      params(paramRecord),
	KindBootstrap:      params(paramLive, paramCursor),
	KindAppendBatch:    0,
	KindDocument:       0,
}

// paramOf finds a parameter by its decoded name; unit is how many milliseconds one
// of a timeout's units has.
func paramOf(name []byte) (p param, field string, unit base.Millis) {
	switch string(name) {
	case "offset":
		return paramOffset, "offset", 0
	case "live":
		return paramLive, "live", 0
	case "cursor":
		return paramCursor, "cursor", 0
	case "timeout":
		return paramTimeout, "timeout", 1000
	case "timeout_ms":
		return paramTimeout, "timeout_ms", 1
	case "max_bytes":
		return paramMaxBytes, "max_bytes", 0
	case "max-bytes":
		return paramMaxBytes, "max-bytes", 0
	case "record":
		return paramRecord, "record", 0
	case "tail_records":
		return paramTailRecords, "tail_records", 0
	case "max_records":
		return paramMaxRecords, "max_records", 0
	case "record_view":
		return paramRecordView, "record_view", 0
	case "prefix":
		return paramPrefix, "prefix", 0
	case "after":
		return paramAfter, "after", 0
	case "limit":
		return paramLimit, "limit", 0
	case "if-not-exists":
		return paramIfNotExists, "if-not-exists", 0
	}
	return paramNone, "", 0
}

// mayBeEmpty are the parameters whose empty value says the same as their absence.
var mayBeEmpty = params(paramPrefix, paramAfter)

// parseQuery reads the parameters that op.Kind knows.
func (op *Operation) parseQuery(query []byte) {
	known, seen := paramsOf[op.Kind], paramSet(0)
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte{'&'})
		name, value, _ := bytes.Cut(pair, []byte{'='})
		name, ok := op.unescape(name)
		if !ok {
			continue
		}
		p, field, unit := paramOf(name)
		if p == paramNone || known&(1<<p) == 0 {
			continue
		}
		if seen&(1<<p) != 0 {
			op.fault(codeRepeatedParameter, field, "This parameter may appear only once, in one of its spellings.")
			continue
		}
		seen |= 1 << p
		if value, ok = op.unescape(value); !ok || len(value) == 0 && mayBeEmpty&(1<<p) == 0 {
			op.fault(codeInvalidParameter, field, "This parameter is empty or badly encoded.")
			continue
		}
		op.parseParam(p, field, unit, value)
	}
}

func (op *Operation) parseParam(p param, field string, unit base.Millis, value []byte) {
	r := &op.Read
	ok := true
	switch p {
	case paramOffset:
		r.Given = true
		if r.Start, r.Offset, ok = ParseOffset(value); !ok {
			op.fault(codeInvalidOffset, field, "An offset is -1, now, or one that the server has handed out.")
		}
	case paramLive:
		switch {
		case string(value) == "sse":
			r.Live = LiveSSE
		case op.Kind == KindBootstrap:
			op.fault(codeInvalidParameter, field, "The one live mode of a bootstrap is sse.")
		case string(value) == "long-poll":
			r.Live = LiveLongPoll
		default:
			op.fault(codeInvalidParameter, field, "The live modes are long-poll and sse.")
		}
	case paramCursor:
		// One that we never gave is no reason to refuse: it is only a cache key.
		r.Cursor, r.HasCursor = parseDecimal(value, maxCursor)
	case paramTimeout:
		n, ok := saturating(value)
		if !ok {
			op.fault(codeInvalidParameter, field, "A timeout is a whole number, not negative.")
		}
		r.Timeout, r.HasTimeout = min(base.Millis(min(n, int64(MaxTimeout)))*unit, MaxTimeout), true
	case paramMaxBytes:
		if r.MaxBytes, ok = saturating(value); !ok || r.MaxBytes == 0 {
			op.fault(codeInvalidParameter, field, "This is a number of bytes, at least 1.")
		}
	case paramRecord, paramTailRecords, paramMaxRecords, paramRecordView:
		op.parseRecordParam(p, field, value)
	case paramPrefix, paramAfter, paramLimit:
		op.parseListParam(p, field, value)
	case paramIfNotExists:
		if op.IfNotExists = string(value) == "true"; !op.IfNotExists && string(value) != "false" {
			op.fault(codeInvalidParameter, field, "This is true or false.")
		}
	}
}

// finishRead puts together what query and headers said.
func (op *Operation) finishRead() {
	r := &op.Read
	op.finishRecords()
	r.NDJSON = r.Live != LiveSSE && !r.Records.Envelope && (r.Records.Set || op.accept.ndjson())
	op.finishEventID()
	if r.Live != LiveNone && !r.Given && !r.Records.Set && !r.LastEventID {
		op.fault(codeOffsetRequired, "offset", "A live read needs an offset: -1, now, or one that the server has handed out.")
	}
}

// finishEventID lets Last-Event-ID say where an event stream begins.
func (op *Operation) finishEventID() {
	r := &op.Read
	if r.LastEventID = r.LastEventID && r.Live == LiveSSE; !r.LastEventID {
		return
	}
	var ok bool
	if r.Start, r.Offset, ok = ParseOffset(op.lastEventID); !ok {
		op.fault(codeInvalidOffset, "Last-Event-ID", "This is not the id of an event of this stream.")
	}
}

// saturating reads decimal digits; a number that is too large counts as the largest.
func saturating(b []byte) (int64, bool) {
	const largest = 1<<63 - 1
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if d := int64(c - '0'); n > (largest-d)/10 {
			n = largest
		} else {
			n = n*10 + d
		}
	}
	return n, len(b) > 0
}

// unescape decodes a part of a query, into op.scratch when it has to change.
func (op *Operation) unescape(b []byte) ([]byte, bool) {
	if bytes.IndexByte(b, '%') < 0 && bytes.IndexByte(b, '+') < 0 {
		return b, true
	}
	at := len(op.scratch)
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			var ok bool
			if c, ok = hexPair(b[i+1:]); !ok {
				return nil, false
			}
			i += 2
		}
		op.scratch = append(op.scratch, c)
	}
	return op.scratch[at:], true
}

// hexPair reads the two digits that follow a percent sign.
func hexPair(b []byte) (byte, bool) {
	if len(b) < 2 {
		return 0, false
	}
	hi, lo := unhex(b[0]), unhex(b[1])
	return hi<<4 | lo, hi < 16 && lo < 16
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
