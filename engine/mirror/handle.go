package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// swapTries bounds the compare-and-sets of one call. A second one is needed after an
// answer was lost, a third when what was lost arrives late; more only under attack.
const swapTries = 5

// A Handle is the one writer of a mirror, until somebody else takes the next epoch. Its
// methods must not be called concurrently.
//
// A compare-and-set whose answer is lost may have happened, or may still. Every content
// has its writer and a number of its own, so what is found in the store afterwards tells
// exactly: it is what was just written; or something earlier of the same handle, which
// is overwritten; or what was there before, and then the caller tries again; or of
// another writer, and then the handle is fenced, for ever.
type Handle struct {
	store   tiering.Store
	own     State // its identity, epoch, writer, and the sequence number used last
	objects uint64
	version tiering.Version // of the mirror, when it was last known to be of this handle
	fenced  error
}

// Commit makes s what the mirror says. It sets what says who wrote it and whose data
// it is. On return of nil the state is durable and was written under the handle's own
// epoch. ErrFenced says that another has taken over, as every later call then does.
// ErrInvalid says what is wrong with s, of which nothing was written. After any other
// error the mirror may say s, now or later, or what it said before; the next Commit
// finds out.
func (h *Handle) Commit(ctx context.Context, s State) error {
	if err := h.commit(ctx, s); err != nil {
		return fmt.Errorf("mirror: commit: %w", err)
	}
	return nil
}

func (h *Handle) commit(ctx context.Context, s State) error {
	if h.fenced != nil {
		return h.fenced
	}
	h.own.Sequence++
	h.sign(&s)
	if s.Objects < h.objects {
		return fmt.Errorf("%w: object numbers go back from %d to %d", ErrInvalid, h.objects, s.Objects)
	}
	if err := s.check(); err != nil {
		return err
	}
	data := Encode(&s)
	if len(data) > maxBytes {
		return fmt.Errorf("%w: %d bytes", ErrInvalid, len(data))
	}
	// From here on the mirror may say so, and the numbers may not be reserved again.
	h.objects = s.Objects
	for range swapTries {
		v, err := h.store.Swap(ctx, tiering.MirrorKey, data, h.version)
		if err == nil {
			h.version = v
			return nil
		}
		was := h.version
		found, lookErr := h.look(ctx)
		switch {
		case lookErr != nil && h.fenced != nil:
			return h.fenced
		case lookErr != nil:
			return errors.Join(err, lookErr)
		case found.Sequence == s.Sequence:
			return nil
		case h.version == was:
			return err
		}
	}
	return fmt.Errorf("the mirror changed %d times under this handle", swapTries)
}

// sign sets who writes s, and of what.
func (h *Handle) sign(s *State) {
	o := &h.own
	s.Node, s.Epoch, s.Writer, s.Sequence = o.Node, o.Epoch, o.Writer, o.Sequence
	s.History, s.Shards, s.Seed, s.Created = o.History, o.Shards, o.Seed, o.Created
}

// Check asks the store whether the mirror is still this handle's: nil, ErrFenced, or an
// error that says neither.
func (h *Handle) Check(ctx context.Context) error {
	err := h.fenced
	if err == nil {
		_, err = h.look(ctx)
	}
	if err != nil {
		return fmt.Errorf("mirror: check: %w", err)
	}
	return nil
}

// look reads the mirror, which is then known to be of this handle, or fences it.
func (h *Handle) look(ctx context.Context) (State, error) {
	s, v, err := load(ctx, h.store)
	switch {
	case errors.Is(err, tiering.ErrNotFound):
		// Somebody deleted it. Nobody may take that for a prefix that is free.
		return State{}, fmt.Errorf("the mirror is gone from %s: %w", h.store, err)
	case err != nil:
		return State{}, err
	case !s.isOf(&h.own):
		who := ""
		if s.identity() == h.own.identity() {
			who = " from another copy of this data directory"
		}
		h.fenced = fmt.Errorf("%w: %s is now written by node %x%s, epoch %d, history %d, last at %s; this was epoch %d",
			ErrFenced, h.store, s.Node, who, s.Epoch, s.History, stamp(s.Written), h.own.Epoch)
		return State{}, h.fenced
	}
	h.version = v
	return s, nil
}

// stamp is a time for people.
func stamp(t base.Millis) string { return time.UnixMilli(int64(t)).UTC().Format(time.RFC3339) }
