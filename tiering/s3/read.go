package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/snakream/snakream/tiering"
)

var (
	errBody     = errors.New("the answer ended early or is damaged") // which the SDK doesn't retry
	errTooLarge = errors.New("the object is larger than allowed")
)

// Get implements tiering.Store.
func (s *Store) Get(ctx context.Context, key string, p []byte, off int64) error {
	if off < 0 {
		return fmt.Errorf("s3: get %q: negative offset", key)
	}
	call, d := s.bounded(ctx, int64(len(p)))
	defer d.stop()
	if len(p) == 0 { // there is no range for this
		there, err := s.head(call, key)
		if err == nil && off > there.Size {
			err = tiering.ErrShort
		}
		if err != nil {
			return s.fail(call, "get", key, err)
		}
		return nil
	}
	err := s.retried(call, func() error {
		n, err := s.getRange(call, key, p, off)
		p, off = p[n:], off+int64(n) // objects don't change: what has come needn't come again
		return err
	})
	if err != nil {
		return s.fail(call, "get", key, err)
	}
	return nil
}

// retried repeats a download whose body ended early, as the SDK repeats what failed
// before the body.
func (s *Store) retried(ctx context.Context, try func() error) error {
	backoff := tiering.Backoff{Min: 50 * time.Millisecond, Max: s.o.maxBackoff}
	for attempt := 1; ; attempt++ {
		err := try()
		if !errors.Is(err, errBody) || attempt >= s.o.attempts {
			return err
		}
		select {
		case <-time.After(backoff.Next()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// getRange makes one ranged GET and returns how much of p it filled.
func (s *Store) getRange(ctx context.Context, key string, p []byte, off int64) (int, error) {
	last := off + int64(len(p)) - 1
	out, err := s.down.GetObject(ctx, &awss3.GetObjectInput{
		Bucket: &s.o.Bucket, Key: s.key(key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, last)),
	})
	if err != nil {
		return 0, missing(err)
	}
	defer out.Body.Close()
	first, end, ok := parseRange(aws.ToString(out.ContentRange))
	if !ok && off == 0 { // the whole object: the provider saw that the range has all of it, or knows no ranges
		first, end, ok = 0, aws.ToInt64(out.ContentLength)-1, true
	}
	if !ok || first != off {
		return 0, fmt.Errorf("asked for bytes %d-%d, got the range %q", off, last, aws.ToString(out.ContentRange))
	}
	if end < last {
		return 0, tiering.ErrShort
	}
	n, err := io.ReadFull(out.Body, p)
	if err != nil {
		return n, fmt.Errorf("%w, at %d of %d bytes: %w", errBody, n, len(p), err)
	}
	return n, nil
}

// parseRange reads a Content-Range: bytes first-last/size.
func parseRange(text string) (first, last int64, ok bool) {
	text, ok = strings.CutPrefix(text, "bytes ")
	if !ok {
		return 0, 0, false
	}
	text, _, _ = strings.Cut(text, "/")
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, false
	}
	a, errA := strconv.ParseUint(from, 10, 63)
	b, errB := strconv.ParseUint(to, 10, 63)
	if errA != nil || errB != nil || b < a {
		return 0, 0, false
	}
	return int64(a), int64(b), true
}

// missing translates what a provider says of an object that isn't there, or not as far
// as it was asked for.
func missing(err error) error {
	switch code := codeOf(err); {
	case code == "NoSuchKey":
		return tiering.ErrNotFound
	case code == "InvalidRange", statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		return tiering.ErrShort
	}
	return err
}

// Load implements tiering.Store.
func (s *Store) Load(ctx context.Context, key string, max int64) ([]byte, tiering.Version, error) {
	call, d := s.bounded(ctx, max)
	defer d.stop()
	data, v, err := s.load(call, key, max)
	if err != nil {
		return nil, "", s.fail(call, "load", key, err)
	}
	return data, v, nil
}

// load is Load with plain errors. With errTooLarge it returns the version.
func (s *Store) load(ctx context.Context, key string, max int64) (data []byte, v tiering.Version, err error) {
	err = s.retried(ctx, func() error {
		data, v, err = s.loadOnce(ctx, key, max)
		return err
	})
	return data, v, err
}

func (s *Store) loadOnce(ctx context.Context, key string, max int64) ([]byte, tiering.Version, error) {
	in := &awss3.GetObjectInput{Bucket: &s.o.Bucket, Key: s.key(key)}
	if s.o.Checksum == ChecksumAuto {
		in.ChecksumMode = types.ChecksumModeEnabled // the SDK then verifies the body while it is read
	}
	out, err := s.down.GetObject(ctx, in)
	if err != nil {
		return nil, "", missing(err)
	}
	defer out.Body.Close()
	size, v := aws.ToInt64(out.ContentLength), tiering.Version(aws.ToString(out.ETag))
	if v == "" || out.ContentLength == nil {
		return nil, "", errors.New("the answer has no ETag or no length")
	}
	if size > max {
		return nil, v, fmt.Errorf("%w: %d bytes, more than %d", errTooLarge, size, max)
	}
	data, err := io.ReadAll(io.LimitReader(out.Body, size+1))
	if err != nil || int64(len(data)) != size {
		return nil, "", fmt.Errorf("%w, at %d of %d bytes: %w", errBody, len(data), size, err)
	}
	return data, v, nil
}

// object is what a provider and the object itself say about it.
type object struct {
	tiering.Info
	claimed string // the CRC32C that it was put with, as crcMetadata has it
}

// is reports whether the object is b, put by us.
func (o object) is(b tiering.Body) bool {
	if o.Size != b.Size {
		return false
	}
	if o.HasCRC {
		return o.CRC32C == b.CRC32C
	}
	return o.claimed == encodeCRC(b.CRC32C)
}

// Stat implements tiering.Store. The provider's CRC is there only if it keeps one.
func (s *Store) Stat(ctx context.Context, key string) (tiering.Info, error) {
	call, d := s.bounded(ctx, 0)
	defer d.stop()
	there, err := s.head(call, key)
	if err != nil {
		return tiering.Info{}, s.fail(call, "stat", key, err)
	}
	there.Key = key
	return there.Info, nil
}

// head looks an object up. The answer to a HEAD has no body and so no reason: a missing
// bucket looks like a missing object, a wrong clock like a missing permission. So the
// reason of a refusal is asked for by a GET.
func (s *Store) head(ctx context.Context, key string) (object, error) {
	there, err := s.headOnce(ctx, key)
	if status := statusOf(err); status < 400 || status > 499 {
		return there, err
	}
	_, err = s.getRange(ctx, key, make([]byte, 1), 0)
	if err == nil || errors.Is(err, tiering.ErrShort) || errors.Is(err, errBody) { // it is there now
		return s.headOnce(ctx, key)
	}
	return object{}, err
}

func (s *Store) headOnce(ctx context.Context, key string) (object, error) {
	in := &awss3.HeadObjectInput{Bucket: &s.o.Bucket, Key: s.key(key)}
	if s.o.Checksum == ChecksumAuto {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := s.up.HeadObject(ctx, in)
	if err != nil {
		return object{}, err
	}
	if out.ContentLength == nil {
		return object{}, errors.New("the answer has no length")
	}
	there := object{Info: tiering.Info{Size: *out.ContentLength}, claimed: out.Metadata[crcMetadata]}
	// What isn't the CRC of the whole object doesn't decode: that of a multipart upload
	// ends in the number of its parts.
	if crc, err := base64.StdEncoding.DecodeString(aws.ToString(out.ChecksumCRC32C)); err == nil && len(crc) == 4 {
		there.CRC32C, there.HasCRC = binary.BigEndian.Uint32(crc), true
	}
	return there, nil
}
