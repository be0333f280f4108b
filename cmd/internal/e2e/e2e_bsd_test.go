//go:build unix && !linux

package e2e_test

import "syscall"

func endsWithUs() *syscall.SysProcAttr { return nil }

// peakMemory cannot be read here.
func peakMemory(int) (int64, bool) { return 0, false }
