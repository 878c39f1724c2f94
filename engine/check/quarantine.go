package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/snakream/snakream/internal/vfs"
)

const (
	noteName  = "NOTE.txt"
	copyBytes = 1 << 20 // copied at once
)

// place returns where in the quarantine something of the directory goes.
func (r *repairer) place(path string) string {
	rel, err := filepath.Rel(r.dir, path)
	if err != nil {
		rel = filepath.Base(path)
	}
	return filepath.Join(r.plan.Quarantine, rel)
}

// quarantine takes a file out of the directory.
func (r *repairer) quarantine(path, why string) error {
	to := r.place(path)
	return r.step(fmt.Sprintf("move %s to %s: %s", path, to, why), func(fsys vfs.FS) error {
		if err := fsys.MkdirAll(filepath.Dir(to)); err != nil {
			return err
		}
		if err := fsys.Rename(path, to); err != nil {
			return err
		}
		return errors.Join(fsys.SyncDir(filepath.Dir(to)), fsys.SyncDir(filepath.Dir(path)))
	})
}

// keep copies a file that the repair is about to change into the quarantine, durably.
func (r *repairer) keep(path string) error {
	to := r.place(path)
	return r.step(fmt.Sprintf("copy %s to %s, before it is changed", path, to), func(fsys vfs.FS) error {
		f, err := fsys.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(copyFile(fsys, f, 0, to), f.Close())
	})
}

// cut puts everything from an offset of a file on into the quarantine, durably, and then
// makes it zero.
func (r *repairer) cut(path string, at int64, why error) error {
	to := fmt.Sprintf("%s.from-%d", r.place(path), at)
	return r.step(fmt.Sprintf("copy %s from byte %d on to %s, then make that part zero: %v", path, at, to, why), func(fsys vfs.FS) error {
		f, err := fsys.OpenAppend(path)
		if err != nil {
			return err
		}
		err = cutFile(fsys, f, at, to)
		return errors.Join(err, f.Close())
	})
}

func cutFile(fsys vfs.FS, f vfs.File, at int64, to string) error {
	if err := copyFile(fsys, f, at, to); err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, copyBytes)
	err = eachPart(f, at, size, func(p []byte, off int64) error {
		_, err := f.WriteAt(zeros[:len(p)], off)
		return err
	})
	if err != nil {
		return err
	}
	return f.Datasync()
}

// copyFile makes a file of everything from an offset on but for zeros at the end.
func copyFile(fsys vfs.FS, f vfs.File, at int64, to string) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if err := fsys.MkdirAll(filepath.Dir(to)); err != nil {
		return err
	}
	c, err := fsys.Create(to)
	if err != nil {
		return err
	}
	err = eachPart(f, at, size, func(p []byte, off int64) error {
		_, err := c.WriteAt(p, off-at)
		return err
	})
	if err == nil {
		err = c.Datasync()
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(to))
}

// eachPart calls fn for each part of [at, size) of a file that is not all zero.
func eachPart(f vfs.File, at, size int64, fn func(p []byte, off int64) error) error {
	buf := make([]byte, copyBytes)
	for off := at; off < size; off += copyBytes {
		p := buf[:min(copyBytes, size-off)]
		if n, err := f.ReadAt(p, off); n < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if len(bytes.Trim(p, "\x00")) == 0 {
			continue
		}
		if err := fn(p, off); err != nil {
			return err
		}
	}
	return nil
}

// writeNote says in the quarantine what came there from where, and why.
func (p *Plan) writeNote(fsys vfs.FS) error {
	if err := fsys.MkdirAll(p.Quarantine); err != nil {
		return err
	}
	path := filepath.Join(p.Quarantine, noteName)
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(p.note()), 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.SyncDir(p.Quarantine)
}

func (p *Plan) note() string {
	var b strings.Builder
	b.WriteString("A repair of the data directory did this, in this order:\n\n")
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "* %s\n", s)
	}
	b.WriteString("\nWhat is lost, as far as can be known:\n\n")
	for _, s := range p.Losses {
		fmt.Fprintf(&b, "* %s\n", s)
	}
	if len(p.Losses) == 0 {
		b.WriteString("* nothing\n")
	}
	if p.NewHistory {
		b.WriteString("\nThe data directory has begun a new history: the incarnation of every stream has changed.\n")
	}
	b.WriteString("\nWhat is here may hold data that is deleted by now. Nothing reads it any more; remove it when nobody needs it.\n")
	return b.String()
}
