package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// What the mirror names has to be consistent: a restore finds of each shard a prefix of
// its log, with everything that the rows in it refer to. So
//
//   - a segment is named only when everything before its newest record is named too;
//   - a merge's output takes the place of its inputs, which stand in for it until it is
//     named itself: not before may they be called dead, whatever keeps it from being named;
//   - an output that left out bytes because of a newer trim or delete is named only with
//     or after what says so;
//   - a segment with a fork is named only with or after its source's bytes up to there,
//     one with a snapshot only when the snapshot is in the store, or lost for good.

// choice is what the mirror could say of a shard.
type choice struct {
	segs    map[base.SegmentID]manifest.Segment
	atoms   map[base.SegmentID]bool // what it was chosen from
	needed  map[base.SegmentID]bool // and what may have to stand in for something yet
	covered base.LSN
	kept    bool // it stays as it is
}

// choose picks what the mirror may name of a shard, with none of the refused segments.
func (s *tierShard) choose(refused map[base.SegmentID]bool) choice {
	atoms, seen := s.atoms(refused)
	c := choice{segs: map[base.SegmentID]manifest.Segment{}, atoms: map[base.SegmentID]bool{}, covered: s.low.LSN}
	var blocked []manifest.Segment
	for _, m := range atoms {
		c.atoms[m.ID] = true
		if m.Object != 0 && !refused[m.ID] && !overlapsAny(blocked, m) {
			c.segs[m.ID] = m
			continue
		}
		blocked = append(blocked, m)
		c.covered = min(c.covered, s.after[m.ID])
	}
	c.covered = max(c.covered, s.covered)
	if s.loses(&c, blocked) {
		c = choice{segs: s.inMirror, atoms: c.atoms, covered: s.covered, kept: true}
	}
	c.needed = s.needed(seen, c.segs)
	return c
}

// needed adds to what was seen all that may have to stand in for it: whatever is not named
// now may be refused the next time, and then its inputs are what is left of it.
func (s *tierShard) needed(seen map[base.SegmentID]bool, segs map[base.SegmentID]manifest.Segment) map[base.SegmentID]bool {
	unnamed := func(id base.SegmentID) bool {
		_, named := segs[id]
		return !named
	}
	for id := range seen {
		if !unnamed(id) {
			continue
		}
		for _, in := range s.made[id].inputs {
			s.madeOf(seen, in.ID, unnamed)
		}
	}
	return seen
}

// atoms returns what may be named, oldest first: the live segments, or in place of one
// that is not in the store, or refused, what it was made of. seen are all of those too.
func (s *tierShard) atoms(refused map[base.SegmentID]bool) (all []manifest.Segment, seen map[base.SegmentID]bool) {
	seen = map[base.SegmentID]bool{}
	var add func(m manifest.Segment)
	add = func(m manifest.Segment) {
		if seen[m.ID] {
			return
		}
		seen[m.ID] = true
		l, known := s.made[m.ID]
		if m.Object != 0 && !refused[m.ID] || !known || len(l.inputs) == 0 {
			all = append(all, m)
			return
		}
		for _, in := range l.inputs {
			add(in)
		}
	}
	for _, m := range s.live {
		add(m)
	}
	slices.SortFunc(all, func(a, b manifest.Segment) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.ID, b.ID))
	})
	return all, seen
}

func overlapsAny(all []manifest.Segment, m manifest.Segment) bool {
	return slices.ContainsFunc(all, func(b manifest.Segment) bool {
		return b.Kind == m.Kind && b.MinStream <= m.MaxStream && m.MinStream <= b.MaxStream
	})
}

// loses reports whether the choice lacks something that the mirror has and that nothing
// chosen was made of.
func (s *tierShard) loses(c *choice, blocked []manifest.Segment) bool {
	unknown := slices.ContainsFunc(blocked, func(m manifest.Segment) bool { return m.ID < s.firstNew })
	for id := range s.inMirror {
		if _, ok := c.segs[id]; ok {
			continue
		}
		_, gone := s.gone[id]
		if c.atoms[id] || !gone && unknown {
			return true
		}
	}
	return false
}

// consistent chooses for all shards what may be named together.
func (t *tier) consistent() []choice {
	refused := make([]map[base.SegmentID]bool, len(t.shards))
	all := make([]choice, len(t.shards))
	for i := range refused {
		refused[i] = map[base.SegmentID]bool{}
	}
	for again := true; again; {
		for i := range t.shards {
			all[i] = t.shards[i].choose(refused[i])
		}
		again = false
		for i := range t.shards {
			if all[i].kept {
				continue
			}
			for id, m := range all[i].segs {
				if t.shards[i].inMirror[id].Object == 0 && !t.allowed(i, m, all) {
					refused[i][id], again = true, true
				}
			}
		}
	}
	return all
}

