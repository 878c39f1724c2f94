package wal

import (
	"errors"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Ending says where a log ends, or would have to end, so that Open takes it.
type Ending struct {
	// Path is the file in which it ends, and Offset the place behind its last record.
	// Path is empty when no file goes on from low-water: then a new log is needed.
	Path   string
	Offset int64
	// Behind are the files that have no place in that log: those behind its end, and
	// those whose header is damaged. Ascending.
	Behind []string
}

// Survey reads the log in dir as Open would with this low-water, and changes nothing;
// but where Open refuses it goes on. fn is called for each record above low-water,
// then for what verifies behind the log's end.
//
// The *base.CorruptionError is the one that Open refuses with. Info and Ending are
// valid beside it: the log is sound up to there. With any other error, or when manifest
// and log contradict each other, Ending is zero: cutting the log would not help.
func Survey(fsys vfs.FS, dir string, low Position, fn func(Item) error) (Info, Ending, error) {
	var info Info
	found, err := list(fsys, dir)
	if err != nil {
		return info, Ending{}, err
	}
	s, bad, err := openSound(fsys, dir, found.logs)
	if err != nil {
		return info, Ending{}, err
	}
	defer s.close()
	s.low = low
	s.visit = func(f *logFile, off int64, r *scanned) error {
		if r.pos.LSN <= low.LSN {
			return nil
		}
		info.Records++
		if r.place == 0 {
			info.Batches++
		}
		return fn(Item{Path: f.path, Offset: off, Bytes: r.bytes(),
			Record: Record{Position: r.pos, Type: r.typ, Head: r.head, Body: r.body}})
	}
	s.behind = s.itemsBehind(fn)
	if len(s.files) == 0 {
		return info, s.ending(bad, false), s.broken
	}
	goesOn := true
	err = s.run()
	if _, ok := errors.AsType[*base.CorruptionError](err); ok && s.endOff == 0 { // not even begun
		goesOn = false
		err = errors.Join(s.damage(err), s.scanFrom(low))
	}
	s.sum(&info)
	if err != nil {
		return info, Ending{}, err
	}
	return info, s.ending(bad, goesOn), s.broken
}

// openSound opens the files whose headers verify and returns the paths of the others,
// the first damage in s.broken. A later version is an error all the same.
func openSound(fsys vfs.FS, dir string, numbers []uint64) (s *scanner, bad []string, err error) {
	s = &scanner{all: true}
	for _, n := range numbers {
		one, err := openScanner(dir, []uint64{n}, fsys.Open)
		if err == nil {
			s.files = append(s.files, one.files...)
			continue
		}
		if err := s.damage(err); err != nil {
			s.close()
			return nil, nil, err
		}
		bad = append(bad, filePath(dir, n, suffixLog))
	}
	return s, bad, nil
}

// scanFrom looks for records in all files, none of which is part of the log.
func (s *scanner) scanFrom(low Position) error {
	s.end, s.last, s.endOff = low, 0, headerBytes
	return s.inspectTail()
}

// ending says where the run ended, and what else there is.
func (s *scanner) ending(bad []string, goesOn bool) Ending {
	e := Ending{Behind: bad}
	later := s.files
	if goesOn {
		e.Path, e.Offset = s.files[s.last].path, s.endOff
		later = s.files[s.last+1:]
	}
	for _, f := range later {
		e.Behind = append(e.Behind, f.path)
	}
	slices.Sort(e.Behind)
	return e
}
