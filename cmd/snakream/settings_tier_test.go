package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sdk makes sure that the AWS SDK finds nothing but what the test gives it.
func sdk(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "key-id-of-a-test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-a-test")
}

func TestTierSettings(t *testing.T) {
	sdk(t)
	c, faults := configured(t, []string{
		"--tier=s3", "--s3-bucket=b", "--s3-prefix", "a/b", "--s3-endpoint", "https://s3.example.com:9000", "--s3-path-style",
		"--s3-sse", "aws:kms", "--s3-kms-key-id=k", "--tier-bandwidth=10MiB", "--local-disk-budget=10GiB", "--gc-grace=2h",
	}, []string{"SNAKREAM_S3_REGION=eu-1"}, "tier-flush-interval = \"1s\"\nerase-within-remote = \"4h\"\n")
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	s := c.Tier.S3
	if s.Bucket != "b" || s.Prefix != "a/b" || s.Endpoint != "https://s3.example.com:9000" || !s.PathStyle || s.SSE != "aws:kms" || s.KMSKeyID != "k" || s.Region != "eu-1" {
		t.Errorf("got %+v", s)
	}
	e := c.Engine
	if e.TierFlushInterval != time.Second || e.TierMinBytes != 8<<20 || e.TierBandwidth != 10<<20 || e.LocalDiskBudget != 10<<30 ||
		e.ColdCacheBytes != 64<<20 || e.GCGrace != 2*time.Hour || e.EraseWithinRemote != 4*time.Hour || e.Tier != nil {
		t.Errorf("got %+v", e)
	}
	for text, want := range map[string]bool{"--s3-path-style=false": false, "--s3-path-style": true, "--s3-path-style=true": true} {
		c, faults := configured(t, []string{"--tier=s3", "--s3-bucket=b", "--s3-region=r", text}, nil, "")
		if len(faults) > 0 || c.Tier.S3.PathStyle != want {
			t.Errorf("%s: %v, %q", text, c.Tier.S3.PathStyle, faults)
		}
	}
	if c, faults = configured(t, nil, nil, "tier = \"s3\"\ns3-bucket = \"b\"\ns3-region = \"r\"\ns3-path-style = true\n"); len(faults) > 0 || !c.Tier.S3.PathStyle {
		t.Errorf("from a file: %q", faults)
	}
}

// Each fault names its setting, and all of them are told at once.
func TestTierFaults(t *testing.T) {
	sdk(t)
	data := t.TempDir()
	for _, test := range []struct {
		args string
		want []string
	}{
		{"--tier=glacier --s3-bucket=b", []string{"--tier: "}},
		{"--tier-dir=/x --s3-bucket=b --cold-cache-bytes=1MiB", []string{"tier-dir means nothing", "s3-bucket means nothing", "cold-cache-bytes means nothing"}},
		{"--tier=off --s3-path-style", []string{"s3-path-style means nothing"}},
		{"--tier=dir --s3-region=r", []string{"s3-region means nothing", "tier-dir is missing"}},
		{"--tier=dir --tier-dir=" + data, []string{"tier-dir must not lie in data-dir"}},
		{"--tier=dir --tier-dir=" + data + "/x/y", []string{"tier-dir must not lie in data-dir"}},
		{"--tier=s3 --tier-dir=/x", []string{"tier-dir means nothing", "s3-bucket is missing"}},
		{"--tier=s3 --s3-bucket=b", []string{"s3-region and s3-endpoint are missing"}},
		{"--tier=s3 --s3-bucket=b --s3-prefix=/x --s3-endpoint=ftp://x --s3-sse=rot13 --s3-kms-key-id=k --gc-grace=soon",
			[]string{"--gc-grace", "s3-prefix", "s3-endpoint", "s3-sse", "s3-kms-key-id"}},
		{"--tier=s3 --s3-bucket=b --s3-endpoint=https://me:word@host", []string{"s3-endpoint must have no user"}},
		{"--tier=dir --tier-dir=/x --gc-grace=23h50m", []string{"erase-within-remote"}},
		{"--tier=dir --tier-dir=/x --gc-grace=22h49m", nil},
		{"--tier=dir --tier-dir=/x --local-disk-budget=1MiB", []string{"local-disk-budget"}},
		{"--tier=dir --tier-dir=/x --segment-max-bytes=8GiB", []string{"segment-max-bytes"}},
		{"--tier=dir --tier-dir=/x --cold-cache-bytes=1TiB", []string{"cold-cache-bytes"}},
	} {
		args := append(strings.Fields(test.args), "--data-dir", data)
		_, faults := configured(t, args, nil, "")
		all := strings.Join(faults, "\n")
		if len(faults) != len(test.want) {
			t.Errorf("%s: %d faults, want %d:\n%s", test.args, len(faults), len(test.want), all)
		}
		for _, want := range test.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not in:\n%s", test.args, want, all)
			}
		}
		if strings.Contains(all, "word") {
			t.Errorf("%s: a password is told: %s", test.args, all)
		}
	}
}

// docs/settings.md has a row for each setting, with its default.
func TestSettingsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{"config": ""}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.HasPrefix(cells[1], " `") {
			name := strings.Trim(cells[1], " `")
			if _, twice := rows[name]; twice && name != "config" {
				t.Errorf("%s is there twice", name)
			}
			rows[name] = strings.Trim(cells[2], " `")
		}
	}
	for _, s := range table(new(config)) {
		value, ok := rows[s.name]
		if !ok || value != s.value {
			t.Errorf("%s: the page says %q (%v), the default is %q", s.name, value, ok, s.value)
		}
		delete(rows, s.name)
	}
	delete(rows, "config")
	for name := range rows {
		t.Errorf("there is no setting %s", name)
	}
}
