// Package wal is a durable ordered log of opaque payloads: framing, rotation,
// preallocated and recycled files, and the recovery of a torn tail.
package wal
