//go:build e2e

package trace

import (
	"encoding/binary"
	"fmt"
)

// The calls of an io_uring that sends to sockets, which is all that the tracer follows. A
// call that carries out several sends is as many events, which begin and end together.
const (
	ringSetup = "io_uring_setup"
	ringMap   = "mmap of an io_uring"
	ringSend  = "send"
)

// ring is where an io_uring has its submissions in the process's memory; 0: not known yet.
type ring struct {
	rings, entries          uint64 // the mappings
	head, tail, mask, array uint32 // places in rings
}

// Places in struct io_uring_params and struct io_uring_sqe, and a kind of submission.
const (
	paramsBytes = 120
	sqOffsets   = 40
	sqeBytes    = 64
	opSend      = 26

	ringsAt   = 0
	entriesAt = 0x10000000
)

// ringMade notes a new io_uring.
func (t *tracer) ringMade(e *event, fd int64) {
	if fd < 0 {
		return
	}
	p := t.bytes(e.buffer, paramsBytes)
	if len(p) < paramsBytes {
		t.fail(fmt.Errorf("the parameters of an io_uring can't be read"))
		return
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(p[sqOffsets+4*i:]) }
	t.rings[int(fd)] = &ring{head: word(0), tail: word(1), mask: word(2), array: word(6)}
}

// ringMapped notes where a part of it is.
func (t *tracer) ringMapped(e *event, at int64) {
	r := t.rings[int(e.n)]
	switch {
	case at < 0 && at > -4096:
	case e.off == ringsAt:
		r.rings = uint64(at)
	case e.off == entriesAt:
		r.entries = uint64(at)
	}
}

// sends returns the sends to clients that io_uring_enter is about to carry out.
func (t *tracer) sends(fd, n int) *event {
	r := t.rings[fd]
	if r == nil || r.rings == 0 || r.entries == 0 {
		t.fail(fmt.Errorf("the process enters an io_uring, descriptor %d, that the tracer does not know", fd))
		return nil
	}
	word := func(at uint64) uint32 {
		b := t.bytes(at, 4)
		if len(b) < 4 {
			t.fail(fmt.Errorf("an io_uring can't be read at %#x", at))
			return 0
		}
		return binary.NativeEndian.Uint32(b)
	}
	head, tail, mask := word(r.rings+uint64(r.head)), word(r.rings+uint64(r.tail)), word(r.rings+uint64(r.mask))
	var all []*event
	for ; head != tail && n > 0; head, n = head+1, n-1 {
		slot := word(r.rings + uint64(r.array) + 4*uint64(head&mask))
		b := t.bytes(r.entries+uint64(slot)*sqeBytes, sqeBytes)
		if len(b) < sqeBytes || b[0] != opSend {
			t.fail(fmt.Errorf("an io_uring carries out something else than a send: % x", b))
			return nil
		}
		to := int(int32(binary.NativeEndian.Uint32(b[4:])))
		path, known := t.path(to)
		if !known {
			continue
		}
		size := binary.NativeEndian.Uint32(b[24:])
		all = append(all, &event{
			call: ringSend, path: path, n: int64(size),
			data: t.bytes(le64(b[16:]), int(min(size, keepSocket))),
		})
	}
	if len(all) == 0 {
		return nil
	}
	all[0].also = all[1:]
	return all[0]
}
