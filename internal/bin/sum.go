package bin

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Sum returns the xxhash64 of b.
func Sum(b []byte) uint64 { return xxhash.Sum64(b) }

// SumSeeded returns the xxhash64 of seed, as eight bytes little endian, followed
// by b. Who does not know the seed cannot make bytes that verify, except by chance.
func SumSeeded(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	var front [8]byte
	binary.LittleEndian.PutUint64(front[:], seed)
	d.Reset()
	d.Write(front[:])
	d.Write(b)
	return d.Sum64()
}

// SumFollowed returns the xxhash64 of b followed by next, as eight bytes little
// endian. With next the sum of a body it covers head and body, while the body is
// hashed only once and elsewhere.
func SumFollowed(b []byte, next uint64) uint64 {
	var d xxhash.Digest
	var back [8]byte
	binary.LittleEndian.PutUint64(back[:], next)
	d.Reset()
	d.Write(b)
	d.Write(back[:])
	return d.Sum64()
}
