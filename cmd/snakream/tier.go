package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/mirror"
	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/dir"
	"github.com/snakream/snakream/tiering/s3"
)

// pingTimeout bounds the first words with a store.
const pingTimeout = 20 * time.Second

// open opens the object store that the settings name; nil when they name none. It does
// not find out whether the store of a provider is there: ping does.
func (t *tierConfig) open(ctx context.Context) (tiering.Store, error) {
	switch t.Kind {
	case tierDir:
		root, err := filepath.Abs(t.Dir) // it is named in logs and in the data directory
		if err != nil {
			return nil, err
		}
		return asStore(dir.Open(root))
	case tierS3:
		return asStore(s3.Open(ctx, t.S3))
	}
	return nil, nil
}

// asStore returns no store, rather than an empty one, with an error.
func asStore[S tiering.Store](s S, err error) (tiering.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ping finds out whether a store can be used at all.
func ping(ctx context.Context, store tiering.Store) error {
	p, ok := store.(interface{ Ping(context.Context) error })
	if !ok { // it was there when it was opened
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return p.Ping(ctx)
}

// openTier opens the tier for a server. A store that the data directory has not used
// before must answer: better to be told now than when the first data is to go there.
// One that it has used may be out of reach for the moment; the engine sees to that.
func (c *config) openTier(ctx context.Context) (tiering.Store, error) {
	store, err := c.Tier.open(ctx)
	if err == nil && store != nil && !usedBefore(c.DataDir, store) {
		err = ping(ctx, store)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrTier, err)
	}
	return store, nil
}

// usedBefore reports whether a data directory says that its objects are in this store.
func usedBefore(dataDir string, store tiering.Store) bool {
	where, err := engine.UsesTier(vfs.OS, dataDir)
	return err == nil && where == store.String()
}

// tierExitCode tells what kind of failure an error of the tier is. What somebody has to
// change first is a fault of the configuration.
func tierExitCode(err error) int {
	if errors.Is(err, mirror.ErrCopy) { // the settings are right, the directory is not
		return exitData
	}
	if tiering.Permanent(err) || errors.Is(err, mirror.ErrTaken) || errors.Is(err, engine.ErrNeedsTier) {
		return exitUsage
	}
	return exitFailure
}
