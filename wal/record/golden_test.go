package record

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

var update = flag.Bool("update", false, "add to testdata/golden.txt what it does not have yet; a line in it never changes")

const goldenPath = "testdata/golden.txt"

// specimen is one thing that is encoded, with how it is done and undone.
type specimen struct {
	name   string
	encode func() (typ Type, b, body []byte)
	decode func(typ Type, b, body []byte) (got, want any, err error)
}

func ofRecord(name string, r Record) specimen {
	return specimen{
		"record " + name,
		func() (Type, []byte, []byte) { return r.Type, r.AppendHead(nil), r.Body },
		func(typ Type, b, body []byte) (any, any, error) {
			var got Record
			err := got.Decode(typ, b, body)
			return got, r, err
		},
	}
}

func ofRow[T any](name string, value T, encode func(*T, []byte) []byte, decode func([]byte) (T, error)) specimen {
	return specimen{
		"row " + name,
		func() (Type, []byte, []byte) { return 0, encode(&value, nil), nil },
		func(_ Type, b, _ []byte) (any, any, error) { got, err := decode(b); return got, value, err },
	}
}

func ofKey(name string, key []byte, kind RowKind, fork base.StreamID, producer string) specimen {
	type parsed struct {
		kind     RowKind
		fork     base.StreamID
		producer string
	}
	return specimen{
		"key " + name,
		func() (Type, []byte, []byte) { return 0, key, nil },
		func(_ Type, b, _ []byte) (any, any, error) {
			key, err := ParseKey(b)
			k, f, p := key.Kind, key.Fork, key.Producer
			return parsed{k, f, string(p)}, parsed{kind, fork, producer}, err
		},
	}
}

func ofSnapshotKey(name string, at base.Offset) specimen {
	return specimen{
		"key " + name,
		func() (Type, []byte, []byte) { return 0, AppendSnapshotKey(nil, at), nil },
		func(_ Type, b, _ []byte) (any, any, error) {
			key, err := ParseKey(b)
			return key, Key{Kind: RowSnapshot, Offset: at}, err
		},
	}
}

func someConfig() *Config {
	return &Config{
		Bucket: "jobs", Name: "a/b", ContentType: "Text/Plain; charset=utf-8", MediaType: "text/plain", TTL: -1, Created: 1767225600000,
	}
}

