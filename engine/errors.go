package engine

import (
	"errors"

	"github.com/snakream/snakream/engine/cold"
	"github.com/snakream/snakream/internal/vfs"
)

// Errors of Open.
var (
	ErrLocked     = vfs.ErrLocked // another process has the data directory open
	ErrForeign    = errors.New("not a Snakream data directory")
	ErrIncomplete = errors.New("incomplete data directory")
	ErrShards     = errors.New("the number of shards is fixed when the data directory is made")
	ErrTier       = errors.New("the object store can't be used")
	ErrNeedsTier  = errors.New("data that is only in the object store, and no tier is configured")
)

// ErrColdUnavailable is an error of reads: what they need is only in the object store,
// which can't be asked now. It may be tried again.
var ErrColdUnavailable = cold.ErrUnavailable

// Errors of Submit: the operation has not been taken and Done will not be called.
var (
	ErrOverloaded = errors.New("too many operations are waiting")
	ErrClosed     = errors.New("the engine is closed") // of reads too
	ErrFailed     = errors.New("the log has failed")
	ErrFenced     = errors.New("another node has taken over") // of the tier's prefix: nothing is written here any more
	ErrInvalid    = errors.New("invalid operation")           // its owner is at fault
)

// Errors of reads.
var (
	// ErrStale says that the view has been overtaken: its stream was deleted or
	// trimmed meanwhile. Load the view again.
	ErrStale = errors.New("the view has been overtaken")
	// ErrNotInMemory says that the answer needs the disk, and the caller did not
	// want that.
	ErrNotInMemory = errors.New("not in memory")
)
