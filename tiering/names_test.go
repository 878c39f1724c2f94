package tiering

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

var digest = [32]byte{0x00, 0x01, 0xab, 31: 0xff}

const digestHex = "0001ab00000000000000000000000000000000000000000000000000000000ff"

// goodKeys are keys with what they say.
var goodKeys = map[string]Name{
	"segments/00/0000000001.000000000001":                           {Kind: KindSegment, Segment: 1, Object: 1},
	"segments/07/0000000042.000000001234":                           {Kind: KindSegment, Shard: 7, Segment: 42, Object: 1234},
	"segments/123/12345678901.1234567890123":                        {Kind: KindSegment, Shard: 123, Segment: 12345678901, Object: 1234567890123},
	"segments/2147483647/18446744073709551615.18446744073709551615": {Kind: KindSegment, Shard: math.MaxInt32, Segment: math.MaxUint64, Object: math.MaxUint64},
	"blobs/" + digestHex + ".000000000001":                          {Kind: KindBlob, Digest: digest, Object: 1},
	"blobs/" + strings.Repeat("ff", 32) + ".18446744073709551615":   {Kind: KindBlob, Digest: [32]byte(slices.Repeat([]byte{255}, 32)), Object: math.MaxUint64},
}

// badKeys are no keys of ours.
var badKeys = []string{
	"", "mirror", "segments/", "blobs/", "segments/00", "segments/00/", "segments/00/.", "check/abc-a",
	"segments/00/0000000000.000000000001",   // segment 0
	"segments/00/0000000001.000000000000",   // object 0
	"segments/0/0000000001.000000000001",    // too few digits
	"segments/000/0000000001.000000000001",  // too many
	"segments/00/00000000001.000000000001",  //
	"segments/00/0000000001.00000000001",    //
	"segments/00/0000000001.0000000000001",  //
	"segments/00/+000000001.000000000001",   // another spelling
	"segments/00/-000000001.000000000001",   //
	"segments/00/0x00000001.000000000001",   //
	"segments/00/0000000_01.000000000001",   //
	"segments/00/0000000001.000000000001\n", // more behind it
	"segments/00/0000000001.000000000001.tmp",
	"segments/00/0000000001.000000000001/x",
	"segments/00/0000000001",
	"segments//0000000001.000000000001",
	"segments/00/00/0000000001.000000000001",
	"/segments/00/0000000001.000000000001",
	"Segments/00/0000000001.000000000001",
	"segments/2147483648/0000000001.000000000001",           // more shards than an int32
	"segments/00/18446744073709551616.000000000001",         // more than 64 bits
	"segments/00/0000000001.18446744073709551616",           //
	"blobs/" + digestHex[1:] + ".000000000001",              // too short
	"blobs/0" + digestHex + ".000000000001",                 // too long
	"blobs/" + strings.ToUpper(digestHex) + ".000000000001", // another spelling
	"blobs/" + strings.Repeat("g", 64) + ".000000000001",    // no hex
	"blobs/" + digestHex + ".000000000000",                  // object 0
	"blobs/" + digestHex,                                    //
	"blobs/00/" + digestHex + ".000000000001",               //
}

func TestKeys(t *testing.T) {
	for key, want := range goodKeys {
		if got := want.Key(); got != key {
			t.Errorf("the key of %+v is %q, not %q", want, got, key)
		}
		if got, ok := ParseKey(key); !ok || got != want {
			t.Errorf("%q is %+v, %v, not %+v", key, got, ok, want)
		}
	}
	for _, key := range badKeys {
		if got, ok := ParseKey(key); ok {
			t.Errorf("%q is %+v", key, got)
		}
	}
}

// TestKeyOrder sees to it that listings are in the order of the numbers.
func TestKeyOrder(t *testing.T) {
	var keys []string
	for _, shard := range []int{0, 1, 9, 10, 99} {
		for _, segment := range []base.SegmentID{1, 9, 10, 4_294_967_295, 9_999_999_999} {
			for _, object := range []uint64{1, 99, 100, 999_999_999_999} {
				keys = append(keys, SegmentKey(shard, segment, object))
			}
		}
	}
	if !slices.IsSorted(keys) {
		t.Error("the keys aren't in the order of their numbers")
	}
}

// FuzzParseKey holds the parser to accepting nothing but what the makers make.
func FuzzParseKey(f *testing.F) {
	for key := range goodKeys {
		f.Add(key)
	}
	for _, key := range badKeys {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		n, ok := ParseKey(key)
		if !ok {
			return
		}
		if n.Object == 0 || n.Kind == KindSegment && n.Segment == 0 {
			t.Errorf("%q has a number 0", key)
		}
		made := SegmentKey(n.Shard, n.Segment, n.Object)
		if n.Kind == KindBlob {
			made = BlobKey(n.Digest, n.Object)
			if !strings.Contains(key, hex.EncodeToString(n.Digest[:])) {
				t.Errorf("%q has another digest than %x", key, n.Digest)
			}
		}
		if made != key {
			t.Errorf("%q is accepted, but made as %q", key, made)
		}
	})
}
