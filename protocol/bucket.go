package protocol

import (
	"strconv"
	"unicode/utf8"

	"github.com/snakream/snakream/internal/base"
)

// MaxList is the largest page of a list, in streams, and the one without a limit.
const MaxList = 1000

// ListQuery says which streams of a bucket to list.
type ListQuery struct {
	Prefix []byte // UTF-8; only ids that begin with it
	After  []byte // UTF-8; only ids that are greater, byte by byte; empty for all
	Limit  int    // 1 to MaxList
}

// BucketInfo describes a bucket.
type BucketInfo struct {
	Streams   int64 // that are live
	CreatedAt base.Millis
}

// ListEntry is one stream of a list.
type ListEntry struct {
	Stream      string
	Closed      bool
	ContentType string
	Next        uint64 // the tail
	CreatedAt   base.Millis
	LastWriteAt base.Millis
}

func (op *Operation) parseListParam(p param, field string, value []byte) {
	q := &op.List
	if p == paramLimit {
		n, ok := parseDecimal(value, MaxList+1)
		if q.Limit = int(n); !ok || n == 0 {
			op.fault(codeInvalidParameter, field, "A limit is a number from 1 to 1000.")
		}
		return
	}
	if !utf8.Valid(value) {
		op.fault(codeInvalidParameter, field, "Stream ids are UTF-8, and this is not.")
	}
	if p == paramPrefix {
		q.Prefix = value
	} else {
		q.After = value
	}
}

// Bucket renders the description of op.Bucket; its status is 200.
func (r *Renderer) Bucket(dst []byte, op *Operation, info *BucketInfo) (fields, body []byte) {
	at := len(dst)
	dst = r.appendJSONFields(dst)
	end := len(dst)
	dst = appendJSONString(append(dst, `{"bucket_id":`...), string(op.Bucket))
	dst = strconv.AppendInt(append(dst, `,"streams":`...), info.Streams, 10)
	dst = appendMillis(append(dst, `,"created_at_ms":`...), info.CreatedAt)
	dst = append(dst, '}')
	return dst[at:end], dst[end:]
}

// List renders the head of a list; its status is 200. The body comes from a
// ListWriter.
func (r *Renderer) List(dst []byte) (fields []byte) {
	at := len(dst)
	return r.appendJSONFields(dst)[at:]
}

// appendJSONFields appends the head of an answer that is a JSON document about the
// state of things.
func (r *Renderer) appendJSONFields(dst []byte) []byte {
	return append(append(append(dst, r.static...), noStore...), "Content-Type: application/json\r\n"...)
}

// ListWriter writes the body of a list, one stream at a time, so that a page of any
// size can go out in pieces. The zero value is ready for Begin.
type ListWriter struct {
	count int
	last  string
}

// Begin appends what comes before the first stream.
func (w *ListWriter) Begin(dst []byte, op *Operation) []byte {
	*w = ListWriter{}
	dst = appendJSONString(append(dst, `{"bucket_id":`...), string(op.Bucket))
	dst = appendJSONString(append(dst, `,"prefix":`...), string(op.List.Prefix))
	return append(dst, `,"streams":[`...)
}

// Append appends one stream. They come in byte order of their ids.
func (w *ListWriter) Append(dst []byte, e *ListEntry) []byte {
	if w.count > 0 {
		dst = append(dst, ',')
	}
	w.count++
	w.last = e.Stream
	dst = appendJSONString(append(dst, `{"stream_id":`...), e.Stream)
	if e.Closed {
		dst = append(dst, `,"status":"closed"`...)
	} else {
		dst = append(dst, `,"status":"open"`...)
	}
	dst = appendJSONString(append(dst, `,"content_type":`...), e.ContentType)
	dst = strconv.AppendUint(append(dst, `,"tail_offset":`...), e.Next, 10)
	dst = AppendOffset(append(dst, `,"next_offset":"`...), e.Next)
	dst = appendMillis(append(dst, `","created_at_ms":`...), e.CreatedAt)
	dst = appendMillis(append(dst, `,"last_write_at_ms":`...), e.LastWriteAt)
	return append(dst, '}')
}

// End appends what comes behind the last stream; more says that others follow it.
func (w *ListWriter) End(dst []byte, more bool) []byte {
	dst = strconv.AppendInt(append(dst, `],"stream_count":`...), int64(w.count), 10)
	if dst = append(dst, `,"next_cursor":`...); w.count > 0 {
		dst = appendJSONString(dst, w.last)
	} else {
		dst = append(dst, "null"...)
	}
	dst = strconv.AppendBool(append(dst, `,"has_more":`...), more)
	return append(dst, '}')
}

func appendMillis(dst []byte, t base.Millis) []byte { return strconv.AppendInt(dst, int64(t), 10) }
