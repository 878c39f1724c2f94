package mirror

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is a state with all fields in use.
func golden() State {
	return State{
		Node: [16]byte{1, 2, 3, 15: 16}, Epoch: 3, Writer: [16]byte{0xa, 15: 0xb}, Sequence: 70_000,
		History: 2, Shards: 3, Seed: 0x0123456789abcdef, Created: 1_700_000_000_000, Written: 1_700_000_100_000,
		Objects: 5000,
		Shard: []Shard{
			{
				Segments: []manifest.Segment{
					{ID: 1, Size: 1 << 20, Kind: 1, Run: 900, MinStream: 3, MaxStream: 900, Object: 7},
					{ID: 9, Size: 1 << 33, Kind: 2, Level: 3, Run: 1000, MinStream: 6, MaxStream: 1 << 60, Object: 4999, DeadSince: 1_700_000_000_000, Evicted: true},
				},
				Low: manifest.Position{LSN: 1000, Batch: 90}, NextSegment: 64, NextStream: 4096,
				ExposedBytes: 1 << 40, ExposedStreams: 12,
			},
			{},
			{Low: manifest.Position{LSN: 1, Batch: 1}, NextSegment: 10, Segments: []manifest.Segment{{ID: 2, Object: 8}}},
		},
		Dead: []Dead{
			{Key: tiering.SegmentKey(0, 4, 12), Since: 1_700_000_000_000},
			{Key: tiering.SegmentKey(2, 4, 11), Since: 1_700_000_000_000},
			{Key: tiering.BlobKey([32]byte{9}, 10), Since: 1_700_000_000_000},
			{Key: tiering.BlobKey([32]byte{8}, 13), Since: 1_700_000_050_000},
			{Key: tiering.BlobKey([32]byte{8}, 14), Since: 1_700_000_050_000},
			{Key: tiering.SegmentKey(1, 1, 15), Since: 1_700_000_099_999},
		},
	}
}

// inVersion returns a mirror as a program of another format version would mark it.
func inVersion(b []byte, version uint32) []byte {
	b = bytes.Clone(b)
	putHeader(b, version)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestGolden(t *testing.T) {
	s := golden()
	for name, want := range map[string][]byte{
		"mirror-v1": Encode(&s),
		"mirror-v2": inVersion(Encode(&s), 2),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(path, want, 0o644))
		}
		got, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what is written now", path)
		}
	}
	b, err := os.ReadFile("testdata/mirror-v1")
	must(t, err)
	if got, err := Decode("m", b); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("the golden mirror says %+v, %v", got, err)
	}
	must(t, s.check())
}

func TestFutureVersion(t *testing.T) {
	b, err := os.ReadFile("testdata/mirror-v2")
	must(t, err)
	_, err = Decode("m", b)
	var version *base.VersionError
	if !errors.As(err, &version) || *version != (base.VersionError{Path: "m", Version: 2, Newest: 1}) {
		t.Errorf("%v", err)
	}
}

// Equal states have equal bytes, whatever the order in which they are told, and telling
// them does not change them.
func TestEncodingIsDeterministic(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	s := golden()
	want := Encode(&s)
	for range 50 {
		rng.Shuffle(len(s.Dead), func(i, j int) { s.Dead[i], s.Dead[j] = s.Dead[j], s.Dead[i] })
		g := s.Shard[0].Segments
		rng.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
		dead, segments := slices.Clone(s.Dead), slices.Clone(g)
		if !bytes.Equal(Encode(&s), want) {
			t.Fatalf("seed %d: other bytes", seed)
		}
		if !slices.Equal(dead, s.Dead) || !slices.Equal(segments, g) {
			t.Fatalf("seed %d: the state was changed", seed)
		}
	}
}

