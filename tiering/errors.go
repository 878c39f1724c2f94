package tiering

import "errors"

// The errors by which callers decide. Implementations wrap them with the operation,
// the key and the provider's reason, never with a secret.
var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("tiering: no such object")
	// ErrExists: the key holds another object than the one that was put.
	ErrExists = errors.New("tiering: the key holds another object")
	// ErrConflict: the object is not of the version that was to be replaced.
	ErrConflict = errors.New("tiering: the object has another version")
	// ErrShort: the object ends before the range that was asked for.
	ErrShort = errors.New("tiering: the object is too short")
	// ErrDenied: the credentials are missing, wrong or expired, or lack a permission.
	ErrDenied = errors.New("tiering: access denied")
	// ErrConfig: the bucket, region, endpoint, clock or an option is wrong; the text
	// says what to change.
	ErrConfig = errors.New("tiering: wrong configuration")
)

// Permanent reports whether err is of a kind that trying again doesn't cure: somebody
// has to change a setting, a permission or a clock first.
func Permanent(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrConfig)
}
