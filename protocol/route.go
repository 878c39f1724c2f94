package protocol

import "bytes"

// The two prefixes of api §1. They and the other route words are compared with the
// raw path: an encoded route word is not one.
const (
	prefixV1 = "/v1/stream/"
	prefixDS = "/ds/"

	wordList      = "streams"
	wordSnapshot  = "snapshot"
	wordRetention = "retention"
	wordBootstrap = "bootstrap"
	wordAttrs     = "attrs"
	wordBatch     = "append-batch"
)

// resource is what a path names: a stream, or one of the things around it.
type resource uint8

const (
	resourceStream resource = iota + 1
	resourceBucket
	resourceList
	resourceSnapshot
	resourceRetention
	resourceBootstrap
	resourceAttrs
	resourceBatch
	resourceDocument
)

// method is a request method that some resource takes.
type method uint8

const (
	methodNone method = iota
	methodGet
	methodHead
	methodPut
	methodPost
	methodDelete
	methodOptions
)

func methodOf(b []byte) method {
	switch string(b) {
	case "POST":
		return methodPost
	case "GET":
		return methodGet
	case "PUT":
		return methodPut
	case "HEAD":
		return methodHead
	case "DELETE":
		return methodDelete
	case "OPTIONS":
		return methodOptions
	}
	return methodNone
}

// kinds says what each method does to a resource; zero is nothing. A HEAD of
// anything but a stream is its GET without the body.
var kinds = [...][methodOptions]Kind{
	resourceStream:    {methodGet: KindRead, methodHead: KindHead, methodPut: KindCreate, methodPost: KindAppend, methodDelete: KindDelete},
	resourceBucket:    {methodGet: KindBucketGet, methodHead: KindBucketGet, methodPut: KindBucketCreate, methodDelete: KindBucketDelete},
	resourceList:      {methodGet: KindList, methodHead: KindList},
	resourceSnapshot:  {methodGet: KindSnapshotGet, methodHead: KindSnapshotGet, methodPut: KindSnapshotPut, methodDelete: KindSnapshotDelete},
	resourceRetention: {methodPut: KindRetention},
	resourceBootstrap: {methodGet: KindBootstrap, methodHead: KindBootstrap},
	resourceAttrs:     {methodGet: KindAttrsGet, methodHead: KindAttrsGet, methodPut: KindAttrsPut},
	resourceBatch:     {methodPost: KindAppendBatch},
	resourceDocument:  {methodGet: KindDocument, methodHead: KindDocument},
}

// allows lists the methods of each resource, for Allow.
var allows = [...]string{
	resourceStream:    allowedMethods,
	resourceBucket:    "GET, HEAD, PUT, DELETE, OPTIONS",
	resourceList:      "GET, HEAD, OPTIONS",
	resourceSnapshot:  "GET, HEAD, PUT, DELETE, OPTIONS",
	resourceRetention: "PUT, OPTIONS",
	resourceBootstrap: "GET, HEAD, OPTIONS",
	resourceAttrs:     "GET, HEAD, PUT, OPTIONS",
	resourceBatch:     "POST, OPTIONS",
	resourceDocument:  "GET, HEAD, OPTIONS",
}

// route is a path taken apart, with its segments still percent-encoded.
type route struct {
	surface   Surface
	resource  resource
	bucket    []byte // nil on /v1, where stream is the whole path
	stream    []byte
	target    []byte // the segment behind snapshot or retention
	hasTarget bool
}

var noRoute = pathFault{codeUnknownRoute, "No resource of this server has such a path; streams are at /v1/stream/{path} and /ds/{bucket}/{stream}."}

// parse takes a raw path apart; r is empty.
func (r *route) parse(path []byte) (bad pathFault) {
	if rest, ok := bytes.CutPrefix(path, []byte(prefixV1)); ok {
		r.surface, r.resource, r.stream = SurfaceV1, resourceStream, rest
		return pathFault{}
	}
	rest, more := bytes.CutPrefix(path, []byte(prefixDS))
	if !more {
		if string(path) != documentPath {
			return noRoute
		}
		r.resource = resourceDocument
		return pathFault{}
	}
	r.surface = SurfaceDS
	if r.bucket, rest, more = bytes.Cut(rest, []byte{'/'}); !more {
		r.resource = resourceBucket
		return pathFault{}
	}
	r.stream, rest, more = bytes.Cut(rest, []byte{'/'})
	list := string(r.stream) == wordList
	switch {
	case list && more:
		return noRoute
	case list:
		r.resource, r.stream = resourceList, nil
	case !more:
		r.resource = resourceStream
	default:
		return r.below(rest)
	}
	return pathFault{}
}

// below finds what lies at rest below a stream.
func (r *route) below(rest []byte) pathFault {
	word, target, more := bytes.Cut(rest, []byte{'/'})
	switch string(word) {
	case wordSnapshot:
		r.resource = resourceSnapshot
	case wordRetention:
		r.resource = resourceRetention
	case wordBootstrap:
		r.resource = resourceBootstrap
	case wordAttrs:
		r.resource = resourceAttrs
	case wordBatch:
		r.resource = resourceBatch
	default:
		return noRoute
	}
	if !more {
		return pathFault{}
	}
	if r.resource != resourceSnapshot && r.resource != resourceRetention || bytes.IndexByte(target, '/') >= 0 {
		return noRoute
	}
	if r.target, r.hasTarget = target, true; len(target) == 0 {
		return badPath("A segment of the path is empty.")
	}
	return pathFault{}
}

// kind returns what m, which is not OPTIONS, does here; 0 when this is not a method
// of the resource.
func (r *route) kind(m method) Kind { return kinds[r.resource][m] }
