package enginetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// extra is what publications, retention and attributes have made of a stream. Its slice
// and what that points to are never changed.
type extra struct {
	first, firstRecord int
	snap               *record.Snapshot   // the current one
	replaced           []*record.Snapshot // that can still be read
	attrs              string
}

func (x extra) String() string {
	s := fmt.Sprintf("from %d, message %d, attributes %q", x.first, x.firstRecord, x.attrs)
	for _, n := range append(slices.Clone(x.replaced), x.snap) {
		if n != nil {
			s += fmt.Sprintf(", snapshot at %d", n.Offset)
		}
	}
	return s
}

// tell fills in what an answer says of all that.
func (x *extra) tell(a *core.Answer) {
	a.First, a.FirstRecord, a.Snapshot = base.Offset(x.first), uint64(x.firstRecord), x.snap
}

func sameSnapshot(a, b *record.Snapshot) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Offset == b.Offset && a.Record == b.Record && a.Digest == b.Digest && a.Size == b.Size && a.ContentType == b.ContentType
}

// shown reports whether a view says the same.
func (x extra) shown(v *engine.View) bool {
	if int(v.First) != x.first || int(v.FirstRecord) != x.firstRecord || !sameSnapshot(x.snap, v.Snapshot()) {
		return false
	}
	if v.Extra == nil {
		return x.attrs == "" && len(x.replaced) == 0
	}
	if string(v.Extra.Attrs) != x.attrs || len(v.Extra.Replaced) != len(x.replaced) {
		return false
	}
	for _, n := range x.replaced {
		if !sameSnapshot(n, v.Extra.Find(n.Offset)) {
			return false
		}
	}
	return true
}

// meets compares If-Match and If-None-Match.
func (s *state) meets(ev *core.Event) bool {
	matches := func(m core.Match) bool {
		return m.Any || m.Incarnation == core.Incarnation(s.era, s.inc.id) && int(m.Next) == s.next && m.Closed == s.closed
	}
	return (len(ev.IfMatch) == 0 || slices.ContainsFunc(ev.IfMatch, matches)) && !slices.ContainsFunc(ev.IfNoneMatch, matches)
}

// publish answers a publication as api §4 has it.
func (s *state) publish(ev *core.Event, now base.Millis) (core.Answer, *state) {
	n := ev.Snapshot
	at := int(n.Offset)
	refuse := func(c core.Code) (core.Answer, *state) { return s.answer(c), s }
	switch {
	case at > s.next:
		return refuse(core.SnapshotBeyondTail)
	case s.snap != nil && n.Offset == s.snap.Offset:
		if n.Digest != s.snap.Digest || n.ContentType != s.snap.ContentType {
			return refuse(core.SnapshotConflict)
		}
		if ev.Retain || s.first >= at {
			return refuse(core.Exists)
		}
		next := s.trim(at, int(n.Record), now)
		return next.answer(core.Exists), next
	case at < s.first:
		return refuse(core.SnapshotTrimmed)
	case ev.BodyFault:
		return refuse(core.BodyFault)
	case s.snap != nil && n.Offset < s.snap.Offset:
		return refuse(core.SnapshotStale)
	}
	next := s.renewed(now)
	if s.snap != nil {
		next.replaced = append(slices.Clone(s.replaced), s.snap)
	}
	next.snap = n
	if !ev.Retain {
		next.first, next.firstRecord = at, int(n.Record)
	}
	return next.answer(core.Created), next
}

// retain answers a change of the retention.
func (s *state) retain(ev *core.Event, now base.Millis) (core.Answer, *state) {
	at := int(ev.Offset)
	switch {
	case at < s.first:
		return s.answer(core.RetentionBehind), s
	case at == s.first:
		return s.answer(core.Exists), s
	case s.snap == nil || ev.Offset > s.snap.Offset:
		return s.answer(core.RetentionAhead), s
	case ev.BodyFault:
		return s.answer(core.BodyFault), s
	}
	next := s.trim(at, int(ev.Ordinal), now)
	return next.answer(core.Appended), next
}

func (s *state) trim(to, n int, now base.Millis) *state {
	next := s.renewed(now)
	next.first, next.firstRecord = to, n
	return next
}

// renewed is the state after a use that a record tells of.
func (s *state) renewed(now base.Millis) *state {
	n := *s
	n.renew(now)
	n.born = n.deadline
	return &n
}

// drop answers the deletion of a snapshot.
func (s *state) drop(at base.Offset) (core.Answer, *state) {
	if s.snap != nil && s.snap.Offset == at {
		return s.answer(core.SnapshotIsCurrent), s
	}
	next := *s
	next.born = next.deadline
	next.replaced = slices.DeleteFunc(slices.Clone(s.replaced), func(n *record.Snapshot) bool { return n.Offset == at })
	if len(next.replaced) == len(s.replaced) {
		return s.answer(core.SnapshotNotFound), s
	}
	return next.answer(core.Deleted), &next
}

// inherit gives the first state of a fork at an offset what its source had trimmed, and
// the snapshot that covers that. It is false when none does.
func (s *state) inherit(source *state, at int) bool {
	if source.first == 0 {
		return true
	}
	s.first, s.firstRecord = source.first, source.firstRecord
	for _, n := range append(slices.Clone(source.replaced), source.snap) {
		if n != nil && int(n.Offset) >= source.first && int(n.Offset) <= at && (s.snap == nil || n.Offset > s.snap.Offset) {
			s.snap = n
		}
	}
	return s.snap != nil
}

