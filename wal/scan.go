package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// scanner reads a log and finds its end. It writes nothing.
//
// The run is what the log says: batches whose numbers, and records whose LSNs, have
// no gap, each where the one before it ends or, for a batch, at the next boundary
// or at the beginning of the next file. What is behind the run is either a batch
// that was never synced, and then of no consequence, or the remains of a log that
// lost something in the middle.
type scanner struct {
	files []*logFile // ascending
	win   window
	rec   scanned // what record returns

	low   Position // the run begins at or below its next
	whole bool     // instead, the run begins with the oldest file: low means nothing
	all   bool     // damage ends the run, not the scan: what is behind it is visited too

	// visit gets every record of the run; behind those that verify behind its end,
	// at least their headers. Both may be nil. Errors end the scan.
	visit  func(f *logFile, off int64, r *scanned) error
	behind func(f *logFile, off int64, h recordHeader) error

	// Results.
	broken   error    // with all: the first damage
	end      Position // of the run; its beginning, less one, while it is empty
	first    int      // index in files of the one where the run begins
	last     int      // index in files of the one where the run ends
	batchOff int64    // where the last batch begins in that file; 0 for none
	endOff   int64    // where the last batch ends in that file
	torn     uint64   // records behind the end whose headers verify
	dirty    []dirty  // blocks behind the end that are not zero, in order
}

// scanned is a record that verifies; head and body are valid until the next read.
type scanned struct {
	recordHeader
	head, body []byte
}

// dirty is a range of blocks [off, end) of a file, by index.
type dirty struct {
	file     int
	off, end int64
}

// openScanner opens the files of a log with open and reads their headers. On error
// it has closed them again.
func openScanner(dir string, numbers []uint64, open func(string) (vfs.File, error)) (*scanner, error) {
	s := &scanner{}
	for _, n := range numbers {
		path := filePath(dir, n, suffixLog)
		f, err := open(path)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("wal: open %s: %w", path, err)
		}
		lf := &logFile{f: f, path: path}
		s.files = append(s.files, lf)
		if err := s.readHeader(lf, n); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// close closes all files. It is for files that were only read, so errors say nothing.
func (s *scanner) close() {
	for _, f := range s.files {
		_ = f.f.Close()
	}
}

func (s *scanner) readHeader(f *logFile, number uint64) error {
	size, err := f.f.Size()
	if err != nil {
		return fmt.Errorf("wal: size of %s: %w", f.path, err)
	}
	if size < headerBytes {
		return &base.CorruptionError{Path: f.path, Offset: size, Detail: "the file is too short for a log header"}
	}
	s.win.use(f.f, headerBytes)
	b, err := s.win.view(0, headerBytes)
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", f.path, err)
	}
	if f.fileHeader, err = decodeFileHeader(f.path, b); err != nil {
		return err
	}
	if f.number != number {
		return &base.CorruptionError{Path: f.path, Offset: 16, Detail: fmt.Sprintf("the header is that of log file %d", f.number)}
	}
	if size < f.size { // what is behind the end belongs to nobody
		return &base.CorruptionError{Path: f.path, Offset: min(size, f.size), Detail: fmt.Sprintf("the file has %d bytes instead of %d", size, f.size)}
	}
	return nil
}

// run reads the log from low-water on, to its end and behind it.
func (s *scanner) run() error {
	if err := s.begin(); err != nil {
		return err
	}
	for i := s.first; i < len(s.files); i++ {
		if i > s.first {
			if s.files[i].number != s.files[i-1].number+1 {
				if err := s.damage(s.missing(s.files[i-1].number + 1)); err != nil {
					return err
				}
				break
			}
			ok, err := s.follows(i)
			if err != nil {
				return err
			}
			if !ok {
				continue // but look whether the later files are all there
			}
		}
		s.leave(i)
		if err := s.walk(s.files[i]); err != nil {
			return err
		}
	}
	return s.inspectTail()
}

// damage ends the scan with err, or notes it when all is to be read.
func (s *scanner) damage(err error) error {
	if _, ok := errors.AsType[*base.CorruptionError](err); !ok || !s.all {
		return err
	}
	if s.broken == nil {
		s.broken = err
	}
	return nil
}

