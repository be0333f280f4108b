package servers

import "syscall"

// ownGroup puts a child into a process group of its own, so that a signal
// reaches whatever it starts, and ends it when this process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
