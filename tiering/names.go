package tiering

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/snakream/snakream/internal/base"
)

// The names of our objects, below the prefix of the store. Numbers are decimal, filled
// up with zeros to a width that keeps listings in numeric order for as long as anybody
// will look at them; a larger number simply has more digits.
//
//	mirror                              the mirror of all shards' manifests
//	segments/SS/NNNNNNNNNN.OOOOOOOOOOOO a segment: shard, segment number, object number
//	blobs/DDDD…DDDD.OOOOOOOOOOOO        a blob: SHA-256 in hex, object number
//	check/…                             what Check leaves behind when it is killed
const (
	// MirrorKey is the one object that changes.
	MirrorKey = "mirror"
	// SegmentPrefix begins the keys of all segments.
	SegmentPrefix = "segments/"
	// BlobPrefix begins the keys of all blobs.
	BlobPrefix = "blobs/"
	// CheckPrefix begins the keys that Check uses.
	CheckPrefix = "check/"
)

// Kind says what an object is.
type Kind uint8

// The kinds of objects whose keys have numbers. Zero is none.
const (
	KindSegment Kind = iota + 1
	KindBlob
)

// Name is what a key says about its object. Shard and Segment are of a segment, Digest
// is of a blob.
type Name struct {
	Kind    Kind
	Shard   int            // 0 or more
	Segment base.SegmentID // not 0
	Digest  [32]byte       // SHA-256
	Object  uint64         // not 0; never used twice under one prefix
}

// Key returns the object's key.
func (n Name) Key() string {
	if n.Kind == KindBlob {
		return BlobKey(n.Digest, n.Object)
	}
	return SegmentKey(n.Shard, n.Segment, n.Object)
}

// SegmentKey is the key of a segment's copy. Neither number may be 0.
func SegmentKey(shard int, seg base.SegmentID, object uint64) string {
	return fmt.Sprintf("%s%02d/%010d.%012d", SegmentPrefix, shard, uint64(seg), object)
}

// BlobKey is the key of the copy of the blob with that SHA-256. The object number may
// not be 0.
func BlobKey(digest [32]byte, object uint64) string {
	return fmt.Sprintf("%s%x.%012d", BlobPrefix, digest[:], object)
}

// ParseKey is the inverse of SegmentKey and BlobKey. It accepts exactly what they make
// of numbers that are not 0.
func ParseKey(key string) (Name, bool) {
	rest, object, ok := strings.Cut(key, ".")
	if !ok {
		return Name{}, false
	}
	var n Name
	var err error
	if n.Object, err = strconv.ParseUint(object, 10, 64); err != nil || n.Object == 0 {
		return Name{}, false
	}
	if digest, ok := strings.CutPrefix(rest, BlobPrefix); ok {
		n.Kind = KindBlob
		if len(digest) != hex.EncodedLen(len(n.Digest)) {
			return Name{}, false
		}
		if _, err := hex.Decode(n.Digest[:], []byte(digest)); err != nil {
			return Name{}, false
		}
	} else if rest, ok := strings.CutPrefix(rest, SegmentPrefix); ok {
		n.Kind = KindSegment
		shard, segment, _ := strings.Cut(rest, "/")
		sh, errShard := strconv.ParseUint(shard, 10, 32)
		seg, errSegment := strconv.ParseUint(segment, 10, 64)
		if errShard != nil || errSegment != nil || sh > math.MaxInt32 || seg == 0 {
			return Name{}, false
		}
		n.Shard, n.Segment = int(sh), base.SegmentID(seg)
	}
	// A number has one spelling only: what reads the same but is spelt otherwise (fewer
	// or more zeros, capital hex) is not ours.
	if n.Kind == 0 || n.Key() != key {
		return Name{}, false
	}
	return n, true
}
