package protocol

// AppendOffset appends an offset as it goes on the wire: 20 decimal digits.
func AppendOffset(dst []byte, off uint64) []byte { return dst }

// ParseOffset reads an offset as a client may send it: "-1", "now", 1 to 20 decimal
// digits below 2^64, or 16 digits, an underscore and 16 digits of which the second half
// is the position.
func ParseOffset(b []byte) (s Start, off uint64, ok bool) { return 0, 0, false }
