package segment

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

const testID, testKind = base.SegmentID(45), uint8(3)

// content is what a stream in a segment should have: the naive twin of the reader.
type content struct {
	id      base.StreamID
	start   base.Offset
	first   uint64
	payload []byte
	ends    []base.Offset
	rows    []Row
}

// of makes a stream of messages of the given lengths, with payload by which every
// byte of a segment can be told from the others.
func of(id base.StreamID, start base.Offset, first uint64, lengths ...int) content {
	c := content{id: id, start: start, first: first}
	rng := rand.New(rand.NewPCG(uint64(id), uint64(start)))
	end := start
	for _, n := range lengths {
		for range n {
			c.payload = append(c.payload, byte(rng.Uint32()))
		}
		end += base.Offset(n)
		c.ends = append(c.ends, end)
	}
	return c
}

func (c content) with(rows ...Row) content {
	c.rows = rows
	return c
}

func row(key, value string, lsn base.LSN) Row {
	return Row{Key: []byte(key), Value: []byte(value), LSN: lsn}
}

func removed(key string, lsn base.LSN) Row { return Row{Key: []byte(key), LSN: lsn, Removed: true} }

func equalRows(a, b Row) bool {
	return a.LSN == b.LSN && a.Removed == b.Removed && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

func cloneRow(r Row) Row {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	return r
}

// randomContents makes streams of every shape, and of up to some groups and blocks.
func randomContents(rng *rand.Rand) []content {
	var out []content
	id := base.StreamID(0)
	for range rng.IntN(12) {
		id += base.StreamID(1 + rng.Uint64N(1<<rng.IntN(40)))
		start := base.Offset(rng.Uint64N(1 << rng.IntN(60)))
		lengths := make([]int, []int{0, 1, 2, 3, 127, 128, 129, 130, 257, 700}[rng.IntN(10)])
		largest := 1 << rng.IntN(9)
		for i := range lengths {
			lengths[i] = 1 + rng.IntN(largest)
		}
		if len(lengths) > 0 && rng.IntN(4) == 0 {
			lengths[rng.IntN(len(lengths))] = 1 + rng.IntN(3*BlockBytes)
		}
		c := of(id, start, rng.Uint64N(1<<rng.IntN(60)), lengths...)
		for i := range rng.IntN(5) {
			r := row(fmt.Sprintf("key-%03d", i), string(make([]byte, rng.IntN(1<<rng.IntN(18)))), base.LSN(rng.Uint64()))
			r.Removed = rng.IntN(3) == 0
			c.rows = append(c.rows, r)
		}
		out = append(out, c)
	}
	return out
}

// must ends the test when building what it needs fails.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes the streams, the parts of each interleaved by the rng if there is one.
func fill(w *Writer, contents []content, rng *rand.Rand) error {
	for _, c := range contents {
		if err := w.Begin(c.id, c.start, c.first); err != nil {
			return err
		}
		payload, ends, rows := c.payload, c.ends, c.rows
		for len(payload)+len(ends)+len(rows) > 0 {
			n, turn := len(payload), 0
			if rng != nil {
				n, turn = min(n, 1+rng.IntN(4000)), rng.IntN(3)
			}
			var err error
			switch {
			case n > 0 && turn == 0:
				err = w.Payload(payload[:n])
				payload = payload[n:]
			case len(ends) > 0 && turn < 2:
				err = w.Boundary(ends[0])
				ends = ends[1:]
			case len(rows) > 0:
				err = w.Row(rows[0])
				rows = rows[1:]
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// written returns the bytes of a finished segment with the streams.
func written(t testing.TB, contents []content, rng *rand.Rand) []byte {
	t.Helper()
	mem := vfstest.New()
	w, err := Create(mem, "s.seg", testID, 0, testKind)
	must(t, err)
	must(t, fill(w, contents, rng))
	estimate := w.Size()
	size, err := w.Finish()
	must(t, err)
	if estimate < size || estimate > size+maxFooterRow {
		t.Fatalf("Size was %d before Finish, which wrote %d", estimate, size)
	}
	data := fileBytes(t, mem, "s.seg")
	if int64(len(data)) != size {
		t.Fatalf("Finish returned %d, the file has %d bytes", size, len(data))
	}
	return data
}

func fileBytes(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n != len(data) {
		t.Fatal(err)
	}
	return data
}

// memory is a Source that counts what is read of it.
type memory struct {
	data        []byte
	size        int64 // what it says
	reads, read int
	discarded   int64
	once        map[int64]byte // what the next read at a position spoils
}

func inMemory(data []byte) *memory { return &memory{data: data, size: int64(len(data))} }

func (m *memory) Size() int64 { return m.size }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.reads++
	m.read += len(p)
	n, err := bytes.NewReader(m.data).ReadAt(p, off)
	for at, x := range m.once {
		if at >= off && at < off+int64(n) {
			p[at-off] ^= x
			delete(m.once, at)
		}
	}
	return n, err
}

// fresh is a source that forgets.
type fresh struct{ *memory }

func (f fresh) ReadContext(ctx context.Context, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return f.ReadAt(p, off)
}

func (f fresh) Discard(off, n int64) { f.discarded += n }

// shared is a source for concurrent readers.
type shared struct{ io.ReaderAt }

func (s shared) Size() int64 { return s.ReaderAt.(*bytes.Reader).Size() }

func opened(t testing.TB, data []byte) *Segment {
	t.Helper()
	s, err := Open(inMemory(data), "s.seg", testID)
	must(t, err)
	return s
}

// compare reads all of s and says the first thing that is not as in contents. Errors
// of s come back as they are.
func compare(s *Segment, contents []content) error {
	if s.ID() != testID || s.Kind() != testKind || s.Len() != len(contents) {
		return fmt.Errorf("segment %d, kind %d, %d streams", s.ID(), s.Kind(), s.Len())
	}
	i := 0
	for st := range s.Streams() {
		found, ok := s.Find(st.Extent.Stream)
		if !ok || found != st {
			return fmt.Errorf("Find(%d) = %v, %v", st.Extent.Stream, found, ok)
		}
		if err := compareStream(s, st, contents[i]); err != nil {
			return fmt.Errorf("stream %d: %w", st.Extent.Stream, err)
		}
		i++
	}
	if err := compareAllRows(s, contents); err != nil {
		return err
	}
	return compareScan(s.Scan(), slices.Collect(s.Streams()), contents)
}

func compareStream(s *Segment, st Stream, c content) error {
	want := base.Extent{
		Stream: c.id, Start: c.start, End: c.start + base.Offset(len(c.payload)), Segment: testID,
		Pos: st.Extent.Pos, FirstRecord: c.first, Records: uint64(len(c.ends)),
	}
	if st.Extent != want {
		return fmt.Errorf("extent %+v, want %+v", st.Extent, want)
	}
	payload, err := s.AppendPayload(context.Background(), []byte("prefix"), st.Extent.Pos, len(c.payload))
	if err != nil {
		return err
	}
	if string(payload) != "prefix"+string(c.payload) {
		return fmt.Errorf("wrong payload")
	}
	b, err := s.Boundaries(context.Background(), st)
	if err != nil {
		return err
	}
	var ends []base.Offset
	for end, err := range b.All() {
		if err != nil {
			return err
		}
		ends = append(ends, end)
	}
	if !slices.Equal(ends, c.ends) {
		return fmt.Errorf("ends %v, want %v", ends, c.ends)
	}
	var rows []Row
	for r, err := range s.Rows(st) {
		if err != nil {
			return err
		}
		rows = append(rows, cloneRow(r))
	}
	if !slices.EqualFunc(rows, c.rows, equalRows) {
		return fmt.Errorf("%d rows, want %d", len(rows), len(c.rows))
	}
	return nil
}

func compareAllRows(s *Segment, contents []content) error {
	var got, want []StreamRow
	for r, err := range s.AllRows() {
		if err != nil {
			return err
		}
		got = append(got, StreamRow{r.Stream, cloneRow(r.Row)})
	}
	for _, c := range contents {
		for _, r := range c.rows {
			want = append(want, StreamRow{c.id, r})
		}
	}
	if !slices.EqualFunc(got, want, func(a, b StreamRow) bool { return a.Stream == b.Stream && equalRows(a.Row, b.Row) }) {
		return fmt.Errorf("AllRows: %d rows, want %d", len(got), len(want))
	}
	return nil
}

// messageAt is the twin of the cursor: the index of the message that contains off.
func (c content) messageAt(off base.Offset) int {
	i, _ := slices.BinarySearchFunc(c.ends, off, func(end, off base.Offset) int { return cmp.Compare(end, off+1) })
	return i
}

func (c content) beginOf(i int) base.Offset {
	if i == 0 {
		return c.start
	}
	return c.ends[i-1]
}
