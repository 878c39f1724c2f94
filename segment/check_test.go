package segment

import (
	"bytes"
	"slices"
	"testing"

	"github.com/snakream/snakream/internal/base"
)

func checked(t *testing.T, data []byte, withData bool) (all []Damage) {
	t.Helper()
	s, err := Open(inMemory(data), "s.seg", testID)
	must(t, err)
	s.Check(withData, func(d Damage) { all = append(all, d) })
	return all
}

func TestCheckFindsEveryFlippedByte(t *testing.T) {
	data := written(t, small(), nil)
	if all := checked(t, data, true); len(all) > 0 {
		t.Fatalf("a sound segment: %+v", all)
	}
	for at := range data {
		flipped := bytes.Clone(data)
		flipped[at] ^= 1
		if _, err := Open(inMemory(flipped), "s.seg", testID); err != nil {
			continue
		}
		if all := checked(t, flipped, true); len(all) != 1 || !isCorruption(all[0].Err) || int64(at) < all[0].Pos || int64(at) >= all[0].Pos+all[0].Bytes {
			t.Fatalf("byte %d: %+v", at, all)
		}
	}
}

// Damage is told by what it takes from whom.
func TestCheckTellsWhoIsHurt(t *testing.T) {
	contents := []content{
		of(1, 500, 0, BlockBytes-100),
		of(2, 0, 0, 50, 50, 2*BlockBytes).with(row("key", "value", 1)),
		of(3, 0, 0, 10, 20),
	}
	data := written(t, contents, nil)
	s := opened(t, data)
	from, to := s.Evictable()
	for _, c := range []struct {
		name string
		at   int64
		want Damage
	}{
		{"first block", from + 10, Damage{Pos: from, Bytes: BlockBytes, Hurt: []Hurt{
			{Stream: 1, Start: 500, End: 500 + BlockBytes - 100}, {Stream: 2, End: 100}}}},
		{"second block", from + BlockBytes, Damage{Pos: from + BlockBytes, Bytes: BlockBytes, Hurt: []Hurt{
			{Stream: 2, Start: 100, End: 100 + BlockBytes}}}},
		{"boundaries", to - 1, Damage{Pos: from + 3*BlockBytes, Bytes: to - from - 3*BlockBytes, Hurt: []Hurt{
			{Stream: 2, End: 100 + 2*BlockBytes, Bounds: true}, {Stream: 3, Start: 0, End: 30}, {Stream: 3, End: 30, Bounds: true}}}},
		{"rows", to, Damage{Pos: to, Bytes: s.lay.rows, State: true}},
		{"table", s.lay.tablePos(), Damage{Pos: s.lay.tablePos(), Bytes: s.lay.tableBytes(), State: true}},
	} {
		flipped := bytes.Clone(data)
		flipped[c.at] ^= 1
		all := checked(t, flipped, true)
		if len(all) != 1 || all[0].Pos != c.want.Pos || all[0].Bytes != c.want.Bytes || all[0].State != c.want.State || !slices.Equal(all[0].Hurt, c.want.Hurt) {
			t.Errorf("%s: %+v\nwant %+v", c.name, all, c.want)
		}
		if n := len(checked(t, flipped, false)); n > 0 != c.want.State {
			t.Errorf("%s: without payload and boundaries %d findings", c.name, n)
		}
	}
}

// Boundaries that verify and contradict each other are found as well.
func TestCheckDecodesBoundaries(t *testing.T) {
	lengths := make([]int, 300)
	for i := range lengths {
		lengths[i] = 2
	}
	s := opened(t, written(t, []content{of(7, 0, 0, lengths...)}, nil))
	s.table[0].records-- // as if the footer were another one's
	var all []Damage
	s.Check(true, func(d Damage) { all = append(all, d) })
	if len(all) != 1 || len(all[0].Hurt) != 1 || all[0].Hurt[0] != (Hurt{Stream: 7, End: base.Offset(600), Bounds: true}) {
		t.Errorf("%+v", all)
	}
}
