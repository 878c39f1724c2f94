package wal

import (
	"github.com/snakream/snakream/internal/vfs"
)

// Item is a part of a log as Inspect finds it.
type Item struct {
	Path   string
	Offset int64 // in the file
	Bytes  int64 // header and payload
	// Type is zero for the header of a file. Head and Body are valid during the
	// call only, and nil for an item behind the end whose payload does not verify.
	Record
	// Behind says that the record is no part of the log: its header verifies, but
	// it is behind the end, the remains of a batch that was never synced or, when
	// there is damage, of what followed it.
	Behind bool
}

// Inspect reads the log in dir, whatever of it is in segments, and changes nothing.
// It calls fn for the header of each file, then for each record of the log, then
// for those found behind its end. An error of fn ends it and comes back as it is.
// A *base.CorruptionError or *base.VersionError is what Open would refuse with,
// except that Inspect can't know whether files are missing at the beginning.
// The log should not be open: what is written meanwhile may look torn.
func Inspect(fsys vfs.FS, dir string, fn func(Item) error) (Info, error) {
	found, err := list(fsys, dir)
	if err != nil {
		return Info{}, err
	}
	s, err := openScanner(dir, found.logs, fsys.Open)
	if err != nil {
		return Info{}, err
	}
	defer s.close()
	for _, f := range s.files {
		if err := fn(Item{Path: f.path, Bytes: headerBytes}); err != nil {
			return Info{}, err
		}
	}
	var info Info
	s.whole = true
	s.visit = func(f *logFile, off int64, r *scanned) error {
		info.Records++
		if r.place == 0 {
			info.Batches++
		}
		return fn(Item{Path: f.path, Offset: off, Bytes: r.bytes(),
			Record: Record{Position: r.pos, Type: r.typ, Head: r.head, Body: r.body}})
	}
	s.behind = s.itemsBehind(fn)
	err = s.run()
	s.sum(&info)
	return info, err
}

// itemsBehind hands out what count finds.
func (s *scanner) itemsBehind(fn func(Item) error) func(*logFile, int64, recordHeader) error {
	return func(f *logFile, off int64, h recordHeader) error {
		i := Item{Path: f.path, Offset: off, Bytes: h.bytes(), Record: Record{Position: h.pos, Type: h.typ}, Behind: true}
		r, err := s.record(f, off)
		if err != nil {
			return err
		}
		if r != nil {
			i.Head, i.Body = r.head, r.body
		}
		return fn(i)
	}
}

func (s *scanner) sum(info *Info) {
	info.Files, info.Bytes, info.TornRecords, info.End = len(s.files), s.win.read, s.torn, s.end
}
