package protocol

import "github.com/snakream/snakream/internal/base"

const (
	cursorEpoch    base.Millis = 1_728_432_000_000 // 2024-10-09T00:00:00Z
	cursorInterval base.Millis = 20_000

	// cursorJitter is 3600 seconds, the most that §10.1 lets a cursor run ahead by,
	// in intervals.
	cursorJitter = 3_600_000 / uint64(cursorInterval)

	// maxCursor bounds the cursors that we believe, so that one of ours can always
	// be greater.
	maxCursor = 1 << 62
)

// NextCursor returns the cursor of a live answer at the time now: the number of
// the 20-second interval, or, when the client's own is not below that, one strictly
// greater than the client's. jitter is any random number.
func NextCursor(now base.Millis, client uint64, has bool, jitter uint64) uint64 {
	current := uint64(max(now-cursorEpoch, 0) / cursorInterval)
	if !has || client < current {
		return current
	}
	return client + 1 + jitter%cursorJitter
}
