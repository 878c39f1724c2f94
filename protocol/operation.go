// Package protocol is the Durable Streams protocol as pure functions: a request
// becomes an Operation, and what became of it a status, header lines, a body or
// Server-Sent Events. It also holds the small languages that both sides of the
// wire speak: paths, offsets, cursors, entity tags, content types, JSON mode and
// problem bodies.
//
// Nothing here reads a clock, a file or a socket, and nothing keeps state between
// calls: a time is always an argument. Every function may be called from several
// goroutines at once as long as they do not share a destination or an Operation.
package protocol

import "github.com/snakream/snakream/internal/base"

// Request is one HTTP request as the parser of HTTP left it. Its slices alias the
// connection's input.
type Request struct {
	Method     []byte
	Path       []byte // still percent-encoded, from the first slash on
	Query      []byte // still percent-encoded, without the question mark
	Fields     []base.Field
	BodyLength int64 // in bytes; -1 when it is not known until the body has been read
	HTTP10     bool
}

// Kind says what an Operation does.
type Kind uint8

// The kinds of operation. Every POST to a stream is KindAppend, one that only
// closes included.
const (
	KindCreate Kind = iota + 1
	KindAppend
	KindRead
	KindHead
	KindDelete
	KindOptions // a CORS preflight; it is about no stream in particular

	// A HEAD of one of these resources has the kind of its GET.
	KindBucketCreate
	KindBucketGet
	KindBucketDelete
	KindList

	KindSnapshotPut    // at Operation.At
	KindSnapshotLatest // the redirect to the current one
	KindSnapshotGet
	KindSnapshotDelete
	KindRetention // moves the earliest offset to Operation.At
	KindBootstrap // Read.Live is LiveNone or LiveSSE
	KindAttrsGet
	KindAttrsPut
	KindAppendBatch

	KindDocument // of the API itself; it is about no stream either
)

// Surface is the form of URL that a request used. The same stream can be reached
// through both.
type Surface uint8

// The surfaces, as api §1 lists them.
const (
	SurfaceV1 Surface = iota + 1 // /v1/stream/{path…}
	SurfaceDS                    // /ds/{bucket}/{stream}
)

// Producer is the tuple that makes an append idempotent. Epoch and Seq are below
// 2^53.
type Producer struct {
	Set        bool
	ID         []byte
	Epoch, Seq uint64
}

// Fork is what the Stream-Fork… headers of a PUT ask for.
type Fork struct {
	Set            bool
	Bucket, Stream []byte // the decoded identity of the source

	HasOffset bool   // false: at the source's tail
	Offset    uint64 // bytes
	// Sub counts messages (JSON) or bytes (any other type) past Offset. HasSub is
	// false when the header is absent or says 0, which means the same.
	HasSub bool
	Sub    uint64
}

// Live is how a read goes on once it has reached the tail.
type Live uint8

// The live modes.
const (
	LiveNone     Live = iota // it ends there
	LiveLongPoll             // it waits for one answer's worth of data
	LiveSSE                  // it stays open as an event stream
)

// Start is where a read begins.
type Start uint8

// The places where a read can begin.
const (
	StartBeginning Start = iota // "-1", or no offset at all
	StartNow                    // "now": the tail as it is
	StartAt                     // at Read.Offset, or at the record Read.Records.N
	StartTail                   // at the first of the last Read.Records.N records; only there
)

// Read is what the query and the headers of a GET ask for.
type Read struct {
	Live   Live
	Start  Start
	Offset uint64 // bytes; set with StartAt
	Given  bool   // an offset parameter was present
	// LastEventID says that Start and Offset come from the Last-Event-ID header,
	// which wins over the offset parameter of an SSE read.
	LastEventID bool
	HasCursor   bool
	Cursor      uint64
	HasTimeout  bool
	Timeout     base.Millis // a duration, at most MaxTimeout
	MaxBytes    int64       // stored bytes, at least 1; 0 when not given
	// NDJSON says that the answer is a line a message: the client ranks
	// application/x-ndjson above JSON, or reads by record. It has a meaning for JSON
	// streams only, and none for SSE and for Records.Envelope.
	NDJSON bool
	// Records, when it is set, says where the read begins instead of Start and
	// Offset, unless LastEventID is.
	Records RecordQuery
}

