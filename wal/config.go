package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs"
)

// Bounds of Config.FileBytes, in bytes.
const (
	MinFileBytes     = 64 << 10
	DefaultFileBytes = 64 << 20
	MaxFileBytes     = 4 << 30
)

// BatchBytes is where a turn should close a batch: it is the sum of RecordBytes,
// bodies above 64 KiB not counted, up to which staging allocates nothing.
const BatchBytes = 4 << 20

// Position is a place in a log: a record and the batch that it is in. As low-water
// it names the last record that segments hold, which is the last one of its batch.
// The zero Position is before the first record.
type Position struct {
	LSN   base.LSN
	Batch uint64
}

// next returns the position of the first record of the next batch.
func (p Position) next() Position { return Position{LSN: p.LSN + 1, Batch: p.Batch + 1} }

// Config says where a log is and how it behaves. It must not change while the log
// is open.
type Config struct {
	FS  vfs.FS
	Dir string // of this log alone

	// FileBytes is the size of a file: a multiple of 4 KiB within MinFileBytes and
	// MaxFileBytes; 0 is DefaultFileBytes. One record fits a file, and may leave
	// the rest of the one before it unused; so records should stay well below it. It
	// may differ from the last start's: files in use keep their size.
	FileBytes int64

	// Spares is how many released files are kept, zeroed, for the next rotations.
	// Others are removed. 0 keeps none; the file after the current one, which is
	// always kept ready, doesn't count.
	Spares int

	// Ready is called on the preparer's goroutine, after Begin was false, when it
	// is worth calling again: the next file is ready, or preparing it has failed for
	// want of space (NoSpace), or the log has failed (Err). It must not block. May be
	// nil.
	Ready func()

	// Before, if not nil, is called by Open when the log has been read and is sound,
	// before anything is written. Its error ends Open and comes back as it is.
	Before func() error

	// Salt returns random numbers; nil is a cryptographic source. Only tests need
	// another one.
	Salt func() uint64

	// Logf reports what an operator should know: torn records, a log that begins
	// anew, a full disk. May be nil.
	Logf func(format string, args ...any)
}

// withDefaults returns the configuration with its zero fields filled in, or
// everything that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.FileBytes == 0 {
		c.FileBytes = DefaultFileBytes
	}
	if c.Ready == nil {
		c.Ready = func() {}
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	if c.Salt == nil {
		c.Salt = randomSalt
	}
	var errs []error
	if c.FS == nil || c.Dir == "" {
		errs = append(errs, errors.New("wal: a file system and a directory are needed"))
	}
	if c.FileBytes < MinFileBytes || c.FileBytes > MaxFileBytes || c.FileBytes%block != 0 {
		errs = append(errs, fmt.Errorf("wal: FileBytes is %d, not a multiple of %d within %d and %d",
			c.FileBytes, block, MinFileBytes, MaxFileBytes))
	}
	if c.Spares < 0 {
		errs = append(errs, fmt.Errorf("wal: Spares is %d", c.Spares))
	}
	return c, errors.Join(errs...)
}

func randomSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// maxRecord returns the largest sum of a record's head and body, in bytes, for which
// it fits a file.
func (c Config) maxRecord() int64 { return min(c.FileBytes-headerBytes-recordHeaderBytes, maxPayload) }
