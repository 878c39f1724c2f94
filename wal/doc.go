// Package wal is a durable ordered log of opaque payloads: framing, rotation,
// preallocated and recycled files, and the recovery of a torn tail.
//
// A log is a directory of numbered files of fixed size. Records are staged in
// batches; a batch is one write and one fdatasync, so all of its records become
// durable together or, when the machine stops in between, a prefix of them. The
// bytes are drawn in format.go and in docs/format/wal.md.
//
// # Who calls what
//
// Three parties share a Log. The turn stages: Begin, Batch.Add, Rotate. The disk
// goroutine commits: Commit, one batch at a time. One goroutine of the log itself,
// the preparer, keeps the next file ready and takes back released ones; Open starts
// it and Close stops it. While a batch is being committed, the turn may stage one
// more. All other methods may be called by anyone at any time.
//
// # Errors
//
// The first error from the disk is final: nothing is retried, every later Commit
// returns it, and the process is expected to end and to recover by Open. The one
// exception is a full disk, which shows while the next file is prepared: Begin
// refuses until there is room again, see NoSpace.
package wal
