package protocol

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
	case Appended:
		if status, dst = 204, append(dst, r.static...); op.Producer.Set {
			status = 200
		}
	case Closed, Duplicate:
		status, dst = 204, append(dst, r.static...)
	case Deleted:
		dst = append(dst, r.static...)
		return 204, appendNumber(dst, "Stream-Incarnation", res.Incarnation)[at:], nil
	default:
		return r.refuse(dst, op, res)
	}
	dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	if res.HasStart && op.Kind == KindAppend {
		dst = appendOffsetField(dst, "Stream-Offset", res.Start)
	}
	dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	dst = appendClosedField(dst, res.Closed)
	dst = appendStateField(dst, res.Incarnation, max(res.Tail, res.Next), res.Closed)
	return status, appendProducer(dst, op, res)[at:], nil
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
	dst = appendNumber(dst, "Producer-Seq", seq)
	if res.HasReplaced {
		dst = appendNumber(dst, "Producer-Closed-Epoch", res.ReplacedEpoch)
		dst = appendNumber(dst, "Producer-Closed-Seq", res.ReplacedSeq)
	}
	return dst
}

// appendLocation appends the URL of the stream that op created. Without a Host that
// can be trusted to be one, it is the path alone.
func (r *Renderer) appendLocation(dst []byte, op *Operation) []byte {
	dst = append(dst, "Location: "...)
	if r.publicURL != "" {
		dst = append(dst, r.publicURL...)
	} else if isHost(op.Host) {
		dst = append(append(dst, "http://"...), op.Host...)
	}
	return append(AppendPath(dst, op.Surface, op.Bucket, op.Stream), crlf...)
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
	dst = appendReasons(dst, op, res)
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
func appendReasons(dst []byte, op *Operation, res *WriteResult) []byte {
	switch res.Outcome {
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
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
		dst = appendStateField(dst, res.Incarnation, max(res.Tail, res.Next), res.Closed)
	case StreamSeqRegression:
		dst = append(append(append(dst, "Stream-Last-Seq: "...), res.LastSeq...), crlf...)
	case OffsetBeyondTail:
		dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	case OffsetTrimmed:
		dst = appendOffsetField(dst, "Stream-Earliest-Offset", res.Earliest)
		dst = AppendPath(append(dst, "Link: <"...), SurfaceDS, op.Bucket, op.Stream)
		dst = append(dst, "/bootstrap>; rel=\"bootstrap\"\r\n"...)
	}
	return dst
}

// refusals maps each refusal to its code and to the sentence that says what to do.
var refusals = [...]struct{ code, detail string }{
	NotFound:            {codeStreamNotFound, "There is no stream at this path, or it has expired or been deleted."},
	Gone:                {codeStreamGone, "The stream was deleted. Its name is free again when the last of its forks is gone."},
	IncarnationMismatch: {codeIncarnation, "Another stream has this name now; the current one is in Stream-Incarnation."},
	StaleEpoch:          {codeStaleEpoch, "Another writer has taken over this Producer-Id; begin an epoch above the one in Producer-Epoch to take it back."},
	StreamClosed:        {codeClosed, "The stream is closed and takes no more data; its end is in Stream-Next-Offset."},
	ClosedDuplicate:     {codeClosedDuplicate, "The stream is closed; it had taken this write before that. There is no need to send it again."},
	EpochNeedsSeqZero:   {codeEpochNeedsSeqZero, "The first write of a higher epoch has Producer-Seq 0."},
	SequenceGap:         {codeSequenceGap, "Send the writes from Producer-Expected-Seq on, in order."},
	PreconditionFailed:  {codePreconditionFailed, "The stream is in the state that If-None-Match names."},
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
	BodyTooLarge:        {codeBodyTooLarge, "Send the data in several appends."},
	TooManyProducers:    {codeTooManyProducers, "Write with a Producer-Id that the stream knows, or wait until an idle one may be forgotten."},
	StateFull:           {codeStateFull, "Delete streams, or try again later."},
	DiskFull:            {codeDiskFull, "Nothing was stored. Try again later."},
	Overloaded:          {codeOverloaded, "Nothing was stored. Try again in a moment."},
	Draining:            {codeDraining, "Nothing was stored. Try again in a moment."},
	Unavailable:         {codeUnavailable, "Whether the write is stored will be known when the server is back. Send it again with the same producer headers."},
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
