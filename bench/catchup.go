package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// catchupLoad measures readers that read one stream from its beginning to its end,
// again and again.
type catchupLoad struct {
	readers          int
	size             int // of the stream, bytes
	threads          int
	warmup, duration time.Duration
}

// fillBytes is the size of the appends that fill the stream.
const fillBytes = 256 << 10

func (c catchupLoad) label() string {
	return fmt.Sprintf("catch-up %d × %d MiB", c.readers, c.size>>20)
}

func (c catchupLoad) run(s *server) ([]metric, error) {
	if s.protocol == redisStreams {
		return nil, errNotApplicable
	}
	sum, err := c.fill(s)
	if err != nil {
		return nil, err
	}
	// The first pass is apart: it is checked byte for byte, and the server may do
	// work that it does only once.
	began := now()
	first := &readers{server: s, size: int64(c.size), want: &sum}
	if err := first.run(1); err != nil {
		return nil, err
	}
	firstPass := time.Duration(now() - began)
	idle, err := s.rss()
	if err != nil {
		return nil, err
	}
	from := now() + int64(c.warmup)
	until := from + int64(c.duration)
	groups := make([]*readers, max(1, min(c.threads, c.readers)))
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i := range groups {
		groups[i] = &readers{server: s, size: int64(c.size), from: from, until: until}
		n := c.readers / len(groups)
		if i < c.readers%len(groups) {
			n++
		}
		wg.Go(func() { errs[i] = groups[i].run(n) })
	}
	stop := make(chan struct{})
	peak := peakRSS(s.pid, stop)
	sleepUntil(from)
	before, err := s.cpu()
	sleepUntil(until)
	after, err2 := s.cpu()
	wg.Wait()
	close(stop)
	top := <-peak
	if err := errors.Join(append(errs, err, err2)...); err != nil {
		return nil, err
	}
	var bytes int64
	for _, g := range groups {
		bytes += g.bytes
	}
	return []metric{
		{"rate", "MiB/s", mebibytes(bytes) / c.duration.Seconds()},
		{"first", "MiB/s", mebibytes(int64(c.size)) / firstPass.Seconds()},
		{"cpu", "ms/GiB", float64((after - before).Milliseconds()) / mebibytes(bytes) * 1024},
		{"rss", "MiB", mebibytes(idle)},
		{"growth", "MiB", mebibytes(max(top-idle, 0))},
	}, nil
}

// fill makes the stream and returns the checksum of its bytes. They are random, so
// that no server can win by compressing them, and the same for every server.
func (c catchupLoad) fill(s *server) (uint32, error) {
	rng := rand.NewChaCha8([32]byte{1})
	sum := crc32.NewIEEE()
	part := make([]byte, fillBytes)
	if s.protocol == staticFiles {
		path := filepath.Join(s.dataDir(), "html", "v1", "stream", streamName(0))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return 0, err
		}
		f, err := os.Create(path)
		if err != nil {
			return 0, err
		}
		for n := 0; n < c.size; n += len(part) {
			rng.Read(part)
			sum.Write(part)
			if _, err := f.Write(part); err != nil {
				return 0, err
			}
		}
		return sum.Sum32(), f.Close()
	}
	if err := createStreams(s, 1, binaryType); err != nil {
		return 0, err
	}
	left := c.size
	p := &pump{server: s, strict: true, template: appendRequest(s, binaryType, part)}
	p.next = func() (int, bool) { left -= len(part); return 0, left >= 0 }
	p.prepare = func(req []byte) {
		body := req[len(req)-len(part):]
		rng.Read(body)
		sum.Write(body)
	}
	if err := p.run(1); err != nil {
		return 0, fmt.Errorf("filling the stream: %w", err)
	}
	return sum.Sum32(), nil
}

// readers are connections that read stream 0 to its end over and over.
type readers struct {
	server      *server
	size        int64
	want        *uint32 // read once and compare
	from, until int64   // pieces that arrive in this window count
	bytes       int64
	active      int
	err         error
}

// reader is one of them.
type reader struct {
	*conn
	group *readers
	reply response
	pass  int64 // bytes of this pass so far
	sum   uint32
}

func (g *readers) run(n int) error {
	l, err := newLoop()
	if err != nil {
		return err
	}
	defer l.close()
	for range n {
		r := &reader{group: g}
		if r.conn, err = l.dial(g.server.addr, r); err != nil {
			return err
		}
		g.active++
		if err := r.ask("-1"); err != nil {
			return err
		}
	}
	for g.active > 0 && g.err == nil {
		if err := l.poll(maxWait); err != nil {
			return err
		}
	}
	return g.err
}

// ask sends the request for what follows an offset.
func (r *reader) ask(offset string) error {
	query := "?offset=" + offset
	if r.group.server.protocol == staticFiles {
		query = ""
	}
	return r.send(httpRequest(r.group.server, "GET", query, "", nil).bytes)
}

func (r *reader) received(b []byte) error {
	for len(b) > 0 {
		n, body, done, err := r.reply.feed(b)
		if err != nil {
			return err
		}
		b = b[n:]
		g := r.group
		r.pass += int64(len(body))
		if g.want != nil {
			r.sum = crc32.Update(r.sum, crc32.IEEETable, body)
		} else if t := now(); g.from <= t && t < g.until {
			g.bytes += int64(len(body))
		} else if t >= g.until {
			g.active--
			r.close()
			return nil
		}
		if !done {
			continue
		}
		if err := r.replied(); err != nil {
			return err
		}
	}
	return nil
}

// replied goes on to the next page, or to the next pass.
func (r *reader) replied() error {
	g := r.group
	if r.reply.status != 200 {
		return fmt.Errorf("status %d", r.reply.status)
	}
	if g.server.protocol == durableStreams && !r.reply.upToDate {
		return r.ask(string(r.reply.next))
	}
	if r.pass != g.size {
		return fmt.Errorf("read %d bytes instead of %d", r.pass, g.size)
	}
	if g.want != nil {
		if r.sum != *g.want {
			return errors.New("the bytes are not those that were appended")
		}
		g.active--
		r.close()
		return nil
	}
	r.pass = 0
	return r.ask("-1")
}

func (r *reader) lost(err error) {
	if r.group.err == nil {
		r.group.err = fmt.Errorf("%s: reader lost: %w", r.group.server.name, err)
	}
}
