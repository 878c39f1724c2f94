// Package mirror keeps, as one object of the store, what a lost machine is restored
// from: the segments of all shards that the store holds, the object numbers that are
// reserved, and the objects that are to be deleted. It says whose the prefix is: one
// handle at a time changes it, by compare-and-set, and one that has been overtaken
// learns so and changes nothing any more.
package mirror

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// ErrTaken says that the prefix is not this node's to write to. The text says whose it
// is, since when, and what to do.
var ErrTaken = errors.New("the prefix belongs to another node")

// ErrCopy says, along with ErrTaken, that it is another copy of the same data directory
// that has the prefix: this one does not know who wrote the mirror.
var ErrCopy = errors.New("another copy of this data directory has it")

// ErrFenced says that the prefix was this handle's and no longer is. Nothing may be
// uploaded to it or deleted from it any more.
var ErrFenced = errors.New("the prefix has been taken over")

// ErrInvalid says that a state can't be the mirror's. Nothing was written.
var ErrInvalid = errors.New("invalid state")

// State is what a mirror says.
type State struct {
	// The writer. A restore and a start of the node take the next epoch, each as a Writer
	// of its own. Sequence counts what the writer wrote, so that no two contents of the
	// object are the same. A Handle sets these.
	Node     [16]byte
	Epoch    uint64
	Writer   Writer
	Sequence uint64

	// The data directory, as in its identity. A Handle sets these too.
	History uint16
	Shards  int
	Seed    uint64
	Created base.Millis

	Written base.Millis // when this was written, by the writer's clock
	Objects uint64      // object numbers below are reserved; 0 is none, so this begins at 1
	Shard   []Shard     // one for each of Shards
	Dead    []Dead      // objects that nothing refers to, each named once
}

// Shard is what the store holds of one shard.
type Shard struct {
	Segments    []manifest.Segment // all with an Object; each once
	Low         manifest.Position  // the last log record that the shard's own segments cover
	NextSegment base.SegmentID     // segment numbers below are reserved
	NextStream  uint64             // stream counters below are reserved
	// ExposedBytes and ExposedStreams are about what the shard had acknowledged when this
	// was written and the mirror does not hold: what a loss of the machine then lost.
	ExposedBytes, ExposedStreams int64
}

// Dead is an object that was taken out of the mirror, or never was in it, and that is
// to be deleted after the grace period.
type Dead struct {
	Key   string      // as tiering.SegmentKey and tiering.BlobKey make it
	Since base.Millis // when it was taken out
}

// Writer is who writes a mirror: one run of the program on one data directory. It is
// random, so that of copies of a directory, which have all else in common, each is told
// from the others by what it has called itself.
type Writer [16]byte

// NewWriter returns a writer that nobody else is.
func NewWriter() (w Writer, err error) {
	_, err = rand.Read(w[:])
	return w, err
}

// String returns the writer in hexadecimal.
func (w Writer) String() string { return hex.EncodeToString(w[:]) }

// Identity is what a data directory says of itself.
type Identity struct {
	Node    [16]byte
	History uint16
	Shards  int
	Seed    uint64
	Created base.Millis
}

// identity returns whose the state is.
func (s *State) identity() Identity {
	return Identity{Node: s.Node, History: s.History, Shards: s.Shards, Seed: s.Seed, Created: s.Created}
}

// isOf reports whether s was written by the writer of w, which no other one imitates.
func (s *State) isOf(w *State) bool { return s.Epoch == w.Epoch && s.Writer == w.Writer }

// check says what is wrong with s.
func (s *State) check() error {
	switch {
	case s.Shards < 1 || s.Shards > maxShards || len(s.Shard) != s.Shards:
		return fmt.Errorf("%w: %d shards, of %d", ErrInvalid, len(s.Shard), s.Shards)
	case s.Epoch == 0 || s.History == 0 || s.History > maxHistory:
		return fmt.Errorf("%w: epoch %d, history %d", ErrInvalid, s.Epoch, s.History)
	case s.Objects == 0:
		return fmt.Errorf("%w: no object numbers", ErrInvalid)
	case len(s.Dead) > maxDead:
		return fmt.Errorf("%w: %d dead objects", ErrInvalid, len(s.Dead))
	}
	live := map[tiering.Name]bool{}
	for i := range s.Shard {
		h := &s.Shard[i]
		if len(h.Segments) > maxSegments || h.ExposedBytes < 0 || h.ExposedStreams < 0 {
			return fmt.Errorf("%w: shard %d: %d segments, %d bytes of %d streams exposed", ErrInvalid, i, len(h.Segments), h.ExposedBytes, h.ExposedStreams)
		}
		seen := make(map[base.SegmentID]bool, len(h.Segments))
		for _, g := range h.Segments {
			switch {
			case g.ID == 0 || g.ID >= h.NextSegment || seen[g.ID]:
				return fmt.Errorf("%w: segment %d of shard %d is not reserved, or named twice", ErrInvalid, g.ID, i)
			case g.Object == 0 || g.Object >= s.Objects:
				return fmt.Errorf("%w: segment %d of shard %d has the object %d, which is not reserved", ErrInvalid, g.ID, i, g.Object)
			case g.Size < 0 || g.MinStream > g.MaxStream:
				return fmt.Errorf("%w: segment %+v", ErrInvalid, g)
			}
			seen[g.ID] = true
			live[tiering.Name{Kind: tiering.KindSegment, Shard: i, Segment: g.ID, Object: g.Object}] = true
		}
	}
	return s.checkDead(live)
}

// checkDead sees to it that nothing is to be deleted that is named, or named for two
// times, or not ours.
func (s *State) checkDead(live map[tiering.Name]bool) error {
	seen := make(map[tiering.Name]bool, len(s.Dead))
	for _, d := range s.Dead {
		n, ok := tiering.ParseKey(d.Key)
		if !ok || live[n] || seen[n] {
			return fmt.Errorf("%w: dead object %q is in use, named twice, or not one of ours", ErrInvalid, d.Key)
		}
		seen[n] = true
	}
	return nil
}

// Load reads the mirror. It returns tiering.ErrNotFound when there is none.
func Load(ctx context.Context, store tiering.Store) (State, tiering.Version, error) {
	s, v, err := load(ctx, store)
	if err != nil {
		return State{}, "", fmt.Errorf("mirror: load: %w", err)
	}
	return s, v, nil
}

func load(ctx context.Context, store tiering.Store) (State, tiering.Version, error) {
	data, v, err := store.Load(ctx, tiering.MirrorKey, maxBytes)
	if err != nil {
		return State{}, "", err
	}
	s, err := Decode(store.String()+" "+tiering.MirrorKey, data)
	if err != nil {
		return State{}, "", err
	}
	return s, v, nil
}