// MaxTimeout is the longest wait that a long-poll may ask for, as a duration.
const MaxTimeout base.Millis = 60_000

// Operation is one request, understood. It is meant to be reused: Parse resets it.
// Its slices alias the request or the Operation's own scratch memory; they are
// valid until the next Parse and only as long as the request's own are.
type Operation struct {
	Kind           Kind
	Surface        Surface
	Bucket, Stream []byte // the decoded identity

	ContentType    []byte // as given, without surrounding space
	MediaType      []byte // its type and subtype alone, in lower case
	HasContentType bool   // false when the header is absent or blank

	Closed bool // Stream-Closed: true

	TTL          int64 // seconds
	HasTTL       bool
	ExpiresAt    base.Millis
	HasExpiresAt bool

	Producer     Producer
	StreamSeq    []byte
	HasStreamSeq bool

	Incarnation    uint64
	HasIncarnation bool

	IfNoneMatch [][]byte // the values of every such header line; empty when there is none

	// IfMatch are the tags of If-Match that can match at all. HasIfMatch says that the
	// header was there, so that without any tag nothing matches.
	IfMatch    []Match
	HasIfMatch bool

	RecordMatch    uint64 // Stream-Record-Match
	HasRecordMatch bool

	Attrs    []byte // Stream-Attrs, compact
	HasAttrs bool

	Fork Fork
	Read Read

	IfNotExists bool // of a bucket to be made
	List        ListQuery
	At          Position // of a snapshot or of the retention
	Snapshot    SnapshotHeaders

	// Host is the Host header, for Location. RequestHeaders is what a preflight
	// asks to send.
	Host           []byte
	RequestHeaders []byte

	// Fault is what is wrong with the headers, the query, or the presence of a
	// body; nil when nothing is. It is to be answered at its place in the order of
	// checks: after existence and incarnation, before everything else.
	Fault *Problem

	// BodyFault is what is wrong with the body's content; nil when nothing is. Its
	// place is after the checks of content type and Stream-Seq.
	BodyFault *Problem

	badType, badCoding  bool // a Content-Type or Content-Encoding that no body may have
	accept              acceptRanks
	faultSlot, bodySlot Problem
	tags                [4][]byte
	matches             [2]Match
	lastEventID         []byte
	scratch             []byte
}

// Parse understands r and fills op, which it resets first. What is wrong with the
// headers or the query goes to op.Fault, since the stream's existence comes first.
// The Problem that Parse returns is one that comes before any lookup: a bad path
// (400, 404), an unknown route (404), a method that the route has not got (405,
// with Allow); op is then of no use, and the Problem is valid until the next Parse.
// An ordinary append or read allocates nothing.
func Parse(r *Request, op *Operation) *Problem {
	*op = Operation{scratch: op.scratch[:0]}
	m := methodOf(r.Method)
	if m == methodOptions {
		op.Kind = KindOptions
		op.parseFields(r.Fields)
		return nil
	}
	var rt route
	bad := rt.parse(r.Path)
	if bad.code == "" {
		op.Surface = rt.surface
		if op.Kind = rt.kind(m); op.Kind == 0 {
			p := op.faultSlot.set(codeMethodNotAllowed, "", "This URL takes "+allows[rt.resource]+".")
			p.Fields = "Allow: " + allows[rt.resource] + "\r\n"
			return p
		}
		bad = op.identify(&rt)
	}
	if bad.code != "" {
		return op.faultSlot.set(bad.code, "", bad.detail)
	}
	op.parseFields(r.Fields)
	op.parseTarget(&rt)
	if paramsOf[op.Kind] != 0 {
		op.parseQuery(r.Query)
	}
	op.finish(m)
	if r.BodyLength >= 0 {
		op.SetBodyLength(r.BodyLength)
	}
	return nil
}

