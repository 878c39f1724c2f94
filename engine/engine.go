package engine

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/cold"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/engine/memtable"
	"github.com/snakream/snakream/internal/base"
)

// Engine is an open data directory. All methods are safe for concurrent use, but
// that each shard's Turn is for one goroutine at a time.
type Engine struct {
	opts   Options
	dir    string
	id     identity
	lock   io.Closer
	shards []*shard
	blobs  *blob.Store
	pool   memtable.Pool
	types  interner

	cold *cold.Cache // reads the object store; nil without a tier
	tier *tier

	diskFull atomic.Bool // below the floor: nothing that adds data is taken
	fenced   atomic.Bool // another node has the tier: no operation is taken
	err      atomic.Pointer[error]
	failed   chan struct{}
	failOnce sync.Once

	quit  chan struct{} // ends the goroutines below
	wg    sync.WaitGroup
	disks sync.WaitGroup // the disk goroutines
	forks chains
	close func() error // once
	rings []chan struct{}

	recovery time.Duration
	stats    engineStats
}

// Open opens a data directory, making it if it is empty or missing, and recovers
// what it holds: when it returns, everything that was ever acknowledged can be read
// and nothing else. Errors are ErrLocked, ErrForeign, ErrShards, those of
// Options.Validate, a *base.CorruptionError or *base.VersionError, after which
// nothing has been changed, and those of the file system.
func Open(dir string, o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	begin := time.Now()
	given := o
	o = o.withDefaults()
	e := &Engine{opts: o, dir: dir, failed: make(chan struct{}), quit: make(chan struct{})}
	e.close = sync.OnceValue(e.shutDown)
	if o.Ring == nil {
		e.opts.Ring = e.ringHost
	}
	e.stats.init()
	var err error
	if e.id, e.lock, err = openDirectory(dir, &e.opts); err != nil {
		return nil, err
	}
	if given.MinFreeDisk == 0 {
		e.opts.MinFreeDisk *= int64(e.id.Shards)
	}
	for n := range e.id.Shards {
		e.rings = append(e.rings, make(chan struct{}, 1))
		e.shards = append(e.shards, newShard(e, n))
	}
	e.makeTier()
	if err := e.recover(); err != nil {
		return nil, errors.Join(err, e.abandon())
	}
	e.recovery = time.Since(begin)
	e.checkDisk()
	e.wg.Go(e.watchDisk)
	if e.tier != nil {
		e.wg.Go(e.tier.run)
	}
	if o.Ring == nil {
		for _, s := range e.shards {
			e.wg.Go(func() { e.host(s) })
		}
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(collector{e}); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	for _, s := range e.shards {
		s.ring()
	}
	return e, nil
}

func newShard(e *Engine, n int) *shard {
	s := &shard{e: e, n: n, jobs: make(chan *batch, 1)}
	s.byID = map[base.StreamID]*Stream{}
	s.present, s.freezes = map[string]int64{}, map[base.StreamID]int{}
	s.settings = core.Settings{
		MaxProducers: e.opts.MaxProducers,
		ProducerIdle: base.Millis(idleMillis(e.opts.ProducerIdle)),
		MaxState:     e.opts.MaxStateBytes / int64(e.id.Shards),
		History:      e.id.History,
	}
	return s
}

// host runs a shard's turns when nobody else does.
func (e *Engine) host(s *shard) {
	for {
		select {
		case <-e.rings[s.n]:
			s.turn()
		case <-e.quit:
			return
		}
	}
}

func (e *Engine) ringHost(n int) {
	select {
	case e.rings[n] <- struct{}{}:
	default:
	}
}

func (e *Engine) path(elem ...string) string {
	return filepath.Join(append([]string{e.dir}, elem...)...)
}

// Turn runs one turn of a shard, because Options.Ring asked for it.
func (e *Engine) Turn(shard int) { e.shards[shard].turn() }

// Shards returns the number of shards.
func (e *Engine) Shards() int { return len(e.shards) }

// History returns the data directory's history number, in [1, 4095].
func (e *Engine) History() uint16 { return e.id.History }

// Incarnation returns what the header Stream-Incarnation says of a stream.
func (e *Engine) Incarnation(id base.StreamID) uint64 { return core.Incarnation(e.id.History, id) }

func (e *Engine) now() base.Millis { return base.Millis(e.opts.Now().UnixMilli()) }

// Err returns the error that ended the engine, or nil.
func (e *Engine) Err() error {
	if p := e.err.Load(); p != nil {
		return *p
	}
	return nil
}

// fail ends the engine: nothing is acknowledged any more (design rule 4).
func (e *Engine) fail(err error) {
	e.failOnce.Do(func() {
		e.err.Store(&err)
		close(e.failed)
		e.opts.Logger.Error("storage failed, nothing more is acknowledged", "err", err)
		if e.opts.Fatal != nil {
			e.opts.Fatal(err)
		}
	})
}

// Close stops the engine. Operations that have been taken are answered first; what
// is not in segments yet stays in the log. The host must go on running turns until
// Close returns. Again is no harm.
func (e *Engine) Close() error { return e.close() }

func (e *Engine) shutDown() error {
	e.forks.end()
	for _, s := range e.shards {
		s.mu.Lock()
		s.draining = true
		s.mu.Unlock()
	}
	for _, s := range e.shards {
		s.drain()
	}
	close(e.quit)
	e.tier.stop()
	for _, s := range e.shards {
		close(s.jobs)
	}
	e.disks.Wait()
	e.wg.Wait()
	return e.abandon()
}

// drain waits until the operations that were taken are answered.
func (s *shard) drain() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		idle := len(s.box) == 0 && !s.busy && s.done == nil && !s.rung
		if idle || s.e.Err() != nil {
			s.closed = true
		}
		over := s.closed && !s.turning
		s.mu.Unlock()
		if over {
			return
		}
		s.ring()
		<-tick.C
	}
}

