package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/snakream/snakream/tiering"
)

// failure is the error of a call: what it was about, the provider's reason, and what to
// change. It matches its kind and, if that is why, the context's error. It doesn't lead
// to the SDK's error, whose text nobody has looked through for secrets.
type failure struct {
	kind error // of package tiering; nil for what is temporary
	done error // the context's error; nil while it had not ended
	text string
}

func (f *failure) Error() string { return f.text }

// Unwrap implements the interface of package errors.
func (f *failure) Unwrap() []error {
	var all []error
	for _, err := range []error{f.kind, f.done} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// reason is what a provider's code means to us.
type reason struct {
	kind   error
	change string
}

var (
	credentials = reason{tiering.ErrDenied, "check or renew the credentials"}
	permissions = reason{tiering.ErrDenied, "check the permissions of the credentials' user and the bucket's policy"}
	clock       = reason{tiering.ErrConfig, "set this machine's clock"}
	bucket      = reason{tiering.ErrConfig, "check the bucket's name"}
	region      = reason{tiering.ErrConfig, "check the region and the endpoint"}
	endpoint    = reason{tiering.ErrConfig, "check the endpoint"}
	kmsKey      = reason{tiering.ErrConfig, "check the KMS key and that the credentials may use it"}
	lacking     = reason{tiering.ErrConfig, "the provider lacks what is needed: snakream doctor shows what"}
)

// reasons are the codes that lead to a change. All others are temporary.
var reasons = map[string]reason{
	"AccessDenied":            permissions,
	"AllAccessDisabled":       permissions,
	"AccountProblem":          permissions,
	"Forbidden":               permissions, // of an answer without a body
	"InvalidAccessKeyId":      credentials,
	"SignatureDoesNotMatch":   credentials,
	"ExpiredToken":            credentials,
	"ExpiredTokenException":   credentials,
	"InvalidToken":            credentials,
	"TokenRefreshRequired":    credentials,
	"InvalidSecurity":         credentials,
	"Unauthorized":            credentials,
	"RequestTimeTooSkewed":    clock,
	"RequestInTheFuture":      clock,
	"RequestExpired":          clock,
	"NoSuchBucket":            bucket,
	"InvalidBucketName":       bucket,
	"PermanentRedirect":       region,
	"TemporaryRedirect":       region,
	"MovedPermanently":        region,
	"InvalidRegionName":       region,
	"MethodNotAllowed":        endpoint,
	"NotImplemented":          lacking,
	"UnsupportedOperation":    lacking,
	"EntityTooLarge":          lacking,
	"KMS.NotFoundException":   kmsKey,
	"KMS.DisabledException":   kmsKey,
	"KMS.InvalidKeyUsage":     kmsKey,
	"KMSInvalidStateError":    kmsKey,
	"KMS.AccessDenied":        kmsKey,
	"InvalidEncryptionMethod": kmsKey,
	// The signature was made for another region than the bucket's.
	"AuthorizationHeaderMalformed":       region,
	"IllegalLocationConstraintException": region,
}

// reasonOf returns what an error of the SDK means; its kind is nil for what is
// temporary.
func reasonOf(err error) reason {
	if c, ok := asType[*credentialsError](err); ok && c.missing {
		return credentials
	}
	if u, ok := asType[*unreachableError](err); ok {
		return u.reason
	}
	if r, ok := reasons[codeOf(err)]; ok {
		return r
	}
	switch statusOf(err) {
	case http.StatusMovedPermanently:
		return region
	case http.StatusUnauthorized, http.StatusForbidden:
		return permissions
	}
	return reason{}
}

// statusOf returns the status of the answer that an error is, or 0.
func statusOf(err error) int {
	if r, ok := asType[*awshttp.ResponseError](err); ok && r.Response != nil && r.Response.Response != nil {
		return r.HTTPStatusCode()
	}
	return 0
}

// asType is errors.AsType for a nil error too.
func asType[E error](err error) (E, bool) {
	if err == nil {
		var none E
		return none, false
	}
	return errors.AsType[E](err)
}

// fail makes the error of a call. If err is of package tiering or a failure of ours, it
// keeps its kind.
func (s *Store) fail(ctx context.Context, op, key string, err error) error {
	r := reasonOf(err)
	for _, kind := range []error{tiering.ErrNotFound, tiering.ErrExists, tiering.ErrConflict, tiering.ErrShort, tiering.ErrDenied, tiering.ErrConfig} {
		if errors.Is(err, kind) {
			r = reason{kind: kind}
		}
	}
	f := &failure{kind: r.kind, text: "s3: " + op}
	if key != "" {
		f.text += fmt.Sprintf(" %q", key)
	}
	if r.kind != nil {
		f.text += ": " + strings.TrimPrefix(r.kind.Error(), "tiering: ")
	}
	if why := s.secrets.redact(describe(ctx, err)); r.kind == nil || why != r.kind.Error() {
		f.text += ": " + why
	}
	if r.change != "" {
		f.text += ": " + r.change
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTooSlow) {
		f.done = ctx.Err()
	}
	return f
}

// describe says in one line why a call failed.
func describe(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	status := statusOf(err)
	if api, ok := asType[smithy.APIError](err); ok {
		text := strings.TrimSpace(fmt.Sprintf("%s %s", api.ErrorCode(), api.ErrorMessage()))
		if status != 0 {
			text = fmt.Sprintf("%d %s", status, text)
		}
		if r, ok := asType[*awshttp.ResponseError](err); ok {
			if r.Response != nil && r.Response.Response != nil {
				if where := r.Response.Header.Get("X-Amz-Bucket-Region"); where != "" {
					text += ", the bucket is in " + where
				}
			}
			if r.RequestID != "" {
				text += " (request " + r.RequestID + ")"
			}
		}
		return text
	}
	if u, ok := asType[*url.Error](err); ok {
		err = u.Err // without the URL, which the key says better
	} else if o, ok := asType[*smithy.OperationError](err); ok {
		err = o.Err
	}
	if status != 0 {
		return fmt.Sprintf("status %d: %v", status, err)
	}
	return err.Error()
}

// unreachableError is the error of a Ping that didn't get to S3 for a reason that lies
// with the endpoint rather than with the moment.
type unreachableError struct {
	error
	reason reason
}

func (e *unreachableError) Unwrap() error { return e.error }

// unreachable marks an error that, when it is the first thing to happen, says that the
// endpoint is wrong. Later in a day the same error is temporary.
func unreachable(err error) error {
	host, isHost := asType[*net.DNSError](err)
	_, isCert := asType[*tls.CertificateVerificationError](err)
	_, isAuthority := asType[x509.UnknownAuthorityError](err)
	_, isTLS := asType[tls.RecordHeaderError](err)
	status := statusOf(err)
	switch {
	case isHost && host.IsNotFound:
		return &unreachableError{err, reason{tiering.ErrConfig, "no such host: check the endpoint, the region and the path style"}}
	case isCert || isAuthority || isTLS || errors.Is(err, http.ErrSchemeMismatch):
		return &unreachableError{err, reason{tiering.ErrConfig, "check the scheme and host of the endpoint and, for a private authority, AWS_CA_BUNDLE"}}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &unreachableError{err, reason{tiering.ErrConfig, "nothing listens there: check the endpoint"}}
	case status == http.StatusOK || status == http.StatusNotFound && codeOf(err) != "NoSuchBucket" || status == http.StatusBadRequest && codeOf(err) == "":
		return &unreachableError{err, reason{tiering.ErrConfig, "this is no answer of S3: check the endpoint"}}
	}
	return err
}
