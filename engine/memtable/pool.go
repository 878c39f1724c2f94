package memtable

import (
	"slices"
	"sync"

	"github.com/snakream/snakream/internal/base"
)

const (
	slabBytes = 1 << 20
	maxFree   = 64   // slabs kept for the next generation
	maxBlocks = 1024 // and blocks of entries: 29 MiB
	maxMaps   = 2    // and sets of maps
	idleFree  = 4    // slabs while nobody writes; nothing else then
)

// Pool hands out memory for tables and takes it back, so that a new generation does
// not pay for fresh pages, or for maps that grow. Safe for concurrent use; the zero
// value is ready.
type Pool struct {
	mu     sync.Mutex
	free   [][]byte
	blocks [][]Entry // empty
	sets   []mapSet
}

// mapSet is the maps of a table's stripes, empty.
type mapSet [stripes]map[base.StreamID]*Entry

func (p *Pool) get() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return make([]byte, slabBytes)
}

// block returns empty entries.
func (p *Pool) block() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.blocks); n > 0 {
		b := p.blocks[n-1]
		p.blocks = slices.Delete(p.blocks, n-1, n)
		return b
	}
	return make([]Entry, blockLen)
}

// maps gives each stripe an empty map.
func (p *Pool) maps(s *[stripes]stripe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var set mapSet
	if n := len(p.sets); n > 0 {
		set = p.sets[n-1]
		p.sets = slices.Delete(p.sets, n-1, n)
	}
	for i := range s {
		if s[i].m = set[i]; s[i].m == nil {
			s[i].m = map[base.StreamID]*Entry{}
		}
	}
}

// put takes the memory of a table back. Its blocks and maps are empty.
func (p *Pool) put(t *Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, t.slabs[:min(len(t.slabs), maxFree-len(p.free))]...)
	p.blocks = append(p.blocks, t.blocks[:min(len(t.blocks), maxBlocks-len(p.blocks))]...)
	if len(p.sets) < maxMaps {
		var set mapSet
		for i := range t.stripes {
			set[i], t.stripes[i].m = t.stripes[i].m, nil
		}
		p.sets = append(p.sets, set)
	}
}

// Trim gives most of what is free back to the runtime, since nobody writes.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) > idleFree {
		p.free = append([][]byte(nil), p.free[:idleFree]...)
	}
	p.blocks, p.sets = nil, nil
}
