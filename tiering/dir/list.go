package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/snakream/snakream/tiering"
)

// List implements tiering.Store. It holds the names of one folder at a time, and of
// those above it. An object that is made or deleted meanwhile is listed or not.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tiering.Info, error] {
	return func(yield func(tiering.Info, error) bool) {
		err := s.walk(ctx, "", prefix, func(info tiering.Info) error {
			if !yield(info, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(tiering.Info{}, fmt.Errorf("dir: list %q: %w", prefix, err))
		}
	}
}

// walk visits the objects of a folder, "" or a path that ends in a slash, in the order
// of their keys.
func (s *Store) walk(ctx context.Context, folder, prefix string, visit func(tiering.Info) error) error {
	entries, err := s.entries(strings.TrimSuffix(folder, "/"))
	if missing(err) && folder != "" {
		return nil
	} else if err != nil {
		return err
	}
	// A folder sorts by what the keys in it have next, a slash.
	key := func(e fs.DirEntry) string {
		if e.IsDir() {
			return folder + e.Name() + "/"
		}
		return folder + e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(key(a), key(b)) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := key(e)
		switch {
		case key == private+"/":
		case e.IsDir():
			if strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key) {
				if err := s.walk(ctx, key, prefix, visit); err != nil {
					return err
				}
			}
		case e.Type().IsRegular() && strings.HasPrefix(key, prefix):
			info, err := e.Info()
			if missing(err) {
				continue
			} else if err != nil {
				return err
			}
			if err := visit(tiering.Info{Key: key, Size: info.Size()}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// entries reads a folder; "" is the root.
func (s *Store) entries(folder string) ([]fs.DirEntry, error) {
	f, err := s.root.Open(cmp.Or(folder, "."))
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	return entries, errors.Join(err, f.Close())
}
