package http1

import "strconv"

// Lines that a response or its body may contain.
const (
	Continue  = "HTTP/1.1 100 Continue\r\n\r\n" // interim response
	LastChunk = "0\r\n\r\n"                     // end of a chunked body
	CRLF      = "\r\n"
)

var reasons = map[int]string{
	200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 206: "Partial Content",
	301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect",
	400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
	408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large",
	414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed", 422: "Unprocessable Content",
	423: "Locked", 425: "Too Early", 428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
	500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
	505: "HTTP Version Not Supported", 507: "Insufficient Storage",
}

const minStatus, maxStatus = 100, 599

// statusLines holds the finished lines of HTTP/1.0 and HTTP/1.1, by status.
var statusLines = func() (t [2][maxStatus - minStatus + 1]string) {
	for minor := range t {
		for i := range t[minor] {
			code := minStatus + i
			t[minor][i] = "HTTP/1." + strconv.Itoa(minor) + " " + strconv.Itoa(code) + " " + reasons[code] + CRLF
		}
	}
	return t
}()

// AppendStatus appends the status line of HTTP/1.minor. A code outside [100, 599] becomes 500.
func AppendStatus(dst []byte, code int, minor uint8) []byte {
	if code < minStatus || code > maxStatus {
		code = 500
	}
	return append(dst, statusLines[min(minor, 1)][code-minStatus]...)
}

// AppendField appends a field line. Neither string is checked.
func AppendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, CRLF...)
}

// AppendInt appends a field line with a decimal value.
func AppendInt(dst []byte, name string, value int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = strconv.AppendInt(dst, value, 10)
	return append(dst, CRLF...)
}

// AppendChunkSize appends the line before n bytes of chunk data, n > 0, which CRLF must follow.
func AppendChunkSize(dst []byte, n int) []byte {
	dst = strconv.AppendUint(dst, uint64(n), 16)
	return append(dst, CRLF...)
}

// AppendChunk appends data as one chunk, or nothing if it is empty, since an empty chunk ends the body.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkSize(dst, len(data))
	dst = append(dst, data...)
	return append(dst, CRLF...)
}
