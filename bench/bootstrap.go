package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"time"
)

// bootstrapLoad measures bootstraps of a stream with a snapshot and updates behind it,
// one after the other: the memory that they take, and their speed against plain reads
// of a stream with as many bytes.
type bootstrapLoad struct {
	snapshot int // bytes
	updates  int
	payload  int // of an update, bytes
	duration time.Duration
}

// The streams of this scenario.
const (
	bootstrapped = iota // with the snapshot
	plain               // with as many bytes and no snapshot
	small               // to make the server's code resident
	bootstrapStreams
)

func (b bootstrapLoad) label() string {
	return fmt.Sprintf("bootstrap %d MiB + %d × %d B", b.snapshot>>20, b.updates, b.payload)
}

// size is how many bytes of the application's one bootstrap brings.
func (b bootstrapLoad) size() int64 { return int64(b.snapshot) + int64(b.updates)*int64(b.payload) }

func (b bootstrapLoad) run(s *server) ([]metric, error) {
	if s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	want, err := b.prepare(s)
	if err != nil {
		return nil, err
	}
	// What filling has left in the heap would hide what bootstraps need.
	if s.cmd != nil {
		if err := s.restart(); err != nil {
			return nil, err
		}
	}
	bootstrap := func(i int) request {
		r := requestFor(s, "GET", defaultBucket+streamName(0), "/bootstrap", "", nil)
		r.aim(i)
		return r
	}
	get := httpRequest(s, "GET", "?offset=-1", "", nil)
	get.aim(small)
	if _, _, err := fetch(s, bootstrap(small)); err != nil {
		return nil, err
	}
	if _, _, err := fetch(s, get); err != nil {
		return nil, err
	}
	get.aim(plain)

	memory, err := watchMemory(s.pid)
	if err != nil {
		return nil, err
	}
	err = b.check(s, want) // is a bootstrap like the others
	for until := now() + int64(b.duration); now() < until && err == nil; {
		_, _, err = fetch(s, bootstrap(bootstrapped))
	}
	growth, err2 := memory.growth()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}

	// Pass by pass, so that whatever else the machine does meets both alike.
	var took [2]time.Duration
	passes := 0
	for until := now() + int64(b.duration); now() < until; passes++ {
		for i, r := range []request{bootstrap(bootstrapped), get} {
			all, d, err := fetch(s, r)
			if err != nil {
				return nil, err
			}
			if all[0].bytes < b.size() {
				return nil, fmt.Errorf("an answer of %d bytes, not %d", all[0].bytes, b.size())
			}
			took[i] += d
		}
	}
	total := mebibytes(b.size()) * float64(passes)
	return []metric{
		{"rate", "MiB/s", total / took[0].Seconds()},
		{"get", "MiB/s", total / took[1].Seconds()},
		{"ratio", "", took[1].Seconds() / took[0].Seconds()},
		{"growth", "MiB", mebibytes(growth)},
		{"passes", "", float64(passes)},
	}, nil
}

// prepare makes the streams and returns the hash of the snapshot.
func (b bootstrapLoad) prepare(s *server) ([sha256.Size]byte, error) {
	var hash [sha256.Size]byte
	if err := createStreams(s, bootstrapStreams, binaryType); err != nil {
		return hash, err
	}
	if _, err := fillStream(s, small, 1<<20, 1); err != nil {
		return hash, err
	}
	if _, err := fillStream(s, plain, b.size(), 2); err != nil {
		return hash, err
	}
	body := make([]byte, b.snapshot)
	rand.NewChaCha8([32]byte{3}).Read(body)
	head, _, err := call("POST", s.v1(bootstrapped), binaryType, []byte("the snapshot stands for this"))
	if err != nil {
		return hash, err
	}
	if _, _, err := call("PUT", s.ds(bootstrapped)+"/snapshot/"+head.Get("Stream-Next-Offset"), binaryType, body); err != nil {
		return hash, err
	}
	left := b.updates
	p := &pump{
		server: s, strict: true,
		template: appendRequest(s, binaryType, payloadOf(b.payload, binaryType)),
		next:     func() (int, bool) { left--; return bootstrapped, left >= 0 },
	}
	if err := p.run(min(createConns, b.updates)); err != nil {
		return hash, fmt.Errorf("appending the updates: %w", err)
	}
	return sha256.Sum256(body), nil
}

// check reads one bootstrap as an application would and compares.
func (b bootstrapLoad) check(s *server, want [sha256.Size]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.ds(bootstrapped)+"/bootstrap", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("bootstrap: status %d, type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	parts := multipart.NewReader(resp.Body, params["boundary"])
	part, err := parts.NextRawPart()
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, part); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if !bytes.Equal(hash.Sum(nil), want[:]) {
		return errors.New("bootstrap: its snapshot is not the one that was published")
	}
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF && n == b.updates {
			return nil
		}
		if err != nil {
			return fmt.Errorf("bootstrap: after %d updates: %w", n, err)
		}
		if size, err := io.Copy(io.Discard, part); err != nil || size != int64(b.payload) {
			return fmt.Errorf("bootstrap: update %d has %d bytes (%w)", n, size, err)
		}
	}
}
