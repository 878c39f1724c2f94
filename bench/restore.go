package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// restoreLoad measures how long it takes from an empty disk and a full tier until a
// server is ready, and checks that its streams are what they were.
type restoreLoad struct {
	streams     int
	payload     int // of each stream, bytes
	connections int // that fill
}

// restoreArgs are the settings of the servers that are filled: a million streams need
// more than the default, and merged objects would lie around for an hour.
var restoreArgs = list{
	"snakream-tier=--max-state-bytes=4GiB", "snakream-tier=--gc-grace=1m",
	"snakream-dir=--max-state-bytes=4GiB", "snakream-dir=--gc-grace=1m",
}

// restorePatience bounds the wait until all that was written is in the tier.
const restorePatience = time.Hour

// fillBatch is how many streams one pump fills, which has ten minutes.
const fillBatch = 50_000

func (r restoreLoad) label() string {
	return fmt.Sprintf("restore %d × %d B", r.streams, r.payload)
}

func (r restoreLoad) run(s *server) ([]metric, error) {
	if s.cmd == nil || s.protocol != durableStreams {
		return nil, errNotApplicable
	}
	content := r.content()
	began := now()
	for from := 0; from < r.streams; from += fillBatch {
		if err := r.fill(s, content, from, min(from+fillBatch, r.streams)); err != nil {
			return nil, err
		}
	}
	filled := time.Duration(now() - began)
	if _, err := s.awaitTier("all in the tier", restorePatience, protected); err != nil {
		return nil, err
	}
	s.stop()
	if err := os.RemoveAll(s.dataDir()); err != nil {
		return nil, err
	}

	cmd := s.command("restore", append([]string{"--json"}, s.flags...)...)
	var report bytes.Buffer
	cmd.Stdout = &report
	began = now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("snakream restore: %w: %s %s", err, report.String(), s.logTail())
	}
	restored := time.Duration(now() - began)
	if err := s.begin(); err != nil {
		return nil, err
	}
	ready := time.Duration(now() - began)
	var held struct {
		Bytes    float64
		Segments float64
	}
	if err := json.Unmarshal(report.Bytes(), &held); err != nil {
		return nil, fmt.Errorf("the report of snakream restore: %w", err)
	}
	rss, err := s.rss()
	return []metric{
		{"ready", "s", ready.Seconds()},
		{"restore", "s", restored.Seconds()},
		{"segments", "", held.Segments},
		{"tier", "MiB", held.Bytes / (1 << 20)},
		{"rss", "MiB", mebibytes(rss)},
		{"filled", "s", filled.Seconds()},
	}, errors.Join(err, r.check(s, content))
}

// content is what every stream holds behind its digits.
func (r restoreLoad) content() []byte {
	b := make([]byte, max(r.payload, digitCount))
	rand.NewChaCha8([32]byte{6}).Read(b)
	return b
}

// fill creates the streams [from, to), each with its content.
func (r restoreLoad) fill(s *server, content []byte, from, to int) error {
	template := httpRequest(s, "PUT", "", "Content-Type: "+binaryType+"\r\n", content)
	next := from
	p := &pump{server: s, strict: true, template: template, next: func() (int, bool) {
		next++
		return next - 1, next <= to
	}}
	p.prepare = func(req []byte) {
		copy(req[len(req)-len(content):], req[template.digits:][:digitCount])
	}
	if err := p.run(min(r.connections, to-from)); err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	return nil
}

// check reads some of the streams.
func (r restoreLoad) check(s *server, content []byte) error {
	return checkSome(s, r.streams, func(i int, body []byte) error {
		want := bytes.Clone(content)
		copy(want, fmt.Sprintf("%0*d", digitCount, i))
		if !bytes.Equal(body, want) {
			return fmt.Errorf("stream %d is not what it was", i)
		}
		return nil
	})
}
