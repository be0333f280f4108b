//go:build !unix

package dev

import "os"

// ownCPU is the CPU time of this process and of all of its that have ended, in
// seconds, 0 where the system does not tell.
func ownCPU() float64 { return 0 }

// terminate asks a process to end; where that is impossible it is killed.
var terminate = os.Interrupt
