package engine

import (
	"time"

	"github.com/snakream/snakream/tiering"
)

// lane is how calls of one kind get on with the store: puts, deletes, listings, and those
// about the mirror. When one fails, calls of its kind wait, and no others do.
type lane struct {
	backoff   tiering.Backoff
	notBefore time.Time
	doubtful  bool // no call has succeeded since one failed
}

func newLane() lane {
	return lane{backoff: tiering.Backoff{Min: 250 * time.Millisecond, Max: 30 * time.Second}}
}

// open reports whether a call may be made now.
func (l *lane) open() bool { return !time.Now().Before(l.notBefore) }

// failed notes that a call has failed and returns how long to wait.
func (l *lane) failed() time.Duration {
	wait := l.backoff.Next()
	l.doubtful, l.notBefore = true, time.Now().Add(wait)
	return wait
}

// succeeded notes that a call has succeeded.
func (l *lane) succeeded() {
	l.backoff.Reset()
	l.doubtful, l.notBefore = false, time.Time{}
}

// objectLane is a lane whose calls are each about an object of its own. One that fails is
// tried again at its own pace. The lane waits longer with each further object that fails
// while none succeeds, since then it is the store that does not work; an object that goes
// on failing alone while others succeed does not slow those.
type objectLane[K comparable] struct {
	lane
	retries map[K]*lane // objects whose last call failed
}

func newObjectLane[K comparable]() objectLane[K] {
	return objectLane[K]{newLane(), map[K]*lane{}}
}

// slots returns how many calls may run of so many: while it is in doubt whether the store
// does them, one is enough to find out.
func (l *objectLane[K]) slots(most int) int {
	switch {
	case !l.open():
		return 0
	case l.doubtful:
		return 1
	}
	return most
}

// fresh reports whether the last call about an object has not failed.
func (l *objectLane[K]) fresh(k K) bool { return l.retries[k] == nil }

// due reports whether it is time to try an object, again or for the first time.
func (l *objectLane[K]) due(k K) bool {
	r := l.retries[k]
	return r == nil || r.open()
}

// failed notes that the call about an object has failed and returns how long that waits.
func (l *objectLane[K]) failed(k K) time.Duration {
	r := l.retries[k]
	switch {
	case r == nil:
		own := newLane()
		r = &own
		l.retries[k] = r
		l.lane.failed()
	case l.doubtful:
		l.notBefore = time.Now().Add(l.backoff.Again())
	}
	return r.failed()
}

// succeeded notes that the call about an object has succeeded: the store works, and what
// has failed may have failed only because it did not.
func (l *objectLane[K]) succeeded(k K) {
	delete(l.retries, k)
	if l.doubtful {
		l.lane.succeeded()
		for _, r := range l.retries {
			r.notBefore = time.Time{}
		}
	}
}

// forget notes that there will be no more calls about an object.
func (l *objectLane[K]) forget(k K) { delete(l.retries, k) }
