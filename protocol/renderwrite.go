package protocol

import "strconv"

// Write renders what became of op, whichever kind it is: every success of a PUT,
// POST or DELETE and every refusal of any operation. It allocates nothing for an
// append that succeeded.
func (r *Renderer) Write(dst []byte, op *Operation, res *WriteResult) (status int, fields, body []byte) {
	at := len(dst)
	switch res.Outcome {
	case Created:
		status, dst = 201, r.appendLocation(append(dst, r.static...), op)
		dst = appendContentType(dst, res.ContentType)
	case Exists:
		status, dst = 200, appendContentType(append(dst, r.static...), res.ContentType)
	case Appended, Closed, Duplicate:
		status = 204
		if !op.Producer.Set {
			dst = append(dst, r.appended[0]...)
			break
		}
		if dst = append(dst, r.appended[1]...); res.Outcome == Appended {
			status = 200
		}
	default:
		if status, fields = r.writeAround(dst, op, res); status != 0 {
			return status, fields, nil
		}
		return r.refuse(dst, op, res)
	}
	dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	if res.HasStart && op.Kind == KindAppend {
		dst = appendOffsetField(dst, "Stream-Offset", res.Start)
	}
	dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	dst = appendClosedField(dst, res.Closed)
	dst = appendRecords(dst, res.ContentType, &res.Records)
	dst = appendStateField(dst, res.Incarnation, max(res.Tail, res.Next), res.Closed)
	return status, appendProducer(dst, op, res)[at:], nil
}

// writeAround renders the success of a write that does not add to a stream: of
// buckets, snapshots and what else lies around streams. Any other outcome has the
// status 0.
func (r *Renderer) writeAround(dst []byte, op *Operation, res *WriteResult) (status int, fields []byte) {
	at := len(dst)
	dst = append(dst, r.static...)
	switch res.Outcome {
	case BucketCreated:
		return 201, append(appendBucketPath(r.appendOrigin(dst, op), op.Bucket), crlf...)[at:]
	case BucketExists:
		if !op.IfNotExists {
			return 0, nil
		}
		return 200, dst[at:]
	case BucketDeleted:
		return 204, dst[at:]
	case SnapshotPublished:
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
		dst = appendSnapshotFields(dst, &res.Snapshot)
	case RetentionMoved:
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
		dst = appendOffsetField(dst, "Stream-Earliest-Offset", res.Earliest)
		dst = appendSnapshotFields(dst, &res.Snapshot)
	case Deleted, SnapshotDropped, AttrsReplaced:
	default:
		return 0, nil
	}
	dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	return 204, appendRecords(dst, res.ContentType, &res.Records)[at:]
}

// appendProducer appends what a successful write tells its producer.
func appendProducer(dst []byte, op *Operation, res *WriteResult) []byte {
	if !op.Producer.Set {
		return dst
	}
	epoch, seq := op.Producer.Epoch, op.Producer.Seq
	if res.HasProducer {
		epoch, seq = res.ProducerEpoch, res.ProducerSeq
	}
	dst = appendNumber(dst, "Producer-Epoch", epoch)
	return appendReplaced(appendNumber(dst, "Producer-Seq", seq), res)
}

// appendReplaced tells how far an epoch that has ended had come.
func appendReplaced(dst []byte, res *WriteResult) []byte {
	if res.HasReplaced {
		dst = appendNumber(dst, "Producer-Closed-Epoch", res.ReplacedEpoch)
		dst = appendNumber(dst, "Producer-Closed-Seq", res.ReplacedSeq)
	}
	return dst
}

// appendLocation appends the URL of the stream that op created.
func (r *Renderer) appendLocation(dst []byte, op *Operation) []byte {
	return append(AppendPath(r.appendOrigin(dst, op), op.Surface, op.Bucket, op.Stream), crlf...)
}

// appendOrigin appends the name of Location and what comes before the path in it.
// Without a Host that can be trusted to be one, that is nothing.
func (r *Renderer) appendOrigin(dst []byte, op *Operation) []byte {
	dst = append(dst, "Location: "...)
	if r.publicURL != "" {
		return append(dst, r.publicURL...)
	}
	if isHost(op.Host) {
		dst = append(append(dst, "http://"...), op.Host...)
	}
	return dst
}

