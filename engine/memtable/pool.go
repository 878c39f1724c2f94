package memtable

import "sync"

const (
	slabBytes = 1 << 20
	maxFree   = 64 // slabs kept for the next generation
	idleFree  = 4  // and while nobody writes
)

// Pool hands out slabs of memory and takes them back, so that a new generation
// does not pay for fresh pages. Safe for concurrent use; the zero value is ready.
type Pool struct {
	mu   sync.Mutex
	free [][]byte
}

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

func (p *Pool) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < maxFree {
		p.free = append(p.free, b)
	}
}

// Trim gives most of the free slabs back to the runtime, since nobody writes.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) > idleFree {
		p.free = append([][]byte(nil), p.free[:idleFree]...)
	}
}
