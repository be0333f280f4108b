//go:build unix

package servers

import (
	"os"
	"syscall"
)

const (
	suspend = syscall.SIGSTOP
	resume  = syscall.SIGCONT
)

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

// tryLock takes the lock of an open file without waiting. Closing the file releases the
// lock, and so does the end of the process.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
