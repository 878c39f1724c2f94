// Command s3testd is the S3 server of our tests: the front end of versitygw over its
// POSIX back end, without everything else that versitygw can do, which makes it quick
// to build and to start.
//
// It is a program and no package because that back end changes the working directory
// of its process. So all paths that it is given must be absolute. A bucket is a folder
// of -dir. It is ready when GET /healthz answers 200.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

// Bounds that tests don't reach.
const (
	maxConnections = 1000
	maxCopyBytes   = 5 << 30 // with 0 the server refuses every copy
	maxParts       = 10000
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "s3testd:", err)
		os.Exit(1)
	}
}

func run() error {
	addr := flag.String("addr", "127.0.0.1:7070", "host and port to listen on, or the path of a socket")
	dir := flag.String("dir", "", "folder of the buckets; its file system must have extended attributes")
	access := flag.String("access", "testkey", "the access key that is accepted")
	secret := flag.String("secret", "testsecret", "its secret")
	cert := flag.String("cert", "", "file of the TLS certificate; without it, plain HTTP")
	key := flag.String("key", "", "file of its key")
	flag.Parse()

	store, err := posix.New(*dir, meta.XattrMeta{}, posix.PosixOpts{Concurrency: maxConnections, CopyObjectThreshold: maxCopyBytes})
	if err != nil {
		return err
	}
	account := auth.Account{Access: *access, Secret: *secret, Role: auth.RoleAdmin}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    *access,
		RootUserSecret:    *secret,
		Region:            "us-east-1",
		IAMService:        accounts{auth.NewIAMServiceSingle(account)},
		Ports:             []string{*addr},
		MaxConnections:    maxConnections,
		MaxRequests:       maxConnections,
		MultipartMaxParts: maxParts,
		KeepAlive:         true,
		Quiet:             true,
		HealthPath:        "/healthz",
		CertFile:          *cert,
		KeyFile:           *key,
		S3Options:         []s3api.Option{s3api.WithMiddleware("/", readToEnd)},
	})
}

// readToEnd reads what the client of a refused upload still sends. Left alone, the
// server closes the connection with the body half read, and the client often sees a
// reset where AWS shows it the refusal.
func readToEnd(c fiber.Ctx) error {
	err := c.Next()
	if body := c.Request().BodyStream(); body != nil && c.Request().Header.ContentLength() > 0 {
		_, _ = io.Copy(io.Discard, body) // a client that has gone needs no answer
	}
	return err
}

// accounts answers an access key that it doesn't know as AWS does: with 403
// InvalidAccessKeyId, where versitygw would say 404.
type accounts struct{ auth.IAMService }

// GetUserAccount implements auth.IAMService.
func (a accounts) GetUserAccount(access string) (auth.Account, error) {
	account, err := a.IAMService.GetUserAccount(access)
	if err != nil {
		err = auth.ErrNoSuchUser
	}
	return account, err
}
