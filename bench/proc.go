package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// family lists a process and its children, recursively: nginx works in a child.
func family(pid int) []int {
	pids := []int{pid}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids
	}
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, family(child)...)
		}
	}
	return pids
}

// cpuTime is the user and system time that a process and its children have used.
func cpuTime(pid int) (time.Duration, error) {
	var sum time.Duration
	for _, p := range family(pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			return 0, err
		}
		// The second field is a name in parentheses that may hold anything.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 13 {
			return 0, fmt.Errorf("/proc/%d/stat: only %d fields", p, len(f))
		}
		for _, s := range f[11:13] { // utime, stime
			ticks, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/stat: %w", p, err)
			}
			sum += time.Duration(ticks) * clockTick
		}
	}
	return sum, nil
}

// rssBytes is the resident memory of a process and its children.
func rssBytes(pid int) (int64, error) {
	var sum int64
	for _, p := range family(pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p))
		if err != nil {
			return 0, err
		}
		f := strings.Fields(string(b))
		if len(f) < 2 {
			return 0, fmt.Errorf("/proc/%d/statm: only %d fields", p, len(f))
		}
		pages, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/statm: %w", p, err)
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// peakRSS samples the resident memory until stop is closed and sends the largest
// value that it saw.
func peakRSS(pid int, stop <-chan struct{}) <-chan int64 {
	out := make(chan int64, 1)
	go func() { // ends when stop is closed
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var peak int64
		for {
			if n, err := rssBytes(pid); err == nil {
				peak = max(peak, n)
			}
			select {
			case <-stop:
				out <- peak
				return
			case <-tick.C:
			}
		}
	}()
	return out
}

// memoryWatch finds out how far the resident memory of a process rises.
type memoryWatch struct {
	pid   int
	base  int64
	exact bool // the kernel's own high-water mark begins where the watch does
	stop  chan struct{}
	peak  <-chan int64
}

// watchMemory begins a watch, which growth ends. Of an unknown process (0) all is zero.
func watchMemory(pid int) (*memoryWatch, error) {
	w := &memoryWatch{pid: pid, stop: make(chan struct{})}
	if pid == 0 {
		return w, nil
	}
	// Writing 5 resets VmHWM. Who may not do that has the samples alone.
	w.exact = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) == nil
	var err error
	if w.base, err = rssBytes(pid); err != nil {
		return nil, err
	}
	w.peak = peakRSS(pid, w.stop)
	return w, nil
}

// growth ends the watch and returns by how many bytes the memory rose at most.
func (w *memoryWatch) growth() (int64, error) {
	close(w.stop)
	if w.pid == 0 {
		return 0, nil
	}
	top := <-w.peak
	if w.exact {
		mark, err := highWater(w.pid)
		if err != nil {
			return 0, err
		}
		top = max(top, mark)
	}
	return max(top-w.base, 0), nil
}

// highWater is the VmHWM of a process alone, in bytes.
func highWater(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib int64
			_, err := fmt.Sscan(v, &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status: no VmHWM", pid)
}