// specimens are one of every type of record and row, with each optional part there
// and not there. Their bytes are pinned by the golden file.
func specimens() []specimen {
	timed := someConfig()
	timed.JSON, timed.ContentType, timed.MediaType, timed.TTL, timed.ExpiresAt = true, "application/json", "application/json", 3600, 1767229200000
	fork := someConfig()
	fork.Fork = &Fork{
		Source: 77, Offset: 1000, Record: 12, Bucket: "jobs", Name: "source", ReqOffset: 998, HasReqOffset: true, Sub: 2,
		TTL: 60, ExpiresAt: 1767229200000,
	}
	tail := someConfig()
	tail.Fork = &Fork{Source: 77, Offset: 1000, Record: 12, Bucket: "jobs", Name: "source", TTL: -1}
	p := Producer{ID: []byte("writer-1"), Epoch: 3, Seq: 9007199254740991, Set: true}
	const at = base.Millis(1767225600123)
	one := []uint32{5}
	trimmed := someConfig()
	trimmed.Fork = &Fork{Source: 77, Offset: 1000, Record: 12, Bucket: "jobs", Name: "source", TTL: -1, First: 300, FirstRecord: 4}
	shot := Snapshot{Offset: 1000, Record: 12, Size: 1 << 33, ContentType: "application/json"}
	for i := range shot.Digest {
		shot.Digest[i] = byte(i)
	}
	row := shot
	row.At = at
	replaced := row
	replaced.Replaced = at + 7
	attrs := []byte(`{"title":"t"}`)
	first := Past{History: 1}
	return []specimen{
		ofRecord("create, empty", Record{Type: TypeCreate, Stream: 8, At: at, Config: someConfig()}),
		ofRecord("create, JSON, timed, with data", Record{Type: TypeCreate, Stream: 8, At: at, Config: timed, Body: []byte("1,22,"), Ends: []uint32{2, 5}}),
		ofRecord("create, closed, by a producer", Record{Type: TypeCreate, Stream: 8, At: at, Config: someConfig(), Body: []byte("hello"), Ends: one, Close: true, Producer: p, Seq: []byte{0xff, 0}, HasSeq: true}),
		ofRecord("create, fork", Record{Type: TypeCreate, Stream: 8, At: at, Config: fork, Offset: 1000}),
		ofRecord("create, fork at the tail", Record{Type: TypeCreate, Stream: 8, At: at, Config: tail, Offset: 1000, Body: []byte("hello"), Ends: one}),
		ofRecord("append", Record{Type: TypeAppend, Stream: 300, At: at, Offset: 1 << 40, Body: []byte("hello"), Ends: one}),
		ofRecord("append, several messages", Record{Type: TypeAppend, Stream: 300, At: at, Offset: 7, Body: []byte("hello"), Ends: []uint32{1, 3, 5}}),
		ofRecord("append, everything", Record{Type: TypeAppend, Stream: 1<<64 - 1, At: at, Offset: 1<<64 - 6, Body: []byte("hello"), Ends: []uint32{1, 5}, Close: true, Producer: p, Seq: []byte("s-10"), HasSeq: true}),
		ofRecord("append, producer", Record{Type: TypeAppend, Stream: 300, At: at, Offset: 7, Body: []byte("hello"), Ends: one, Producer: p}),
		ofRecord("append, empty Stream-Seq", Record{Type: TypeAppend, Stream: 300, At: at, Offset: 7, Body: []byte("hello"), Ends: one, Seq: []byte{}, HasSeq: true}),
		ofRecord("append, close only", Record{Type: TypeAppend, Stream: 300, At: at, Offset: 7, Close: true}),
		ofRecord("create, restored", Record{Type: TypeCreate, Stream: 8, At: at, History: 2, Config: someConfig(), Body: []byte("hello"), Ends: one}),
		ofRecord("append, first after a restore", Record{Type: TypeAppend, Stream: 300, At: at, History: MaxHistory, Offset: 7, Body: []byte("hello"), Ends: one, Producer: p}),
		ofRecord("delete", Record{Type: TypeDelete, Stream: 300, At: at}),
		ofRecord("delete, expired", Record{Type: TypeDelete, Stream: 300, At: at, Expired: true}),
		ofRecord("touch", Record{Type: TypeTouch, Stream: 300, At: at}),
		ofRecord("touch before the epoch", Record{Type: TypeTouch, Stream: 300, At: -2}),
		ofRecord("pin", Record{Type: TypePin, Stream: 300, At: at, ForkID: 301, ForkOffset: 1000}),
		ofRecord("unpin", Record{Type: TypeUnpin, Stream: 300, At: at, ForkID: 301, ForkOffset: 1000}),
		ofRecord("forget", Record{Type: TypeForget, Stream: 300, At: at, Producer: Producer{ID: []byte("writer-1")}}),
		ofRecord("mark", Record{Type: TypeMark, At: at}),
		ofRecord("create, bucket", Record{Type: TypeCreate, Stream: 8, At: at, Config: &Config{Bucket: "jobs", TTL: -1, Created: at}}),
		ofRecord("create, attributes", Record{Type: TypeCreate, Stream: 8, At: at, Config: someConfig(), Body: []byte("hello"), Ends: one, Attrs: attrs}),
		ofRecord("create, fork of a trimmed stream", Record{Type: TypeCreate, Stream: 8, At: at, Config: trimmed, Offset: 1000}),
		ofRecord("create, fork with a snapshot", Record{Type: TypeCreate, Stream: 8, At: at, Config: trimmed, Offset: 1000, Snapshot: &shot}),
		ofRecord("snapshot", Record{Type: TypeSnapshot, Stream: 300, At: at, Snapshot: &shot, Trim: true}),
		ofRecord("snapshot, retained", Record{Type: TypeSnapshot, Stream: 300, At: at, Snapshot: &Snapshot{}}),
		ofRecord("trim", Record{Type: TypeTrim, Stream: 300, At: at, Offset: 1000, Ordinal: 12}),
		ofRecord("drop", Record{Type: TypeDrop, Stream: 300, At: at, Offset: 1000}),
		ofRecord("attributes", Record{Type: TypeAttrs, Stream: 300, At: at, Attrs: attrs}),

		ofRow("config", someConfig(), func(c **Config, b []byte) []byte { return (*c).AppendRow(b) }, DecodeConfig),
		ofRow("config, timed", timed, func(c **Config, b []byte) []byte { return (*c).AppendRow(b) }, DecodeConfig),
		ofRow("config, fork", fork, func(c **Config, b []byte) []byte { return (*c).AppendRow(b) }, DecodeConfig),
		ofRow("config, fork at the tail", tail, func(c **Config, b []byte) []byte { return (*c).AppendRow(b) }, DecodeConfig),
		ofRow("state, fresh", State{Past: first, LastWrite: at, Touched: at}, (*State).AppendRow, DecodeState),
		ofRow("state, everything", State{
			Past: first, Next: 1 << 40, First: 1000, NextRecord: 50, FirstRecord: 12, LastWrite: at, Touched: at + 5, Closed: true, Deleted: true,
			HasSeq: true, Seq: "\xff\x00", ClosedBy: "writer-1", ClosedEpoch: 3, ClosedSeq: 9, HasClosedBy: true,
		}, (*State).AppendRow, DecodeState),
		ofRow("state, closed by nobody in particular", State{Past: first, Next: 5, NextRecord: 1, LastWrite: at, Touched: at, Closed: true}, (*State).AppendRow, DecodeState),
		ofRow("state, after a restore", State{Past: Past{History: 2}, Next: 5, NextRecord: 1, LastWrite: at, Touched: at}, (*State).AppendRow, DecodeState),
		ofRow("state, written before and after a restore", State{
			Past: Past{History: MaxHistory, Previous: 1, Inherited: 300}, Next: 500, NextRecord: 9, LastWrite: at, Touched: at,
			ClosedBy: "writer-1", ClosedEpoch: 3, ClosedSeq: 9, HasClosedBy: true, Closed: true,
		}, (*State).AppendRow, DecodeState),
		ofRow("producer", ProducerState{Epoch: 3, Seq: 9, Start: 100, End: 110, StartRecord: 4, EndRecord: 6, At: at, History: 1}, (*ProducerState).AppendRow, DecodeProducer),
		ofRow("producer, after a restore", ProducerState{Epoch: 4, Start: 100, End: 110, StartRecord: 4, EndRecord: 6, At: at, History: 2}, (*ProducerState).AppendRow, DecodeProducer),
		ofRow("pin", base.Offset(1000), func(o *base.Offset, b []byte) []byte { return AppendPinRow(b, *o) }, DecodePin),

		ofRow("config, fork of a trimmed stream", trimmed, func(c **Config, b []byte) []byte { return (*c).AppendRow(b) }, DecodeConfig),
		ofRow("snapshot", &row, func(s **Snapshot, b []byte) []byte { return (*s).AppendRow(b) }, decodeSnapshotAt1000),
		ofRow("snapshot, replaced", &replaced, func(s **Snapshot, b []byte) []byte { return (*s).AppendRow(b) }, decodeSnapshotAt1000),

		ofKey("config", ConfigKey, RowConfig, 0, ""),
		ofKey("state", StateKey, RowState, 0, ""),
		ofKey("pin", AppendPinKey(nil, 0x0102030405060708), RowPin, 0x0102030405060708, ""),
		ofKey("producer", AppendProducerKey(nil, []byte("writer-1")), RowProducer, 0, "writer-1"),
		ofKey("attributes", AttrsKey, RowAttrs, 0, ""),
		ofSnapshotKey("snapshot", 0x0102030405060708),
	}
}

