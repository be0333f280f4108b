//go:build !unix

package servers

import (
	"errors"
	"os"
	"syscall"
)

const (
	suspend = syscall.Signal(-1)
	resume  = syscall.Signal(-2)
)

func ownGroup() *syscall.SysProcAttr { return nil }

func signalGroup(pid int, s syscall.Signal) error {
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM:
		p, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		return p.Kill()
	case resume:
		return nil // this system cannot pause a process
	}
	return errors.New("this system cannot pause a process")
}

// tryLock always succeeds. Without locks, two first runs at once both download the jars,
// and the later one deletes its copy.
func tryLock(*os.File) error { return nil }
