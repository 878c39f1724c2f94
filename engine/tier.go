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
	calls   context.Context // of what the store is asked: ends when another has the prefix, too
	giveUp  context.CancelFunc
	results chan func() // ends of puts and deletes, for the tier's goroutine
	limiter *tiering.Limiter

	// The goroutine's own.
	writer    mirror.Writer // what this run of the program calls itself
	record    tierRecord    // what the file TIER says
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
	mirroring lane                  // claims, changes of the mirror, questions about it
	puts      objectLane[pending]
	deletes   objectLane[string]
	lists     lane
	proposed  time.Time // when the mirror was last compared with what it should say
	committed time.Time
	sweep     time.Time // when to look for strays; zero: at once
	sweeping  bool
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
	tierSweep    = 24 * time.Hour        // between two searches for strays
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
		mirroring: newLane(), puts: newObjectLane[pending](), deletes: newObjectLane[string](), lists: newLane(),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.calls, t.giveUp = context.WithCancel(t.ctx)
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
	if err := t.firstClaim(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTier, t.store.String(), err)
	}
	return nil
}

func (t *tier) firstClaim() (err error) {
	if t.writer, err = mirror.NewWriter(); err != nil {
		return err
	}
	if t.record, err = readTierFile(t.e.opts.FS, t.e.dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.ctx, tierClaim)
	defer cancel()
	err = t.claim(ctx)
	switch {
	case err != nil && t.record.used() && !errors.Is(err, mirror.ErrTaken) && !tiering.Permanent(err) && !isDamage(err):
		t.e.opts.Logger.Warn("the object store can't be reached yet; serving what is local", "store", t.store.String(), "err", err)
		return nil
	case err != nil:
		return err
	}
	return t.settled()
}

func isDamage(err error) bool {
	var c *base.CorruptionError
	var v *base.VersionError
	return errors.As(err, &c) || errors.As(err, &v)
}

// claim takes or renews the epoch. That it is about to is durable before.
func (t *tier) claim(ctx context.Context) error {
	want := t.e.id.mirrored()
	var m *mirror.State
	switch state, _, err := mirror.Load(ctx, t.store); {
	case errors.Is(err, tiering.ErrNotFound) && t.record.used():
		return fmt.Errorf("%w: it holds no mirror, and this data directory has used one at %s", tiering.ErrConfig, t.record.where)
	case err == nil:
		m = &state
		if err := t.compare(m); err != nil {
			return err
		}
	case !errors.Is(err, tiering.ErrNotFound):
		return err
	}
	if err := t.record.writeTierFile(t.e.opts.FS, t.e.dir, t.record.intend(m, t.store.String(), t.writer)); err != nil {
		return err
	}
	h, state, err := mirror.Claim(ctx, t.store, want, t.writer, t.record.known(nil), t.e.now())
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

// settled has the directory say that the prefix is its own, as the writer that it is.
func (t *tier) settled() error {
	return t.record.writeTierFile(t.e.opts.FS, t.e.dir, tierRecord{where: t.store.String(), writer: t.writer, epoch: t.state.Epoch})
}

// compare refuses a mirror that is not this directory's own, or of another copy of it. It
// refuses one that says more than this directory can have told it, too: then this is an
// older copy, and what is newer would be deleted from the store. And it refuses one that
// says less than the directory has been told: the store is an older copy.
func (t *tier) compare(m *mirror.State) error {
	want := t.e.id.mirrored()
	if last := t.lastObject(); m.Node == want.Node && m.History == want.History && (last >= m.Objects || m.Epoch < t.record.epoch) {
		return fmt.Errorf("%w: the object store is an older copy of the one that this data directory has used: it has reserved objects below %d in epoch %d, the directory has number %d and epoch %d",
			tiering.ErrConfig, m.Objects, m.Epoch, last, t.record.epoch)
	}
	if err := m.Admits(want, t.record.known(m)); err != nil {
		return err
	}
	dead := make(map[string]bool, len(m.Dead))
	for _, d := range m.Dead {
		dead[d.Key] = true
	}
	older := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w: this data directory is an older copy of what wrote the mirror at %s: %s. "+
			"Start the newest copy, or restore into an empty directory with 'snakream restore'",
			mirror.ErrTaken, mirror.ErrCopy, time.UnixMilli(int64(m.Written)).UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
	}
	for i := range t.shards {
		s, has := &t.shards[i], &m.Shard[i]
		if has.Low.LSN > s.low.LSN || has.NextSegment > s.nextSeg || has.NextStream > s.nextID {
			return older("of shard %d it has log records up to %d, the mirror up to %d", i, s.low.LSN, has.Low.LSN)
		}
		for id, g := range s.live {
			if dead[tiering.SegmentKey(i, id, g.Object)] {
				return older("of shard %d it needs segment %d, which nothing has needed any more", i, id)
			}
		}
	}
	return nil
}

