package server

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
)

// slice is how long a loop works for one stream or one reader before it looks at
// the next.
const slice = time.Millisecond

// holdback is how long the beginning of a code point waits for its rest.
const holdback = base.Millis(5000)

type taskKind uint8

const (
	taskWake     taskKind = iota + 1 // stream has changed
	taskStart                        // reader is new
	taskGone                         // reader's client has left
	taskWritable                     // reader's last frame is out
	taskTimer                        // reader's timer has fired
	taskBack                         // reader has come back from the disk
	taskDrain                        // everybody is to end
	taskStop                         // the loop is to end
)

type task struct {
	kind   taskKind
	stream *engine.Stream
	reader *reader
	result result // taskBack
}

// loop serves the live readers of some of the streams. There is one goroutine to a
// loop, started and stopped by the hub; all but the queue is its own.
type loop struct {
	*hub
	mu    sync.Mutex
	queue []task
	bell  chan struct{}

	// The goroutine's, as all that follows.
	tasks   []task
	jobs    []job // from head on
	head    int
	first   *reader
	encoder encoder
	spare   [][]*engine.Watcher
	stopped bool
}

// job is work that may take longer than a slice: the readers of a stream that has
// changed, or one reader that is on its way to the tail.
type job struct {
	stream  *engine.Stream
	readers []*engine.Watcher
	at      int
	reader  *reader
}

func newLoop(h *hub) *loop {
	return &loop{hub: h, bell: make(chan struct{}, 1), encoder: encoder{Server: h.Server}}
}

// post gives the loop something to do. Any goroutine; it does not block.
func (l *loop) post(t task) {
	l.mu.Lock()
	l.queue = append(l.queue, t)
	first := len(l.queue) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.bell <- struct{}{}:
		default:
		}
	}
}

// run takes turns between new tasks and a slice of the oldest job.
func (l *loop) run() {
	for !l.stopped {
		if l.head == len(l.jobs) {
			<-l.bell
		}
		l.mu.Lock()
		l.tasks, l.queue = l.queue, l.tasks[:0]
		l.mu.Unlock()
		for i := range l.tasks {
			l.handle(&l.tasks[i])
		}
		clear(l.tasks)
		if cap(l.tasks) > maxQueue {
			l.tasks = nil
		}
		l.work()
	}
}

// maxQueue is the longest queue, in tasks, whose memory is kept.
const maxQueue = 4 << 10

func (l *loop) handle(t *task) {
	r := t.reader
	switch t.kind {
	case taskWake:
		l.wakeAll(t.stream)
	case taskStart:
		l.admit(r)
	case taskGone:
		r.gone = true
		if !r.busy {
			l.drop(r)
		}
	case taskWritable:
		if r.blocked = false; r.busy {
			r.drained = true
		} else {
			l.enqueue(r)
		}
	case taskTimer:
		l.timer(r)
	case taskBack:
		l.back(r, t.result)
	case taskDrain:
		l.sayGoodbye()
	case taskStop:
		l.stopped = true
	}
}