// isHost reports whether b has only what a host and a port are made of.
func isHost(b []byte) bool {
	for _, c := range b {
		if !isPchar(c) && c != '[' && c != ']' && c != '%' || c == '@' {
			return false
		}
	}
	return len(b) > 0
}

// refuse renders a refusal.
func (r *Renderer) refuse(dst []byte, op *Operation, res *WriteResult) (status int, fields, body []byte) {
	at := len(dst)
	var p Problem
	p.fromResult(op, res)
	dst = r.appendProblemFields(dst, &p)
	if res.Incarnation != 0 {
		dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	}
	dst = r.appendReasons(dst, op, res)
	if p.Status == 409 && op.Producer.Set {
		// Official clients take a missing one for 0 and would send everything again.
		expected := op.Producer.Seq
		if res.Outcome == SequenceGap {
			expected = res.ExpectedSeq
		}
		dst = appendNumber(dst, "Producer-Expected-Seq", expected)
		dst = appendNumber(dst, "Producer-Received-Seq", op.Producer.Seq)
	}
	end := len(dst)
	dst = p.AppendJSON(dst)
	return p.Status, dst[at:end], dst[end:]
}

// appendReasons appends the headers that a refusal explains itself with.
func (r *Renderer) appendReasons(dst []byte, op *Operation, res *WriteResult) []byte {
	switch res.Outcome {
	case IncarnationMismatch:
		dst = appendInherited(dst, &res.Inherited)
	case HistoryChanged:
		dst = appendReplaced(appendNumber(dst, "Producer-Epoch", res.ProducerEpoch), res)
	case StaleEpoch:
		dst = appendNumber(dst, "Producer-Epoch", res.ProducerEpoch)
	case StreamClosed, ClosedDuplicate:
		dst = appendClosedField(dst, true)
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
		if res.HasProducer {
			dst = appendNumber(dst, "Producer-Epoch", res.ProducerEpoch)
			dst = appendNumber(dst, "Producer-Seq", res.ProducerSeq)
		}
	case PreconditionFailed:
		if res.Incarnation != 0 {
			dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
			dst = appendStateField(dst, res.Incarnation, max(res.Tail, res.Next), res.Closed)
		}
	case StreamSeqRegression:
		dst = append(append(append(dst, "Stream-Last-Seq: "...), res.LastSeq...), crlf...)
	case OffsetBeyondTail, SnapshotBeyondTail:
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	case RecordMismatch, RecordBeyondTail:
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
		dst = appendRecords(dst, res.ContentType, &res.Records)
	case RecordTrimmed:
		dst = appendRecords(dst, res.ContentType, &res.Records)
		dst = r.appendEarliest(dst, op, res)
	case OffsetTrimmed, SnapshotBelowEarliest:
		dst = r.appendEarliest(dst, op, res)
	case RetentionBehind:
		dst = appendOffsetField(dst, "Stream-Earliest-Offset", res.Earliest)
	case RangeNotSatisfiable:
		dst = strconv.AppendInt(append(dst, "Content-Range: bytes */"...), res.Snapshot.Size, 10)
		dst = append(dst, crlf...)
	}
	switch res.Outcome {
	case SnapshotStale, SnapshotConflict, SnapshotBeyondTail, SnapshotIsCurrent, RetentionNotBoundary, RetentionBehind, RetentionAboveSnapshot:
		dst = appendSnapshotFields(dst, &res.Snapshot)
	}
	return dst
}

// appendEarliest tells where a trimmed stream begins, and what has the rest.
func (r *Renderer) appendEarliest(dst []byte, op *Operation, res *WriteResult) []byte {
	dst = appendOffsetField(dst, "Stream-Earliest-Offset", res.Earliest)
	bucket, stream := op.Bucket, op.Stream
	if op.Kind == KindCreate { // it is the source that is trimmed
		bucket, stream = op.Fork.Bucket, op.Fork.Stream
	}
	dst = append(append(dst, "Link: <"...), r.publicURL...)
	dst = AppendPath(dst, SurfaceDS, bucket, stream)
	return append(dst, "/"+wordBootstrap+">; rel=\"bootstrap\"\r\n"...)
}

