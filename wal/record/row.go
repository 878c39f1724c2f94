package record

import (
	"encoding/binary"
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// A stream's state is rows: key and value. A segment holds the rows that its
// generation changed; of one key the row with the highest LSN holds.
//
//	"a"        attributes: the JSON as it is
//	"c"        config, once
//	"f" fork 8 (big endian)   a pin: offset u
//	"n" offset 8 (big endian) a snapshot: its record, then at v, replaced v
//	"p" id     a producer: epoch u, seq u, start u, end u, start record u, end record u, at v, [history u]
//	"s"        state: flags 1, next u, first u, next record u, first record u, last write v, touched v,
//	           [seq b], [closed by b, epoch u, seq u], [history u, previous u, [inherited u]]
//
// A history that is left out is 1. A previous one is less than history, or 0 for
// none: then inherited is left out.
//
// A removed row "s" is the tombstone of the whole stream: every row of the
// stream below its LSN is void.
const (
	keyAttrs    = 'a'
	keyConfig   = 'c'
	keyPin      = 'f'
	keySnapshot = 'n'
	keyProducer = 'p'
	keyState    = 's'

	stateClosed   = 1 << 0
	stateDeleted  = 1 << 1
	stateSeq      = 1 << 2
	stateClosedBy = 1 << 3
	stateHistory  = 1 << 4
	stateKnown    = 1<<5 - 1
)

// RowKind tells the rows of a stream apart.
type RowKind uint8

// The kinds of rows, in the order of their keys.
const (
	RowAttrs RowKind = iota + 1
	RowConfig
	RowPin
	RowSnapshot
	RowProducer
	RowState
)

// Key is the key of a row, taken apart.
type Key struct {
	Kind     RowKind
	Fork     base.StreamID // RowPin
	Offset   base.Offset   // RowSnapshot
	Producer []byte        // RowProducer; aliases the key
}

// Keys of the rows of which a stream has one. They must not be changed.
var (
	AttrsKey  = []byte{keyAttrs}
	ConfigKey = []byte{keyConfig}
	StateKey  = []byte{keyState}
)

// AppendPinKey appends the key of a fork's pin.
func AppendPinKey(dst []byte, fork base.StreamID) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyPin), uint64(fork))
}

// AppendSnapshotKey appends the key of a snapshot.
func AppendSnapshotKey(dst []byte, at base.Offset) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keySnapshot), uint64(at))
}

// AppendProducerKey appends the key of a producer.
func AppendProducerKey(dst, id []byte) []byte {
	return append(append(dst, keyProducer), id...)
}

// ParseKey takes a key apart.
func ParseKey(key []byte) (Key, error) {
	number := func() uint64 { return binary.BigEndian.Uint64(key[1:]) }
	switch {
	case len(key) == 1 && key[0] == keyAttrs:
		return Key{Kind: RowAttrs}, nil
	case len(key) == 1 && key[0] == keyConfig:
		return Key{Kind: RowConfig}, nil
	case len(key) == 1 && key[0] == keyState:
		return Key{Kind: RowState}, nil
	case len(key) == 9 && key[0] == keyPin && number() != 0:
		return Key{Kind: RowPin, Fork: base.StreamID(number())}, nil
	case len(key) == 9 && key[0] == keySnapshot:
		return Key{Kind: RowSnapshot, Offset: base.Offset(number())}, nil
	case len(key) > 1 && len(key) <= 1+MaxProducerID && key[0] == keyProducer:
		return Key{Kind: RowProducer, Producer: key[1:]}, nil
	}
	return Key{}, fmt.Errorf("unknown row key %.32q", key)
}

// AppendRow appends the value of a stream's row "c".
func (c *Config) AppendRow(dst []byte) []byte { return c.append(dst) }

// DecodeConfig reads the value of a row "c".
func DecodeConfig(value []byte) (*Config, error) {
	d := bin.NewDecoder(value)
	c := decodeConfig(d)
	if err := d.End(); err != nil {
		return nil, fmt.Errorf("configuration row: %w", err)
	}
	if c == nil {
		return nil, fmt.Errorf("configuration row with unknown flags or a fork of no stream")
	}
	return c, nil
}

// AppendRow appends the value of a stream's row "s".
func (s *State) AppendRow(dst []byte) []byte {
	dst = append(dst, bit(s.Closed, stateClosed)|bit(s.Deleted, stateDeleted)|bit(s.HasSeq, stateSeq)|
		bit(s.HasClosedBy, stateClosedBy)|bit(s.History > 1, stateHistory))
	dst = bin.AppendUvarint(dst, uint64(s.Next))
	dst = bin.AppendUvarint(dst, uint64(s.First))
	dst = bin.AppendUvarint(dst, s.NextRecord)
	dst = bin.AppendUvarint(dst, s.FirstRecord)
	dst = bin.AppendVarint(dst, int64(s.LastWrite))
	dst = bin.AppendVarint(dst, int64(s.Touched))
	if s.HasSeq {
		dst = appendString(dst, s.Seq)
	}
	if s.HasClosedBy {
		dst = appendString(dst, s.ClosedBy)
		dst = bin.AppendUvarint(dst, s.ClosedEpoch)
		dst = bin.AppendUvarint(dst, s.ClosedSeq)
	}
	if s.History > 1 {
		dst = bin.AppendUvarint(dst, uint64(s.History))
		if dst = bin.AppendUvarint(dst, uint64(s.Previous)); s.Previous != 0 {
			dst = bin.AppendUvarint(dst, uint64(s.Inherited))
		}
	}
	return dst
}

