package engine

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/btree"
)

// orderedNames holds the places of a shard by key, so that the streams of a bucket
// are neighbours in byte order of their names. The lock is held for one page of a
// listing at most, never across I/O.
type orderedNames struct {
	mu   sync.RWMutex
	tree *btree.BTreeG[*Stream]
}

const nameDegree = 32

func (o *orderedNames) insert(st *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tree == nil {
		o.tree = btree.NewG(nameDegree, func(a, b *Stream) bool { return a.key < b.key })
	}
	o.tree.ReplaceOrInsert(st)
}

func (o *orderedNames) remove(st *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tree.Delete(st)
}

// ascend calls f for the places from the key on, in order, until it returns false.
func (o *orderedNames) ascend(from string, f func(*Stream) bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.tree != nil {
		o.tree.AscendGreaterOrEqual(&Stream{key: from}, f)
	}
}

// List returns up to limit streams of a bucket whose names begin with prefix and come
// after the name after, in byte order, and whether there are more. It costs O(limit).
// A stream on the page may be gone by the time that its view is loaded.
func (e *Engine) List(bucket, prefix, after string, limit int) (page []*Stream, more bool) {
	stem := bucket + "\x00"
	from := stem + prefix
	if after >= prefix {
		from = stem + after
	}
	page = make([]*Stream, 0, min(limit+1, listStep))
	for _, s := range e.shards {
		n := 0
		s.names.order.ascend(from, func(st *Stream) bool {
			if !strings.HasPrefix(st.key, stem) || !strings.HasPrefix(st.key[len(stem):], prefix) {
				return false
			}
			if name := st.key[len(stem):]; name != "" && name > after && st.listed() {
				page = append(page, st)
				n++
			}
			return n <= limit
		})
	}
	slices.SortFunc(page, func(a, b *Stream) int { return strings.Compare(a.key, b.key) })
	if len(page) > limit {
		return page[:limit], true
	}
	return page, false
}

// listStep is for how many streams of a page there is room at first.
const listStep = 1024

// listed reports whether the place holds a stream that anybody may see.
func (st *Stream) listed() bool {
	v := st.View()
	return v != nil && !v.Deleted && st.Alive(v)
}
