package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/cold"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
)

// The tier moves what is old to the object store: sealed segments and snapshots are put
// there, verified, entered in the shard's manifest, and named by the mirror, one object
// that says what a restore would find. Only then may a local copy go.
//
//	keeper:  flush, merge ─┐                       ┌─▶ manifest edit (object) ─┐
//	tier:                  └─▶ put, verify ────────┘                           ├─▶ mirror ─▶ evict
//	                           what nobody needs: out of the mirror ─▶ grace ─▶ delete
//
// One goroutine decides all of that; puts and deletes run beside it. It never holds up a
// turn, and a keeper only for as long as an edit of the manifest takes.
type tier struct {
	e       *Engine
	store   tiering.Store
	kick    chan struct{} // capacity 1
	ctx     context.Context
	cancel  context.CancelFunc
	results chan func() // ends of puts and deletes, for the tier's goroutine
	limiter *tiering.Limiter

	// The goroutine's own.
	handle    *mirror.Handle
	state     mirror.State // as the mirror has it
	shards    []tierShard
	first     uint64             // object number that this run of the program began with
	next      uint64             // object number to be used next; below state.Objects
	numbers   map[pending]uint64 // of puts that failed, to be tried again under the same key
	running   int                // puts and deletes under way
	blobNext  bool               // the last put was of a segment, if there was one
	uploading map[pending]bool
	deleting  map[string]bool
	dead      map[string]bool       // the keys of state.Dead, which is ordered by time
	deleted   map[string]bool       // dead objects that are gone: the mirror may forget them
	strays    map[string]bool       // objects of ours that neither mirror nor manifests name
	released  map[uint64][]base.LSN // of the objects of snapshots that are gone: what the mirror has to cover first
	backoff   tiering.Backoff
	notBefore time.Time // while the store fails
	proposed  time.Time // when the mirror was last compared with what it should say
	committed time.Time
	swept     bool
	checked   time.Time

	stats tierStats
}

// pending is something to be put: a segment of a shard, or a blob.
type pending struct {
	shard  int
	seg    base.SegmentID
	digest blob.Digest
}

const (
	tierParallel = 4                     // puts at once
	tierDeletes  = 8                     // deletes at once, which don't wait for puts
	tierTick     = time.Second           // at least so often the tier looks at everything
	tierCommit   = time.Second           // between two changes of the mirror, at most, but …
	tierEntry    = 10 * time.Microsecond // … and for what each entry of the mirror adds to that
	tierCheck    = time.Minute           // an idle node asks whether the mirror is still its own
	tierClaim    = 15 * time.Second      // for the first words with the store
	numberBatch  = 1024                  // object numbers reserved at a time
	fencedGrace  = 2 * time.Second       // in which writes are told before the process ends
)

// exposure is for how long data may be in the log alone.
func (o *Options) exposure() base.Millis { return base.Millis(o.TierFlushInterval.Milliseconds()) }

// pace is the time between two changes of the mirror: a part of what may be exposed, but
// more when the mirror is large, since all of it is written.
func (t *tier) pace() time.Duration {
	n := len(t.state.Dead)
	for i := range t.shards {
		n += len(t.shards[i].inMirror)
	}
	return max(min(tierCommit, t.e.opts.TierFlushInterval/5), time.Duration(n)*tierEntry)
}

