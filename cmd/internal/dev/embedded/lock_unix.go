//go:build unix

package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks the file until it is closed or the process ends, or fails at
// once if another process has it.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// unlockFile lets go of the lock at once. Closing the file is not enough while
// a child process that is just being started has a copy of it.
func unlockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_UN)
}
