package record

import (
	"bytes"
	"testing"
)

// FuzzDecode: what is accepted encodes to the very same bytes, so a record has one
// encoding, and a decoder that takes what no encoder writes is found.
func FuzzDecode(f *testing.F) {
	for _, s := range specimens() {
		if typ, b, body := s.encode(); typ != 0 {
			f.Add(uint8(typ), b, body)
		}
	}
	f.Add(uint8(TypeAppend), build(1, 0, byte(flagEnds), 0, 2, 1, 4), []byte("hello"))
	var r Record
	f.Fuzz(func(t *testing.T, typ uint8, head, body []byte) {
		if err := r.Decode(Type(typ), head, body); err != nil {
			return
		}
		if got := r.AppendHead(nil); !bytes.Equal(got, head) {
			t.Fatalf("% x decodes to %+v, which encodes as % x", head, r, got)
		}
		if !bytes.Equal(r.Body, body) {
			t.Fatalf("a body of %d bytes has become %d", len(body), len(r.Body))
		}
		if n := len(r.Ends); len(body) > 0 && (n == 0 || int(r.Ends[n-1]) != len(body)) {
			t.Fatalf("messages end at %d in a body of %d bytes", r.Ends, len(body))
		}
	})
}

// FuzzRows does the same for a key and the value that goes with it.
func FuzzRows(f *testing.F) {
	for _, key := range [][]byte{ConfigKey, StateKey, AttrsKey, AppendPinKey(nil, 5), AppendSnapshotKey(nil, 1000), AppendProducerKey(nil, []byte("p"))} {
		for _, s := range specimens() {
			if typ, b, _ := s.encode(); typ == 0 {
				f.Add(key, b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		parsed, err := ParseKey(key)
		kind, fork, producer := parsed.Kind, parsed.Fork, parsed.Producer
		if err != nil {
			return
		}
		var again, out []byte
		switch kind {
		case RowConfig:
			again = ConfigKey
			var c *Config
			if c, err = DecodeConfig(value); err == nil {
				out = c.AppendRow(nil)
			}
		case RowState:
			again = StateKey
			var s State
			if s, err = DecodeState(value); err == nil {
				out = s.AppendRow(nil)
			}
		case RowPin:
			again = AppendPinKey(nil, fork)
			upTo, e := DecodePin(value)
			out, err = AppendPinRow(nil, upTo), e
		case RowAttrs: // whatever it says
			again, out = AttrsKey, value
		case RowSnapshot:
			again = AppendSnapshotKey(nil, parsed.Offset)
			var s *Snapshot
			if s, err = DecodeSnapshot(parsed.Offset, value); err == nil {
				out = s.AppendRow(nil)
			}
		case RowProducer:
			again = AppendProducerKey(nil, producer)
			p, e := DecodeProducer(value)
			out, err = p.AppendRow(nil), e
		}
		if !bytes.Equal(again, key) {
			t.Fatalf("key %q encodes as %q", key, again)
		}
		if err == nil && !bytes.Equal(out, value) {
			t.Fatalf("row %q: % x encodes as % x", key, value, out)
		}
	})
}
