package protocol

// AppendStateTag appends the entity tag of a stream's state, quotes included.
func AppendStateTag(dst []byte, incarnation, next uint64, closed bool) []byte { return dst }

// AppendRangeTag appends the entity tag of the range [start, next) of a stream, quotes
// included. representation is "" for the stream's own.
func AppendRangeTag(dst []byte, incarnation, start, next uint64, closed bool, representation string) []byte {
	return dst
}

// MatchNone reports whether one of the values of If-None-Match names tag: by weak
// comparison, or as "*".
func MatchNone(values [][]byte, tag []byte) bool { return false }