// wakeAll queues the readers of a stream that has changed.
func (l *loop) wakeAll(st *engine.Stream) {
	st.Woken()
	var buf []*engine.Watcher
	if n := len(l.spare); n > 0 {
		buf, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	if buf = st.Watchers(buf); len(buf) > 0 {
		l.jobs = append(l.jobs, job{stream: st, readers: buf})
	}
}

// enqueue queues one reader.
func (l *loop) enqueue(r *reader) {
	if r.ended || r.queued {
		return
	}
	r.queued = true
	l.jobs = append(l.jobs, job{reader: r})
}

// work does a slice of the oldest job.
func (l *loop) work() {
	j, ok := l.oldest()
	if !ok {
		return
	}
	l.encoder.begin(slice)
	if j.reader != nil {
		j.reader.queued = false
		l.serve(j.reader, j.reader.stream.View())
		return
	}
	if l.fan(&j) {
		clear(j.readers)
		if l.spare = append(l.spare, j.readers[:0]); len(l.spare) > 8 {
			l.spare = l.spare[1:]
		}
		return
	}
	l.jobs = append(l.jobs, j)
}

// oldest takes the oldest job.
func (l *loop) oldest() (job, bool) {
	if l.head == len(l.jobs) {
		return job{}, false
	}
	j := l.jobs[l.head]
	l.jobs[l.head] = job{}
	if l.head++; l.head == len(l.jobs) || l.head == maxQueue {
		l.jobs = append(l.jobs[:0], l.jobs[l.head:]...)
		l.head = 0
	}
	return j, true
}

// fan serves the readers of one stream for a slice of time, and reports whether it
// is through with them.
func (l *loop) fan(j *job) bool {
	v := j.stream.View()
	for j.at < len(j.readers) {
		r := j.readers[j.at].User.(*reader)
		j.at++
		l.serve(r, v)
		if j.at%16 == 0 && l.encoder.late() {
			return j.at == len(j.readers)
		}
	}
	return true
}

// admit begins to serve a reader. It is registered first and looked at then, so
// that no change falls between.
func (l *loop) admit(r *reader) {
	if r.gone {
		r.ended = true
		r.closeBoot()
		return
	}
	r.watch.User, r.timer.f = r, r.fire
	if r.next = l.first; r.next != nil {
		r.next.prev = r
	}
	l.first = r
	l.readers[r.mode].Add(1)
	r.stream.Watch(&r.watch)
	r.sent = now()
	if l.draining() {
		r.over = true
	}
	l.arm(r)
	l.enqueue(r)
}

// drop ends the record of a reader.
func (l *loop) drop(r *reader) {
	if r.ended || r.timer.f == nil { // never admitted, or dropped before
		return
	}
	r.ended = true
	r.closeBoot()
	r.stream.Unwatch(&r.watch)
	l.transport.Stop(&r.timer)
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.readers[r.mode].Add(-1)
}

// serve lets a reader have what there is for it, as far as memory holds it.
func (l *loop) serve(r *reader, v *engine.View) {
	if r.busy {
		r.missed = true
	}
	if r.ended || r.busy || r.blocked {
		return
	}
	l.settle(r, l.encoder.serve(r, v, true))
}

// back takes a reader over from the disk and makes up for what happened meanwhile.
func (l *loop) back(r *reader, res result) {
	missed, late := r.missed, r.late
	if res == stalled && r.drained {
		res = unfinished
	}
	r.busy, r.missed, r.late, r.drained = false, false, false, false
	l.settle(r, res)
	if missed {
		l.enqueue(r)
	}
	if late {
		l.timer(r)
	}
}

// settle goes on from how the last serving of a reader ended.
func (l *loop) settle(r *reader, res result) {
	if r.gone || res == finished {
		l.drop(r)
		return
	}
	switch res {
	case idle:
		if r.held != 0 {
			l.arm(r)
		}
		if r.over {
			l.enqueue(r)
		}
	case unfinished:
		l.enqueue(r)
	case stalled:
		r.blocked = true
		l.metrics.stalls.Add(1)
	case needsDisk:
		r.busy = true
		l.serveFrom(&l.disk, r)
	case needsStore:
		r.busy = true
		l.serveFrom(&l.store, r)
	}
}

// arm sets the reader's timer to whatever comes first.
func (l *loop) arm(r *reader) {
	at := r.deadline
	if r.mode == events {
		at = min(at, r.sent+base.Millis(l.cfg.SSEHeartbeat.Milliseconds()))
		if r.held != 0 {
			at = min(at, r.held+holdback)
		}
	}
	l.transport.After(time.Duration(max(at-now(), 1))*time.Millisecond, &r.timer)
}

// timer looks what a reader's timer has fired for.
func (l *loop) timer(r *reader) {
	if r.busy {
		r.late = true
		return
	}
	if r.ended {
		return
	}
	t := now()
	if t >= r.deadline {
		r.over = true
		l.enqueue(r)
		return
	}
	if r.held != 0 && t >= r.held+holdback {
		l.enqueue(r)
	}
	if r.mode == events && !r.blocked && r.boot == nil && t >= r.sent+base.Millis(l.cfg.SSEHeartbeat.Milliseconds()) {
		l.encoder.begin(slice)
		l.settle(r, l.encoder.heartbeat(r))
	}
	if !r.ended {
		l.arm(r)
	}
}

// sayGoodbye sets the deadline of every reader to a moment of the drain.
func (l *loop) sayGoodbye() {
	spread := max(l.spread.Load(), 1)
	for r := l.first; r != nil; r = r.next {
		r.deadline = min(r.deadline, now()+base.Millis(rand.Int64N(spread)))
		if r.late = r.busy; !r.busy {
			l.arm(r)
		}
	}
}
