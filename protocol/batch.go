package protocol

import (
	"encoding/binary"
	"strconv"
)

// MaxFrames is how many appends one batch may hold.
const MaxFrames = 512

// frameHead is the length of a frame's own length, a big-endian number, in bytes.
const frameHead = 4

// SplitFrames appends the payloads of a batch's frames, which alias body, to dst.
// What is wrong with the framing becomes op.BodyFault; the result is then of no use.
func (op *Operation) SplitFrames(dst [][]byte, body []byte) [][]byte {
	count := 0
	for at := 0; at < len(body); count++ {
		rest := body[at:]
		if count == MaxFrames {
			op.frameFault(at, "A batch has at most 512 frames.")
			op.BodyFault.Limit = MaxFrames
			return dst
		}
		if len(rest) < frameHead {
			op.frameFault(at, "The body ends inside the length of a frame.")
			return dst
		}
		size := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[frameHead:]
		switch {
		case size == 0:
			op.frameFault(at, "A frame must not be empty.")
			return dst
		case size > uint64(len(rest)):
			op.frameFault(at, "The body ends inside a frame.")
			return dst
		}
		dst = append(dst, rest[:size:size])
		at += frameHead + int(size)
	}
	return dst
}

func (op *Operation) frameFault(at int, detail string) {
	op.BodyFault = op.bodySlot.set(codeMalformedFrames, "", detail)
	op.BodyFault.Position = int64(at)
}

// Batch renders the head of the answer to a batch whose framing was right; its status
// is 200. The body is an array, between OpenArray and CloseArray, of what
// AppendBatchItem makes, with commas between.
func (r *Renderer) Batch(dst []byte, res *WriteResult) (fields []byte) {
	at := len(dst)
	dst = appendNumber(r.appendJSONFields(dst), "Stream-Incarnation", res.Incarnation)
	if IsJSON(res.ContentType) {
		dst = append(dst, recordsExtension...)
	}
	return dst[at:]
}

// AppendBatchItem appends what became of one append of a batch, as a JSON object.
// With BodyFault as the outcome, op.BodyFault is to be that frame's.
func AppendBatchItem(dst []byte, op *Operation, res *WriteResult) []byte {
	var p Problem
	status, done := 204, res.Outcome == Appended || res.Outcome == Duplicate
	if !done {
		p.fromResult(op, res)
		status = p.Status
	}
	dst = strconv.AppendInt(append(dst, `{"status":`...), int64(status), 10)
	if done || res.Incarnation != 0 {
		dst = AppendOffset(append(dst, `,"stream_next_offset":"`...), res.Next)
		dst = append(dst, '"')
	}
	if done && res.HasStart {
		dst = AppendOffset(append(dst, `,"stream_offset":"`...), res.Start)
		dst = append(dst, '"')
	}
	if n := &res.Records; done && n.Set {
		if n.HasStart {
			dst = strconv.AppendUint(append(dst, `,"stream_record_start":`...), n.Start, 10)
		}
		dst = strconv.AppendUint(append(dst, `,"stream_record_next":`...), n.Next, 10)
	}
	if res.Closed {
		dst = append(dst, `,"stream_closed":true`...)
	}
	if !done {
		dst = appendJSONString(append(dst, `,"code":`...), p.Code)
		dst = appendJSONString(append(dst, `,"detail":`...), p.Detail)
		if p.Position >= 0 {
			dst = strconv.AppendInt(append(dst, `,"position":`...), p.Position, 10)
		}
	}
	return append(dst, '}')
}
