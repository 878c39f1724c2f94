//go:build e2e

package trace

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ntARMSystemCall is NT_ARM_SYSTEM_CALL: the number of the call that a thread enters is
// no register of its own.
const ntARMSystemCall = 0x404

// skipCall makes a thread that is about to enter a call enter none.
func skipCall(tid int) error {
	none := int32(-1)
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(&none)), Len: uint64(unsafe.Sizeof(none))}
	_, _, errno := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(tid), ntARMSystemCall, uintptr(unsafe.Pointer(&v)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setResult changes the result of the call that a thread has just left.
func setResult(tid int, result int64) error {
	var r unix.PtraceRegsArm64
	if err := unix.PtraceGetRegSetArm64(tid, unix.NT_PRSTATUS, &r); err != nil {
		return err
	}
	r.Regs[0] = uint64(result)
	return unix.PtraceSetRegSetArm64(tid, unix.NT_PRSTATUS, &r)
}
