// Package s3 is the object store that is a bucket of Amazon S3 or of a provider that
// speaks its protocol.
//
// It asks no more of a provider than it must. A body is sent plain, with its length and
// a CRC32C in a header: aws-chunked bodies and trailers, which many providers don't
// know, are never used, nor are multipart uploads, of which an abandoned one costs
// money unseen. Conditional writes (If-None-Match and If-Match) are what a provider has
// to have; tiering.Check finds out.
//
// A call is tried several times, and is always bounded in time: a connection that makes
// no progress is given up, and so is a call that takes far longer than its size
// explains. What a write came to when its answer was lost is looked up before it is
// reported: our own success would else look like a conflict.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/snakream/snakream/tiering"
)

// The modes of Options.Checksum.
const (
	// ChecksumAuto sends the CRC32C of what is put and asks for it back.
	ChecksumAuto = "auto"
	// ChecksumNone does neither, for a provider that refuses headers that it doesn't
	// know. Such a provider can't say that what it holds is what was sent.
	ChecksumNone = "none"
)

// Options say where the bucket is and how to speak with it. The credentials are those
// that the SDK's standard chain finds: environment, profile, web identity, container,
// instance.
type Options struct {
	Bucket    string // required
	Prefix    string // begins all keys; a slash is put behind it unless it is ""
	Endpoint  string // http or https URL of the provider; "" is AWS, or what the SDK's environment says
	Region    string // "" is what the SDK's environment says and, with an Endpoint, us-east-1
	PathStyle bool   // the bucket is in the path and not in the host name

	SSE      string // server-side encryption: "" (the bucket's own), "AES256" or "aws:kms"
	KMSKeyID string // key of "aws:kms"; "" is the account's
	Checksum string // ChecksumAuto (also "") or ChecksumNone

	Parallel int // connections kept open, as many as calls run at once; 0 means 16

	ConnectTimeout  time.Duration // of making a connection; 0 means 5 s
	ResponseTimeout time.Duration // from the end of a request to the head of its answer; 0 means 30 s
	StallTimeout    time.Duration // for which a transfer may stand still; 0 means 20 s
	// MinBytesPerSecond bounds a transfer as a whole: its call is given up when it is
	// slower than this on average, beside what timeouts and retries may take. Time
	// spent in reading the body, as for a bandwidth limit, doesn't count. 0 means 64 KiB.
	MinBytesPerSecond int64

	attempts   int           // of one call; 0 means 5
	maxBackoff time.Duration // between attempts; 0 means 5 s
}

// complete fills in defaults and returns all that is wrong.
func (o *Options) complete() error {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("s3: %w: "+format, append([]any{tiering.ErrConfig}, args...)...))
	}
	if o.Bucket == "" {
		refuse("the bucket is missing")
	}
	if strings.HasPrefix(o.Prefix, "/") || strings.Contains(o.Prefix, "//") {
		refuse("the prefix %q has an empty part", o.Prefix)
	}
	if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	if o.Endpoint != "" {
		// The URL is not part of what is said: it may hold what somebody took for the
		// place of a password.
		u, err := url.Parse(o.Endpoint)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			refuse("the endpoint must be a URL such as https://s3.example.com")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			refuse("the endpoint must be a URL without user, query and fragment; credentials come from the environment")
		}
	}
	if o.SSE != "" && o.SSE != "AES256" && o.SSE != "aws:kms" {
		refuse("server-side encryption %q: it must be AES256 or aws:kms", o.SSE)
	}
	if o.KMSKeyID != "" && o.SSE != "aws:kms" {
		refuse("a KMS key needs the server-side encryption aws:kms")
	}
	if o.Checksum == "" {
		o.Checksum = ChecksumAuto
	}
	if o.Checksum != ChecksumAuto && o.Checksum != ChecksumNone {
		refuse("checksum mode %q: it must be %s or %s", o.Checksum, ChecksumAuto, ChecksumNone)
	}
	if o.Parallel < 0 || o.MinBytesPerSecond < 0 || min(o.ConnectTimeout, o.ResponseTimeout, o.StallTimeout) < 0 {
		refuse("timeouts, parallelism and lowest rate must not be negative")
	}
	fill(&o.Parallel, 16)
	fill(&o.ConnectTimeout, 5*time.Second)
	fill(&o.ResponseTimeout, 30*time.Second)
	fill(&o.StallTimeout, 20*time.Second)
	fill(&o.MinBytesPerSecond, 64<<10)
	fill(&o.attempts, 5)
	fill(&o.maxBackoff, 5*time.Second)
	return errors.Join(wrong...)
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Store is a tiering.Store in a bucket.
type Store struct {
	o       Options
	up      *awss3.Client // of uploads and small calls
	down    *awss3.Client // of downloads
	secrets *secrets
}

// Open reads the SDK's environment and checks the options. It makes no call: that the
// store is there, Ping tells.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Store{o: o}
	if err := s.connect(ctx); err != nil {
		return nil, fmt.Errorf("s3: %w: options and the SDK's environment: %w", tiering.ErrConfig, err)
	}
	return s, nil
}

func (s *Store) String() string {
	where := "s3://" + s.o.Bucket + "/" + s.o.Prefix
	if s.o.Endpoint != "" {
		where += " at " + s.o.Endpoint
	}
	return where
}

// Ping finds out by one cheap call whether the bucket can be used: that it is there, in
// that region, for those credentials, by this machine's clock. The error is ErrConfig
// or ErrDenied, with the provider's reason and what to change; or any other when the
// provider is there but can't answer now.
func (s *Store) Ping(ctx context.Context) error {
	ctx, d := s.bounded(ctx, 0)
	defer d.stop()
	out, err := s.up.ListObjectsV2(ctx, &awss3.ListObjectsV2Input{
		Bucket: &s.o.Bucket, Prefix: &s.o.Prefix, MaxKeys: aws.Int32(1), EncodingType: "url",
	})
	if err != nil {
		return s.fail(ctx, "ping", "", unreachable(err))
	}
	if got := aws.ToString(out.Name); got != s.o.Bucket {
		return fmt.Errorf("s3: ping: %w: %s answers, but not as S3 does: change the endpoint", tiering.ErrConfig, s)
	}
	return nil
}

// key is the provider's name of an object.
func (s *Store) key(key string) *string { return aws.String(s.o.Prefix + key) }
