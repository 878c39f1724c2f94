package main

import (
	"math/bits"
	"time"
)

// subBits gives each power of two 64 buckets: a quantile is at most 1.6 % off.
const subBits = 6

// histogram counts durations in logarithmic buckets. The zero value is ready.
type histogram struct {
	buckets [(64 - subBits + 1) << subBits]uint32
	count   uint64
	max     int64
}

// add counts one duration in nanoseconds; a negative one counts as zero.
func (h *histogram) add(ns int64) {
	ns = max(ns, 0)
	h.buckets[bucketOf(uint64(ns))]++
	h.count++
	h.max = max(h.max, ns)
}

// bucketOf maps values below 2^subBits to themselves and larger ones to their
// exponent and their leading bits.
func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// bucketTop is the largest value of a bucket.
func bucketTop(i int) int64 {
	if i < 1<<subBits {
		return int64(i)
	}
	shift := i>>subBits - 1
	return int64(uint64(i-shift<<subBits+1)<<shift - 1)
}

// quantile returns the value below or at which the share q of all durations lies.
func (h *histogram) quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(q * float64(h.count))
	var seen uint64
	for i, n := range h.buckets {
		seen += uint64(n)
		if seen > rank {
			return time.Duration(min(bucketTop(i), h.max))
		}
	}
	return time.Duration(h.max)
}

// merge adds all that o counted.
func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}
