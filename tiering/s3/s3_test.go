package s3

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snakream/snakream/test/faults"
	"github.com/snakream/snakream/tiering"
	"github.com/snakream/snakream/tiering/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) tiering.Store { return newRig(t) })
}

// strict is a provider that knows nothing that S3 didn't have in its first years
// (field report 143).
func strict(r *http.Request) faults.Fault {
	if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || r.Header.Get("X-Amz-Trailer") != "" ||
		strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") || len(r.TransferEncoding) > 0 {
		return faults.Answer(http.StatusBadRequest, "XAmzContentSHA256Mismatch")
	}
	if r.Method == http.MethodPost || r.URL.Query().Has("uploads") || r.URL.Query().Has("uploadId") {
		return faults.Answer(http.StatusNotImplemented, "NotImplemented")
	}
	return nil
}

// strictStore is a store whose provider is strict.
type strictStore struct {
	*Store
	proxy *faults.Proxy
}

// LoseAnswer implements storetest.Loser.
func (s strictStore) LoseAnswer() {
	lose := faults.First(1, faults.Method(http.MethodPut, http.MethodDelete), faults.Lose())
	s.proxy.Set(func(r *http.Request) faults.Fault {
		if f := strict(r); f != nil {
			return f
		}
		return lose(r)
	})
}

// TestStoreStrict runs the suite by TLS, where the SDK would send trailers, against a
// provider that refuses them.
func TestStoreStrict(t *testing.T) {
	storetest.Run(t, func(t *testing.T) tiering.Store {
		url, bucket, _ := newBucket(t)
		proxy, err := faults.NewTLS(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		proxy.Set(strict)
		bundle := filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
		if err := os.WriteFile(bundle, block, 0o666); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_CA_BUNDLE", bundle)
		return strictStore{open(t, Options{Bucket: bucket, Endpoint: proxy.URL, PathStyle: true}), proxy}
	})
}

// TestWithoutChecksums is about providers that keep no checksum, and such as refuse the
// headers for it.
func TestWithoutChecksums(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Checksum = ChecksumNone })
	data := noise(100_000)
	r.put("k", data)
	if err := r.Put(t.Context(), "k", tiering.BytesBody(data)); err != nil {
		t.Errorf("the same object again: %v", err)
	}
	if err := r.Put(t.Context(), "k", tiering.BytesBody(noise(99_999))); !errors.Is(err, tiering.ErrExists) {
		t.Errorf("another size: %v", err)
	}
	data[5] ^= 1
	if err := r.Put(t.Context(), "k", tiering.BytesBody(data)); !errors.Is(err, tiering.ErrExists) {
		t.Errorf("other bytes: %v", err)
	}
	if info, err := r.Stat(t.Context(), "k"); err != nil || info.HasCRC || info.Size != int64(len(data)) {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if _, err := r.Swap(t.Context(), "mirror", []byte("data"), ""); err != nil {
		t.Error(err)
	}
	for _, seen := range r.proxy.Seen() {
		for name := range seen.Header {
			if strings.HasPrefix(name, "X-Amz-Checksum") || strings.HasPrefix(name, "X-Amz-Sdk-Checksum") {
				t.Errorf("%s %s has the header %s", seen.Method, seen.Path, name)
			}
		}
	}
}

func TestEncryptionHeaders(t *testing.T) {
	r := newRig(t, func(o *Options) { o.SSE, o.KMSKeyID = "aws:kms", "the-key" })
	r.put("k", []byte("data"))
	if _, err := r.Swap(t.Context(), "mirror", []byte("data"), ""); err != nil {
		t.Error(err)
	}
	for _, seen := range r.proxy.Seen() {
		sse, key := seen.Header.Get("X-Amz-Server-Side-Encryption"), seen.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id")
		if seen.Method == http.MethodPut && (sse != "aws:kms" || key != "the-key") {
			t.Errorf("%s asks for encryption %q with the key %q", seen.Path, sse, key)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []string // all to be named at once
	}{
		{Options{}, []string{"bucket"}},
		{Options{Bucket: "b", Endpoint: "example.com"}, []string{"endpoint"}},
		{Options{Bucket: "b", Endpoint: "ftp://example.com"}, []string{"endpoint"}},
		{Options{Bucket: "b", Endpoint: "https://user:" + testSecret + "@example.com"}, []string{"without user"}},
		{Options{Bucket: "b", Endpoint: "https://example.com:" + testSecret}, []string{"endpoint"}},
		{Options{Bucket: "b", Prefix: "/a"}, []string{"prefix"}},
		{Options{Bucket: "b", Prefix: "a//b"}, []string{"prefix"}},
		{Options{Bucket: "b", SSE: "rot13", Checksum: "md5", KMSKeyID: "k"}, []string{"encryption", "checksum", "KMS key"}},
		{Options{Bucket: "b", Parallel: -1}, []string{"negative"}},
		{Options{Bucket: "b"}, []string{"region"}},
	} {
		_, err := Open(t.Context(), c.o)
		if !errors.Is(err, tiering.ErrConfig) {
			t.Errorf("%+v: %v", c.o, err)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%+v: %q doesn't name %q", c.o, err, word)
			}
		}
		if strings.Contains(err.Error(), testSecret) {
			t.Errorf("%+v: the error shows a secret: %v", c.o, err)
		}
	}
}

