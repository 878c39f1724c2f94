//go:build race

package server

// epollData is what netpoll registers with epoll under the race detector: the descriptor.
func epollData(_ uintptr, fd int) uint64 { return uint64(uint32(fd)) }

// clamp does nothing: the race detector can't see that the poller is the caller.
func (a armer) clamp() error { return nil }
