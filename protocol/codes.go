package protocol

import "slices"

// CodeInfo is one line of the table of problem codes.
type CodeInfo struct {
	Code    string
	Status  int
	Title   string
	Outcome string // of a write: "applied", "repeat", "refused", "unknown", or "–" when no write gets it
	Retry   int    // seconds for Retry-After, 0 for none
}

// The codes. They are part of the API: none is ever renamed.
const (
	codeMalformedRequest = "malformed_request"
	codeRequestTimeout   = "request_timeout"
	codeBodyTooLarge     = "body_too_large"
	codeTargetTooLong    = "target_too_long"
	codeExpectation      = "expectation_failed"
	codeHeadTooLarge     = "head_too_large"
	codeTransferCoding   = "transfer_coding_not_supported"
	codeHTTPVersion      = "http_version_not_supported"

	codeBadPath            = "bad_path"
	codeUnknownRoute       = "unknown_route"
	codeMethodNotAllowed   = "method_not_allowed"
	codeBucketNotFound     = "bucket_not_found"
	codeStreamNotFound     = "stream_not_found"
	codeStreamGone         = "stream_gone"
	codeBucketExists       = "bucket_exists"
	codeBucketNotEmpty     = "bucket_not_empty"
	codeBucketClosing      = "bucket_closing"
	codeIncarnation        = "incarnation_mismatch"
	codePreconditionFailed = "precondition_failed"
	codeRecordMismatch     = "record_mismatch"

	codeInvalidHeader      = "invalid_header"
	codeRepeatedHeader     = "repeated_header"
	codeInvalidContentType = "invalid_content_type"
	codeMissingContentType = "missing_content_type"
	codeContentCoding      = "content_coding_not_supported"
	codeEmptyBody          = "empty_body"
	codeProducerIncomplete = "producer_incomplete"
	codeTTLAndExpiresAt    = "ttl_and_expires_at"
	codeForkHeaders        = "fork_headers_without_source"
	codeHeaderNotAllowed   = "header_not_allowed"
	codeInvalidAttrs       = "invalid_attrs"
	codeMalformedFrames    = "malformed_frames"

	codeInvalidParameter    = "invalid_parameter"
	codeRepeatedParameter   = "repeated_parameter"
	codeExclusiveParameters = "exclusive_parameters"
	codeInvalidOffset       = "invalid_offset"
	codeOffsetRequired      = "offset_required"
	codeOffsetBeyondTail    = "offset_beyond_tail"
	codeOffsetNotBoundary   = "offset_not_boundary"
	codeOffsetTrimmed       = "offset_trimmed"
	codeRecordBeyondTail    = "record_beyond_tail"
	codeRecordTrimmed       = "record_trimmed"
	codeRecordView          = "record_view_not_json"
	codeRangeNotSatisfiable = "range_not_satisfiable"
	codeRangeDamaged        = "range_damaged"
	codeColdUnavailable     = "cold_unavailable"

	codeSnapshotNotFound      = "snapshot_not_found"
	codeSnapshotNotBoundary   = "snapshot_not_boundary"
	codeSnapshotStale         = "snapshot_stale"
	codeSnapshotConflict      = "snapshot_conflict"
	codeSnapshotBeyondTail    = "snapshot_beyond_tail"
	codeSnapshotBelowEarliest = "snapshot_below_earliest"
	codeSnapshotIsCurrent     = "snapshot_is_current"
	codeSnapshotTooLarge      = "snapshot_too_large"
	codeDigestMismatch        = "digest_mismatch"
	codeRetentionNotBoundary  = "retention_not_boundary"
	codeRetentionBehind       = "retention_behind"
	codeRetentionAbove        = "retention_above_snapshot"

	codeHistoryChanged      = "history_changed"
	codeStaleEpoch          = "stale_epoch"
	codeClosed              = "closed"
	codeClosedDuplicate     = "closed_duplicate"
	codeEpochNeedsSeqZero   = "epoch_needs_seq_zero"
	codeSequenceGap         = "sequence_gap"
	codeContentTypeMismatch = "content_type_mismatch"
	codeStreamSeq           = "stream_seq_regression"
	codeInvalidJSON         = "invalid_json"
	codeEmptyArray          = "empty_array"

	codeConfigMismatch     = "config_mismatch"
	codeNameHeldByForks    = "name_held_by_forks"
	codeForkSourceNotFound = "fork_source_not_found"
	codeForkSourceGone     = "fork_source_gone"
	codeForkOffsetInvalid  = "fork_offset_invalid"
	codeForkTypeMismatch   = "fork_type_mismatch"

	codeTooManyProducers = "too_many_producers"
	codeStateFull        = "state_full"
	codeOverloaded       = "overloaded"
	codeDraining         = "draining"
	codeFenced           = "fenced"
	codeDiskFull         = "disk_full"
	codeUnavailable      = "unavailable"
	codeInternal         = "internal"
)

