// Package uring sends to many sockets by one system call.
//
// It uses the kernel's io_uring for nothing else: a send that would block is not
// waited for, so that everything is over when the call returns, and nothing of the
// ring outlives it. Structures and flags are those of io_uring_setup(2) and
// io_uring_enter(2).
package uring

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxSends is the largest number of sends of a ring's call.
const MaxSends = 4096

const (
	opSend    = 26 // IORING_OP_SEND, since Linux 5.6
	getEvents = 1  // IORING_ENTER_GETEVENTS

	oneMapping  = 1 << 0 // IORING_FEAT_SINGLE_MMAP: both rings are in one mapping
	noDrop      = 1 << 1 // IORING_FEAT_NODROP: no completion is lost
	ringsOffset = 0      // IORING_OFF_SQ_RING
	sqesOffset  = 0x10000000

	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
)

// sqe is a submission, struct io_uring_sqe.
type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	msgFlags uint32
	userData uint64
	_        [3]uint64
}

// cqe is a completion, struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// Ring collects sends and carries them out together. It belongs to one goroutine at a time.
type Ring struct {
	fd     int
	rings  []byte // the mapping of both rings
	slots  []byte // that of sqes
	sqes   []sqe
	cqes   []cqe
	sqHead *uint32 // moved by the kernel
	sqTail *uint32 // moved by us
	cqHead *uint32 // moved by us
	cqTail *uint32 // moved by the kernel
	sqMask uint32
	cqMask uint32

	bufs    [][]byte // of the sends, so that they stay where they are
	results []int
	enter   func(fd, submit, wait int) unix.Errno // the system call, but in tests
}

// maxIdle bounds the system calls, one after the other, that bring nothing forward: the
// kernel may have no memory for them for a long time.
const maxIdle = 100

func enter(fd, submit, wait int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), getEvents, 0, 0)
	return e
}

// ErrUnsupported is returned by New where the kernel does not have, or does not allow,
// what is needed.
var ErrUnsupported = errors.New("uring: not available")

// New returns a ring for up to sends of 1 to MaxSends a call, after a trial. The error wraps
// ErrUnsupported, or is that of a system call.
func New(sends int) (*Ring, error) {
	if sends < 1 || sends > MaxSends {
		return nil, fmt.Errorf("uring: %d sends are not in 1..%d", sends, MaxSends)
	}
	var p params
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(sends), uintptr(unsafe.Pointer(&p)), 0)
	switch e {
	case 0:
	case unix.ENOSYS, unix.EPERM, unix.EACCES:
		return nil, fmt.Errorf("%w: io_uring_setup: %w", ErrUnsupported, e)
	default:
		return nil, fmt.Errorf("uring: io_uring_setup: %w", e)
	}
	unix.CloseOnExec(int(fd))
	r := &Ring{fd: int(fd), enter: enter}
	err := r.open(&p)
	if err == nil {
		err = r.try()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// open maps the rings.
func (r *Ring) open(p *params) error {
	if p.features&oneMapping == 0 || p.features&noDrop == 0 {
		return fmt.Errorf("%w: features %#x", ErrUnsupported, p.features)
	}
	const access, kind = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	var err error
	if r.rings, err = unix.Mmap(r.fd, ringsOffset, int(size), access, kind); err != nil {
		return fmt.Errorf("uring: map the rings: %w", err)
	}
	if r.slots, err = unix.Mmap(r.fd, sqesOffset, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), access, kind); err != nil {
		return fmt.Errorf("uring: map the entries: %w", err)
	}
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.slots[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.rings[p.cq.cqes])), p.cqEntries)
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[at])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	array := unsafe.Slice(word(p.sq.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i) // a slot is always used at its own place
	}
	return nil
}

// try sends one byte to ourselves: a kernel may know io_uring and not this use of it.
func (r *Ring) try() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("uring: socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	r.Add(pair[0], []byte{'x'})
	if n, err := r.Send(); err != nil || n[0] != 1 {
		return fmt.Errorf("%w: a trial returned %v, %w", ErrUnsupported, n, err)
	}
	return nil
}

// Add notes that b is to be sent to the socket fd. It may be called as often as New was
// told before Send is; b must not be
// empty, and neither b nor fd may change until Send has returned.
func (r *Ring) Add(fd int, b []byte) {
	n := uint32(len(r.bufs))
	r.sqes[(*r.sqTail+n)&r.sqMask] = sqe{
		opcode: opSend, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(&b[0]))), len: uint32(len(b)),
		msgFlags: sendFlags, userData: uint64(n),
	}
	r.bufs = append(r.bufs, b)
}

// Lost is the result of a send of which nobody knows whether it was carried out.
const Lost = -int(unix.EIO)

// Send carries out all that was added, in the order of Add. The results are in that
// order too, and valid until the next Add: bytes that the socket has taken, or a negated
// errno, EAGAIN when it takes nothing now. With an error the ring is of no more use, and a
// send that has not been begun has the result 0.
func (r *Ring) Send() (results []int, err error) {
	n := len(r.bufs)
	r.results = r.results[:0]
	for range n {
		r.results = append(r.results, Lost)
	}
	tail := *r.sqTail
	atomic.StoreUint32(r.sqTail, tail+uint32(n))
	for done, idle := 0, 0; done < n && err == nil; idle++ {
		left := tail + uint32(n) - atomic.LoadUint32(r.sqHead)
		e := r.enter(r.fd, int(left), n-done)
		got := r.reap()
		if done += got; got > 0 || atomic.LoadUint32(r.sqHead) != tail+uint32(n)-left {
			idle = 0
		}
		switch {
		case e != 0 && e != unix.EINTR && e != unix.EAGAIN && e != unix.EBUSY, idle == maxIdle:
			err = fmt.Errorf("uring: io_uring_enter: %w", e)
		}
	}
	for i := atomic.LoadUint32(r.sqHead) - tail; i < uint32(n); i++ {
		r.results[i] = 0 // the kernel has not taken it
	}
	runtime.KeepAlive(r.bufs)
	clear(r.bufs)
	r.bufs = r.bufs[:0]
	return r.results, err
}

// reap takes the completions that are there, and returns how many.
func (r *Ring) reap() int {
	head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
	for at := head; at != tail; at++ {
		c := &r.cqes[at&r.cqMask]
		r.results[c.userData] = int(c.res)
	}
	atomic.StoreUint32(r.cqHead, tail)
	return int(tail - head)
}

// Close gives the ring back. It must not be used any more.
func (r *Ring) Close() error {
	var errs []error
	for _, m := range [][]byte{r.rings, r.slots} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}