// decodeSnapshotAt1000 decodes the row whose key says offset 1000.
func decodeSnapshotAt1000(value []byte) (*Snapshot, error) { return DecodeSnapshot(1000, value) }

// goldenLine is a specimen as the golden file has it: name, type, encoding, body.
func goldenLine(s specimen) string {
	typ, b, body := s.encode()
	return fmt.Sprintf("%s: type %d %x body %q", s.name, typ, b, body)
}

// TestGolden compares with bytes that earlier versions wrote. A failure means that
// data directories that exist can no longer be read: it wants a new type or flag,
// not a new golden.
func TestGolden(t *testing.T) {
	golden := readGolden(t)
	if *update {
		addGolden(t, golden)
		golden = readGolden(t)
	}
	for _, s := range specimens() {
		want, ok := golden[s.name]
		if !ok {
			t.Errorf("%s has no golden", s.name)
			continue
		}
		delete(golden, s.name)
		if got := goldenLine(s); got != want {
			t.Errorf("the encoding has changed\nfrom %s\nto   %s", want, got)
			continue
		}
		checkGolden(t, s, want)
	}
	for name := range golden {
		t.Errorf("%s is in the golden file, but no specimen", name)
	}
}

// readGolden returns the lines of the golden file by the names of their specimens.
func readGolden(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.ReadFile(goldenPath)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]string{}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		name, _, _ := strings.Cut(line, ": type ")
		golden[name] = line
	}
	return golden
}

// addGolden appends the specimens that the golden file does not have.
func addGolden(t *testing.T, golden map[string]string) {
	t.Helper()
	f, err := os.OpenFile(goldenPath, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specimens() {
		if golden[s.name] != "" {
			continue
		}
		if _, err := f.WriteString(goldenLine(s) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkGolden decodes the bytes of the golden file itself.
func checkGolden(t *testing.T, s specimen, line string) {
	t.Helper()
	var typ Type
	var code, body string
	rest := strings.TrimPrefix(line, s.name+": ")
	if _, err := fmt.Sscanf(rest, "type %d %s body %q", &typ, &code, &body); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	b, err := hex.DecodeString(code)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var raw []byte
	if body != "" {
		raw = []byte(body)
	}
	got, want, err := s.decode(typ, b, raw)
	if err != nil {
		t.Errorf("%s: %v", s.name, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: decoded\n%+v, want\n%+v", s.name, got, want)
	}
}
