package vfs

import "unsafe"

// Aligned returns zeroed memory for direct I/O: at least n bytes, with its address,
// length and capacity multiples of BlockSize.
func Aligned(n int) []byte {
	size := (n + BlockSize - 1) / BlockSize * BlockSize
	b := make([]byte, size+BlockSize)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % BlockSize)
	return b[skip : skip+size : skip+size]
}
