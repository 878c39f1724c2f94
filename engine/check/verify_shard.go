package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

func shardDir(n int) string { return fmt.Sprintf("shard-%02d", n) }

// segmentPath is where a shard keeps a segment.
func segmentPath(shard string, id base.SegmentID) string {
	return filepath.Join(shard, "seg", fmt.Sprintf("%010d.seg", uint64(id)))
}

// evictedPath is where it keeps what stays of one that is only in the object store.
func evictedPath(shard string, id base.SegmentID) string {
	return strings.TrimSuffix(segmentPath(shard, id), ".seg") + ".tail"
}

// segmentNumber reads the name of a segment's file.
func segmentNumber(name string) (id base.SegmentID, ok bool) {
	digits, ext, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	return base.SegmentID(n), err == nil && (ext == "seg" || ext == "tail")
}

// pathOf is where a shard has what it has of a segment.
func pathOf(shard string, m manifest.Segment) string {
	if m.Evicted {
		return evictedPath(shard, m.ID)
	}
	return segmentPath(shard, m.ID)
}

// absent is the object of an evicted segment, of which nobody here reads anything.
type absent int64

func (a absent) Size() int64                     { return int64(a) }
func (absent) ReadAt([]byte, int64) (int, error) { return 0, errors.New("it is in the object store") }
func (absent) Discard(int64, int64)              {}
func (a absent) ReadContext(_ context.Context, p []byte, off int64) (int, error) {
	return a.ReadAt(p, off)
}

