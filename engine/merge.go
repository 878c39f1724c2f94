package engine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/snakream/snakream/engine/cold"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/wal/record"
)

// Segments form runs: what one flush, or one merge, wrote of a kind, split at the
// size cap by ranges of StreamIDs. Runs are ordered by age. A flush makes a run of
// level 0; mergeWidth runs of one level, which are neighbours in age, become one of
// the next. So a stream has at most mergeWidth-1 runs a level, and the index stays
// O(streams × levels).
const mergeWidth = 4

// coldRetry is how long segments that are only in the object store are left alone after
// it could not be read.
const coldRetry = 10 * time.Second

// mergeJob says what the merger does: inputs, oldest first, to one run.
type mergeJob struct {
	inputs []*segmentRef
	others []*segmentRef // all further segments: a tombstone is needed while they hold its stream
	kind   uint8
	level  uint8
	run    uint64
}

type mergeResult struct {
	mergeJob
	ids     []base.SegmentID
	buried  []base.StreamID // whose last trace the merge dropped
	floored bool            // bytes were left out that nobody needs any more
	err     error
	damaged base.SegmentID // the input that made it fail, if one did
	took    time.Duration
}

// proposeMerge starts the most urgent merge, if there is one and none is under way.
func (k *keeper) proposeMerge() {
	if k.busy || k.stopping() || k.s.e.Err() != nil || time.Now().Before(k.mergeAfter) {
		return
	}
	k.countDead()
	k.noteDead()
	job, ok := k.pickMerge()
	if !ok {
		return
	}
	select {
	case k.merges <- job:
		k.busy, k.merging = true, map[base.SegmentID]bool{}
		for _, ref := range job.inputs {
			k.merging[ref.seg.ID()] = true
		}
	case <-k.quit:
		releaseAll(job.inputs, job.others)
	}
}

// run is the segments of one run.
type run struct {
	id    uint64
	level uint8
	segs  []manifest.Segment
}

