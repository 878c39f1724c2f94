package protocol

import (
	"slices"
	"strconv"
	"strings"
)

// Settings are what the operator decides about answers. The zero value of each
// field means its default.
type Settings struct {
	CORSOrigin      string // Access-Control-Allow-Origin; default "*"
	CacheVisibility string // "public" or "private"; default "public"
	PublicURL       string // what Location begins with; default: http and the request's Host
}

// Renderer writes the header lines and bodies of answers. It is immutable: any
// number of goroutines may use one.
//
// Its methods append to dst, header lines first and the body directly behind them,
// and return both as parts of that one buffer. A caller that passes an empty
// slice can take fields[:0] as the buffer for the next answer, once it has sent
// this one. Header lines are "Name: value" with CR LF each, without the framing
// (status line, Date, Content-Length, Transfer-Encoding, Connection).
type Renderer struct {
	static, preflight []byte
	appended          [2][]byte // static for appends that succeeded, without and with a producer
	cacheable         string    // the line for catch-up and long-poll data
	revalidate        string    // the line for snapshots
	publicURL         string    // without a slash at its end
}

// NewRenderer returns a Renderer for these settings.
func NewRenderer(s Settings) *Renderer {
	if s.CORSOrigin == "" {
		s.CORSOrigin = "*"
	}
	if s.CacheVisibility == "" {
		s.CacheVisibility = "public"
	}
	return &Renderer{
		static: staticFields(s.CORSOrigin, exposed...),
		appended: [2][]byte{
			staticFields(s.CORSOrigin, exposedAppend...),
			staticFields(s.CORSOrigin, slices.Concat(exposedAppend, exposedProducer)...),
		},
		preflight:  preflightFields(),
		cacheable:  "Cache-Control: " + s.CacheVisibility + ", max-age=60, stale-while-revalidate=300\r\n",
		revalidate: "Cache-Control: " + s.CacheVisibility + ", no-cache\r\n",
		publicURL:  strings.TrimRight(s.PublicURL, "/"),
	}
}

const noStore = "Cache-Control: no-store\r\n"

// Head renders the answer to a HEAD of a stream that exists: 200, or 304.
func (r *Renderer) Head(dst []byte, op *Operation, m *Meta) (status int, fields []byte) {
	at := len(dst)
	dst = append(dst, r.static...)
	dst = append(dst, noStore...)
	dst = appendNumber(dst, "Stream-Incarnation", m.Incarnation)
	dst = appendOffsetField(dst, "Stream-Next-Offset", m.Next)
	dst = appendClosedField(dst, m.Closed)
	if m.TTL >= 0 {
		dst = appendNumber(dst, "Stream-TTL", uint64(m.TTL))
	}
	if m.ExpiresAt > 0 {
		dst = append(appendTime(append(dst, "Stream-Expires-At: "...), m.ExpiresAt), crlf...)
	}
	if m.Earliest > 0 {
		dst = appendOffsetField(dst, "Stream-Earliest-Offset", m.Earliest)
	}
	dst = appendRecords(dst, m.ContentType, &m.Records)
	dst = appendSnapshotFields(dst, &m.Snapshot)
	dst = appendInherited(dst, &m.Inherited)
	dst = appendStateField(dst, m.Incarnation, m.Next, m.Closed)
	var tag [maxTag]byte
	if MatchNone(op.IfNoneMatch, AppendStateTag(tag[:0], m.Incarnation, m.Next, m.Closed)) {
		return 304, dst[at:]
	}
	return 200, appendContent(dst, m.ContentType)[at:]
}

// ndjsonType is the content type of a JSON stream that is read line by line, and
// representationNDJSON names it in entity tags.
const (
	ndjsonType           = "application/x-ndjson"
	representationNDJSON = "ndjson"
)

// Read renders the head of the answer to a catch-up or long-poll read: 200; 204
// when a long-poll has nothing to say; 304. Only with 200 does a body follow: the
// range, for JSON between OpenArray and CloseArray, through Lines when op.Read.NDJSON
// is set, or through an Envelope when op.Read.Records asks for it.
func (r *Renderer) Read(dst []byte, op *Operation, res *ReadResult) (status int, fields []byte) {
	at := len(dst)
	live, now, json := op.Read.Live == LiveLongPoll, op.Read.now(), IsJSON(res.ContentType)
	empty := live && res.Start == res.Next
	dst = append(dst, r.static...)
	if empty || now {
		dst = append(dst, noStore...)
	} else {
		dst = append(dst, r.cacheable...)
	}
	dst = appendNumber(dst, "Stream-Incarnation", res.Incarnation)
	dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	if res.UpToDate || res.Closed || empty {
		dst = append(dst, "Stream-Up-To-Date: true\r\n"...)
	}
	dst = appendClosedField(dst, res.Closed)
	dst = appendRecords(dst, res.ContentType, &res.Records)
	if live && !(empty && res.Closed) {
		dst = appendNumber(dst, "Stream-Cursor", res.Cursor)
	}
	if empty {
		return 204, dst[at:]
	}
	contentType, representation := res.ContentType, ""
	if json {
		if !op.Read.Records.Set {
			dst = append(dst, "Vary: Accept\r\n"...)
		}
		switch {
		case op.Read.Records.Envelope:
			contentType, representation = envelopeLines, representationRecords
		case op.Read.NDJSON:
			contentType, representation = ndjsonType, representationNDJSON
		}
	}
	if !now {
		dst = append(dst, "ETag: "...)
		tag := len(dst)
		dst = AppendRangeTag(dst, res.Incarnation, res.Start, res.Next, res.Closed, representation)
		matched := MatchNone(op.IfNoneMatch, dst[tag:])
		if dst = append(dst, crlf...); matched {
			return 304, dst[at:]
		}
	}
	return 200, appendContent(dst, contentType)[at:]
}

