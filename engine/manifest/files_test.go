package manifest

import (
	"errors"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// Two files, the first of which is whole and the second damaged: both are told of, and
// the first can be made to count again.
func TestFilesAndSelect(t *testing.T) {
	fs := vfstest.New()
	if err := Create(fs, "m"); err != nil {
		t.Fatal(err)
	}
	m, _, err := Open(fs, "m")
	if err == nil {
		err = m.Apply(Edit{ReserveStreams: 77, ReserveSegments: 5})
	}
	if err == nil {
		err = m.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := createLog(fs, "m", 2, 9, State{NextStream: 99})
	if err == nil {
		err = errors.Join(l.f.Close(), writeCurrent(fs, "m", 2))
	}
	if err == nil {
		err = fs.Corrupt("m/MANIFEST-000002", 4100, func(b []byte) { b[0]++ })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(fs, "m"); !errors.As(err, new(*base.CorruptionError)) {
		t.Fatalf("the damaged file: %v", err)
	}
	fs.StartTrace()
	all, err := Files(fs, "m")
	if err != nil || len(all) != 2 || all[0].Err != nil || all[0].State.NextStream != 77 || !errors.As(all[1].Err, new(*base.CorruptionError)) {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := Select(fs, "m", 2); !errors.As(err, new(*base.CorruptionError)) {
		t.Errorf("the damaged file was selected: %v", err)
	}
	if trace := fs.Trace(); len(trace) > 0 {
		t.Errorf("something was changed: %q", trace)
	}
	if err := Select(fs, "m", 1); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(fs, "m"); err != nil || s.NextStream != 77 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Files(fs, "nowhere"); err == nil {
		t.Error("a directory that is not there has files")
	}
}
