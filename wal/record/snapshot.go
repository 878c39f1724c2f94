package record

import (
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// append appends the part of a snapshot that its record and its row share.
func (s *Snapshot) append(dst []byte) []byte {
	dst = bin.AppendUvarint(dst, uint64(s.Offset))
	dst = bin.AppendUvarint(dst, s.Record)
	dst = append(dst, s.Digest[:]...)
	dst = bin.AppendUvarint(dst, uint64(s.Size))
	return appendString(dst, s.ContentType)
}

func decodeSnapshot(d *bin.Decoder) *Snapshot {
	s := &Snapshot{Offset: base.Offset(d.Uvarint()), Record: d.Uvarint()}
	copy(s.Digest[:], d.Raw(len(s.Digest)))
	s.Size = int64(d.Uvarint())
	s.ContentType = d.String(MaxContentType)
	return s
}

// AppendRow appends the value of a snapshot's row "n".
func (s *Snapshot) AppendRow(dst []byte) []byte {
	dst = s.append(dst)
	dst = bin.AppendVarint(dst, int64(s.At))
	return bin.AppendVarint(dst, int64(s.Replaced))
}

// DecodeSnapshot reads the value of a row "n" with the given key.
func DecodeSnapshot(at base.Offset, value []byte) (*Snapshot, error) {
	d := bin.NewDecoder(value)
	s := decodeSnapshot(d)
	s.At, s.Replaced = base.Millis(d.Varint()), base.Millis(d.Varint())
	err := d.End()
	switch {
	case err != nil:
		return nil, fmt.Errorf("snapshot row: %w", err)
	case s.Offset != at || s.Size < 0:
		return nil, fmt.Errorf("snapshot row of offset %d says offset %d, %d bytes", at, s.Offset, s.Size)
	}
	return s, nil
}
