package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
)

func create(t testing.TB, e *engine.Engine, name string) {
	t.Helper()
	op := &engine.Op{Event: core.Event{Op: core.OpCreate, Bucket: "b", Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}}
	if err := e.Do(op); err != nil || op.Answer.Code != core.Created {
		t.Fatal(err, op.Answer.Code)
	}
}

func add(t testing.TB, e *engine.Engine, name, body string) core.Answer {
	t.Helper()
	op := &engine.Op{Stream: e.Lookup([]byte("b"), []byte(name)), Event: core.Event{
		Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte(body), Ends: []uint32{uint32(len(body))},
	}}
	if err := e.Do(op); err != nil {
		t.Fatal(err)
	}
	return op.Answer
}

func readAll(t testing.TB, e *engine.Engine, name string) []byte {
	t.Helper()
	v := e.Lookup([]byte("b"), []byte(name)).View()
	var all []byte
	var st engine.Step
	defer st.Release()
	for off := v.First; off < v.Next; off = st.End() {
		if err := e.Read(v, off, v.Next, 1<<20, &st); err != nil {
			t.Fatal(err)
		}
		var err error
		if all, err = st.Append(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestAppendReadRestart(t *testing.T) {
	dir := t.TempDir()
	opts := engine.Options{WALFileBytes: 1 << 20, WALMaxBytes: 4 << 20, MemtableBytes: 256 << 10, SegmentMaxBytes: 1 << 20, MinFreeDisk: 1}
	e, err := engine.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for i := range 20 {
		create(t, e, fmt.Sprint("s", i))
	}
	for i := range 3000 {
		name := fmt.Sprint("s", i%20)
		body := fmt.Sprintf("%06d %s\n", i, bytes.Repeat([]byte{byte('a' + i%26)}, i%997))
		if a := add(t, e, name, body); a.Code != core.Appended {
			t.Fatal(a)
		}
		want[name] = append(want[name], body...)
	}
	for range 2 {
		for name, w := range want {
			if got := readAll(t, e, name); !bytes.Equal(got, w) {
				t.Fatalf("%s: %d bytes, want %d", name, len(got), len(w))
			}
		}
		t.Logf("%+v", e.Stats())
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if e, err = engine.Open(dir, opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
