package bin

import "encoding/binary"

// AppendU16 appends x in two bytes, little endian.
func AppendU16(dst []byte, x uint16) []byte { return binary.LittleEndian.AppendUint16(dst, x) }

// AppendU32 appends x in four bytes, little endian.
func AppendU32(dst []byte, x uint32) []byte { return binary.LittleEndian.AppendUint32(dst, x) }

// AppendU64 appends x in eight bytes, little endian.
func AppendU64(dst []byte, x uint64) []byte { return binary.LittleEndian.AppendUint64(dst, x) }

// AppendUvarint appends x in 1 to 10 bytes, seven bits in each, lowest first; the
// high bit says that another byte follows.
func AppendUvarint(dst []byte, x uint64) []byte { return binary.AppendUvarint(dst, x) }

// AppendVarint appends x as a Uvarint whose lowest bit is the sign, so that small
// negative numbers are short too.
func AppendVarint(dst []byte, x int64) []byte { return binary.AppendVarint(dst, x) }

// AppendBytes appends the length of p as a Uvarint and then p.
func AppendBytes[T []byte | string](dst []byte, p T) []byte {
	dst = AppendUvarint(dst, uint64(len(p)))
	return append(dst, p...)
}