// abandon closes whatever is open.
func (e *Engine) abandon() error {
	var errs []error
	e.tier.stop()
	for _, s := range e.shards {
		errs = append(errs, s.close())
	}
	if e.blobs != nil {
		errs = append(errs, e.blobs.Close())
	}
	if e.cold != nil {
		e.cold.Close() // after the merges that read it
	}
	return errors.Join(append(errs, e.lock.Close())...)
}

func (s *shard) close() error {
	var errs []error
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.keep != nil {
		if s.keep.quit != nil {
			s.keep.stop()
		}
		if s.keep.man != nil {
			errs = append(errs, s.keep.man.Close())
		}
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if rs := s.reads.Swap(nil); rs != nil {
		rs.release()
	}
	return errors.Join(errs...)
}

const diskPoll = time.Second

// watchDisk keeps an eye on the floor of free space, and on logs that nobody writes to.
func (e *Engine) watchDisk() {
	t := time.NewTicker(diskPoll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			e.checkDisk()
			e.tendBlobs()
			for _, s := range e.shards {
				if err := s.log.Err(); err != nil {
					e.fail(err)
				}
			}
		case <-e.quit:
			return
		}
	}
}

func (e *Engine) checkDisk() {
	free, err := e.opts.FS.Free(e.dir)
	if err != nil {
		e.opts.Logger.Warn("free space unknown", "err", err)
		return
	}
	full := free < uint64(e.opts.MinFreeDisk) || e.overBudget()
	if e.diskFull.Swap(full) != full {
		e.opts.Logger.Warn("free disk space", "full", full, "free", free, "floor", e.opts.MinFreeDisk, "over_budget", e.overBudget(), "budget", e.opts.LocalDiskBudget)
		for _, s := range e.shards {
			s.ring()
			s.keep.wake()
		}
	}
}

// DiskFull reports whether writes are refused for want of disk space.
func (e *Engine) DiskFull() bool {
	full := e.diskFull.Load()
	for _, s := range e.shards {
		full = full || s.keep.noSpace.Load() || s.log.NoSpace()
	}
	return full
}

// interner keeps one copy of strings of which there are few different ones. Turns
// use it, of several shards at a time.
type interner struct {
	mu sync.Mutex
	m  map[string]string
}

const maxInterned = 1024

func (t *interner) intern(s string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.m[s]; ok {
		return v
	}
	if t.m == nil || len(t.m) >= maxInterned {
		t.m = map[string]string{}
	}
	t.m[s] = s
	return s
}
