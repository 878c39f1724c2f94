//go:build e2e

package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// event is a call on a file below the root or on a client's socket. Begin and end are
// positions in one order of all beginnings and returns of all threads.
type event struct {
	tid        int
	begin, end int      // end is 0 while it has not returned
	call       string   // as in the manual
	path       string   // of the file, as it was named when the call began, or the client's address
	to         string   // the new name
	off, n     int64    // what was asked for
	data       []byte   // what is written: all of it to a file, its beginning to a socket
	result     int64    // negative: the errno
	buffer     uint64   // accept4: where the address will be
	faked      *int64   // what the process is told instead of the result of a call
	also       []*event // io_uring_enter: the other sends of the call
}

// What is kept of written data, in bytes.
const (
	keepFile   = 4 << 20
	keepSocket = 64
)

// unfollowed are calls by which bytes could pass the tracer by.
var unfollowed = map[int]string{
	unix.SYS_PWRITEV:         "pwritev",
	unix.SYS_PWRITEV2:        "pwritev2",
	unix.SYS_SENDMMSG:        "sendmmsg",
	unix.SYS_SPLICE:          "splice",
	unix.SYS_COPY_FILE_RANGE: "copy_file_range",
	unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_MSYNC:           "msync",
}

// descriptorCalls are the calls on a descriptor, their first argument.
var descriptorCalls = map[int]string{
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_RECVFROM: "recvfrom",
	unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_SENDFILE: "sendfile",
	unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FSYNC: "fsync",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate",
	unix.SYS_CLOSE: "close",
}

// decode returns the event that a call is, or nil when it is of no interest.
func (t *tracer) decode(number int, arg []uint64) *event {
	if name, ok := unfollowed[number]; ok {
		t.fail(fmt.Errorf("the process calls %s, which the tracer does not follow: teach it", name))
		return nil
	}
	if name, ok := descriptorCalls[number]; ok {
		return t.decodeDescriptor(name, arg)
	}
	e := &event{}
	var known bool
	switch number {
	case unix.SYS_IO_URING_SETUP:
		return &event{call: ringSetup, buffer: arg[1]}
	case unix.SYS_MMAP:
		if r := t.rings[int(int32(arg[4]))]; r != nil {
			return &event{call: ringMap, n: int64(int32(arg[4])), off: int64(arg[5])}
		}
		return nil
	case unix.SYS_IO_URING_ENTER:
		return t.sends(int(int32(arg[0])), int(arg[1]))
	case unix.SYS_ACCEPT4:
		return &event{call: "accept4", buffer: arg[1]}
	case unix.SYS_OPENAT:
		if arg[2]&unix.O_CREAT == 0 {
			return nil
		}
		e.call = "create"
		e.path, known = t.relative(t.text(arg[1]))
	case unix.SYS_MKDIRAT:
		e.call = "mkdirat"
		e.path, known = t.relative(t.text(arg[1]))
	case unix.SYS_UNLINKAT:
		e.call = "unlinkat"
		e.path, known = t.relative(t.text(arg[1]))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		e.call = "rename"
		e.path, known = t.relative(t.text(arg[1]))
		e.to, _ = t.relative(t.text(arg[3]))
	}
	if !known {
		return nil
	}
	return e
}

func (t *tracer) decodeDescriptor(name string, arg []uint64) *event {
	fd := int(int32(arg[0]))
	path, known := t.path(fd)
	if !known {
		return nil
	}
	_, client := t.peers[fd]
	e := &event{call: name, path: path}
	switch name {
	case "read", "readv", "recvfrom":
		if !client {
			return nil
		}
	case "write", "sendto":
		keep := uint64(keepFile)
		if client {
			keep = keepSocket
		}
		e.n = int64(arg[2])
		e.data = t.bytes(arg[1], int(min(arg[2], keep)))
	case "writev":
		e.data = t.gathered(arg[1], int(arg[2]))
	case "pwrite64":
		e.n, e.off = int64(arg[2]), int64(arg[3])
		e.data = t.bytes(arg[1], int(min(arg[2], keepFile)))
	case "ftruncate":
		e.n = int64(arg[1])
	case "fallocate":
		e.off, e.n = int64(arg[2]), int64(arg[3])
	case "close":
		if client {
			delete(t.peers, fd) // the number may be somebody else's before this returns
		}
	}
	return e
}

// gathered reads the beginning of what an array of iovec holds.
func (t *tracer) gathered(at uint64, n int) []byte {
	var data []byte
	for i := range min(n, 8) {
		v := t.bytes(at+uint64(i)*16, 16)
		if len(v) < 16 || len(data) >= keepSocket {
			break
		}
		size := int(min(le64(v[8:]), uint64(keepSocket)))
		data = append(data, t.bytes(le64(v), size)...)
	}
	return data
}

func le64(b []byte) uint64 {
	var n uint64
	for i := range 8 {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// output reports whether the call sends bytes, if its path is a client's.
func (e event) output() bool {
	switch e.call {
	case "write", "writev", "sendto", "sendmsg", "sendfile", ringSend:
		return true
	}
	return false
}

func (e event) isSync() bool { return e.call == "fdatasync" || e.call == "fsync" }

// synced reports whether it is a successful sync of path.
func (e event) synced(path string) bool {
	return e.isSync() && e.path == path && e.end != 0 && e.result == 0
}

// changes reports whether it changes what a file holds, so that a sync must follow.
func (e event) changes() bool {
	switch e.call {
	case "pwrite64", "ftruncate", "fallocate":
		return true
	}
	return e.output() && strings.HasPrefix(e.path, "data/")
}

// whole reports whether it has done all that was asked.
func (e event) whole() bool {
	if e.call == "pwrite64" || e.call == "write" {
		return e.result == e.n
	}
	return e.result >= 0
}

func (e event) String() string {
	end, result := "…", "?"
	if e.end != 0 {
		end = fmt.Sprint(e.end)
		result = fmt.Sprint(e.result)
		if e.result < 0 {
			result = syscall.Errno(-e.result).Error()
		}
	}
	s := fmt.Sprintf("%6d–%-6s thread %-7d %-9s %s", e.begin, end, e.tid, e.call, e.path)
	switch {
	case e.to != "":
		s += " → " + e.to
	case e.call == "pwrite64" || e.call == "fallocate":
		s += fmt.Sprintf(" [%d, %d)", e.off, e.off+e.n)
	}
	switch {
	case len(e.data) > 0 && len(bytes.Trim(e.data, "\x00")) == 0:
		s += " zeros"
	case e.output():
		s += fmt.Sprintf(" %.24q", e.data)
	}
	return s + " = " + result
}

// around prints the events near some positions, for messages.
func around(events []event, positions ...int) string {
	const near = 12
	var b strings.Builder
	skipped := false
	for _, e := range events {
		if !slices.ContainsFunc(positions, func(p int) bool { return p-near <= max(e.begin, e.end) && e.begin <= p+near }) {
			skipped = true
			continue
		}
		if skipped {
			b.WriteString("     …\n")
			skipped = false
		}
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
