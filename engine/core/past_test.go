package core

import (
	"testing"

	"github.com/snakream/snakream/wal/record"
)

// Whatever incarnation is asked for, the answer is one that the stream had before,
// and bytes that it still has from then.
func TestInheritance(t *testing.T) {
	fresh, idle := record.Past{History: 5}, record.Past{History: 2}
	crossed, idleSince := record.Past{History: 5, Previous: 2, Inherited: 10}, record.Past{History: 4, Previous: 2, Inherited: 10}
	const id = 9
	of := func(history uint16) uint64 { return Incarnation(history, id) }
	for _, c := range []struct {
		name  string
		past  record.Past
		asked uint64
		want  Inheritance
	}{
		{"fresh", fresh, 0, Inheritance{}},
		{"fresh, asked for what it never was", fresh, of(4), Inheritance{}},
		{"idle", idle, 0, Inheritance{of(4), 30}},
		{"idle, as it was written", idle, of(2), Inheritance{of(2), 30}},
		{"idle, after the restore before", idle, of(4), Inheritance{of(4), 30}},
		{"idle, now", idle, of(5), Inheritance{of(4), 30}},
		{"idle, before it was", idle, of(1), Inheritance{of(4), 30}},
		{"idle, another stream", idle, of(2) + 1, Inheritance{of(4), 30}},
		{"idle, no incarnation at all", idle, 1<<63 | of(3), Inheritance{of(4), 30}},
		{"written to", crossed, 0, Inheritance{of(4), 10}},
		{"written to, at first", crossed, of(2), Inheritance{of(2), 10}},
		{"written to, between", crossed, of(3), Inheritance{of(3), 10}},
		{"written to, now", crossed, of(5), Inheritance{of(4), 10}},
		{"idle since", idleSince, 0, Inheritance{of(4), 30}},
		{"idle since, between", idleSince, of(3), Inheritance{of(3), 10}},
		{"idle since, at first", idleSince, of(2), Inheritance{of(2), 10}},
		{"idle since, before that", idleSince, of(1), Inheritance{of(4), 30}},
		{"idle since, in the future", idleSince, of(6), Inheritance{of(4), 30}},
	} {
		v := View{Fixed: &Fixed{ID: id}, Next: 30, Past: c.past}
		if got := v.Inheritance(5, c.asked); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