// identify decodes the names in the path, and holds what is to be made through /ds
// to the rules for ids there.
func (op *Operation) identify(rt *route) (bad pathFault) {
	if rt.resource == resourceDocument {
		return pathFault{} // there are none
	}
	if op.Bucket, op.Stream, op.scratch, bad = identity(rt, op.scratch); bad.code != "" {
		return bad
	}
	switch {
	case op.Kind == KindBucketCreate:
		return checkNewBucket(op.Bucket)
	case op.Kind == KindCreate && op.Surface == SurfaceDS:
		return checkNewStream(op.Bucket, op.Stream)
	}
	return pathFault{}
}

// finish puts together what path, headers and query said.
func (op *Operation) finish(m method) {
	switch op.Kind {
	case KindRead:
		op.finishRead()
	case KindBootstrap:
		op.finishEventID() // who takes up a broken event stream again needs no snapshot
	case KindSnapshotPut, KindSnapshotGet, KindSnapshotDelete, KindRetention:
		op.finishPosition()
	case KindList:
		if op.List.Limit == 0 {
			op.List.Limit = MaxList
		}
	}
	if m != methodGet {
		op.Snapshot.Range = ByteRange{} // RFC 9110 defines it for GET alone
	}
}

// SetBodyLength tells the length of a body that was not known when Parse was
// called. A body that is missing where there has to be one, one without the content
// type that it needs, and one with a content coding become op.Fault unless there is
// one already. Parse calls it by itself when Request.BodyLength is not negative.
func (op *Operation) SetBodyLength(n int64) {
	var must, typed bool // there is to be a body, and a Content-Type with it
	switch op.Kind {
	case KindAppend:
		must, typed = !op.Closed, true
	case KindAppendBatch:
		must, typed = true, true
	case KindAttrsPut:
		must = true
	case KindCreate, KindSnapshotPut:
	default:
		return
	}
	switch {
	case n == 0 && must:
		op.fault(codeEmptyBody, "", emptyBody[op.Kind])
	case n == 0:
	case op.badCoding:
		op.fault(codeContentCoding, "Content-Encoding", "Bodies are stored as they come: send this one without a content coding.")
	case op.badType:
		op.faultType()
	case typed && !op.HasContentType:
		op.fault(codeMissingContentType, "Content-Type", "A body needs the stream's Content-Type.")
	case op.Kind == KindAttrsPut && op.HasContentType && !IsJSON(op.MediaType):
		op.fault(codeInvalidContentType, "Content-Type", "Attributes are application/json.")
	}
}

// emptyBody says what a body that is not there should have been.
var emptyBody = [...]string{
	KindAppend:      "An append needs a body, unless Stream-Closed: true closes the stream.",
	KindAppendBatch: "A batch has at least one frame.",
	KindAttrsPut:    "Attributes are a JSON object; an empty one clears them.",
}

// SplitBody splits the body of a PUT or POST to a JSON stream by SplitJSON. What is
// wrong with it, and an empty array that is appended, becomes op.BodyFault; stored
// and ends are then of no use. An empty body holds no messages.
func (op *Operation) SplitBody(dst []byte, bounds []uint32, body []byte) (stored []byte, ends []uint32) {
	if len(body) == 0 {
		return dst, bounds
	}
	stored, ends, err := SplitJSON(dst, bounds, body, MaxNesting, true)
	switch {
	case err != nil:
		op.BodyFault = op.bodySlot.set(codeInvalidJSON, "", err.Detail)
		op.BodyFault.Position = err.Position
	case len(ends) == len(bounds) && op.Kind != KindCreate:
		op.BodyFault = op.bodySlot.set(codeEmptyArray, "", "An empty array appends nothing.")
	}
	return stored, ends
}

// fault keeps the first fault that it is told.
func (op *Operation) fault(code, field, detail string) {
	if op.Fault == nil {
		op.Fault = op.faultSlot.set(code, field, detail)
	}
}
