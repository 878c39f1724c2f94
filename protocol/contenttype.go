package protocol

// DefaultContentType is what a PUT without Content-Type makes.
const DefaultContentType = "application/octet-stream"

// NormalizeContentType returns a content type as it is stored and sent: type and
// subtype in lower case, parameters as given. It reports false for what is not a
// media type.
func NormalizeContentType(b []byte) (string, bool) { return "", false }

// SameType reports whether two content types name the same type and subtype;
// parameters and case do not matter.
func SameType[A, B ~string | ~[]byte](a A, b B) bool { return false }

// IsJSON reports whether streams of that content type are in JSON mode.
func IsJSON[T ~string | ~[]byte](contentType T) bool { return false }