// refusesFork is the answer when the state is that of the source.
func (s *state) refusesFork(c core.Code) core.Answer {
	a := core.Answer{Code: c}
	if c == core.SnapshotTrimmed {
		a.Stream, a.First, a.FirstRecord = s.inc.id, base.Offset(s.first), uint64(s.firstRecord)
	}
	return a
}

// compareTrimmed looks below the earliest offset, and for messages by their ordinal.
func (w *World) compareTrimmed(v *engine.View, ends []int) error {
	if v.First > 0 {
		below := base.Offset(w.rng.Int64N(int64(v.First)))
		var st engine.Step
		defer st.Release()
		if err := w.e.Read(v, below, v.First, 1000, &st); !errors.Is(err, engine.ErrStale) {
			return fmt.Errorf("offset %d, below the earliest, %d: %w", below, v.First, err)
		}
	}
	first := int(v.FirstRecord)
	n := first + w.rng.IntN(len(ends)+1-first)
	want := int(v.First)
	if n > first {
		want = ends[n-1]
	}
	if at, err := w.e.RecordOffset(context.Background(), v, uint64(n), false); err != nil || int(at) != want {
		return fmt.Errorf("message %d begins at %d instead of %d: %w", n, at, want, err)
	}
	return w.checkSnapshots(v)
}

// checkSnapshots reads the snapshots of a view, unless it is overtaken meanwhile. What
// was trimmed is covered by one.
func (w *World) checkSnapshots(v *engine.View) error {
	if s := v.Snapshot(); v.First > 0 && (s == nil || s.Offset < v.First) {
		return fmt.Errorf("begins at %d, and no snapshot covers that", v.First)
	}
	var err error
	v.Extra.EachSnapshot(func(s *record.Snapshot) {
		if w.restored && s.Replaced != 0 {
			return // one that another has taken the place of need not have come along
		}
		if e := w.checkBlob(s); e != nil && err == nil {
			err = fmt.Errorf("snapshot at %d: %w", s.Offset, e)
		}
	})
	if st := w.e.Lookup([]byte(v.Bucket), []byte(v.Fixed.Name)); st == nil || st.View() != v {
		return nil
	}
	return err
}

func (w *World) checkBlob(s *record.Snapshot) error {
	b, err := w.e.Blobs().Open(s.Digest)
	if err != nil {
		return err
	}
	defer b.Release()
	got, err := b.Append(context.Background(), nil, 0, int(b.Size()))
	want, ok := w.blobs.Load(blob.Digest(s.Digest))
	if err != nil || !ok || !bytes.Equal(got, want.([]byte)) || s.Size != b.Size() {
		return fmt.Errorf("%d bytes of %d, known %t: %w", len(got), s.Size, ok, err)
	}
	return nil
}

// upload makes a blob, to which the caller has a reference.
func (w *World) upload(body []byte) (blob.Digest, error) {
	up, err := w.e.Blobs().Create(int64(len(body)))
	if err != nil {
		return blob.Digest{}, err
	}
	w.blobs.Store(blob.Digest(sha256.Sum256(body)), body)
	if _, err := up.Write(body); err != nil {
		up.Abort()
		return blob.Digest{}, err
	}
	return up.Commit()
}

// checkStores looks, when nothing is under way, for blobs and buckets that nothing
// explains.
func (w *World) checkStores() error {
	if n := w.e.Blobs().Orphans(); n > 0 {
		return fmt.Errorf("%d files of blobs are not accounted for", n)
	}
	want := map[blob.Digest]bool{}
	live := map[string]int64{}
	for _, st := range w.streams {
		v := w.view(st)
		if v == nil {
			continue
		}
		if _, ok := w.e.Bucket([]byte(st.bucket)); !ok {
			return fmt.Errorf("%s is in bucket %s, which does not exist", st.name, st.bucket)
		}
		if !v.Deleted {
			live[st.bucket]++
		}
		v.Extra.EachSnapshot(func(s *record.Snapshot) { want[s.Digest] = true })
	}
	for _, name := range append([]string{"b"}, bucketNames(w.cfg.Buckets)...) {
		if info, _ := w.e.Bucket([]byte(name)); info.Streams != live[name] {
			return fmt.Errorf("bucket %s counts %d streams instead of %d", name, info.Streams, live[name])
		}
	}
	w.mu.Lock() // moments are still being looked at
	for _, st := range w.buckets {
		if v, s := w.view(st), st.last(); v != nil && s.inc != nil {
			s.inc.id = v.ID
		}
	}
	w.mu.Unlock()
	if w.up != nil {
		return nil // some are only in the object store
	}
	return w.checkFiles(len(want))
}

// checkFiles waits until there are as many files of blobs as there should be: those of
// streams that have just ended are about to go.
func (w *World) checkFiles(want int) error {
	dir := filepath.Join(Dir, "blobs")
	files := 0
	for range maxPolls {
		if _, err := w.e.Blobs().Collect(math.MaxInt64); err != nil {
			return err
		}
		subs, err := w.fs.List(dir)
		if err != nil {
			return err
		}
		files = 0
		for _, sub := range subs {
			if names, err := w.fs.List(filepath.Join(dir, sub)); err == nil {
				files += len(names)
			}
		}
		if files == want {
			return nil
		}
		runtime.Gosched() // the engine is removing some itself
	}
	return fmt.Errorf("%d files of blobs for %d snapshots' digests", files, want)
}
