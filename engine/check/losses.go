package check

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal"
	"github.com/snakream/snakream/wal/record"
)

// losses is what a repair takes away, and what is left, from which follows what is lost.
type losses struct {
	shards int
	lines  []string // known from the start
	tails  []*tail
	drops  []drop
	blobs  map[blob.Digest]string // paths of damaged ones

	rows    map[base.StreamID]base.LSN // of streams that dropped segments may have held: the newest that is left
	found   map[base.StreamID]found    // of streams that somebody will ask about
	missing []string
	unread  []string // snapshots whose blob is damaged
}

// found is what is left of a stream.
type found struct {
	name string
	next base.Offset
}

// drop is a segment that is taken out.
type drop struct {
	path    string
	shard   int
	m       manifest.Segment
	extents []base.Extent // nil: nobody knows
}

func (l *losses) mayHold(d *drop, id base.StreamID) bool {
	return d.m.MinStream <= id && id <= d.m.MaxStream && id.Shard(l.shards) == d.shard
}

func newLosses() losses {
	return losses{
		blobs: map[blob.Digest]string{}, rows: map[base.StreamID]base.LSN{}, found: map[base.StreamID]found{},
	}
}

func (l *losses) sayf(format string, a ...any) { l.lines = append(l.lines, fmt.Sprintf(format, a...)) }

func (l *losses) mayBeDropped(id base.StreamID) bool {
	return slices.ContainsFunc(l.drops, func(d drop) bool { return l.mayHold(&d, id) })
}

// row notes that a row of a stream is left.
func (l *losses) row(id base.StreamID, lsn base.LSN) {
	if l.mayBeDropped(id) {
		l.rows[id] = max(l.rows[id], lsn)
	}
}

// logged notes that a record is left.
func (l *losses) logged(i wal.Item) {
	if len(l.drops) == 0 {
		return
	}
	var rec record.Record
	if rec.Decode(record.Type(i.Type), i.Head, i.Body) == nil && rec.Stream != 0 {
		l.row(rec.Stream, i.LSN)
	}
}

// seen notes what is left of a stream.
func (l *losses) seen(f *engine.Found, blobs map[blob.Digest]bool) {
	name := f.Bucket + "/" + f.Name
	asked := l.mayBeDropped(f.ID)
	for _, t := range l.tails {
		asked = asked || t.streams[f.ID] != nil
	}
	if asked {
		l.found[f.ID] = found{name: name, next: f.Next}
	}
	for _, m := range f.Missing {
		l.missing = append(l.missing, fmt.Sprintf("%s: offsets [%d, %d) are in no file: reads of them answer 500 (range_damaged)", name, m.Start, m.End))
	}
	for _, n := range f.Snapshots {
		if path, ok := l.blobs[n.Digest]; ok {
			l.unread = append(l.unread, fmt.Sprintf("%s: its snapshot at offset %d can't be read, since %s is damaged", name, n.Offset, path))
		} else if !blobs[n.Digest] {
			l.unread = append(l.unread, fmt.Sprintf("%s: its snapshot at offset %d can't be read, since the blob %v is missing", name, n.Offset, blob.Digest(n.Digest)))
		}
	}
}

// tell says everything in sentences.
func (l *losses) tell() []string {
	all := slices.Clone(l.lines)
	for _, t := range l.tails {
		all = append(all, t.tell(l.found)...)
	}
	for _, d := range l.drops {
		all = append(all, l.tellDrop(&d)...)
	}
	slices.Sort(l.missing)
	slices.Sort(l.unread)
	return append(append(all, l.missing...), l.unread...)
}

func (l *losses) tellDrop(d *drop) []string {
	all := []string{fmt.Sprintf("%s: its bytes, and what it said of streams with ids in [%d, %d] up to LSN %d, are gone: "+
		"streams of which nothing else knew, and perhaps deletions, after which a stream may be back", d.path, d.m.MinStream, d.m.MaxStream, d.m.Run)}
	for _, x := range d.extents {
		if _, ok := l.found[x.Stream]; !ok {
			all = append(all, fmt.Sprintf("stream id %d, with offsets [%d, %d) in that segment, is not there any more", x.Stream, x.Start, x.End))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.found)) {
		if f := l.found[id]; l.mayHold(d, id) && uint64(l.rows[id]) <= d.m.Run {
			all = append(all, fmt.Sprintf("%s: it ends at offset %d as far as is known, and may have gone on in that segment; so may its producers and its closure", f.name, f.next))
		}
	}
	return all
}

// tail is what lies behind the place at which a log breaks off.
type tail struct {
	shard   string
	end     base.LSN // of the log that is left
	n       uint64   // records that verify
	last    base.LSN
	streams map[base.StreamID]*lostStream
	rec     record.Record
}

// lostStream is what a log's tail said of one stream.
type lostStream struct {
	name             string // if it was created there
	end              base.Offset
	writes           int
	created, deleted bool
	other            int
}

func newTail(dir string) *tail {
	return &tail{shard: filepath.Base(dir), streams: map[base.StreamID]*lostStream{}}
}

// add takes a record down that can still be read.
func (t *tail) add(i wal.Item) {
	t.n++
	t.last = max(t.last, i.LSN)
	r := &t.rec
	if i.Head == nil || r.Decode(record.Type(i.Type), i.Head, i.Body) != nil || r.Stream == 0 {
		return
	}
	s := t.streams[r.Stream]
	if s == nil {
		s = &lostStream{}
		t.streams[r.Stream] = s
	}
	switch r.Type {
	case record.TypeCreate:
		s.created, s.name = true, r.Config.Bucket+"/"+r.Config.Name
		s.end = max(s.end, r.Offset+base.Offset(len(r.Body)))
	case record.TypeAppend:
		s.writes++
		s.end = max(s.end, r.Offset+base.Offset(len(r.Body)))
	case record.TypeDelete:
		s.deleted = true
	default:
		s.other++
	}
}

func (t *tail) tell(left map[base.StreamID]found) []string {
	if t.n == 0 {
		return []string{fmt.Sprintf("%s: its log ends at LSN %d; nothing can be read of what was behind, if there was anything", t.shard, t.end)}
	}
	all := []string{fmt.Sprintf("%s: its log ends at LSN %d, and records up to LSN %d were behind, which may have been acknowledged; "+
		"%d of them can still be read in the quarantine, of the others nothing is known", t.shard, t.end, t.last, t.n)}
	for _, id := range slices.SortedFunc(maps.Keys(t.streams), func(a, b base.StreamID) int { return cmp.Compare(a, b) }) {
		f, there := left[id]
		all = append(all, t.streams[id].tell(id, f, there))
	}
	return all
}

func (s *lostStream) tell(id base.StreamID, left found, there bool) string {
	name := cmp.Or(left.name, s.name, fmt.Sprintf("stream id %d", id))
	var say string
	switch {
	case !there && s.created:
		say = fmt.Sprintf("%s: it is gone; it was created there, with offsets [0, %d)", name, s.end)
	case !there:
		say = fmt.Sprintf("%s: it is gone; it ended at offset %d", name, s.end)
	case s.end > left.next:
		say = fmt.Sprintf("%s: offsets [%d, %d) are gone", name, left.next, s.end)
	default:
		say = fmt.Sprintf("%s: it ends at offset %d as before", name, left.next)
	}
	if s.writes > 0 {
		say += fmt.Sprintf(", %d appends or closures", s.writes)
	}
	if s.other > 0 {
		say += fmt.Sprintf(", %d changes of its snapshots, retention, attributes, forks or deadline", s.other)
	}
	if s.deleted && there {
		say += "; its deletion is lost too: it is back"
	}
	return say
}
