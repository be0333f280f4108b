//go:build unix && !linux

package servers

import "syscall"

// ownGroup puts a child into a process group of its own, so that a signal
// reaches whatever it starts. These systems cannot tie its life to ours.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
