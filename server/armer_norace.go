//go:build !race

package server

import (
	"fmt"
	"reflect"
	"unsafe"
)

// epollData is what netpoll registers with epoll: the operator's address.
func epollData(operator uintptr, _ int) uint64 { return uint64(operator) }

// clamp takes back the growth of the connection's read size, which doubles whenever a read
// fills it and then decides the size of each buffer. It is called on the poller, in OnRequest.
func (a armer) clamp() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("netpoll's connection is not as expected: %v", p)
		}
	}()
	v := reflect.ValueOf(a.np).Elem()
	for _, name := range [...]string{"bookSize", "maxSize"} {
		size := (*int)(unsafe.Pointer(v.FieldByName(name).UnsafeAddr()))
		*size = min(*size, netpollBuffer)
	}
	return nil
}
