package tiering_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/tiertest"
)

// faulty is a store that lacks one thing that Snakream relies on.
type faulty struct {
	*tiertest.Memory
	put  func(ctx context.Context, key string, b tiering.Body) error
	swap func(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error)
	get  func(ctx context.Context, key string, p []byte, off int64) error
}

// Put implements tiering.Store.
func (f *faulty) Put(ctx context.Context, key string, b tiering.Body) error {
	if f.put != nil {
		return f.put(ctx, key, b)
	}
	return f.Memory.Put(ctx, key, b)
}

// Swap implements tiering.Store.
func (f *faulty) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
	if f.swap != nil {
		return f.swap(ctx, key, data, old)
	}
	return f.Memory.Swap(ctx, key, data, old)
}

// Get implements tiering.Store.
func (f *faulty) Get(ctx context.Context, key string, p []byte, off int64) error {
	if f.get != nil {
		return f.get(ctx, key, p, off)
	}
	return f.Memory.Get(ctx, key, p, off)
}

func failed(findings []tiering.Finding) (names []string) {
	for _, f := range findings {
		if f.Err != nil {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(m *tiertest.Memory) *faulty
		want string // begins the first finding that is bad; "" is none
	}{
		{"good", func(m *tiertest.Memory) *faulty { return &faulty{Memory: m} }, ""},
		{"replaces what is there", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, put: func(ctx context.Context, key string, b tiering.Body) error {
				m.Remove(key)
				return m.Put(ctx, key, b)
			}}
		}, "put of other bytes"},
		{"tells several that they won", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, put: func(ctx context.Context, key string, b tiering.Body) error {
				err := m.Put(ctx, key, b)
				if strings.HasSuffix(key, "-b") {
					return nil
				}
				return err
			}}
		}, "one of several puts"},
		{"ignores versions", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, swap: func(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
				if old != "" {
					m.Remove(key)
				}
				return m.Swap(ctx, key, data, "")
			}}
		}, "compare-and-set"},
		{"never swaps", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, swap: func(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
				return "", fmt.Errorf("never: %w", tiering.ErrConflict)
			}}
		}, "compare-and-set"},
		{"wrong range", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, get: func(ctx context.Context, key string, p []byte, off int64) error {
				return m.Get(ctx, key, p, max(0, off-1))
			}}
		}, "ranged get"},
		{"fills what is missing", func(m *tiertest.Memory) *faulty {
			return &faulty{Memory: m, get: func(ctx context.Context, key string, p []byte, off int64) error {
				if err := m.Get(ctx, key, p, off); !errors.Is(err, tiering.ErrShort) {
					return err
				}
				return nil
			}}
		}, "get beyond the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := tiertest.NewMemory()
			bad := failed(tiering.Check(t.Context(), c.make(m)))
			switch {
			case c.want == "" && len(bad) > 0:
				t.Errorf("found bad: %q", bad)
			case c.want != "" && (len(bad) == 0 || !strings.HasPrefix(bad[0], c.want)):
				t.Errorf("found bad: %q, and not first %q", bad, c.want)
			}
			if keys := m.Keys(); len(keys) > 0 {
				t.Errorf("left behind: %q", keys)
			}
		})
	}
}

func TestCheckStopsEarly(t *testing.T) {
	m := tiertest.NewMemory()
	m.Before = func(op, _ string) error {
		if op == "put" {
			return fmt.Errorf("no: %w", tiering.ErrDenied)
		}
		return nil
	}
	findings := tiering.Check(t.Context(), m)
	if len(findings) != 1 || !errors.Is(findings[0].Err, tiering.ErrDenied) {
		t.Errorf("%+v", findings)
	}
}

// TestCheckCleansUp ends the context in the middle.
func TestCheckCleansUp(t *testing.T) {
	m := tiertest.NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	m.After = func(op, _ string) error {
		if op == "put" {
			cancel()
		}
		return nil
	}
	findings := tiering.Check(ctx, m)
	if len(failed(findings)) == 0 || len(m.Keys()) > 0 {
		t.Errorf("%+v, and left behind: %q", findings, m.Keys())
	}
}

func TestCheckTellsWhatStays(t *testing.T) {
	m := tiertest.NewMemory()
	m.Before = func(op, _ string) error {
		if op == "delete" {
			return errors.New("no")
		}
		return nil
	}
	bad := failed(tiering.Check(t.Context(), m))
	if len(bad) != 2 || bad[0] != "delete" || bad[1] != "clean up" {
		t.Errorf("found bad: %q", bad)
	}
}

func TestPermanent(t *testing.T) {
	for err, want := range map[error]bool{
		tiering.ErrDenied: true, tiering.ErrConfig: true,
		tiering.ErrNotFound: false, tiering.ErrExists: false, tiering.ErrConflict: false, tiering.ErrShort: false,
		context.DeadlineExceeded: false,
	} {
		if got := tiering.Permanent(fmt.Errorf("put: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
