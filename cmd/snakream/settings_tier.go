package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/s3"
)

// tierConfig says where old data goes. How it goes is in the engine's options.
type tierConfig struct {
	Kind string // tierOff, tierDir or tierS3
	Dir  string
	S3   s3.Options
}

// The kinds of tier.
const (
	tierOff = "off"
	tierDir = "dir"
	tierS3  = "s3"
)

func tier(c *config) []setting {
	t, e := &c.Tier, &c.Engine
	const long = 365 * 24 * time.Hour
	return []setting{
		{"tier", tierOff, "where old data and a copy of new data goes: off, dir or s3", oneOf(&t.Kind, tierOff, tierDir, tierS3)},
		{"tier-dir", "", "directory of --tier dir", text(&t.Dir)},
		{"s3-bucket", "", "bucket of --tier s3; credentials come from where the AWS SDK looks for them", text(&t.S3.Bucket)},
		{"s3-prefix", "", "what the names of all objects begin with; one data directory has one prefix", text(&t.S3.Prefix)},
		{"s3-endpoint", "", "URL of the provider; empty = AWS, or what the SDK's environment says", text(&t.S3.Endpoint)},
		{"s3-region", "", "region of the bucket; empty = what the SDK's environment says", text(&t.S3.Region)},
		{"s3-path-style", "false", "the bucket is in the path of URLs and not in the host name", toggle(&t.S3.PathStyle)},
		{"s3-sse", "", "server-side encryption to ask for: AES256 or aws:kms; empty = what the bucket does by itself", text(&t.S3.SSE)},
		{"s3-kms-key-id", "", "key of aws:kms; empty = the account's", text(&t.S3.KMSKeyID)},
		{"tier-flush-interval", "5s", "time for which new data may be on the local disk alone", span(&e.TierFlushInterval, 100*time.Millisecond, 24*time.Hour)},
		{"tier-min-bytes", "8MiB", "a segment of this size does not wait for others to be merged with", size(&e.TierMinBytes, 1, 4<<30)},
		{"tier-bandwidth", "0", "bytes a second that uploads may take; 0 = no limit", orDefault(&e.TierBandwidth, size(&e.TierBandwidth, 64<<10, 1<<40))},
		{"local-disk-budget", "0", "data on the local disk, beyond which old data stays in the tier alone; 0 = no limit", orDefault(&e.LocalDiskBudget, size(&e.LocalDiskBudget, 1, 1<<60))},
		{"cold-cache-bytes", "64MiB", "memory for what is read from the tier", size(&e.ColdCacheBytes, 1<<20, 1<<40)},
		{"gc-grace", "1h", "time from an object's last use to its deletion", span(&e.GCGrace, time.Millisecond, long)},
		{"erase-within-remote", "24h", "time within which deleted data is gone from the tier", span(&e.EraseWithinRemote, time.Second, long)},
	}
}

// text stores a line of text.
func text(to *string) func(string) error {
	return func(s string) error {
		if strings.ContainsFunc(s, unicode.IsControl) {
			return errors.New("must have no control characters")
		}
		*to = s
		return nil
	}
}

// unless is a toggle that sets the opposite.
func unless(to *bool) func(string) error {
	return func(s string) error {
		var on bool
		err := toggle(&on)(s)
		*to = !on
		return err
	}
}

// toggle stores true or false. Its flag alone, without a value, is true.
func toggle(to *bool) func(string) error {
	return func(s string) error {
		if s != "true" && s != "false" {
			return errors.New("must be true or false")
		}
		*to = s == "true"
		return nil
	}
}

// anyStore stands for the store that will be opened, where the engine's options are
// checked before that.
type anyStore struct{ tiering.Store }

// checkStorage reports what is wrong with the settings of data directory and tier.
func (c *config) checkStorage() []string {
	faults := c.checkTier()
	o := c.Engine
	if c.Tier.Kind != tierOff {
		o.Tier = anyStore{}
	}
	if err := o.Validate(); err != nil {
		faults = append(faults, strings.Split(err.Error(), "\n")...)
	}
	return faults
}

// checkTier reports settings of a tier that is not there, and what its own lacks.
func (c *config) checkTier() (bad faults) {
	if c.Tier.Kind == "" {
		return nil
	}
	for _, s := range tier(new(config)) {
		if kind := kindOf(s.name); c.given[s.name] && kind != "" && kind != c.Tier.Kind {
			bad.addf("%s means nothing with tier %s: it is for tier %s", s.name, c.Tier.Kind, kind)
		} else if c.given[s.name] && s.name != "tier" && c.Tier.Kind == tierOff {
			bad.addf("%s means nothing with tier off: set tier to dir or s3, or leave it out", s.name)
		}
	}
	switch c.Tier.Kind {
	case tierDir:
		c.checkDir(&bad)
	case tierS3:
		c.checkS3(&bad)
	}
	return bad
}

// kindOf returns the kind of tier that a setting belongs to, "" for none in particular.
func kindOf(name string) string {
	switch {
	case name == "tier-dir":
		return tierDir
	case strings.HasPrefix(name, "s3-"):
		return tierS3
	}
	return ""
}

func (c *config) checkDir(bad *faults) {
	if c.Tier.Dir == "" {
		bad.addf("tier-dir is missing: tier dir needs a directory, as a rule on another machine's disk")
		return
	}
	data, err := filepath.Abs(c.DataDir)
	if err != nil {
		bad.addf("data-dir: %v", err)
		return
	}
	dir, err := filepath.Abs(c.Tier.Dir)
	if err != nil {
		bad.addf("tier-dir: %v", err)
		return
	}
	if rel, err := filepath.Rel(data, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		bad.addf("tier-dir must not lie in data-dir: what loses the one loses the other")
	}
}

// checkS3 names the settings, which the store itself does not know. It asks the store
// only when all that it knows is in order.
func (c *config) checkS3(bad *faults) {
	s, before := &c.Tier.S3, len(*bad)
	if s.Bucket == "" {
		bad.addf("s3-bucket is missing: tier s3 needs a bucket")
	}
	if strings.HasPrefix(s.Prefix, "/") || strings.Contains(s.Prefix, "//") {
		bad.addf("s3-prefix: %q has an empty part", s.Prefix)
	}
	// The value may hold what somebody took for the place of a password.
	if u, err := url.Parse(s.Endpoint); s.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad.addf("s3-endpoint must be a URL such as https://s3.example.com")
	} else if s.Endpoint != "" && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		bad.addf("s3-endpoint must have no user, query or fragment; credentials come from the environment")
	}
	if s.SSE != "" && s.SSE != "AES256" && s.SSE != "aws:kms" {
		bad.addf("s3-sse: %q: must be AES256 or aws:kms, or empty", s.SSE)
	}
	if s.KMSKeyID != "" && s.SSE != "aws:kms" {
		bad.addf("s3-kms-key-id needs s3-sse aws:kms")
	}
	if len(*bad) > before {
		return
	}
	if _, err := s3.Open(context.Background(), *s); err != nil {
		reason := strings.TrimPrefix(err.Error(), fmt.Sprintf("s3: %v: ", tiering.ErrConfig))
		if s.Region == "" && s.Endpoint == "" {
			reason = "s3-region and s3-endpoint are missing, and " + reason
		}
		bad.addf("tier s3: %s", reason)
	}
}
