package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/tiering"
)

// upload begins as many puts as may run, of snapshots and segments by turns: a segment that
// refers to a snapshot enters the mirror only after it, but neither may keep the other
// waiting for ever. Of segments the oldest come first, so that what a restore would find
// grows without gaps.
func (t *tier) upload() {
	for free := t.puts.slots(tierParallel) - len(t.uploading); free > 0 && t.numbered(); free-- {
		t.blobNext = !t.blobNext
		if !(t.blobNext && t.uploadOneBlob()) && !t.uploadOneSegment() && !t.uploadOneBlob() {
			return
		}
	}
}

func (t *tier) uploadOneBlob() bool {
	due := func(d blob.Digest) bool { return t.due(pending{digest: d}) }
	fresh := func(d blob.Digest) bool { return t.puts.fresh(pending{digest: d}) }
	var all []blob.Pending
	if t.puts.doubtful {
		all = t.e.blobs.Unsaved(1, fresh)
	}
	if len(all) == 0 {
		all = t.e.blobs.Unsaved(1, due)
	}
	if len(all) == 0 {
		return false
	}
	if !t.ours() {
		t.e.blobs.GiveUp(all[0])
		return false
	}
	t.uploadBlob(all[0])
	return true
}

func (t *tier) uploadOneSegment() bool {
	all := t.candidates(1)
	if len(all) == 0 {
		return false
	}
	if c := all[0]; !t.ours() {
		c.s.unhold(c.seg.ID, c.ref)
		return false
	}
	t.uploadSegment(all[0])
	return true
}

// due reports whether it is time to put something. What has failed before never takes
// all the places, however long each try lasts.
func (t *tier) due(p pending) bool {
	if t.puts.fresh(p) {
		return true
	}
	again := 0
	for other := range t.uploading {
		if !t.puts.fresh(other) {
			again++
		}
	}
	return again < tierParallel/2 && t.puts.due(p)
}

// ours reports whether the prefix is still this node's. It asks when the last answer to
// that is too old: a machine that stood still for a while may have been replaced.
func (t *tier) ours() bool {
	trusted := 2*t.e.opts.TierFlushInterval + time.Second
	return time.Since(t.committed) < trusted || time.Since(t.checked) < trusted || t.check()
}

// check asks whether the mirror is still this node's own.
func (t *tier) check() bool {
	if !t.mirroring.open() {
		return false
	}
	if err := t.handle.Check(t.calls); err != nil {
		t.failed(&t.mirroring, "check", err)
		return false
	}
	t.mirroring.succeeded()
	t.checked = time.Now()
	return true
}

// numbered makes sure that there are object numbers for the next puts.
func (t *tier) numbered() bool {
	if t.next+tierParallel < t.state.Objects {
		return true
	}
	return t.mirroring.open() && t.commit() && t.next+tierParallel < t.state.Objects
}

// number returns the object number for a put: the one of an earlier try, if there was
// one, so that at most one object comes of it.
func (t *tier) number(p pending) uint64 {
	n, ok := t.numbers[p]
	if !ok {
		n = t.next
		t.next++
		t.numbers[p] = n
	}
	return n
}

// candidate is a segment that is to be put.
type candidate struct {
	s     *tierShard
	seg   manifest.Segment
	ref   *segmentRef
	again bool // it has failed, and so may others
}

