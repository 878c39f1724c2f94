// Package dir is the object store that is a directory: for development, and for a file
// server that is mounted by NFS.
//
// An object is a file whose path below the root is its key. What is being written lies
// in the folder .snakream of the root, and gets its key by link(2), which refuses a
// name that is taken, or by rename(2) under a lock.
package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/snakream/snakream/tiering"
)

const (
	private   = ".snakream" // the folder of what is no object
	lockName  = private + "/lock"
	tempName  = private + "/tmp-"
	tempAge   = 24 * time.Hour       // after which nobody writes a temporary file any more
	lockRetry = 5 * time.Millisecond // between looks whether another process has let go
	chunk     = 256 << 10            // bytes that are copied between looks at the context
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Store is a tiering.Store on a directory. Several processes, on several machines, may
// use one directory if its file system has hard links and flock(2) that they share.
type Store struct {
	root *os.Root
	path string
	turn chan struct{} // holds one token while a Swap of this process is under way
}

// Open opens the store at root, which is made if only its last folder is missing, and
// removes what writers that were killed left behind a day ago or earlier.
func Open(root string) (*Store, error) {
	if err := os.Mkdir(root, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("dir: %w: %w", tiering.ErrConfig, err)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("dir: %w: %w", tiering.ErrConfig, err)
	}
	s := &Store{root: r, path: root, turn: make(chan struct{}, 1)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("dir: %w: %w", tiering.ErrConfig, err), r.Close())
	}
	return s, nil
}

func (s *Store) prepare() error {
	if err := s.root.Mkdir(private, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := s.entries(private)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := private + "/" + e.Name()
		info, err := s.root.Lstat(name)
		if err != nil || !strings.HasPrefix(name, tempName) || time.Since(info.ModTime()) < tempAge {
			continue
		}
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.syncDir(".")
}

// Close gives the directory back. No method may be called afterwards or be under way.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) String() string { return "directory " + s.path }

// Put implements tiering.Store.
func (s *Store) Put(ctx context.Context, key string, b tiering.Body) error {
	return s.do(ctx, "put", key, func() error {
		temp, err := s.writeTemp(ctx, io.NewSectionReader(b.R, 0, b.Size), b.Size, b.CRC32C)
		if err != nil {
			return err
		}
		err = s.link(temp, key)
		if errors.Is(err, fs.ErrExist) {
			err = s.compare(ctx, key, b)
		}
		return errors.Join(err, s.root.Remove(temp))
	})
}

// compare tells a repeated put from one of another object.
func (s *Store) compare(ctx context.Context, key string, b tiering.Body) error {
	size, crc, err := s.checksum(ctx, key)
	if err != nil {
		return err
	}
	if size != b.Size || crc != b.CRC32C {
		return tiering.ErrExists
	}
	return s.syncDirs(key) // whoever made the name may not have come to that
}

// Get implements tiering.Store.
func (s *Store) Get(ctx context.Context, key string, p []byte, off int64) error {
	return s.do(ctx, "get", key, func() error {
		if off < 0 {
			return errors.New("negative offset")
		}
		f, size, err := s.open(key)
		if err != nil {
			return err
		}
		defer f.Close()
		if off > size || int64(len(p)) > size-off {
			return tiering.ErrShort
		}
		for len(p) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := f.ReadAt(p[:min(len(p), chunk)], off)
			if p, off = p[n:], off+int64(n); errors.Is(err, io.EOF) && len(p) > 0 {
				return tiering.ErrShort
			} else if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		return nil
	})
}

// Stat implements tiering.Store. It reads the whole file for its CRC.
func (s *Store) Stat(ctx context.Context, key string) (info tiering.Info, err error) {
	err = s.do(ctx, "stat", key, func() error {
		size, crc, err := s.checksum(ctx, key)
		if err == nil {
			info = tiering.Info{Key: key, Size: size, CRC32C: crc, HasCRC: true}
		}
		return err
	})
	return info, err
}

// Delete implements tiering.Store. Folders stay.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.do(ctx, "delete", key, func() error {
		if info, err := s.root.Lstat(key); missing(err) || err == nil && info.IsDir() {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.root.Remove(key); err != nil && !missing(err) {
			return err
		}
		return s.syncDir(path.Dir(key))
	})
}

// Load implements tiering.Store.
func (s *Store) Load(ctx context.Context, key string, max int64) (data []byte, v tiering.Version, err error) {
	err = s.do(ctx, "load", key, func() error {
		data, err = s.read(key, max)
		if err == nil {
			v = versionOf(data)
		}
		return err
	})
	return data, v, err
}