func TestString(t *testing.T) {
	s := open(t, Options{Bucket: "b", Prefix: "p/q", Endpoint: "https://s3.example.com"})
	if got := s.String(); got != "s3://b/p/q/ at https://s3.example.com" {
		t.Error(got)
	}
	if got := fmt.Sprint(s); strings.Contains(got, testSecret) || strings.Contains(got, testKey) {
		t.Error(got)
	}
}

// TestPing has all that can be wrong with where the store is said to be.
func TestPing(t *testing.T) {
	r := newRig(t)
	if err := r.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	nobody, err := faults.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	page := faults.AnswerText(http.StatusOK, "text/html", "<html><body>Welcome!</body></html>")
	for _, c := range []struct {
		name   string
		change func(o *Options)
		env    [2]string
		rule   faults.Rule
		kind   error
		advice string // what the error tells to change
	}{
		{name: "bucket", change: func(o *Options) { o.Bucket = "no-such-bucket" }, kind: tiering.ErrConfig, advice: "bucket"},
		{name: "key id", env: [2]string{"AWS_ACCESS_KEY_ID", "nobody"}, kind: tiering.ErrDenied, advice: "credentials"},
		{name: "secret", env: [2]string{"AWS_SECRET_ACCESS_KEY", "wrong"}, kind: tiering.ErrDenied, advice: "credentials"},
		{name: "no credentials", env: [2]string{"AWS_ACCESS_KEY_ID", ""}, kind: tiering.ErrDenied, advice: "credentials"},
		{name: "region", change: func(o *Options) { o.Region = "eu-north-9" }, kind: tiering.ErrConfig, advice: "region"},
		{name: "redirect", rule: faults.Always(faults.Any, faults.Answer(http.StatusMovedPermanently, "PermanentRedirect")), kind: tiering.ErrConfig, advice: "region"},
		{name: "clock", rule: faults.Always(faults.Any, faults.Answer(http.StatusForbidden, "RequestTimeTooSkewed")), kind: tiering.ErrConfig, advice: "clock"},
		{name: "expired", rule: faults.Always(faults.Any, faults.Answer(http.StatusBadRequest, "ExpiredToken")), kind: tiering.ErrDenied, advice: "renew"},
		{name: "policy", rule: faults.Always(faults.Any, faults.Answer(http.StatusForbidden, "AccessDenied")), kind: tiering.ErrDenied, advice: "policy"},
		{name: "nobody there", change: func(o *Options) { o.Endpoint = nobody.URL }, kind: tiering.ErrConfig, advice: "endpoint"},
		{name: "another scheme", change: func(o *Options) { o.Endpoint = strings.Replace(o.Endpoint, "http:", "https:", 1) }, kind: tiering.ErrConfig, advice: "endpoint"},
		{name: "web page", rule: faults.Always(faults.Any, page), kind: tiering.ErrConfig, advice: "endpoint"},
		{name: "JSON", rule: faults.Always(faults.Any, faults.AnswerText(http.StatusOK, "application/json", "{}")), kind: tiering.ErrConfig, advice: "endpoint"},
		{name: "no such page", rule: faults.Always(faults.Any, faults.AnswerText(http.StatusNotFound, "text/plain", "404 page not found")), kind: tiering.ErrConfig, advice: "endpoint"},
		{name: "down", rule: faults.Always(faults.Any, faults.Answer(http.StatusServiceUnavailable, "ServiceUnavailable"))},
		{name: "cut", rule: faults.Always(faults.Any, faults.CutUpload(0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			o := r.o
			if c.change != nil {
				c.change(&o)
			}
			r.proxy.Set(c.rule)
			err := open(t, o).Ping(t.Context())
			t.Log(err)
			if c.kind == nil {
				temporary(t, c.name, err)
				return
			}
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.advice) {
				t.Errorf("%v: not %v, or it doesn't name the %s", err, c.kind, c.advice)
			}
			if !tiering.Permanent(err) {
				t.Error("not permanent")
			}
			harmless(t, c.name, err)
		})
	}
}

// TestPingUnknownAuthority reaches a server whose certificate nobody vouches for.
func TestPingUnknownAuthority(t *testing.T) {
	url, bucket, _ := newBucket(t)
	proxy, err := faults.NewTLS(url)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	err = open(t, Options{Bucket: bucket, Endpoint: proxy.URL, PathStyle: true, attempts: 1}).Ping(t.Context())
	if !errors.Is(err, tiering.ErrConfig) || !strings.Contains(err.Error(), "AWS_CA_BUNDLE") {
		t.Error(err)
	}
}