// candidates returns the segments that are old or large enough to go, oldest first, pinned
// and held: nobody merges them meanwhile. While puts fail those come first that have not
// been tried, to see whether it is only one of them that can't be put.
func (t *tier) candidates(most int) []candidate {
	var all []candidate
	for i := range t.shards {
		s := &t.shards[i]
		for _, m := range s.live {
			p := pending{shard: i, seg: m.ID}
			if m.Object != 0 || t.uploading[p] || !t.ripe(s, m) || !t.due(p) {
				continue
			}
			all = append(all, candidate{s: s, seg: m, again: t.puts.doubtful && !t.puts.fresh(p)})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if a.again != b.again {
			if a.again {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.seg.Run, b.seg.Run)
	})
	taken := all[:0]
	for _, c := range all {
		if len(taken) == most {
			break
		}
		if c.ref = c.s.hold(c.seg.ID); c.ref != nil {
			taken = append(taken, c)
		}
	}
	return taken
}

// ripe reports whether a segment is to go now. A flush waited in the memtable for as long
// as it may. What a merge has made may soon be merged again, and its inputs are there.
func (t *tier) ripe(s *tierShard, m manifest.Segment) bool {
	f := s.flushed[m.ID]
	return !f.merged || m.Size >= t.e.opts.TierMinBytes || time.Since(f.at) >= t.e.opts.TierFlushInterval
}

func (t *tier) uploadSegment(c candidate) {
	p := pending{shard: c.s.s.n, seg: c.seg.ID}
	n := t.number(p)
	key := tiering.SegmentKey(c.s.s.n, c.seg.ID, n)
	t.uploading[p] = true
	t.spawn(func() func() {
		err := t.put(key, c.ref.file, c.ref.seg)
		return func() {
			delete(t.uploading, p)
			t.putSegment(c, p, n, err)
		}
	})
}

// putSegment enters a segment's object in the manifest, or notes why there is none.
func (t *tier) putSegment(c candidate, p pending, n uint64, err error) {
	if err == nil {
		err = c.s.stored(c.seg.ID, n)
	}
	c.s.unhold(c.seg.ID, c.ref)
	switch {
	case err == nil:
		delete(t.numbers, p)
		t.puts.succeeded(p)
		t.stats.puts.Add(1)
		t.stats.putBytes.Add(c.seg.Size)
		t.refresh()
		if t.e.diskFull.Load() { // it may fit again
			t.e.checkDisk()
		}
	case errors.Is(err, tiering.ErrExists): // not ours, whatever it is: another number
		delete(t.numbers, p)
		t.failedPut(p, err)
	default:
		t.failedPut(p, err)
	}
}

func (t *tier) uploadBlob(b blob.Pending) {
	p := pending{digest: b.Digest}
	n := t.number(p)
	key := tiering.BlobKey(b.Digest, n)
	t.uploading[p] = true
	t.spawn(func() func() {
		f, seg, err := t.e.blobs.OpenFile(b)
		if err == nil {
			err = errors.Join(t.put(key, f, seg), f.Close())
		}
		if err == nil {
			err = t.e.blobs.Saved(b, n)
		}
		return func() {
			delete(t.uploading, p)
			t.putBlob(b, p, err)
		}
	})
}

func (t *tier) putBlob(b blob.Pending, p pending, err error) {
	if err == nil {
		delete(t.numbers, p)
		t.puts.succeeded(p)
		t.stats.puts.Add(1)
		t.stats.putBytes.Add(b.Size)
		return
	}
	t.e.blobs.GiveUp(b)
	if errors.Is(err, tiering.ErrExists) {
		delete(t.numbers, p)
	}
	_ = t.e.syncBlobs() // which ends the engine if the error was final
	t.failedPut(p, err)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put checks a file whole, puts it, and has the store say that it is there. A damaged
// one goes as it is: what is good in it needs protection too, and what is newer waits
// for it; the damage is found by whoever reads it, as before.
func (t *tier) put(key string, f vfs.File, seg *segment.Segment) error {
	if err := seg.VerifyAll(t.calls); isDamage(err) {
		t.e.stats.damaged.Add(1)
		t.e.opts.Logger.Error("damaged, and put into the object store as it is", "key", key, "err", err)
	} else if err != nil {
		return err
	}
	sum, err := sumFile(t.calls, f, seg.Size())
	if err != nil {
		return err
	}
	body := tiering.Body{R: t.limiter.Reader(t.calls, f), Size: seg.Size(), CRC32C: sum}
	if err := t.store.Put(t.calls, key, body); err != nil {
		return err
	}
	info, err := t.store.Stat(t.calls, key)
	if err != nil {
		return err
	}
	if info.Size != body.Size || info.HasCRC && info.CRC32C != sum {
		return fmt.Errorf("object %s: %d bytes and checksum %08x were put, it has %d and %08x", key, body.Size, sum, info.Size, info.CRC32C)
	}
	return nil
}

// sumFile returns the CRC-32C of the first n bytes of a file.
func sumFile(ctx context.Context, f io.ReaderAt, n int64) (sum uint32, err error) {
	buf := make([]byte, min(n, maxStep))
	for at := int64(0); at < n; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p := buf[:min(n-at, maxStep)]
		if _, err := f.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, p)
		at += int64(len(p))
	}
	return sum, nil
}
