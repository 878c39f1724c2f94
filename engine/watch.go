package engine

import "sync"

// Watcher is one live reader's place in a stream's watch list. It is embedded in
// the reader's own record; its fields belong to the engine but for User.
type Watcher struct {
	prev, next *Watcher
	list       *watchList
	User       any
}

// watchList holds the live readers of one stream. It outlives incarnations: a
// reader that is pinned to one sees from the view that it has ended.
type watchList struct {
	mu    sync.Mutex
	first *Watcher
	n     int
	woken bool // Wake was called and Woken not yet
}

// Watch registers a live reader. Load the view again afterwards: a change that
// came between the last look and Watch rings no bell.
func (s *Stream) Watch(w *Watcher) {
	l := s.watch.Load()
	for l == nil {
		s.watch.CompareAndSwap(nil, &watchList{})
		l = s.watch.Load()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.list, w.prev, w.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = w
	}
	l.first = w
	l.n++
}

// Unwatch removes a live reader; again is no harm.
func (s *Stream) Unwatch(w *Watcher) {
	l := s.watch.Load()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.list == nil {
		return
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
	l.n--
}

// Watched reports whether a live reader is registered.
func (s *Stream) Watched() bool {
	l := s.watch.Load()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n > 0
}

// Watchers appends the registered readers to buf.
func (s *Stream) Watchers(buf []*Watcher) []*Watcher {
	l := s.watch.Load()
	if l == nil {
		return buf
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.first; w != nil; w = w.next {
		buf = append(buf, w)
	}
	return buf
}

// Woken says that the changes so far have been taken note of: the next one calls
// Options.Wake again. Call it before loading the view.
func (s *Stream) Woken() {
	if l := s.watch.Load(); l != nil {
		l.mu.Lock()
		l.woken = false
		l.mu.Unlock()
	}
}

// wake tells the host that a published batch has changed a watched stream.
func (s *Stream) wake() {
	l := s.watch.Load()
	if l == nil || s.shard.e.opts.Wake == nil {
		return
	}
	l.mu.Lock()
	ring := l.n > 0 && !l.woken
	l.woken = l.woken || ring
	l.mu.Unlock()
	if ring {
		s.shard.stats.wakes.Add(1)
		s.shard.e.opts.Wake(s)
	}
}
