package protocol

import (
	"bytes"
	"unicode/utf8"
)

// DefaultBucket is where /v1/stream/{name} without a slash lies.
const DefaultBucket = "_default"

const (
	maxPath  = 1024 // bytes of bucket and stream together, as /v1 spells them
	maxNewID = 122  // bytes of a stream id created on /ds, alone and with its bucket
)

// pathFault is what is wrong with a path; its zero value is nothing.
type pathFault struct{ code, detail string }

var badEscape = badPath("The path has a percent sign without two hexadecimal digits.")

func badPath(detail string) pathFault { return pathFault{codeBadPath, detail} }

// isRawPath reports whether b could be the path of a request: a query, a fragment or
// a byte that has to be encoded is not part of one.
func isRawPath(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' {
			return false
		}
	}
	return true
}

// identity decodes and checks the names in r. What has to be decoded goes to
// scratch, which it returns. A path of a bucket has no stream.
func identity(r *route, scratch []byte) (bucket, stream, grown []byte, bad pathFault) {
	if r.surface == SurfaceV1 {
		return identityV1(r.stream, scratch)
	}
	bucket, scratch, ok := decodeSegment(r.bucket, scratch)
	if !ok {
		return nil, nil, scratch, badEscape
	}
	if bytes.IndexByte(bucket, '/') >= 0 {
		return nil, nil, scratch, badPath("A bucket id has no slash.")
	}
	if r.resource == resourceBucket || r.resource == resourceList {
		return bucket, nil, scratch, checkName(bucket, nil, true)
	}
	if stream, scratch, ok = decodeSegment(r.stream, scratch); !ok {
		return nil, nil, scratch, badEscape
	}
	return bucket, stream, scratch, checkName(bucket, stream, false)
}

// identityV1 is identity for what follows /v1/stream/ in a path.
func identityV1(raw, scratch []byte) (bucket, stream, grown []byte, bad pathFault) {
	whole, scratch, ok := decodeSegment(raw, scratch)
	if !ok {
		return nil, nil, scratch, badEscape
	}
	if bytes.Count(whole, []byte{'/'}) != bytes.Count(raw, []byte{'/'}) {
		// Segments are split before they are decoded. Taking such a slash for a
		// separator would give two streams one name.
		return nil, nil, scratch, badPath("A segment of the path has an encoded slash.")
	}
	bucket, stream, two := bytes.Cut(whole, []byte{'/'})
	if !two {
		bucket, stream = []byte(DefaultBucket), whole
	} else if string(bucket) == DefaultBucket {
		return nil, nil, scratch, badPath("Streams of the default bucket have a path of one segment.")
	}
	return bucket, stream, scratch, checkName(bucket, stream, false)
}

// decodeSegment percent-decodes b once, into scratch when it has to change.
func decodeSegment(b, scratch []byte) (decoded, grown []byte, ok bool) {
	if bytes.IndexByte(b, '%') < 0 {
		return b, scratch, true
	}
	at := len(scratch)
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '%' {
			var ok bool
			if c, ok = hexPair(b[i+1:]); !ok {
				return nil, scratch, false
			}
			i += 2
		}
		scratch = append(scratch, c)
	}
	return scratch[at:], scratch, true
}

// checkName holds every name to what /v1 can say, whichever surface it came from.
// With alone, the bucket is named and no stream.
func checkName(bucket, stream []byte, alone bool) pathFault {
	n, parts, count := len(stream), [2][]byte{bucket, stream}, 2
	if string(bucket) != DefaultBucket {
		n += len(bucket) + 1
	}
	if alone {
		count = 1
	}
	if n > maxPath {
		return badPath("The path of a stream has at most 1024 bytes.")
	}
	for _, part := range parts[:count] {
		if isPlain(part) {
			continue
		}
		if !utf8.Valid(part) {
			return badPath("The path is not UTF-8.")
		}
		if hasControl(part) {
			return badPath("The path has a control character.")
		}
		for more := true; more; {
			var segment []byte
			segment, part, more = bytes.Cut(part, []byte{'/'})
			switch string(segment) {
			case "", ".", "..":
				return badPath("A segment of the path is empty, a dot or two dots.")
			}
		}
	}
	if first := bucket; string(first) == "__ds" || string(first) == DefaultBucket && string(stream) == "__ds" {
		return pathFault{codeUnknownRoute, "Paths below __ds are reserved."}
	}
	return pathFault{}
}

// isPlain reports that b is one segment in which nothing can be wrong: the usual name,
// which one look at each byte is enough for.
func isPlain(b []byte) bool {
	dots := 0
	for _, c := range b {
		switch {
		case c <= ' ' || c >= 0x7f || c == '/':
			return false
		case c == '.':
			dots++
		}
	}
	return dots < len(b)
}

// IsBucketID reports whether a first path segment on /v1 names a bucket that /ds can
// show, by its rules for ids.
func IsBucketID(bucket []byte) bool { return checkNewBucket(bucket) == (pathFault{}) }

// checkNewBucket holds a bucket that is made, or in which a stream is made, through
// /ds to the rules for ids there.
func checkNewBucket(bucket []byte) pathFault {
	if len(bucket) < 4 || len(bucket) > 64 || bytes.HasPrefix(bucket, []byte("__")) {
		return badPath("A bucket id has 4 to 64 characters and does not begin with two underscores.")
	}
	for _, c := range bucket {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return badPath("A bucket id has only the characters a-z, 0-9, underscore and hyphen.")
		}
	}
	return pathFault{}
}

// checkNewStream is the same for a stream that is made through /ds.
func checkNewStream(bucket, stream []byte) pathFault {
	switch {
	case bytes.IndexByte(stream, '/') >= 0:
		return badPath("A stream id that is created here has no slash.")
	case string(stream) == wordList || stream[0] == '$':
		return badPath("This stream id is reserved.")
	case len(bucket)+1+len(stream) > maxNewID:
		return badPath("A stream id that is created here has, with its bucket, at most 122 bytes.")
	}
	return checkNewBucket(bucket)
}

// hasControl reports whether valid UTF-8 holds a control character.
func hasControl(b []byte) bool {
	for i, c := range b {
		if c < ' ' || c == 0x7f || c == 0xc2 && b[i+1] < 0xa0 {
			return true
		}
	}
	return false
}

// AppendPath appends the path that names a stream on a surface, percent-encoded so
// that Parse finds the same stream.
func AppendPath(dst []byte, s Surface, bucket, stream []byte) []byte {
	if s == SurfaceV1 {
		dst = append(dst, prefixV1...)
		if string(bucket) != DefaultBucket {
			dst = append(appendEscaped(dst, bucket, false), '/')
		}
		return appendEscaped(dst, stream, true)
	}
	dst = append(appendBucketPath(dst, bucket), '/')
	if string(stream) == wordList {
		return append(dst, "%73treams"...) // plain, it would be the list of them
	}
	return appendEscaped(dst, stream, false)
}

// appendBucketPath appends the path that names a bucket.
func appendBucketPath(dst, bucket []byte) []byte {
	return appendEscaped(append(dst, prefixDS...), bucket, false)
}

// appendEscaped appends b as (part of) a path: what RFC 3986 calls pchar stays as it
// is, and so does a slash when it separates.
func appendEscaped(dst, b []byte, slash bool) []byte {
	for _, c := range b {
		if isPchar(c) || slash && c == '/' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

const upperHex = "0123456789ABCDEF"

func isPchar(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '-', '.', '_', '~', '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=', ':', '@':
		return true
	}
	return false
}
