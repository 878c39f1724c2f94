//go:build e2e

// Package trace holds the binary to the order of its system calls: no byte of an
// answer leaves before everything that it promises is on the disk.
//
// It holds tests only, under the build tag e2e. A small ptrace tracer runs the binary
// and notes, over all of its threads, when each call on its files and sockets begins
// and when it returns. The tests are never skipped: where ptrace is refused they fail
// and say so.
package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snakream/snakream/test/internal/daemontest"
)

// tracer runs one process. A thread that is about to enter a call, or has just
// returned from one, stands still until the tracer has noted it. So what the process
// does because a call has returned is noted behind that return.
type tracer struct {
	root string // what paths are relative to
	pid  int
	done chan struct{}      // closed when every thread has ended
	exit syscall.WaitStatus // of the process; to be read after done

	mu         sync.Mutex // guards what follows
	clock      int        // positions given out
	events     []*event
	changed    chan struct{} // closed and replaced at each change of events
	gates      []*gate
	injections []*injection
	problem    error // what made the trace incomplete

	// The tracing goroutine's.
	threads map[int]*event // each thread's current call; nil if it is not of interest
	peers   map[int]string // the client's address of an accepted socket
	rings   map[int]*ring  // by descriptor
	memory  *os.File
}

// gate stops the first thread that is about to enter a call on a matching file, until
// it is opened. The other threads run on.
type gate struct {
	tracer  *tracer
	matches func(event) bool
	reached chan struct{} // closed when a thread stands before it
	tid     int           // that thread; 0 before and after
	opened  bool
}

// injection takes the place of a call on a matching file: the call is not made, and the
// process is told a result.
type injection struct {
	matches func(event) bool // called for every call, in order, by one goroutine
	result  func(event) int64
}

// startTraced runs argv under a new tracer, with log as its standard output and error.
func startTraced(root string, argv []string, log *os.File) (*tracer, error) {
	t := &tracer{
		root: root, done: make(chan struct{}), changed: make(chan struct{}),
		threads: map[int]*event{}, peers: map[int]string{}, rings: map[int]*ring{},
	}
	started := make(chan error, 1)
	go t.run(argv, log, started) // ends with the process
	err := <-started
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		err = fmt.Errorf("the order of system calls can't be checked, because this environment does not let "+
			"a process trace its own child (ptrace): %w", err)
	}
	return t, err
}

// run starts the process and notes what it does until it ends. Only the thread that
// started it may trace it: the goroutine keeps the thread to itself, and both end
// together.
func (t *tracer) run(argv []string, log *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer close(t.done)
	err := t.start(argv, log)
	started <- err
	if err != nil {
		return
	}
	defer t.memory.Close()
	for {
		var status syscall.WaitStatus
		// Without __WNOTHREAD it would reap the children of other tests.
		tid, err := syscall.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return
		case err != nil:
			t.fail(fmt.Errorf("waiting for a thread: %w", err))
			return
		}
		t.stopped(tid, status)
		t.letGo()
	}
}

