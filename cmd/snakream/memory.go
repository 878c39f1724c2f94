package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Memory that cannot be set, in bytes.
const (
	frozenMemtables = 2           // beside the active one, a shard
	batchBuffers    = 2 * 8 << 20 // what a shard stages and what it writes
	connectionBytes = 8 << 10     // of a connection that does something
	programBytes    = 128 << 20   // code, runtime, block cache and small things
)

// checkMemory compares the sum of what the settings allow with what the machine or
// the control group has.
func (c *config) checkMemory() []string {
	have, from := memoryLimit()
	if have == 0 {
		return nil
	}
	if sum := c.memoryBound(); sum > have {
		return []string{fmt.Sprintf("memory: the settings allow %d MiB (memtable-bytes × %d × shards, max-inflight-body-bytes, max-state-bytes, cold-cache-bytes, max-connections), but %s is %d MiB",
			sum>>20, 1+frozenMemtables, from, have>>20)}
	}
	return nil
}

// memoryBound returns the sum of all bounds, in bytes. A sum that does not fit
// becomes the largest number there is.
func (c *config) memoryBound() int64 {
	shards := int64(c.Engine.Shards)
	if shards == 0 {
		shards = max(1, int64(runtime.NumCPU())/2)
	}
	sum := int64(programBytes)
	for _, part := range []int64{
		shards * ((1+frozenMemtables)*c.Engine.MemtableBytes + batchBuffers),
		c.Server.MaxInflightBodyBytes,
		c.Engine.MaxStateBytes,
		c.coldCache(),
		int64(c.Server.MaxConnections) * connectionBytes,
	} {
		if sum += part; sum < 0 {
			return 1<<63 - 1
		}
	}
	return sum
}

// coldCache returns what a tier needs of the memory, in bytes.
func (c *config) coldCache() int64 {
	if c.Tier.Kind == tierOff {
		return 0
	}
	return c.Engine.ColdCacheBytes
}

// memoryLimit returns the smaller of the machine's memory and the control group's
// limit, in bytes, and which of them it is; 0 when neither can be read.
func memoryLimit() (limit int64, from string) {
	limit, from = machineMemory(), "the machine's memory"
	if group := groupMemory(); group > 0 && (limit == 0 || group < limit) {
		limit, from = group, "the control group's limit"
	}
	return limit, from
}

func machineMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 53)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// groupMemory reads the limit of the control group, version 2 first. No limit, and
// no control group, is 0.
func groupMemory() int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<60 {
			return n
		}
	}
	return 0
}
