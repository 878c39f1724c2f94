package vfstest

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashClone returns what a machine finds after its power was cut now:
//   - of each file, any subset of the 4 KiB blocks written since its last Datasync,
//     and the size it had then, has now, or one between; blocks that were lost read
//     as before, or as zeros behind the old end;
//   - of each directory, any subset of the entries created, renamed and removed
//     since its last SyncDir, each change wholly or not at all. A Datasync of a file
//     does nothing for its entry: without SyncDir a synced file may be gone, as may
//     everything in a directory whose own entry is.
//
// The same history and the same random numbers give the same clone; a nil rng keeps
// only what is sure to be kept. In the clone everything is durable; it has the same
// budget of space, and no locks, open files, hook or trace. The original goes on as
// if nothing had happened; both may be used concurrently. Memory is shared until it
// is written.
func (m *MemFS) CrashClone(rng *rand.Rand) *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	dice := &dice{rng: rng}
	left := m.tree.crashed(dice)
	c := New()
	c.budget = m.budget
	var enter func(from, to *node)
	enter = func(from, to *node) {
		for _, name := range left.names(from) {
			old := left.lookup(place{dir: from, name: name})
			n := new(node)
			if !old.isDir() {
				n.inode = old.crashed(dice)
				c.used += n.charged
			}
			change := &change{node: n, to: place{dir: to, name: name}}
			c.tree.now.apply(change)
			c.tree.durable.apply(change)
			if old.isDir() {
				enter(old, n)
			}
		}
	}
	enter(left.root, c.tree.now.root)
	return c
}

// Clone returns what a process finds that starts now after another was killed, the
// machine staying up: everything that was written, durable or not, and without a
// sync it stays so. It has the same budget of space, and no locks, open files, hook
// or trace. The original goes on as if nothing had happened.
func (m *MemFS) Clone() *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	twins := map[*node]*node{nil: nil}
	twin := func(n *node) *node {
		t, ok := twins[n]
		if !ok {
			t = new(node)
			if !n.isDir() {
				t.inode = n.inode.clone()
			}
			twins[n] = t
		}
		return t
	}
	moved := func(p place) place { return place{dir: twin(p.dir), name: p.name} }
	copied := func(s *namespace) *namespace {
		c := newNamespace(twin(s.root))
		for dir, entries := range s.entries {
			c.entries[twin(dir)] = map[string]*node{}
			for name, n := range entries {
				c.entries[twin(dir)][name] = twin(n)
			}
		}
		for n, p := range s.home {
			c.home[twin(n)] = moved(p)
		}
		return c
	}
	c := New()
	c.budget = m.budget
	c.tree = &tree{now: copied(m.tree.now), durable: copied(m.tree.durable)}
	for _, old := range m.tree.changes {
		change := *old
		change.node, change.from, change.to = twin(old.node), moved(old.from), moved(old.to)
		change.pending = slices.Clone(old.pending)
		for i, dir := range change.pending {
			change.pending[i] = twin(dir)
		}
		c.tree.changes = append(c.tree.changes, &change)
	}
	for n := range maps.Values(twins) {
		if n != nil && !n.isDir() && n.linked {
			c.used += n.charged
		}
	}
	return c
}
