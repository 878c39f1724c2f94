package vfstest

import "fmt"

// Kind says what an Op does. Zero is no kind.
type Kind uint8

// The kinds of operations. Closing, Size, Fd and Free are none: they touch no
// disk, or cannot fail in a way that matters.
const (
	Create   Kind = iota + 1 // of a file
	Mkdir                    // of one directory; MkdirAll is a Mkdir and a SyncDir for each that is missing
	Open                     // by any of the three ways
	Read                     // of Len bytes at Off
	Write                    // of Len bytes at Off
	Allocate                 // up to size Len
	Truncate                 // to size Len
	Datasync
	SyncDir
	Rename // from Path to To
	Remove
	List
	Stat
	Lock
	kinds
)

var kindNames = [kinds]string{
	Create: "create", Mkdir: "mkdir", Open: "open", Read: "read", Write: "write", Allocate: "allocate",
	Truncate: "truncate", Datasync: "datasync", SyncDir: "syncdir", Rename: "rename", Remove: "remove",
	List: "list", Stat: "stat", Lock: "lock",
}

// String returns the name in lower case, as in a trace.
func (k Kind) String() string {
	if k == 0 || k >= kinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// changes says whether operations of this kind change or secure what is stored.
func (k Kind) changes() bool {
	switch k {
	case Open, Read, List, Stat:
		return false
	default:
		return true
	}
}

// Op is one operation, as hooks and traces see it.
type Op struct {
	Kind     Kind
	Path     string // cleaned; of an open file, the name it was opened by
	To       string // the new name, of a Rename
	Off, Len int64  // bytes; see the kinds
}

// String returns the op as a line of a trace: "write a/b.wal 4096+8192" for 8192
// bytes at 4096, "allocate a/b.wal 65536", "rename a/x a/y", "syncdir a".
func (op Op) String() string {
	switch op.Kind {
	case Read, Write:
		return fmt.Sprintf("%s %s %d+%d", op.Kind, op.Path, op.Off, op.Len)
	case Allocate, Truncate:
		return fmt.Sprintf("%s %s %d", op.Kind, op.Path, op.Len)
	case Rename:
		return fmt.Sprintf("%s %s %s", op.Kind, op.Path, op.To)
	default:
		return fmt.Sprintf("%s %s", op.Kind, op.Path)
	}
}
