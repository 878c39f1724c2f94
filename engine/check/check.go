// Package check reads a data directory that no process has open, says what is damaged
// in it and what that means, and repairs what can be repaired.
package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Severity says what a finding means.
type Severity uint8

// The severities.
const (
	Note  Severity = iota + 1 // nothing is wrong; somebody may want to know
	Hurts                     // a start works; some reads answer with an error
	Stops                     // a start refuses
)

func (s Severity) String() string { return [...]string{"", "note", "damaged", "REFUSED"}[s] }

// Finding is one thing that Verify has to say.
type Finding struct {
	Severity Severity
	Path     string
	Offset   int64  // of the damage in the file, in bytes; 0 when it is about the whole file
	Detail   string // what there is
	Means    string // for reads and starts
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: ", f.Severity, f.Path)
	if f.Offset > 0 {
		s += fmt.Sprintf("byte %d: ", f.Offset)
	}
	s += f.Detail
	if f.Means != "" {
		s += "; " + f.Means
	}
	return s
}

// Summary is what Verify has looked at, and what it found.
type Summary struct {
	Shards, Segments, Blobs, Streams int
	Evicted                          int    // of the segments: their payload is in the object store, and was not read
	Records                          uint64 // of the log, above low-water
	Bytes                            int64  // of segments, blobs and log
	Stops, Hurts, Notes              int
}

// Clean reports whether nothing is damaged.
func (s *Summary) Clean() bool { return s.Stops+s.Hurts == 0 }

func (s *Summary) String() string {
	return fmt.Sprintf("%d shards, %d streams, %d segments (%d of them in the object store, whose payload was not read), %d blobs, %d records of the log, %d bytes read: %d findings that refuse a start, %d that hurt reads, %d notes",
		s.Shards, s.Streams, s.Segments, s.Evicted, s.Blobs, s.Records, s.Bytes, s.Stops, s.Hurts, s.Notes)
}

// Names in a data directory that package engine makes. Its tests compare.
const (
	identityName    = "SNAKREAM"
	identityNew     = "SNAKREAM.new"
	identityRepair  = "SNAKREAM.repair"
	repairTemp      = "SNAKREAM.repair.tmp"
	lockName        = "LOCK"
	blobsName       = "blobs"
	quarantineName  = "quarantine"
	lostFoundName   = "lost+found"
	tierName        = "TIER"
	tierNew         = "TIER.new"
	refuses         = "a start refuses it"
	reservedNothing = "no reservation accounts for it: it is left alone"
)

var shardName = regexp.MustCompile(`^shard-(\d\d)$`)

// lockDirectory keeps the daemon out. A directory without a lock file is one that no
// process has open, and gets none.
func lockDirectory(fsys vfs.FS, dir string) (io.Closer, error) {
	path := filepath.Join(dir, lockName)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	l, err := fsys.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return l, nil
}

// census is what the top of a data directory holds.
type census struct {
	names  []string
	shards []int // numbers, ascending, as far as there are directories
}

// take reads the top of the directory. engine.ErrForeign, if it is none of ours.
func take(fsys vfs.FS, dir string) (*census, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	c := &census{names: names}
	ours := false
	for _, name := range names {
		switch m := shardName.FindStringSubmatch(name); {
		case m != nil:
			n, _ := strconv.Atoi(m[1]) // two digits
			c.shards = append(c.shards, n)
			ours = true
		case name == identityName || name == identityNew || name == identityRepair:
			ours = true
		}
	}
	if !ours {
		return nil, fmt.Errorf("%s: %w: there is neither a file %s nor a shard", dir, engine.ErrForeign, identityName)
	}
	return c, nil
}

func (c *census) has(name string) bool { return slices.Contains(c.names, name) }

// corruption returns the damage that an error is about, or nil.
func corruption(err error) *base.CorruptionError {
	c, _ := errors.AsType[*base.CorruptionError](err)
	return c
}