// DecodeState reads the value of a row "s".
func DecodeState(value []byte) (State, error) {
	d := bin.NewDecoder(value)
	f := d.U8()
	s := State{
		Closed: f&stateClosed != 0, Deleted: f&stateDeleted != 0,
		HasSeq: f&stateSeq != 0, HasClosedBy: f&stateClosedBy != 0,
		Next: base.Offset(d.Uvarint()), First: base.Offset(d.Uvarint()),
		NextRecord: d.Uvarint(), FirstRecord: d.Uvarint(),
		LastWrite: base.Millis(d.Varint()), Touched: base.Millis(d.Varint()),
		Past: Past{History: 1},
	}
	if s.HasSeq {
		s.Seq = d.String(MaxStreamSeq)
	}
	if s.HasClosedBy {
		s.ClosedBy, s.ClosedEpoch, s.ClosedSeq = d.String(MaxProducerID), d.Uvarint(), d.Uvarint()
	}
	possible := true
	if f&stateHistory != 0 {
		possible = s.decode(d)
	}
	err := d.End()
	switch {
	case err != nil:
		return State{}, fmt.Errorf("state row: %w", err)
	case !possible || s.Inherited > s.Next:
		return State{}, fmt.Errorf("state row with an impossible history: %+v", s.Past)
	case f&^stateKnown != 0 || s.First > s.Next || s.FirstRecord > s.NextRecord:
		return State{}, fmt.Errorf("state row that contradicts itself: flags %#x, bytes [%d, %d), records [%d, %d)", f, s.First, s.Next, s.FirstRecord, s.NextRecord)
	}
	return s, nil
}

// decode reads what follows the flag, and reports whether it can be.
func (p *Past) decode(d *bin.Decoder) bool {
	p.History = decodeHistory(d)
	previous := d.Uvarint()
	if previous >= uint64(p.History) {
		return false
	}
	if p.Previous = uint16(previous); previous != 0 {
		p.Inherited = base.Offset(d.Uvarint())
	}
	return true
}

// AppendRow appends the value of a producer's row.
func (p *ProducerState) AppendRow(dst []byte) []byte {
	dst = bin.AppendUvarint(dst, p.Epoch)
	dst = bin.AppendUvarint(dst, p.Seq)
	dst = bin.AppendUvarint(dst, uint64(p.Start))
	dst = bin.AppendUvarint(dst, uint64(p.End))
	dst = bin.AppendUvarint(dst, p.StartRecord)
	dst = bin.AppendUvarint(dst, p.EndRecord)
	if dst = bin.AppendVarint(dst, int64(p.At)); p.History > 1 {
		dst = bin.AppendUvarint(dst, uint64(p.History))
	}
	return dst
}

// DecodeProducer reads the value of a producer's row.
func DecodeProducer(value []byte) (ProducerState, error) {
	d := bin.NewDecoder(value)
	p := ProducerState{
		Epoch: d.Uvarint(), Seq: d.Uvarint(), Start: base.Offset(d.Uvarint()), End: base.Offset(d.Uvarint()),
		StartRecord: d.Uvarint(), EndRecord: d.Uvarint(), At: base.Millis(d.Varint()), History: 1,
	}
	if d.Len() > 0 {
		p.History = decodeHistory(d)
	}
	err := d.End()
	switch {
	case err != nil:
		return ProducerState{}, fmt.Errorf("producer row: %w", err)
	case p.History == 0:
		return ProducerState{}, fmt.Errorf("producer row with an impossible history")
	case p.Start > p.End || p.StartRecord > p.EndRecord:
		return ProducerState{}, fmt.Errorf("producer row that contradicts itself: bytes [%d, %d), records [%d, %d)", p.Start, p.End, p.StartRecord, p.EndRecord)
	}
	return p, nil
}

// AppendPinRow appends the value of a pin's row.
func AppendPinRow(dst []byte, upTo base.Offset) []byte { return bin.AppendUvarint(dst, uint64(upTo)) }

// DecodePin reads the value of a pin's row.
func DecodePin(value []byte) (base.Offset, error) {
	d := bin.NewDecoder(value)
	off := base.Offset(d.Uvarint())
	if err := d.End(); err != nil {
		return 0, fmt.Errorf("pin row: %w", err)
	}
	return off, nil
}
