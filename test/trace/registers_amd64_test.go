//go:build e2e

package trace

import "syscall"

// skipCall makes a thread that is about to enter a call enter none.
func skipCall(tid int) error {
	return registers(tid, func(r *syscall.PtraceRegs) { r.Orig_rax = ^uint64(0) })
}

// setResult changes the result of the call that a thread has just left.
func setResult(tid int, result int64) error {
	return registers(tid, func(r *syscall.PtraceRegs) { r.Rax = uint64(result) })
}

func registers(tid int, change func(*syscall.PtraceRegs)) error {
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	change(&r)
	return syscall.PtraceSetRegs(tid, &r)
}
