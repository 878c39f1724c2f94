package record

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: by the clock")

// random makes values of all sizes, small ones as often as large ones.
type random struct{ *rand.Rand }

func newRandom(t *testing.T) random {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-seed=%d", seed)
		}
	})
	return random{rand.New(rand.NewPCG(seed, 0))}
}

func (r random) uint() uint64 { return r.Uint64() >> r.IntN(64) }
func (r random) int() int64   { return int64(r.Uint64()) >> r.IntN(64) }
func (r random) bool() bool   { return r.IntN(2) == 0 }

func (r random) bytes(least, most int) []byte {
	b := make([]byte, least+r.IntN(most+1-least)>>r.IntN(8))
	if len(b) < least {
		b = make([]byte, least)
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func (r random) string(most int) string { return string(r.bytes(0, most)) }

func (r random) config() *Config {
	c := &Config{
		Bucket: r.string(MaxName), Name: r.string(MaxName), ContentType: r.string(MaxContentType), MediaType: r.string(MaxContentType),
		JSON: r.bool(), TTL: r.int(), ExpiresAt: base.Millis(r.int()), Created: base.Millis(r.int()),
	}
	if r.bool() {
		c.Fork = &Fork{
			Source: base.StreamID(r.uint() | 1), Offset: base.Offset(r.uint()), Record: r.uint(), Bucket: r.string(MaxName), Name: r.string(MaxName),
			HasReqOffset: r.bool(), Sub: r.uint(), TTL: r.int(), ExpiresAt: base.Millis(r.int()), First: base.Offset(r.uint()), FirstRecord: r.uint(),
		}
		if c.Fork.HasReqOffset {
			c.Fork.ReqOffset = base.Offset(r.uint())
		}
	}
	return c
}

func (r random) snapshot() *Snapshot {
	s := &Snapshot{Offset: base.Offset(r.uint()), Record: r.uint(), Size: int64(r.uint() >> 1), ContentType: r.string(MaxContentType)}
	copy(s.Digest[:], r.bytes(32, 32))
	return s
}

func (r random) history() uint16 { return 2 + uint16(r.IntN(MaxHistory-1)) }

func (r random) record() Record {
	rec := Record{Type: Type(1 + r.IntN(int(TypeAttrs))), Stream: base.StreamID(r.uint() | 1), At: base.Millis(r.int())}
	switch rec.Type {
	case TypeCreate, TypeAppend:
		if rec.Type == TypeCreate {
			rec.Config = r.config()
			if r.bool() {
				rec.Attrs = r.bytes(1, MaxAttrs)
			}
			if r.bool() {
				rec.Snapshot = r.snapshot()
			}
		}
		rec.Offset, rec.Close = base.Offset(r.uint()), r.bool()
		if r.bool() {
			rec.History = r.history()
		}
		if rec.Body = r.bytes(0, 400); len(rec.Body) > 0 {
			for end := 1 + r.IntN(20); end < len(rec.Body); end += 1 + r.IntN(1+r.IntN(200)) {
				rec.Ends = append(rec.Ends, uint32(end))
			}
			rec.Ends = append(rec.Ends, uint32(len(rec.Body)))
		}
		if r.bool() {
			rec.Producer = Producer{ID: r.bytes(1, MaxProducerID), Epoch: r.uint(), Seq: r.uint(), Set: true}
		}
		if rec.HasSeq = r.bool(); rec.HasSeq {
			rec.Seq = r.bytes(0, MaxStreamSeq)
		}
	case TypeDelete:
		rec.Expired = r.bool()
	case TypePin, TypeUnpin:
		rec.ForkID, rec.ForkOffset = base.StreamID(r.uint()|1), base.Offset(r.uint())
	case TypeForget:
		rec.Producer.ID = r.bytes(1, MaxProducerID)
	case TypeMark:
		rec.Stream = 0
	case TypeSnapshot:
		rec.Snapshot, rec.Trim = r.snapshot(), r.bool()
	case TypeTrim:
		rec.Offset, rec.Ordinal = base.Offset(r.uint()), r.uint()
	case TypeDrop:
		rec.Offset = base.Offset(r.uint())
	case TypeAttrs:
		rec.Attrs = r.bytes(1, MaxAttrs)
	}
	return rec
}

// Whatever can be written is read back the same, into a Record that held another
// one before.
func TestRecordRoundTrip(t *testing.T) {
	r := newRandom(t)
	var got Record
	var head []byte
	for range 5000 {
		want := r.record()
		head = want.AppendHead(head[:0])
		if err := got.Decode(want.Type, head, want.Body); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if len(want.Ends) == 0 {
			got.Ends, want.Ends = got.Ends[:0], got.Ends[:0] // nil or empty is the same
		}
		if len(want.Body) == 0 {
			want.Body = got.Body
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		got.Ends = append([]uint32(nil), got.Ends...)
	}
}

func TestRowsRoundTrip(t *testing.T) {
	r := newRandom(t)
	for range 2000 {
		c := r.config()
		if got, err := DecodeConfig(c.AppendRow(nil)); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("got %+v, %v, want %+v", got, err, c)
		}
		s := State{
			Next: base.Offset(r.uint()), NextRecord: r.uint(), LastWrite: base.Millis(r.int()), Touched: base.Millis(r.int()),
			Closed: r.bool(), Deleted: r.bool(), HasSeq: r.bool(), HasClosedBy: r.bool(),
		}
		s.First, s.FirstRecord = s.Next/2, s.NextRecord/2
		if s.History = 1; r.bool() {
			s.History = r.history()
			if r.bool() {
				s.Previous, s.Inherited = 1+uint16(r.IntN(int(s.History-1))), s.Next/3
			}
		}
		if s.HasSeq {
			s.Seq = r.string(MaxStreamSeq)
		}
		if s.HasClosedBy {
			s.ClosedBy, s.ClosedEpoch, s.ClosedSeq = r.string(MaxProducerID), r.uint(), r.uint()
		}
		if got, err := DecodeState(s.AppendRow(nil)); err != nil || got != s {
			t.Fatalf("got %+v, %v, want %+v", got, err, s)
		}
		p := ProducerState{Epoch: r.uint(), Seq: r.uint(), End: base.Offset(r.uint()), EndRecord: r.uint(), At: base.Millis(r.int()), History: 1}
		if r.bool() {
			p.History = r.history()
		}
		p.Start, p.StartRecord = p.End/2, p.EndRecord/2
		if got, err := DecodeProducer(p.AppendRow(nil)); err != nil || got != p {
			t.Fatalf("got %+v, %v, want %+v", got, err, p)
		}
		off := base.Offset(r.uint())
		if got, err := DecodePin(AppendPinRow(nil, off)); err != nil || got != off {
			t.Fatalf("got %d, %v, want %d", got, err, off)
		}
		shot := r.snapshot()
		shot.At, shot.Replaced = base.Millis(r.int()), base.Millis(r.int())
		if got, err := DecodeSnapshot(shot.Offset, shot.AppendRow(nil)); err != nil || !reflect.DeepEqual(got, shot) {
			t.Fatalf("got %+v, %v, want %+v", got, err, shot)
		}
		if k, err := ParseKey(AppendSnapshotKey(nil, shot.Offset)); err != nil || k.Kind != RowSnapshot || k.Offset != shot.Offset {
			t.Fatalf("key of a snapshot at %d: %+v %v", shot.Offset, k, err)
		}
		id := r.bytes(1, MaxProducerID)
		if k, err := ParseKey(AppendProducerKey(nil, id)); err != nil || k.Kind != RowProducer || !bytes.Equal(k.Producer, id) {
			t.Fatalf("key of producer %q: %+v %v", id, k, err)
		}
		fork := base.StreamID(r.uint() | 1)
		if k, err := ParseKey(AppendPinKey(nil, fork)); err != nil || k.Kind != RowPin || k.Fork != fork {
			t.Fatalf("key of pin %d: %+v %v", fork, k, err)
		}
	}
}

// The order of keys is the order of kinds, and of forks: merges and footers rely on it.
func TestKeysAscend(t *testing.T) {
	keys := [][]byte{AttrsKey, ConfigKey, AppendPinKey(nil, 1), AppendPinKey(nil, 255), AppendPinKey(nil, 256),
		AppendSnapshotKey(nil, 0), AppendSnapshotKey(nil, 255), AppendSnapshotKey(nil, 1<<40), AppendProducerKey(nil, []byte{0}),
		AppendProducerKey(nil, []byte("a")), AppendProducerKey(nil, []byte("aa")), AppendProducerKey(nil, []byte{0xff}), StateKey}
	last := RowKind(0)
	for i, k := range keys {
		parsed, err := ParseKey(k)
		kind := parsed.Kind
		if err != nil || kind < last || i > 0 && bytes.Compare(keys[i-1], k) >= 0 {
			t.Errorf("key %q (kind %d, %v) does not follow", k, kind, err)
		}
		last = kind
	}
}

// Numbers on disk never change.
func TestNumbers(t *testing.T) {
	for want, got := range []Type{
		0, TypeCreate, TypeAppend, TypeDelete, TypeTouch, TypePin, TypeUnpin, TypeForget, TypeMark, TypeSnapshot, TypeTrim, TypeDrop, TypeAttrs,
	} {
		if int(got) != want {
			t.Errorf("type %d has become %d", want, got)
		}
	}
	limits := []int{InlineBody, MaxName, MaxContentType, MaxProducerID, MaxStreamSeq, MaxBody, MaxMessages, MaxAttrs}
	if want := []int{65536, 2048, 8192, 8192, 8192, 1 << 30, 1 << 28, 16384}; !reflect.DeepEqual(limits, want) {
		t.Errorf("limits are %d, but were %d: a lower one makes records unreadable", limits, want)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	want := Record{
		Type: TypeAppend, Stream: 9, At: 1, Body: []byte("ab"), Ends: []uint32{1, 2}, Producer: Producer{ID: []byte("p"), Set: true},
		Seq: []byte("s"), HasSeq: true,
	}
	head := want.AppendHead(nil)
	var r Record
	if n := testing.AllocsPerRun(100, func() {
		head = want.AppendHead(head[:0])
		if err := r.Decode(TypeAppend, head, want.Body); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A cut-off record is refused wherever it is cut, and so is one with something behind.
// Only a producer's row has nothing but its end to tell whether a history follows.
func TestDecodeRefusesOtherLengths(t *testing.T) {
	for _, s := range specimens() {
		typ, b, body := s.encode()
		if strings.HasPrefix(s.name, "key ") {
			continue
		}
		for n := range b {
			if s.name == "row producer, after a restore" && n == len(b)-1 {
				continue
			}
			if _, _, err := s.decode(typ, b[:n], body); err == nil {
				t.Errorf("%s: the first %d of %d bytes were accepted", s.name, n, len(b))
			}
		}
		if _, _, err := s.decode(typ, append(bytes.Clone(b), 0), body); err == nil {
			t.Errorf("%s: a byte behind the end was accepted", s.name)
		}
	}
}

// raw is bytes without a length before them.
type raw []byte

// build strings fields together: bytes as they are, numbers as unsigned varints,
// negative ones signed, strings behind their length.
func build(fields ...any) (b []byte) {
	for _, f := range fields {
		switch f := f.(type) {
		case byte:
			b = append(b, f)
		case int:
			b = bin.AppendUvarint(b, uint64(f))
		case uint64:
			b = bin.AppendUvarint(b, f)
		case string:
			b = bin.AppendBytes(b, f)
		case raw:
			b = append(b, f...)
		default:
			panic(fmt.Sprintf("a field of type %T", f))
		}
	}
	return b
}

func TestDecodeRefuses(t *testing.T) {
	const flags = byte(0)
	digest := make(raw, 32)
	long := func(n int) string { return strings.Repeat("x", n+1) }
	// stream 1 at 0, flags, config of empty strings with the given flags
	create := func(f, configFlags byte, fork ...any) []byte {
		head := build(1, 0, f, "", "", "", "", configFlags, 1, 0, 0)
		return append(append(head, build(fork...)...), 0)
	}
	aFork := func(source int, f byte) []any { return []any{source, 0, 0, "", "", f, 0, 1, 0, 0, 0} }
	if err := new(Record).Decode(TypeCreate, create(0, configFork, aFork(1, 0)...), nil); err != nil {
		t.Fatalf("the record that the others are made of: %v", err)
	}
	for _, c := range []struct {
		name string
		typ  Type
		head []byte
		body string
	}{
		{"type 0", 0, build(1, 0), ""},
		{"a type of the future", TypeAttrs + 1, build(1, 0), ""},
		{"no stream", TypeTouch, build(0, 0), ""},
		{"a mark of a stream", TypeMark, build(1, 0), ""},
		{"a body of a mark", TypeMark, build(0, 0), "x"},
		{"a body where none belongs", TypeTouch, build(1, 0), "x"},
		{"a body of a delete", TypeDelete, build(1, 0, flags), "x"},
		{"a stream number in a long form", TypeTouch, []byte{0x81, 0x00, 0x00}, ""},
		{"append: unknown flag", TypeAppend, build(1, 0, byte(1<<7), 0), "x"},
		{"append: no history", TypeAppend, build(1, 0, byte(flagHistory), 0, 0), "x"},
		{"append: the first history", TypeAppend, build(1, 0, byte(flagHistory), 1, 0), "x"},
		{"append: history too high", TypeAppend, build(1, 0, byte(flagHistory), MaxHistory+1, 0), "x"},
		{"append: history beyond all measure", TypeAppend, build(1, 0, byte(flagHistory), uint64(1<<16+2), 0), "x"},
		{"append: a snapshot", TypeAppend, build(1, 0, byte(flagSnapshot), 0, 5, 1, digest, 9, ""), "x"},
		{"append: attributes", TypeAppend, build(1, 0, byte(flagAttrs), 0, "{}"), "x"},
		{"append: producer without an id", TypeAppend, build(1, 0, byte(flagProducer), 0, "", 0, 0), "x"},
		{"append: producer id too long", TypeAppend, build(1, 0, byte(flagProducer), 0, long(MaxProducerID), 0, 0), "x"},
		{"append: Stream-Seq too long", TypeAppend, build(1, 0, byte(flagSeq), 0, long(MaxStreamSeq)), "x"},
		{"append: ends of one message", TypeAppend, build(1, 0, byte(flagEnds), 0, 1, 5), "hello"},
		{"append: ends of no message", TypeAppend, build(1, 0, byte(flagEnds), 0, 0), "hello"},
		{"append: more ends than bytes", TypeAppend, build(1, 0, byte(flagEnds), 0, 6, 1, 1, 1, 1, 1, 1), "hello"},
		{"append: ends short of the body", TypeAppend, build(1, 0, byte(flagEnds), 0, 2, 1, 3), "hello"},
		{"append: ends beyond the body", TypeAppend, build(1, 0, byte(flagEnds), 0, 2, 1, 5), "hello"},
		{"append: an empty message", TypeAppend, build(1, 0, byte(flagEnds), 0, 3, 1, 0, 4), "hello"},
		{"append: a distance that overflows", TypeAppend, build(1, 0, byte(flagEnds), 0, 2, 1, uint64(math.MaxUint64)), "hello"},
		{"append: a huge number of ends", TypeAppend, build(1, 0, byte(flagEnds), 0, uint64(math.MaxUint64)), "hello"},
		{"append: ends of an empty body", TypeAppend, build(1, 0, byte(flagEnds), 0, 2, 1, 1), ""},
		{"delete: unknown flag", TypeDelete, build(1, 0, byte(2)), ""},
		{"pin of no fork", TypePin, build(1, 0, 0, 5), ""},
		{"unpin of no fork", TypeUnpin, build(1, 0, 0, 5), ""},
		{"forget: producer without an id", TypeForget, build(1, 0, ""), ""},
		{"forget: producer id too long", TypeForget, build(1, 0, long(MaxProducerID)), ""},
		{"snapshot: unknown flag", TypeSnapshot, build(1, 0, byte(2), 5, 1, digest, 9, ""), ""},
		{"snapshot: content type too long", TypeSnapshot, build(1, 0, flags, 5, 1, digest, 9, long(MaxContentType)), ""},
		{"snapshot: a size beyond all measure", TypeSnapshot, build(1, 0, flags, 5, 1, digest, uint64(1<<63), ""), ""},
		{"snapshot: a body", TypeSnapshot, build(1, 0, flags, 5, 1, digest, 9, ""), "x"},
		{"trim: a body", TypeTrim, build(1, 0, 5, 1), "x"},
		{"attributes: none", TypeAttrs, build(1, 0, ""), ""},
		{"attributes: too long", TypeAttrs, build(1, 0, long(MaxAttrs)), ""},
		{"create: attributes of no bytes", TypeCreate, append(create(flagAttrs, 0), 0), ""},
		{"create: attributes too long", TypeCreate, append(create(flagAttrs, 0), build(long(MaxAttrs))...), ""},
		{"create: unknown flag", TypeCreate, create(1<<7, 0), ""},
		{"create: unknown flag of the configuration", TypeCreate, create(0, 1<<2), ""},
		{"create: unknown flag of the fork", TypeCreate, create(0, configFork, aFork(1, 2)...), ""},
		{"create: fork of nothing", TypeCreate, create(0, configFork, aFork(0, 0)...), ""},
		{"create: bucket too long", TypeCreate, build(1, 0, flags, long(MaxName), "", "", "", flags, 1, 0, 0, 0), ""},
		{"create: name too long", TypeCreate, build(1, 0, flags, "", long(MaxName), "", "", flags, 1, 0, 0, 0), ""},
		{"create: content type too long", TypeCreate, build(1, 0, flags, "", "", long(MaxContentType), "", flags, 1, 0, 0, 0), ""},
		{"create: media type too long", TypeCreate, build(1, 0, flags, "", "", "", long(MaxContentType), flags, 1, 0, 0, 0), ""},
	} {
		if err := new(Record).Decode(c.typ, c.head, []byte(c.body)); err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
}

func TestRowsRefuse(t *testing.T) {
	state := func(b []byte) error { _, err := DecodeState(b); return err }
	producer := func(b []byte) error { _, err := DecodeProducer(b); return err }
	config := func(b []byte) error { _, err := DecodeConfig(b); return err }
	snapshot := func(b []byte) error { _, err := DecodeSnapshot(5, b); return err }
	digest := make(raw, 32)
	key := func(b []byte) error { _, err := ParseKey(b); return err }
	for _, c := range []struct {
		name   string
		decode func([]byte) error
		b      []byte
	}{
		{"state: unknown flag", state, build(byte(1<<5), 5, 0, 1, 0, 0, 0)},
		{"state: the first history", state, build(byte(stateHistory), 5, 0, 1, 0, 0, 0, 1, 0)},
		{"state: history too high", state, build(byte(stateHistory), 5, 0, 1, 0, 0, 0, MaxHistory+1, 0)},
		{"state: a previous history that is no earlier one", state, build(byte(stateHistory), 5, 0, 1, 0, 0, 0, 3, 3, 4)},
		{"state: nothing inherited, but something said of it", state, build(byte(stateHistory), 5, 0, 1, 0, 0, 0, 3, 0, 4)},
		{"state: more inherited than there is", state, build(byte(stateHistory), 5, 0, 1, 0, 0, 0, 3, 2, 6)},
		{"state: first byte beyond the last", state, build(byte(0), 5, 6, 1, 0, 0, 0)},
		{"state: first record beyond the last", state, build(byte(0), 5, 0, 1, 2, 0, 0)},
		{"state: Stream-Seq too long", state, build(byte(stateSeq), 5, 0, 1, 0, 0, 0, strings.Repeat("x", MaxStreamSeq+1))},
		{"state: closer's id too long", state, build(byte(stateClosedBy), 5, 0, 1, 0, 0, 0, strings.Repeat("x", MaxProducerID+1), 0, 0)},
		{"producer: bytes backwards", producer, build(0, 0, 6, 5, 0, 0, 0)},
		{"producer: records backwards", producer, build(0, 0, 5, 5, 2, 1, 0)},
		{"producer: the first history", producer, build(0, 0, 5, 5, 1, 1, 0, 1)},
		{"producer: history too high", producer, build(0, 0, 5, 5, 1, 1, 0, MaxHistory+1)},
		{"config: unknown flag", config, build("", "", "", "", byte(1<<2), 0, 0, 0)},
		{"config: fork of nothing", config, build("", "", "", "", byte(configFork), 0, 0, 0, 0, 0, 0, "", "", byte(0), 0, 0, 0)},
		{"snapshot: another offset than its key's", snapshot, build(6, 1, digest, 9, "", 0, 0)},
		{"snapshot: a size beyond all measure", snapshot, build(5, 1, digest, uint64(1<<63), "", 0, 0)},
		{"snapshot: content type too long", snapshot, build(5, 1, digest, 9, strings.Repeat("x", MaxContentType+1), 0, 0)},
		{"key: attributes with more", key, []byte("a1")},
		{"key: snapshot too short", key, []byte("n1234567")},
		{"key: snapshot too long", key, []byte("n123456789")},
		{"key: none", key, nil},
		{"key: unknown", key, []byte("x")},
		{"key: config with more", key, []byte("cc")},
		{"key: state with more", key, []byte("s1")},
		{"key: pin too short", key, []byte("f1234567")},
		{"key: pin too long", key, []byte("f123456789")},
		{"key: pin of no fork", key, append([]byte("f"), make([]byte, 8)...)},
		{"key: producer without an id", key, []byte("p")},
		{"key: producer id too long", key, AppendProducerKey(nil, make([]byte, MaxProducerID+1))},
	} {
		if err := c.decode(c.b); err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
}
