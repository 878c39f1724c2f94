// Package tiertest has an object store in memory that fails when a test says so.
package tiertest

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/snakream/snakream/tiering"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Memory is a tiering.Store in memory. Its zero value is empty and ready to use. It is
// safe for concurrent use; the hooks must be set before that.
//
// The operations that hooks and Counts name are put, get, stat, delete, list, load and
// swap. Calls of one of them that ctx ended before are not counted and reach no hook.
type Memory struct {
	// Before, if set, is asked before an operation. When it returns an error, nothing
	// is done and that is the answer. It may block: the operation still ends when its
	// context does, and nothing is done then.
	Before func(op, key string) error
	// After, if set, is asked after an operation that succeeded. When it returns an
	// error, that is the answer though the operation was done: the answer is lost.
	// It may block as Before may. A list asks it once, before the first object.
	After func(op, key string) error

	mu      sync.Mutex
	objects map[string]object
	counts  map[string]int
	version uint64 // of the last content that was written
}

// object is immutable: a change puts another one in its place.
type object struct {
	data    []byte
	version uint64
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return new(Memory) }

// Put implements tiering.Store.
func (m *Memory) Put(ctx context.Context, key string, b tiering.Body) error {
	return m.call(ctx, "put", key, func() error {
		var buf bytes.Buffer
		// By a small buffer, as a connection would: hence not by buf's own ReadFrom.
		if n, err := io.Copy(struct{ io.Writer }{&buf}, io.NewSectionReader(b.R, 0, b.Size)); err != nil {
			return err
		} else if n < b.Size {
			return fmt.Errorf("memory: put %q: the body has %d bytes, not %d", key, n, b.Size)
		}
		data := buf.Bytes()
		if crc := crc32.Checksum(data, castagnoli); crc != b.CRC32C {
			return fmt.Errorf("memory: put %q: the body has the CRC %08x, not %08x", key, crc, b.CRC32C)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if old, ok := m.objects[key]; ok {
			if !bytes.Equal(old.data, data) {
				return fmt.Errorf("memory: put %q: %w", key, tiering.ErrExists)
			}
			return nil
		}
		m.setLocked(key, data)
		return nil
	})
}

// Get implements tiering.Store.
func (m *Memory) Get(ctx context.Context, key string, p []byte, off int64) error {
	return m.call(ctx, "get", key, func() error {
		o, err := m.find("get", key)
		if err != nil {
			return err
		}
		if off < 0 {
			return fmt.Errorf("memory: get %q: negative offset", key)
		}
		if off > int64(len(o.data)) || int64(len(p)) > int64(len(o.data))-off {
			return fmt.Errorf("memory: get %q: %w", key, tiering.ErrShort)
		}
		copy(p, o.data[off:])
		return nil
	})
}

// Stat implements tiering.Store.
func (m *Memory) Stat(ctx context.Context, key string) (info tiering.Info, err error) {
	err = m.call(ctx, "stat", key, func() error {
		o, err := m.find("stat", key)
		info = tiering.Info{Key: key, Size: int64(len(o.data)), CRC32C: crc32.Checksum(o.data, castagnoli), HasCRC: true}
		return err
	})
	if err != nil {
		return tiering.Info{}, err
	}
	return info, nil
}

// Delete implements tiering.Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	return m.call(ctx, "delete", key, func() error {
		m.Remove(key)
		return nil
	})
}

// List implements tiering.Store. It lists what was there when it began.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[tiering.Info, error] {
	return func(yield func(tiering.Info, error) bool) {
		var all []tiering.Info
		err := m.call(ctx, "list", prefix, func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, key := range slices.Sorted(maps.Keys(m.objects)) {
				if strings.HasPrefix(key, prefix) {
					all = append(all, tiering.Info{Key: key, Size: int64(len(m.objects[key].data))})
				}
			}
			return nil
		})
		for _, info := range all {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				break
			}
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(tiering.Info{}, err)
		}
	}
}

// Load implements tiering.Store.
func (m *Memory) Load(ctx context.Context, key string, max int64) (data []byte, v tiering.Version, err error) {
	err = m.call(ctx, "load", key, func() error {
		o, err := m.find("load", key)
		if err != nil {
			return err
		}
		if int64(len(o.data)) > max {
			return fmt.Errorf("memory: load %q: %d bytes, more than %d", key, len(o.data), max)
		}
		data, v = bytes.Clone(o.data), versionOf(o)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return data, v, nil
}

// Swap implements tiering.Store. An answer that After loses is not looked up: it is as
// if the look-up had failed too.
func (m *Memory) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (v tiering.Version, err error) {
	err = m.call(ctx, "swap", key, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		var now tiering.Version
		if o, ok := m.objects[key]; ok {
			now = versionOf(o)
		}
		if now != old {
			return fmt.Errorf("memory: swap %q: %w", key, tiering.ErrConflict)
		}
		v = versionOf(m.setLocked(key, bytes.Clone(data)))
		return nil
	})
	if err != nil {
		return "", err
	}
	return v, nil
}

func (m *Memory) String() string { return "memory" }

// Corrupt flips one bit of the byte at offset at. It panics when there is none.
func (m *Memory) Corrupt(key string, at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := bytes.Clone(m.objects[key].data)
	data[at] ^= 1
	m.setLocked(key, data)
}

// Truncate cuts an object to its first n bytes. It panics when it has fewer.
func (m *Memory) Truncate(key string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(key, bytes.Clone(m.objects[key].data[:n]))
}

// Remove takes an object away, if it is there. It reaches no hook.
func (m *Memory) Remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// Keys returns the keys of all objects in ascending order. It reaches no hook.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}

// Bytes returns a copy of an object, or nil when there is none. It reaches no hook.
func (m *Memory) Bytes(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.objects[key].data)
}

// Counts returns how often each operation was called, failed calls included.
func (m *Memory) Counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.counts)
}

// Clone returns a store with the same objects and versions, without hooks and counts:
// what another machine would find at this moment.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{objects: maps.Clone(m.objects), version: m.version}
}

// call runs an operation between its hooks.
func (m *Memory) call(ctx context.Context, op, key string, do func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	m.counts[op]++
	m.mu.Unlock()
	if err := hook(ctx, m.Before, op, key); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return hook(ctx, m.After, op, key)
}

// hook asks f until ctx ends. The goroutine ends with f, whoever still waits for it.
func hook(ctx context.Context, f func(op, key string) error, op, key string) error {
	if f == nil {
		return nil
	}
	answer := make(chan error, 1)
	go func() { answer <- f(op, key) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Memory) find(op, key string) (object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return object{}, fmt.Errorf("memory: %s %q: %w", op, key, tiering.ErrNotFound)
	}
	return o, nil
}

func (m *Memory) setLocked(key string, data []byte) object {
	if m.objects == nil {
		m.objects = map[string]object{}
	}
	m.version++
	o := object{data: data, version: m.version}
	m.objects[key] = o
	return o
}

func versionOf(o object) tiering.Version {
	return tiering.Version(strconv.FormatUint(o.version, 10))
}
