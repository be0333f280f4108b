package servers

import "syscall"

// ownGroup puts a child into a process group of its own, so that a signal also reaches the
// processes that it starts. The child ends when this process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
