// Command s3get reads objects of a bucket by the AWS SDK alone, in ranges of 1 MiB, and
// prints how fast that was: the yardstick for reads of data that has left the local disk.
//
//	s3get -endpoint http://127.0.0.1:7070 -bucket bench -bytes 1073741824 -workers 8
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "s3get:", err)
		os.Exit(1)
	}
}

// piece is one range of an object, [from, from+size).
type piece struct {
	key        string
	from, size int64
}

func run() error {
	endpoint := flag.String("endpoint", "http://127.0.0.1:7070", "`URL` of the provider")
	bucket := flag.String("bucket", "bench", "the bucket, in the path of URLs")
	prefix := flag.String("prefix", "", "read only objects whose names begin with it")
	total := flag.Int64("bytes", 1<<30, "how much to read, the largest objects first; over again when they hold less")
	size := flag.Int64("range", 1<<20, "bytes of a GET")
	workers := flag.Int("workers", 1, "GETs at once")
	flag.Parse()
	if *total <= 0 || *size <= 0 || *workers <= 0 {
		return errors.New("-bytes, -range and -workers must be above 0")
	}
	ctx := context.Background()
	client, err := connect(ctx, *endpoint, *workers)
	if err != nil {
		return err
	}
	pieces, err := plan(ctx, client, *bucket, *prefix, *total, *size)
	if err != nil {
		return err
	}
	var next atomic.Int64
	errs := make([]error, *workers)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range *workers {
		wg.Go(func() {
			buf := make([]byte, *size)
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return
				}
				errs[w] = get(ctx, client, *bucket, pieces[i], buf)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("%.1f MiB/s, %d GETs of %d bytes at most in %.3f s, %d at once\n",
		float64(*total)/(1<<20)/took.Seconds(), len(pieces), *size, took.Seconds(), *workers)
	return nil
}

// bufferBytes is the size of a connection's buffers, as the daemon has them.
const bufferBytes = 64 << 10

func connect(ctx context.Context, endpoint string, workers int) (*s3.Client, error) {
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = workers
		t.WriteBufferSize, t.ReadBufferSize = bufferBytes, bufferBytes
	})
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(transport), config.WithRegion("us-east-1"))
	if err != nil {
		return nil, err
	}
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint = &endpoint
		o.UsePathStyle = true
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}), nil
}

// plan cuts objects into ranges that hold total bytes in all.
func plan(ctx context.Context, client *s3.Client, bucket, prefix string, total, size int64) ([]piece, error) {
	var objects []piece
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			if n := aws.ToInt64(o.Size); n > 0 {
				objects = append(objects, piece{aws.ToString(o.Key), 0, n})
			}
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("no objects in %s/%s", bucket, prefix)
	}
	slices.SortFunc(objects, func(a, b piece) int { return int(b.size - a.size) })
	var pieces []piece
	for i := 0; total > 0; i = (i + 1) % len(objects) {
		o := objects[i]
		for o.from < o.size && total > 0 {
			n := min(size, o.size-o.from, total)
			pieces = append(pieces, piece{o.key, o.from, n})
			o.from += n
			total -= n
		}
	}
	return pieces, nil
}

// get reads a range into buf.
func get(ctx context.Context, client *s3.Client, bucket string, p piece, buf []byte) error {
	span := fmt.Sprintf("bytes=%d-%d", p.from, p.from+p.size-1)
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &p.key, Range: &span})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	if _, err := io.ReadFull(out.Body, buf[:p.size]); err != nil {
		return fmt.Errorf("%s, %s: %w", p.key, span, err)
	}
	// To its end, or the connection can't be used again.
	if _, err := io.Copy(io.Discard, out.Body); err != nil {
		return fmt.Errorf("%s, %s: %w", p.key, span, err)
	}
	return nil
}