// Every byte counts.
func TestDamage(t *testing.T) {
	s := golden()
	good := Encode(&s)
	refused := func(what string, at int, b []byte) {
		t.Helper()
		var c *base.CorruptionError
		if _, err := Decode("m", b); !errors.As(err, &c) || c.Path != "m" {
			t.Errorf("%s at %d: %v", what, at, err)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1
		refused("flipped", i, b)
		refused("cut", i, good[:i])
	}
	refused("longer", len(good), append(bytes.Clone(good), 0))
}

// What no Encode writes is refused, though its checksums are right.
func TestImpossiblePayloads(t *testing.T) {
	for name, change := range map[string]func(*State){
		"no epoch":           func(s *State) { s.Epoch = 0 },
		"no history":         func(s *State) { s.History = 0 },
		"history too large":  func(s *State) { s.History = maxHistory + 1 },
		"no shards":          func(s *State) { s.Shard = nil },
		"too many shards":    func(s *State) { s.Shard = make([]Shard, maxShards+1) },
		"no objects":         func(s *State) { s.Objects = 0 },
		"no segment number":  func(s *State) { s.Shard[0].Segments[0].ID = 0 },
		"segment twice":      func(s *State) { s.Shard[0].Segments[0].ID = 9 },
		"number not given":   func(s *State) { s.Shard[0].NextSegment = 9 },
		"no object":          func(s *State) { s.Shard[0].Segments[0].Object = 0 },
		"streams upside":     func(s *State) { s.Shard[0].Segments[0].MinStream = 1000 },
		"negative size":      func(s *State) { s.Shard[0].Segments[0].Size = -1 },
		"negative exposure":  func(s *State) { s.Shard[1].ExposedBytes = -1 },
		"dead twice":         func(s *State) { s.Dead = append(s.Dead, s.Dead[0]) },
		"dead in shard 64":   func(s *State) { s.Dead[0].Key = tiering.SegmentKey(maxShards, 1, 1) },
		"negative exposed n": func(s *State) { s.Shard[1].ExposedStreams = -1 },
	} {
		s := golden()
		change(&s)
		var c *base.CorruptionError
		if got, err := Decode("m", Encode(&s)); !errors.As(err, &c) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What the mirror may not say is refused before it is written.
func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*State){
		"shards missing":      func(s *State) { s.Shard = s.Shard[:2] },
		"no epoch":            func(s *State) { s.Epoch = 0 },
		"no objects":          func(s *State) { s.Objects = 0 },
		"object not reserved": func(s *State) { s.Objects = 4999 },
		"number not reserved": func(s *State) { s.Shard[0].NextSegment = 9 },
		"segment twice":       func(s *State) { s.Shard[0].Segments[0].ID = 9 },
		"no object":           func(s *State) { s.Shard[0].Segments[0].Object = 0 },
		"negative size":       func(s *State) { s.Shard[0].Segments[0].Size = -1 },
		"negative exposure":   func(s *State) { s.Shard[1].ExposedStreams = -1 },
		"dead and alive":      func(s *State) { s.Dead[0].Key = tiering.SegmentKey(2, 2, 8) },
		"dead twice":          func(s *State) { s.Dead[0].Key = s.Dead[1].Key },
		"not ours":            func(s *State) { s.Dead[0].Key = "mirror" },
		"too many dead":       func(s *State) { s.Dead = make([]Dead, maxDead+1) },
		"too many segments":   func(s *State) { s.Shard[1].Segments = make([]manifest.Segment, maxSegments+1) },
	} {
		s := golden()
		change(&s)
		if err := s.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A million segments and a million dead objects, even if all of these are snapshots,
// are below 64 MiB. A tenth of each, with numbers as large as they then are, is measured.
func TestSize(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	const million, tenth = 1_000_000, 100_000
	s := golden()
	s.Objects = 10 * million
	s.Shard[0] = Shard{NextSegment: 2 * million}
	for i := range tenth {
		s.Shard[0].Segments = append(s.Shard[0].Segments, manifest.Segment{
			ID: base.SegmentID(million + 10*i), Size: 32<<20 + rng.Int64N(32<<20), Kind: 1, Level: 2, Run: rng.Uint64N(1 << 33),
			MinStream: base.StreamID(rng.Uint64N(1 << 33)), MaxStream: 1 << 34, Object: uint64(rng.Uint64N(10 * million)),
		})
	}
	s.Dead = nil
	for i := range tenth {
		var digest [32]byte
		for j := range digest {
			digest[j] = byte(rng.Uint32())
		}
		since := s.Written - base.Millis(i%1000*86_400)
		s.Dead = append(s.Dead, Dead{Key: tiering.BlobKey(digest, rng.Uint64N(10*million)+1), Since: since})
	}
	if n := len(Encode(&s)); n > 64<<20/10 {
		t.Errorf("seed %d: %d bytes", seed, n)
	}
}

func TestForeignKeyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a key that is no name was encoded")
		}
	}()
	Encode(&State{Dead: []Dead{{Key: "mirror"}}})
}

// What is accepted encodes to the very same bytes.
func FuzzDecode(f *testing.F) {
	s := golden()
	f.Add(Encode(&s)[headerBytes:])
	f.Add(Encode(&State{Epoch: 1, History: 1, Objects: 1, Shard: make([]Shard, 1)})[headerBytes:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		b := append(make([]byte, headerBytes), payload...)
		if _, err := Decode("m", b); err == nil {
			t.Fatal("a header of zeros was accepted")
		}
		putHeader(b, formatVersion)
		s, err := Decode("m", b)
		if err != nil {
			var c *base.CorruptionError
			if !errors.As(err, &c) {
				t.Fatal(err)
			}
			return
		}
		if again := Encode(&s); !bytes.Equal(again, b) {
			t.Fatalf("% x decodes to what encodes as % x", b, again)
		}
	})
}
