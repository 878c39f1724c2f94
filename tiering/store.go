// Package tiering says what an object store is to Snakream: the few calls that move
// sealed segments, snapshot blobs and the mirror to it and back, the names of the
// objects, and the pace at which they go.
//
// A key is written once. An object number is part of each segment's and blob's key and
// never used twice, so a key that was deleted never comes back with other bytes, and
// what a node that lost its epoch still sends can't meet what its successor wrote. The
// one object that changes is the mirror, by compare-and-set.
package tiering

import (
	"context"
	"io"
	"iter"
)

// Store is an object store under one prefix, to which keys are relative. All methods
// are safe for concurrent use and return soon after ctx ends, with an error that
// matches ctx.Err().
//
// An error that matches none of this package's is temporary: the call may be made
// again, and of a Put, Swap or Delete it leaves open whether it has taken effect, or
// will in a moment.
type Store interface {
	// Put stores an object that isn't there yet, whole or not at all; the object is
	// durable on return. It returns nil also when the very same object (size and CRC)
	// is there already, and else ErrExists. The body is read as a stream.
	Put(ctx context.Context, key string, b Body) error
	// Get fills p with the bytes [off, off+len(p)) of an object. It returns
	// ErrNotFound, or ErrShort when the object ends before off+len(p); what p holds
	// after an error is of no meaning. The bytes are as the store sent them: it is the
	// caller who checks them.
	Get(ctx context.Context, key string, p []byte, off int64) error
	// Stat looks an object up. It returns ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes an object, for good on return. It returns nil when there is none.
	Delete(ctx context.Context, key string) error
	// List yields all objects whose key begins with prefix, in ascending order of the
	// keys' bytes, without their CRC; also those that are no names of ours. After an
	// error it ends.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Load reads a small object whole, of one version. It returns ErrNotFound, and an
	// error when the object has more than max bytes.
	Load(ctx context.Context, key string, max int64) (data []byte, v Version, err error)
	// Swap replaces an object of version old, or makes it when old is "", and returns
	// the new version, which is durable. It returns ErrConflict when the object is of
	// another version, is there though it should not be, or is not there though it
	// should. A lost answer is looked up: if the object holds exactly data, that is
	// success.
	Swap(ctx context.Context, key string, data []byte, old Version) (Version, error)
	// String says where the store is, for people and logs. It holds no secret.
	String() string
}

// Body is what a Put sends.
type Body struct {
	R      io.ReaderAt // holds at least Size bytes; may be read several times, also concurrently
	Size   int64       // in bytes
	CRC32C uint32      // of the Size bytes, by Castagnoli's polynomial
}

// Info is what a store says about an object.
type Info struct {
	Key    string
	Size   int64  // in bytes
	CRC32C uint32 // as the store computed it over what it holds; only with HasCRC
	HasCRC bool
}

// Version names one content of an object that Swap changes. It is opaque, and "" is
// none. Equal contents may have equal versions.
type Version string
