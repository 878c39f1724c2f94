package core

import (
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// Op says what an event asks for.
type Op uint8

// The operations. Zero is none of them.
const (
	OpCreate   Op = iota + 1 // make a stream, or find that it is there already
	OpAppend                 // append, close, or both
	OpDelete                 // end a stream on request
	OpExpire                 // end a stream whose deadline has passed
	OpTouch                  // record that a stream was read, so that a restart knows
	OpPin                    // keep a source's bytes for a fork
	OpUnpin                  // give them up again
	OpSnapshot               // publish a snapshot
	OpTrim                   // give up what lies below an offset
	OpDrop                   // delete a snapshot that another has replaced
	OpAttrs                  // replace the attributes
	OpFreeze                 // a bucket is to be deleted: refuse creates in it, count what is there
	OpThaw                   // that has ended, one way or the other
)

// Event is one operation as Decide sees it: parsed, bounded, without a clock.
// Its slices must stay unchanged until the operation is answered.
type Event struct {
	Op Op

	// Who is meant. Stream is the id for events that name an incarnation (OpExpire,
	// OpTouch, OpPin, OpUnpin); others are about whatever holds the name.
	Bucket, Name string // OpCreate
	Stream       base.StreamID

	// Incarnation is the precondition of the header Stream-Incarnation (api §3).
	Incarnation    uint64
	HasIncarnation bool

	// Faults found before the mailbox ride along and are answered at their place
	// in the order of checks.
	HeaderFault, BodyFault bool

	// OpCreate and OpAppend.
	ContentType string // OpCreate: as reads will return it; "" = not given
	MediaType   []byte // type/subtype in lower case, to compare with; nil = not given
	JSON        bool   // OpCreate: the type is application/json
	Close       bool
	HasBody     bool     // the request had a body, whatever became of it
	Body        []byte   // stored representation
	Ends        []uint32 // ends of the messages in Body, ascending; the last is len(Body)
	BodySum     uint64   // xxhash64 of Body; needed above record.InlineBody bytes
	BodyOwned   bool     // Body may be kept without a copy
	Producer    record.Producer
	StreamSeq   []byte
	HasSeq      bool

	// OpCreate.
	TTL       int64 // seconds; negative: none
	ExpiresAt base.Millis
	Fork      *ForkSpec

	// OpCreate in a bucket: Bucketed refuses to make one implicitly.
	Bucketed bool
	// Loose makes it in no bucket: its first name is only a name.
	Loose bool

	// OpCreate, OpAppend: preconditions. An empty list is none: where a header names
	// only tags that no stream can have, the zero Match stands for them.
	IfMatch        []Match
	IfNoneMatch    []Match
	RecordMatch    uint64
	HasRecordMatch bool

	// OpPin, OpUnpin.
	ForkID     base.StreamID
	ForkOffset base.Offset

	// OpSnapshot, whose blob the caller keeps pinned until the answer; OpTrim, OpDrop.
	Snapshot *record.Snapshot // Offset, Record, Digest, Size, ContentType
	Retain   bool             // do not trim
	Offset   base.Offset
	Ordinal  uint64

	// OpAttrs and OpCreate: a JSON object; nil: none.
	Attrs []byte
}

// Snapshot is what events, answers and views say about a snapshot.
type Snapshot = record.Snapshot

// Match is one tag of If-Match or If-None-Match: a state tag, or a range tag's end.
type Match struct {
	Any         bool // "*"
	Incarnation uint64
	Next        base.Offset
	Closed      bool
}

// ForkSpec is what a PUT says about the stream that it forks from (PROTOCOL.md §4.2).
type ForkSpec struct {
	Bucket, Name string
	Offset       base.Offset // the header Stream-Fork-Offset
	HasOffset    bool
	Sub          uint64 // the header Stream-Fork-Sub-Offset
	InheritType  bool   // no Content-Type in the request
	InheritLife  bool   // neither Stream-TTL nor Stream-Expires-At in the request

	// Resolved is set once the source has been pinned: what the fork is made of, and
	// the snapshot that covers what the source had trimmed.
	Resolved *record.Fork
	Snapshot *record.Snapshot
}

// Code is how an operation ended.
type Code uint8

// The codes. Those up to Deleted are successes.
const (
	Created   Code = iota + 1
	Exists         // a PUT that matches what is there
	Appended       // stored
	Closed         // closed without data, or closed already
	Duplicate      // a producer's repeat: stored before, by the same tuple
	Deleted        // deleted, expired, touched, pinned or unpinned

	NotFound
	Gone                // deleted, but forks keep it
	IncarnationMismatch // 412
	HeaderFault         // 400, the fault rides with the request
	HistoryChanged      // 403, a restore may have lost the producer's newest writes
	StaleEpoch          // 403
	StreamClosed        // 409
	ClosedDuplicate     // 409, but the tuple had been applied before the closure
	EpochNeedsSeqZero   // 400
	SequenceGap         // 409
	ContentTypeMismatch // 409
	StreamSeqRegression // 409
	BodyFault           // 400 or 413, the fault rides with the request
	ConfigMismatch      // 409, PUT
	NameHeldByForks     // 409, PUT on a deleted name that forks keep
	ForkSourceNotFound  // 404
	ForkSourceGone      // 409
	ForkOffsetInvalid   // 400
	ForkTypeMismatch    // 409
	TooManyProducers    // 429
	StateFull           // 429
	DiskFull            // 507
	PreconditionFailed  // 412, If-Match or If-None-Match
	RecordMismatch      // 412, Stream-Record-Match
	BucketNotFound      // 404
	BucketClosing       // 503, the bucket is being deleted
	BucketNotEmpty      // 409
	SnapshotTrimmed     // 410, below the earliest offset; of a fork too
	SnapshotBeyondTail  // 409
	SnapshotStale       // 409, older than the current one
	SnapshotConflict    // 409, other bytes at the same offset
	SnapshotIsCurrent   // 409, on delete
	SnapshotNotFound    // 404
	RetentionBehind     // 409, below the earliest offset
	RetentionAhead      // 409, above the current snapshot
	Overloaded          // 503
	ShuttingDown        // 503
	SourceDamaged       // 500, a fork's source can't be read where the fork begins
	SourceUnavailable   // 503, it is only in the object store there, which can't be asked

	// Not answers: the engine has something to do first.
	NeedsSource // the fork's source has to be pinned
	NeedsRoom   // an idle producer is forgotten by the record at hand; decide again
)

// OK reports whether the operation succeeded, now or before.
func (c Code) OK() bool { return c >= Created && c <= Deleted }

// Answer is what Decide found, in numbers. Which of them mean something depends
// on Code.
type Answer struct {
	Code     Code
	Stream   base.StreamID // 0 when there is none
	Fixed    *Fixed        // nil when there is none
	Start    base.Offset   // where this write's bytes begin
	HasStart bool
	Next     base.Offset // where they end, or the tail
	Closed   bool

	StartRecord, NextRecord uint64

	// Producers (api §3).
	HasProducer   bool
	Epoch, Seq    uint64 // highest accepted; HistoryChanged: the next epoch is accepted
	ExpectedSeq   uint64 // SequenceGap
	ReplacedEpoch uint64 // first write of a higher epoch: whom it replaced; HistoryChanged: what has survived
	ReplacedSeq   uint64
	HasReplaced   bool
	LastSeq       string // StreamSeqRegression: the highest Stream-Seq so far

	First       base.Offset
	FirstRecord uint64
	Snapshot    *record.Snapshot // the current one, nil when there is none
	Inherited   Inheritance      // IncarnationMismatch
	Present     int64            // OpFreeze: streams of the bucket in the shard
}
