package blob

import (
	"errors"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
	"github.com/snakream/snakream/segment"
)

// inspect runs Inspect, which must change nothing.
func inspect(t *testing.T, mem *vfstest.MemFS, fn func(Item)) {
	t.Helper()
	mem.StartTrace()
	must(t, Inspect(mem, testDir, fn))
	if trace := mem.Trace(); len(trace) > 0 {
		t.Errorf("Inspect changed something: %q", trace)
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*base.CorruptionError](err)
	return ok
}

// Every blob is compared with its name, and everything else is told of.
func TestInspect(t *testing.T) {
	mem, s := newStore(t)
	good := mustUpload(t, s, content("good", 200_000))
	hurt := mustUpload(t, s, content("hurt", 200_000))
	empty := mustUpload(t, s, nil)
	must(t, s.Close())
	must(t, mem.Corrupt(Path(testDir, hurt), 100_000, func(b []byte) { b[0]++ }))
	// A whole segment, of other bytes than its name says.
	wrong := digest([]byte("right"))
	must(t, mem.MkdirAll(testDir+"/"+wrong.String()[:2]))
	w, err := segment.Create(mem, Path(testDir, wrong), segmentID, 10, kindBlob)
	must(t, err)
	must(t, w.Begin(streamID, 0, 0))
	must(t, w.Payload([]byte("wrong")))
	must(t, w.Boundary(base.Offset(5)))
	_, err = w.Finish()
	must(t, err)
	for _, path := range []string{testDir + "/photo", testDir + "/tmp/0000000001", testDir + "/" + wrong.String()[:2] + "/x"} {
		f, err := mem.Create(path)
		must(t, err)
		must(t, f.Close())
	}
	got := map[string]Item{}
	inspect(t, mem, func(i Item) { got[i.Path] = i })
	if len(got) != 7 {
		t.Errorf("%d items: %v", len(got), got)
	}
	for _, d := range []Digest{good, empty} {
		if i := got[Path(testDir, d)]; i.Err != nil || i.Digest != d || !i.Named || i.Temp {
			t.Errorf("%v: %+v", d, i)
		}
	}
	if got[Path(testDir, good)].Size != 200_000 {
		t.Errorf("%+v", got[Path(testDir, good)])
	}
	for _, d := range []Digest{hurt, wrong} {
		if i := got[Path(testDir, d)]; !isCorrupt(i.Err) || !i.Known() || i.Named != (d == hurt) {
			t.Errorf("%v: %+v", d, i)
		}
	}
	for path, temp := range map[string]bool{testDir + "/photo": false, testDir + "/tmp/0000000001": true, testDir + "/" + wrong.String()[:2] + "/x": false} {
		if i, ok := got[path]; !ok || i.Known() || i.Temp != temp || i.Err != nil {
			t.Errorf("%s: %+v", path, i)
		}
	}
	// Without a journal nothing is named, and all else is as before.
	must(t, mem.Remove(JournalPath(testDir)))
	inspect(t, mem, func(i Item) {
		if i.Named || (i.Err == nil) != (got[i.Path].Err == nil) {
			t.Errorf("%+v", i)
		}
	})
	if err := Inspect(mem, "nowhere", nil); err == nil {
		t.Error("a store that is not there was inspected")
	}
}
