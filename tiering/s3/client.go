package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	defaultRegion = "us-east-1" // what providers that have no regions are asked for
	bufferBytes   = 64 << 10    // of a connection, each way
)

// connect makes the clients. There are two because the time that a connection may go
// without a byte to read can be bounded only where nothing is uploaded: during an
// upload the provider has nothing to say.
func (s *Store) connect(ctx context.Context) error {
	// Only a BuildableClient takes the certificates of AWS_CA_BUNDLE.
	client := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = s.o.ConnectTimeout }).
		WithTransportOptions(s.transport)
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithRetryer(s.retryer),
		config.WithLogger(logging.Nop{}), // what matters comes as an error
	}
	if s.o.Region != "" {
		options = append(options, config.WithRegion(s.o.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return err
	}
	if cfg.Region == "" && s.o.Endpoint != "" {
		cfg.Region = defaultRegion
	}
	if cfg.Region == "" {
		return errors.New("the region is missing")
	}
	// Not client: the configuration has put AWS_CA_BUNDLE into a copy.
	down, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return fmt.Errorf("the SDK gave a client of type %T", cfg.HTTPClient)
	}
	s.secrets = &secrets{chain: cfg.Credentials}
	cfg.Credentials = s.secrets
	configure := func(o *awss3.Options) {
		if s.o.Endpoint != "" {
			o.BaseEndpoint = &s.o.Endpoint
		}
		o.UsePathStyle = s.o.PathStyle
		// Otherwise the SDK sends checksums of its own, over TLS in a trailer of an
		// aws-chunked body. Load asks for the verification of an answer itself.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		o.APIOptions = append(o.APIOptions, http11)
	}
	s.up = awss3.NewFromConfig(cfg, configure)
	s.down = awss3.NewFromConfig(cfg, configure, func(o *awss3.Options) {
		o.HTTPClient = down.WithReadTimeout(s.o.StallTimeout)
	})
	return nil
}

func (s *Store) transport(t *http.Transport) {
	t.MaxIdleConnsPerHost = s.o.Parallel
	t.MaxIdleConns = max(t.MaxIdleConns, s.o.Parallel)
	t.ResponseHeaderTimeout = s.o.ResponseTimeout
	t.ExpectContinueTimeout = time.Second
	t.WriteBufferSize, t.ReadBufferSize = bufferBytes, bufferBytes
	// By HTTP/2 all transfers would share one connection, and its stalls.
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ForceAttemptHTTP2 = false
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &writeStallConn{Conn: conn, limit: s.o.StallTimeout}, nil
	}
}

// writeStallConn gives up when a write makes no progress: the other side has gone, and
// nothing else would tell for many minutes. It bounds each write, not the transfer.
type writeStallConn struct {
	net.Conn
	limit time.Duration
}

// Write implements net.Conn.
func (c *writeStallConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// retryer retries what the SDK retries, and the conflict of two conditional writes at
// the same moment, after which either may still win.
func (s *Store) retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = s.o.attempts
		o.MaxBackoff = s.o.maxBackoff
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(undecided)}, o.Retryables...)
	})
}

func undecided(err error) aws.Ternary {
	if code := codeOf(err); code == "ConditionalRequestConflict" || code == "OperationAborted" {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// codeOf returns the provider's code of an error, or "".
func codeOf(err error) string {
	if api, ok := asType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// http11 marks requests as HTTP/1.1, which the SDK leaves out. Without it net/http
// sends Expect: 100-continue but doesn't wait for the answer, and an upload that is
// refused ends in a reset more often than in the refusal.
func http11(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("HTTP11", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok {
			r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
		}
		return next.HandleBuild(ctx, in)
	}), middleware.After)
}

// secrets hands on credentials and remembers them, so as to keep them out of texts: a
// provider may send back what it got.
type secrets struct {
	chain aws.CredentialsProvider
	last  atomic.Pointer[aws.Credentials] // nil until there were any
}

// Retrieve implements aws.CredentialsProvider.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := s.chain.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, &credentialsError{err: err, missing: s.last.Load() == nil}
	}
	s.last.Store(&c)
	return c, nil
}

// redact takes the secrets out of a text.
func (s *secrets) redact(text string) string {
	if c := s.last.Load(); c != nil {
		for _, secret := range []string{c.SecretAccessKey, c.SessionToken} {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "[redacted]")
			}
		}
	}
	return text
}

// credentialsError says that the chain has no credentials to give.
type credentialsError struct {
	err     error
	missing bool // there never were any, rather than that they couldn't be renewed now
}

func (e *credentialsError) Error() string { return e.err.Error() }

func (e *credentialsError) Unwrap() error { return e.err }