// Events renders the head of an event stream; its status is 200.
func (r *Renderer) Events(dst []byte, incarnation uint64, contentType string) (fields []byte) {
	at := len(dst)
	return r.appendEvents(dst, incarnation, contentType)[at:]
}

func (r *Renderer) appendEvents(dst []byte, incarnation uint64, contentType string) []byte {
	dst = r.appendEventStream(dst, incarnation, contentType)
	switch EncodingOf(contentType) {
	case EncodeBase64:
		dst = append(dst, "Stream-SSE-Data-Encoding: base64\r\n"...)
	case EncodeJSON:
		dst = append(dst, recordsExtension...)
	}
	return dst
}

// appendEventStream appends the lines of an event stream whose data have that type.
func (r *Renderer) appendEventStream(dst []byte, incarnation uint64, contentType string) []byte {
	dst = append(dst, r.static...)
	dst = append(dst, "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"...)
	dst = appendNumber(dst, "Stream-Incarnation", incarnation)
	return append(append(append(dst, "Stream-Data-Content-Type: "...), contentType...), crlf...)
}

// Options renders the answer to a preflight, or to any other OPTIONS; its status is
// 204.
func (r *Renderer) Options(dst []byte, op *Operation) (fields []byte) {
	at := len(dst)
	dst = append(append(dst, r.static...), r.preflight...)
	return append(appendAsked(dst, op.RequestHeaders), crlf...)[at:]
}

// Problem renders p.
func (r *Renderer) Problem(dst []byte, p *Problem) (status int, fields, body []byte) {
	at := len(dst)
	dst = r.appendProblemFields(dst, p)
	end := len(dst)
	dst = p.AppendJSON(dst)
	return p.Status, dst[at:end], dst[end:]
}

// Malformed renders an answer of the HTTP parser or the transport: its status wins
// over the one that the table has for code.
func (r *Renderer) Malformed(dst []byte, status int, code, detail string) (fields, body []byte) {
	p := NewProblem(code, detail)
	if p.Code != code && status < 500 {
		p.set(codeMalformedRequest, "", detail)
	}
	p.Status = status
	_, fields, body = r.Problem(dst, p)
	return fields, body
}

func (r *Renderer) appendProblemFields(dst []byte, p *Problem) []byte {
	dst = append(append(dst, r.static...), noStore...)
	dst = append(dst, "Content-Type: application/problem+json\r\n"...)
	if p.retry > 0 {
		dst = appendNumber(dst, "Retry-After", uint64(p.retry))
	}
	return append(dst, p.Fields...)
}

const crlf = "\r\n"

func appendNumber(dst []byte, name string, n uint64) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(strconv.AppendUint(dst, n, 10), crlf...)
}

func appendOffsetField(dst []byte, name string, off uint64) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(AppendOffset(dst, off), crlf...)
}

// appendInherited tells what the stream has from before a restore.
func appendInherited(dst []byte, i *Inheritance) []byte {
	if i.Incarnation == 0 {
		return dst
	}
	dst = appendNumber(dst, "Stream-Previous-Incarnation", i.Incarnation)
	return appendOffsetField(dst, "Stream-Inherited-Offset", i.UpTo)
}

func appendClosedField(dst []byte, closed bool) []byte {
	if closed {
		dst = append(dst, "Stream-Closed: true\r\n"...)
	}
	return dst
}

func appendStateField(dst []byte, incarnation, next uint64, closed bool) []byte {
	return append(AppendStateTag(append(dst, "ETag: "...), incarnation, next, closed), crlf...)
}

// appendContent appends Content-Type and, for a type that a browser might run, the
// policy that keeps somebody else's markup from running with the server's origin.
func appendContent(dst []byte, contentType string) []byte {
	dst = appendContentType(dst, contentType)
	if !isInert(contentType) {
		dst = append(dst, "Content-Security-Policy: default-src 'none'; sandbox\r\nContent-Disposition: attachment\r\n"...)
	}
	return dst
}

func appendContentType(dst []byte, contentType string) []byte {
	return append(append(append(dst, "Content-Type: "...), contentType...), crlf...)
}
