// Package bin reads and writes the small binary fields that all our formats are
// made of: a bounded decoder with a sticky error, append-style encoders, and
// checksums. Integers of fixed width are little endian.
package bin

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrShort says that the input ended inside a field.
var ErrShort = errors.New("input is too short")

// ErrTooLong says that a length or count is above the limit named by the caller,
// or that bytes are left where End expects none.
var ErrTooLong = errors.New("input is too long")

// ErrVarint says that a variable-length integer does not fit 64 bits or is not in
// its shortest form. The latter is refused so that a value has one encoding only.
var ErrVarint = errors.New("malformed variable-length integer")

// Decoder reads fields from the front of a byte slice. Its first error is sticky:
// from then on every read returns zero and Err the error, so a caller reads all
// its fields and checks once. It never panics, whatever the input, and never
// allocates on the word of a length it has read. Not safe for concurrent use.
// The zero Decoder is empty.
type Decoder struct {
	b   []byte // what is left
	len int    // of the whole input, to say where an error is
	err error
}

// NewDecoder returns a Decoder that reads b, without copying it.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b, len: len(b)} }

// Reset makes d read b from the beginning, without an error.
func (d *Decoder) Reset(b []byte) { *d = Decoder{b: b, len: len(b)} }

// fail keeps the first error and empties the input, so that reads after it cannot
// succeed by accident.
func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("at byte %d of %d: %w", d.len-len(d.b), d.len, err)
	}
	d.b = nil
}

// take returns the next n bytes, or nil after recording ErrShort.
func (d *Decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(ErrShort)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// U8 reads one byte.
func (d *Decoder) U8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

// U16 reads two bytes, little endian.
func (d *Decoder) U16() uint16 {
	if p := d.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// U32 reads four bytes, little endian.
func (d *Decoder) U32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 reads eight bytes, little endian.
func (d *Decoder) U64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// Uvarint reads an unsigned integer of 1 to 10 bytes, as AppendUvarint writes it.
func (d *Decoder) Uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	switch {
	case n == 0:
		d.fail(ErrShort)
		return 0
	case n < 0 || (n > 1 && d.b[n-1] == 0):
		d.fail(ErrVarint)
		return 0
	}
	d.b = d.b[n:]
	return x
}

// Varint reads a signed integer, as AppendVarint writes it.
func (d *Decoder) Varint() int64 {
	x := d.Uvarint()
	return int64(x>>1) ^ -int64(x&1)
}

// Bytes reads a Uvarint length of at most limit (else ErrTooLong) and that many
// bytes. The result aliases the input; it is nil after an error.
func (d *Decoder) Bytes(limit uint64) []byte {
	n := d.Uvarint()
	if n > limit {
		d.fail(ErrTooLong)
		return nil
	}
	if d.err != nil {
		return nil
	}
	return d.take(n)
}

// String is Bytes, copied into a string.
func (d *Decoder) String(limit uint64) string { return string(d.Bytes(limit)) }

// Count reads a Uvarint number of elements of at most limit (else ErrTooLong).
// An element takes at least one byte, so a count above the bytes that are left is
// ErrShort: a caller may allocate by it.
func (d *Decoder) Count(limit uint64) int {
	n := d.Uvarint()
	switch {
	case n > limit:
		d.fail(ErrTooLong)
		return 0
	case n > uint64(len(d.b)):
		d.fail(ErrShort)
		return 0
	}
	return int(n)
}

// Raw reads the next n bytes, without a length in front. The result aliases the
// input; it is nil after an error.
func (d *Decoder) Raw(n int) []byte {
	if d.err != nil || n < 0 {
		d.fail(ErrShort)
		return nil
	}
	return d.take(uint64(n))
}

// Skip passes over n bytes.
func (d *Decoder) Skip(n int) { d.Raw(n) }

// Rest reads everything that is left. The result aliases the input.
func (d *Decoder) Rest() []byte { return d.take(uint64(len(d.b))) }

// Len returns the number of bytes left: none after an error.
func (d *Decoder) Len() int { return len(d.b) }

// Err returns the first error, which says where in the input it is. It matches
// ErrShort, ErrTooLong or ErrVarint.
func (d *Decoder) Err() error { return d.err }

// End returns the first error, or ErrTooLong when input is left.
func (d *Decoder) End() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(ErrTooLong)
	}
	return d.err
}
