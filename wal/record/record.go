// Package record says what a log entry means: typed records and the rows of
// state that they leave, with the codec of both.
package record

import "github.com/snakream/snakream/internal/base"

// Type is the kind of a record. Zero is none: it is what an unwritten block holds.
type Type uint8

// The record types. Their numbers are on disk and never change.
const (
	TypeCreate Type = 1 // a stream begins, perhaps with data, perhaps closed, perhaps a fork
	TypeAppend Type = 2 // data, closure, or both, with its producer's state
	TypeDelete Type = 3 // a stream ends, by request or by its deadline
	TypeTouch  Type = 4 // a stream was read
	TypePin    Type = 5 // a fork keeps a stream's bytes
	TypeUnpin  Type = 6 // and lets them go
	TypeForget Type = 7 // an idle producer makes room for another
	TypeMark   Type = 8 // nothing: the log has gone on in a new file

	TypeSnapshot Type = 9  // a snapshot was published
	TypeTrim     Type = 10 // what lies below an offset is not needed any more
	TypeDrop     Type = 11 // a replaced snapshot has had its time
	TypeAttrs    Type = 12 // the attributes were replaced
)

// Limits of what a record may hold, in bytes. A decoder refuses more.
const (
	InlineBody     = 64 << 10 // bodies up to this are copied into the batch
	MaxName        = 2 << 10
	MaxContentType = 8 << 10
	MaxProducerID  = 8 << 10
	MaxStreamSeq   = 8 << 10
	MaxBody        = 1 << 30
	MaxMessages    = 1 << 28
	MaxAttrs       = 16 << 10
)

// MaxHistory is the highest history number that a data directory can have.
const MaxHistory = 1<<12 - 1

// Record is one operation, decided: all that Apply needs. Which fields mean
// something depends on Type. Slices of a decoded record alias its input.
type Record struct {
	Type   Type
	Stream base.StreamID // 0 for TypeMark
	At     base.Millis   // when it was decided; never below the record before it

	// TypeCreate.
	Config *Config

	// TypeCreate and TypeAppend. Offset is where Body begins in the stream; Ends
	// are the ends of its messages, relative to Body, ascending, the last len(Body).
	// History is that of the data directory where it begins for the stream: of a
	// create unless it is 1, of the first append after a restore; otherwise 0.
	History  uint16
	Offset   base.Offset
	Close    bool
	Body     []byte
	Ends     []uint32
	Producer Producer // of TypeForget only the id
	Seq      []byte   // Stream-Seq
	HasSeq   bool

	// TypeDelete.
	Expired bool

	// TypePin and TypeUnpin.
	ForkID     base.StreamID
	ForkOffset base.Offset

	// TypeSnapshot, and TypeCreate of a fork that takes its source's; Trim: what lies
	// below it goes.
	Snapshot *Snapshot
	Trim     bool

	// TypeTrim: the first byte that stays (Offset) and its message.
	// TypeDrop: the offset of a replaced snapshot (Offset).
	Ordinal uint64

	// TypeAttrs, and TypeCreate when the request brought some; nil: none.
	Attrs []byte
}

// Snapshot is the state of an application at an offset of its stream, published by
// the application; its bytes are a blob. Immutable.
type Snapshot struct {
	Offset      base.Offset // it stands for everything below
	Record      uint64      // and for all messages below
	Digest      [32]byte    // SHA-256 of the blob
	Size        int64       // bytes
	ContentType string
	At          base.Millis // when it was published
	Replaced    base.Millis // when another took its place; 0: it is the current one
}

// Producer is the tuple that makes a write idempotent (PROTOCOL.md §5.2.1).
type Producer struct {
	ID         []byte
	Epoch, Seq uint64
	Set        bool
}

// Fork says where a forked stream's first bytes lie, and what the request that
// made it said, so that its repeat can be told from another.
type Fork struct {
	Source       base.StreamID
	Offset       base.Offset // bytes below it are the source's
	Record       uint64      // messages below it, a shortened one counted
	Bucket, Name string      // of the source, as the request named it
	ReqOffset    base.Offset
	HasReqOffset bool
	Sub          uint64
	TTL          int64 // what the source had to pass on, seconds; negative: none
	ExpiresAt    base.Millis
	First        base.Offset // what the source had retained then
	FirstRecord  uint64
}

// Config is what a stream is made as; it never changes.
type Config struct {
	Bucket, Name string
	ContentType  string // as reads return it
	MediaType    string // type/subtype in lower case
	JSON         bool
	TTL          int64       // seconds; negative: none
	ExpiresAt    base.Millis // 0: never
	Created      base.Millis
	Fork         *Fork // nil unless the stream is a fork
}

// Past is what a stream has of earlier histories of its data directory: each
// restore begins another (api §4a).
type Past struct {
	History   uint16      // of the directory at the newest write, 1 or more
	Previous  uint16      // the one that the write before History began belongs to; 0: there was none
	Inherited base.Offset // Next when History began: the bytes below are the same under both
}

// State is the part of a stream that writes change: its row of state.
type State struct {
	Past
	Next, First             base.Offset // retained bytes are [First, Next)
	NextRecord, FirstRecord uint64      // and messages
	LastWrite               base.Millis
	Touched                 base.Millis // last recorded read or write: a deadline counts from it
	Closed                  bool
	Deleted                 bool // ended, but kept for its forks
	HasSeq                  bool
	Seq                     string // highest Stream-Seq
	ClosedBy                string // producer id of the tuple that closed it
	ClosedEpoch, ClosedSeq  uint64
	HasClosedBy             bool
}

// ProducerState is what is known of one producer: its newest accepted write.
type ProducerState struct {
	Epoch, Seq             uint64
	Start, End             base.Offset // of that write's bytes
	StartRecord, EndRecord uint64      // and messages
	At                     base.Millis
	History                uint16 // of the data directory then, 1 or more
}