// allowed reports whether everything that a segment needs is named along with it.
func (t *tier) allowed(shard int, m manifest.Segment, all []choice) bool {
	s := &t.shards[shard]
	if base.LSN(m.Run) > all[shard].covered {
		return false
	}
	if !s.coversOmissions(m.ID, all) {
		return false
	}
	f := s.facts[m.ID]
	if f == nil {
		return false
	}
	known := s.named(m.ID, s.inMirror) // then this changes nothing about snapshots
	for _, n := range f.snapshots {
		if !known && !f.gone[n.stream] && !t.e.blobs.Has(n.digest) && !t.e.blobs.Lost(n.digest) && !s.superseded(n, m, &all[shard]) {
			return false
		}
	}
	for _, fork := range f.forks {
		i := fork.source.Shard(len(t.shards))
		if all[i].covered < f.since[i] && !t.shards[i].holds(fork, &all[i]) {
			return false
		}
	}
	return true
}

// coversOmissions reports whether the choice covers what says that bytes are not needed
// any more that a segment lacks, or what that was merged from and the mirror never named.
func (s *tierShard) coversOmissions(id base.SegmentID, all []choice) bool {
	ok := true
	s.madeOf(map[base.SegmentID]bool{}, id, func(id base.SegmentID) bool {
		if s.inMirror[id].Object != 0 {
			return false
		}
		since := s.made[id].since
		if id < s.firstNew {
			since = s.start
		}
		for i, lsn := range since {
			ok = ok && all[i].covered >= lsn
		}
		return ok
	})
	return ok
}

// commitIfDue brings the mirror up to date when there is something new.
func (t *tier) commitIfDue() {
	if !t.mirroring.open() || time.Since(t.committed) < t.pace() || time.Since(t.proposed) < t.pace() {
		return
	}
	next, all := t.propose()
	t.proposed = time.Now()
	if t.differs(&next) {
		t.commitState(next, all)
		return
	}
	if time.Since(t.checked) > tierCheck && time.Since(t.committed) > tierCheck {
		t.check()
	}
}

// commit changes the mirror now. It is false when that did not work.
func (t *tier) commit() bool {
	next, all := t.propose()
	return t.commitState(next, all)
}

// propose makes the mirror's next state, and what it rests on.
func (t *tier) propose() (mirror.State, []choice) {
	for i := range t.shards {
		if err := t.shards[i].learn(); err != nil {
			t.e.opts.Logger.Warn("reading a segment's rows", "shard", i, "err", err)
		}
	}
	all := t.consistent()
	next := t.state
	next.Written = t.e.now()
	next.Shard = make([]mirror.Shard, len(all))
	for i := range all {
		s := &t.shards[i]
		next.Shard[i] = mirror.Shard{Low: s.low, NextSegment: s.nextSeg, NextStream: s.nextID, Segments: sorted(all[i].segs)}
		next.Shard[i].ExposedBytes, next.Shard[i].ExposedStreams = s.exposed(&all[i])
	}
	if t.next+tierParallel >= next.Objects {
		next.Objects = t.next + numberBatch
	}
	next.Dead = t.nextDead(all)
	return next, all
}

// exposed returns what a restore would lack: the bytes of memtables and of segments that
// are not named, and how many streams those segments have something of.
func (s *tierShard) exposed(c *choice) (bytes, streams int64) {
	bytes = s.s.gauges.unflushed() - s.seen
	rs := s.s.acquire()
	if rs == nil {
		return bytes, 0
	}
	defer rs.release()
	for id, m := range s.live {
		if s.named(id, c.segs) {
			continue
		}
		bytes += m.Size
		if ref := rs.segs[id]; ref != nil {
			streams += int64(ref.seg.Len())
		}
	}
	return bytes, streams
}

