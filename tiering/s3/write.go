package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/snakream/snakream/tiering"
)

const (
	// maxObjectBytes is what S3 takes in one PUT.
	maxObjectBytes = 5 << 30
	// crcMetadata is where an object says of itself which CRC32C it was put with, for
	// providers that keep no checksums. It tells our own object from another's; that
	// the bytes arrived it can't tell.
	crcMetadata = "crc32c"
	hashChunk   = 1 << 20 // bytes hashed between looks at the context
)

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// Put implements tiering.Store.
func (s *Store) Put(ctx context.Context, key string, b tiering.Body) error {
	if b.Size < 0 || b.Size > maxObjectBytes {
		return fmt.Errorf("s3: put %q: %d bytes are not in 0 to %d", key, b.Size, int64(maxObjectBytes))
	}
	call, d := s.bounded(ctx, b.Size)
	defer d.stop()
	in := s.input(key, b)
	in.Body = io.NewSectionReader(patientReader{b.R, d}, 0, b.Size)
	in.IfNoneMatch = aws.String("*")
	in.Metadata = map[string]string{crcMetadata: encodeCRC(b.CRC32C)}
	_, err := s.up.PutObject(call, in, signedBody(b))
	if err == nil {
		return nil
	}
	if call.Err() != nil || reasonOf(err).kind != nil {
		return s.fail(call, "put", key, err)
	}
	// Whether it is there: refused because an attempt before this one, whose answer got
	// lost, had put it; or not answered at all.
	there, lookErr := s.head(call, key)
	switch {
	case lookErr == nil && there.is(b):
		return nil
	case lookErr == nil:
		return s.fail(call, "put", key, tiering.ErrExists)
	case call.Err() != nil:
		return s.fail(call, "put", key, lookErr)
	}
	return s.fail(call, "put", key, err)
}

// Swap implements tiering.Store.
func (s *Store) Swap(ctx context.Context, key string, data []byte, old tiering.Version) (tiering.Version, error) {
	b := tiering.BytesBody(data)
	call, d := s.bounded(ctx, b.Size)
	defer d.stop()
	in := s.input(key, b)
	in.Body = bytes.NewReader(data)
	if old == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(string(old))
	}
	out, err := s.up.PutObject(call, in, signedBody(b))
	if err == nil && aws.ToString(out.ETag) != "" {
		return tiering.Version(*out.ETag), nil
	}
	if err == nil {
		err = errors.New("the answer has no ETag")
	}
	if call.Err() != nil || reasonOf(err).kind != nil {
		return "", s.fail(call, "swap", key, err)
	}
	v, err := s.settle(call, key, data, old, err)
	if err != nil {
		return "", s.fail(call, "swap", key, err)
	}
	return v, nil
}

// settle finds out what became of a swap that ended with err.
func (s *Store) settle(ctx context.Context, key string, data []byte, old tiering.Version, err error) (tiering.Version, error) {
	now, v, lookErr := s.load(ctx, key, int64(len(data)))
	switch {
	case errors.Is(lookErr, tiering.ErrNotFound):
		if old != "" {
			return "", tiering.ErrConflict
		}
	case errors.Is(lookErr, errTooLarge):
		if v != old {
			return "", tiering.ErrConflict
		}
	case lookErr != nil:
		if ctx.Err() != nil {
			return "", lookErr
		}
	case bytes.Equal(now, data):
		return v, nil
	case v != old:
		return "", tiering.ErrConflict
	}
	if statusOf(err) == http.StatusPreconditionFailed {
		// The object is as it has to be, or can't be read. Not to be told as a conflict,
		// which it isn't known to be.
		return "", fmt.Errorf("refused, though the version may be right: %s", describe(ctx, err))
	}
	return "", err
}

// input is what all uploads have in common.
func (s *Store) input(key string, b tiering.Body) *awss3.PutObjectInput {
	in := &awss3.PutObjectInput{Bucket: &s.o.Bucket, Key: s.key(key), ContentLength: &b.Size}
	if s.o.Checksum == ChecksumAuto {
		in.ChecksumCRC32C = aws.String(encodeCRC(b.CRC32C))
	}
	if s.o.SSE != "" {
		in.ServerSideEncryption = types.ServerSideEncryption(s.o.SSE)
	}
	if s.o.KMSKeyID != "" {
		in.SSEKMSKeyId = &s.o.KMSKeyID
	}
	return in
}

// signedBody lets a request over plain HTTP be signed with the hash of its body, as the
// SDK would, but hashes once and not at each attempt, and without the bandwidth limit,
// which is for what is sent.
func signedBody(b tiering.Body) func(*awss3.Options) {
	hash := ""
	sign := middleware.FinalizeMiddlewareFunc("BodyHash", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok && !r.IsHTTPS() {
			if hash == "" {
				var err error
				if hash, err = sha256Of(ctx, b); err != nil {
					return middleware.FinalizeOutput{}, middleware.Metadata{}, err
				}
			}
			ctx = v4.SetPayloadHash(ctx, hash)
		}
		return next.HandleFinalize(ctx, in)
	})
	return awss3.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(sign, (&v4.ComputePayloadSHA256{}).ID(), middleware.Before)
	})
}

// sha256Of hashes a body; in hex.
func sha256Of(ctx context.Context, b tiering.Body) (string, error) {
	hash := sha256.New()
	r := tiering.Unlimited(b.R)
	for off := int64(0); off < b.Size; off += hashChunk {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n := min(hashChunk, b.Size-off)
		if got, err := io.Copy(hash, io.NewSectionReader(r, off, n)); err != nil {
			return "", fmt.Errorf("reading the body: %w", err)
		} else if got < n {
			return "", fmt.Errorf("reading the body: it ends at %d of %d bytes: %w", off+got, b.Size, io.ErrUnexpectedEOF)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Delete implements tiering.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	ctx, d := s.bounded(ctx, 0)
	defer d.stop()
	_, err := s.up.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &s.o.Bucket, Key: s.key(key)})
	if err == nil || codeOf(err) == "NoSuchKey" {
		return nil
	}
	return s.fail(ctx, "delete", key, err)
}
