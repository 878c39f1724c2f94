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
