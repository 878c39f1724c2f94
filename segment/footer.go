package segment

import (
	"errors"
	"fmt"
	"math"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// A footer row, all uvarints. Runs, boundaries and rows lie in the order of the
// footer without a gap, so lengths say where they are:
//
//	┌─────────────┬───────┬─────────┬─────────────┬─────────┬────────────┬───────┐
//	│ stream id − │ start │ payload │ ordinal of  │ records │ boundary   │ rows  │
//	│ the last id │ offset│ bytes   │ 1st record  │         │ bytes      │ bytes │
//	└─────────────┴───────┴─────────┴─────────────┴─────────┴────────────┴───────┘
const (
	footerFields = 7
	minFooterRow = footerFields // bytes
	maxFooterRow = footerFields * maxUvarint
	maxUvarint   = 10 // bytes
)

// entry is a footer row in memory. Its lengths follow from the next entry.
type entry struct {
	id          base.StreamID
	start       base.Offset
	firstRecord uint64
	records     uint64
	pos         int64 // of its payload, in the data region
	boundsPos   int64 // in the boundary bytes
	rowsPos     int64 // in the rows region
}

// footerRow is what the writer has gathered of a stream.
type footerRow struct {
	start                 base.Offset
	firstRecord, records  uint64
	payload, bounds, rows int64
	idDelta               uint64
}

func appendFooterRow(dst []byte, r footerRow) []byte {
	dst = bin.AppendUvarint(dst, r.idDelta)
	dst = bin.AppendUvarint(dst, uint64(r.start))
	dst = bin.AppendUvarint(dst, uint64(r.payload))
	dst = bin.AppendUvarint(dst, r.firstRecord)
	dst = bin.AppendUvarint(dst, r.records)
	dst = bin.AppendUvarint(dst, uint64(r.bounds))
	return bin.AppendUvarint(dst, uint64(r.rows))
}

// decodeFooter returns the table of streams and the entry that ends it. It checks
// that ids ascend, that the lengths fill the regions of the layout, and that no
// offset or ordinal overflows.
func decodeFooter(b []byte, lay layout) ([]entry, error) {
	if lay.streams > uint64(len(b))/minFooterRow {
		return nil, fmt.Errorf("%d streams in %d bytes", lay.streams, len(b))
	}
	table := make([]entry, lay.streams+1)
	d := bin.NewDecoder(b)
	var at entry // running sums: where the next stream begins
	for i := range table[:lay.streams] {
		delta := d.Uvarint()
		at.start = base.Offset(d.Uvarint())
		payload := d.Uvarint()
		at.firstRecord, at.records = d.Uvarint(), d.Uvarint()
		bounds, rows := d.Uvarint(), d.Uvarint()
		id := at.id + base.StreamID(delta)
		switch {
		case d.Err() != nil:
			return nil, fmt.Errorf("row %d: %w", i, d.Err())
		case id <= at.id:
			return nil, fmt.Errorf("row %d: ids do not ascend", i)
		case payload > uint64(lay.payload-at.pos) || bounds > uint64(lay.bounds-at.boundsPos) || rows > uint64(lay.rows-at.rowsPos):
			return nil, fmt.Errorf("row %d: beyond the end of its region", i)
		case uint64(at.start) > math.MaxUint64-payload || at.firstRecord > math.MaxUint64-at.records:
			return nil, fmt.Errorf("row %d: offset or ordinal overflows", i)
		case at.records > payload || (at.records == 0) != (payload == 0):
			return nil, fmt.Errorf("row %d: %d messages in %d bytes", i, at.records, payload)
		case !boundsFit(at.records, bounds):
			return nil, fmt.Errorf("row %d: %d bytes for the boundaries of %d messages", i, bounds, at.records)
		}
		at.id = id
		table[i] = at
		at.pos += int64(payload)
		at.boundsPos += int64(bounds)
		at.rowsPos += int64(rows)
	}
	switch err := d.End(); {
	case err != nil:
		return nil, err
	case at.pos != lay.payload || at.boundsPos != lay.bounds || at.rowsPos != lay.rows:
		return nil, errors.New("rows do not fill the regions")
	}
	table[lay.streams] = at
	return table, nil
}