// wake has the tier look at everything. t may be nil.
func (t *tier) wake() {
	if t == nil {
		return
	}
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// object returns an object of the store as what segments are read from.
func (e *Engine) object(key string, size int64) segment.Refetcher {
	return e.cold.Object(key, size)
}

// blobObject is object for a snapshot; it is what the blob store calls.
func (e *Engine) blobObject(o blob.Object) segment.Refetcher {
	return e.object(tiering.BlobKey(o.Digest, o.Number), o.Size)
}

// published returns how far each shard has come: the last record that is durable.
func (e *Engine) published() []base.LSN {
	all := make([]base.LSN, len(e.shards))
	for i, s := range e.shards {
		all[i] = base.LSN(s.durable.Load())
	}
	return all
}

// makeTier makes what reads the object store and what will write it, if there is one.
// Before recovery, which may need the first.
func (e *Engine) makeTier() {
	if e.opts.Tier == nil {
		return
	}
	e.cold = cold.New(e.opts.Tier, cold.Options{Bytes: e.opts.ColdCacheBytes, Logger: e.opts.Logger})
	t := &tier{
		e: e, store: e.opts.Tier, kick: make(chan struct{}, 1), results: make(chan func(), tierParallel+tierDeletes),
		limiter: tiering.NewLimiter(e.opts.TierBandwidth),
		numbers: map[pending]uint64{}, uploading: map[pending]bool{}, deleting: map[string]bool{},
		dead: map[string]bool{}, deleted: map[string]bool{}, strays: map[string]bool{}, released: map[uint64][]base.LSN{},
		backoff: tiering.Backoff{Min: 250 * time.Millisecond, Max: 30 * time.Second},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	e.tier = t
}

// open takes the prefix of the object store for this data directory, after recovery. A
// store that can't be reached is no reason not to start once it has been this one's.
func (t *tier) open() error {
	e := t.e
	now := e.published()
	for _, s := range e.shards {
		t.shards = append(t.shards, newTierShard(s, now))
	}
	known, err := UsesTier(e.opts.FS, e.dir)
	if err == nil {
		err = t.firstClaim(known)
	}
	if err == nil && t.handle != nil {
		err = writeTierFile(e.opts.FS, e.dir, known, t.store.String())
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTier, t.store.String(), err)
	}
	return nil
}

func (t *tier) firstClaim(known string) error {
	ctx, cancel := context.WithTimeout(t.ctx, tierClaim)
	defer cancel()
	var err error
	if known != "" {
		_, _, err = mirror.Load(ctx, t.store)
		if errors.Is(err, tiering.ErrNotFound) {
			return fmt.Errorf("%w: it holds no mirror, and this data directory has used one at %s", tiering.ErrConfig, known)
		}
	}
	if err == nil {
		err = t.claim(ctx)
	}
	if err != nil && known != "" && !errors.Is(err, mirror.ErrTaken) && !tiering.Permanent(err) && !isDamage(err) {
		t.e.opts.Logger.Warn("the object store can't be reached yet; serving what is local", "store", t.store.String(), "err", err)
		return nil
	}
	return err
}

func isDamage(err error) bool {
	var c *base.CorruptionError
	var v *base.VersionError
	return errors.As(err, &c) || errors.As(err, &v)
}

// claim takes or renews the epoch.
func (t *tier) claim(ctx context.Context) error {
	id := &t.e.id
	if err := t.compare(ctx); err != nil {
		return err
	}
	h, state, err := mirror.Claim(ctx, t.store, mirror.Identity{
		Node: id.Node, History: id.History, Shards: id.Shards, Seed: id.Seed, Created: id.Created,
	}, t.e.now())
	if err != nil {
		return err
	}
	t.handle, t.state, t.next, t.first = h, state, state.Objects, state.Objects
	for i := range t.shards {
		t.shards[i].mirrored(&state.Shard[i])
	}
	t.buried(state.Dead)
	t.committed = time.Now()
	return nil
}

// compare refuses a mirror that says more than this data directory can have told it: then
// the directory is an older copy, and what is newer would be deleted from the store.
// Likewise a mirror that has not reserved the objects which the directory has.
func (t *tier) compare(ctx context.Context) error {
	m, _, err := mirror.Load(ctx, t.store)
	id := &t.e.id
	switch {
	case errors.Is(err, tiering.ErrNotFound):
		return nil
	case err != nil:
		return err
	case m.Node != id.Node || m.History != id.History || m.Shards != id.Shards:
		return nil // Claim says what is wrong
	}
	last := uint64(0)
	for i := range t.shards {
		s, has := &t.shards[i], &m.Shard[i]
		if has.Low.LSN > s.low.LSN || has.NextSegment > s.nextSeg || has.NextStream > s.nextID {
			return fmt.Errorf("%w: this data directory is an older copy of what wrote the mirror at %d: of shard %d it has log records up to %d, the mirror up to %d. "+
				"Start the newest copy, or restore into an empty directory with 'snakream restore'", mirror.ErrTaken, m.Written, i, s.low.LSN, has.Low.LSN)
		}
		for _, g := range s.live {
			last = max(last, g.Object)
		}
	}
	t.e.blobs.Objects(func(o blob.Object) bool {
		last = max(last, o.Number)
		return true
	})
	if last >= m.Objects {
		return fmt.Errorf("%w: the object store is an older copy of the one that this data directory has used: it has reserved objects below %d, the directory has number %d", tiering.ErrConfig, m.Objects, last)
	}
	return nil
}

func (t *tier) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.kick:
		case f := <-t.results:
			f()
		case <-t.ctx.Done():
			for t.running > 0 {
				f := <-t.results
				f()
			}
			return
		}
		wait := t.round()
		timer.Reset(max(wait, 10*time.Millisecond))
	}
}

