package engine

import (
	"context"

	"github.com/snakream/snakream/internal/base"
)

// Ends appends to dst where the messages of [from, to) end, in order, at most that
// many. from is a boundary; the last end may lie beyond to only if to is none. It may
// read the disk: not on a poller.
func (e *Engine) Ends(ctx context.Context, dst []base.Offset, v *View, from, to base.Offset, most int) ([]base.Offset, error) {
	for at := from; at < to && most > 0; {
		err := e.atRun(ctx, v, at, false, func(b bounds) error {
			for at < min(b.end, to) && most > 0 {
				end, err := b.endOf(at)
				if err != nil {
					return err
				}
				if end <= at {
					return &base.CorruptionError{Detail: "a message ends before it begins"}
				}
				dst = append(dst, end)
				at = end
				most--
			}
			return nil
		})
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}
