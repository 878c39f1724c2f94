package protocol

import "bytes"

// ByteRange is the one range that a Range header asks for.
type ByteRange struct {
	Set    bool
	Suffix bool  // the last N bytes
	N      int64 // with Suffix
	First  int64 // otherwise: the first byte
	Last   int64 // and the last one, included
}

const maxInt64 = 1<<63 - 1

// Resolve returns the part [start, end) of size bytes that the range asks for. It
// reports false when there is no such part.
func (b ByteRange) Resolve(size int64) (start, end int64, ok bool) {
	if b.Suffix {
		start = max(size-b.N, 0)
		return start, size, start < size
	}
	if b.First >= size {
		return 0, 0, false
	}
	return b.First, min(b.Last, size-1) + 1, true
}

// parseRange reads a Range header. Several ranges, other units, and what is no range
// at all count as absent, as RFC 9110 §14.2 wants it.
func parseRange(value []byte) (b ByteRange) {
	unit, set, ok := bytes.Cut(value, []byte{'='})
	if !ok || !equalFold(trim(unit), "bytes") {
		return b
	}
	first, last, ok := bytes.Cut(trim(set), []byte{'-'})
	if !ok {
		return b
	}
	first, last = trim(first), trim(last)
	if len(first) == 0 {
		n, ok := saturating(last)
		return ByteRange{Set: ok, Suffix: ok, N: n}
	}
	b.Last = maxInt64
	if b.First, ok = saturating(first); ok && len(last) > 0 {
		b.Last, ok = saturating(last)
	}
	if b.Set = ok && b.First <= b.Last; !b.Set {
		return ByteRange{}
	}
	return b
}
