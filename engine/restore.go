package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/wal/record"
)

// RestoreReport says what a restore found.
type RestoreReport struct {
	Node      string      `json:"node"` // whose data it is
	History   uint16      `json:"history"`
	Mirrored  base.Millis `json:"mirrored_at_ms"` // when that node last said what it had
	Shards    int         `json:"shards"`
	Segments  int         `json:"segments"`
	Bytes     int64       `json:"bytes"` // of segments, and of the snapshots that are referred to
	Streams   int64       `json:"streams"`
	Snapshots int64       `json:"snapshots"`

	// What the node had, when it last said so, and the object store did not: lost. What
	// came after that is not known to anybody.
	LostBytes   int64 `json:"lost_bytes"`
	LostStreams int64 `json:"lost_streams"`

	// Objects that are missing or of another size, though a read could reach them.
	Missing []string `json:"missing,omitempty"`
}

// RestoreOptions say how to restore.
type RestoreOptions struct {
	// DryRun looks everything up, reports, and changes nothing.
	DryRun bool
	// AllowMissing restores though objects are missing: reads of what was in them fail.
	// A missing segment always fails, since its rows are needed.
	AllowMissing bool
	Parallel     int // gets at once; default 16
}

// ErrMissing says that objects are missing which a read could reach. The report names
// them.
var ErrMissing = errors.New("objects are missing")

// Restore makes dir, which must be empty or missing, a data directory that holds what
// the mirror in o.Tier names; payload stays in the store until it is read. It takes the
// prefix over: the node whose it was is fenced from then on. The directory begins a new
// history (api §4a). Errors before that leave store and directory as they were, but for
// files that the next try removes; ErrNeedsTier, ErrMissing, ErrForeign, tiering.ErrNotFound when
// there is no mirror, mirror.ErrTaken when another restore was faster.
func Restore(ctx context.Context, dir string, o Options, ro RestoreOptions) (RestoreReport, error) {
	if err := o.Validate(); err != nil {
		return RestoreReport{}, err
	}
	if o.Tier == nil {
		return RestoreReport{}, fmt.Errorf("restore: %w", ErrNeedsTier)
	}
	o = o.withDefaults()
	r := &restore{ctx: ctx, dir: dir, o: &o, ro: ro, store: o.Tier}
	if r.ro.Parallel <= 0 {
		r.ro.Parallel = 16
	}
	err := r.run()
	return r.report, err
}

type restore struct {
	ctx   context.Context
	dir   string
	o     *Options
	ro    RestoreOptions
	store tiering.Store

	from    mirror.State
	version tiering.Version
	objects map[string]int64            // sizes of what is in the store
	blobs   map[blob.Digest]blob.Object // that may be referred to

	mu      sync.Mutex
	streams map[base.StreamID]streamEnd
	buckets map[base.StreamID]bool // those of the streams that are buckets
	snaps   map[snapshotKey]snapshotRow

	report RestoreReport
}

type streamEnd struct {
	lsn  base.LSN // of the newest row that says whether the stream is there
	gone bool
}

type snapshotKey struct {
	stream base.StreamID
	offset base.Offset
}

type snapshotRow struct {
	lsn      base.LSN
	digest   blob.Digest
	readable bool
}

func (r *restore) run() error {
	var err error
	if r.from, r.version, err = mirror.Load(r.ctx, r.store); err != nil {
		return fmt.Errorf("restore from %s: %w", r.store.String(), err)
	}
	r.describe()
	if err := r.list(); err != nil {
		return err
	}
	if len(r.report.Missing) > 0 { // of segments the rows are needed
		return fmt.Errorf("restore: %w: %d segments", ErrMissing, len(r.report.Missing))
	}
	r.streams, r.buckets, r.snaps = map[base.StreamID]streamEnd{}, map[base.StreamID]bool{}, map[snapshotKey]snapshotRow{}
	if r.ro.DryRun {
		return r.look()
	}
	lock, err := r.begin()
	if err != nil {
		return err
	}
	return errors.Join(r.fill(), lock.Close())
}

func (r *restore) describe() {
	f := &r.from
	r.report = RestoreReport{
		Node: fmt.Sprintf("%x", f.Node), History: f.History, Mirrored: f.Written, Shards: f.Shards,
	}
	for i := range f.Shard {
		s := &f.Shard[i]
		r.report.LostBytes += s.ExposedBytes
		r.report.LostStreams += s.ExposedStreams
		for _, m := range s.Segments {
			r.report.Segments++
			r.report.Bytes += m.Size
		}
	}
}

