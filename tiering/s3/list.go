package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/snakream/snakream/tiering"
)

// List implements tiering.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tiering.Info, error] {
	return func(yield func(tiering.Info, error) bool) {
		last := ""
		for page, err := range s.pages(ctx, prefix) {
			for i := 0; err == nil && i < len(page.Contents); i++ {
				var info tiering.Info
				info, err = s.listed(page, page.Contents[i], prefix)
				switch {
				case err != nil:
				case info.Key == "": // a marker by which some tools make the prefix look like a folder
					continue
				case info.Key <= last:
					err = fmt.Errorf("the provider lists %q after %q", info.Key, last)
				case !yield(info, nil):
					return
				}
				last = info.Key
			}
			if err != nil {
				yield(tiering.Info{}, s.fail(ctx, "list", prefix, err))
				return
			}
		}
	}
}

// pages yields the pages of a listing, to the end. After an error it ends.
func (s *Store) pages(ctx context.Context, prefix string) iter.Seq2[*awss3.ListObjectsV2Output, error] {
	in := &awss3.ListObjectsV2Input{
		Bucket: &s.o.Bucket, Prefix: s.key(prefix),
		// XML can't carry all characters that a key can have.
		EncodingType: types.EncodingTypeUrl,
	}
	return func(yield func(*awss3.ListObjectsV2Output, error) bool) {
		for {
			out, err := s.page(ctx, in)
			if err == nil && aws.ToBool(out.IsTruncated) {
				token := aws.ToString(out.NextContinuationToken)
				if token == "" || token == aws.ToString(in.ContinuationToken) {
					err = errors.New("the provider says that there is more, but not where")
				}
				in.ContinuationToken = &token
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(out, nil) || !aws.ToBool(out.IsTruncated) {
				return
			}
		}
	}
}

func (s *Store) page(ctx context.Context, in *awss3.ListObjectsV2Input) (*awss3.ListObjectsV2Output, error) {
	call, d := s.bounded(ctx, 0)
	defer d.stop()
	var out *awss3.ListObjectsV2Output
	err := s.retried(call, func() (err error) {
		out, err = s.down.ListObjectsV2(call, in)
		if statusOf(err) == http.StatusOK { // the head was well, and then the rest wasn't
			err = fmt.Errorf("%w: %w", errBody, err)
		}
		return err
	})
	if err != nil && call.Err() != nil {
		return nil, context.Cause(call)
	}
	return out, err
}

// listed reads one entry of a page.
func (s *Store) listed(page *awss3.ListObjectsV2Output, o types.Object, prefix string) (tiering.Info, error) {
	key := aws.ToString(o.Key)
	if page.EncodingType == types.EncodingTypeUrl { // not every provider does what it is asked for
		var err error
		if key, err = url.QueryUnescape(key); err != nil {
			return tiering.Info{}, err
		}
	}
	if !strings.HasPrefix(key, s.o.Prefix+prefix) {
		return tiering.Info{}, fmt.Errorf("the provider lists %q, which is not below %q", key, s.o.Prefix+prefix)
	}
	return tiering.Info{Key: key[len(s.o.Prefix):], Size: aws.ToInt64(o.Size)}, nil
}