// leave notes what the file before i holds, and goes on with file i.
func (s *scanner) leave(i int) {
	if s.endOff > 0 {
		s.files[s.last].last, s.files[s.last].used = s.end, roundUp(s.endOff)
	}
	s.last, s.batchOff, s.endOff = i, 0, headerBytes
}

// begin finds the newest file that the run may begin with: one that holds or
// precedes the first record above low-water.
func (s *scanner) begin() error {
	for i, f := range slices.Backward(s.files) {
		if s.whole && i > 0 {
			continue
		}
		start, err := s.start(f)
		if err != nil {
			return err
		}
		if s.whole && start == (Position{}) {
			start = start.next() // nothing to go by; whatever there is, is behind the end
		}
		if start != (Position{}) && (s.whole || start.Batch <= s.low.Batch+1 && start.LSN <= s.low.LSN+1) {
			s.first = i
			s.end = Position{LSN: start.LSN - 1, Batch: start.Batch - 1}
			return nil
		}
	}
	return &base.CorruptionError{Path: s.files[0].path, Offset: headerBytes, Detail: fmt.Sprintf(
		"no file begins at or before batch %d, LSN %d, the first that is not in segments", s.low.Batch+1, s.low.LSN+1)}
}

// start returns the position of the first record in f, zero when that is unknown.
func (s *scanner) start(f *logFile) (Position, error) {
	if f.first != (Position{}) {
		return f.first, nil
	}
	r, err := s.record(f, headerBytes)
	if r == nil || r.place != 0 {
		return Position{}, err
	}
	return r.pos, nil
}

// missing is the error for a log file that isn't there.
func (s *scanner) missing(number uint64) error {
	newest := s.files[len(s.files)-1]
	return &base.CorruptionError{
		Path:   filePath(filepath.Dir(newest.path), number, suffixLog),
		Detail: fmt.Sprintf("the log file is missing, while %s is there", newest.path),
	}
}

// follows reports whether file i goes on with the run.
func (s *scanner) follows(i int) (bool, error) {
	if i != s.last+1 {
		return false, nil
	}
	r, err := s.record(s.files[i], headerBytes)
	return r != nil && s.continues(&r.recordHeader, 0), err
}

