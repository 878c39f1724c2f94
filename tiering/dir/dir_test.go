package dir

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/storetest"
)

func open(t *testing.T, root string) *Store {
	t.Helper()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) tiering.Store { return open(t, t.TempDir()) })
}

// TestTwoStores races two stores on one directory, as two processes would.
func TestTwoStores(t *testing.T) {
	root := t.TempDir()
	stores := []*Store{open(t, root), open(t, root)}
	var v tiering.Version
	for round := range 50 {
		type result struct {
			v   tiering.Version
			err error
		}
		results := make(chan result)
		for i, s := range stores {
			go func() {
				v, err := s.Swap(t.Context(), "mirror", []byte{byte(round), byte(i)}, v)
				results <- result{v, err}
			}()
		}
		wins := 0
		now := v
		for range stores {
			switch r := <-results; {
			case r.err == nil:
				wins++
				now = r.v
			case !errors.Is(r.err, tiering.ErrConflict):
				t.Fatal(r.err)
			}
		}
		if wins != 1 {
			t.Fatalf("round %d: %d winners", round, wins)
		}
		v = now
	}
}

// TestKeys puts under names that would be outside, or in the way of the store itself.
func TestKeys(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "root")
	s := open(t, root)
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"", ".", "..", "../x", "a/../../x", "a/./b", "/x", "a//b", "a/", "x\x00y", "link/x", private, private + "/lock", private + "/tmp-1",
	} {
		if err := s.Put(t.Context(), key, tiering.BytesBody([]byte("x"))); err == nil {
			t.Errorf("put %q was accepted", key)
		}
		if _, err := s.Swap(t.Context(), key, []byte("x"), ""); err == nil {
			t.Errorf("swap %q was accepted", key)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside of the root there is %v, %v", entries, err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Error("refused puts left", info, err)
	}
}

// TestLeftBehind has temporary files of a writer that was killed long ago and of one
// that may still be at it.
func TestLeftBehind(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	stale, fresh := filepath.Join(root, tempName+"stale"), filepath.Join(root, tempName+"fresh")
	for _, name := range []string{stale, fresh} {
		if err := os.WriteFile(name, []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * tempAge)
	if err := os.Chtimes(stale, past, past); err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error(err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Error("listed", info, err)
	}
}

// TestNothingStaysBehind looks for temporary files after puts of all outcomes.
func TestNothingStaysBehind(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	body := tiering.BytesBody(make([]byte, 3*chunk))
	body.R = cancelling{R: body.R, cancel: cancel}
	if err := s.Put(ctx, "cancelled", body); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	for _, data := range []string{"one", "one", "two"} {
		_ = s.Put(t.Context(), "k", tiering.BytesBody([]byte(data))) // accepted, accepted, refused
	}
	for _, old := range []tiering.Version{"", "", versionOf([]byte("a")), versionOf([]byte("b"))} {
		_, _ = s.Swap(t.Context(), "mirror", []byte("a"), old) // accepted, refused, accepted, refused
	}
	entries, err := os.ReadDir(filepath.Join(root, private))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "tmp-") {
			t.Error("left behind:", e.Name())
		}
	}
}

// cancelling is a source whose first read ends the context of its reader.
type cancelling struct {
	R      io.ReaderAt
	cancel func()
}

// ReadAt implements io.ReaderAt.
func (c cancelling) ReadAt(p []byte, off int64) (int, error) {
	c.cancel()
	return c.R.ReadAt(p, off)
}

// TestLockOfAnother lets another process, by a file of its own, hold the lock.
func TestLockOfAnother(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	f, err := os.OpenFile(filepath.Join(root, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*lockRetry)
	defer cancel()
	if _, err := s.Swap(ctx, "mirror", []byte("x"), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("swap while another holds the lock: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(t.Context(), "mirror", []byte("x"), ""); err != nil {
		t.Errorf("swap after it let go: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"", file, filepath.Join(t.TempDir(), "not", "there")} {
		if _, err := Open(root); !errors.Is(err, tiering.ErrConfig) {
			t.Errorf("open %q: %v", root, err)
		}
	}
}