// What an answer says about a write (api §5).
const (
	applied = "applied" // by this request
	repeat  = "repeat"  // by an earlier one
	refused = "refused" // not, and it never will be
	unknown = "unknown" // it may come to pass
	noWrite = "–"
)

// codes is the table behind docs/errors.md, in its order. A test compares them.
var codes = []CodeInfo{
	{codeMalformedRequest, 400, "The request is not valid HTTP/1.1", refused, 0},
	{codeRequestTimeout, 408, "The request took too long to arrive", unknown, 0},
	{codeBodyTooLarge, 413, "The body is too large", refused, 0},
	{codeTargetTooLong, 414, "The URL is too long", refused, 0},
	{codeExpectation, 417, "The Expect header asks for something unknown", refused, 0},
	{codeHeadTooLarge, 431, "The head of the request is too large", refused, 0},
	{codeTransferCoding, 501, "The transfer coding is not supported", unknown, 0},
	{codeHTTPVersion, 505, "The HTTP version is not supported", unknown, 0},

	{codeBadPath, 400, "The path cannot name a stream", refused, 0},
	{codeUnknownRoute, 404, "There is nothing at this path", refused, 0},
	{codeMethodNotAllowed, 405, "The method is not supported here", refused, 0},
	{codeBucketNotFound, 404, "There is no such bucket", refused, 0},
	{codeStreamNotFound, 404, "There is no such stream", refused, 0},
	{codeStreamGone, 410, "The stream is deleted, but forks still hold its data", refused, 0},
	{codeBucketExists, 409, "The bucket exists", refused, 0},
	{codeBucketNotEmpty, 409, "The bucket has streams", refused, 0},
	{codeBucketClosing, 503, "The bucket is being deleted", refused, 1},
	{codeIncarnation, 412, "The stream has been deleted and created again, or restored", refused, 0},
	{codePreconditionFailed, 412, "A precondition of the request does not hold", refused, 0},
	{codeRecordMismatch, 412, "The stream has another number of records", refused, 0},

	{codeInvalidHeader, 400, "A header has an invalid value", refused, 0},
	{codeRepeatedHeader, 400, "A header appears more than once", refused, 0},
	{codeInvalidContentType, 400, "The Content-Type is not a media type", refused, 0},
	{codeMissingContentType, 400, "The body has no Content-Type", refused, 0},
	{codeContentCoding, 415, "The body has a content coding", refused, 0},
	{codeEmptyBody, 400, "The append has no body", refused, 0},
	{codeProducerIncomplete, 400, "The producer headers are incomplete", refused, 0},
	{codeTTLAndExpiresAt, 400, "The stream is given two lifetimes", refused, 0},
	{codeForkHeaders, 400, "The fork headers name no source", refused, 0},
	{codeHeaderNotAllowed, 400, "A header has no place in a batch", refused, 0},
	{codeInvalidAttrs, 400, "The attributes are not what attributes are", refused, 0},
	{codeMalformedFrames, 400, "The frames of the batch are malformed", refused, 0},

	{codeInvalidParameter, 400, "A query parameter has an invalid value", refused, 0},
	{codeRepeatedParameter, 400, "A query parameter appears more than once", refused, 0},
	{codeExclusiveParameters, 400, "The request names a place in two ways", refused, 0},
	{codeInvalidOffset, 400, "The offset is malformed", refused, 0},
	{codeOffsetRequired, 400, "A live read needs an offset", noWrite, 0},
	{codeOffsetBeyondTail, 400, "The offset lies beyond the end of the stream", noWrite, 0},
	{codeOffsetNotBoundary, 400, "The offset lies inside a message", noWrite, 0},
	{codeOffsetTrimmed, 410, "The data at this offset has been trimmed", refused, 0},
	{codeRecordBeyondTail, 400, "The record lies beyond the end of the stream", noWrite, 0},
	{codeRecordTrimmed, 410, "The record has been trimmed", noWrite, 0},
	{codeRecordView, 400, "Only JSON streams have an envelope view", noWrite, 0},
	{codeRangeNotSatisfiable, 416, "The range lies outside the snapshot", noWrite, 0},
	{codeRangeDamaged, 500, "The data of this range is damaged", unknown, 0},
	{codeColdUnavailable, 503, "The object store that holds this range can't be reached", refused, 5},

	{codeSnapshotNotFound, 404, "There is no such snapshot", refused, 0},
	{codeSnapshotNotBoundary, 400, "The snapshot's offset lies inside a message", refused, 0},
	{codeSnapshotStale, 409, "The stream has a newer snapshot", refused, 0},
	{codeSnapshotConflict, 409, "The stream has another snapshot at this offset", refused, 0},
	{codeSnapshotBeyondTail, 409, "The snapshot's offset lies beyond the end of the stream", refused, 0},
	{codeSnapshotBelowEarliest, 410, "The data at the snapshot's offset has been trimmed", refused, 0},
	{codeSnapshotIsCurrent, 409, "The snapshot is the current one", refused, 0},
	{codeSnapshotTooLarge, 413, "The snapshot is too large", refused, 0},
	{codeDigestMismatch, 400, "The body has another digest than the request says", refused, 0},
	{codeRetentionNotBoundary, 409, "The new earliest offset lies inside a message", refused, 0},
	{codeRetentionBehind, 409, "The earliest offset never goes back", refused, 0},
	{codeRetentionAbove, 409, "The new earliest offset lies above the current snapshot", refused, 0},

	{codeHistoryChanged, 403, "The server was restored, and this producer has to begin an epoch", refused, 0},
	{codeStaleEpoch, 403, "A newer epoch of this producer is writing", refused, 0},
	{codeClosed, 409, "The stream is closed", refused, 0},
	{codeClosedDuplicate, 409, "The stream is closed, and this write is in it", repeat, 0},
	{codeEpochNeedsSeqZero, 400, "A new epoch must begin with sequence number 0", refused, 0},
	{codeSequenceGap, 409, "A write of this producer is missing", refused, 0},
	{codeContentTypeMismatch, 409, "The stream has another content type", refused, 0},
	{codeStreamSeq, 409, "The Stream-Seq is not above the last one", refused, 0},
	{codeInvalidJSON, 400, "The body is not valid JSON", refused, 0},
	{codeEmptyArray, 400, "The body holds no messages", refused, 0},

	{codeConfigMismatch, 409, "The stream exists with another configuration", refused, 0},
	{codeNameHeldByForks, 409, "The name belongs to a deleted stream that has forks", refused, 0},
	{codeForkSourceNotFound, 404, "There is no stream to fork from", refused, 0},
	{codeForkSourceGone, 409, "The stream to fork from is deleted", refused, 0},
	{codeForkOffsetInvalid, 400, "The stream cannot be forked there", refused, 0},
	{codeForkTypeMismatch, 409, "The stream to fork from has another content type", refused, 0},

	{codeTooManyProducers, 429, "The stream has too many producers", refused, 60},
	{codeStateFull, 429, "The server holds as much state as it may", refused, 60},
	{codeOverloaded, 503, "The server is overloaded", refused, 1},
	{codeDraining, 503, "The server is shutting down", refused, 1},
	{codeFenced, 503, "Another node has taken this one's place", refused, 5},
	{codeDiskFull, 507, "The disk is full", refused, 10},
	{codeUnavailable, 500, "The log has failed", unknown, 0},
	{codeInternal, 500, "Something went wrong in the server", unknown, 0},
}

// Codes returns every problem code, in the order of docs/errors.md.
func Codes() []CodeInfo { return slices.Clone(codes) }

// lookup finds a code's line; what it doesn't know is "internal".
func lookup(code string) *CodeInfo {
	for i := range codes {
		if codes[i].Code == code {
			return &codes[i]
		}
	}
	return &codes[len(codes)-1]
}
