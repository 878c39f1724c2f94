package engine

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// Stream is the place of a name in its shard. Incarnations come and go under it;
// what readers see of the present one is its view. All methods are safe for
// concurrent use.
type Stream struct {
	shard *shard
	key   string // bucket, 0x00, stream
	view  atomic.Pointer[View]
	watch atomic.Pointer[watchList]

	// The turn's, as all that follows.
	head  *core.Head // nil: the name is free
	mark  uint64     // the last batch that touched it
	timer int        // place among the shard's timers, from 1; 0: none
	inc   *incarnation
}

// View is what is durable about a stream. Immutable.
type View struct {
	core.View
	inc *incarnation // nil unless the stream has a deadline or is a fork
}

// Name returns the bucket and the stream's name in it.
func (s *Stream) Name() (bucket, stream string) {
	bucket, stream, _ = strings.Cut(s.key, "\x00")
	return bucket, stream
}

// View returns what is durable about the stream now, or nil when there is none of
// this name.
func (s *Stream) View() *View { return s.view.Load() }

// key appends the form under which names are looked up and spread over shards. A
// bucket never holds a zero byte, so no two names share a key.
func appendKey[T string | []byte](dst []byte, bucket, stream T) []byte {
	dst = append(dst, bucket...)
	dst = append(dst, 0)
	return append(dst, stream...)
}

func (e *Engine) shardOf(key []byte) *shard {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	return e.shards[bin.SumSeeded(e.id.Seed, key)%uint64(len(e.shards))]
}

// Lookup finds the place of a name, or nil when no stream has it. It allocates
// nothing for names up to 240 bytes.
func (e *Engine) Lookup(bucket, stream []byte) *Stream {
	var buf [256]byte
	key := appendKey(buf[:0], bucket, stream)
	return e.shardOf(key).names.find(key)
}

const nameStripes = 64

// nameTable maps names to places, and keeps them in order for listings. The turn
// writes, everybody reads.
type nameTable struct {
	stripes [nameStripes]struct {
		mu sync.RWMutex
		m  map[string]*Stream
	}
	order orderedNames
}

func stripeOf(key []byte) uint64 { return bin.Sum(key) % nameStripes }

func (t *nameTable) find(key []byte) *Stream {
	s := &t.stripes[stripeOf(key)]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.m[string(key)]
}

// place returns the place of a name, making it if need be. Turn only.
func (t *nameTable) place(sh *shard, key []byte) *Stream {
	s := &t.stripes[stripeOf(key)]
	if st := s.m[string(key)]; st != nil {
		return st
	}
	st := &Stream{shard: sh, key: string(key)}
	s.mu.Lock()
	if s.m == nil {
		s.m = map[string]*Stream{}
	}
	s.m[st.key] = st
	s.mu.Unlock()
	t.order.insert(st)
	return st
}

// drop frees the place of a name that no stream has. Turn only.
func (t *nameTable) drop(st *Stream) {
	key := []byte(st.key)
	s := &t.stripes[stripeOf(key)]
	s.mu.Lock()
	mine := s.m[st.key] == st
	if mine {
		delete(s.m, st.key)
	}
	s.mu.Unlock()
	if mine {
		t.order.remove(st)
	}
}

// incarnation is what readers and the turn share about one incarnation of a
// stream that has a deadline or is a fork.
type incarnation struct {
	// deadline is when the stream expires, by all that has been read and written so
	// far; negative once an expiry has sealed it. 0: never.
	deadline atomic.Int64
	// recorded is the deadline that a restart would find.
	recorded atomic.Int64
	// touching says that a touch is on its way.
	touching atomic.Bool
	// lineage says whose bytes a fork begins with.
	lineage *ancestor
}

// ancestor: bytes below end, and at or above the end of the one before it, are
// the stream's. Immutable; forks of one stream share what is before.
type ancestor struct {
	id        base.StreamID
	end       base.Offset
	endRecord uint64
	before    *ancestor // nil: there is none
}
