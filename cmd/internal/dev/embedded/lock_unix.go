//go:build unix

package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks the file until it is closed or the process ends. It fails at once if
// another process has locked it.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// unlockFile unlocks the file at once. Closing the file would not, while a child process
// that is just starting has a copy of it.
func unlockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_UN)
}