// runsOf returns the runs of a kind, oldest first.
func (k *keeper) runsOf(kind uint8) []run {
	byID := map[uint64]*run{}
	for _, m := range k.state.Segments {
		if m.Kind != kind {
			continue
		}
		r := byID[m.Run]
		if r == nil {
			r = &run{id: m.Run, level: m.Level}
			byID[m.Run] = r
		}
		r.segs = append(r.segs, m)
	}
	var all []run
	for _, r := range byID {
		slices.SortFunc(r.segs, func(a, b manifest.Segment) int { return int(int64(a.MinStream) - int64(b.MinStream)) })
		all = append(all, *r)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	return all
}

// pickMerge takes turns between what has to be erased and what is small, so that
// neither waits for all of the other. What only wastes space comes after both.
func (k *keeper) pickMerge() (mergeJob, bool) {
	picks := []func() (mergeJob, bool){k.pickDue, k.pickGroup, k.pickWaste}
	if k.erasing {
		picks[0], picks[1] = picks[1], picks[0]
	}
	for _, pick := range picks {
		if job, ok := pick(); ok {
			k.erasing = len(job.inputs) == 1
			return job, true
		}
	}
	return mergeJob{}, false
}

// pickGroup proposes to merge the newest runs of one level that are enough.
func (k *keeper) pickGroup() (mergeJob, bool) {
	for _, kind := range []uint8{kindLasting, kindExpires} {
		runs := k.runsOf(kind)
		for i := len(runs) - mergeWidth; i >= 0; i-- {
			group := runs[i : i+mergeWidth]
			if group[0].level == group[mergeWidth-1].level && !k.untouchable(group) && k.fits(group) {
				return k.job(kind, group, group[0].level+1), true
			}
		}
	}
	return mergeJob{}, false
}

func (k *keeper) untouchable(group []run) bool {
	return slices.ContainsFunc(group, func(r run) bool {
		return slices.ContainsFunc(r.segs, func(m manifest.Segment) bool { return k.unmergeable(m) })
	})
}

// fits reports whether what a merge makes has room on the local disk, where it is until
// it is in the object store: half of the budget is for that, of all shards together.
func (k *keeper) fits(group []run) bool {
	budget := k.s.e.opts.LocalDiskBudget
	if k.s.e.tier == nil || budget == 0 {
		return true
	}
	n := int64(0)
	for _, r := range group {
		for _, m := range r.segs {
			n += m.Size
		}
	}
	return n <= budget/2/int64(len(k.s.e.shards))
}

// unmergeable reports that a segment is damaged, on its way to the object store, or
// only there while that can't be reached.
func (k *keeper) unmergeable(m manifest.Segment) bool {
	return k.avoid[m.ID] || k.held[m.ID] || k.uploadedSoon(m) || m.Evicted && time.Now().Before(k.coldAfter)
}

// uploadedSoon reports that a flush has just written a segment, which the tier is to
// have first: what was in the store by itself stands in for what it is merged to.
func (k *keeper) uploadedSoon(m manifest.Segment) bool {
	f, ok := k.flushed[m.ID]
	return ok && k.s.e.tier != nil && m.Object == 0 && !f.merged && time.Since(f.at) < k.s.e.opts.TierFlushInterval
}

// job pins the segments that a merge reads.
func (k *keeper) job(kind uint8, group []run, level uint8) mergeJob {
	j := mergeJob{kind: kind, level: level, run: group[len(group)-1].id}
	segs := k.s.reads.Load().segs // the keeper alone changes them
	taken := map[base.SegmentID]bool{}
	for _, r := range group {
		for _, m := range r.segs {
			taken[m.ID] = true
			j.inputs = append(j.inputs, segs[m.ID])
		}
	}
	for id, ref := range segs {
		if !taken[id] {
			j.others = append(j.others, ref)
		}
	}
	for _, ref := range slices.Concat(j.inputs, j.others) {
		ref.refs.Add(1)
	}
	return j
}

func releaseAll(lists ...[]*segmentRef) {
	for _, l := range lists {
		for _, r := range l {
			r.release()
		}
	}
}

// finishMerge replaces the inputs of a merge by its output.
func (k *keeper) finishMerge(r mergeResult) {
	k.busy, k.merging = false, nil
	defer releaseAll(r.inputs, r.others)
	err := r.err
	if err != nil {
		k.discard(r.ids)
	} else {
		err = k.replace(r)
	}
	if err != nil {
		k.mergeFailed(r, err)
		return
	}
	k.mergeWait = 0
	k.forget(r.buried...)
	k.s.stats.merges.Add(1)
	k.s.stats.mergeSeconds.observe(r.took)
}

// mergeFailed has the merge tried again after a while, unless an input is damaged:
// that one is left alone from now on.
func (k *keeper) mergeFailed(r mergeResult, err error) {
	if errors.Is(err, errQuit) {
		return
	}
	k.s.stats.mergeFailures.Add(1)
	if errors.Is(err, cold.ErrUnavailable) {
		k.coldAfter = time.Now().Add(coldRetry) // the others can be merged meanwhile
		time.AfterFunc(coldRetry, k.wake)
		k.s.e.opts.Logger.Warn("merge waits for the object store", "shard", k.s.n, "err", err)
		return
	} else if r.damaged != 0 {
		k.avoid[r.damaged] = true
		k.s.e.stats.damaged.Add(1)
	} else {
		k.mergeWait = min(max(2*k.mergeWait, retryStep), retryMax)
		k.mergeAfter = time.Now().Add(k.mergeWait)
		time.AfterFunc(k.mergeWait, k.wake)
	}
	k.s.e.opts.Logger.Error("merge failed", "shard", k.s.n, "err", err)
}

func (k *keeper) replace(r mergeResult) error {
	if len(r.ids) > 0 {
		if err := k.reserveSegments(r.ids[len(r.ids)-1]); err != nil {
			k.discard(r.ids)
			return err
		}
	}
	refs, err := k.install(r.ids)
	if err != nil {
		return err
	}
	fresh := int64(0)
	for _, ref := range r.inputs {
		fresh += ref.fresh.Load()
	}
	e := manifest.Edit{}
	for _, ref := range refs {
		ref.fresh.Store(min(fresh, ref.seg.Size()))
		e.Add = append(e.Add, describe(ref, r.level, r.run))
	}
	l := lineage{outputs: r.ids}
	for _, ref := range r.inputs {
		e.Remove = append(e.Remove, ref.seg.ID())
		l.inputs = append(l.inputs, k.state.Segments[ref.seg.ID()])
	}
	if r.floored {
		l.since = k.s.e.published()
	}
	if err := k.edit(e); err != nil {
		k.uninstall(refs)
		return err
	}
	k.noteMerge(l)
	for _, ref := range r.inputs {
		delete(k.dead, ref.seg.ID())
		delete(k.flushed, ref.seg.ID())
		for st := range ref.seg.Streams() {
			if x := st.Extent; x.End > x.Start {
				k.tree.Remove(x)
			}
		}
	}
	for _, ref := range refs {
		k.flushed[ref.seg.ID()] = flushedAt{at: time.Now(), merged: true}
		k.index(ref)
	}
	clone := k.tree.Clone()
	k.s.swapReads(func(next *readState) {
		next.tree = clone
		for _, ref := range r.inputs {
			ref.dropped.Store(true)
			delete(next.segs, ref.seg.ID())
		}
		for _, ref := range refs {
			next.segs[ref.seg.ID()] = ref
		}
	})
	return nil
}

// noteMerge keeps what the tier has to know of a merge.
func (k *keeper) noteMerge(l lineage) {
	if k.s.e.tier == nil {
		return
	}
	k.lineages = append(k.lineages, l)
	k.s.e.tier.wake()
}

// merger carries out merges, one at a time, until merges is closed.
func (k *keeper) merger() {
	for job := range k.merges {
		begin := time.Now()
		m := merge{k: k, mergeResult: mergeResult{mergeJob: job}}
		m.err = m.carryOut()
		m.took = time.Since(begin)
		select {
		case k.merged <- m.mergeResult:
		case <-k.quit:
			releaseAll(job.inputs, job.others)
			return
		}
	}
}

// merge is one merge under way.
type merge struct {
	mergeResult
	k    *keeper
	w    *segment.Writer
	rows []segment.Row // of the stream at hand
	buf  []byte        // what they refer to
}

// part is what one input holds of a stream.
type part struct {
	ref  *segmentRef
	scan *segment.Scan
	st   segment.Stream
}

func (m *merge) carryOut() error {
	err := m.eachStream(m.stream)
	if err == nil && m.w != nil {
		_, err = m.w.Finish()
	}
	if err != nil && m.w != nil {
		m.w.Abort()
		m.ids = m.ids[:len(m.ids)-1]
	}
	return err
}

// eachStream calls f for each stream of the inputs by ascending id, with its parts
// by ascending offset.
func (m *merge) eachStream(f func(base.StreamID, []part) error) error {
	type head struct {
		part
		next func() (segment.Stream, bool)
	}
	var heads []*head
	for _, ref := range m.inputs {
		next, stop := iter.Pull(ref.seg.Streams())
		defer stop()
		if st, ok := next(); ok {
			heads = append(heads, &head{part{ref, ref.seg.Scan(), st}, next})
		}
	}
	var parts []part
	for len(heads) > 0 {
		if m.k.stopping() {
			return errQuit
		}
		id := heads[0].st.Extent.Stream
		for _, h := range heads[1:] {
			id = min(id, h.st.Extent.Stream)
		}
		parts = parts[:0]
		rest := heads[:0]
		for _, h := range heads {
			ok := true
			if h.st.Extent.Stream == id {
				parts = append(parts, h.part)
				h.st, ok = h.next()
			}
			if ok {
				rest = append(rest, h)
			}
		}
		heads = rest
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.st.Extent.Start, b.st.Extent.Start) })
		if err := f(id, parts); err != nil {
			return err
		}
	}
	return nil
}

