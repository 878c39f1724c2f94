package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/tiering"
)

// The mirror is a header and a payload. Integers of fixed width are little endian.
// docs/format/mirror.md says the same for readers of the data.
//
//	0         8          12     16         24          32         40
//	┌─────────┬──────────┬──────┬──────────┬───────────┬──────────┬─────────┐
//	│ magic   │ version  │ 0    │ payload  │ xxhash64  │ xxhash64 │ payload │
//	│ 8 bytes │ u32      │ u32  │ bytes    │ of        │ of       │         │
//	│         │          │      │ u64      │ payload   │ [0, 32)  │         │
//	└─────────┴──────────┴──────┴──────────┴───────────┴──────────┴─────────┘
//
// The header is the same in every version. The payload, integers as uvarints unless
// said otherwise:
//
//	node 16 bytes │ epoch │ writer 16 bytes │ sequence │ history │ seed u64 │
//	created (varint, ms) │ written (varint, ms) │ objects │ n, n shards │ n, n groups of dead
//
// A shard, with its segments by ascending number, each as in a manifest:
//
//	low LSN │ low batch │ next segment │ next stream │ exposed bytes │ exposed streams │
//	n, n segments
//
// A group is all that died at one time. Groups are in the order of time, and what is in
// them in that of shard, segment and object, or digest and object:
//
//	since (varint, ms; after the first group, what it is later than the one before)
//	│ n, n × (shard │ segment │ object) │ n, n × (digest 32 bytes │ object)
const (
	magic         = "SNKRMIR\x00"
	formatVersion = 1
	headerBytes   = 40
	headerSumPos  = headerBytes - 8

	maxBytes    = 256 << 20 // of the whole object
	maxShards   = 64        // as in a data directory's identity
	maxHistory  = 4095      // as there
	maxSegments = 1 << 21   // of one shard, as in its manifest
	maxDead     = 1 << 22

	minSegmentBytes = 10 // of an encoded segment that has an object
	segmentBytes    = 40 // of a typical one
	minDeadBytes    = 3
	deadBytes       = 40
)

// Encode returns the bytes of a mirror that says s. Equal states, in whatever order
// their segments and dead objects are, have equal bytes. It panics when a dead object
// has a key that tiering does not make.
func Encode(s *State) []byte {
	size := headerBytes + 128 + deadBytes*len(s.Dead)
	for i := range s.Shard {
		size += 64 + segmentBytes*len(s.Shard[i].Segments)
	}
	b := make([]byte, headerBytes, size)
	b = append(b, s.Node[:]...)
	b = bin.AppendUvarint(b, s.Epoch)
	b = append(b, s.Writer[:]...)
	b = bin.AppendUvarint(b, s.Sequence)
	b = bin.AppendUvarint(b, uint64(s.History))
	b = bin.AppendU64(b, s.Seed)
	b = bin.AppendVarint(b, int64(s.Created))
	b = bin.AppendVarint(b, int64(s.Written))
	b = bin.AppendUvarint(b, s.Objects)
	b = bin.AppendUvarint(b, uint64(len(s.Shard)))
	for i := range s.Shard {
		b = appendShard(b, &s.Shard[i])
	}
	b = appendDead(b, s.Dead)
	putHeader(b, formatVersion)
	return b
}

// putHeader fills in the header in front of a payload.
func putHeader(b []byte, version uint32) {
	payload := b[headerBytes:]
	h := append(b[:0], magic...)
	h = bin.AppendU32(h, version)
	h = bin.AppendU32(h, 0)
	h = bin.AppendU64(h, uint64(len(payload)))
	h = bin.AppendU64(h, bin.Sum(payload))
	bin.AppendU64(h, bin.Sum(h))
}

func bySegment(a, b manifest.Segment) int { return cmp.Compare(a.ID, b.ID) }

func appendShard(dst []byte, s *Shard) []byte {
	dst = bin.AppendUvarint(dst, uint64(s.Low.LSN))
	dst = bin.AppendUvarint(dst, s.Low.Batch)
	dst = bin.AppendUvarint(dst, uint64(s.NextSegment))
	dst = bin.AppendUvarint(dst, s.NextStream)
	dst = bin.AppendUvarint(dst, uint64(s.ExposedBytes))
	dst = bin.AppendUvarint(dst, uint64(s.ExposedStreams))
	segments := s.Segments
	if !slices.IsSortedFunc(segments, bySegment) {
		segments = slices.SortedFunc(slices.Values(segments), bySegment)
	}
	dst = bin.AppendUvarint(dst, uint64(len(segments)))
	for i := range segments {
		dst = manifest.AppendSegment(dst, &segments[i])
	}
	return dst
}

