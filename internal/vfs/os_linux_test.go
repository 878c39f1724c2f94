package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFullDiskIsNoSpace(t *testing.T) {
	f, err := OS.OpenAppend("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
}

func TestMapped(t *testing.T) {
	for _, errno := range []error{unix.ENOSPC, unix.EDQUOT} {
		err := mapped(fmt.Errorf("op: %w", &fs.PathError{Op: "write", Path: "x", Err: errno}))
		if !errors.Is(err, ErrNoSpace) || !errors.Is(err, errno) {
			t.Errorf("%v does not match both", err)
		}
		if pe, ok := errors.AsType[*fs.PathError](err); !ok || pe.Path != "x" {
			t.Errorf("%v has lost its path", err)
		}
	}
	if err := mapped(unix.EIO); errors.Is(err, ErrNoSpace) {
		t.Error("EIO became ErrNoSpace")
	}
	if mapped(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestControlRepeatsOnlyInterruptedCalls(t *testing.T) {
	f, err := open(filepath.Join(t.TempDir(), "a"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var calls int
	err = control(f.raw, func(int) error {
		calls++
		if calls < 3 {
			return unix.EINTR
		}
		return unix.EIO
	})
	if calls != 3 || !errors.Is(err, unix.EIO) {
		t.Errorf("%d calls, %v; want 3 and EIO", calls, err)
	}
}

func TestFillInsteadOfFallocate(t *testing.T) {
	f, err := open(filepath.Join(t.TempDir(), "a"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	const size = 1<<20 + 100
	if err := f.fill(size); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Size(); got != size || err != nil {
		t.Errorf("size %d, %v", got, err)
	}
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "abc\x00" {
		t.Errorf("begins with %q, %v", b, err)
	}
	if err := f.fill(10); err != nil {
		t.Errorf("filling less than there is: %v", err)
	}
}

func TestLockIsOnTheNamedFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lock")
	held, err := OS.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, filePerm); err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := OS.Rename(filepath.Join(dir, "other"), name); err != nil {
		t.Fatal(err)
	}
	if err := lock(f); !errors.Is(err, ErrLocked) {
		t.Errorf("locked a file that its name no longer leads to: %v", err)
	}
}

func TestDescriptorsAreNotInherited(t *testing.T) {
	f, err := open(filepath.Join(t.TempDir(), "a"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, _ := f.Fd()
	flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: close-on-exec is missing", flags, err)
	}
}