// round does whatever is due and returns when to look again.
func (t *tier) round() time.Duration {
	if t.e.fenced.Load() || t.e.Err() != nil || t.ctx.Err() != nil {
		return tierTick
	}
	if !t.refresh() {
		return tierTick
	}
	defer t.note()
	if wait := time.Until(t.notBefore); wait > 0 {
		t.refresh()
		t.evict() // it takes no store
		t.note()
		return min(wait, tierTick)
	}
	if t.handle == nil {
		ctx, cancel := context.WithTimeout(t.ctx, tierClaim)
		err := t.claim(ctx)
		cancel()
		if err != nil {
			t.failed("claim", err)
			t.refresh()
			t.note()
			return tierTick
		}
		t.succeeded()
	}
	t.sweepOnce()
	t.upload()
	t.commitIfDue()
	t.collect()
	t.evict()
	return min(t.pace(), tierTick)
}

// failed notes that the store did not do something. Everything is tried again, after a
// while; a prefix that is another node's is not.
func (t *tier) failed(what string, err error) {
	switch {
	case t.ctx.Err() != nil:
		return
	case errors.Is(err, mirror.ErrFenced), errors.Is(err, mirror.ErrTaken):
		t.fence(err)
		return
	}
	wait := t.backoff.Next()
	t.notBefore = time.Now().Add(wait)
	t.stats.failures.Add(1)
	t.e.opts.Logger.Warn("object store", "op", what, "retry_in", wait.Round(time.Millisecond), "err", err)
}

func (t *tier) succeeded() {
	t.backoff.Reset()
	t.notBefore = time.Time{}
}

// fence ends what this node may do: another has its prefix. Writes are refused for a
// moment, so that clients hear why, and then the engine fails.
func (t *tier) fence(err error) {
	if t.e.fenced.Swap(true) {
		return
	}
	t.e.opts.Logger.Error("another node has taken over the object store's prefix: nothing more is written", "store", t.store.String(), "err", err)
	time.AfterFunc(fencedGrace, func() {
		if t.ctx.Err() == nil { // else it has been closed meanwhile
			t.e.fail(fmt.Errorf("%w: %w", ErrFenced, err))
		}
	})
}

// stop ends the tier. What is under way is given up: a put that succeeds nevertheless
// leaves an object that the next start finds.
func (t *tier) stop() {
	if t != nil {
		t.cancel()
	}
}

// spawn runs work beside the tier's goroutine, and then what that says on it.
func (t *tier) spawn(work func() (then func())) {
	t.running++
	t.e.wg.Go(func() {
		then := work()
		t.results <- func() {
			t.running--
			then()
		}
	})
}
