package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// Claim makes w the writer of the prefix, for this data directory: it writes the first
// mirror, epoch 1, where there is none, and takes the next epoch where Admits says that
// it may, which fences the handle that had it. The state is what the mirror then says,
// durably. known are the writers that the directory has been, or may have been; w is one
// of them. The errors are those of Admits. After any other error it is open whether the
// epoch was taken; Claim again finds out, as the same writer or as one that knows it.
func Claim(ctx context.Context, store tiering.Store, want Identity, w Writer, known []Writer, now base.Millis) (*Handle, State, error) {
	h, s, err := claim(ctx, store, want, w, known, now)
	if err != nil {
		return nil, State{}, fmt.Errorf("mirror: claim %s: %w", store, err)
	}
	return h, s, nil
}

func claim(ctx context.Context, store tiering.Store, want Identity, w Writer, known []Writer, now base.Millis) (*Handle, State, error) {
	for range swapTries {
		s, v, err := load(ctx, store)
		switch {
		case errors.Is(err, tiering.ErrNotFound):
			s = State{
				Node: want.Node, History: want.History, Shards: want.Shards, Seed: want.Seed, Created: want.Created,
				Objects: 1, Shard: make([]Shard, max(want.Shards, 0)),
			}
		case err != nil:
			return nil, State{}, err
		case s.Writer != w || s.identity() != want:
			if err := s.Admits(want, known); err != nil {
				return nil, State{}, err
			}
		}
		h, s, err := take(ctx, store, s, v, w, now)
		if !errors.Is(err, tiering.ErrConflict) {
			return h, s, err
		}
	}
	return nil, State{}, fmt.Errorf("another process of this node claimed it %d times meanwhile", swapTries)
}

// Admits returns nil when a data directory may take the next epoch: the mirror is its
// own, written by a writer that it knows. ErrTaken says that it is of another node or
// another history, or, with ErrCopy, of another copy of this very directory.
func (s *State) Admits(want Identity, known []Writer) error {
	switch {
	case s.identity() != want:
		return taken(s, want)
	case !slices.Contains(known, s.Writer):
		return fmt.Errorf("%w: %w: it was started after they were one, as epoch %d, and last wrote at %s. "+
			"Start that one, and put this one aside. If that one is lost for good, restore what it has left into an empty directory with 'snakream restore'",
			ErrTaken, ErrCopy, s.Epoch, stamp(s.Written))
	}
	return nil
}

// TakeOver makes w, for a restored data directory, the writer of the prefix, with the
// next epoch and the history number after the old one; of by only Node and Created count,
// the rest stays as it was. It does so only if the mirror is still old, of version v.
// Otherwise somebody else wrote, and it returns ErrTaken. After any other error it is
// open whether the prefix was taken; the same call again finds out.
func TakeOver(ctx context.Context, store tiering.Store, old State, v tiering.Version, by Identity, w Writer, now base.Millis) (*Handle, State, error) {
	h, s, err := takeOver(ctx, store, old, v, by, w, now)
	if err != nil {
		return nil, State{}, fmt.Errorf("mirror: take over %s: %w", store, err)
	}
	return h, s, nil
}

func takeOver(ctx context.Context, store tiering.Store, old State, v tiering.Version, by Identity, w Writer, now base.Millis) (*Handle, State, error) {
	next := old
	next.Node, next.Created, next.History = by.Node, by.Created, old.History+1
	h, s, err := take(ctx, store, next, v, w, now)
	if !errors.Is(err, tiering.ErrConflict) {
		return h, s, err
	}
	found, _, err := load(ctx, store)
	switch {
	case err != nil:
		return nil, State{}, err
	case found.identity() == next.identity():
		// An earlier call did it, and its answer was lost. Or a copy was faster.
		return claim(ctx, store, next.identity(), w, nil, now)
	}
	return nil, State{}, fmt.Errorf("%w: while it was restored, node %x wrote to it, history %d, last at %s. "+
		"If that node is to be replaced, stop it and restore again", ErrTaken, found.Node, found.History, stamp(found.Written))
}

// take writes s as w, of the epoch after the one it has, in place of version v. ErrConflict
// says that another version is there, which is not by this call.
func take(ctx context.Context, store tiering.Store, s State, v tiering.Version, w Writer, now base.Millis) (*Handle, State, error) {
	s.Epoch++
	s.Sequence = 1
	s.Written = now
	s.Writer = w
	if err := s.check(); err != nil {
		return nil, State{}, err
	}
	h := &Handle{store: store, own: s, objects: s.Objects}
	h.own.Shard, h.own.Dead = nil, nil
	written, err := store.Swap(ctx, tiering.MirrorKey, Encode(&s), v)
	if err == nil {
		h.version = written
		return h, s, nil
	}
	found, at, lookErr := load(ctx, store)
	switch {
	case errors.Is(lookErr, tiering.ErrNotFound) && v == "":
		return nil, State{}, err
	case lookErr != nil:
		return nil, State{}, errors.Join(err, lookErr)
	case found.isOf(&s):
		h.version = at
		return h, s, nil
	case at == v:
		return nil, State{}, err
	}
	return nil, State{}, fmt.Errorf("%w: found epoch %d", tiering.ErrConflict, found.Epoch)
}

// taken says why the mirror s is not want's, and what to do.
func taken(s *State, want Identity) error {
	since := fmt.Sprintf("node %x, history %d, made %s, last wrote to it at %s", s.Node, s.History, stamp(s.Created), stamp(s.Written))
	switch {
	case s.Seed == want.Seed && s.History > want.History:
		return fmt.Errorf("%w: the data of this directory (node %x, history %d) was restored elsewhere: %s. "+
			"This directory is the old one: put it aside, or give it another prefix", ErrTaken, want.Node, want.History, since)
	case s.Node == want.Node:
		return fmt.Errorf("%w: it has another data directory of this node: %s, %d shards; this one is of history %d, made %s, %d shards. "+
			"Start the right directory, or give this one another prefix", ErrTaken, since, s.Shards, want.History, stamp(want.Created), want.Shards)
	}
	return fmt.Errorf("%w: %s; this is node %x. Give this node another prefix or, if that one is lost for good, "+
		"restore its data into an empty directory with 'snakream restore'", ErrTaken, since, want.Node)
}
