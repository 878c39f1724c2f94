package protocol

import (
	"encoding/hex"
	"strconv"
)

// Multipart writes the body of a bootstrap (RFC 2046, multipart/mixed): first
// AppendSnapshot and the snapshot's bytes, then for each message AppendMessage and its
// bytes, for JSON without the comma, and AppendEnd.
//
//	--boundary CRLF
//	Content-Type: application/octet-stream CRLF
//	Content-Length: 3 CRLF
//	Stream-Snapshot-Offset: 00000000000000000012 CRLF
//	Stream-Snapshot-Digest: … CRLF
//	CRLF
//	abc
//	CRLF --boundary CRLF
//	Content-Type: text/plain CRLF
//	Content-Length: 5 CRLF
//	CRLF
//	hello
//	CRLF --boundary-- CRLF
//
// The CRLF before a delimiter belongs to it and not to the part before.
type Multipart struct{ boundary [2 * randomBytes]byte }

const randomBytes = 16

// NewMultipart returns the writer of one body. The boundary is made of random, which
// nobody may be able to foresee: that keeps it out of the data.
func NewMultipart(random [randomBytes]byte) *Multipart {
	m := new(Multipart)
	hex.Encode(m.boundary[:], random[:])
	return m
}

const (
	partType   = "\r\nContent-Type: "
	partLength = "\r\nContent-Length: "
	partEnd    = "--\r\n"
)

// AppendSnapshot appends the delimiter and the head of the first part. Without a
// snapshot the part is empty.
func (m *Multipart) AppendSnapshot(dst []byte, s *Snapshot) []byte {
	dst = append(append(dst, "--"...), m.boundary[:]...)
	if !s.Set {
		return append(appendPart(dst, DefaultContentType, 0), noSnapshot+crlf...)
	}
	dst = appendSnapshotFields(appendPart(dst, s.ContentType, s.Size), s)
	return append(dst, crlf...)
}

// AppendMessage appends the delimiter and the head of a message of size bytes.
func (m *Multipart) AppendMessage(dst []byte, contentType string, size int64) []byte {
	dst = append(append(dst, "\r\n--"...), m.boundary[:]...)
	return append(appendPart(dst, contentType, size), crlf...)
}

// AppendEnd appends what closes the body. A body that could not be completed goes
// without, so that its reader sees it.
func (m *Multipart) AppendEnd(dst []byte) []byte {
	dst = append(append(dst, "\r\n--"...), m.boundary[:]...)
	return append(dst, partEnd...)
}

// SnapshotSize returns the length of the first part, head and bytes.
func (m *Multipart) SnapshotSize(s *Snapshot) int64 {
	var buf [512]byte
	n := int64(len(m.AppendSnapshot(buf[:0], s)))
	if s.Set {
		n += s.Size
	}
	return n
}

// MessageSize returns the length of a message's part, head and bytes.
func (m *Multipart) MessageSize(contentType string, size int64) int64 {
	const fixed = len("\r\n--") + 2*randomBytes + len(partType) + len(partLength) + len(crlf+crlf)
	digits := 1
	for n := size; n >= 10; n /= 10 {
		digits++
	}
	return int64(fixed+len(contentType)+digits) + size
}

// EndSize returns the length of what AppendEnd appends.
func (m *Multipart) EndSize() int64 {
	return int64(len("\r\n--") + 2*randomBytes + len(partEnd))
}

// appendPart appends what follows the boundary of a delimiter, up to the line end of
// Content-Length.
func appendPart(dst []byte, contentType string, size int64) []byte {
	dst = append(append(dst, partType...), contentType...)
	return append(strconv.AppendInt(append(dst, partLength...), size, 10), crlf...)
}

// noSnapshot says that a stream has no snapshot, where one has to be named.
const noSnapshot = "Stream-Snapshot-Offset: -1\r\n"

// BootstrapResult describes the answer to a GET of a bootstrap.
type BootstrapResult struct {
	Incarnation uint64
	ContentType string // of the stream
	Snapshot    Snapshot
	Next        uint64 // behind the last message of the answer
	UpToDate    bool   // Next is the tail
	Closed      bool   // the stream is closed and Next is its end
	Records     Records
}

// Bootstrap renders the head of a bootstrap whose body m writes; its status is 200.
func (r *Renderer) Bootstrap(dst []byte, m *Multipart, res *BootstrapResult) (fields []byte) {
	at := len(dst)
	dst = append(append(dst, r.static...), noStore...)
	dst = append(append(dst, "Content-Type: multipart/mixed; boundary="...), m.boundary[:]...)
	dst = appendNumber(append(dst, crlf...), "Stream-Incarnation", res.Incarnation)
	dst = appendBootstrapSnapshot(dst, &res.Snapshot)
	dst = appendOffsetField(dst, "Stream-Next-Offset", res.Next)
	if res.UpToDate || res.Closed {
		dst = append(dst, "Stream-Up-To-Date: true\r\n"...)
	}
	return appendRecords(appendClosedField(dst, res.Closed), res.ContentType, &res.Records)[at:]
}

// appendBootstrapSnapshot appends the lines that name the snapshot, or say that there
// is none.
func appendBootstrapSnapshot(dst []byte, s *Snapshot) []byte {
	if !s.Set {
		return append(dst, noSnapshot...)
	}
	return appendSnapshotFields(dst, s)
}
