package protocol

import "github.com/snakream/snakream/internal/base"

// Outcome is what became of an operation: one value for each row of the order of
// checks in api §3. Zero is no outcome.
type Outcome uint8

// The outcomes. The comment says which fields of a WriteResult matter beside
// Incarnation, Next and Closed, which every answer about a stream that exists has.
const (
	Created   Outcome = iota + 1 // 201: ContentType, Start, HasStart
	Exists                       // 200, a PUT that matches: ContentType
	Appended                     // 204, or 200 with producer headers: Start, HasStart, Producer…
	Closed                       // 204, a close without data, the first or a repeat
	Duplicate                    // 204: Start, HasStart, Tail, ProducerSeq
	Deleted                      // 204

	NotFound            // 404
	Gone                // 410, deleted but kept for forks
	IncarnationMismatch // 412: Inherited
	HeaderFault         // what Operation.Fault says
	HistoryChanged      // 403, a restore may have lost the producer's newest writes: ProducerEpoch, HasReplaced, …
	StaleEpoch          // 403: ProducerEpoch
	StreamClosed        // 409: HasProducer, ProducerEpoch, ProducerSeq
	ClosedDuplicate     // 409, but the write had been applied: the same
	EpochNeedsSeqZero   // 400
	SequenceGap         // 409: ExpectedSeq
	PreconditionFailed  // 412, If-Match and If-None-Match on PUT and POST: Tail; Incarnation 0 when there is no such stream
	ContentTypeMismatch // 409: ContentType
	StreamSeqRegression // 409: LastSeq
	BodyFault           // what Operation.BodyFault says

	ConfigMismatch     // 409, PUT on a stream that is configured otherwise: ContentType
	NameHeldByForks    // 409, PUT on a deleted stream that forks still hold
	ForkSourceNotFound // 404
	ForkSourceGone     // 409
	ForkOffsetInvalid  // 400: beyond the tail, no boundary, or a sub-offset past the next one
	ForkTypeMismatch   // 409: ContentType

	OffsetBeyondTail  // 400, reads: Next
	OffsetNotBoundary // 400, reads of JSON
	OffsetTrimmed     // 410, reads: Earliest
	RangeDamaged      // 500, reads
	ColdUnavailable   // 503, reads, and writes that have to read something first

	BodyTooLarge     // 413: Limit
	TooManyProducers // 429
	StateFull        // 429
	DiskFull         // 507
	Overloaded       // 503
	Draining         // 503
	Fenced           // 503
	Unavailable      // 500, the log has failed: what became of the write is not known

	RecordMismatch   // 412, Stream-Record-Match: Records
	RecordBeyondTail // 400, reads: Records
	RecordTrimmed    // 410, reads: Records, Earliest
	RecordViewOfText // 400, reads: an envelope of a stream that is not JSON

	BucketCreated  // 201
	BucketExists   // 200 with ?if-not-exists=true, otherwise 409
	BucketDeleted  // 204
	BucketNotFound // 404
	BucketNotEmpty // 409
	BucketClosing  // 503

	SnapshotPublished     // 204: Snapshot, published now or before with the same bytes
	SnapshotDropped       // 204
	SnapshotNotFound      // 404
	SnapshotNotBoundary   // 400
	SnapshotStale         // 409: Snapshot, the current one
	SnapshotConflict      // 409: Snapshot
	SnapshotBeyondTail    // 409: Snapshot
	SnapshotBelowEarliest // 410: Earliest
	SnapshotIsCurrent     // 409, DELETE: Snapshot
	SnapshotTooLarge      // 413: Limit
	DigestMismatch        // 400
	RangeNotSatisfiable   // 416: Snapshot

	RetentionMoved         // 204: Earliest, Snapshot
	RetentionNotBoundary   // 409
	RetentionBehind        // 409: Earliest
	RetentionAboveSnapshot // 409: Snapshot, if there is one

	AttrsReplaced // 204
)

// WriteResult is what became of an operation, in plain numbers. A refused read uses
// it too.
type WriteResult struct {
	Outcome     Outcome
	Incarnation uint64 // 0 when there is no such stream
	Next        uint64 // the offset for Stream-Next-Offset: the tail, or the end of a repeated write
	Tail        uint64 // the stream's tail, for the ETag; Next when it is smaller than that
	Closed      bool   // the stream is closed now

	HasStart bool
	Start    uint64 // where the bytes of the write begin
	Earliest uint64 // the earliest offset that is still there

	ContentType string // of the stream

	// HasProducer says that the stream knows the request's producer; ProducerEpoch
	// and ProducerSeq are then the highest that it has accepted. With HistoryChanged
	// the epoch behind ProducerEpoch is the one that is accepted.
	HasProducer                bool
	ProducerEpoch, ProducerSeq uint64
	ExpectedSeq                uint64

	// HasReplaced marks the first write of a higher epoch; the other two say how far
	// the writer that it replaces had come. With HistoryChanged they say what of the
	// producer has survived.
	HasReplaced                bool
	ReplacedEpoch, ReplacedSeq uint64

	Inherited Inheritance

	LastSeq string // the highest Stream-Seq so far
	Limit   int64  // bytes

	Records  Records
	Snapshot Snapshot // the one that was published, or the current one
}

// Inheritance is what a stream has in common with itself before a restore (api §4a).
type Inheritance struct {
	Incarnation uint64 // that it had then; 0: it has begun since
	UpTo        uint64 // the offset up to which the bytes are the same
}

// Meta describes a stream as it is.
type Meta struct {
	Incarnation    uint64
	Next, Earliest uint64
	Closed         bool
	ContentType    string
	TTL            int64       // the window in seconds, -1 for none
	ExpiresAt      base.Millis // 0 for none
	Records        Records
	Snapshot       Snapshot
	Inherited      Inheritance
}

// ReadResult describes the answer to a GET that is not an event stream.
type ReadResult struct {
	Incarnation uint64
	Start, Next uint64 // the range of the answer: [Start, Next)
	UpToDate    bool   // Next is the tail
	Closed      bool   // the stream is closed and Next is its end
	ContentType string // of the stream
	Cursor      uint64 // for long-poll; see NextCursor
	Records     Records
}
