package vfstest

import (
	"maps"
	"slices"
)

// node is a file or a directory, whatever its name.
type node struct {
	*inode // nil for a directory
}

func (n *node) isDir() bool { return n.inode == nil }

// place is where a node is entered. The zero place is nowhere.
type place struct {
	dir  *node
	name string
}

// change is one change of directory entries: a create (from nowhere), a removal
// (to nowhere) or a rename. It is on the medium wholly or not at all.
type change struct {
	node     *node
	from, to place
	// pending are the directories still to be synced before it is durable.
	pending []*node
	// lost says that a sync of a directory failed: none after it can be trusted.
	lost bool
}

func (c *change) durable() bool { return len(c.pending) == 0 && !c.lost }

// namespace is the directories' entries at one point of their history.
type namespace struct {
	root    *node
	entries map[*node]map[string]*node // of each directory
	home    map[*node]place            // of each node that has been entered
}

func newNamespace(root *node) *namespace {
	return &namespace{root: root, entries: map[*node]map[string]*node{}, home: map[*node]place{}}
}

func (s *namespace) lookup(p place) *node { return s.entries[p.dir][p.name] }

// apply makes the change. Since earlier changes may be missing, the node is taken
// from wherever it is: it has one place, the old or the new one.
func (s *namespace) apply(c *change) {
	if at := s.home[c.node]; s.lookup(at) == c.node {
		delete(s.entries[at.dir], at.name)
	}
	delete(s.home, c.node)
	if c.to.dir == nil {
		return
	}
	if s.entries[c.to.dir] == nil {
		s.entries[c.to.dir] = map[string]*node{}
	}
	if old := s.lookup(c.to); old != nil {
		delete(s.home, old)
	}
	s.entries[c.to.dir][c.to.name] = c.node
	s.home[c.node] = c.to
}

// clone returns a copy. Nodes are shared.
func (s *namespace) clone() *namespace {
	c := newNamespace(s.root)
	for dir, entries := range s.entries {
		c.entries[dir] = maps.Clone(entries)
	}
	c.home = maps.Clone(s.home)
	return c
}

// names returns the names in dir, sorted.
func (s *namespace) names(dir *node) []string { return slices.Sorted(maps.Keys(s.entries[dir])) }

// tree is the directories as a reader sees them, as they surely are on the medium,
// and the changes between the two in their order.
type tree struct {
	now, durable *namespace
	changes      []*change
}

func newTree() *tree {
	root := new(node)
	return &tree{now: newNamespace(root), durable: newNamespace(root)}
}

// move makes a change that the next sync of its directories makes durable.
func (t *tree) move(n *node, from, to place) {
	c := &change{node: n, from: from, to: to}
	for _, dir := range []*node{from.dir, to.dir} {
		if dir != nil && !slices.Contains(c.pending, dir) {
			c.pending = append(c.pending, dir)
		}
	}
	t.now.apply(c)
	t.changes = append(t.changes, c)
}

// sync makes the changes of dir durable, those that no other directory waits for.
func (t *tree) sync(dir *node) {
	for _, c := range t.changes {
		c.pending = slices.DeleteFunc(c.pending, func(d *node) bool { return d == dir })
	}
	// Changes of one directory stay in order, so one that is not durable keeps
	// later ones of its directories in the list.
	kept := t.changes[:0]
	held := map[*node]bool{}
	for _, c := range t.changes {
		if c.durable() && !held[c.from.dir] && !held[c.to.dir] {
			t.durable.apply(c)
			continue
		}
		for _, d := range []*node{c.from.dir, c.to.dir} {
			if d != nil {
				held[d] = true
			}
		}
		kept = append(kept, c)
	}
	clear(t.changes[len(kept):])
	t.changes = kept
}

// syncFailed notes that no later sync can vouch for the changes of dir.
func (t *tree) syncFailed(dir *node) {
	for _, c := range t.changes {
		if slices.Contains(c.pending, dir) {
			c.lost = true
		}
	}
}

// crashed returns the entries that a power cut leaves.
func (t *tree) crashed(dice *dice) *namespace {
	left := t.durable.clone()
	var open []*change
	for _, c := range t.changes {
		if !c.durable() {
			open = append(open, c)
		}
	}
	keep := map[*change]bool{}
	for i := range dice.subset(len(open)) {
		keep[open[i]] = true
	}
	for _, c := range t.changes {
		if c.durable() || keep[c] {
			left.apply(c)
		}
	}
	return left
}
