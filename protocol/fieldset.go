package protocol

// The request headers that mean something to us.
type header uint8

const (
	headerNone header = iota
	headerHost
	headerAccept
	headerContentType
	headerContentEncoding
	headerStreamClosed
	headerStreamTTL
	headerStreamExpiresAt
	headerStreamSeq
	headerStreamIncarnation
	headerProducerID
	headerProducerEpoch
	headerProducerSeq
	headerIfNoneMatch
	headerLastEventID
	headerForkedFrom
	headerForkOffset
	headerForkSubOffset
	headerRequestHeaders
	headerIfMatch
	headerRecordMatch
	headerAttrs
	headerSnapshotRetain
	headerSnapshotDigest
	headerRange
	headerIfRange
)

// headerNames are the names as they appear in problems.
var headerNames = [...]string{
	headerHost:              "Host",
	headerAccept:            "Accept",
	headerContentType:       "Content-Type",
	headerContentEncoding:   "Content-Encoding",
	headerStreamClosed:      "Stream-Closed",
	headerStreamTTL:         "Stream-TTL",
	headerStreamExpiresAt:   "Stream-Expires-At",
	headerStreamSeq:         "Stream-Seq",
	headerStreamIncarnation: "Stream-Incarnation",
	headerProducerID:        "Producer-Id",
	headerProducerEpoch:     "Producer-Epoch",
	headerProducerSeq:       "Producer-Seq",
	headerIfNoneMatch:       "If-None-Match",
	headerLastEventID:       "Last-Event-ID",
	headerForkedFrom:        "Stream-Forked-From",
	headerForkOffset:        "Stream-Fork-Offset",
	headerForkSubOffset:     "Stream-Fork-Sub-Offset",
	headerRequestHeaders:    "Access-Control-Request-Headers",
	headerIfMatch:           "If-Match",
	headerRecordMatch:       "Stream-Record-Match",
	headerAttrs:             "Stream-Attrs",
	headerSnapshotRetain:    "Stream-Snapshot-Retain",
	headerSnapshotDigest:    "Stream-Snapshot-Digest",
	headerRange:             "Range",
	headerIfRange:           "If-Range",
}

// A set of headers, one bit each.
type headerSet uint32

func setOf(hs ...header) (s headerSet) {
	for _, h := range hs {
		s |= 1 << h
	}
	return s
}

// headersOf says which headers an operation reads. It ignores the others, so that
// a Stream-TTL on a POST, say, is neither wrong nor of any effect.
var headersOf = [...]headerSet{
	KindCreate: setOf(headerHost, headerContentType, headerContentEncoding, headerStreamClosed, headerStreamTTL, headerStreamExpiresAt,
		headerStreamIncarnation, headerIfMatch, headerIfNoneMatch, headerAttrs, headerForkedFrom, headerForkOffset, headerForkSubOffset),
	KindAppend: setOf(headerContentType, headerContentEncoding, headerStreamClosed, headerStreamSeq, headerStreamIncarnation,
		headerProducerID, headerProducerEpoch, headerProducerSeq, headerIfMatch, headerIfNoneMatch, headerRecordMatch),
	KindRead:    setOf(headerAccept, headerStreamIncarnation, headerIfNoneMatch, headerLastEventID),
	KindHead:    setOf(headerStreamIncarnation, headerIfNoneMatch),
	KindDelete:  setOf(headerStreamIncarnation),
	KindOptions: setOf(headerRequestHeaders),

	KindBucketCreate: setOf(headerHost),
	KindBucketGet:    0,
	KindBucketDelete: 0,
	KindList:         0,

	KindSnapshotPut:    setOf(headerContentType, headerContentEncoding, headerStreamIncarnation, headerSnapshotRetain, headerSnapshotDigest),
	KindSnapshotGet:    setOf(headerStreamIncarnation, headerIfNoneMatch, headerRange, headerIfRange),
	KindSnapshotDelete: setOf(headerStreamIncarnation),
	KindRetention:      setOf(headerStreamIncarnation),
	KindBootstrap:      setOf(headerStreamIncarnation, headerLastEventID),
	KindAttrsGet:       setOf(headerStreamIncarnation),
	KindAttrsPut:       setOf(headerContentType, headerContentEncoding, headerStreamIncarnation),
	KindAppendBatch:    setOf(headerContentType, headerContentEncoding, headerStreamIncarnation) | notInBatch,
	KindDocument:       setOf(headerIfNoneMatch),
}

// notInBatch are the headers that say something about one append: a batch is many,
// so it refuses them instead of passing over a condition or a closure.
var notInBatch = setOf(headerStreamClosed, headerStreamSeq, headerProducerID, headerProducerEpoch, headerProducerSeq,
	headerIfMatch, headerIfNoneMatch, headerRecordMatch)

// lists are the headers that may come in several lines.
var lists = setOf(headerAccept, headerIfMatch, headerIfNoneMatch, headerRequestHeaders, headerContentEncoding)

// headerOf finds a header by name. The length decides between nearly all of them.
func headerOf(name []byte) header {
	switch len(name) {
	case 4:
		return is(name, "host", headerHost)
	case 5:
		return is(name, "range", headerRange)
	case 6:
		return is(name, "accept", headerAccept)
	case 8:
		return is(name, "if-match", headerIfMatch) | is(name, "if-range", headerIfRange)
	case 10:
		return is(name, "stream-ttl", headerStreamTTL) | is(name, "stream-seq", headerStreamSeq)
	case 11:
		return is(name, "producer-id", headerProducerID)
	case 12:
		return is(name, "stream-attrs", headerAttrs) | is(name, "content-type", headerContentType) | is(name, "producer-seq", headerProducerSeq)
	case 13:
		return is(name, "stream-closed", headerStreamClosed) | is(name, "if-none-match", headerIfNoneMatch) |
			is(name, "last-event-id", headerLastEventID)
	case 14:
		return is(name, "producer-epoch", headerProducerEpoch)
	case 16:
		return is(name, "content-encoding", headerContentEncoding)
	case 17:
		return is(name, "stream-expires-at", headerStreamExpiresAt)
	case 18:
		return is(name, "stream-incarnation", headerStreamIncarnation) | is(name, "stream-forked-from", headerForkedFrom) |
			is(name, "stream-fork-offset", headerForkOffset)
	case 19:
		return is(name, "stream-record-match", headerRecordMatch)
	case 22:
		return is(name, "stream-fork-sub-offset", headerForkSubOffset) | is(name, "stream-snapshot-retain", headerSnapshotRetain) |
			is(name, "stream-snapshot-digest", headerSnapshotDigest)
	case 30:
		return is(name, "access-control-request-headers", headerRequestHeaders)
	}
	return headerNone
}

func is(name []byte, want string, h header) header {
	if equalFold(name, want) {
		return h
	}
	return headerNone
}
