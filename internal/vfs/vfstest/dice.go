package vfstest

import (
	"iter"
	"math/rand/v2"
)

// dice decides what a power cut keeps. Without a generator it keeps nothing that
// it need not.
type dice struct{ rng *rand.Rand }

// coin is true half of the time.
func (d *dice) coin() bool { return d.rng != nil && d.rng.IntN(2) == 0 }

// between returns a number in [lo, hi], often one of the two.
func (d *dice) between(lo, hi int64) int64 {
	if d.rng == nil || hi <= lo {
		return lo
	}
	switch d.rng.IntN(3) {
	case 0:
		return lo
	case 1:
		return hi
	default:
		return lo + d.rng.Int64N(hi-lo+1)
	}
}

// subset yields, ascending, the kept ones of n things. Fair coins alone would
// hardly ever lose one of a thousand, or all, so it varies the odds.
func (d *dice) subset(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if d.rng == nil || n == 0 {
			return
		}
		odds, special, flip := 0.0, -1, false
		switch d.rng.IntN(7) {
		case 0: // none
		case 1: // all
			odds = 1
		case 2: // only one
			special, flip = d.rng.IntN(n), true
		case 3: // all but one
			odds, special, flip = 1, d.rng.IntN(n), true
		case 4: // the first ones, as a torn sequential write
			odds, n = 1, d.rng.IntN(n+1)
		case 5:
			odds = 0.5
		default:
			odds = d.rng.Float64()
		}
		for i := range n {
			keep := d.rng.Float64() < odds
			if keep != (flip && i == special) && !yield(i) {
				return
			}
		}
	}
}