// list looks up every object that the mirror names, and the snapshots' objects.
func (r *restore) list() error {
	r.objects, r.blobs = map[string]int64{}, map[blob.Digest]blob.Object{}
	dead := map[string]bool{}
	for _, d := range r.from.Dead {
		dead[d.Key] = true
	}
	for _, prefix := range []string{"segments/", "blobs/"} {
		for info, err := range r.store.List(r.ctx, prefix) {
			if err != nil {
				return fmt.Errorf("restore: list %s: %w", prefix, err)
			}
			name, ok := tiering.ParseKey(info.Key)
			if !ok || dead[info.Key] {
				continue
			}
			r.objects[info.Key] = info.Size
			if name.Kind == tiering.KindBlob {
				d := blob.Digest(name.Digest)
				if name.Object > r.blobs[d].Number {
					r.blobs[d] = blob.Object{Digest: d, Number: name.Object, Size: info.Size}
				}
			}
		}
	}
	for i := range r.from.Shard {
		for _, m := range r.from.Shard[i].Segments {
			key := tiering.SegmentKey(i, m.ID, m.Object)
			if size, ok := r.objects[key]; !ok || size != m.Size {
				r.report.Missing = append(r.report.Missing, key)
			}
		}
	}
	return nil
}

// look reads the rows of all segments where they are, and looks the snapshots up.
func (r *restore) look() error {
	for i := range r.from.Shard {
		err := r.each(r.from.Shard[i].Segments, func(m manifest.Segment) error {
			key := tiering.SegmentKey(i, m.ID, m.Object)
			seg, err := segment.Open(object{r.store, key, m.Size}, key, m.ID)
			if err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			return r.rows(seg)
		})
		if err != nil {
			return err
		}
	}
	return r.checkSnapshots()
}

