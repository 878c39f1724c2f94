package protocol

// documentPath is where the API describes itself, in OpenAPI.
const documentPath = "/openapi.json"

// Document renders the head of the answer to a GET of the API's description: 200, or
// 304. tag is the description's entity tag, quotes included. Only with 200 does it
// follow as the body.
func (r *Renderer) Document(dst []byte, op *Operation, tag string) (status int, fields []byte) {
	at := len(dst)
	dst = append(append(dst, r.static...), r.cacheable...)
	dst = append(append(append(dst, "ETag: "...), tag...), crlf...)
	if MatchNone(op.IfNoneMatch, []byte(tag)) {
		return 304, dst[at:]
	}
	return 200, appendContentType(dst, "application/json")[at:]
}
