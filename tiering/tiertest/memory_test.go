package tiertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/storetest"
)

var errInjected = errors.New("injected")

// losing is a Memory that loses an answer when it is told to.
type losing struct {
	*Memory
	armed atomic.Bool
}

// LoseAnswer implements storetest.Loser.
func (l *losing) LoseAnswer() { l.armed.Store(true) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) tiering.Store {
		l := &losing{Memory: NewMemory()}
		l.After = func(op, _ string) error {
			if (op == "put" || op == "swap" || op == "delete") && l.armed.CompareAndSwap(true, false) {
				return errInjected
			}
			return nil
		}
		return l
	})
}

func TestHooks(t *testing.T) {
	ctx := t.Context()
	body := tiering.BytesBody([]byte("data"))
	m := NewMemory()
	m.Before = func(op, key string) error {
		if op == "put" && key == "before" {
			return errInjected
		}
		return nil
	}
	m.After = func(op, key string) error {
		if op == "put" && key == "after" {
			return errInjected
		}
		return nil
	}
	if err := m.Put(ctx, "before", body); !errors.Is(err, errInjected) || m.Bytes("before") != nil {
		t.Errorf("refused before: %v, and there is %q", err, m.Bytes("before"))
	}
	if err := m.Put(ctx, "after", body); !errors.Is(err, errInjected) || string(m.Bytes("after")) != "data" {
		t.Errorf("answer lost: %v, and there is %q", err, m.Bytes("after"))
	}
	if n := m.Counts()["put"]; n != 2 {
		t.Errorf("%d puts counted, not 2", n)
	}
}

func TestBlockingHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := NewMemory()
		m.Before = func(string, string) error { <-release; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Put(ctx, "k", tiering.BytesBody(nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a put that waits for its hook: %v", err)
		}
		close(release)
		synctest.Wait()
		if keys := m.Keys(); len(keys) != 0 {
			t.Errorf("a put that had ended made %q", keys)
		}
	})
}

func TestDamage(t *testing.T) {
	ctx := t.Context()
	m := NewMemory()
	for _, key := range []string{"corrupt", "short", "gone", "same"} {
		if err := m.Put(ctx, key, tiering.BytesBody([]byte("0123456789"))); err != nil {
			t.Fatal(err)
		}
	}
	clone := m.Clone()
	m.Corrupt("corrupt", 3)
	m.Truncate("short", 4)
	m.Remove("gone")
	if got := string(m.Bytes("corrupt")); got != "0122456789" {
		t.Errorf("corrupt holds %q", got)
	}
	if err := m.Get(ctx, "short", make([]byte, 5), 0); !errors.Is(err, tiering.ErrShort) {
		t.Errorf("get of a short object: %v", err)
	}
	if err := m.Get(ctx, "gone", make([]byte, 5), 0); !errors.Is(err, tiering.ErrNotFound) {
		t.Errorf("get of an object that is gone: %v", err)
	}
	for _, key := range clone.Keys() {
		if got := string(clone.Bytes(key)); got != "0123456789" {
			t.Errorf("damage reached the clone: %s holds %q", key, got)
		}
	}
	if n := len(clone.Keys()); n != 4 {
		t.Errorf("the clone has %d objects", n)
	}
}
