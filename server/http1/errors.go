package http1

// Error is a request that cannot be accepted as it is framed. The connection
// must be closed after the answer.
type Error struct {
	Status int    // of the answer
	Code   string // stable and for programs
	Detail string // a sentence for people
}

func (e *Error) Error() string { return "http1: " + e.Detail }

// Codes of errors.
const (
	CodeMalformed     = "malformed_request"
	CodeTargetTooLong = "target_too_long"
	CodeHeadTooLarge  = "head_too_large"
	CodeVersion       = "http_version_not_supported"
	CodeCoding        = "transfer_coding_not_supported"
	CodeExpectation   = "expectation_failed"
	CodeBodyTooLarge  = "body_too_large"
)

func malformed(detail string) *Error { return &Error{400, CodeMalformed, detail} }

var (
	errMethod           = malformed("The request line does not begin with a method and one space.")
	errTarget           = malformed("The request target is empty, is not of an accepted form, or has a byte that must be percent-encoded.")
	errVersionLine      = malformed("The request line does not end in an HTTP version.")
	errLineEnd          = malformed("A line of the head ends in a bare LF, or in something else than CR LF.")
	errBareCR           = malformed("The head has a CR that no LF follows.")
	errFold             = malformed("A field line begins with white space: folded lines are not accepted.")
	errFieldName        = malformed("A field name is empty, has an illegal character, or is followed by white space.")
	errFieldValue       = malformed("A field value has a control character.")
	errHost             = malformed("There must be exactly one valid Host field.")
	errContentLength    = malformed("There must be at most one Content-Length, of decimal digits only.")
	errTransferEncoding = malformed("Transfer-Encoding must occur at most once, not empty, and not in HTTP/1.0.")
	errLengthAndChunked = malformed("Content-Length and Transfer-Encoding exclude each other.")
	errChunk            = malformed("The chunked body has a malformed chunk size, extension or end of chunk.")
	errTrailer          = malformed("The chunked body has a malformed trailer.")

	errTargetTooLong    = &Error{414, CodeTargetTooLong, "The request target is too long."}
	errHeadTooLarge     = &Error{431, CodeHeadTooLarge, "The head of the request is too large."}
	errTooManyFields    = &Error{431, CodeHeadTooLarge, "The request has too many field lines."}
	errTrailersTooLarge = &Error{431, CodeHeadTooLarge, "The trailers of the chunked body are too large."}
	errVersion          = &Error{505, CodeVersion, "Only HTTP/1.1 and HTTP/1.0 are spoken here."}
	errCoding           = &Error{501, CodeCoding, "The only transfer coding accepted is chunked."}
	errExpect           = &Error{417, CodeExpectation, "The only expectation that can be met is 100-continue."}
	errBodyTooLarge     = &Error{413, CodeBodyTooLarge, "The body is larger than this resource takes."}
)
