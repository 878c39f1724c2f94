package wal

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/snakream/snakream/internal/bin"
	"github.com/snakream/snakream/internal/vfs"
)

// benchLog opens a new log on the disk of the temporary directory.
func benchLog(b *testing.B) (*Log, chan struct{}) {
	ready := make(chan struct{}, 1)
	cfg := Config{FS: vfs.OS, Dir: filepath.Join(b.TempDir(), "wal"), Spares: 2, Ready: func() { ready <- struct{}{} }}
	if err := Create(cfg); err != nil {
		b.Fatal(err)
	}
	l, _, err := Open(cfg, Position{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l, ready
}

// stageBench fills a batch, waiting for the next file if need be.
func stageBench(b *testing.B, l *Log, ready chan struct{}, records int, head, body []byte, sum uint64) *Batch {
	n := int64(max(records, 1)) * RecordBytes(len(head), len(body))
	batch, ok := l.Begin(n)
	for !ok {
		<-ready
		if batch, ok = l.Begin(n); !ok && l.Err() != nil {
			b.Fatal(l.Err())
		}
	}
	for range records {
		batch.Add(1, head, body, sum)
	}
	return batch
}

// BenchmarkCommit is a batch from Begin to the end of its sync, on the disk of the
// temporary directory, with files released as soon as they are full.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct{ records, body int }{{1, 256}, {8, 256}, {26, 256}, {256, 256}, {1, 1 << 20}} {
		b.Run(fmt.Sprintf("records=%d/body=%d", c.records, c.body), func(b *testing.B) {
			l, ready := benchLog(b)
			head, body := make([]byte, 24), make([]byte, c.body)
			sum := bin.Sum(body)
			b.ReportAllocs()
			b.SetBytes(int64(c.records) * RecordBytes(len(head), len(body)))
			var last Position
			for b.Loop() {
				batch := stageBench(b, l, ready, c.records, head, body, sum)
				if err := l.Commit(batch); err != nil {
					b.Fatal(err)
				}
				if p := batch.Position(); batch.file.number > 1 && batch.off == headerBytes {
					l.Release(last)
				} else {
					last = p
				}
			}
		})
	}
}

// BenchmarkStage is Add alone: header, checksums, copy.
func BenchmarkStage(b *testing.B) {
	l, ready := benchLog(b)
	head, body := make([]byte, 24), make([]byte, 256)
	sum := bin.Sum(body)
	size := RecordBytes(len(head), len(body))
	b.ReportAllocs()
	b.SetBytes(size)
	left := 0
	var batch *Batch
	for b.Loop() {
		if left == 0 {
			left = BatchBytes / int(size)
			if batch != nil {
				batch.count, batch.buf = 0, batch.buf[:0] // dropped: nothing reaches the disk
			}
			batch = stageBench(b, l, ready, 0, head, body, sum)
			batch.limit = 1 << 62
		}
		batch.Add(1, head, body, sum)
		left--
	}
	batch.count = 0
}
