package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
)

func frames(payloads ...string) (body []byte) {
	for _, p := range payloads {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(p))), p...)
	}
	return body
}

// api §3 «Append batch».
func TestSplitFrames(t *testing.T) {
	op := new(Operation)
	got := op.SplitFrames(nil, frames("a", "\x00\x00\x00\x01", strings.Repeat("x", 70_000)))
	if op.BodyFault != nil || len(got) != 3 || string(got[0]) != "a" || string(got[1]) != "\x00\x00\x00\x01" || len(got[2]) != 70_000 {
		t.Errorf("%d frames, %v", len(got), op.BodyFault)
	}
	if cap(got[0]) != 1 {
		t.Error("a frame can be appended to, over the next one")
	}
	full := bytes.Repeat(frames("x"), MaxFrames)
	if got := op.SplitFrames(nil, full); op.BodyFault != nil || len(got) != MaxFrames {
		t.Errorf("512 frames: %d, %v", len(got), op.BodyFault)
	}
	if got := op.SplitFrames(nil, nil); op.BodyFault != nil || len(got) != 0 {
		t.Errorf("nothing: %d, %v", len(got), op.BodyFault)
	}
	for _, c := range []struct {
		body     []byte
		position int64
		limit    int64
	}{
		{[]byte("abc"), 0, 0},
		{frames("ab", "")[:9], 6, 0},
		{frames("ab", ""), 6, 0},
		{frames(""), 0, 0},
		{frames("ab", "cde")[:12], 6, 0},
		{[]byte("\xff\xff\xff\xffx"), 0, 0},
		{[]byte("\x80\x00\x00\x00x"), 0, 0},
		{append(full, frames("x")...), int64(len(full)), MaxFrames},
	} {
		op := new(Operation)
		op.SplitFrames(nil, c.body)
		if p := op.BodyFault; p == nil || p.Code != codeMalformedFrames || p.Position != c.position || p.Limit != c.limit || p.Status != 400 {
			t.Errorf("%.20q: %+v", c.body, p)
		}
	}
}

// What is split comes from a body that frames make, and from no other.
func FuzzSplitFrames(f *testing.F) {
	f.Add(frames("a", "bc", "\x00"))
	f.Add(frames("a", ""))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add(frames("abc")[:6])
	f.Fuzz(func(t *testing.T, body []byte) {
		op := new(Operation)
		got := op.SplitFrames(nil, body)
		if p := op.BodyFault; p != nil {
			if p.Position < 0 || p.Position > int64(len(body)) {
				t.Fatalf("position %d of %d", p.Position, len(body))
			}
			return
		}
		var again []byte
		for _, frame := range got {
			if len(frame) == 0 {
				t.Fatal("an empty frame")
			}
			again = append(again, frames(string(frame))...)
		}
		if !bytes.Equal(again, body) || len(got) > MaxFrames {
			t.Fatalf("%d frames make %q of %q", len(got), again, body)
		}
	})
}

func TestBatchAnswer(t *testing.T) {
	r := NewRenderer(Settings{})
	op := parse(t, "POST /ds/buck/s/append-batch", "Content-Type: application/json", "body: 9")
	check(t, "batch", 200, r.Batch(nil, &WriteResult{Incarnation: 7, ContentType: "application/json"}), 200, "Content-Type: application/json", private, "Stream-Incarnation: 7",
		"Stream-Extensions: json-record-coordinates-v1")
	check(t, "text", 200, r.Batch(nil, &WriteResult{ContentType: "text/plain"}), 200, "!Stream-Extensions")
	op.SplitBody(nil, nil, []byte("[1,"))
	body := []byte(OpenArray)
	for i, c := range []struct {
		res  WriteResult
		want string
	}{
		{WriteResult{Outcome: Appended, Incarnation: 7, HasStart: true, Start: 40, Next: 42, Records: Records{Set: true, HasStart: true, Start: 3, Next: 4}},
			`{"status":204,"stream_next_offset":"00000000000000000042","stream_offset":"00000000000000000040","stream_record_start":3,"stream_record_next":4}`},
		{WriteResult{Outcome: Appended, Incarnation: 7, Next: 42}, `{"status":204,"stream_next_offset":"00000000000000000042"}`},
		{WriteResult{Outcome: StreamClosed, Incarnation: 7, Next: 42, Closed: true, Records: Records{Set: true, Next: 4}},
			`{"status":409,"stream_next_offset":"00000000000000000042","stream_closed":true,"code":"closed","detail":"The stream is closed and takes no more data; its end is in Stream-Next-Offset."}`},
		{WriteResult{Outcome: BodyFault, Incarnation: 7, Next: 42}, `{"status":400,"stream_next_offset":"00000000000000000042","code":"invalid_json","detail":"The JSON ends too early.","position":3}`},
		{WriteResult{Outcome: NotFound}, `{"status":404,"code":"stream_not_found","detail":"There is no stream at this path, or it has expired or been deleted."}`},
		{WriteResult{Outcome: Overloaded}, `{"status":503,"code":"overloaded","detail":"Nothing was stored. Try again in a moment."}`},
	} {
		if i > 0 {
			body = append(body, ',')
		}
		at := len(body)
		if body = AppendBatchItem(body, op, &c.res); string(body[at:]) != c.want {
			t.Errorf("%s\nwant %s", body[at:], c.want)
		}
	}
	if !json.Valid(append(body, CloseArray...)) {
		t.Errorf("%s", body)
	}
}
