package engine

import (
	"testing"
	"time"

	"github.com/snakream/snakream/engine/blob"
	"github.com/snakream/snakream/engine/manifest"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/tiering"
)

// What a merge's output was made of may have to stand in for it until the mirror names
// the output: it is not dead before, for whatever reason the output is not named yet.
func TestStandInIsNotDead(t *testing.T) {
	input := manifest.Segment{ID: 150, Run: 50, MinStream: 1, MaxStream: 10, Object: 6}
	output := manifest.Segment{ID: 200, Run: 50, MinStream: 1, MaxStream: 10, Object: 7}
	for _, c := range []struct {
		name     string
		waits    manifest.Segment // is not in the store, and holds up
		inMirror []manifest.Segment
		kept     bool
	}{
		{name: "behind an older segment", waits: manifest.Segment{ID: 170, Run: 40, MinStream: 5, MaxStream: 5}},
		{
			name:     "the shard stays as it is",
			waits:    manifest.Segment{ID: 9, Run: 1, MinStream: 50, MaxStream: 60}, // of an earlier run: what it was made of is not known
			inMirror: []manifest.Segment{{ID: 8, Run: 1, MinStream: 50, MaxStream: 60, Object: 5}},
			kept:     true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &Engine{blobs: new(blob.Store)}
			e.opts.Now = time.Now
			s := tierShard{
				firstNew: 100, low: manifest.Position{LSN: 50},
				live:     map[base.SegmentID]manifest.Segment{output.ID: output, c.waits.ID: c.waits},
				inMirror: map[base.SegmentID]manifest.Segment{},
				gone:     map[base.SegmentID]manifest.Segment{input.ID: input},
				made:     map[base.SegmentID]lineage{output.ID: {inputs: []manifest.Segment{input}}},
			}
			for _, m := range c.inMirror {
				s.inMirror[m.ID] = m
			}
			tr := &tier{e: e, dead: map[string]bool{}, shards: []tierShard{s}}

			first := []choice{tr.shards[0].choose(nil)}
			if _, named := first[0].segs[output.ID]; named || first[0].kept != c.kept {
				t.Fatalf("the first choice is %+v", first[0])
			}
			if c.kept { // nothing is concluded about what has left nothing either
				empty := manifest.Segment{ID: 160, Run: 50, Object: 4}
				s.gone[empty.ID] = empty
			}
			if dead := tr.nextDead(first); len(dead) > 0 {
				t.Errorf("dead: %v", dead)
			}
			tr.settle(mirror.State{}, first)

			// Now it could be named, but for something that it refers to.
			stored := c.waits
			stored.Object = 8
			tr.shards[0].live[stored.ID] = stored
			second := []choice{tr.shards[0].choose(map[base.SegmentID]bool{output.ID: true})}
			if _, named := second[0].segs[input.ID]; !named {
				t.Errorf("the input does not stand in: %+v", second[0])
			}
			tr.settle(mirror.State{}, second)

			// Once the output is named, nothing needs the input.
			third := []choice{tr.shards[0].choose(nil)}
			dead := tr.nextDead(third)
			found := false
			for _, d := range dead {
				found = found || d.Key == tiering.SegmentKey(0, input.ID, input.Object)
			}
			if _, named := third[0].segs[output.ID]; !named || !found {
				t.Errorf("at last: dead %v of %+v", dead, third[0])
			}
		})
	}
}
