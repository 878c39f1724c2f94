package check

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/overlay"
	"github.com/snakream/snakream/segment"
)

// verifier is one run of Verify.
type verifier struct {
	fs      vfs.FS
	dir     string
	options engine.Options
	say     func(Finding)
	sum     Summary
	told    map[string]bool // path and offset of damage that was reported
	pending []hurt          // until the names of the streams are known
	refs    map[blob.Digest][]string
	names   map[base.StreamID]string // of streams in pending
}

// hurt is damage of a segment that takes something from a stream.
type hurt struct {
	path string
	at   int64
	err  error
	segment.Hurt
}

// Verify reads everything in the data directory dir and calls say for each finding. It
// changes nothing. Options are those of a start; only what a start needs to read
// matters. The error says why nothing could be looked at: engine.ErrLocked while a
// process has the directory open, engine.ErrForeign, or one of the file system.
func Verify(dir string, o engine.Options, say func(Finding)) (*Summary, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	c, err := take(o.FS, dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDirectory(o.FS, dir)
	if err != nil {
		return nil, err
	}
	only := overlay.New(o.FS) // whatever happens, nothing is written
	o.FS = only
	v := &verifier{
		fs: only, dir: dir, options: o, say: say,
		told: map[string]bool{}, refs: map[blob.Digest][]string{}, names: map[base.StreamID]string{},
	}
	v.all(c)
	return &v.sum, errors.Join(only.Close(), lock.Close())
}

// report hands out a finding. Damage is told of once.
func (v *verifier) report(f Finding) {
	if f.Severity != Note {
		key := fmt.Sprint(f.Path, f.Offset)
		if v.told[key] && f.Severity == Stops {
			return
		}
		v.told[key] = true
	}
	switch f.Severity {
	case Stops:
		v.sum.Stops++
	case Hurts:
		v.sum.Hurts++
	default:
		v.sum.Notes++
	}
	v.say(f)
}

func (v *verifier) note(path, format string, a ...any) {
	v.report(Finding{Severity: Note, Path: path, Detail: fmt.Sprintf(format, a...)})
}

// failed reports an error about a file; where it says itself which, that one.
func (v *verifier) failed(s Severity, path string, err error, means string) {
	f := Finding{Severity: s, Path: path, Detail: err.Error(), Means: means}
	var newer *base.VersionError
	switch c := corruption(err); {
	case c != nil:
		f.Offset, f.Detail = c.Offset, c.Detail
		if c.Path != "" {
			f.Path = c.Path
		}
	case errors.As(err, &newer):
		f.Path = newer.Path
		f.Detail = fmt.Sprintf("format version %d, this program reads up to %d", newer.Version, newer.Newest)
	}
	v.report(f)
}

func (v *verifier) path(elem ...string) string {
	return filepath.Join(append([]string{v.dir}, elem...)...)
}

func (v *verifier) all(c *census) {
	if !c.has(identityName) && len(c.shards) == 0 {
		v.note(v.path(identityNew), "the making of the directory was interrupted: it holds nothing, and a start makes it anew")
		return
	}
	id, err := engine.ReadIdentity(v.fs, v.dir)
	if err != nil {
		v.failed(Stops, v.path(identityName), err, refuses)
		id.Shards = len(c.shards)
	}
	if c.has(identityRepair) {
		v.report(Finding{Severity: Stops, Path: v.path(identityRepair), Detail: "a repair has not come to its end", Means: "a start refuses until «snakream repair --apply» has run again"})
	}
	v.top(c, id.Shards)
	v.sum.Shards = id.Shards
	for n := range id.Shards {
		v.shard(n)
	}
	if err := blob.Check(v.fs, v.path(blobsName)); err != nil {
		v.failed(Stops, v.path(blobsName), err, refuses)
	}
	known := v.streams()
	v.hurts()
	v.blobs(known)
}

// top looks at the names in the directory itself.
func (v *verifier) top(c *census, shards int) {
	for _, name := range c.names {
		switch m := shardName.FindStringSubmatch(name); {
		case m != nil && m[1] >= fmt.Sprintf("%02d", shards):
			v.note(v.path(name), "there are %d shards: nobody reads this one", shards)
		case m != nil, name == identityName, name == identityRepair, name == repairTemp, name == lockName, name == blobsName, name == lostFoundName, name == tierName, name == tierNew:
		case name == quarantineName:
			files, bytes := v.size(v.path(name))
			v.note(v.path(name), "%d files, %d bytes, which repairs have put there; they may hold data that was deleted since", files, bytes)
		default:
			v.note(v.path(name), "not a file of this program: it is left alone")
		}
	}
}

// size returns how many files are below a path, and their bytes.
func (v *verifier) size(path string) (files int, bytes int64) {
	names, err := v.fs.List(path)
	if err != nil {
		n, err := v.fs.Stat(path)
		if err != nil {
			return 0, 0
		}
		return 1, n
	}
	for _, name := range names {
		f, b := v.size(filepath.Join(path, name))
		files, bytes = files+f, bytes+b
	}
	return files, bytes
}

// streams brings all streams back as a start would, if nothing keeps it from that, and
// reports whether it did.
func (v *verifier) streams() bool {
	if v.sum.Stops > 0 {
		v.note(v.dir, "which streams there are was not looked at, since a start refuses")
		return false
	}
	for _, h := range v.pending {
		v.names[h.Stream] = ""
	}
	err := engine.Probe(v.dir, v.options, v.stream)
	switch {
	case err == nil:
		return true
	case corruption(err) != nil:
		v.failed(Stops, v.dir, err, refuses)
	default:
		v.note(v.dir, "which streams there are could not be looked at: %v", err)
	}
	return false
}

func (v *verifier) stream(f *engine.Found) {
	name := f.Bucket + "/" + f.Name
	if f.Name != "" {
		v.sum.Streams++
	}
	if _, asked := v.names[f.ID]; asked {
		v.names[f.ID] = name
	}
	for _, m := range f.Missing {
		v.report(Finding{
			Severity: Hurts, Path: v.dir, Detail: fmt.Sprintf("stream %s (id %d): offsets [%d, %d) are in no file", name, f.ID, m.Start, m.End),
			Means: "reads of them answer 500 (range_damaged)",
		})
	}
	if f.Orphan {
		v.report(Finding{
			Severity: Hurts, Path: v.dir, Detail: fmt.Sprintf("stream %s (id %d) is a fork of which its source does not know", name, f.ID),
			Means: "what it inherits may disappear",
		})
	}
	for _, n := range f.Snapshots {
		v.refs[n.Digest] = append(v.refs[n.Digest], fmt.Sprintf("%s at offset %d", name, n.Offset))
	}
}

// hurts reports what segments have lost, by the names of the streams.
func (v *verifier) hurts() {
	for _, h := range v.pending {
		who := fmt.Sprintf("stream id %d", h.Stream)
		if name := v.names[h.Stream]; name != "" {
			who = fmt.Sprintf("stream %s (id %d)", name, h.Stream)
		}
		means := fmt.Sprintf("reads of offsets [%d, %d) of %s answer 500 (range_damaged)", h.Start, h.End, who)
		if h.Bounds {
			means = fmt.Sprintf("what needs the message boundaries in [%d, %d) of %s answers 500 (range_damaged)", h.Start, h.End, who)
		}
		f := Finding{Severity: Hurts, Path: h.path, Offset: h.at, Detail: h.err.Error(), Means: means}
		if c := corruption(h.err); c != nil {
			f.Detail = c.Detail
		}
		v.report(f)
	}
}