// corpse is a dead object as it is written.
type corpse struct {
	tiering.Name
	since base.Millis
}

// byName puts segments before blobs.
func byName(a, b tiering.Name) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Shard, b.Shard),
		cmp.Compare(a.Segment, b.Segment),
		slices.Compare(a.Digest[:], b.Digest[:]),
		cmp.Compare(a.Object, b.Object),
	)
}

func byTime(a, b corpse) int {
	return cmp.Or(cmp.Compare(a.since, b.since), byName(a.Name, b.Name))
}

func appendDead(dst []byte, dead []Dead) []byte {
	all := make([]corpse, len(dead))
	groups := map[base.Millis]struct{}{}
	for i, d := range dead {
		name, ok := tiering.ParseKey(d.Key)
		if !ok {
			panic(fmt.Sprintf("mirror: dead object %q", d.Key))
		}
		all[i] = corpse{name, d.Since}
		groups[d.Since] = struct{}{}
	}
	slices.SortFunc(all, byTime)
	dst = bin.AppendUvarint(dst, uint64(len(groups)))
	var last base.Millis
	for len(all) > 0 {
		since := all[0].since
		n, segments := 0, 0
		for n < len(all) && all[n].since == since {
			if all[n].Kind == tiering.KindSegment {
				segments++
			}
			n++
		}
		dst = bin.AppendVarint(dst, int64(since-last))
		dst = appendGroup(dst, all[:segments], all[segments:n])
		all, last = all[n:], since
	}
	return dst
}

func appendGroup(dst []byte, segments, blobs []corpse) []byte {
	dst = bin.AppendUvarint(dst, uint64(len(segments)))
	for i := range segments {
		dst = bin.AppendUvarint(dst, uint64(segments[i].Shard))
		dst = bin.AppendUvarint(dst, uint64(segments[i].Segment))
		dst = bin.AppendUvarint(dst, segments[i].Object)
	}
	dst = bin.AppendUvarint(dst, uint64(len(blobs)))
	for i := range blobs {
		dst = append(dst, blobs[i].Digest[:]...)
		dst = bin.AppendUvarint(dst, blobs[i].Object)
	}
	return dst
}

// Decode is the inverse of Encode: it accepts no other bytes. Segments come by
// ascending number, dead objects by time. The errors are a base.CorruptionError, and a
// base.VersionError for a mirror of another format; name says in them where b is from.
func Decode(name string, b []byte) (State, error) {
	corrupt := func(at int64, detail string) error {
		return &base.CorruptionError{Path: name, Offset: at, Detail: detail}
	}
	if len(b) < headerBytes || string(b[:len(magic)]) != magic {
		return State{}, corrupt(0, "not a mirror")
	}
	d := bin.NewDecoder(b[headerSumPos:headerBytes])
	if d.U64() != bin.Sum(b[:headerSumPos]) {
		return State{}, corrupt(0, "checksum of the header differs")
	}
	d.Reset(b[len(magic):headerSumPos])
	if version := d.U32(); version != formatVersion {
		return State{}, &base.VersionError{Path: name, Version: version, Newest: formatVersion}
	}
	payload := b[headerBytes:]
	zero, size, sum := d.U32(), d.U64(), d.U64()
	switch {
	case zero != 0 || size != uint64(len(payload)) || size > maxBytes:
		return State{}, corrupt(0, fmt.Sprintf("of %d bytes, and there are %d", size, len(payload)))
	case sum != bin.Sum(payload):
		return State{}, corrupt(headerBytes, "checksum of the payload differs")
	}
	s, err := decodePayload(payload)
	if err != nil {
		return State{}, corrupt(headerBytes, err.Error())
	}
	return s, nil
}

// errOrder says that what Encode sorts is not sorted, or is there twice.
var errOrder = errors.New("out of order")

