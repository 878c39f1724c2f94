// Package vfs is the file system as Snakream uses it: the few operations that a
// durable store needs, so that tests can crash, fail and trace them.
package vfs

import (
	"errors"
	"io"
)

// ErrNoSpace is what every operation reports that finds the disk or the quota full.
// Compare with errors.Is; the errno (ENOSPC, EDQUOT) matches as well.
var ErrNoSpace = errors.New("no space left on device")

// FS is a file system. Names are paths as package path/filepath makes them.
// All methods may be called concurrently. Errors match fs.ErrNotExist and
// fs.ErrExist of package io/fs where they apply.
type FS interface {
	// Create makes a new file for reading and writing; it must not exist
	// (fs.ErrExist). The directory entry is durable only after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenDirect opens an existing file for reading and writing past the page
	// cache (O_DIRECT) where the file system can, and buffered where it cannot.
	// Buffers, offsets and lengths must then be multiples of BlockSize; use
	// Aligned for memory.
	OpenDirect(name string) (File, error)
	// OpenAppend opens an existing file for reading and writing, buffered.
	OpenAppend(name string) (File, error)
	// Rename replaces newname by oldname, atomically. Durable after SyncDir of
	// the directory (of both, when they differ).
	Rename(oldname, newname string) error
	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	// MkdirAll makes a directory and its parents and syncs each parent that got
	// a new entry.
	MkdirAll(dir string) error
	// List returns the names of the entries of dir, sorted.
	List(dir string) ([]string, error)
	// Stat returns the size of a file; fs.ErrNotExist if there is none. Of a
	// directory it says only that it exists.
	Stat(name string) (size int64, err error)
	// SyncDir makes the entries of dir durable. After an error nothing is known
	// about them, and a second call that succeeds proves nothing.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on the file name, creating it if need be. It
	// fails at once with ErrLocked while another process (or another Lock of
	// this one) holds it. Closing releases; so does the end of the process.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes that can still be written below dir.
	Free(dir string) (uint64, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Allocate reserves disk space for [0, size) and extends the file to size, so
	// that later writes below size cannot fail for want of space (ErrNoSpace).
	Allocate(size int64) error
	// Truncate changes the size.
	Truncate(size int64) error
	// Datasync makes everything written so far durable, and the size (fdatasync).
	// After an error the page cache may claim what the disk doesn't have: calling
	// it again proves nothing, only writing the same bytes again and syncing does.
	Datasync() error
	// Size returns the current size in bytes.
	Size() (int64, error)
	// Fd returns the file descriptor for sendfile, or false when there is none
	// (a file in memory).
	Fd() (uintptr, bool)
}

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("locked by another process")

// BlockSize is the unit of direct I/O, in bytes.
const BlockSize = 4096
