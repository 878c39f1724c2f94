package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// Claim makes this data directory the writer of the prefix: it writes the first mirror,
// epoch 1, where there is none, and takes the next epoch where the mirror is its own
// from before, which fences the handle that had it. The state is what the mirror then
// says, durably. ErrTaken says that the mirror is of another node or another history.
// After any other error it is open whether the epoch was taken; Claim again finds out.
func Claim(ctx context.Context, store tiering.Store, want Identity, now base.Millis) (*Handle, State, error) {
	h, s, err := claim(ctx, store, want, now)
	if err != nil {
		return nil, State{}, fmt.Errorf("mirror: claim %s: %w", store, err)
	}
	return h, s, nil
}

func claim(ctx context.Context, store tiering.Store, want Identity, now base.Millis) (*Handle, State, error) {
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
		case s.identity() != want:
			return nil, State{}, taken(&s, want)
		}
		h, s, err := take(ctx, store, s, v, now)
		if !errors.Is(err, tiering.ErrConflict) {
			return h, s, err
		}
	}
	return nil, State{}, fmt.Errorf("another process of this node claimed it %d times meanwhile", swapTries)
}

// TakeOver makes a restored data directory the writer of the prefix, with the next epoch
// and the history number after the old one; of by only Node and Created count, the
// rest stays as it was. It does so only if the mirror is still old, of version v.
// Otherwise somebody else wrote, and it returns ErrTaken. After any other error it is
// open whether the prefix was taken; the same call again finds out.
func TakeOver(ctx context.Context, store tiering.Store, old State, v tiering.Version, by Identity, now base.Millis) (*Handle, State, error) {
	h, s, err := takeOver(ctx, store, old, v, by, now)
	if err != nil {
		return nil, State{}, fmt.Errorf("mirror: take over %s: %w", store, err)
	}
	return h, s, nil
}

func takeOver(ctx context.Context, store tiering.Store, old State, v tiering.Version, by Identity, now base.Millis) (*Handle, State, error) {
	next := old
	next.Node, next.Created, next.History = by.Node, by.Created, old.History+1
	h, s, err := take(ctx, store, next, v, now)
	if !errors.Is(err, tiering.ErrConflict) {
		return h, s, err
	}
	found, _, err := load(ctx, store)
	switch {
	case err != nil:
		return nil, State{}, err
	case found.identity() == next.identity():
		// An earlier call did it, and its answer was lost.
		return claim(ctx, store, next.identity(), now)
	}
	return nil, State{}, fmt.Errorf("%w: while it was restored, node %x wrote to it, history %d, last at %s. "+
		"If that node is to be replaced, stop it and restore again", ErrTaken, found.Node, found.History, stamp(found.Written))
}

// take writes s, of the epoch after the one it has, in place of version v. ErrConflict
// says that another version is there, which is not by this call.
func take(ctx context.Context, store tiering.Store, s State, v tiering.Version, now base.Millis) (*Handle, State, error) {
	s.Epoch++
	s.Sequence = 1
	s.Written = now
	if _, err := rand.Read(s.Writer[:]); err != nil {
		return nil, State{}, err
	}
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