func decodePayload(p []byte) (State, error) {
	var s State
	d := bin.NewDecoder(p)
	copy(s.Node[:], d.Raw(len(s.Node)))
	s.Epoch = d.Uvarint()
	copy(s.Writer[:], d.Raw(len(s.Writer)))
	s.Sequence = d.Uvarint()
	history := d.Uvarint()
	s.Seed = d.U64()
	s.Created, s.Written = base.Millis(d.Varint()), base.Millis(d.Varint())
	s.Objects = d.Uvarint()
	s.Shards = d.Count(maxShards)
	switch {
	case d.Err() != nil:
		return State{}, d.Err()
	case s.Epoch == 0 || history == 0 || history > maxHistory || s.Objects == 0 || s.Shards == 0:
		return State{}, fmt.Errorf("epoch %d, history %d, %d shards, objects from %d on", s.Epoch, history, s.Shards, s.Objects)
	}
	s.History = uint16(history)
	s.Shard = make([]Shard, s.Shards)
	for i := range s.Shard {
		if err := decodeShard(d, &s.Shard[i]); err != nil {
			return State{}, fmt.Errorf("shard %d: %w", i, err)
		}
	}
	var err error
	if s.Dead, err = decodeDead(d); err != nil {
		return State{}, fmt.Errorf("dead objects: %w", err)
	}
	return s, d.End()
}

func decodeShard(d *bin.Decoder, s *Shard) error {
	s.Low = manifest.Position{LSN: base.LSN(d.Uvarint()), Batch: d.Uvarint()}
	s.NextSegment, s.NextStream = base.SegmentID(d.Uvarint()), d.Uvarint()
	s.ExposedBytes, s.ExposedStreams = int64(d.Uvarint()), int64(d.Uvarint())
	if s.ExposedBytes < 0 || s.ExposedStreams < 0 {
		return fmt.Errorf("%d bytes of %d streams exposed", s.ExposedBytes, s.ExposedStreams)
	}
	n := d.Count(maxSegments)
	s.Segments = slices.Grow(s.Segments, min(n, d.Len()/minSegmentBytes))
	var last base.SegmentID
	for range n {
		g, err := manifest.DecodeSegment(d)
		switch {
		case err != nil:
			return err
		case g.ID <= last || g.ID >= s.NextSegment:
			return fmt.Errorf("segment %d: %w", g.ID, errOrder)
		case g.Object == 0 || g.MinStream > g.MaxStream:
			return fmt.Errorf("segment %+v", g)
		}
		last = g.ID
		s.Segments = append(s.Segments, g)
	}
	return d.Err()
}

func decodeDead(d *bin.Decoder) ([]Dead, error) {
	var dead []Dead
	var since base.Millis
	for i := range d.Count(maxDead) {
		later := base.Millis(d.Varint())
		if i > 0 && (later <= 0 || since+later < since) {
			return nil, errOrder
		}
		since += later
		before := len(dead)
		var last tiering.Name
		for _, kind := range []tiering.Kind{tiering.KindSegment, tiering.KindBlob} {
			n := d.Count(maxDead)
			dead = slices.Grow(dead, min(n, d.Len()/minDeadBytes))
			for range n {
				name, err := decodeName(d, kind)
				switch {
				case err != nil:
					return nil, err
				case byName(name, last) <= 0:
					return nil, errOrder
				}
				last = name
				dead = append(dead, Dead{Key: name.Key(), Since: since})
			}
		}
		switch {
		case d.Err() != nil:
			return nil, d.Err()
		case len(dead) == before || len(dead) > maxDead:
			return nil, fmt.Errorf("a group of %d, %d in all", len(dead)-before, len(dead))
		}
	}
	return dead, d.Err()
}

func decodeName(d *bin.Decoder, kind tiering.Kind) (tiering.Name, error) {
	name := tiering.Name{Kind: kind}
	if kind == tiering.KindBlob {
		copy(name.Digest[:], d.Raw(len(name.Digest)))
	} else {
		shard := d.Uvarint()
		if shard >= maxShards {
			return name, fmt.Errorf("shard %d", shard)
		}
		name.Shard, name.Segment = int(shard), base.SegmentID(d.Uvarint())
	}
	name.Object = d.Uvarint()
	if d.Err() == nil && (name.Object == 0 || kind == tiering.KindSegment && name.Segment == 0) {
		return name, fmt.Errorf("%+v", name)
	}
	return name, d.Err()
}
