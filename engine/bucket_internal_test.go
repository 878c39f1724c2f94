package engine

import (
	"log/slog"
	"testing"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

func createIn(bucket, name string) core.Event {
	return core.Event{Op: core.OpCreate, Bucket: bucket, Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1}
}

func openSmall(t *testing.T, fs *vfstest.MemFS) *Engine {
	t.Helper()
	e, err := Open("data", Options{
		FS: fs, Shards: 1, WALFileBytes: 64 << 10, WALMaxBytes: 128 << 10, MemtableBytes: 12 << 10, SegmentMaxBytes: 64 << 10,
		MaxBodyBytes: 4 << 10, MinFreeDisk: 1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// A fork that has outlived its source, as a restore may leave one, is deleted by a start and is
// not counted after that.
func TestOutlivedForksAreNotCounted(t *testing.T) {
	fs := vfstest.New()
	e := openSmall(t, fs)
	must := func(ev core.Event, want core.Code) core.Answer {
		t.Helper()
		o := &Op{Event: ev}
		if err := e.Do(o); err != nil || o.Answer.Code != want {
			t.Fatalf("%s: %d, %v", ev.Name, o.Answer.Code, err)
		}
		return o.Answer
	}
	source := must(createIn("made", "source"), core.Created).Stream
	ev := createIn("made", "fork")
	ev.Fork = &core.ForkSpec{Bucket: "made", Name: "source"}
	fork := must(ev, core.Created).Stream
	if err := e.doAt(e.shards[0], &Op{Event: core.Event{Op: core.OpUnpin, Stream: source, ForkID: fork}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openSmall(t, fs)
	must(createIn("made", "another"), core.Created) // behind the fork's end
	if info, ok := e.Bucket([]byte("made")); !ok || info.Streams != 2 {
		t.Errorf("%d streams instead of 2", info.Streams)
	}
	if st := e.Lookup([]byte("made"), []byte("fork")); st != nil && st.View() != nil {
		t.Error("the fork is there")
	}
}

// A chain whose next step a shard does not take any more says that the server is shutting
// down, as any other write does.
func TestChainsWhenNothingIsTaken(t *testing.T) {
	e := openSmall(t, vfstest.New())
	if err := e.Do(&Op{Event: createIn("made", "source")}); err != nil {
		t.Fatal(err)
	}
	for _, s := range e.shards {
		s.mu.Lock()
		s.draining = true
		s.mu.Unlock()
	}
	fork := createIn("made", "fork")
	fork.Fork = &core.ForkSpec{Bucket: "made", Name: "source"}
	for what, ev := range map[string]core.Event{"a fork": fork, "a stream in a bucket that it makes": createIn("new", "s")} {
		o := &Op{Event: ev}
		if err := e.Do(o); err != nil || o.Answer.Code != core.ShuttingDown {
			t.Errorf("%s: %d, %v", what, o.Answer.Code, err)
		}
	}
}