// stream merges one stream: its newest rows, and its bytes unless it has gone.
func (m *merge) stream(id base.StreamID, parts []part) error {
	rows, err := m.newestRows(parts)
	if err != nil {
		return err
	}
	tomb := slices.ContainsFunc(rows, func(r segment.Row) bool { return r.Removed && bytes.Equal(r.Key, record.StateKey) })
	if tomb {
		if !m.elsewhere(id) {
			m.buried = append(m.buried, id)
			return nil
		}
		rows = slices.DeleteFunc(rows, func(r segment.Row) bool { return !bytes.Equal(r.Key, record.StateKey) })
	} else {
		rows = slices.DeleteFunc(rows, func(r segment.Row) bool { return r.Removed && !m.elsewhere(id) })
	}
	if err := m.room(); err != nil {
		return err
	}
	if floor := m.k.floor(id); tomb || floor == allBytes {
		m.floored = m.floored || !tomb
		err = m.w.Begin(id, 0, 0)
	} else {
		err = m.bytes(id, parts, floor)
	}
	for i := 0; err == nil && i < len(rows); i++ {
		err = m.w.Row(rows[i])
	}
	return err
}

// elsewhere reports whether a segment outside of the merge has anything of a stream.
func (m *merge) elsewhere(id base.StreamID) bool {
	for _, ref := range m.others {
		if _, ok := ref.seg.Find(id); ok {
			return true
		}
	}
	return false
}