// refusals maps each refusal to its code and to the sentence that says what to do.
var refusals = [...]struct{ code, detail string }{
	NotFound:            {codeStreamNotFound, "There is no stream at this path, or it has expired or been deleted."},
	Gone:                {codeStreamGone, "The stream was deleted. Its name is free again when the last of its forks is gone."},
	IncarnationMismatch: {codeIncarnation, "Another stream has this name now; the current one is in Stream-Incarnation."},
	HistoryChanged:      {codeHistoryChanged, "The server was restored from a copy that may lack this producer's last writes. The last one that it has is in Producer-Closed-Epoch and Producer-Closed-Seq, if it has any. Go on with Producer-Seq 0 in the epoch above Producer-Epoch."},
	StaleEpoch:          {codeStaleEpoch, "Another writer has taken over this Producer-Id; begin an epoch above the one in Producer-Epoch to take it back."},
	StreamClosed:        {codeClosed, "The stream is closed and takes no more data; its end is in Stream-Next-Offset."},
	ClosedDuplicate:     {codeClosedDuplicate, "The stream is closed; it had taken this write before that. There is no need to send it again."},
	EpochNeedsSeqZero:   {codeEpochNeedsSeqZero, "The first write of a higher epoch has Producer-Seq 0."},
	SequenceGap:         {codeSequenceGap, "Send the writes from Producer-Expected-Seq on, in order."},
	PreconditionFailed:  {codePreconditionFailed, "The stream is not in a state that If-Match names, or in one that If-None-Match names; its own is in ETag."},
	ContentTypeMismatch: {codeContentTypeMismatch, ""},
	StreamSeqRegression: {codeStreamSeq, "Each Stream-Seq must be greater than the one before, byte by byte; the last one is in Stream-Last-Seq."},
	ConfigMismatch:      {codeConfigMismatch, "A stream with another content type, lifetime, source or closure has this name."},
	NameHeldByForks:     {codeNameHeldByForks, "Choose another name, or delete the forks first."},
	ForkSourceNotFound:  {codeForkSourceNotFound, "There is no stream at the path in Stream-Forked-From."},
	ForkSourceGone:      {codeForkSourceGone, "The stream in Stream-Forked-From was deleted; only its existing forks can still be read."},
	ForkOffsetInvalid:   {codeForkOffsetInvalid, "The offset lies beyond the source's end or inside a message, or the sub-offset leads past the next message."},
	ForkTypeMismatch:    {codeForkTypeMismatch, ""},
	OffsetBeyondTail:    {codeOffsetBeyondTail, "The stream ends at Stream-Next-Offset. The offset may belong to another stream."},
	OffsetNotBoundary:   {codeOffsetNotBoundary, "Use offsets as the server hands them out: one of a JSON stream lies between two messages."},
	OffsetTrimmed:       {codeOffsetTrimmed, "The data before Stream-Earliest-Offset is gone; begin with the snapshot, through bootstrap."},
	RangeDamaged:        {codeRangeDamaged, "Part of this range can't be read back as it was written. The operator has been told."},
	ColdUnavailable:     {codeColdUnavailable, "The data is safe, but nobody can get at it now, and nothing was stored. Try again later."},
	BodyTooLarge:        {codeBodyTooLarge, "Send the data in several appends."},
	TooManyProducers:    {codeTooManyProducers, "Write with a Producer-Id that the stream knows, or wait until an idle one may be forgotten."},
	StateFull:           {codeStateFull, "Delete streams, or try again later."},
	DiskFull:            {codeDiskFull, "Nothing was stored. Try again later."},
	Overloaded:          {codeOverloaded, "Nothing was stored. Try again in a moment."},
	Draining:            {codeDraining, "Nothing was stored. Try again in a moment."},
	Fenced:              {codeFenced, "Nothing was stored, and nothing more will be here. Write to the node that has the data now."},
	Unavailable:         {codeUnavailable, "Whether the write is stored will be known when the server is back. Send it again with the same producer headers."},

	RecordMismatch:   {codeRecordMismatch, "Others have written: the next record is in Stream-Record-Next."},
	RecordBeyondTail: {codeRecordBeyondTail, "The next record to be written is Stream-Record-Next. The ordinal may belong to another stream."},
	RecordTrimmed:    {codeRecordTrimmed, "The records before Stream-Record-First are gone; begin with the snapshot, through bootstrap."},
	RecordViewOfText: {codeRecordView, "Read this stream without record_view."},

	BucketExists:   {codeBucketExists, "Use it, or ask with if-not-exists=true."},
	BucketNotFound: {codeBucketNotFound, "Create the bucket first, with PUT /ds/{bucket}."},
	BucketNotEmpty: {codeBucketNotEmpty, "Delete its streams first. One that was deleted while it had forks counts until they are gone."},
	BucketClosing:  {codeBucketClosing, "Nothing was stored. Try again in a moment."},

	SnapshotNotFound:      {codeSnapshotNotFound, "The current snapshot is at …/snapshot. One that it replaced stays readable for a few minutes."},
	SnapshotNotBoundary:   {codeSnapshotNotBoundary, "Use offsets as the server hands them out: a snapshot stands for whole messages."},
	SnapshotStale:         {codeSnapshotStale, "There is no need for this one: the current one is in Stream-Snapshot-Offset."},
	SnapshotConflict:      {codeSnapshotConflict, "Its digest is in Stream-Snapshot-Digest. Read it, or publish at a later offset."},
	SnapshotBeyondTail:    {codeSnapshotBeyondTail, "The stream ends at Stream-Next-Offset. The offset may belong to another stream."},
	SnapshotBelowEarliest: {codeSnapshotBelowEarliest, "The stream begins at Stream-Earliest-Offset. Begin again with bootstrap."},
	SnapshotIsCurrent:     {codeSnapshotIsCurrent, "Bootstrap needs it. Publish another one first."},
	SnapshotTooLarge:      {codeSnapshotTooLarge, "Publish a smaller snapshot."},
	DigestMismatch:        {codeDigestMismatch, "The body did not arrive as it was sent, or Stream-Snapshot-Digest is that of other bytes."},
	RangeNotSatisfiable:   {codeRangeNotSatisfiable, "Its length is in Content-Range."},

	RetentionNotBoundary:   {codeRetentionNotBoundary, "Use offsets as the server hands them out: what is kept begins with a whole message."},
	RetentionBehind:        {codeRetentionBehind, "What lies before Stream-Earliest-Offset is gone already."},
	RetentionAboveSnapshot: {codeRetentionAbove, "Publish a snapshot at this offset, or at a later one, first."},
}