// walk reads the batches of f that continue the run.
func (s *scanner) walk(f *logFile) error {
	for off := int64(headerBytes); ; {
		n, err := s.batch(f, off)
		if n > 0 {
			s.batchOff, s.endOff = off, off+n
			off = roundUp(off + n)
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// batch reads the batch at off, as far as it continues the run, and returns its
// length in bytes.
func (s *scanner) batch(f *logFile, off int64) (int64, error) {
	at := off
	for place := uint32(0); ; place++ {
		r, err := s.record(f, at)
		if err != nil {
			return at - off, err
		}
		if r == nil || !s.continues(&r.recordHeader, place) {
			return at - off, nil
		}
		if above := r.pos.Batch > s.low.Batch; !s.whole && above != (r.pos.LSN > s.low.LSN) {
			return at - off, &base.CorruptionError{Path: f.path, Offset: at, Detail: fmt.Sprintf(
				"batch %d, LSN %d contradicts the low-water at batch %d, LSN %d", r.pos.Batch, r.pos.LSN, s.low.Batch, s.low.LSN)}
		}
		if s.visit != nil {
			if err := s.visit(f, at, r); err != nil {
				return at - off, err
			}
		}
		s.end = r.pos
		at += r.bytes()
	}
}

// continues reports whether a record is the next one of the run, given its place in
// a batch: the first of the next batch, or the next of the last one.
func (s *scanner) continues(h *recordHeader, place uint32) bool {
	batch := s.end.Batch
	if place == 0 {
		batch++
	}
	return h.pos == Position{LSN: s.end.LSN + 1, Batch: batch} && h.place == place
}

// contradicts reports whether a record behind the end shows that the end is not
// one. A batch is written when the one before it is durable. So the remains of the
// next batch, and of the last one, are what a crash may leave; a batch after those
// is not, and neither is the next batch if its first LSN leaves room for records
// that the last batch must have had.
func (s *scanner) contradicts(h *recordHeader) bool {
	next := s.end.next()
	return h.pos.Batch > next.Batch || h.pos.Batch == next.Batch && h.firstLSN() != next.LSN
}

// inspectTail reads what is behind the end: it notes the blocks that are not zero,
// counts the records, and fails if one of them contradicts the end.
func (s *scanner) inspectTail() error {
	for i := s.last; i < len(s.files); i++ {
		f, off, counted := s.files[i], int64(headerBytes), int64(0)
		if i == s.last {
			var err error
			if counted, err = s.count(f, s.endOff); err != nil {
				return err
			}
			off = roundUp(s.endOff)
		}
		for ; off < f.size; off += block {
			b, err := s.view(f, off, block)
			if err != nil {
				return err
			}
			if allZero(b) {
				continue
			}
			s.soil(i, off)
			h, ok := decodeRecordHeader(b, f.salt, f.number)
			if !ok {
				continue
			}
			if s.broken == nil && s.contradicts(&h) {
				if err := s.damage(s.corruption(f, off, &h)); err != nil {
					return err
				}
			}
			if off >= counted {
				if counted, err = s.count(f, off); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// soil notes a block that is not zero.
func (s *scanner) soil(file int, off int64) {
	if n := len(s.dirty); n > 0 && s.dirty[n-1].file == file && s.dirty[n-1].end == off {
		s.dirty[n-1].end += block
		return
	}
	s.dirty = append(s.dirty, dirty{file: file, off: off, end: off + block})
}

// count counts the records at off that stand one behind the other and whose headers
// verify, and returns where they end.
func (s *scanner) count(f *logFile, off int64) (int64, error) {
	for {
		h, ok, err := s.header(f, off)
		if err != nil || !ok {
			return off, err
		}
		s.torn++
		if s.behind != nil {
			if err := s.behind(f, off, h); err != nil {
				return off, err
			}
		}
		off += h.bytes()
	}
}

// corruption is the error for a run that breaks off although h, at off in f, shows
// that it went on. It names the place where the damage most likely is.
func (s *scanner) corruption(f *logFile, off int64, h *recordHeader) error {
	at, pos := s.files[s.last], s.endOff
	rest, err := s.view(at, pos, int(roundUp(pos)-pos))
	if err != nil {
		return err
	}
	if allZero(rest) { // the last batch looks complete
		pos = roundUp(pos)
		clean := len(s.dirty) == 0 || s.dirty[0].file != s.last
		next := s.files[min(s.last+1, len(s.files)-1)]
		if clean && (f != next || off > headerBytes) {
			at, pos = next, headerBytes // and so does the file
		}
	}
	return &base.CorruptionError{Path: at.path, Offset: pos, Detail: fmt.Sprintf(
		"the log breaks off after batch %d, LSN %d, but batch %d, LSN %d is in %s at byte %d",
		s.end.Batch, s.end.LSN, h.pos.Batch, h.pos.LSN, f.path, off)}
}

// header reads a record's header; ok is false where none verifies.
func (s *scanner) header(f *logFile, off int64) (h recordHeader, ok bool, err error) {
	if f.size-off < recordHeaderBytes {
		return h, false, nil
	}
	b, err := s.view(f, off, recordHeaderBytes)
	if err != nil {
		return h, false, err
	}
	h, ok = decodeRecordHeader(b, f.salt, f.number)
	return h, ok && h.bytes() <= f.size-off, nil
}

// record reads the record at off in f, nil where none verifies. The result is valid
// until the next read.
func (s *scanner) record(f *logFile, off int64) (*scanned, error) {
	h, ok, err := s.header(f, off)
	if err != nil || !ok {
		return nil, err
	}
	b, err := s.view(f, off, int(h.bytes()))
	if err != nil {
		return nil, err
	}
	payload := b[recordHeaderBytes:]
	s.rec = scanned{recordHeader: h, head: payload[:h.head:h.head], body: payload[h.head:]}
	if payloadSum(s.rec.head, len(s.rec.body), bin.Sum(s.rec.body)) != h.payloadSum {
		return nil, nil
	}
	return &s.rec, nil
}

func (s *scanner) view(f *logFile, off int64, n int) ([]byte, error) {
	s.win.use(f.f, f.size)
	b, err := s.win.view(off, n)
	if err != nil {
		return nil, fmt.Errorf("wal: read %s at %d: %w", f.path, off, err)
	}
	return b, nil
}
