// Package cold reads objects of the store in pieces and keeps them, up to a number of
// bytes: it fetches what is missing, once however many readers want it, several pieces
// at a time and ahead of sequential readers, and stops fetching what nobody wants.
package cold

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/snakream/snakream/tiering"
)

// ErrUnavailable says that the store can't be asked now: it does not answer, refuses,
// or the cache is closed. It says nothing about the object. An object that is missing
// or too short is tiering.ErrNotFound or tiering.ErrShort instead.
var ErrUnavailable = errors.New("the object store is not available")

var errClosed = fmt.Errorf("%w: the cache is closed", ErrUnavailable)

// Options say how much a Cache holds and fetches. Zero means the default. They don't
// change after New.
type Options struct {
	// Bytes bounds the memory of pieces that are held or being fetched, in bytes. Default
	// 64 MiB.
	Bytes int64
	// PieceBytes is the unit of a GET and of the cache. Default 1 MiB; never more than
	// Bytes, so that one piece always has room.
	PieceBytes int64
	// Parallel is the number of GETs at once. Default 8.
	Parallel int
	// ReadAhead is the number of pieces that are fetched ahead of a sequential reader.
	// Default 8; negative for none. All of them together take at most half of Bytes, and
	// all but one of the parallel GETs.
	ReadAhead int
	// Timeout bounds one GET. Default 30 s.
	Timeout time.Duration
	// Logger is told when the store begins to fail and when it answers again. Default
	// slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	positive := func(n, otherwise int64) int64 {
		if n <= 0 {
			return otherwise
		}
		return n
	}
	o.Bytes = positive(o.Bytes, 64<<20)
	o.PieceBytes = min(positive(o.PieceBytes, 1<<20), o.Bytes)
	o.Parallel = int(positive(int64(o.Parallel), 8))
	o.ReadAhead = max(cmp.Or(o.ReadAhead, 8), 0)
	o.Timeout = time.Duration(positive(int64(o.Timeout), int64(30*time.Second)))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// A Cache holds pieces of objects. All its methods, and those of its Objects, may be
// called concurrently. Objects never change, so a piece is good until it is evicted.
type Cache struct {
	store  tiering.Store
	o      Options
	ctx    context.Context // of every GET; Close ends it
	cancel context.CancelFunc
	gets   sync.WaitGroup // one goroutine for each GET; all end with ctx

	mu      sync.Mutex // guards what follows; never held during a GET or while bytes are copied
	closed  bool
	failing bool // the last GET failed for no fault of the object
	entries map[string]*entry
	stats   Stats

	// A piece is in the list that its state and its readers say, see place.
	demand    pieces // to be fetched for readers, the next one last
	aheadOf   pieces // to be fetched ahead of readers, when demand leaves room
	aheadGets pieces // being fetched, and no reader waits
	recent    pieces // held, the most recently used first
	awaited   pieces // held for readers that are not there yet
	pinned    pieces // held, and being copied out or about to be

	running  int   // GETs
	memory   int64 // of all buffers, never more than o.Bytes
	doomed   int64 // of it, that of cancelled GETs which have not returned
	spare    [][]byte
	aheads   int        // pieces that were asked for ahead and that nobody has read yet
	maxAhead int        // bounds aheads
	runs     *list.List // of *run, the one that was used last first
}

// entry is what the cache has of one object. It is there as long as it has any.
type entry struct {
	key     string
	pieces  map[int64]*piece // attached ones, by index
	runs    []*run
	readers int // calls under way
}

// Stats counts what a Cache did since New, and what it holds now.
type Stats struct {
	Hits      uint64 // pieces that a reader found in memory
	Misses    uint64 // pieces that a reader had to wait for, as the first one
	Coalesced uint64 // pieces that a reader wanted while they were on their way
	Fetches   uint64 // GETs started, also ahead of readers
	Ahead     uint64 // of them, ahead of readers
	Cancelled uint64 // GETs that were given up since nobody wanted the piece any more
	Failed    uint64 // GETs that failed

	BytesFetched int64 // by GETs that succeeded
	BytesHeld    int64 // memory of pieces that are held or being fetched
	InFlight     int   // GETs under way
}

// New returns an empty cache of objects in the store.
func New(store tiering.Store, o Options) *Cache {
	o = o.withDefaults()
	c := &Cache{store: store, o: o, entries: map[string]*entry{}, runs: list.New()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.maxAhead = int(min(o.Bytes/o.PieceBytes/2, 1<<20))
	return c
}

// Object returns the object of that key and size. It asks the store nothing; Objects
// of one key share what is held.
func (c *Cache) Object(key string, size int64) *Object { return &Object{c: c, key: key, size: size} }

// Forget drops what is held of an object that is not needed any more. Reads under way
// still get their bytes.
func (c *Cache) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return
	}
	for len(e.runs) > 0 {
		c.endRun(e.runs[0])
	}
	for _, p := range e.pieces {
		c.detach(p)
	}
	c.dispatch()
}

// Stats returns what was counted so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.BytesHeld, s.InFlight = c.memory-int64(len(c.spare))*c.o.PieceBytes, c.running
	return s
}

// Close ends all reads under way, with ErrUnavailable, and all later ones. When it
// returns, no GET is under way and no goroutine is left.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.cancel()
	for c.runs.Len() > 0 {
		c.endRun(c.runs.Front().Value.(*run))
	}
	for p := c.demand.last; p != nil; p = c.demand.last {
		c.fail(p, errClosed)
	}
	for p := c.recent.last; p != nil; p = c.recent.last {
		c.detach(p)
	}
	c.mu.Unlock()
	c.gets.Wait()
}

// fail ends a piece that won't be fetched. All its readers get the error, which is not
// kept for later ones.
func (c *Cache) fail(p *piece, err error) {
	p.state, p.err = failed, err
	c.detach(p)
	c.place(p)
	close(p.ready)
}