// lastObject returns the highest object number that the directory knows.
func (t *tier) lastObject() (last uint64) {
	for i := range t.shards {
		for _, g := range t.shards[i].live {
			last = max(last, g.Object)
		}
	}
	t.e.blobs.Objects(func(o blob.Object) bool {
		last = max(last, o.Number)
		return true
	})
	return last
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
	if t.handle == nil && !t.connect() {
		t.refresh()
		t.evict() // it takes no store
		return tierTick
	}
	t.sweepIfDue()
	t.upload()
	t.commitIfDue()
	t.collect()
	t.evict()
	return min(t.pace(), tierTick)
}

// connect claims the prefix, where the start could not.
func (t *tier) connect() bool {
	if !t.mirroring.open() {
		return false
	}
	ctx, cancel := context.WithTimeout(t.ctx, tierClaim)
	defer cancel()
	if err := t.claim(ctx); err != nil {
		t.failed(&t.mirroring, "claim", err)
		return false
	}
	t.mirroring.succeeded()
	if err := t.settled(); err != nil { // the intent says enough
		t.e.opts.Logger.Warn("noting that the prefix is this directory's", "err", err)
	}
	return true
}

// failed notes that the store did not do something that is about no object. It is tried
// again, after a while; a prefix that is another node's is not.
func (t *tier) failed(l *lane, what string, err error) {
	if !t.ended(err) {
		t.complain(what, l.failed(), err)
	}
}

// failedPut notes that something could not be put.
func (t *tier) failedPut(p pending, err error) {
	if !t.ended(err) {
		t.complain("put", t.puts.failed(p), err)
	}
}

// ended reports whether an error is because the tier has come to its end, and ends it
// when another has the prefix.
func (t *tier) ended(err error) bool {
	if errors.Is(err, mirror.ErrFenced) || errors.Is(err, mirror.ErrTaken) {
		t.fence(err)
	}
	return t.calls.Err() != nil
}

func (t *tier) complain(what string, wait time.Duration, err error) {
	t.stats.failures.Add(1)
	t.e.opts.Logger.Warn("object store", "op", what, "retry_in", wait.Round(time.Millisecond), "err", err)
}

// fence ends what this node may do: another has its prefix. Writes are refused for a
// moment, so that clients hear why, and then the engine fails.
func (t *tier) fence(err error) {
	if t.ctx.Err() != nil || t.e.fenced.Swap(true) {
		return
	}
	t.giveUp()
	t.e.opts.Logger.Error("another node has taken over the object store's prefix: nothing more is written", "store", t.store.String(), "err", err)
	time.AfterFunc(fencedGrace, func() {
		if t.ctx.Err() == nil { // else it has been closed meanwhile
			t.e.fail(fmt.Errorf("%w: %w", ErrFenced, err))
		}
	})
}

// stop ends the tier. What is under way is given up: a put that succeeds nevertheless
// leaves an object that a later sweep finds.
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
