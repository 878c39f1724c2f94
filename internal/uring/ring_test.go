package uring

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func newRing(t testing.TB, sends int) *Ring {
	t.Helper()
	r, err := New(sends)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err) // what is built on it goes another way then
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// pair returns two ends of a connection.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) })
	return p[0], p[1]
}

func received(t testing.TB, fd int) string {
	t.Helper()
	var all []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			return string(all)
		}
		all = append(all, buf[:n]...)
	}
}

// Calls of any size, many times around the ring, send each slice to its own socket.
func TestSend(t *testing.T) {
	const most = 16
	r := newRing(t, most)
	var from, to [most]int
	for i := range most {
		from[i], to[i] = pair(t)
	}
	for round := range 200 {
		n := round % (most + 1)
		for i := range n {
			r.Add(from[i], fmt.Append(nil, round, ":", i))
		}
		results, err := r.Send()
		if err != nil || len(results) != n {
			t.Fatalf("%v, %v", results, err)
		}
		for i, got := range results {
			want := fmt.Sprint(round, ":", i)
			if s := received(t, to[i]); got != len(want) || s != want {
				t.Fatalf("round %d: socket %d took %d bytes, %q", round, i, got, s)
			}
		}
	}
}

// A socket that takes nothing, or a part, does not hold up the others, and one that is
// broken does not break them.
func TestSendToOthers(t *testing.T) {
	r := newRing(t, 8)
	full, _ := pair(t)
	for {
		if _, err := unix.Write(full, make([]byte, 4096)); err != nil {
			break
		}
	}
	narrow, _ := pair(t)
	gone, other := pair(t)
	_ = unix.Shutdown(other, unix.SHUT_RDWR)
	good, end := pair(t)
	r.Add(full, []byte("full"))
	r.Add(narrow, bytes.Repeat([]byte("x"), 64<<20))
	r.Add(gone, []byte("gone"))
	r.Add(1<<20, []byte("no descriptor"))
	r.Add(good, []byte("good"))
	n, err := r.Send()
	if err != nil {
		t.Fatal(err)
	}
	if n[0] != -int(unix.EAGAIN) || n[1] <= 0 || n[1] >= 64<<20 || n[2] != -int(unix.EPIPE) || n[3] != -int(unix.EBADF) || n[4] != 4 {
		t.Errorf("the results are %v", n)
	}
	if s := received(t, end); s != "good" {
		t.Errorf("the last one got %q", s)
	}
}

// A ring that fails says so, and says which sends have not begun.
func TestSendFails(t *testing.T) {
	r, err := New(4)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t)
	fd := r.fd
	r.fd = a // no ring
	r.Add(a, []byte("x"))
	n, err := r.Send()
	if err == nil || len(n) != 1 || n[0] != 0 {
		t.Errorf("%v, %v", n, err)
	}
	if s := received(t, b); s != "" {
		t.Errorf("%q was sent", s)
	}
	r.fd = fd
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	r := newRing(t, 8)
	a, b := pair(t)
	out, in := []byte("answer"), make([]byte, 100)
	n := testing.AllocsPerRun(100, func() {
		for range 4 {
			r.Add(a, out)
		}
		if _, err := r.Send(); err != nil {
			t.Error(err)
		}
		_, _ = unix.Read(b, in)
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, n := range []int{-1, 0, MaxSends + 1} {
		if r, err := New(n); err == nil || r != nil {
			t.Errorf("a ring for %d sends", n)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	const n = 64
	r := newRing(b, n)
	var from, to [n]int
	for i := range n {
		from[i], to[i] = pair(b)
	}
	out, in := bytes.Repeat([]byte("x"), 200), make([]byte, 4096)
	drain := func() {
		for _, fd := range to {
			_, _ = unix.Read(fd, in)
		}
	}
	b.Run("together", func(b *testing.B) {
		for b.Loop() {
			for _, fd := range from {
				r.Add(fd, out)
			}
			if _, err := r.Send(); err != nil {
				b.Fatal(err)
			}
			drain()
		}
	})
	b.Run("one by one", func(b *testing.B) {
		for b.Loop() {
			for _, fd := range from {
				if _, err := unix.Write(fd, out); err != nil {
					b.Fatal(err)
				}
			}
			drain()
		}
	})
}

// A kernel that never has the memory to go on is not asked for ever, and one that has it
// late is not given up.
func TestSendWithoutProgress(t *testing.T) {
	r := newRing(t, 4)
	a, b := pair(t)
	for _, refusals := range []int{maxIdle, 1 << 30} {
		left := refusals
		r.enter = func(fd, submit, wait int) unix.Errno {
			if left--; left >= 0 {
				return unix.EAGAIN
			}
			return enter(fd, submit, wait)
		}
		r.Add(a, []byte("text"))
		n, err := r.Send()
		if late := refusals == maxIdle; late && (err != nil || n[0] != 4 || received(t, b) != "text") {
			t.Errorf("late: %v, %v", n, err)
		} else if !late && (!errors.Is(err, unix.EAGAIN) || n[0] != 0 || received(t, b) != "") {
			t.Errorf("never: %v, %v", n, err)
		}
	}
}