// Swap implements tiering.Store.
func (s *Store) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (v tiering.Version, err error) {
	err = s.do(ctx, "swap", key, func() error {
		unlock, err := s.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		now, err := s.read(key, -1)
		switch {
		case errors.Is(err, tiering.ErrNotFound):
			if old != "" {
				return tiering.ErrConflict
			}
		case err != nil:
			return err
		case old == "" || versionOf(now) != old:
			return tiering.ErrConflict
		}
		temp, err := s.writeTemp(ctx, bytes.NewReader(data), int64(len(data)), crc32.Checksum(data, castagnoli))
		if err != nil {
			return err
		}
		if old != "" {
			if err := s.root.Rename(temp, key); err != nil {
				return errors.Join(err, s.root.Remove(temp))
			}
		} else if err := errors.Join(s.link(temp, key), s.root.Remove(temp)); errors.Is(err, fs.ErrExist) {
			return tiering.ErrConflict // made by a Put, which takes no lock
		} else if err != nil {
			return err
		}
		v = versionOf(data)
		return s.syncDirs(key)
	})
	if err != nil {
		return "", err
	}
	return v, nil
}

// versionOf names a content by its hash.
func versionOf(data []byte) tiering.Version {
	sum := sha256.Sum256(data)
	return tiering.Version(hex.EncodeToString(sum[:]))
}

// lock takes the lock of all Swaps, of this process first and then of all others.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-s.turn
		}
	}()
	f, err := s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close(); <-s.turn }, nil // closing gives the lock back
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}

// do runs an operation on a valid key and says of its error what it was about.
func (s *Store) do(ctx context.Context, op, key string, f func() error) error {
	err := ctx.Err()
	if err == nil {
		err = validKey(key)
	}
	if err == nil {
		err = f()
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: %w", tiering.ErrDenied, err)
	}
	return fmt.Errorf("dir: %s %q: %w", op, key, err)
}

// validKey refuses what is no plain path below the root.
func validKey(key string) error {
	if !fs.ValidPath(key) || key == "." || strings.ContainsRune(key, 0) {
		return errors.New("no valid key")
	}
	if key == private || strings.HasPrefix(key, private+"/") {
		return errors.New("the key is reserved")
	}
	return nil
}

// missing reports whether err says that there is no such file: neither at its name nor,
// with a file where a folder should be, could there be one.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// open opens an object. A folder is none.
func (s *Store) open(key string) (f *os.File, size int64, err error) {
	f, err = s.root.Open(key)
	if missing(err) {
		return nil, 0, tiering.ErrNotFound
	} else if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = tiering.ErrNotFound
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// read reads an object whole, if it has at most max bytes; a negative max is none.
func (s *Store) read(key string, max int64) ([]byte, error) {
	f, size, err := s.open(key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if max >= 0 && size > max {
		return nil, fmt.Errorf("%d bytes, more than %d", size, max)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

func (s *Store) checksum(ctx context.Context, key string) (size int64, crc uint32, err error) {
	f, size, err := s.open(key)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	hash := crc32.New(castagnoli)
	if err := copyAll(ctx, hash, f, size); err != nil {
		return 0, 0, err
	}
	return size, hash.Sum32(), nil
}

// copyAll copies exactly size bytes.
func copyAll(ctx context.Context, dst io.Writer, src io.Reader, size int64) error {
	for left := size; left > 0; left -= chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, min(left, chunk)); errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	return nil
}

// writeTemp writes a file that nobody knows yet, synced, and checks what it wrote.
func (s *Store) writeTemp(ctx context.Context, r io.Reader, size int64, crc uint32) (name string, err error) {
	name = tempName + rand.Text()
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	hash := crc32.New(castagnoli)
	err = copyAll(ctx, io.MultiWriter(f, hash), r, size)
	if got := hash.Sum32(); err == nil && got != crc {
		err = fmt.Errorf("the body has the CRC %08x, not %08x", got, crc)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, s.root.Remove(name))
	}
	return name, nil
}

// link gives a file its key, durably, unless the key is taken.
func (s *Store) link(temp, key string) error {
	if err := s.root.MkdirAll(path.Dir(key), 0o777); err != nil {
		return err
	}
	if err := s.root.Link(temp, key); err != nil {
		return err
	}
	return s.syncDirs(key)
}

// syncDirs makes a key durable: the entries of its file and of all folders above it.
func (s *Store) syncDirs(key string) error {
	for dir := key; dir != "."; {
		dir = path.Dir(dir)
		if err := s.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) syncDir(dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
