package protocol

import (
	"encoding/hex"
	"strconv"
)

// Digest is the SHA-256 of a snapshot's bytes. On the wire it is 64 hexadecimal
// digits, in lower case when we write them.
type Digest [32]byte

// Position is a place in a stream, named by the path or by ?record=N.
type Position struct {
	Set      bool
	ByRecord bool
	Offset   uint64 // bytes; unless ByRecord
	Record   uint64 // an ordinal below 2^53; with ByRecord
}

// SnapshotHeaders is what the headers of a request about a snapshot ask for.
type SnapshotHeaders struct {
	Retain    bool // publish without trimming
	HasDigest bool
	Digest    Digest
	Range     ByteRange // of a GET
	IfRange   []byte    // the entity tag under which Range holds; nil for none
}

// Snapshot describes a snapshot of a stream. Set is false when there is none.
type Snapshot struct {
	Set         bool
	Offset      uint64 // the bytes before it are what the snapshot stands for
	Digest      Digest
	Size        int64 // bytes
	ContentType string
}

// parseTarget reads the segment behind snapshot and retention.
func (op *Operation) parseTarget(rt *route) {
	if !rt.hasTarget {
		return
	}
	op.At.Set = true
	text, scratch, ok := decodeSegment(rt.target, op.scratch)
	op.scratch = scratch
	var start Start
	if ok {
		start, op.At.Offset, ok = ParseOffset(text)
	}
	if !ok || start != StartAt {
		op.fault(codeInvalidOffset, "", "The path ends with the offset of a message boundary, as the server has handed it out.")
	}
}

// finishPosition settles which snapshot, or which place, the request is about.
func (op *Operation) finishPosition() {
	switch {
	case op.At.Set:
	case op.Kind == KindSnapshotGet:
		op.Kind = KindSnapshotLatest
	default:
		op.fault(codeInvalidParameter, "record", "Name the place: as the last segment of the path, or as record=N.")
	}
}

// parseSnapshotField reads one of the headers of snapshots.
func (op *Operation) parseSnapshotField(h header, value []byte) {
	s := &op.Snapshot
	switch h {
	case headerSnapshotRetain:
		// Taking a misspelt one for absent would trim what was to be kept.
		if s.Retain = equalFold(value, "true"); !s.Retain && !equalFold(value, "false") {
			op.fault(codeInvalidHeader, headerNames[h], "This header is true or false.")
		}
	case headerSnapshotDigest:
		if len(value) == 2*len(s.Digest) {
			_, err := hex.Decode(s.Digest[:], value)
			s.HasDigest = err == nil
		}
		if !s.HasDigest {
			op.fault(codeInvalidHeader, headerNames[h], "This is not a SHA-256 in 64 hexadecimal digits.")
		}
	case headerRange:
		s.Range = parseRange(value)
	case headerIfRange:
		s.IfRange = value
	}
}

// SnapshotResult describes the answer to a GET of a snapshot.
type SnapshotResult struct {
	Incarnation uint64
	Snapshot    Snapshot
	UpToDate    bool // the stream ends at the snapshot
	Closed      bool // and is closed there
}

// SnapshotLatest renders the redirect to the current snapshot; its status is 307. The
// Location is relative to the request's URL, so that it holds behind any proxy.
func (r *Renderer) SnapshotLatest(dst []byte, incarnation, offset uint64) (fields []byte) {
	at := len(dst)
	dst = append(append(dst, r.static...), noStore...)
	dst = appendNumber(dst, "Stream-Incarnation", incarnation)
	dst = AppendOffset(append(dst, "Location: "+wordSnapshot+"/"...), offset)
	return append(dst, crlf...)[at:]
}

// Snapshot renders the answer to a GET of a snapshot: 200, 206, 304 or 416. With 200
// and 206 the bytes [start, end) of the snapshot follow as the body; with 416 body is
// all of it.
func (r *Renderer) Snapshot(dst []byte, op *Operation, res *SnapshotResult) (status int, fields, body []byte, start, end int64) {
	at, s := len(dst), &res.Snapshot
	var buf [maxTag]byte
	tag := appendSnapshotTag(buf[:0], &s.Digest)
	status, end = 200, s.Size
	switch asked := &op.Snapshot; {
	case MatchNone(op.IfNoneMatch, tag):
		status = 304
	case !asked.Range.Set || asked.IfRange != nil && string(asked.IfRange) != string(tag):
	default:
		var ok bool
		if start, end, ok = asked.Range.Resolve(s.Size); !ok {
			status, fields, body = r.Write(dst, op, &WriteResult{Outcome: RangeNotSatisfiable, Incarnation: res.Incarnation, Snapshot: *s})
			return status, fields, body, 0, 0
		}
		status = 206
	}
	dst = append(append(dst, r.static...), r.revalidate...)
	dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	dst = appendSnapshotFields(dst, s)
	dst = appendOffsetField(dst, "Stream-Next-Offset", s.Offset)
	if res.UpToDate {
		dst = appendClosedField(append(dst, "Stream-Up-To-Date: true\r\n"...), res.Closed)
	}
	dst = append(append(append(dst, "ETag: "...), tag...), crlf...)
	if status == 304 {
		return status, dst[at:], nil, 0, 0
	}
	dst = append(dst, "Accept-Ranges: bytes\r\n"...)
	if status == 206 {
		dst = strconv.AppendInt(append(dst, "Content-Range: bytes "...), start, 10)
		dst = strconv.AppendInt(append(dst, '-'), end-1, 10)
		dst = append(strconv.AppendInt(append(dst, '/'), s.Size, 10), crlf...)
	}
	return status, appendContent(dst, s.ContentType)[at:], nil, start, end
}

// appendSnapshotTag appends the entity tag of a snapshot, quotes included.
func appendSnapshotTag(dst []byte, d *Digest) []byte {
	return append(hex.AppendEncode(append(dst, '"'), d[:]), '"')
}

// appendSnapshotFields appends the lines that name a snapshot, if there is one.
func appendSnapshotFields(dst []byte, s *Snapshot) []byte {
	if !s.Set {
		return dst
	}
	dst = appendOffsetField(dst, "Stream-Snapshot-Offset", s.Offset)
	dst = hex.AppendEncode(append(dst, "Stream-Snapshot-Digest: "...), s.Digest[:])
	return append(dst, crlf...)
}