// fromResult makes p the problem that res is.
func (p *Problem) fromResult(op *Operation, res *WriteResult) {
	switch o := res.Outcome; {
	case o == HeaderFault && op.Fault != nil:
		*p = *op.Fault
	case o == BodyFault && op.BodyFault != nil:
		*p = *op.BodyFault
	case int(o) < len(refusals) && refusals[o].code != "":
		p.set(refusals[o].code, "", refusals[o].detail)
		p.Limit = res.Limit
		if o == PreconditionFailed && res.Incarnation == 0 {
			p.Detail = "If-Match asks for a stream that exists, and there is none at this path."
		}
		if o == IncarnationMismatch && res.Inherited.Incarnation != 0 {
			p.Detail = "The server was restored from a copy: the stream is another one now, the same as Stream-Previous-Incarnation below Stream-Inherited-Offset. What lay beyond may be lost."
		}
		if (o == ContentTypeMismatch || o == ForkTypeMismatch) && res.ContentType != "" {
			p.Field, p.Detail = "Content-Type", "The stream's content type is "+res.ContentType+"."
		}
	default:
		p.set(codeInternal, "", "")
	}
}

// EndProblem returns the refusal that ends a live read, for AppendSSEEnd.
func EndProblem(op *Operation, res *WriteResult) *Problem {
	p := new(Problem)
	p.fromResult(op, res)
	return p
}