// openSegment opens what a shard has of a segment; the file is the caller's to close.
func openSegment(fsys vfs.FS, shard string, m manifest.Segment) (*segment.Segment, vfs.File, error) {
	path, id := pathOf(shard, m), m.ID
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &base.CorruptionError{Path: path, Detail: "the manifest names it, and it is missing"}
	}
	if err != nil {
		return nil, nil, err
	}
	var seg *segment.Segment
	if m.Evicted {
		seg, err = segment.OpenTail(f, absent(m.Size), path, id)
	} else {
		var src segment.Source
		if src, err = segment.FileSource(f); err == nil {
			seg, err = segment.Open(src, path, id)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return seg, f, nil
}

// shard looks at everything in one shard.
func (v *verifier) shard(n int) {
	dir := v.path(shardDir(n))
	names, err := v.fs.List(dir)
	if err != nil {
		v.failed(Stops, dir, err, refuses)
		return
	}
	state, err := manifest.Read(v.fs, dir)
	readable := err == nil
	if !readable {
		v.failed(Stops, manifest.CurrentPath(dir), err, refuses)
	}
	v.otherManifests(dir, readable)
	for _, name := range names {
		switch path := filepath.Join(dir, name); {
		case name == "tmp":
			if files, bytes := v.size(path); files > 0 {
				v.note(path, "%d unfinished files, %d bytes: the next start removes them", files, bytes)
			}
		case name == "wal", name == "seg", name == "CURRENT", name == "CURRENT.tmp", strings.HasPrefix(name, "MANIFEST-"):
		default:
			v.note(path, "not a file of this program: it is left alone")
		}
	}
	v.segments(dir, state, readable)
	v.log(dir, state, readable)
}

// otherManifests looks at files of edits that do not count.
func (v *verifier) otherManifests(dir string, readable bool) {
	files, err := manifest.Files(v.fs, dir)
	if err != nil {
		v.failed(Stops, dir, err, refuses)
		return
	}
	for _, f := range files {
		switch {
		case !readable && f.Err == nil:
			v.note(f.Path, "a complete manifest, with %d segments; «snakream repair» may use it", len(f.State.Segments))
		case readable && len(files) > 1:
			v.note(f.Path, "one of %d manifests, as a crash leaves them; the next start removes those that do not count", len(files))
		}
	}
}

// segments looks at the segments that the manifest names, or at all there are when it
// can't be read, and at the others' names.
func (v *verifier) segments(shard string, state manifest.State, readable bool) {
	dir := filepath.Join(shard, "seg")
	names, err := v.fs.List(dir)
	if err != nil {
		v.failed(Stops, dir, err, refuses)
		return
	}
	var ids []base.SegmentID
	for id := range state.Segments {
		ids = append(ids, id)
	}
	for _, name := range names {
		id, ok := segmentNumber(name)
		_, live := state.Segments[id]
		switch path := filepath.Join(dir, name); {
		case ok && live:
		case ok && !readable && filepath.Ext(name) == ".seg":
			ids = append(ids, id)
		case ok && !readable:
			v.note(path, "what is left here of a segment that is in the object store; without a manifest it is not known of which size")
		case ok && id < state.NextSegment:
			v.note(path, "the output of a flush or merge that was not completed: the next start removes it")
		case ok:
			v.note(path, reservedNothing)
		default:
			v.note(path, "not a file of this program: it is left alone")
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		m := state.Segments[id]
		m.ID = id // where the manifest can't be read, it is all that is known
		v.segment(shard, m)
	}
}

func (v *verifier) segment(shard string, m manifest.Segment) {
	v.sum.Segments++
	path := pathOf(shard, m)
	seg, f, err := openSegment(v.fs, shard, m)
	if err != nil {
		v.failed(Stops, path, err, refuses)
		return
	}
	defer f.Close()
	if m.Evicted {
		v.sum.Evicted++
	}
	v.sum.Bytes += seg.Size()
	seg.Check(!m.Evicted, func(d segment.Damage) {
		if d.State {
			v.failed(Stops, path, d.Err, refuses)
			return
		}
		for _, h := range d.Hurt {
			v.pending = append(v.pending, hurt{path: path, at: d.Pos, err: d.Err, Hurt: h})
		}
	})
}

// log looks at the log from low-water on, or at all of it when that is not known.
func (v *verifier) log(shard string, state manifest.State, readable bool) {
	dir := filepath.Join(shard, "wal")
	var rec record.Record
	var behind uint64
	each := func(i wal.Item) error {
		switch {
		case i.Type == 0:
		case i.Behind:
			behind++
		default:
			if err := rec.Decode(record.Type(i.Type), i.Head, i.Body); err != nil {
				v.failed(Stops, i.Path, &base.CorruptionError{Path: i.Path, Offset: i.Offset, Detail: fmt.Sprintf("record %d: %v", i.LSN, err)}, refuses)
			}
		}
		return nil
	}
	var info wal.Info
	var end wal.Ending
	var err error
	if readable {
		info, end, err = wal.Survey(v.fs, dir, wal.Position{LSN: state.Low.LSN, Batch: state.Low.Batch}, each)
	} else {
		info, err = wal.Inspect(v.fs, dir, each)
	}
	v.sum.Records += info.Records
	v.sum.Bytes += info.Bytes
	switch {
	case err != nil:
		means := refuses
		if end.Path != "" {
			means += fmt.Sprintf("; %s is sound up to byte %d, and %d records behind that can still be read", end.Path, end.Offset, behind)
		}
		v.failed(Stops, dir, err, means)
	case info.TornRecords > 0:
		v.note(dir, "at least %d records of a batch that was never synced, which nobody was told of: the next start drops them", info.TornRecords)
	}
	names, err := v.fs.List(dir)
	if err != nil {
		return // it was said above
	}
	for _, name := range names {
		if ext := filepath.Ext(name); ext != ".wal" && ext != ".spare" {
			v.note(filepath.Join(dir, name), "not a file of this program: it is left alone")
		}
	}
}

// blobs looks at every snapshot. known says that v.refs is complete.
func (v *verifier) blobs(known bool) {
	dir := v.path(blobsName)
	there := map[blob.Digest]bool{}
	err := blob.Inspect(v.fs, dir, func(i blob.Item) {
		switch {
		case i.Temp:
			v.note(i.Path, "what is left of an upload: the next start removes it")
		case !i.Known():
			v.note(i.Path, "not a file of this program: it is left alone")
		case i.Err != nil && i.Copied:
			v.failed(Hurts, i.Path, i.Err, "it is read from the object store instead")
		case i.Err != nil:
			v.failed(Hurts, i.Path, i.Err, v.snapshotsOf(i.Digest, known))
		case known && len(v.refs[i.Digest]) == 0 && !i.Named:
			v.note(i.Path, "no snapshot refers to it, and %s", reservedNothing)
		case known && len(v.refs[i.Digest]) == 0:
			v.note(i.Path, "no snapshot refers to it any more: the next start removes it")
		}
		if i.Known() && !i.Temp {
			there[i.Digest] = true
			v.sum.Blobs++
			v.sum.Bytes += i.Size
		}
	})
	if err != nil {
		v.failed(Stops, dir, err, refuses)
		return
	}
	copied, err := blob.Copies(v.fs, dir)
	if err != nil {
		return // it was said above
	}
	for d := range v.refs {
		if !there[d] && !copied(d) {
			path := blob.Path(dir, d)
			v.failed(Hurts, path, &base.CorruptionError{Path: path, Detail: "the blob is missing"}, v.snapshotsOf(d, known))
		}
	}
}

// snapshotsOf says what the loss of a blob means.
func (v *verifier) snapshotsOf(d blob.Digest, known bool) string {
	switch refs := v.refs[d]; {
	case !known:
		return "reads of its snapshots answer 500 (range_damaged)"
	case len(refs) == 0:
		return "no snapshot refers to it"
	default:
		return "reads of these snapshots answer 500 (range_damaged): " + strings.Join(refs, ", ")
	}
}
