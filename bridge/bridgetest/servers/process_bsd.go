//go:build unix && !linux

package servers

import "syscall"

// ownGroup puts a child into a process group of its own, so that a signal also reaches the
// processes that it starts. On these systems, a child can outlive this process.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