func (t *tracer) start(argv []string, log *os.File) error {
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Files: []*os.File{nil, log, log},
		Env:   daemontest.Environ(),
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	t.pid = p.Pid
	if err := p.Release(); err != nil { // run waits for it
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(t.pid, &status, unix.WALL, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("it ended before its first instruction: %#x", status)
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(t.pid, options); err != nil {
		return err
	}
	if t.memory, err = os.Open(fmt.Sprintf("/proc/%d/mem", t.pid)); err != nil {
		return err
	}
	t.threads[t.pid] = nil
	return t.resume(t.pid, 0)
}

// stopped handles one report about a thread and lets it go on, unless a gate holds it.
func (t *tracer) stopped(tid int, status syscall.WaitStatus) {
	if status.Exited() || status.Signaled() {
		delete(t.threads, tid)
		if tid == t.pid {
			t.exit = status
		}
		return
	}
	_, known := t.threads[tid]
	var signal syscall.Signal
	switch s := status.StopSignal(); {
	case s == syscall.SIGTRAP|0x80:
		if t.call(tid) {
			return
		}
	case s == syscall.SIGTRAP && status.TrapCause() > 0: // a thread was made
	case s == syscall.SIGSTOP && !known: // it is that thread's first report
		t.threads[tid] = nil
	default:
		signal = s
	}
	if err := t.resume(tid, signal); err != nil {
		t.fail(err)
	}
}

// resume lets a thread run until it enters or leaves its next call.
func (t *tracer) resume(tid int, signal syscall.Signal) error {
	err := syscall.PtraceSyscall(tid, int(signal))
	if err != nil && !errors.Is(err, unix.ESRCH) { // that one was killed meanwhile
		return fmt.Errorf("resuming a thread: %w", err)
	}
	return nil
}

// letGo resumes the threads whose gates have been opened.
func (t *tracer) letGo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gates {
		if g.opened && g.tid != 0 {
			if err := t.resume(g.tid, 0); err != nil && t.problem == nil {
				t.problem = err
			}
			g.tid = 0
		}
	}
}

// The kernel's struct ptrace_syscall_info.
type callInfo struct {
	op    uint8
	_     [3]uint8
	arch  uint32
	place [2]uint64 // instruction and stack pointer
	word  [8]uint64 // entering: number and arguments; leaving: result
}

const (
	callEntered = 1
	callLeft    = 2
)

// call notes that a thread enters or leaves a call. It reports whether a gate holds
// the thread.
func (t *tracer) call(tid int) (held bool) {
	var info callInfo
	_, _, errno := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	switch {
	case errno == unix.ESRCH:
		return false
	case errno != 0:
		t.fail(fmt.Errorf("PTRACE_GET_SYSCALL_INFO, which needs Linux 5.3: %w", errno))
		return false
	}
	switch info.op {
	case callEntered:
		e := t.decode(int(info.word[0]), info.word[1:7])
		t.threads[tid] = e
		if e == nil {
			return false
		}
		e.tid = tid
		held = t.entered(e)
		if e.faked != nil {
			t.check(skipCall(tid))
		}
		return held
	case callLeft:
		if e := t.threads[tid]; e != nil {
			result := int64(info.word[0])
			if e.faked != nil {
				result = *e.faked
				t.check(setResult(tid, result))
			}
			t.left(e, result)
		}
		t.threads[tid] = nil
	}
	return false
}

func (t *tracer) entered(e *event) (held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.call {
	case "accept4", ringSetup, ringMap: // noted when it has returned something
		return false
	}
	for _, one := range append([]*event{e}, e.also...) {
		t.clock++
		one.begin, one.tid = t.clock, e.tid
		t.events = append(t.events, one)
	}
	t.wake()
	for _, f := range t.injections {
		if f.matches(*e) {
			result := f.result(*e)
			e.faked = &result
			break
		}
	}
	for _, g := range t.gates {
		if g.tid == 0 && !g.opened && (g.matches(*e) || slices.ContainsFunc(e.also, func(o *event) bool { return g.matches(*o) })) {
			g.tid = e.tid
			close(g.reached)
			return true
		}
	}
	return false
}

func (t *tracer) left(e *event, result int64) {
	switch e.call {
	case "accept4":
		if result >= 0 {
			t.peers[int(result)] = t.address(e.buffer)
		}
		return
	case ringSetup:
		t.ringMade(e, result)
		return
	case ringMap:
		t.ringMapped(e, result)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	e.end, e.result = t.clock, result
	for _, o := range e.also {
		o.end, o.result = t.clock, result
	}
	t.wake()
}

// wake tells those who wait for events. t.mu is held.
func (t *tracer) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// check notes an error of injecting a result.
func (t *tracer) check(err error) {
	if err != nil && !errors.Is(err, unix.ESRCH) { // that thread was killed meanwhile
		t.fail(fmt.Errorf("injecting a result: %w", err))
	}
}

func (t *tracer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem == nil {
		t.problem = err
	}
}

// hold puts a gate before the next call that matches.
func (t *tracer) hold(matches func(event) bool) *gate {
	g := &gate{tracer: t, matches: matches, reached: make(chan struct{})}
	t.mu.Lock()
	t.gates = append(t.gates, g)
	t.mu.Unlock()
	return g
}

// inject puts results in the place of calls from now on.
func (t *tracer) inject(all ...*injection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.injections = append(t.injections, all...)
}

// open lets the thread go that the gate holds, or takes the gate away.
func (g *gate) open() {
	g.tracer.mu.Lock()
	g.opened = true
	g.tracer.mu.Unlock()
	// The tracer waits for a report. The Go runtime uses this signal itself and
	// ignores a needless one, but it makes a thread report.
	syscall.Kill(g.tracer.pid, syscall.SIGURG)
}

// now returns the position of the newest event.
func (t *tracer) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock
}

// list returns copies of the events that began after a position.
func (t *tracer) list(after int) ([]event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []event
	for _, e := range t.events {
		if e.begin > after {
			all = append(all, *e)
		}
	}
	return all, t.problem
}

// bytes reads the process's memory.
func (t *tracer) bytes(at uint64, n int) []byte {
	b := make([]byte, n)
	got, _ := t.memory.ReadAt(b, int64(at))
	return b[:got]
}

// text reads a string that ends with a zero.
func (t *tracer) text(at uint64) string {
	s, _, _ := strings.Cut(string(t.bytes(at, 512)), "\x00")
	return s
}

// address reads a socket's address.
func (t *tracer) address(at uint64) string {
	b := t.bytes(at, unix.SizeofSockaddrInet4)
	if len(b) < unix.SizeofSockaddrInet4 || binary.NativeEndian.Uint16(b) != unix.AF_INET {
		return "?"
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", b[4], b[5], b[6], b[7], binary.BigEndian.Uint16(b[2:]))
}

// eventfd is the path of every descriptor by which threads tell each other something.
const eventfd = "anon_inode:[eventfd]"

// path returns what a descriptor leads to by its present name.
func (t *tracer) path(fd int) (string, bool) {
	if peer, ok := t.peers[fd]; ok {
		return peer, true
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	if err != nil || name == eventfd {
		return name, err == nil
	}
	return t.relative(name)
}

// relative cuts the root off a name; it is false for names elsewhere.
func (t *tracer) relative(name string) (string, bool) {
	rel, err := filepath.Rel(t.root, name)
	return rel, err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