func sorted(segs map[base.SegmentID]manifest.Segment) []manifest.Segment {
	all := make([]manifest.Segment, 0, len(segs))
	for _, m := range segs {
		m.Evicted, m.DeadSince = false, 0 // this node's business
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b manifest.Segment) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// nextDead returns the objects to be deleted: those of before that are still there, and
// what nothing will refer to any more.
func (t *tier) nextDead(all []choice) []mirror.Dead {
	fresh := map[string]bool{}
	add := func(key string) {
		if !t.dead[key] {
			fresh[key] = true
		}
	}
	for i := range all {
		s, c := &t.shards[i], &all[i]
		if c.kept {
			continue // nothing is concluded about it
		}
		for id, m := range s.inMirror {
			if _, ok := c.segs[id]; !ok {
				add(tiering.SegmentKey(i, id, m.Object))
			}
		}
		for id, m := range s.gone {
			if _, kept := c.segs[id]; m.Object != 0 && !c.needed[id] && !kept {
				add(tiering.SegmentKey(i, id, m.Object))
			}
		}
	}
	for key := range t.strays {
		add(key)
	}
	for _, o := range t.releasedBlobs(all) {
		add(tiering.BlobKey(o.Digest, o.Number))
	}
	dead := t.state.Dead
	if len(t.deleted) > 0 {
		dead = slices.DeleteFunc(slices.Clone(dead), func(d mirror.Dead) bool { return t.deleted[d.Key] })
	}
	now := t.e.now()
	if n := len(dead); n > 0 {
		now = max(now, dead[n-1].Since)
	}
	dead = slices.Clip(dead)
	for _, key := range slices.Sorted(maps.Keys(fresh)) {
		dead = append(dead, mirror.Dead{Key: key, Since: now})
	}
	return dead
}

// releasedBlobs returns the objects of snapshots that are gone and that no restore would
// look for any more: the mirror covers the records that said so.
func (t *tier) releasedBlobs(all []choice) (out []blob.Object) {
	for _, o := range t.e.blobs.Orphaned() {
		since, ok := t.released[o.Number]
		if !ok {
			since = t.e.published()
			t.released[o.Number] = since
		}
		covered := true
		for i, lsn := range since {
			covered = covered && all[i].covered >= lsn
		}
		if covered {
			out = append(out, o)
		}
	}
	return out
}

// differs reports whether a state says something that the mirror does not.
func (t *tier) differs(next *mirror.State) bool {
	for i := range next.Shard { // a commit for the reservations of shards alone is not worth it
		if !slices.Equal(next.Shard[i].Segments, t.state.Shard[i].Segments) {
			return true
		}
	}
	return next.Objects != t.state.Objects || !slices.Equal(next.Dead, t.state.Dead)
}

func (t *tier) commitState(next mirror.State, all []choice) bool {
	err := t.handle.Commit(t.calls, next)
	if err != nil {
		t.failed(&t.mirroring, "commit", err)
		return false
	}
	t.mirroring.succeeded()
	t.stats.commits.Add(1)
	t.committed = time.Now()
	t.settle(next, all)
	return true
}

// settle notes what a commit has made true.
func (t *tier) settle(next mirror.State, all []choice) {
	t.state = next
	for i := range all {
		s := &t.shards[i]
		if all[i].kept {
			continue
		}
		s.inMirror = all[i].segs
		s.covered = all[i].covered
		for id := range s.inMirror {
			delete(s.facts, id)
		}
		for id := range s.gone {
			if !all[i].needed[id] {
				delete(s.gone, id)
				delete(s.made, id)
				delete(s.facts, id)
				delete(s.after, id)
			}
		}
		for id := range s.made {
			_, live := s.live[id]
			_, gone := s.gone[id]
			if _, named := s.inMirror[id]; named || !live && !gone {
				delete(s.made, id)
			}
		}
	}
	for key := range t.deleted {
		delete(t.dead, key)
	}
	clear(t.deleted)
	clear(t.strays)
	t.buried(next.Dead)
	t.forgetBlobs()
}

// buried notes which objects the mirror knows to be dead.
func (t *tier) buried(dead []mirror.Dead) {
	for _, d := range slices.Backward(dead) {
		if t.dead[d.Key] {
			return // and so are those before
		}
		t.dead[d.Key] = true
	}
}

// forgetBlobs tells the blob store which objects the mirror will see to.
func (t *tier) forgetBlobs() {
	var gone []blob.Object
	for _, o := range t.e.blobs.Orphaned() {
		if t.dead[tiering.BlobKey(o.Digest, o.Number)] {
			gone = append(gone, o)
			delete(t.released, o.Number)
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := t.e.blobs.Forget(gone); err != nil {
		t.e.opts.Logger.Warn("forgetting objects of snapshots", "err", err)
		_ = t.e.syncBlobs() // which ends the engine if that was final
	}
}
