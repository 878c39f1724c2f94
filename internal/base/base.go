// Package base holds the words that every part of Snakream shares: stream and
// segment identities, offsets, log positions, time, and the two errors that
// damaged or foreign files lead to.
package base

import "fmt"

// StreamID names one incarnation of a stream, in memory, on disk and in S3.
// It is counter × N + shard, N being the number of shards, and never used twice.
// Zero is no stream.
type StreamID uint64

// Shard returns the shard that holds the stream, in [0, n).
func (id StreamID) Shard(n int) int { return int(uint64(id) % uint64(n)) }

// Offset is a position in the stored representation of a stream, in bytes from
// its beginning. A range of offsets is half-open: [start, end).
type Offset uint64

// LSN is a log sequence number: the place of a record in its shard's log.
// LSNs run without a gap from 1.
type LSN uint64

// SegmentID numbers a segment within its shard. Zero is no segment.
type SegmentID uint64

// Millis is a point in time: milliseconds since the Unix epoch, in UTC.
type Millis int64

// Field is one HTTP header field. Its slices alias the connection's input.
type Field struct{ Name, Value []byte }

// Extent says where a run of a stream's bytes lies: the offsets [Start, End)
// are the bytes from Pos on in the payload region of Segment.
type Extent struct {
	Stream      StreamID
	Start, End  Offset
	Segment     SegmentID
	Pos         int64  // in the segment's payload region
	FirstRecord uint64 // ordinal of the message that begins at Start
	Records     uint64 // messages in the run
}

// CorruptionError reports bytes that are not what was once written: where they
// are and what is wrong with them. It is never about an unknown version.
type CorruptionError struct {
	Path   string // the file, or "" when the reader does not know it
	Offset int64  // byte offset in the file
	Detail string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("%s: corrupt at byte %d: %s", e.Path, e.Offset, e.Detail)
}

// VersionError reports a file of a format that this program does not know,
// most likely written by a newer one.
type VersionError struct {
	Path    string
	Version uint32 // found in the file
	Newest  uint32 // known to this program
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: format version %d is not supported (this program reads up to %d)", e.Path, e.Version, e.Newest)
}