// each calls f for all segments, several at once.
func (r *restore) each(segs []manifest.Segment, f func(manifest.Segment) error) (failed error) {
	errs := make(chan error, len(segs))
	slots := make(chan struct{}, r.ro.Parallel)
	for _, m := range segs {
		slots <- struct{}{}
		go func() {
			errs <- f(m)
			<-slots
		}()
	}
	for range segs {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// begin locks an empty directory and marks it as being made.
func (r *restore) begin() (io.Closer, error) {
	fsys := r.o.FS
	if err := fsys.MkdirAll(r.dir); err != nil {
		return nil, err
	}
	names, err := fsys.List(r.dir)
	if err != nil {
		return nil, err
	}
	unfinished := slices.Contains(names, identityNew)
	for _, n := range names {
		if n == identityFile || n != lockFile && n != lostFound && !unfinished {
			return nil, fmt.Errorf("restore: %s: %w: it is not empty, it holds %s", r.dir, ErrForeign, n)
		}
	}
	lock, err := fsys.Lock(filepath.Join(r.dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	if err := startOver(r.dir, fsys); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// fill makes shards, blobs and identity, and takes the prefix over before that.
func (r *restore) fill() error {
	f := &r.from
	if f.History >= maxHistory {
		return fmt.Errorf("restore: history %d is the last one", f.History)
	}
	id := identity{Shards: f.Shards, Seed: f.Seed, Created: f.Created, History: f.History + 1}
	if _, err := rand.Read(id.Node[:]); err != nil {
		return err
	}
	for i := range f.Shard {
		if err := r.shard(i); err != nil {
			return err
		}
	}
	if err := r.checkSnapshots(); err != nil {
		return err
	}
	if err := r.makeBlobs(); err != nil {
		return err
	}
	w, err := mirror.NewWriter()
	if err != nil {
		return err
	}
	if err := new(tierRecord).writeTierFile(r.o.FS, r.dir, tierRecord{where: r.store.String(), writer: w, epoch: f.Epoch + 1}); err != nil {
		return err
	}
	_, state, err := mirror.TakeOver(r.ctx, r.store, r.from, r.version, mirror.Identity{
		Node: id.Node, History: id.History, Shards: id.Shards, Seed: id.Seed, Created: id.Created,
	}, w, base.Millis(r.o.Now().UnixMilli()))
	if err != nil {
		return err
	}
	if id.History = state.History; id.History == f.History {
		return fmt.Errorf("restore: the mirror did not begin a new history")
	}
	r.report.History = id.History
	return nameDirectory(r.o.FS, r.dir, &id)
}

// shard makes one shard: the tails of its segments, the manifest, and an empty log.
func (r *restore) shard(n int) error {
	dir := filepath.Join(r.dir, shardDir(n))
	if err := makeShard(dir, r.o); err != nil {
		return err
	}
	from := &r.from.Shard[n]
	if err := r.each(from.Segments, func(m manifest.Segment) error { return r.segment(dir, n, m) }); err != nil {
		return err
	}
	if err := r.o.FS.SyncDir(filepath.Join(dir, "seg")); err != nil {
		return err
	}
	man, _, err := manifest.Open(r.o.FS, dir)
	if err != nil {
		return err
	}
	low := from.Low
	e := manifest.Edit{Low: &low, ReserveSegments: from.NextSegment, ReserveStreams: from.NextStream}
	for _, m := range from.Segments {
		m.Evicted = true
		e.Add = append(e.Add, m)
	}
	return errors.Join(man.Apply(e), man.Close())
}

// segment fetches a segment's tail and reads its rows.
func (r *restore) segment(dir string, shard int, m manifest.Segment) error {
	key := tiering.SegmentKey(shard, m.ID, m.Object)
	src := object{r.store, key, m.Size}
	path := filepath.Join(dir, "seg", fmt.Sprintf("%010d.tail", uint64(m.ID)))
	if err := segment.WriteTail(r.ctx, r.o.FS, path, src, key, m.ID); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	f, err := r.o.FS.Open(path)
	if err != nil {
		return err
	}
	seg, err := segment.OpenTail(f, src, path, m.ID)
	if err == nil {
		err = r.rows(seg)
	}
	return errors.Join(err, f.Close())
}

// rows notes which streams there are, and which snapshots they refer to.
func (r *restore) rows(seg *segment.Segment) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for row, err := range seg.AllRows() {
		if err != nil {
			return err
		}
		key, err := record.ParseKey(row.Key)
		if err != nil {
			return err
		}
		switch key.Kind {
		case record.RowConfig:
			if row.Removed {
				continue
			}
			c, err := record.DecodeConfig(row.Value)
			if err != nil {
				return err
			}
			if len(c.Name) == 0 {
				r.buckets[row.Stream] = true
			}
		case record.RowState:
			if old := r.streams[row.Stream]; row.LSN > old.lsn {
				gone, err := ended(row.Row)
				if err != nil {
					return err
				}
				r.streams[row.Stream] = streamEnd{row.LSN, gone}
			}
		case record.RowSnapshot:
			k := snapshotKey{row.Stream, key.Offset}
			if row.LSN <= r.snaps[k].lsn {
				continue
			}
			s := snapshotRow{lsn: row.LSN}
			if !row.Removed {
				n, err := record.DecodeSnapshot(key.Offset, row.Value)
				if err != nil {
					return err
				}
				s.digest, s.readable = n.Digest, n.Replaced == 0
			}
			r.snaps[k] = s
		}
	}
	return nil
}

// checkSnapshots looks up the objects of all snapshots that a read could reach.
func (r *restore) checkSnapshots() error {
	for id, s := range r.streams {
		if !s.gone && !r.buckets[id] {
			r.report.Streams++
		}
	}
	missing := 0
	for k, s := range r.snaps {
		if st := r.streams[k.stream]; !s.readable || st.gone {
			continue
		}
		r.report.Snapshots++
		o, ok := r.blobs[s.digest]
		if !ok {
			missing++
			r.report.Missing = append(r.report.Missing, fmt.Sprintf("blobs/%s of stream %d at offset %d", s.digest, k.stream, k.offset))
			continue
		}
		r.report.Bytes += o.Size
	}
	slices.Sort(r.report.Missing)
	if missing > 0 && !r.ro.AllowMissing {
		return fmt.Errorf("restore: %w: %d snapshots", ErrMissing, missing)
	}
	return nil
}

func (r *restore) makeBlobs() error {
	dir := filepath.Join(r.dir, blobDir)
	if err := blob.Create(r.o.FS, dir); err != nil {
		return err
	}
	var all []blob.Object
	for _, o := range r.blobs {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b blob.Object) int { return strings.Compare(string(a.Digest[:]), string(b.Digest[:])) })
	return blob.WriteRemote(r.o.FS, dir, all)
}

// object is an object of the store that is read once, past any cache.
type object struct {
	store tiering.Store
	key   string
	size  int64
}

func (o object) Size() int64 { return o.size }

func (o object) ReadAt(p []byte, off int64) (int, error) {
	return o.ReadContext(context.Background(), p, off)
}

func (o object) ReadContext(ctx context.Context, p []byte, off int64) (int, error) {
	if err := o.store.Get(ctx, o.key, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o object) Discard(int64, int64) {}
