package protocol

const offsetDigits = 20

// AppendOffset appends an offset as it goes on the wire: 20 decimal digits.
func AppendOffset(dst []byte, off uint64) []byte {
	var digits [offsetDigits]byte
	for i := offsetDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + off%10)
		off /= 10
	}
	return append(dst, digits[:]...)
}

// ParseOffset reads an offset as a client may send it: "-1", "now", 1 to 20 decimal
// digits below 2^64, or 16 digits, an underscore and 16 digits of which the second
// half is the position.
func ParseOffset(b []byte) (s Start, off uint64, ok bool) {
	switch string(b) {
	case "-1":
		return StartBeginning, 0, true
	case "now":
		return StartNow, 0, true
	}
	const half = 16
	if len(b) == half+1+half && b[half] == '_' {
		if _, ok := digits(b[:half]); !ok {
			return 0, 0, false
		}
		b = b[half+1:]
	}
	off, ok = digits(b)
	if !ok {
		return 0, 0, false
	}
	return StartAt, off, true
}

// digits reads 1 to 20 decimal digits below 2^64.
func digits(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > offsetDigits {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