// newestRows returns of each key the newest row, by ascending keys. Below a
// tombstone nothing counts.
func (m *merge) newestRows(parts []part) ([]segment.Row, error) {
	m.rows, m.buf = m.rows[:0], m.buf[:0]
	keep := func(p []byte) []byte {
		m.buf = append(m.buf, p...)
		return m.buf[len(m.buf)-len(p):]
	}
	for _, p := range parts {
		for r, err := range p.scan.Rows(p.st) {
			if err != nil {
				m.blame(p.ref, err)
				return nil, err
			}
			r.Key, r.Value = keep(r.Key), keep(r.Value)
			m.rows = append(m.rows, r)
		}
	}
	slices.SortStableFunc(m.rows, func(a, b segment.Row) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), cmp.Compare(b.LSN, a.LSN))
	})
	m.rows = slices.CompactFunc(m.rows, func(a, b segment.Row) bool { return bytes.Equal(a.Key, b.Key) })
	return m.rows, nil
}

// room opens the next output when there is none or the present one is full.
func (m *merge) room() error {
	if m.w != nil && m.w.Size() < m.k.s.e.opts.SegmentMaxBytes {
		return nil
	}
	if m.w != nil {
		if _, err := m.w.Finish(); err != nil {
			return err
		}
		m.w = nil
	}
	size := int64(0)
	for _, ref := range m.inputs {
		size += ref.seg.Size()
	}
	w, id, err := m.k.newSegment(min(size, m.k.s.e.opts.SegmentMaxBytes), m.kind)
	if err != nil {
		return err
	}
	m.w, m.ids = w, append(m.ids, id)
	return nil
}

// bytes copies a stream's bytes and message ends from all parts that have some.
func (m *merge) bytes(id base.StreamID, parts []part, floor base.Offset) error {
	m.floored = m.floored || floor > 0
	parts = slices.DeleteFunc(parts, func(p part) bool {
		x := p.st.Extent
		return x.End == x.Start || x.End <= floor
	})
	if len(parts) == 0 {
		return m.w.Begin(id, 0, 0)
	}
	from, record, err := m.cut(parts[0], floor)
	if err != nil {
		return err
	}
	if err := m.w.Begin(id, from, record); err != nil {
		return err
	}
	at := parts[0].st.Extent.Start
	for _, p := range parts {
		x := p.st.Extent
		if x.Start != at {
			return fmt.Errorf("stream %d: segment %d begins at %d, the one before it ends at %d", id, x.Segment, x.Start, at)
		}
		at = x.End
		if err := m.part(p, max(from, x.Start)); err != nil {
			return err
		}
	}
	return nil
}

// cut returns where a stream's first part begins once what lies below floor is left
// out: the offset and the ordinal of the message there.
func (m *merge) cut(p part, floor base.Offset) (base.Offset, uint64, error) {
	x := p.st.Extent
	if floor <= x.Start {
		return x.Start, x.FirstRecord, nil
	}
	b, err := p.ref.seg.Boundaries(m.k.ctx, p.st)
	if err != nil {
		m.blame(p.ref, err)
		return 0, 0, err
	}
	record, exact, err := b.Locate(floor)
	if err != nil {
		m.blame(p.ref, err)
		return 0, 0, err
	}
	if !exact {
		return x.Start, x.FirstRecord, nil // no message begins there: keep all of it
	}
	return floor, record, nil
}

func (m *merge) part(p part, from base.Offset) error {
	x := p.st.Extent
	for off := from; off < x.End; {
		if m.k.stopping() {
			return errQuit
		}
		n := min(int(x.End-off), maxStep)
		b, err := p.scan.Payload(m.k.ctx, x.Pos+int64(off-x.Start), n)
		if err != nil {
			m.blame(p.ref, err)
			return err
		}
		if err := m.w.Payload(b); err != nil {
			return err
		}
		off += base.Offset(n)
	}
	if x.Records == 1 { // it ends with the run, and needs no look
		return m.w.Boundary(x.End)
	}
	b, err := p.ref.seg.Boundaries(m.k.ctx, p.st)
	if err != nil {
		m.blame(p.ref, err)
		return err
	}
	for end, err := range b.All() {
		if err != nil {
			m.blame(p.ref, err)
			return err
		}
		if end <= from {
			continue
		}
		if err := m.w.Boundary(end); err != nil {
			return err
		}
	}
	return nil
}

// blame notes the input whose damage ends the merge, or whose object is missing.
func (m *merge) blame(ref *segmentRef, err error) {
	var c *base.CorruptionError
	if errors.As(err, &c) || errors.Is(err, tiering.ErrNotFound) || errors.Is(err, tiering.ErrShort) {
		m.damaged = ref.seg.ID()
	}
}
