package protocol

import (
	"bytes"
	"strings"
)

const allowedMethods = "GET, HEAD, PUT, POST, DELETE, OPTIONS"

const allowField = "Allow: " + allowedMethods + "\r\n"

// exposed are the response headers that a script of another origin may read: all
// of api.md, since a header that is forgotten here is one that browsers don't have.
var exposed = []string{
	"Accept-Ranges", "Content-Range", "ETag", "Link", "Location", "Retry-After",
	"Producer-Closed-Epoch", "Producer-Closed-Seq", "Producer-Epoch", "Producer-Expected-Seq", "Producer-Received-Seq", "Producer-Seq",
	"Stream-Closed", "Stream-Cursor", "Stream-Data-Content-Type", "Stream-Earliest-Offset", "Stream-Expires-At", "Stream-Extensions",
	"Stream-Incarnation", "Stream-Inherited-Offset", "Stream-Last-Seq", "Stream-Next-Offset", "Stream-Offset", "Stream-Previous-Incarnation",
	"Stream-Record-First", "Stream-Record-Next", "Stream-Record-Start", "Stream-SSE-Data-Encoding", "Stream-SSE-Snapshot-Encoding",
	"Stream-Snapshot-Content-Type", "Stream-Snapshot-Digest", "Stream-Snapshot-Offset", "Stream-TTL", "Stream-Up-To-Date",
}

// requestable are the request headers that a preflight allows without being asked.
var requestable = []string{
	"Accept", "Authorization", "Content-Type", "If-Match", "If-None-Match", "If-Range", "Last-Event-ID", "Range",
	"Producer-Epoch", "Producer-Id", "Producer-Seq",
	"Stream-Attrs", "Stream-Closed", "Stream-Expires-At", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset", "Stream-Forked-From",
	"Stream-Incarnation", "Stream-Record-Match", "Stream-Seq", "Stream-Snapshot-Digest", "Stream-Snapshot-Retain", "Stream-TTL",
}

// preflightSeconds is how long a browser may keep the answer to a preflight: a day.
const preflightSeconds = "86400"

// exposedAppend are those of an append that succeeded, and exposedProducer the ones that
// it has with a producer. Naming only these keeps half off the commonest answer. No
// other answer can do so: a 304 would take the rest away from the answer that it confirms.
var (
	exposedAppend = []string{
		"ETag", "Stream-Closed", "Stream-Extensions", "Stream-Incarnation", "Stream-Next-Offset", "Stream-Offset",
		"Stream-Record-First", "Stream-Record-Next", "Stream-Record-Start",
	}
	exposedProducer = []string{"Producer-Closed-Epoch", "Producer-Closed-Seq", "Producer-Epoch", "Producer-Seq"}
)

// staticFields are the lines that every answer begins with, for those headers.
func staticFields(origin string, exposed ...string) []byte {
	var b bytes.Buffer
	b.WriteString("X-Content-Type-Options: nosniff\r\n")
	b.WriteString("Cross-Origin-Resource-Policy: cross-origin\r\n")
	b.WriteString("Access-Control-Allow-Origin: " + origin + "\r\n")
	b.WriteString("Access-Control-Expose-Headers: " + strings.Join(exposed, ", ") + "\r\n")
	return b.Bytes()
}

// preflightFields are the lines of the answer to a preflight, up to the list of
// request headers, which the request can make longer.
func preflightFields() []byte {
	var b bytes.Buffer
	b.WriteString(allowField)
	b.WriteString("Access-Control-Allow-Methods: " + allowedMethods + "\r\n")
	b.WriteString("Access-Control-Max-Age: " + preflightSeconds + "\r\n")
	b.WriteString("Vary: Access-Control-Request-Headers\r\n")
	b.WriteString("Access-Control-Allow-Headers: " + strings.Join(requestable, ", "))
	return b.Bytes()
}

// appendAsked appends the names in list, what a preflight asks for, that are not
// among the requestable ones, each after a comma. What is no name it leaves out.
func appendAsked(dst, list []byte) []byte {
	for len(list) > 0 {
		var name []byte
		name, list, _ = bytes.Cut(list, []byte{','})
		name = trim(name)
		if len(name) > 0 && token(name) == len(name) && !isRequestable(name) {
			dst = append(append(dst, ", "...), name...)
		}
	}
	return dst
}

func isRequestable(name []byte) bool {
	for _, r := range requestable {
		if bytes.EqualFold(name, []byte(r)) {
			return true
		}
	}
	return false
}
